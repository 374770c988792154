//! Faults by node, of a task and of the tasks that share pages with it.

use std::cmp::Reverse;

use numaherd_model::{Nanos, NodeId, Topology};

/// A node is active if it sees more than a third of the faults of the busiest. Published.
const ACTIVE_FRACTION: u64 = 3;
/// A node's distance from itself (`LOCAL_DISTANCE`).
const LOCAL: u32 = 10;

/// Faults by node: shared, private.
pub(super) type Faults = Vec<[u64; 2]>;

/// Tasks that share pages.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) members: u64,
    pub(super) mem: Faults,
    pub(super) cpu: Faults,
}

pub(super) fn both(faults: &Faults, node: usize) -> u64 {
    faults[node][0] + faults[node][1]
}

fn sum(faults: &Faults) -> u64 {
    faults.iter().flatten().sum()
}

impl Group {
    /// Nodes from which much of the group's faults come.
    pub(super) fn active(&self) -> Vec<bool> {
        let most = (0..self.cpu.len()).map(|node| both(&self.cpu, node)).max().unwrap_or(0);
        (0..self.cpu.len()).map(|node| both(&self.cpu, node) * ACTIVE_FRACTION > most).collect()
    }

    /// A period times as many as are members, of which the part by which their faults are shared.
    pub(super) fn stretch(&self, period: Nanos) -> u64 {
        let total = |kind: usize| -> u64 { self.mem.iter().map(|faults| faults[kind]).sum() };
        let (shared, private) = (total(0), total(1));
        let all = u128::from(period.0) * u128::from(self.members);
        (all * u128::from(shared + 1) / u128::from(private + shared + 1)) as u64
    }

    /// A member leaves with its faults.
    pub(super) fn take(&mut self, mem: &Faults, cpu: &Faults) {
        self.members -= 1;
        for (all, part) in [(&mut self.mem, mem), (&mut self.cpu, cpu)] {
            for (all, part) in all.iter_mut().zip(part) {
                all[0] = all[0].saturating_sub(part[0]);
                all[1] = all[1].saturating_sub(part[1]);
            }
        }
    }
}

pub(super) fn add(all: &mut Faults, part: &Faults) {
    for (all, part) in all.iter_mut().zip(part) {
        all[0] += part[0];
        all[1] += part[1];
    }
}

/// How a machine's nodes are linked, as Linux tells it (`init_numa_topology_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// No more than two distances: all others are as far.
    Direct,
    /// Between the two that are farthest apart there is one that is nearer to both.
    Mesh,
    /// There is none: nodes behind controllers, or the parts of several sockets.
    Backplane,
}

/// What Linux knows of distances: of nodes with CPUs alone, for a task cannot go to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links {
    pub(super) shape: Shape,
    /// The greatest distance of the whole machine (`sched_max_numa_distance`).
    pub(super) farthest: u32,
}

impl Links {
    pub(super) fn of(topology: &Topology) -> Links {
        let ids: Vec<NodeId> = topology.cpu_nodes().map(|node| node.id).collect();
        let pairs = ids.iter().flat_map(|&a| ids.iter().map(move |&b| (a, b)));
        let mut distances: Vec<u32> = pairs.clone().map(|(a, b)| topology.distance(a, b)).collect();
        distances.sort_unstable();
        distances.dedup();
        let farthest = distances.last().copied().unwrap_or(LOCAL);
        if distances.len() <= 2 {
            return Links { shape: Shape::Direct, farthest };
        }
        let nearer = |c: NodeId, of: NodeId| topology.distance(of, c) < farthest;
        // One such pair tells, as there.
        let mut far = pairs.filter(|&(a, b)| topology.distance(a, b) == farthest);
        let between =
            far.next().is_some_and(|(a, b)| ids.iter().any(|&c| nearer(c, a) && nearer(c, b)));
        let shape = if between { Shape::Mesh } else { Shape::Backplane };
        Links { shape, farthest }
    }
}

/// Faults on a node's memory, per mille of all, with those on nodes near it: in a mesh as far as they are nearer than the
/// farthest of the machine, behind a backplane those nearer than `hops`, the distance of the two nodes that are compared.
pub(super) fn weight(
    faults: &Faults,
    node: usize,
    (links, hops): (Links, u32),
    topology: &Topology,
) -> i64 {
    let all = sum(faults).max(1);
    let Links { shape, farthest } = links;
    let nodes = &topology.nodes;
    let distance = |other: usize| topology.distance(nodes[node].id, nodes[other].id);
    let mut score = both(faults, node) * 1000;
    if shape != Shape::Direct {
        for other in (0..nodes.len()).filter(|&n| n != node && distance(n) < farthest) {
            let there = both(faults, other) * 1000;
            score += match shape {
                Shape::Backplane if distance(other) < hops => there,
                Shape::Direct | Shape::Backplane => 0,
                Shape::Mesh => {
                    there * u64::from(farthest - distance(other)) / u64::from(farthest - LOCAL)
                }
            };
        }
    }
    i64::try_from(score / all).unwrap_or(i64::MAX)
}

/// The node on which a task with these faults, its own or its group's, would rather be: where most are, and if
/// that has no CPUs the nearest that has (`numa_nearest_node`). In a mesh a group's faults on near nodes count
/// too, as [`weight`] has them (`preferred_group_nid`). The first of equals. As in 6.12.
pub(super) fn preferred(
    faults: &Faults,
    is_group: bool,
    links: Links,
    topology: &Topology,
) -> Option<usize> {
    let nodes = &topology.nodes;
    let most = (0..nodes.len()).max_by_key(|&node| (both(faults, node), Reverse(node)))?;
    if both(faults, most) == 0 {
        return None;
    }
    let with_cpus = || (0..nodes.len()).filter(|&node| !nodes[node].cpus.is_empty());
    let distance = |node: usize| topology.distance(nodes[most].id, nodes[node].id);
    let nearest = with_cpus().min_by_key(|&node| (node != most, distance(node), node));
    if !is_group || links.shape != Shape::Mesh {
        return nearest;
    }
    let score = |node: usize| weight(faults, node, (links, links.farthest), topology);
    let best = with_cpus().max_by_key(|&node| (score(node), Reverse(node)));
    best.filter(|&node| score(node) > 0).or(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    fn machine(slit: &[&[u32]]) -> Topology {
        let mut topology = Scene::even(slit.len() as u32, 1).snapshot().topology;
        topology.distances = slit.iter().map(|row| row.to_vec()).collect();
        topology
    }

    #[test]
    fn a_square_is_a_mesh_and_two_sockets_of_two_nodes_each_are_not() {
        let two = machine(&[&[10, 21], &[21, 10]]);
        let square =
            machine(&[&[10, 20, 30, 20], &[20, 10, 20, 30], &[30, 20, 10, 20], &[20, 30, 20, 10]]);
        let sockets =
            machine(&[&[10, 12, 21, 21], &[12, 10, 21, 21], &[21, 21, 10, 12], &[21, 21, 12, 10]]);
        let shapes = [&two, &square, &sockets].map(|topology| Links::of(topology).shape);
        assert_eq!(shapes, [Shape::Direct, Shape::Mesh, Shape::Backplane]);
    }

    /// Three nodes in a row: the outer two are two hops apart, and the one between has no node that far.
    #[test]
    fn how_far_is_far_is_told_by_the_whole_machine_and_not_by_each_node() {
        let row = machine(&[&[10, 20, 30], &[20, 10, 20], &[30, 20, 10]]);
        let links = Links::of(&row);
        assert_eq!(links, Links { shape: Shape::Mesh, farthest: 30 });
        // Half of each neighbour's counts: (30 - 20) / (30 - 10).
        let faults = vec![[0, 40], [0, 20], [0, 40]];
        assert_eq!(weight(&faults, 1, (links, 20), &row), 600);
        assert_eq!(weight(&faults, 0, (links, 20), &row), 500);
    }

    /// The same three: neither outer node's neighbours weigh as much as the middle one's.
    #[test]
    fn in_a_mesh_a_group_would_rather_be_amid_its_memory_and_a_task_alone_where_most_is() {
        let row = machine(&[&[10, 20, 30], &[20, 10, 20], &[30, 20, 10]]);
        let links = Links::of(&row);
        let faults = vec![[0, 40], [0, 20], [0, 40]];
        assert_eq!(preferred(&faults, true, links, &row), Some(1));
        assert_eq!(preferred(&faults, false, links, &row), Some(0));
        assert_eq!(preferred(&vec![[0, 0]; 3], true, links, &row), None);
        // All are as far, so where most is.
        let even = machine(&[&[10, 20, 20], &[20, 10, 20], &[20, 20, 10]]);
        assert_eq!(preferred(&faults, true, Links::of(&even), &even), Some(0));
    }

    #[test]
    fn nobody_would_rather_be_where_there_are_no_cpus() {
        let mut topology = machine(&[&[10, 21, 30], &[21, 10, 20], &[30, 20, 10]]);
        topology.nodes[2].cpus = [].into_iter().collect();
        let links = Links::of(&topology);
        for is_group in [false, true] {
            let near = preferred(&vec![[0, 10], [0, 0], [0, 90]], is_group, links, &topology);
            assert_eq!(near, Some(1), "the nearest to the node with most");
        }
    }

    #[test]
    fn memory_without_cpus_does_not_tell_how_nodes_are_linked() {
        let mut topology = machine(&[&[10, 20, 40], &[20, 10, 40], &[40, 40, 10]]);
        topology.nodes[2].cpus = [].into_iter().collect();
        assert_eq!(Links::of(&topology), Links { shape: Shape::Direct, farthest: 20 });
    }
}
