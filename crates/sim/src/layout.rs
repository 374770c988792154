//! Which memory and which CPUs each thread begins with.
//!
//! Processes share the nodes out in order: process `i` of `p` gets nodes `i·n/p` up to
//! `(i+1)·n/p`, at least one; thread `i` of `t` node `i·n/t`. The mirror of node `k` of `n` is
//! node `n−1−k`. Only nodes with CPUs are shared out, and memory follows them.

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
        let has_cpus = |(i, node): (usize, &crate::machine::NodeSpec)| (node.cpus > 0).then_some(i);
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
            (_, Bind::Thread) => Some(vec![self.nodes[thread * self.nodes.len() / self.threads]]),
        }
    }

    /// The node on which block `block` of `blocks` lies at the start; `slice` is the thread whose
    /// slice it is in, and `thread_node` where each thread starts.
    #[must_use]
    pub fn memory(&self, block: usize, slice: usize, thread_node: &[usize]) -> usize {
        let mirror = |node: usize| {
            let at = self.nodes.iter().position(|n| *n == node).unwrap_or(0);
            if self.tie == Tie::Inverse { self.nodes[self.nodes.len() - 1 - at] } else { node }
        };
        match self.tie {
            Tie::Interleave => self.nodes[block % self.nodes.len()],
            Tie::Bind | Tie::Inverse => match self.thread(slice) {
                Some(nodes) => mirror(nodes[block % nodes.len()]),
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
}
