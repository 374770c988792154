//! How much there is to lose by distance.
//!
//! What herd does to find out, and what it has to be sure of, was measured where other nodes' memory is about twice as far.
//! Where it is nearly as near as a node's own, evidence costs the same and brings less, and the same doubt about who
//! uses what is worth less.

use numaherd_model::Topology;

/// How much farther than its own memory that of others is on average, in thousandths, where herd's times and costs are
/// right. Guessed: they were measured at 800 (the emulated 4x2) and above, and at 600 (SLIT 16) two pairs of threads
/// that change slices, made up, take 46 s with less hurry and 41 with none (`make random-loads`, load 25).
const FAR: u64 = 600;

/// In thousandths of what there is to lose where nodes are [`FAR`] from each other; no more than that, however far
/// they are.
///
/// Example: nodes that are 12 apart by SLIT (NPS4) lose a third of it.
#[must_use]
pub fn permille(topology: &Topology) -> u64 {
    let beyond = |(cpus, memory)| u64::from(topology.far_at(cpus, memory)).saturating_sub(1000);
    of(others(topology).map(beyond))
}

/// Nodes with CPUs, each with every other that has memory, by their places in the topology.
pub fn others(topology: &Topology) -> impl Iterator<Item = (usize, usize)> {
    let nodes = || topology.nodes.iter().enumerate();
    let with_memory = move || nodes().filter(|(_, node)| node.memory.0 > 0).map(|(i, _)| i);
    let with_cpus = nodes().filter(|(_, node)| !node.cpus.is_empty()).map(|(i, _)| i);
    let pairs = with_cpus.flat_map(move |cpus| with_memory().map(move |memory| (cpus, memory)));
    pairs.filter(|(cpus, memory)| cpus != memory)
}

/// The same of how much farther each node's CPUs are from other nodes' memory than from their own, in thousandths.
pub fn of(beyond: impl Iterator<Item = u64>) -> u64 {
    let (count, sum) = beyond.fold((0, 0), |(count, sum), far| (count + 1, sum + far));
    (sum * 1000 / (count * FAR).max(1)).clamp(1, 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    #[test]
    fn the_nearer_nodes_are_the_less_there_is_to_lose() {
        let mut topology = Scene::two_by_four().snapshot().topology;
        assert_eq!(permille(&topology), 1000, "21");
        topology.distances = vec![vec![10, 12], vec![12, 10]];
        assert_eq!(permille(&topology), 333);
        topology.latencies = vec![vec![1000, 1050], vec![1070, 1000]];
        assert_eq!(permille(&topology), 100);
        topology.latencies = vec![vec![1000; 2]; 2];
        assert_eq!(permille(&topology), 1);
    }

    #[test]
    fn memory_without_cpus_counts_and_nodes_without_memory_do_not() {
        let mut topology = Scene::even(3, 2).snapshot().topology;
        topology.distances = vec![vec![10, 12, 30], vec![12, 10, 30], vec![30, 30, 10]];
        topology.nodes[2].cpus = Default::default();
        assert_eq!(permille(&topology), 1000);
        topology.nodes[2].memory = numaherd_model::Bytes(0);
        assert_eq!(permille(&topology), 333);
    }

    #[test]
    fn on_a_square_there_is_all_to_lose() {
        let mut topology = Scene::even(4, 2).snapshot().topology;
        let far = |a: usize, b: usize| [10, 16, 16, 22][(a ^ b) & 3];
        topology.distances = (0..4).map(|a| (0..4).map(|b| far(a, b)).collect()).collect();
        assert_eq!(permille(&topology), 1000);
    }
}
