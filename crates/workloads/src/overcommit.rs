//! overcommit: numa01 and numa02 at once, with all CPUs' threads each; twice as many threads as
//! CPUs, in three processes. Over when all have ended (the AutoNUMA slides' test).
//!
//! `threads` are of both together. The slides do not say how long each part ran; here the
//! threads of numa02 make as many rounds as write the bytes that a thread of numa01 writes.

use crate::WorkloadError;
use crate::job::Job;
use crate::numa01;
use crate::numa02;
use crate::setting::{Params, Setting};

/// Processes: numa01's and numa02's.
pub const PARTS: usize = numa01::PARTS + 1;

/// One process.
pub fn job<'a>(setting: &Setting, index: usize) -> Result<Job<'a>, WorkloadError> {
    let Params { threads, loops, .. } = setting.params;
    let numa01_threads = threads.div_ceil(2);
    let numa02_threads = threads - numa01_threads;
    let with = |threads: usize, loops: usize| Setting {
        params: Params { threads, loops, ..setting.params.clone() },
        layout: setting.layout.clone(),
        command: setting.command,
    };
    if index < numa01::PARTS {
        numa01::shared(&with(numa01_threads, loops), index)
    } else {
        numa02::job(&with(numa02_threads, loops * numa02_threads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_here, with};

    /// 4 threads: 1 + 1 in numa01's processes and 2 in numa02's. Every thread writes 1 MiB x 3.
    #[test]
    fn every_thread_writes_the_same_number_of_bytes() {
        with(4, 1 << 20, 3, |setting| {
            let amounts =
                [0, 1, 2].map(|index| run_here(&job(setting, index).unwrap(), setting).amount);
            assert_eq!(amounts, [3 << 20, 3 << 20, (2 * 3) << 20]);
        });
    }
}
