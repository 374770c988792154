//! What a workload was told: figures of runs with other parameters do not go together.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A workload's parameters, as it had them: given or by default. What was not given and is left to the machine is not there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Threads of all processes together.
    pub threads: usize,
    /// Processes, of those that have as many as is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
    /// Memory of one process, in bytes; none where a user's own file says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<usize>,
    /// Rounds of each thread; none where the time was fixed, or a user's own file says them.
    pub loops: Option<usize>,
    /// The time, where that was fixed.
    pub seconds: Option<f64>,
    /// Huge pages: `on`, `off`, or as the system has it.
    pub thp: Option<String>,
    /// Where threads and memory are at the start; none where a user's own file says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
}

/// As options.
impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parameters { threads, processes, size_bytes, loops, seconds, thp, start } = self;
        write!(f, "--threads {threads}")?;
        processes.iter().try_for_each(|processes| write!(f, " --processes {processes}"))?;
        size_bytes.iter().try_for_each(|bytes| write!(f, " --size {bytes}"))?;
        loops.iter().try_for_each(|loops| write!(f, " --loops {loops}"))?;
        seconds.iter().try_for_each(|seconds| write!(f, " --seconds {seconds}"))?;
        thp.iter().try_for_each(|thp| write!(f, " --thp {thp}"))?;
        start.iter().try_for_each(|start| write!(f, " --start {start}"))
    }
}
