//! Which memory and which CPUs each thread begins with.
//!
//! Processes share the nodes out in order: process `i` of `p` gets nodes `i·n/p` up to
//! `(i+1)·n/p`, at least one; thread `i` of `t` node `i·h/t` of its process's `h`. A process or
//! thread on `h` of `n` nodes has its mirrored memory `max(h, n/2)` nodes further on, as the real
//! workloads have it. Only nodes with CPUs and memory are shared out.

use crate::machine::Machine;
use crate::workload::{Bind, ProcessSpec, Start};

/// How tasks and memory are tied to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tie {
    /// Not at all.
    #[default]
    Free,
    /// The natural static placement.
    Bind,
    /// Its mirror: every thread's memory on another node than the thread.
    Inverse,
    /// Threads free, memory interleaved over all nodes.
    Interleave,
}

/// Nodes for one process of a workload.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    process: &'a ProcessSpec,
    tie: Tie,
    /// Indices of nodes that tasks can be on.
    nodes: Vec<usize>,
    /// Of these, the process's own.
    home: Vec<usize>,
    threads: usize,
}

impl<'a> Layout<'a> {
    /// For process `index` of `processes`.
    #[must_use]
    pub fn new(
        machine: &Machine,
        process: &'a ProcessSpec,
        tie: Tie,
        (index, processes): (usize, usize),
    ) -> Layout<'a> {
        let has_cpus = |(i, node): (usize, &crate::machine::NodeSpec)| {
            (node.cpus > 0 && node.memory_mib > 0).then_some(i)
        };
        let nodes: Vec<usize> = machine.node.iter().enumerate().filter_map(has_cpus).collect();
        let n = nodes.len();
        let begin = index * n / processes;
        let end = ((index + 1) * n / processes).max(begin + 1);
        let home = nodes[begin..end].to_vec();
        Layout { process, tie, nodes, home, threads: process.threads_on(machine.cpus()) }
    }

    /// Nodes to which a thread is tied; none if it is free.
    #[must_use]
    pub fn thread(&self, thread: usize) -> Option<Vec<usize>> {
        match (self.tie, self.process.bind) {
            (Tie::Free | Tie::Interleave, _) => None,
            (_, Bind::Process) => Some(self.home.clone()),
            (_, Bind::Thread) => Some(vec![self.home[thread * self.home.len() / self.threads]]),
        }
    }

    /// Where memory of a part that runs on `homes` nodes lies instead of on `node`.
    fn mirrored(&self, node: usize, homes: usize) -> usize {
        let n = self.nodes.len();
        let shift = if self.tie == Tie::Inverse { homes.max(n / 2) } else { 0 };
        let at = self.nodes.iter().position(|known| *known == node).unwrap_or(0);
        self.nodes[(at + shift) % n]
    }

    /// The node on which block `block` of `blocks` lies at the start; `slice` is the thread whose
    /// slice it is in, and `thread_node` where each thread starts.
    #[must_use]
    pub fn memory(&self, block: usize, slice: usize, thread_node: &[usize]) -> usize {
        match self.tie {
            Tie::Interleave => self.nodes[block % self.nodes.len()],
            Tie::Bind | Tie::Inverse => match self.thread(slice) {
                Some(homes) => self.mirrored(homes[block % homes.len()], homes.len()),
                None => self.nodes[0],
            },
            Tie::Free => match self.process.start {
                Start::OneNode => self.nodes[0],
                Start::FirstTouch => thread_node[0],
                Start::OwnThread => thread_node[slice],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use numaherd_model::{Bytes, NodeId, Topology};

    use super::*;
    use crate::machine::tests::small;
    use crate::workload::tests::slices;

    #[test]
    fn bind_is_local_and_inverse_is_its_true_mirror() {
        let (machine, workload) = (small(), slices(4, 64, 1));
        let at = |tie| {
            let layout = Layout::new(&machine, &workload.process[0], tie, (0, 1));
            let node = |thread| layout.thread(thread).unwrap()[0];
            (0..4).map(|t| (node(t), layout.memory(0, t, &[0; 4]))).collect::<Vec<_>>()
        };
        assert_eq!(at(Tie::Bind), [(0, 0), (0, 0), (1, 1), (1, 1)]);
        assert_eq!(at(Tie::Inverse), [(0, 1), (0, 1), (1, 0), (1, 0)]);
    }

    #[test]
    fn processes_share_the_nodes_out() {
        let (machine, mut workload) = (small(), slices(1, 64, 1));
        workload.process[0].bind = Bind::Process;
        let home = |i, n| Layout::new(&machine, &workload.process[0], Tie::Bind, (i, n)).home;
        assert_eq!((home(0, 1), home(0, 2), home(1, 2)), (vec![0, 1], vec![0], vec![1]));
        assert_eq!((home(2, 4), home(3, 4)), (vec![1], vec![1]));
    }

    #[test]
    fn inverse_has_no_fixed_point_and_threads_of_a_process_stay_in_its_half() {
        let topology = |nodes: u32| {
            let row = |a| (0..nodes).map(|b| if a == b { 10 } else { 20 }).collect();
            let node = |id| (NodeId(id), 1, Bytes(1 << 30));
            Topology::numbered((0..nodes).map(node), (0..nodes).map(row).collect())
        };
        let workload = slices(4, 64, 1);
        for nodes in 2..6 {
            let machine = Machine::derived("n", &topology(nodes));
            let layout = Layout::new(&machine, &workload.process[0], Tie::Inverse, (0, 1));
            for thread in 0..4 {
                assert_ne!(layout.thread(thread), Some(vec![layout.memory(0, thread, &[0; 4])]));
            }
        }
        // The second of two processes on four nodes has nodes 2 and 3, two threads on each.
        let machine = Machine::derived("n", &topology(4));
        let layout = Layout::new(&machine, &workload.process[0], Tie::Bind, (1, 2));
        let nodes: Vec<usize> = (0..4).map(|thread| layout.thread(thread).unwrap()[0]).collect();
        assert_eq!(nodes, [2, 2, 3, 3]);
    }
}
