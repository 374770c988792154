//! stream: bound by bandwidth. Each thread has three arrays of its own and computes
//! `a = b + 3 × c` over and over: two lines read and one written for a handful of instructions.
//!
//! By default there is a thread for every second CPU, so that all of them fit on half of the
//! nodes: whoever gathers them there because they are one process halves the bandwidth they
//! have. `bind` spreads threads, each with its arrays, over all nodes. The pattern is that of
//! McCalpin's STREAM triad; one word of each line is computed, since the memory moves whole lines
//! all the same.

use std::ops::Range;

use crate::job::Job;
use crate::setting::{Piece, Setting};
use crate::span::{LINE_BYTES, Span};
use crate::{WorkloadError, slice};

/// What everything holds at first, so that `a` becomes 1 + 3 × 1.
const FIRST: u64 = 1;
/// Bytes of each array between two looks at the clock.
const CHUNK_BYTES: usize = 1 << 20;

/// The process.
pub fn job<'a>(setting: &Setting) -> Result<Job<'a>, WorkloadError> {
    setting.check_bytes(3 * 4096, "three pages")?;
    let (size, loops) = (setting.params.size_bytes, setting.params.loops);
    let threads = setting.params.threads;
    let span = Span::map(size, setting.params.huge_pages)?;
    let homes: Vec<_> = (0..threads).map(|index| setting.layout.thread(threads, index)).collect();
    let pieces = homes.iter().cloned().enumerate();
    let piece = |(index, home)| Piece { part: slice(size, threads, index), home };
    setting.place(&span, pieces.map(piece), FIRST)?;
    Ok(Job::over(span, homes, move |span, index, tally| {
        let [a, b, c] = arrays(slice(size, threads, index));
        for _ in tally.rounds(loops) {
            for first in (0..a.len()).step_by(CHUNK_BYTES) {
                let last = (first + CHUNK_BYTES).min(a.len());
                let of = |array: &Range<usize>| array.start + first..array.start + last;
                span.triad(of(&a), of(&b), of(&c));
                tally.add(3 * (last - first) as u64);
            }
        }
    }))
}

/// The three arrays of a slice, of equal length, in whole lines.
fn arrays(slice: Range<usize>) -> [Range<usize>; 3] {
    let each = slice.len() / 3 / LINE_BYTES * LINE_BYTES;
    [0, 1, 2].map(|n| slice.start + n * each..slice.start + (n + 1) * each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_here, with};

    #[test]
    fn every_line_of_a_is_computed() {
        with(2, 1 << 20, 3, |setting| {
            let job = job(setting).unwrap();
            // 512 KiB a thread: arrays of 174720 bytes (2730 lines).
            let [a, b, _] = arrays(0..512 << 10);
            assert_eq!(a.len(), 174_720);
            assert_eq!(run_here(&job, setting).amount, 2 * 3 * 3 * 174_720);
            let span = job.span.as_ref().unwrap();
            assert_eq!(span.read(a), 2730 * 4);
            assert_eq!(span.extremes(b), (1, 1));
        });
    }
}
