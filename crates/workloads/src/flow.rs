//! Bandwidth: a team of threads, each pinned to a CPU, that read or write a slice of memory line
//! by line until told to stop.
//!
//! One word of each line is touched, in ascending order; a line counts whole. To write is to load
//! the word and store it again, so that the line is fetched and sent back on every machine; it
//! counts once. Units: bytes a second, of the machine the program runs on.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::span::Span;
use crate::team::{Member, start_all};
use crate::{WorkloadError, slice, sys, system};

const LINE_BYTES: usize = 64;
/// Looked at between pages: whether to stop.
const PAGE_BYTES: usize = 4096;
/// How long one sample runs. Chosen: 300 of the windows in which the emulated machine counts
/// bandwidth.
const SAMPLE: Duration = Duration::from_millis(20);

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Load a word of each line.
    Read,
    /// Load a word of each line and store it again.
    Write,
}

/// Bytes a second that threads on `cpus` move together, over the first `bytes` of the span.
///
/// # Errors
/// A thread cannot be started or pinned.
pub fn sample(
    span: &Span,
    bytes: usize,
    cpus: &[u32],
    direction: Direction,
) -> Result<f64, WorkloadError> {
    let (ready, stop) = (&Barrier::new(cpus.len() + 1), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let member = |(index, &cpu): (usize, &u32)| {
            let part = slice(bytes, cpus.len(), index);
            move || {
                let pinned = sys::set_affinity(&[cpu]);
                ready.wait();
                // A thread that could not be pinned must still pass the barrier.
                pinned.map(|()| {
                    let start_ns = sys::monotonic_ns();
                    let moved = turn(span, part, direction, stop);
                    moved as f64 / (sys::monotonic_ns() - start_ns).max(1) as f64 * 1e9
                })
            }
        };
        let members = start_all(scope, cpus.iter().enumerate().map(member))?;
        ready.wait();
        std::thread::sleep(SAMPLE);
        stop.store(true, Ordering::Relaxed);
        let join = |m: Member<'_, std::io::Result<f64>>| {
            m.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let rates: std::io::Result<Vec<f64>> = members.into_iter().filter_map(join).collect();
        Ok(rates.map_err(system("cannot pin a thread to its CPU"))?.into_iter().sum())
    })
}

/// Goes round its part until told to stop; bytes moved.
fn turn(span: &Span, part: std::ops::Range<usize>, direction: Direction, stop: &AtomicBool) -> u64 {
    let mut moved = 0;
    let mut at = part.start;
    while !stop.load(Ordering::Relaxed) {
        let end = (at + PAGE_BYTES).min(part.end);
        match direction {
            Direction::Read => {
                black_box(span.sweep(at..end));
            }
            Direction::Write => span.update(at..end),
        }
        moved += (end - at) / LINE_BYTES * LINE_BYTES;
        at = if end == part.end { part.start } else { end };
    }
    moved as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_read_and_write_here() {
        let span = Span::map(4 << 20, None).unwrap();
        span.write(0..4 << 20, 1);
        for direction in [Direction::Read, Direction::Write] {
            let rate = sample(&span, 4 << 20, &[0], direction).unwrap();
            assert!(rate > 1e6, "{direction:?}: {rate}");
        }
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error_and_nobody_hangs() {
        let span = Span::map(1 << 20, None).unwrap();
        assert!(sample(&span, 1 << 20, &[0, 60_000], Direction::Read).is_err());
    }
}
