//! Which nodes the memory of each process may be on (`cpuset.mems`): remembered for a while, since asking costs a file
//! a process.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_model::{MemsAllowed, Nanos, NodeSet, ProcessId, Topology};

use crate::system::System;

/// How old it may be. Guessed: what was planned by an older one is refused, and not tried again.
const AGE: Nanos = Nanos(5_000_000_000);

/// See the module.
#[derive(Debug, Default)]
pub struct Mems(BTreeMap<ProcessId, (Nanos, Option<NodeSet>)>);

impl Mems {
    /// Of those of the processes whose memory may not be on all nodes that have some; others are forgotten.
    pub fn allowed(
        &mut self,
        system: &mut dyn System,
        processes: &BTreeSet<ProcessId>,
        topology: &Topology,
        now: Nanos,
    ) -> Vec<MemsAllowed> {
        self.0.retain(|process, (at, _)| processes.contains(process) && now.since(*at) < AGE);
        let all: NodeSet = topology.memory_nodes().map(|node| node.id).collect();
        let mut allowed = Vec::new();
        for &process in processes {
            let look = || (now, system.mems_allowed(process.tgid));
            let (_, nodes) = self.0.entry(process).or_insert_with(look);
            let confined = nodes.as_ref().filter(|nodes| !all.is_subset(nodes));
            allowed.extend(confined.map(|nodes| MemsAllowed { process, nodes: nodes.clone() }));
        }
        allowed
    }
}
