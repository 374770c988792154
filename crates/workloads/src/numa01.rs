//! numa01: two processes, half the threads each, all threads of a process writing all of its
//! memory over and over. Each process fits on half of the nodes and belongs there whole.
//!
//! numa01_THREAD_ALLOC: the same processes, but each thread writes a slice of its own. Here
//! `bind` ties each thread and slice to one node of its process's half (on two nodes that is the
//! half).

use crate::job::Job;
use crate::parts::threads_of;
use crate::setting::{Piece, Setting};
use crate::span::Span;
use crate::{WorkloadError, slice};

/// Processes.
pub const PARTS: usize = 2;

/// One process: every thread writes everything.
pub fn shared<'a>(setting: &Setting, index: usize) -> Result<Job<'a>, WorkloadError> {
    let (size, loops) = (setting.params.size_bytes, setting.params.loops);
    let home = setting.layout.home(PARTS, index);
    let span = Span::map(size, setting.params.huge_pages)?;
    setting.place(&span, [Piece { part: 0..size, home: home.clone() }], 0)?;
    let homes = vec![home; threads_of(setting.params.threads, PARTS, index)];
    Ok(Job::over(span, homes, move |span, _, tally| {
        for round in tally.rounds(loops) {
            tally.write(span, 0..size, round as u64 + 1);
        }
    }))
}

/// One process: every thread writes its slice.
pub fn sliced<'a>(setting: &Setting, index: usize) -> Result<Job<'a>, WorkloadError> {
    let (size, loops) = (setting.params.size_bytes, setting.params.loops);
    let threads = threads_of(setting.params.threads, PARTS, index);
    let half = setting.layout.home(PARTS, index);
    let homes: Vec<_> = (0..threads)
        .map(|thread| setting.layout.of_thread(half.clone(), threads, thread))
        .collect();
    let span = Span::map(size, setting.params.huge_pages)?;
    let pieces = homes.iter().cloned().enumerate();
    let piece = |(thread, home)| Piece { part: slice(size, threads, thread), home };
    setting.place(&span, pieces.map(piece), 0)?;
    Ok(Job::over(span, homes, move |span, thread, tally| {
        for round in tally.rounds(loops) {
            tally.write(span, slice(size, threads, thread), round as u64 + 1);
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_here, with};

    /// 3 threads make processes of 2 and 1. Each thread writes 1 MiB three times; every thread's
    /// last value is 3, so the last one written to any word is too.
    #[test]
    fn every_thread_writes_everything() {
        with(3, 1 << 20, 3, |setting| {
            for (index, threads) in [(0, 2), (1, 1)] {
                let job = shared(setting, index).unwrap();
                assert_eq!(run_here(&job, setting).amount, (threads * 3) << 20);
                assert_eq!(job.span.as_ref().unwrap().extremes(0..1 << 20), (3, 3));
            }
        });
    }

    #[test]
    fn every_slice_is_written_by_its_thread() {
        with(4, 1 << 20, 3, |setting| {
            let job = sliced(setting, 1).unwrap();
            assert_eq!(run_here(&job, setting).amount, 3 << 20);
            assert_eq!(job.span.as_ref().unwrap().extremes(0..1 << 20), (3, 3));
        });
    }
}
