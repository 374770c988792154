//! What a workload needs to know of the machine: which CPUs and which memory make a node.

use crate::{Tie, WorkloadError};

/// A node that has CPUs and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutNode {
    /// The kernel's number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: Vec<u32>,
}

/// The nodes that have CPUs and memory, ascending by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// At least one.
    pub nodes: Vec<LayoutNode>,
}

impl Layout {
    /// One node with every CPU this process may use: a machine without NUMA.
    #[must_use]
    pub fn flat(node: u32) -> Layout {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        Layout { nodes: vec![LayoutNode { id: node, cpus: (0..cpus).collect() }] }
    }

    /// The nodes' numbers.
    #[must_use]
    pub fn node_ids(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// The nodes, as indices, that part `index` of `parts` runs on: one each where there are
    /// fewer nodes than parts, else an equal share of neighbours.
    ///
    /// Worked example: 8 parts on 2 nodes: parts 0–3 on node 0, 4–7 on node 1. 2 parts on 4
    /// nodes: part 0 on 0–1, part 1 on 2–3.
    #[must_use]
    pub fn home(&self, parts: usize, index: usize) -> std::ops::Range<usize> {
        share(self.nodes.len(), parts, index)
    }

    /// The node, as a range of one, of thread `index` of the `threads` that have the nodes of `home` for themselves:
    /// as many on each as it has CPUs.
    ///
    /// Worked example: 8 threads on nodes of 4, 2 and 2 CPUs: 0–3 on the first, 4 and 5 on the second. 2 threads
    /// on 4 nodes: thread 0 on node 0, thread 1 on node 2.
    #[must_use]
    pub fn of_thread(
        &self,
        home: std::ops::Range<usize>,
        threads: usize,
        index: usize,
    ) -> std::ops::Range<usize> {
        let cpus = |node: &usize| self.nodes[*node].cpus.len();
        let mut before = index * home.clone().map(|node| cpus(&node)).sum::<usize>() / threads;
        let is_full = |node: &usize| {
            let full = before >= cpus(node);
            before -= if full { cpus(node) } else { 0 };
            full
        };
        let node = home.start + home.clone().take_while(is_full).count();
        node..node + 1
    }

    /// The same where they have all nodes.
    #[must_use]
    pub fn thread(&self, threads: usize, index: usize) -> std::ops::Range<usize> {
        self.of_thread(0..self.nodes.len(), threads, index)
    }

    /// The nodes that hold the memory of a part that runs on `home`. The mirror of more than half of the nodes is
    /// the fewer that are left; what runs on all nodes has none, and its memory is on all of them.
    ///
    /// Worked example: 2 parts on 5 nodes: the second runs on 2–4, and its mirrored memory is on 0 and 1.
    #[must_use]
    pub fn memory_of(&self, home: std::ops::Range<usize>, tie: Tie) -> Vec<u32> {
        let nodes = self.nodes.len();
        let is_mirrored = tie == Tie::Inverse;
        let shift = if is_mirrored { home.len().max(nodes / 2) } else { 0 };
        let is_apart = |node: &usize| !is_mirrored || home.len() == nodes || !home.contains(node);
        let on = home.clone().map(|node| (node + shift) % nodes).filter(is_apart);
        on.map(|node| self.nodes[node].id).collect()
    }

    /// The CPUs of these nodes.
    #[must_use]
    pub fn cpus_of(&self, home: std::ops::Range<usize>) -> Vec<u32> {
        self.nodes[home].iter().flat_map(|node| node.cpus.iter().copied()).collect()
    }

    /// All CPUs.
    #[must_use]
    pub fn cpus(&self) -> Vec<u32> {
        self.cpus_of(0..self.nodes.len())
    }

    /// An error where `tie` needs more nodes than there are.
    pub(crate) fn check(&self, tie: Tie) -> Result<(), WorkloadError> {
        let problem = match (self.nodes.len(), tie) {
            (0, _) => "no node has both CPUs and memory",
            (1, Tie::Inverse) => "the inverse placement needs two nodes, this machine has one",
            _ => return Ok(()),
        };
        Err(WorkloadError::Params { problem: problem.into() })
    }
}

fn share(nodes: usize, parts: usize, index: usize) -> std::ops::Range<usize> {
    if parts >= nodes {
        let node = index * nodes / parts;
        node..node + 1
    } else {
        index * nodes / parts..(index + 1) * nodes / parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(nodes: u32) -> Layout {
        Layout {
            nodes: (0..nodes).map(|id| LayoutNode { id, cpus: vec![2 * id, 2 * id + 1] }).collect(),
        }
    }

    #[test]
    fn threads_fill_nodes_in_order_and_processes_get_halves() {
        let two = layout(2);
        let homes: Vec<usize> = (0..8).map(|i| two.home(8, i).start).collect();
        assert_eq!(homes, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(layout(4).home(2, 1), 2..4);
        assert_eq!(layout(4).cpus_of(2..4), [4, 5, 6, 7]);
        let within: Vec<usize> = (0..4).map(|i| layout(4).of_thread(2..4, 4, i).start).collect();
        assert_eq!(within, [2, 2, 3, 3]);
        assert_eq!(layout(6).of_thread(2..6, 2, 1), 4..5, "beside its memory, all of it");
    }

    #[test]
    fn a_node_gets_as_many_threads_as_it_has_cpus() {
        let nodes = [vec![0, 1, 2, 3], vec![4, 5], vec![6, 7]];
        let node = |(id, cpus)| LayoutNode { id, cpus };
        let layout = Layout { nodes: (0..).zip(nodes).map(node).collect() };
        let nodes = |threads| {
            let node = |index| layout.thread(threads, index).start;
            (0..threads).map(node).collect::<Vec<_>>()
        };
        assert_eq!(nodes(8), [0, 0, 0, 0, 1, 1, 2, 2]);
        assert_eq!((nodes(4), nodes(1)), (vec![0, 0, 1, 2], vec![0]));
        assert_eq!(nodes(16)[12..], [2; 4], "two a CPU");
    }

    #[test]
    fn inverse_is_a_mirror_without_fixed_points() {
        for (nodes, parts) in (2..=8).flat_map(|nodes| (2..=4).map(move |parts| (nodes, parts))) {
            let layout = layout(nodes);
            for part in 0..parts {
                let home = layout.home(parts, part);
                let bound = layout.memory_of(home.clone(), Tie::Bind);
                let inverse = layout.memory_of(home, Tie::Inverse);
                assert!(
                    !inverse.is_empty() && bound.iter().all(|node| !inverse.contains(node)),
                    "{nodes} nodes, part {part} of {parts}"
                );
            }
        }
    }

    #[test]
    fn one_node_has_no_inverse() {
        assert!(layout(1).check(Tie::Inverse).is_err());
        assert!(layout(1).check(Tie::Bind).is_ok());
    }
}
