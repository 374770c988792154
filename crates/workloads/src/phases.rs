//! phases: numa02 whose threads swap their slices half-way, each with the thread half a team
//! further on. What was the right place for the first half is the wrong one for the second. They
//! wait for each other in between, as programs do that go from one phase to the next.
//!
//! `bind` is the best static placement: the two threads of a pair and their two slices on one
//! node, so that all is local in both halves. It knows the future; who goes by what was must
//! move.

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
    let pairs = threads.div_ceil(2);
    let span = Span::map(size, setting.params.huge_pages)?;
    let home = |index| setting.layout.home(pairs, pair(index, threads));
    let homes: Vec<_> = (0..threads).map(home).collect();
    let pieces = homes.iter().cloned().enumerate();
    let piece = |(index, home)| Piece { part: slice(size, threads, index), home };
    setting.place(&span, pieces.map(piece), 0)?;
    let between = Barrier::new(threads);
    Ok(Job::over(span, homes, move |span, index, tally| {
        let mut swapped = false;
        for round in tally.rounds(loops) {
            if !swapped && tally.half_over(round, loops) {
                between.wait();
                swapped = true;
            }
            let owner = if swapped { partner(index, threads) } else { index };
            tally.write(span, slice(size, threads, owner), mark(index, round));
        }
        if !swapped {
            // The time was over within the first half's last round: the others still wait.
            between.wait();
        }
    }))
}

/// What a thread writes in a round.
fn mark(index: usize, round: usize) -> u64 {
    (index as u64) << 32 | (round as u64 + 1)
}

/// Who a thread swaps with; an odd one out keeps its slice.
fn partner(index: usize, threads: usize) -> usize {
    let half = threads / 2;
    if index < half {
        index + half
    } else if index < 2 * half {
        index - half
    } else {
        index
    }
}

/// The number of the pair a thread is in.
fn pair(index: usize, threads: usize) -> usize {
    let half = threads / 2;
    if index < 2 * half { index % half.max(1) } else { half }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_here, with};

    #[test]
    fn pairs_swap_and_share_a_home() {
        for threads in 1..9 {
            for index in 0..threads {
                let other = partner(index, threads);
                assert_eq!(partner(other, threads), index);
                assert_eq!(pair(other, threads), pair(index, threads));
            }
        }
        assert_eq!([0, 1, 2, 3, 4].map(|index| partner(index, 5)), [2, 3, 0, 1, 4]);
        assert_eq!([0, 1, 2, 3, 4].map(|index| pair(index, 5)), [0, 1, 0, 1, 2]);
    }

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

    /// Each slice was last written by its owner's partner, in the last of 4 rounds.
    #[test]
    fn slices_change_hands_half_way() {
        with(4, 1 << 20, 4, |setting| {
            let job = job(setting).unwrap();
            assert_eq!(run_here(&job, setting).amount, 4 << 20);
            for index in 0..4 {
                let last = mark(partner(index, 4), 3);
                let found = job.span.as_ref().unwrap().extremes(slice(1 << 20, 4, index));
                assert_eq!(found, (last, last), "slice {index}");
            }
        });
    }
}
