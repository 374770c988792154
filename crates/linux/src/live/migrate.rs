//! Moving a region's pages with `move_pages`, in batches.
//!
//! A task that touches a page on its way waits for the batch, so batches are bounded: their
//! size follows the time the last ones took, aiming at [`PAUSE_TARGET`]. Each call has the
//! kernel drain its per-CPU lists first, so very small batches cost more than they spare.

use numaherd_model::{Bytes, Costs, Nanos, NodeId, Outcome, Pages, Refusal, RegionId, SkipReason};

use crate::sys::clock;
use crate::sys::pages::{self, PageStatus, Target};

/// Longest time a call should take. Guessed: reported as what brought blocking from minutes to
/// nothing to speak of, with batches of 64 to 1280 pages.
const PAUSE_TARGET: Nanos = Nanos(20_000_000);
/// Bounds of a batch, in pages.
const BATCH: (usize, usize) = (64, 1280);

/// The batch size and cost learnt so far.
#[derive(Debug)]
pub struct Mover {
    batch: usize,
    page_move: Nanos,
}

impl Mover {
    pub fn new() -> Mover {
        Mover { batch: 256, page_move: Costs::default().page_move }
    }

    /// Time to move one page, over the last moves.
    pub fn page_move(&self) -> Nanos {
        self.page_move
    }

    /// Moves whatever of the region is not on `to` yet; calls `beat` between batches.
    pub fn move_region(
        &mut self,
        region: RegionId,
        len: Bytes,
        to: NodeId,
        page: Bytes,
        beat: &mut dyn FnMut(),
    ) -> Outcome {
        let addresses: Vec<u64> =
            (0..len.0 / page.0).map(|index| region.start + index * page.0).collect();
        let tgid = region.process.tgid;
        let mut status = Vec::new();
        let mut elsewhere = Vec::new();
        if let Err(error) = pages::query(tgid, &addresses, &mut status) {
            return super::skipped(&error);
        }
        for (&address, &raw) in addresses.iter().zip(&status) {
            if matches!(PageStatus::from_raw(raw), PageStatus::On(node) if node != to) {
                elsewhere.push(address);
            }
        }
        let (mut moved, mut refused) = (0, Refusal::default());
        let mut rest = elsewhere.as_slice();
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(self.batch.min(rest.len()));
            rest = later;
            beat();
            let begin = clock::monotonic();
            if let Err(error) = pages::migrate(tgid, batch, Target::One(to), false, &mut status) {
                if moved == 0 {
                    return super::skipped(&error);
                }
                break;
            }
            let before = moved;
            for &raw in &status {
                match PageStatus::from_raw(raw) {
                    PageStatus::On(node) if node == to => moved += 1,
                    PageStatus::On(_) | PageStatus::Busy => refused.busy += 1,
                    PageStatus::Absent => refused.absent += 1,
                    PageStatus::Shared => refused.shared += 1,
                    PageStatus::Full => refused.full += 1,
                    PageStatus::Error(_) => refused.other += 1,
                }
            }
            self.learn(batch.len(), moved - before, clock::monotonic().since(begin));
            if refused.full > 0 {
                // The node has no room: more of the same would only make it reclaim.
                refused.full += rest.len() as u64;
                break;
            }
        }
        match (moved, refused == Refusal::default()) {
            (0, true) => Outcome::Done { moved: Pages(0) },
            (0, false) if refused.full > 0 => {
                Outcome::Skipped(SkipReason::Refused { error: "no room on the node".into() })
            }
            (_, true) => Outcome::Done { moved: Pages(moved) },
            _ => Outcome::Partial { moved: Pages(moved), refused },
        }
    }

    fn learn(&mut self, pages: usize, moved: u64, took: Nanos) {
        let aim = (pages as u64 * PAUSE_TARGET.0 / took.0.max(1)) as usize;
        // No more than doubled at a time: one quick call may have been luck.
        self.batch = aim.min(self.batch * 2).clamp(BATCH.0, BATCH.1);
        if let Some(each) = took.0.checked_div(moved) {
            self.page_move = Nanos((self.page_move.0 * 3 + each) / 4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_shrink_when_calls_take_long_and_grow_slowly() {
        let mut mover = Mover::new();
        mover.learn(256, 256, Nanos(80_000_000)); // 80 ms: four times too long
        assert_eq!(mover.batch, 64);
        mover.learn(64, 64, Nanos(1_000_000));
        assert_eq!(mover.batch, 128);
        assert!(mover.page_move() > Costs::default().page_move);
    }

    #[test]
    fn a_call_that_moves_nothing_teaches_no_cost() {
        let mut mover = Mover::new();
        mover.learn(100, 0, Nanos(10_000_000));
        assert_eq!(mover.page_move(), Costs::default().page_move);
    }
}
