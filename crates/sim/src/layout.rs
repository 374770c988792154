//! Which memory and which CPUs each thread begins with.
//!
//! Processes share the nodes out in order: process `i` of `p` gets nodes `i·n/p` up to
//! `(i+1)·n/p`, at least one; likewise group `i` of threads that use memory together, of its process's nodes. A
//! thread with memory of its own gets one of them, which gets as many as it has CPUs. A process or slice on
//! `h` of `n` nodes has its mirrored memory `max(h, n/2)` nodes further on, as the real workloads have it, and where these
//! reach round to its own, on the others alone; so has what all threads of a process use, which is interleaved over the
//! process's nodes. Only nodes with CPUs and memory are shared out.

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
    /// Threads free, memory interleaved over all nodes with CPUs.
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
    /// One for each CPU of those: the node that it is on.
    cpus: Vec<usize>,
    slices: usize,
}

impl<'a> Layout<'a> {
    /// For process `index` of the `processes` of its kind that are there at once.
    #[must_use]
    pub fn new(
        machine: &Machine,
        process: &'a ProcessSpec,
        tie: Tie,
        (index, processes): (usize, usize),
    ) -> Layout<'a> {
        let nodes = homes(machine);
        let n = nodes.len();
        let home = nodes[share(n, processes, index)].to_vec();
        let cpus = home.iter().flat_map(|&i| (0..machine.node[i].cpus).map(move |_| i)).collect();
        let slices = process.slices(process.threads_on(machine.cpus()));
        let slices = slices.last().map_or(1, |last| last + 1);
        Layout { process, tie, nodes, home, cpus, slices }
    }

    /// How many slices its memory has.
    #[must_use]
    pub fn slices(&self) -> usize {
        self.slices
    }

    /// Nodes to which the threads of a slice are tied; none if they are free.
    #[must_use]
    pub fn thread(&self, slice: usize) -> Option<Vec<usize>> {
        matches!(self.tie, Tie::Bind | Tie::Inverse).then(|| self.homes(slice))
    }

    /// Nodes on which the threads of a slice start; none if they start anywhere.
    #[must_use]
    pub fn begins(&self, slice: usize) -> Option<Vec<usize>> {
        self.begins_tied().map(|_| self.homes(slice))
    }

    /// The static placement that threads and memory begin with, if any.
    fn begins_tied(&self) -> Option<Tie> {
        self.tied(self.process.start)
    }

    fn tied(&self, start: Start) -> Option<Tie> {
        match (self.tie, start) {
            (tie @ (Tie::Bind | Tie::Inverse), _) => Some(tie),
            (Tie::Free, Start::Placed) => Some(Tie::Bind),
            (Tie::Free, Start::Inverse) => Some(Tie::Inverse),
            _ => None,
        }
    }

    fn homes(&self, slice: usize) -> Vec<usize> {
        match self.process.bind {
            Bind::Process => self.home.clone(),
            Bind::Thread if self.process.groups.is_none() => {
                vec![self.cpus[slice * self.cpus.len() / self.slices]]
            }
            Bind::Thread => self.home[share(self.home.len(), self.slices, slice)].to_vec(),
        }
    }

    /// Where a block lies of a part that runs on the nodes `home`, and with `bind` has it on `node`.
    fn mirrored(&self, tied: Tie, node: usize, home: &[usize], block: usize) -> usize {
        if tied == Tie::Inverse { mirror(&self.nodes, node, home, block) } else { node }
    }

    /// The node on which a block lies at the start; `slice` is the one that it is in, none in what
    /// all threads use, and `slice_node` where the first thread of each starts.
    #[must_use]
    pub fn memory(&self, block: usize, slice: Option<usize>, slice_node: &[usize]) -> usize {
        if self.tie == Tie::Interleave {
            return self.nodes[block % self.nodes.len()];
        }
        if let Some(tied) = self.begins_tied() {
            let homes = slice.map_or_else(|| self.home.clone(), |slice| self.homes(slice));
            return self.mirrored(tied, homes[block % homes.len()], &homes, block);
        }
        match self.process.start {
            Start::OneNode => self.nodes[0],
            Start::OwnThread => slice_node[slice.unwrap_or(block % self.slices)],
            Start::FirstTouch | Start::Placed | Start::Inverse => slice_node[0],
        }
    }

    /// The node on which a block of memory lies at the start that some threads go over.
    ///
    /// Tied, each slice lies with its thread; where all go over all of it, it lies on their nodes in turn.
    #[must_use]
    pub fn memory_of(&self, block: usize, users: &Users<'_>) -> usize {
        if self.tie == Tie::Interleave {
            return self.nodes[block % self.nodes.len()];
        }
        match (self.tied(users.start), users.start) {
            (Some(tied), _) => {
                let all = users.nodes[block % users.nodes.len()];
                match users.is_sliced {
                    true => self.mirrored(tied, users.owner, &[users.owner], block),
                    false => self.mirrored(tied, all, users.nodes, block),
                }
            }
            (_, Start::OneNode) => self.nodes[0],
            (_, Start::OwnThread) => users.owner,
            _ => users.first,
        }
    }
}

/// Who goes over memory that some threads of a process have: the nodes where they start.
#[derive(Clone, Copy, Debug)]
pub struct Users<'a> {
    /// The thread's whose slice the block is in.
    pub owner: usize,
    /// The first thread's.
    pub first: usize,
    /// All of them, each once.
    pub nodes: &'a [usize],
    /// Somebody goes over slices.
    pub is_sliced: bool,
    /// Where it lies at the start, if nothing is tied.
    pub start: Start,
}

/// Indices of nodes that tasks can be on, and memory too.
pub(crate) fn homes(machine: &Machine) -> Vec<usize> {
    (0..machine.node.len()).filter(|&i| machine.node[i].is_home()).collect()
}

/// Of these nodes the one that mirrors `node` for the `nth` block of a part that runs on the nodes `home`.
///
/// Worked example: of 5 nodes a part on 2, 3 and 4 has its blocks in turn on 0, 1, 0; 0, 1, 1.
fn mirror(nodes: &[usize], node: usize, home: &[usize], nth: usize) -> usize {
    let n = nodes.len();
    let at = nodes.iter().position(|known| *known == node).unwrap_or(0);
    let beyond = nodes[(at + home.len().max(n / 2)) % n];
    // Halves of an even number are each other's mirrors; the larger one of an odd number reaches round to itself.
    if n.is_multiple_of(2) || !home.contains(&beyond) {
        return beyond;
    }
    let apart: Vec<usize> = nodes.iter().copied().filter(|node| !home.contains(node)).collect();
    if apart.is_empty() { beyond } else { apart[nth % apart.len()] }
}

/// The node on which a task has the `nth` block of a file that it fills while it is on node `from`: its policy is also
/// that of the files it writes. Where it is tied, to which nodes is asked.
pub(crate) fn filled(
    machine: &Machine,
    tie: Tie,
    from: usize,
    tied_to: impl FnOnce() -> Vec<usize>,
    nth: usize,
) -> usize {
    match tie {
        Tie::Free | Tie::Bind => from,
        Tie::Inverse => mirror(&homes(machine), from, &tied_to(), nth),
        Tie::Interleave => {
            let nodes = homes(machine);
            nodes[nth % nodes.len()]
        }
    }
}

/// Of so many nodes those of part `index` of `parts`: one where there are fewer nodes than parts, else an
/// equal share of neighbours.
fn share(nodes: usize, parts: usize, index: usize) -> std::ops::Range<usize> {
    let begin = index * nodes / parts;
    begin..if parts >= nodes { begin + 1 } else { (index + 1) * nodes / parts }
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
            (0..4).map(|t| (node(t), layout.memory(0, Some(t), &[0; 4]))).collect::<Vec<_>>()
        };
        assert_eq!(at(Tie::Bind), [(0, 0), (0, 0), (1, 1), (1, 1)]);
        assert_eq!(at(Tie::Inverse), [(0, 1), (0, 1), (1, 0), (1, 0)]);
    }

    #[test]
    fn a_thread_is_bound_beside_its_memory_and_a_node_gets_as_many_as_it_has_cpus() {
        let nodes = |cpus: [u32; 4], threads| {
            let node = |id: u32, cpus| (NodeId(id), cpus, Bytes(1 << 30));
            let slit = (0..4).map(|a| (0..4).map(|b| if a == b { 10 } else { 20 }).collect());
            let rows = (0..).zip(cpus).map(|(id, cpus)| node(id, cpus));
            let machine = Machine::derived("n", &Topology::numbered(rows, slit.collect()), None);
            let workload = slices(threads, 64, 1);
            let layout = Layout::new(&machine, &workload.process[0], Tie::Bind, (0, 1));
            let one = |thread: usize| {
                let at = layout.thread(thread).unwrap();
                assert_eq!(at, [layout.memory(thread, Some(thread), &[0; 8])]);
                at[0]
            };
            (0..threads as usize).map(one).collect::<Vec<_>>()
        };
        assert_eq!(nodes([1, 1, 1, 1], 2), [0, 2]);
        assert_eq!(nodes([4, 0, 2, 2], 8), [0, 0, 0, 0, 2, 2, 3, 3]);
        assert_eq!(nodes([4, 2, 1, 1], 4), [0, 0, 1, 2]);
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
            let machine = Machine::derived("n", &topology(nodes), None);
            let layout = Layout::new(&machine, &workload.process[0], Tie::Inverse, (0, 1));
            for thread in 0..4 {
                assert_ne!(
                    layout.thread(thread),
                    Some(vec![layout.memory(0, Some(thread), &[0; 4])])
                );
            }
        }
        // What all threads of one of two processes use: on some other node, and on all others alike.
        let mut whole = slices(4, 64, 1);
        whole.process[0].bind = Bind::Process;
        for (nodes, part) in (2..=8).flat_map(|nodes| [(nodes, 0), (nodes, 1)]) {
            let machine = Machine::derived("n", &topology(nodes), None);
            let layout = Layout::new(&machine, &whole.process[0], Tie::Inverse, (part, 2));
            let mut blocks = vec![0; nodes as usize];
            (0..840).for_each(|block| blocks[layout.memory(block, None, &[0; 4])] += 1);
            let home = layout.thread(0).unwrap();
            assert!(home.iter().all(|node| blocks[*node] == 0), "{nodes} nodes: {blocks:?}");
            let on = blocks.iter().filter(|count| **count > 0).count();
            assert!(blocks.iter().all(|count| [0, 840 / on].contains(count)), "{blocks:?}");
        }
        // The second of two processes on four nodes has nodes 2 and 3, two threads on each.
        let machine = Machine::derived("n", &topology(4), None);
        let layout = Layout::new(&machine, &workload.process[0], Tie::Bind, (1, 2));
        let nodes: Vec<usize> = (0..4).map(|thread| layout.thread(thread).unwrap()[0]).collect();
        assert_eq!(nodes, [2, 2, 3, 3]);
    }
}
