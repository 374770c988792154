//! Nodes, their CPUs, their memory, and the distances between them.
//!
//! Node numbers may be sparse; a node may lack CPUs (CXL) or memory. Distances are the
//! firmware's SLIT values: 10 is local, 21 means 2.1 times as far.

use serde::{Deserialize, Serialize};

use crate::{Bytes, CpuId, CpuSet, NodeId};

/// One memory node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The kernel's number.
    pub id: NodeId,
    /// Online CPUs; empty for a memory-only node.
    pub cpus: CpuSet,
    /// Total memory; 0 for a CPU-only node.
    pub memory: Bytes,
    /// Free memory when it was read.
    pub free: Bytes,
}

/// SLIT distances between nodes, one row a node, in the order of [`Topology::nodes`].
pub type Distances = Vec<Vec<u32>>;

/// A machine's nodes and the distances between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Online nodes, ascending by id.
    pub nodes: Vec<Node>,
    /// Square, as many rows as nodes; empty where the firmware gives none.
    pub distances: Distances,
    /// The online CPUs of each core that has several (SMT siblings), ascending; a CPU that is in none
    /// has its core to itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub siblings: Vec<CpuSet>,
    /// Latencies from each node's CPUs (rows) to each node's memory, in thousandths of that of its own memory, as
    /// measured, or by firmware what was not; empty where nobody measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Distances,
}

impl Topology {
    /// Nodes with so many CPUs each, numbered through in the order of nodes, and so much memory,
    /// all of it free.
    #[must_use]
    pub fn numbered(
        nodes: impl IntoIterator<Item = (NodeId, u32, Bytes)>,
        distances: Distances,
    ) -> Topology {
        let mut cpus = (0..).map(CpuId);
        let node = |(id, count, memory): (NodeId, u32, Bytes)| {
            let cpus = cpus.by_ref().take(count as usize).collect();
            Node { id, cpus, memory, free: memory }
        };
        let nodes = nodes.into_iter().map(node).collect();
        Topology { nodes, distances, ..Topology::default() }
    }

    /// The same with cores of so many neighbouring CPUs each.
    #[must_use]
    pub fn with_cores_of(mut self, threads: u32) -> Topology {
        let cpus: Vec<CpuId> = self.cpus().iter().collect();
        let cores = cpus.chunks(threads.max(1) as usize).map(|core| core.iter().copied().collect());
        self.siblings = if threads > 1 { cores.collect() } else { Vec::new() };
        self
    }

    /// The cores that have at least one of these CPUs: all that run tasks side by side at full speed.
    ///
    /// Example: of CPUs 0 to 3, of which 0 and 1 are siblings as are 2 and 3, the CPUs 0, 1 and 2 are of two.
    #[must_use]
    pub fn cores(&self, cpus: &CpuSet) -> usize {
        let shared = self.siblings.iter().map(|core| core.intersection(cpus).len());
        cpus.len() - shared.map(|here| here.saturating_sub(1)).sum::<usize>()
    }

    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The node this CPU belongs to.
    #[must_use]
    pub fn node_of_cpu(&self, cpu: CpuId) -> Option<NodeId> {
        self.nodes.iter().find(|node| node.cpus.contains(cpu)).map(|node| node.id)
    }

    /// SLIT distance from `a` to `b`. Where the firmware gives none, 10 for the same node and
    /// 20 for another, as the kernel assumes.
    #[must_use]
    pub fn distance(&self, a: NodeId, b: NodeId) -> u32 {
        self.places(a, b).map_or(usual(a == b), |(a, b)| self.distance_at(a, b))
    }

    /// Where two nodes are in [`Topology::nodes`].
    fn places(&self, a: NodeId, b: NodeId) -> Option<(usize, usize)> {
        let place = |id| self.nodes.iter().position(|node| node.id == id);
        place(a).zip(place(b))
    }

    /// The same of places in [`Topology::nodes`].
    #[must_use]
    pub fn distance_at(&self, a: usize, b: usize) -> u32 {
        let known = self.distances.get(a).and_then(|row| row.get(b));
        known.copied().unwrap_or(usual(a == b))
    }

    /// How far memory on `to` is from CPUs on `from`, in thousandths of how far their own is: as measured, where
    /// somebody measured, else by SLIT.
    ///
    /// Example: of 94 ns and 112, which firmware calls 10 and 12, the latter are 1191; by SLIT they are 1200.
    #[must_use]
    pub fn far(&self, from: NodeId, to: NodeId) -> u32 {
        match self.places(from, to) {
            Some((from, to)) => self.far_at(from, to),
            None => self.far_by_slit(from, to),
        }
    }

    /// The same of places in [`Topology::nodes`].
    #[must_use]
    pub fn far_at(&self, from: usize, to: usize) -> u32 {
        let measured = self.latencies.get(from).and_then(|row| row.get(to));
        measured.copied().unwrap_or_else(|| self.far_by_slit_at(from, to))
    }

    /// The same as firmware has it.
    #[must_use]
    pub fn far_by_slit(&self, from: NodeId, to: NodeId) -> u32 {
        100 * self.distance(from, to)
    }

    /// The same of places in [`Topology::nodes`].
    #[must_use]
    pub fn far_by_slit_at(&self, from: usize, to: usize) -> u32 {
        100 * self.distance_at(from, to)
    }

    /// All online CPUs.
    #[must_use]
    pub fn cpus(&self) -> CpuSet {
        self.nodes.iter().flat_map(|node| node.cpus.iter()).collect()
    }

    /// Nodes that have memory, ascending by id.
    pub fn memory_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.memory.0 > 0)
    }

    /// Nodes that have CPUs, ascending by id: the only ones a task can be placed on.
    pub fn cpu_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.cpus.is_empty())
    }
}

/// The distance that the kernel assumes where firmware gives none.
fn usual(is_same: bool) -> u32 {
    if is_same { 10 } else { 20 }
}
