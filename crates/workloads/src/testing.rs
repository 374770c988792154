//! What the workloads' tests share: small settings, and a run of one process on this host.

use std::process::Command;
use std::time::Instant;

use crate::job::Job;
use crate::tally::Measured;
use crate::{Layout, Params, Setting, Start, Tie, Unit};

/// Nothing tied, nothing placed.
pub fn params(threads: usize, size_bytes: usize, loops: usize) -> Params {
    Params {
        threads,
        processes: None,
        size_bytes,
        loops,
        limit_ns: None,
        huge_pages: None,
        tie: Tie::Free,
        start: Start::FirstTouch,
    }
}

/// For workloads that start no process.
pub fn no_process(index: usize) -> Command {
    panic!("process {index} was to be started")
}

/// Calls `test` with a setting of these parameters on this host.
pub fn with(threads: usize, size_bytes: usize, loops: usize, test: impl FnOnce(&Setting)) {
    let params = params(threads, size_bytes, loops);
    test(&Setting { params, layout: Layout::flat(0), command: &no_process });
}

/// Runs one process of a workload here.
pub fn run_here(job: &Job, setting: &Setting) -> Measured {
    job.run_alone(setting, Unit::Bytes, Instant::now()).unwrap()
}
