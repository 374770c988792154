//! uneven: one process with groups of 3 and 5 threads in turn. All threads of a group write all
//! of its memory; the groups' memory is of equal size, and each thread does equal work.
//!
//! `bind` keeps groups whole, neighbours sharing a node's CPUs. The search behind that, for the
//! 2x4 with a line costing 210 ns from near memory and 410 ns from far (110 ns of instructions,
//! 100 or 300 ns of memory), in multiples of a thread alone beside its memory:
//!
//! | placement of the 5 | slowest thread |
//! |---|---|
//! | 4 beside their memory, the fifth on the other node | 410 ÷ 210 = 1.95 |
//! | the same, their memory interleaved over both nodes | 310 ÷ 210 = 1.48 |
//! | all 5 take turns on 4 CPUs beside their memory | 5 ÷ 4 = 1.25 |
//!
//! The last is the least; it needs memory to cost less than 1.25 of itself when far to be beaten.

use std::ops::Range;

use crate::job::Job;
use crate::setting::{Piece, Setting};
use crate::span::Span;
use crate::{WorkloadError, slice};

/// Sizes of the groups, in turn.
const SIZES: [usize; 2] = [3, 5];

/// The process.
pub fn job<'a>(setting: &Setting) -> Result<Job<'a>, WorkloadError> {
    setting.check_bytes(4096, "a page")?;
    let (size, loops) = (setting.params.size_bytes, setting.params.loops);
    let groups = groups(setting.params.threads);
    let count = groups.len();
    let span = Span::map(size, setting.params.huge_pages)?;
    let home = |group| setting.layout.home(count, group);
    let piece = |group| Piece { part: slice(size, count, group), home: home(group) };
    setting.place(&span, (0..count).map(piece), 0)?;
    let members: Vec<usize> = groups
        .into_iter()
        .enumerate()
        .flat_map(|(group, members)| members.map(move |_| group))
        .collect();
    let homes: Vec<_> = members.iter().map(|&group| home(group)).collect();
    Ok(Job::over(span, homes, move |span, index, tally| {
        for round in tally.rounds(loops) {
            tally.write(span, slice(size, count, members[index]), round as u64 + 1);
        }
    }))
}

/// The threads of each group; the last may be smaller.
fn groups(threads: usize) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for size in SIZES.into_iter().cycle() {
        let first = groups.last().map_or(0, |group| group.end);
        if first >= threads {
            break;
        }
        groups.push(first..threads.min(first + size));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_here, with};

    #[test]
    fn groups_are_of_3_and_5_in_turn() {
        assert_eq!(groups(8), [0..3, 3..8]);
        assert_eq!(groups(13), [0..3, 3..8, 8..11, 11..13]);
        assert_eq!(groups(2), vec![0..2]);
    }

    /// 8 threads, 2 groups of 512 KiB each: 8 x 512 KiB x 3 rounds.
    #[test]
    fn every_thread_writes_all_of_its_group() {
        with(8, 1 << 20, 3, |setting| {
            let job = job(setting).unwrap();
            assert_eq!(run_here(&job, setting).amount, 8 * 3 * (512 << 10));
            assert_eq!(job.span.as_ref().unwrap().extremes(0..1 << 20), (3, 3));
        });
    }
}
