//! What memory carries and what is asked of it.
//!
//! Whoever counts does so by CPU, as a CPU's own counters do, and by memory, as a memory controller's do. What
//! a task asks for follows from how long it ran where.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use crate::{CpuId, CpuSet, NodeId, TaskId};

/// Reads and writes of memory, in bytes a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// What the memory of each node carries at most; nodes of which that is not known are missing.
    pub most: Vec<(NodeId, u64)>,
    /// What the memory of each node carried of late, for whomever; as above.
    pub carried: Vec<(NodeId, u64)>,
    /// What each task read and wrote of late, wherever that memory is; tasks that are not measured
    /// are missing.
    pub tasks: Vec<(TaskId, u64)>,
}

/// Bytes that were counted, each figure since a moment of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// What each CPU read and wrote, wherever that memory is; CPUs without a counter are missing.
    pub cpus: BTreeMap<CpuId, u64>,
    /// What the memory of each node carried, for whomever; nodes of which nobody counts that are missing.
    pub nodes: BTreeMap<NodeId, u64>,
}

/// Where counts of memory traffic come from.
pub trait TrafficSource {
    /// What has been counted so far on these CPUs.
    ///
    /// # Errors
    /// The counters cannot be read any more.
    fn read(&mut self, cpus: &CpuSet) -> io::Result<Counted>;
}
