//! Moving pages with `move_pages`.
//!
//! Each call first has the kernel drain its per-CPU lists, which waits for every CPU and costs
//! tens of milliseconds where they are slow and busy; so ranges that go to one node are moved
//! in few, large calls. That does not lengthen the pause of a task that touches a page on its
//! way: within a call the kernel takes pages off, copies and puts back at most 2 MiB at a time.
//!
//! Huge pages go first, whole, by naming only the first address of every 2 MiB: naming all 512
//! would have the kernel refuse the second while the first is on its way.

use std::collections::BTreeSet;
use std::ops::Range;

use numaherd_model::{Costs, Nanos, NodeId, Outcome, Pages, ProcessId, Refusal, SkipReason};

use crate::sys::pages::{self, PageStatus, Target};
use crate::sys::{SysError, clock};

/// Most pages of one call. Guessed: 16 MiB, a fraction of a second even where a page takes
/// 50 us.
const BATCH_PAGES: usize = 4096;
/// Alignment and size of a huge page.
const HUGE_BYTES: u64 = 2 << 20;

/// What was learnt from the moves so far.
#[derive(Debug)]
pub struct Mover {
    page_move: Nanos,
    /// Processes in which nothing was found to be a huge page.
    without_huge: BTreeSet<ProcessId>,
}

/// A page that is not where it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stray {
    /// Index of its range.
    range: usize,
    address: u64,
}

impl Mover {
    pub fn new() -> Mover {
        Mover { page_move: Costs::default().page_move, without_huge: BTreeSet::new() }
    }

    /// Time to move one page, over the last moves.
    pub fn page_move(&self) -> Nanos {
        self.page_move
    }

    /// Moves whatever of the ranges is not on `to` yet; calls `beat` between calls. Answers an
    /// outcome for each range.
    pub fn move_ranges(
        &mut self,
        process: ProcessId,
        ranges: &[Range<u64>],
        to: NodeId,
        beat: &mut dyn FnMut(),
    ) -> Vec<Outcome> {
        let begin = clock::monotonic();
        let mut refused = vec![Refusal::default(); ranges.len()];
        let result = self.try_move(process, ranges, to, &mut refused, beat);
        let moved = match result {
            Ok(moved) => moved,
            Err(error) => return vec![super::skipped(&error); ranges.len()],
        };
        let all: u64 = moved.iter().sum();
        if let Some(each) = clock::monotonic().since(begin).0.checked_div(all) {
            self.page_move = Nanos((self.page_move.0 * 3 + each) / 4);
        }
        moved.into_iter().zip(refused).map(|(moved, refused)| outcome(moved, refused)).collect()
    }

    fn try_move(
        &mut self,
        process: ProcessId,
        ranges: &[Range<u64>],
        to: NodeId,
        refused: &mut [Refusal],
        beat: &mut dyn FnMut(),
    ) -> Result<Vec<u64>, SysError> {
        let tgid = process.tgid;
        let page = pages::size().0;
        let all = ranges.iter().enumerate().flat_map(|(range, addresses)| {
            let count = (addresses.end - addresses.start) / page;
            let start = addresses.start;
            (0..count).map(move |index| Stray { range, address: start + index * page })
        });
        let before = strays(tgid, all.collect(), to)?;
        let mut left = before.clone();
        let heads: Vec<u64> =
            left.iter().map(|s| s.address).filter(|a| a.is_multiple_of(HUGE_BYTES)).collect();
        let mut status = Vec::new();
        if !heads.is_empty() && !self.without_huge.contains(&process) {
            beat();
            pages::migrate(tgid, &heads, Target::One(to), false, &mut status)?;
            left = strays(tgid, left, to)?;
            if before.len() - left.len() <= heads.len() {
                self.without_huge.insert(process);
            }
        }
        for batch in left.chunks(BATCH_PAGES) {
            beat();
            let addresses: Vec<u64> = batch.iter().map(|stray| stray.address).collect();
            pages::migrate(tgid, &addresses, Target::One(to), false, &mut status)?;
            for (stray, &raw) in batch.iter().zip(&status) {
                count(&mut refused[stray.range], PageStatus::from_raw(raw), to);
            }
            if refused.iter().any(|refused| refused.full > 0) {
                // The node has no room: more of the same would only make it reclaim.
                break;
            }
        }
        let after = if left.is_empty() { left } else { strays(tgid, left, to)? };
        let mut moved = vec![0; ranges.len()];
        for stray in &before {
            moved[stray.range] += 1;
        }
        for stray in &after {
            moved[stray.range] -= 1;
        }
        Ok(moved)
    }
}

/// Those of the pages that are on another node than `to`.
fn strays(tgid: u32, candidates: Vec<Stray>, to: NodeId) -> Result<Vec<Stray>, SysError> {
    let addresses: Vec<u64> = candidates.iter().map(|stray| stray.address).collect();
    let mut status = Vec::new();
    pages::query(tgid, &addresses, &mut status)?;
    let elsewhere =
        |raw: &i32| matches!(PageStatus::from_raw(*raw), PageStatus::On(node) if node != to);
    let found = candidates.into_iter().zip(&status).filter(|(_, raw)| elsewhere(raw));
    Ok(found.map(|(stray, _)| stray).collect())
}

fn count(refused: &mut Refusal, status: PageStatus, to: NodeId) {
    match status {
        PageStatus::On(node) if node == to => {}
        PageStatus::On(_) | PageStatus::Busy => refused.busy += 1,
        PageStatus::Absent => refused.absent += 1,
        PageStatus::Shared => refused.shared += 1,
        PageStatus::Full => refused.full += 1,
        PageStatus::Error(_) => refused.other += 1,
    }
}

fn outcome(moved: u64, refused: Refusal) -> Outcome {
    if moved == 0 && refused.full > 0 {
        return Outcome::Skipped(SkipReason::Refused { error: "no room on the node".into() });
    }
    if refused == Refusal::default() {
        Outcome::Done { moved: Pages(moved) }
    } else {
        Outcome::Partial { moved: Pages(moved), refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_fall_into_their_classes() {
        let mut refused = Refusal::default();
        for status in [
            PageStatus::On(NodeId(1)),
            PageStatus::On(NodeId(0)),
            PageStatus::Busy,
            PageStatus::Shared,
            PageStatus::Absent,
        ] {
            count(&mut refused, status, NodeId(1));
        }
        assert_eq!(refused, Refusal { busy: 2, shared: 1, full: 0, absent: 1, other: 0 });
    }

    #[test]
    fn a_full_node_is_a_refusal_and_some_left_is_partial() {
        let full = Refusal { full: 3, ..Refusal::default() };
        assert!(matches!(outcome(0, full), Outcome::Skipped(SkipReason::Refused { .. })));
        assert!(matches!(outcome(5, full), Outcome::Partial { moved: Pages(5), .. }));
        assert_eq!(outcome(5, Refusal::default()), Outcome::Done { moved: Pages(5) });
    }

    #[test]
    fn our_own_pages_on_their_own_node_have_nothing_to_move() {
        let buffer = vec![1u8; 64 << 12];
        let start = (buffer.as_ptr() as u64).next_multiple_of(4096);
        let me = std::process::id();
        let mut status = Vec::new();
        pages::query(me, &[start], &mut status).unwrap();
        let PageStatus::On(node) = PageStatus::from_raw(status[0]) else { panic!("{status:?}") };
        let process = ProcessId { tgid: me, start: 0 };
        let mut beats = 0;
        let range = start..start + 16 * 4096;
        let mut mover = Mover::new();
        let outcomes =
            mover.move_ranges(process, std::slice::from_ref(&range), node, &mut || beats += 1);
        assert_eq!((outcomes, beats), (vec![Outcome::Done { moved: Pages(0) }], 0));
    }
}
