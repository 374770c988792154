//! Which nodes suit a new process that wants so many CPUs and so much memory.
//!
//! As few nodes as can hold it; of equally many those nearest to each other (the sum of their
//! distances); then those with the most left in the scarcer of the two; then the lower ids. Where
//! no set holds it, all nodes with anything to give are named. Idle CPUs are in thousandths.
//!
//! ```
//! use numaherd_model::{Bytes, NodeId, Topology};
//! use numaherd_placement::nodeset::{Capacity, choose};
//! let half = |node, idle_cpus_permille| Capacity { node: NodeId(node), idle_cpus_permille, free: Bytes(1 << 30) };
//! let chosen = choose(&Topology::default(), &[half(0, 500), half(1, 3900)], 2, Bytes(1 << 20));
//! assert_eq!((chosen.nodes.to_string().as_str(), chosen.enough), ("1", true));
//! ```

use numaherd_model::{Bytes, NodeId, NodeSet, Topology};

/// What a node has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The node.
    pub node: NodeId,
    /// Idle CPUs, in thousandths.
    pub idle_cpus_permille: u64,
    /// Free memory.
    pub free: Bytes,
}

/// The nodes to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Not empty unless no node has free memory.
    pub nodes: NodeSet,
    /// Whether they have all that is wanted.
    pub enough: bool,
}

/// Above so many nodes, sets are grown from each node instead of all being tried (chosen: 2^12
/// sets take about a millisecond).
const TRY_ALL_NODES: usize = 12;

/// Chooses nodes for `cpus` busy CPUs and `memory`. A CPU that is nine tenths idle counts as one
/// (a quiet machine is never idle altogether).
#[must_use]
pub fn choose(topology: &Topology, all: &[Capacity], cpus: u32, memory: Bytes) -> Chosen {
    let wanted = u64::from(cpus) * 900;
    let holds = |set: &[Capacity]| {
        let idle: u64 = set.iter().map(|one| one.idle_cpus_permille).sum();
        let free: u64 = set.iter().map(|one| one.free.0).sum();
        (idle >= wanted && free >= memory.0).then(|| slack(idle, free, wanted, memory))
    };
    let spread = |set: &[Capacity]| -> u32 {
        let pairs = set.iter().flat_map(|a| set.iter().map(move |b| (a.node, b.node)));
        pairs.map(|(a, b)| topology.far(a, b)).sum()
    };
    let ids = |set: &[Capacity]| set.iter().map(|one| one.node).collect::<Vec<_>>();
    let best = candidates(topology, all)
        .into_iter()
        .filter_map(|set| Some((holds(&set)?, set)))
        .min_by_key(|(slack, set)| (set.len(), spread(set), std::cmp::Reverse(*slack), ids(set)));
    match best {
        Some((_, set)) => Chosen { nodes: ids(&set).into_iter().collect(), enough: true },
        None => {
            // a machine that is busy everywhere still has memory
            let both = |one: &&Capacity| one.idle_cpus_permille > 0 && one.free.0 > 0;
            let any = all.iter().any(|one| both(&one));
            let some = all.iter().filter(|one| if any { both(one) } else { one.free.0 > 0 });
            Chosen { nodes: some.map(|one| one.node).collect(), enough: false }
        }
    }
}

/// What is left of the scarcer of the two, in thousandths of what is wanted.
fn slack(idle: u64, free: u64, wanted: u64, memory: Bytes) -> u64 {
    let share = |have: u64, want: u64| {
        let share = u128::from(have) * 1000 / u128::from(want.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    };
    share(idle, wanted).min(share(free, memory.0))
}

/// All sets of nodes, or on large machines those that grow from one node by the nearest.
fn candidates(topology: &Topology, all: &[Capacity]) -> Vec<Vec<Capacity>> {
    if all.len() <= TRY_ALL_NODES {
        let members = |mask: u32| {
            let within = |at: &usize| mask >> at & 1 == 1;
            (0..all.len()).filter(within).map(|at| all[at]).collect()
        };
        return (1..1_u32 << all.len()).map(members).collect();
    }
    let grown = |from: &Capacity| {
        let mut near = all.to_vec();
        near.sort_by_key(|one| (topology.far(from.node, one.node), one.node));
        (1..=near.len()).map(|len| near[..len].to_vec()).collect::<Vec<_>>()
    };
    all.iter().flat_map(grown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::Node;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    /// A ring of four: neighbours 16, across 22.
    fn ring(nodes: u32) -> Topology {
        let node = |id| Node {
            id: NodeId(id),
            cpus: Default::default(),
            memory: Bytes(GIB),
            free: Bytes(GIB),
        };
        let far = |a: u32, b: u32| match a.abs_diff(b).min(nodes - a.abs_diff(b)) {
            0 => 10,
            1 => 16,
            _ => 22,
        };
        let distances = (0..nodes).map(|a| (0..nodes).map(|b| far(a, b)).collect()).collect();
        Topology { nodes: (0..nodes).map(node).collect(), distances, ..Topology::default() }
    }

    fn capacities(idle: &[u64], free_gib: &[u64]) -> Vec<Capacity> {
        let one = |(at, (idle, free)): (usize, (&u64, &u64))| Capacity {
            node: NodeId(at as u32),
            idle_cpus_permille: *idle,
            free: Bytes(free * GIB),
        };
        idle.iter().zip(free_gib).enumerate().map(one).collect()
    }

    fn chosen(idle: &[u64], free: &[u64], cpus: u32, gib: u64) -> (String, bool) {
        let chosen = choose(&ring(4), &capacities(idle, free), cpus, Bytes(gib * GIB));
        (chosen.nodes.to_string(), chosen.enough)
    }

    #[test]
    fn as_few_near_and_roomy_nodes_as_possible() {
        // one node holds it: 1 has the most left, min(4000/1800, 8/2)
        assert_eq!(chosen(&[2000, 4000, 4000, 500], &[8, 8, 3, 8], 2, 2), ("1".into(), true));
        // two are needed for 6 CPUs (5400); 0 and 2 have the most and are across; 0-1 are near
        assert_eq!(chosen(&[4000, 3000, 4000, 100], &[8, 8, 8, 8], 6, 2), ("0-1".into(), true));
        // memory decides: only 3 has 7 GiB
        assert_eq!(chosen(&[4000; 4], &[2, 2, 2, 7], 1, 7), ("3".into(), true));
        // more than there is
        assert_eq!(chosen(&[4000, 0, 4000, 4000], &[2; 4], 64, 1), ("0,2-3".into(), false));
    }

    proptest! {
        #[test]
        fn what_is_chosen_holds_what_is_wanted(
            idle in proptest::collection::vec(0u64..8000, 4), free in proptest::collection::vec(0u64..16, 4),
            cpus in 0u32..20, gib in 0u64..40
        ) {
            let all = capacities(&idle, &free);
            let chosen = choose(&ring(4), &all, cpus, Bytes(gib * GIB));
            let of = |nodes: &NodeSet| {
                let within = all.iter().filter(|one| nodes.contains(one.node));
                within.fold((0, 0), |sum, one| (sum.0 + one.idle_cpus_permille, sum.1 + one.free.0))
            };
            let (idle, free) = of(&chosen.nodes);
            let holds = |(idle, free): (u64, u64)| idle >= u64::from(cpus) * 900 && free >= gib * GIB;
            prop_assert_eq!(chosen.enough, holds(of(&"0-3".parse().unwrap())));
            prop_assert!(!chosen.enough || holds((idle, free)));
        }
    }

    #[test]
    fn many_nodes_are_tried_from_each_one() {
        let all = capacities(&[1000; 16], &[4; 16]);
        let chosen = choose(&ring(16), &all, 3, Bytes(GIB));
        assert_eq!((chosen.nodes.len(), chosen.enough), (3, true));
    }
}
