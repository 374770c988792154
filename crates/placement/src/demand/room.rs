//! What each node can take: pages, and tasks that claim a CPU.

use numaherd_model::{Node, Snapshot};

/// Free memory that a node keeps above its high watermark, per mille of its memory: what the check
/// asks for.
const MARGIN_PERMILLE: u64 = 20;

/// Pages that a node can take: what is free above its high watermark and a margin.
#[must_use]
pub fn pages(snapshot: &Snapshot, node: &Node) -> u64 {
    let state = snapshot.node(node.id);
    let (free, high) = state.map_or((0, 0), |state| (state.free.0, state.high_watermark.0));
    let margin = node.memory.0 / snapshot.page_size.0.max(1) * MARGIN_PERMILLE / 1000;
    free.saturating_sub(high + margin)
}

/// Where there are more tasks than CPUs, a node keeps what it has beyond its part up to one in so many of that. Guessed:
/// they wait little longer than others, and to move one with its memory costs more than it waits for in a short life.
/// (The kernel's load balancing moves nothing over nodes up to a quarter.)
const SLACK: usize = 8;

/// CPUs per node that are neither set apart nor taken by others.
#[must_use]
pub fn cpus(snapshot: &Snapshot) -> Vec<usize> {
    let open = |node: &Node| {
        let cpus = node.cpus.difference(&snapshot.isolated).len();
        cpus.saturating_sub(snapshot.others(node.id))
    };
    snapshot.topology.nodes.iter().map(open).collect()
}

/// CPU-claiming tasks per node: its open CPUs; with more tasks than those, its fair part of them (of all CPUs, where
/// nothing is open), rounded up. And those that each may keep beyond that if it has them today.
#[must_use]
pub fn tasks(snapshot: &Snapshot, open: &[usize], claims: usize) -> (Vec<usize>, Vec<usize>) {
    let nodes = &snapshot.topology.nodes;
    let mut room = open.to_vec();
    if claims <= room.iter().sum() {
        return (room, vec![0; nodes.len()]);
    }
    if room.iter().all(|&free| free == 0) {
        room = nodes.iter().map(|node| node.cpus.len()).collect();
    }
    let room = parts(&room, claims);
    let slack = room.iter().map(|part| part / SLACK).collect();
    (room, slack)
}

/// The fair part of so many tasks that each node gets by its room, rounded up.
#[must_use]
pub fn parts(room: &[usize], tasks: usize) -> Vec<usize> {
    let all = room.iter().sum::<usize>().max(1);
    room.iter().map(|room| (tasks * room).div_ceil(all)).collect()
}
