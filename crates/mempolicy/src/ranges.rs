//! Policies over ranges of a shared object, in pages: set, split, merge, look up.
//!
//! Invariants: ranges are not empty, do not overlap, ascend; neighbours that touch have different
//! policies; a page without a range has none (the task's counts). Source: the shared policy tree
//! of mm/mempolicy.c, which splits alike and does not merge.
//!
//! ```
//! use std::sync::Arc;
//! use numaherd_mempolicy::{Mode, Policy, Request, Room, ranges::Ranges};
//! let room = Room { allowed: "0-1".parse().unwrap(), memory: "0-1".parse().unwrap() };
//! let policy = |mode, nodes: &str| {
//!     Policy::new(&Request::plain(mode, nodes.parse().unwrap()), &room).unwrap().map(Arc::new)
//! };
//! let mut ranges = Ranges::default();
//! ranges.set(0..10, policy(Mode::Bind, "0"));
//! ranges.set(4..6, policy(Mode::Bind, "1")); // splits the first into 0..4 and 6..10
//! let all: Vec<String> = ranges.iter().map(|(r, p)| format!("{r:?} {p}")).collect();
//! assert_eq!(all, ["0..4 bind:0", "4..6 bind:1", "6..10 bind:0"]);
//! ```

use std::ops::Range;
use std::sync::Arc;

use crate::Policy;

/// Policies over ranges of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Ascending, not overlapping.
    all: Vec<(Range<u64>, Arc<Policy>)>,
}

impl Ranges {
    /// Puts a policy on `pages`; None takes away what is there. An empty range changes nothing.
    pub fn set(&mut self, pages: Range<u64>, policy: Option<Arc<Policy>>) {
        if pages.is_empty() {
            return;
        }
        let first = self.all.partition_point(|(range, _)| range.end <= pages.start);
        let behind = self.all.partition_point(|(range, _)| range.start < pages.end);
        let mut between = Vec::with_capacity(3);
        for (range, old) in &self.all[first..behind] {
            if range.start < pages.start {
                between.push((range.start..pages.start, Arc::clone(old)));
            }
        }
        between.extend(policy.map(|policy| (pages.clone(), policy)));
        for (range, old) in &self.all[first..behind] {
            if range.end > pages.end {
                between.push((pages.end..range.end, Arc::clone(old)));
            }
        }
        let inserted = between.len();
        self.all.splice(first..behind, between);
        self.merge(first.saturating_sub(1)..(first + inserted + 1).min(self.all.len()));
    }

    /// Joins neighbours with the same policy among the entries at `within`.
    fn merge(&mut self, within: Range<usize>) {
        let mut at = within.start;
        let mut end = within.end;
        while at + 1 < end {
            let same = self.all[at].0.end == self.all[at + 1].0.start
                && self.all[at].1 == self.all[at + 1].1;
            if same {
                self.all[at].0.end = self.all[at + 1].0.end;
                self.all.remove(at + 1);
                end -= 1;
            } else {
                at += 1;
            }
        }
    }

    /// The policy of a page; None where it has none of its own.
    #[must_use]
    pub fn get(&self, page: u64) -> Option<&Policy> {
        self.find(page).map(|(_, policy)| policy.as_ref())
    }

    /// The policy of a page, to be kept beyond the next change.
    #[must_use]
    pub fn keep(&self, page: u64) -> Option<Arc<Policy>> {
        self.find(page).map(|(_, policy)| Arc::clone(policy))
    }

    fn find(&self, page: u64) -> Option<&(Range<u64>, Arc<Policy>)> {
        let at = self.all.partition_point(|(range, _)| range.end <= page);
        self.all.get(at).filter(|(range, _)| range.contains(&page))
    }

    /// Ranges and their policies, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, &Policy)> {
        self.all.iter().map(|(range, policy)| (range.clone(), policy.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Request, Room};
    use numaherd_model::NodeId;
    use proptest::prelude::*;

    fn bind(node: u32) -> Option<Arc<Policy>> {
        let room = Room { allowed: "0-9".parse().unwrap(), memory: "0-9".parse().unwrap() };
        let nodes = [NodeId(node)].into_iter().collect();
        Policy::new(&Request::plain(Mode::Bind, nodes), &room).unwrap().map(Arc::new)
    }

    #[test]
    fn setting_the_same_again_merges_and_default_cuts() {
        let mut ranges = Ranges::default();
        ranges.set(0..10, bind(0));
        ranges.set(3..5, bind(1));
        ranges.set(3..5, bind(0));
        assert_eq!(ranges.iter().map(|(r, _)| format!("{r:?}")).collect::<String>(), "0..10");
        ranges.set(2..4, None);
        assert_eq!(ranges.iter().map(|(r, _)| r).collect::<Vec<_>>(), [0..2, 4..10]);
        assert_eq!(ranges.get(3), None);
        ranges.set(7..7, bind(1));
        assert_eq!(ranges.iter().count(), 2);
    }

    proptest! {
        /// Against an array with one entry a page.
        #[test]
        fn ranges_are_what_an_array_would_be(
            steps in proptest::collection::vec((0u64..40, 0u64..15, proptest::option::of(0u32..3)), 0..30)
        ) {
            let mut ranges = Ranges::default();
            let mut plain = vec![None; 64];
            for (start, len, node) in steps {
                let policy = node.and_then(bind);
                for page in start..start + len {
                    plain[page as usize] = policy.clone();
                }
                ranges.set(start..start + len, policy);
            }
            for (page, expected) in plain.iter().enumerate() {
                prop_assert_eq!(ranges.keep(page as u64), expected.clone());
            }
            let all: Vec<_> = ranges.iter().collect();
            for pair in all.windows(2) {
                prop_assert!(pair[0].0.end <= pair[1].0.start);
                prop_assert!(pair[0].0.end < pair[1].0.start || pair[0].1 != pair[1].1, "not merged");
            }
        }
    }
}
