//! The benchmarks of the field as real programs, and the markers by which the emulated machine
//! sees where they begin and end. Depends on nothing else of ours.
//!
//! | module | owns |
//! |---|---|
//! | [`kind`] | their names, defaults, and which file each one is |
//! | [`setting`] | what a workload is told: parameters, machine, how to start a process |
//! | `job` | what one process of a workload is made of: memory, threads, work |
//! | `parts` | a workload of several processes, which talk in lines |
//! | `team` | threads that start together |
//! | [`tally`] | what a thread did and when; all of it together |
//! | [`latency`] | how long operations took |
//! | [`pft`] | the page fault test |
//! | [`measure`] | a machine's latencies and bandwidths, node by node |
//! | `chase` | latency: dependent loads |
//! | `flow` | bandwidth: a team that reads or writes |
//! | [`layout`] | what the workloads need to know of the machine |
//! | [`marker`] | instructions that mean nothing but to the emulated machine |
//! | `span` | memory, written and read a cache line at a time |
//!
//! Each other file is one workload: its memory by pieces, its threads by home, and the work of
//! one thread. To add one, write that file and give it a line in each table of `kind`.
//!
//! Sizes are bytes, times seconds of the machine the workload runs on. Definitions follow
//! Andrea Arcangeli's autonuma-benchmark (numa01, numa02 and their variants), with size, threads
//! and loops as parameters; our `inverse` is a true mirror of `bind` in all of them.

mod chase;
mod flow;
mod forks;
mod hugetlb;
mod jbb;
mod job;
pub mod kind;
pub mod latency;
pub mod layout;
pub mod marker;
pub mod measure;
mod numa01;
mod numa02;
mod overcommit;
mod parts;
pub mod pft;
mod phases;
pub mod setting;
mod shared;
mod span;
mod stream;
mod sys;
pub mod tally;
mod team;
#[cfg(test)]
mod testing;
mod uneven;

pub use kind::{Defaults, Kind, Unit};
pub use latency::{Latencies, Percentiles};
pub use layout::{Layout, LayoutNode};
pub use setting::{Params, Setting, Start, Tie};
pub use tally::{Measured, Series};

/// Why a workload could not run.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// Parameters that make no sense.
    #[error("{problem}")]
    Params {
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// Its error.
        source: std::io::Error,
    },
    /// A process of the workload failed.
    #[error("process {index} of the workload {problem}")]
    Process {
        /// Which one, from 0.
        index: usize,
        /// How it ended.
        problem: String,
    },
}

pub(crate) fn system(what: &str) -> impl FnOnce(std::io::Error) -> WorkloadError {
    let what = what.to_string();
    move |source| WorkloadError::System { what, source }
}

/// The slice of `size` that worker `index` of `workers` owns, in whole lines of 64 bytes; the
/// last one takes the rest.
#[must_use]
pub fn slice(size: usize, workers: usize, index: usize) -> std::ops::Range<usize> {
    slice_by(64, size, workers, index)
}

/// As [`slice`], in whole units of `unit` bytes.
pub(crate) fn slice_by(
    unit: usize,
    size: usize,
    workers: usize,
    index: usize,
) -> std::ops::Range<usize> {
    let each = size / workers / unit * unit;
    let end = if index + 1 == workers { size } else { each * (index + 1) };
    each * index..end
}

#[cfg(test)]
mod tests {
    use super::slice;

    #[test]
    fn slices_cover_everything_once() {
        for workers in 1..9 {
            let ends: Vec<_> = (0..workers).map(|i| slice(10_000, workers, i)).collect();
            assert_eq!(ends[0].start, 0);
            assert_eq!(ends[workers - 1].end, 10_000);
            assert!(ends.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }
}
