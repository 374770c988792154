//! phases: numa02 whose threads pass their slices on half-way: each goes on with that of the next, the
//! last with the first's. What was the right place for the first half is the wrong one for some in the
//! second. They wait for each other in between, as programs do that go from one phase to the next.
//!
//! `bind` is the best static placement: neighbours on one node, slices beside the threads that begin
//! with them. The slices make a ring, so wherever it is cut over the nodes, at each cut a thread and
//! its slice are apart in one half of the run. The search behind that, for the 2x4 with a line costing
//! 210 ns from near memory and 410 ns from far, in multiples of a thread beside its memory:
//!
//! | placement | the slowest thread |
//! |---|---|
//! | as above: of 8 threads 2 are remote in the second half | (1 + 410 ÷ 210) ÷ 2 = 1.48 |
//! | the same, the slices at the cuts interleaved | 310 ÷ 210 = 1.48 |
//! | threads anywhere, all interleaved | 1.48 |
//! | all 8 threads taking turns on 4 CPUs beside all memory | 2 |
//!
//! Who has two slices change nodes at half-time comes near to 1.

use std::sync::Barrier;

use crate::job::Job;
use crate::setting::{Piece, Setting};
use crate::span::Span;
use crate::{WorkloadError, slice};

/// The process.
pub fn job<'a>(setting: &Setting) -> Result<Job<'a>, WorkloadError> {
    setting.check_bytes(4096, "a page")?;
    let (size, loops) = (setting.params.size_bytes, setting.params.loops);
    let threads = setting.params.threads;
    let span = Span::map(size, setting.params.huge_pages)?;
    let home = |index| setting.layout.thread(threads, index);
    let homes: Vec<_> = (0..threads).map(home).collect();
    let pieces = homes.iter().cloned().enumerate();
    let piece = |(index, home)| Piece { part: slice(size, threads, index), home };
    setting.place(&span, pieces.map(piece), 0)?;
    let between = Barrier::new(threads);
    Ok(Job::over(span, homes, move |span, index, tally| {
        let mut passed_on = false;
        for round in tally.rounds(loops) {
            if !passed_on && tally.half_over(round, loops) {
                between.wait();
                passed_on = true;
            }
            let owner = if passed_on { next(index, threads) } else { index };
            tally.write(span, slice(size, threads, owner), mark(index, round));
        }
        if !passed_on {
            // The time was over within the first half's last round: the others still wait.
            between.wait();
        }
    }))
}

/// What a thread writes in a round.
fn mark(index: usize, round: usize) -> u64 {
    (index as u64) << 32 | (round as u64 + 1)
}

/// Whose slice a thread goes on with.
fn next(index: usize, threads: usize) -> usize {
    (index + 1) % threads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_here, with};

    #[test]
    fn a_limit_of_time_leaves_nobody_waiting() {
        with(3, 1 << 20, 0, |setting| {
            let limits = [0, 1, 1_000_000].map(Some);
            for limit_ns in limits {
                let params = crate::Params { limit_ns, ..setting.params.clone() };
                let layout = setting.layout.clone();
                let limited = Setting { params, layout, command: setting.command };
                run_here(&job(&limited).unwrap(), &limited);
            }
        });
    }

    /// Each slice was last written by the thread before its owner, in the last of 4 rounds.
    #[test]
    fn slices_change_hands_half_way() {
        with(4, 1 << 20, 4, |setting| {
            let job = job(setting).unwrap();
            assert_eq!(run_here(&job, setting).amount, 4 << 20);
            for (index, owner) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
                let last = mark(index, 3);
                let found = job.span.as_ref().unwrap().extremes(slice(1 << 20, 4, owner));
                assert_eq!(found, (last, last), "slice {owner}");
            }
        });
    }
}
