//! Faults by node, of a task and of the tasks that share pages with it.

use super::View;

/// A node is active if it sees more than a third of the faults of the busiest. Published.
const ACTIVE_FRACTION: u64 = 3;

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

/// Faults on a node's memory, per mille of all. Where nodes have more than two distances, those on
/// nodes near it count as far as they are nearer than the farthest.
pub(super) fn weight(faults: &Faults, node: usize, view: &dyn View) -> i64 {
    let all = sum(faults).max(1);
    let nodes = &view.topology().nodes;
    let distance = |other: usize| view.topology().distance(nodes[node].id, nodes[other].id);
    let farthest = (0..nodes.len()).map(distance).max().unwrap_or(10);
    let nearest = (0..nodes.len()).filter(|&n| n != node).map(distance).min().unwrap_or(10);
    let mut score = both(faults, node) * 1000;
    if nearest < farthest {
        for other in (0..nodes.len()).filter(|&n| n != node && distance(n) < farthest) {
            let near = u64::from(farthest - distance(other));
            score += both(faults, other) * 1000 * near / u64::from(farthest - 10);
        }
    }
    i64::try_from(score / all).unwrap_or(i64::MAX)
}
