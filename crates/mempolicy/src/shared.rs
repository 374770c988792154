//! A shared object's policies, looked up by many threads and changed seldom.
//!
//! Readers take neither a lock nor a reference for a look-up: each [`Reader`] holds the whole
//! table as it last saw it, one load tells whether that is still the newest, and the policy found
//! is borrowed. A reference is taken once by each reader after a change, and by whoever keeps a
//! policy ([`Reader::keep`]) beyond it. Changes copy the table and take turns.
//!
//! The point is that of the kernel's rework of 2008: what counts references on the path of every
//! page fault makes threads pass one cache line around. `benches/lookups.rs` measures it.
//!
//! ```
//! use std::sync::Arc;
//! use numaherd_mempolicy::{Mode, Policy, Request, Room, shared::Shared};
//! let room = Room { allowed: "0-1".parse().unwrap(), memory: "0-1".parse().unwrap() };
//! let bind = Policy::new(&Request::plain(Mode::Bind, "1".parse().unwrap()), &room).unwrap();
//! let shared = Shared::default();
//! let mut reader = shared.reader();
//! assert!(reader.get(3).is_none());
//! shared.set(0..8, bind.map(Arc::new));
//! assert_eq!(reader.get(3).unwrap().to_string(), "bind:1");
//! ```

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Cache};

use crate::Policy;
use crate::ranges::Ranges;

/// The object's policies.
#[derive(Debug, Default)]
pub struct Shared {
    newest: ArcSwap<Ranges>,
    /// Held by whoever changes the table.
    turn: Mutex<()>,
}

impl Shared {
    /// Puts a policy on `pages`; None takes away what is there.
    pub fn set(&self, pages: Range<u64>, policy: Option<Arc<Policy>>) {
        // nothing is left half done by a writer that panicked: the table is replaced at the end
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ranges = Ranges::clone(&self.newest.load());
        ranges.set(pages, policy);
        self.newest.store(Arc::new(ranges));
    }

    /// A reader, for one thread.
    #[must_use]
    pub fn reader(&self) -> Reader<'_> {
        Reader { cache: Cache::new(&self.newest) }
    }
}

/// One thread's view of the object's policies; always the newest.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    cache: Cache<&'a ArcSwap<Ranges>, Arc<Ranges>>,
}

impl Reader<'_> {
    /// The policy of a page, as long as the next look-up is not made.
    pub fn get(&mut self, page: u64) -> Option<&Policy> {
        self.cache.load().get(page)
    }

    /// The policy of a page, to be kept over changes: the one case that costs a reference.
    pub fn keep(&mut self, page: u64) -> Option<Arc<Policy>> {
        self.cache.load().keep(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Request, Room};

    fn bind(node: u32) -> Arc<Policy> {
        let room = Room { allowed: "0-9".parse().unwrap(), memory: "0-9".parse().unwrap() };
        let request = Request::plain(Mode::Bind, node.to_string().parse().unwrap());
        Arc::new(Policy::new(&request, &room).unwrap().unwrap())
    }

    #[test]
    fn look_ups_count_no_reference_and_keeping_counts_one() {
        let policy = bind(1);
        let shared = Shared::default();
        shared.set(0..8, Some(Arc::clone(&policy)));
        let mut reader = shared.reader();
        // ours and the table's
        assert_eq!(Arc::strong_count(&policy), 2);
        for page in 0..8 {
            assert!(reader.get(page).is_some());
        }
        assert_eq!(Arc::strong_count(&policy), 2);
        let kept = reader.keep(3).unwrap();
        assert_eq!(Arc::strong_count(&policy), 3);
        shared.set(0..8, None);
        assert!(reader.get(3).is_none());
        assert_eq!(kept.to_string(), "bind:1");
    }

    #[test]
    fn readers_see_whole_tables_while_writers_change_them() {
        // Pages 0 and 1 are always set together, so no reader may see them differ.
        let shared = Shared::default();
        shared.set(0..2, Some(bind(0)));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut reader = shared.reader();
                    for _ in 0..20_000 {
                        let ranges = reader.cache.load();
                        assert_eq!(ranges.get(0), ranges.get(1));
                    }
                });
            }
            for node in 0..400 {
                shared.set(0..2, Some(bind(node % 10)));
            }
        });
        assert_eq!(shared.reader().get(0).unwrap().to_string(), "bind:9");
    }
}
