//! The benchmarks of the field as real programs, and the markers by which the emulated machine
//! sees where they begin and end. Depends on nothing else of ours.
//!
//! | module | owns |
//! |---|---|
//! | [`numa01`] | two processes, each one's memory shared by all its threads |
//! | [`numa02`] | one process, a slice of memory for each thread |
//! | [`measure`] | a machine's latencies and bandwidths, node by node |
//! | `chase` | latency: dependent loads |
//! | `flow` | bandwidth: a team that reads or writes |
//! | [`layout`] | what the workloads need to know of the machine |
//! | [`marker`] | instructions that mean nothing but to the emulated machine |
//!
//! Sizes are bytes, times seconds of the machine the workload runs on. Definitions follow
//! Andrea Arcangeli's autonuma-benchmark (numa01, numa02), with size, threads and loops as
//! parameters; our `inverse` is a true mirror of `bind` in both.

mod chase;
mod flow;
pub mod layout;
pub mod marker;
pub mod measure;
pub mod numa01;
pub mod numa02;
mod span;
mod sys;
mod team;

pub use layout::{Layout, LayoutNode};

/// How tasks and memory are tied to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tie {
    /// Not at all: threads are free, memory lies where [`Start`] puts it.
    #[default]
    Free,
    /// The natural static placement of the workload.
    Bind,
    /// Its mirror: every thread's memory on another node than the thread.
    Inverse,
    /// Threads are free, memory is interleaved over all nodes.
    Interleave,
}

/// Where memory lies, and threads run, at the end of initialisation, when nothing is tied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The main thread touches everything first, wherever it runs.
    #[default]
    FirstTouch,
    /// All memory on the first node (autonuma-benchmark's NO_BIND_FORCE_SAME_NODE).
    OneNode,
    /// Every thread and its memory together, as [`Tie::Bind`] has it, and then set free.
    Placed,
}

/// A workload's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Threads of all processes together.
    pub threads: usize,
    /// Memory of one process, in bytes.
    pub size_bytes: usize,
    /// How often each thread writes its memory.
    pub loops: usize,
    /// Ask for huge pages, refuse them, or leave the system's default.
    pub huge_pages: Option<bool>,
    /// How things are tied to nodes.
    pub tie: Tie,
    /// Where things are when the timed part begins.
    pub start: Start,
}

/// What a run took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elapsed {
    /// From the end of initialisation to the last thread.
    pub seconds: f64,
    /// The whole run, initialisation included.
    pub whole_seconds: f64,
    /// End of initialisation on the monotonic clock, in nanoseconds.
    pub start_ns: u64,
    /// From the end of initialisation to each thread's end.
    pub thread_seconds: Vec<f64>,
    /// Bytes written in the timed part.
    pub bytes: u64,
}

impl Elapsed {
    /// From a common start and each thread's end, in nanoseconds of the monotonic clock.
    fn new(start_ns: u64, ends_ns: &[u64], whole_seconds: f64, bytes: u64) -> Elapsed {
        let since = |end: &u64| end.saturating_sub(start_ns) as f64 / 1e9;
        let thread_seconds: Vec<f64> = ends_ns.iter().map(since).collect();
        let seconds = thread_seconds.iter().copied().fold(0.0, f64::max);
        Elapsed { seconds, whole_seconds, start_ns, thread_seconds, bytes }
    }
}

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
    let each = size / workers / 64 * 64;
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
