//! What a run is told, and what it tells.

use numaherd_model::{Balancing, Cause, Nanos};
use numaherd_scheduling::Scheduling;
use serde::Serialize;

use super::Mishap;
use crate::layout::Tie;

/// How to simulate.
pub struct Options {
    /// Of all random streams.
    pub seed: u64,
    /// How tasks and memory are tied.
    pub tie: Tie,
    /// Huge pages, or small ones.
    pub huge_pages: bool,
    /// The kernel's NUMA balancing, if it is on.
    pub balancing: Option<Box<dyn Balancing>>,
    /// Who decides where tasks run.
    pub scheduling: Box<dyn Scheduling>,
    /// The waits in the fabric are found anew at most this often.
    pub resolve_ns: u64,
    /// They are found anew after every event, and every block on its way feels it. Slow: for
    /// comparisons with the above.
    pub exact: bool,
    /// Keep hinting faults for whoever observes.
    pub watch_faults: bool,
    /// Sample accesses, for whoever observes, of processes whose memory takes no hinting faults.
    pub sample_accesses: bool,
    /// And of the others, beside their faults.
    pub sample_all: bool,
    /// Rarely: little is left to find out.
    pub sample_rarely: bool,
    /// Keep a trace.
    pub trace: bool,
    /// Keep samples.
    pub samples: bool,
    /// What goes wrong, and when.
    pub mishaps: Vec<(u64, Mishap)>,
    /// The run ends here even if the workload has not.
    pub limit: Nanos,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            tie: Tie::Free,
            huge_pages: true,
            balancing: None,
            scheduling: Box::new(numaherd_scheduling::Fair),
            resolve_ns: 1_000_000,
            exact: false,
            watch_faults: false,
            sample_accesses: false,
            sample_all: false,
            sample_rarely: false,
            trace: false,
            samples: false,
            mishaps: Vec::new(),
            limit: Nanos(100_000_000_000_000),
        }
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// From the end of initialisation to the last thread's end.
    pub seconds: f64,
    /// Before that: one thread touches memory first, where the workload has it so.
    pub initial_seconds: f64,
    /// Every thread's end.
    pub thread_seconds: Vec<f64>,
    /// Bytes gone over.
    pub bytes: f64,
    /// Operations of each process, where the workload says what one is.
    pub operations: Vec<f64>,
    /// Lines of a task's own node ÷ all.
    pub local_share: f64,
    /// Hinting faults taken; small pages each count.
    pub faults: u64,
    /// Base pages moved by the kernel's balancing.
    pub pages_moved_by_kernel: u64,
    /// Base pages moved through `Actuate`.
    pub pages_moved_by_us: u64,
    /// Tasks moved between nodes.
    pub task_moves: u64,
    /// CPU time spent in hinting faults, page moves and scans.
    pub kernel_seconds: f64,
    /// Time tasks waited for an anon_vma mutex.
    pub rmap_wait_seconds: f64,
    /// Events handled.
    pub events: u64,
    /// The limit came first.
    pub unfinished: bool,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum TraceEvent {
    /// A task begins to run on a CPU.
    Runs {
        /// When.
        ns: u64,
        /// Who.
        task: u32,
        /// Where.
        cpu: u32,
    },
    /// A task leaves its CPU.
    Stops {
        /// When.
        ns: u64,
        /// Who.
        task: u32,
        /// From where.
        cpu: u32,
    },
    /// A block moved.
    Moved {
        /// When.
        ns: u64,
        /// Whose memory.
        process: u32,
        /// Which block.
        block: usize,
        /// From which node.
        from: u32,
        /// To which node.
        to: u32,
        /// Why, if it was the kernel's balancing that moved it.
        why: Option<Cause>,
    },
    /// The kernel took a task to another node.
    Sent {
        /// When.
        ns: u64,
        /// Who.
        task: u32,
        /// Of which process.
        process: u32,
        /// From which CPU.
        from: u32,
        /// To which CPU.
        to: u32,
        /// Who came in exchange.
        other: Option<u32>,
        /// Why.
        why: Cause,
    },
    /// A task ended.
    Ended {
        /// When.
        ns: u64,
        /// Who.
        task: u32,
    },
}
