//! shared: one process in which every thread has a slice of its own and all use one region. Half
//! of the memory is the region; half of each thread's writes go there, to another part in each
//! round.
//!
//! `bind` has every thread beside its slice, and the region interleaved over all nodes. No static
//! placement serves the region better: with threads on every node some are far from each of its
//! pages, and interleaving spreads that evenly, so that no thread is slower than the others.

use std::ops::Range;

use crate::job::Job;
use crate::setting::{Piece, Setting};
use crate::span::Span;
use crate::{WorkloadError, slice};

/// The process.
pub fn job<'a>(setting: &Setting) -> Result<Job<'a>, WorkloadError> {
    setting.check_bytes(2 * 4096, "two pages")?;
    let (size, loops) = (setting.params.size_bytes, setting.params.loops);
    let threads = setting.params.threads;
    let span = Span::map(size, setting.params.huge_pages)?;
    let homes: Vec<_> = (0..threads).map(|index| setting.layout.thread(threads, index)).collect();
    let everywhere = 0..setting.layout.nodes.len();
    let owned = homes.iter().cloned().enumerate();
    let pieces = owned
        .map(|(index, home)| Piece { part: own(size, threads, index), home })
        .chain([Piece { part: region(size), home: everywhere }]);
    setting.place(&span, pieces, 0)?;
    Ok(Job::over(span, homes, move |span, index, tally| {
        for round in tally.rounds(loops) {
            let value = round as u64 + 1;
            tally.write(span, own(size, threads, index), value);
            tally.write(span, part(size, threads, (index + round) % threads), value);
        }
    }))
}

/// The region that all use: the first half, in whole pages.
fn region(size: usize) -> Range<usize> {
    0..size / 2 / 4096 * 4096
}

/// A thread's own slice, behind it.
fn own(size: usize, threads: usize, index: usize) -> Range<usize> {
    let first = region(size).end;
    let slice = slice(size - first, threads, index);
    first + slice.start..first + slice.end
}

/// A part of the region as long as a slice.
fn part(size: usize, threads: usize, index: usize) -> Range<usize> {
    slice(region(size).end, threads, index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_here, with};

    /// 1 MiB: a region of 512 KiB and 4 slices of 128 KiB. 5 rounds of all of it.
    #[test]
    fn slices_have_one_writer_and_the_region_has_all() {
        with(4, 1 << 20, 5, |setting| {
            let job = job(setting).unwrap();
            assert_eq!(run_here(&job, setting).amount, 5 << 20);
            let span = job.span.as_ref().unwrap();
            assert_eq!(span.extremes(512 << 10..1 << 20), (5, 5));
            let (least, most) = span.extremes(region(1 << 20));
            assert!(least >= 1 && most == 5, "{least} to {most}");
        });
    }
}
