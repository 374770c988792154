//! How much memory traffic a node may be given: groups are brought together only as far as a node's
//! memory carries them.
//!
//! A node's *load* is what its tasks read and write, wherever that lies: memory follows tasks, so it
//! will be this node's. A memory that carries [`SATURATED_PERMILLE`] of what it can is full: whoever
//! uses it waits, and what they would like is not known. Its node keeps tasks of half of that load,
//! where others have room for the other half; so a group spreads over two nodes, and over four if
//! those turn out to be full too. Where nobody has room for that half, each node keeps its fair part and a
//! task more, so that the last one finds room. If nobody has to go even so, and the machine carries all that
//! is asked of it, none comes beyond what a node takes that is not full: a group that is spread stays so,
//! though its memory still lies on one node and fills that. A node that is
//! not full takes more up to [`ROOM_PERMILLE`]: what was spread, as it was full, does not come back
//! unless it asks for clearly less. Without measurements there is no limit.
//!
//! Whoever waits asks for less than it would like, so what counts of a task is the most that it asked for
//! of late.
//!
//! Example: two nodes that carry 4 GB/s each; four tasks on the first, of 1 GB/s: it keeps 2 GB/s and
//! half a task. On nodes of their own the tasks take 1.5 GB/s each, 3 GB/s a node: all four would ask
//! one node for 6 GB/s of 3.4, so they stay apart.
//!
//! Tasks leave a full node as they leave one with too few CPUs: those that lose least first, to the
//! nearest that has room ([`crate::search`]); memory that they share is shared out after them
//! ([`crate::interleave`]).

use numaherd_model::Snapshot;

use crate::demand::DemandTask;

/// Load from which a node's memory is full. Guessed: a queue is long by then, and what counters miss
/// (prefetches, page tables) comes on top.
const SATURATED_PERMILLE: u64 = 930;

/// Load up to which a node is given more. Guessed, clearly below the former, so that noise does not
/// send groups to and fro.
const ROOM_PERMILLE: u64 = 850;

/// What nodes may be given, in bytes a second, by index. Without a limit: `u64::MAX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Above this, some have to leave.
    pub keeps: Vec<u64>,
    /// Up to this, others may come.
    pub takes: Vec<u64>,
    /// What each is given today.
    pub load: Vec<u64>,
    /// Whose memory carries all it can.
    pub full: Vec<bool>,
}

impl Bandwidth {
    /// No limits.
    #[must_use]
    pub fn unlimited(nodes: usize) -> Bandwidth {
        let none = vec![u64::MAX; nodes];
        Bandwidth {
            keeps: none.clone(),
            takes: none,
            load: vec![0; nodes],
            full: vec![false; nodes],
        }
    }

    /// Whether some have to leave a node.
    #[must_use]
    pub fn is_short(&self, node: usize) -> bool {
        self.load[node] > self.keeps[node]
    }

    /// From what was measured; sets [`DemandTask::traffic`] to the most that `peak` knows of a task, by
    /// index, given what it asks now.
    #[must_use]
    pub fn new(
        snapshot: &Snapshot,
        tasks: &mut [DemandTask],
        mut peak: impl FnMut(usize, u64) -> u64,
    ) -> Bandwidth {
        let nodes = &snapshot.topology.nodes;
        let traffic = &snapshot.traffic;
        let mut load = vec![0u64; nodes.len()];
        for &(id, bytes) in &traffic.tasks {
            if let Ok(task) = tasks.binary_search_by_key(&id, |task| task.id) {
                tasks[task].traffic = peak(task, bytes);
                load[tasks[task].now] += tasks[task].traffic;
            }
        }
        let most = |node: &numaherd_model::Node| {
            let found = traffic.most.iter().find(|(id, _)| *id == node.id);
            found.filter(|_| !node.cpus.is_empty()).map(|(_, bytes)| *bytes)
        };
        let most: Vec<Option<u64>> = nodes.iter().map(most).collect();
        let heaviest = tasks.iter().map(|task| task.traffic).max().unwrap_or(0);
        // Where nobody counts at the memory, it is taken to carry what its node's tasks ask for.
        let carried = |(n, node): (usize, &numaherd_model::Node)| {
            let found = traffic.carried.iter().find(|(id, _)| *id == node.id);
            found.map_or(load[n], |(_, bytes)| *bytes)
        };
        let carried: Vec<u64> = nodes.iter().enumerate().map(carried).collect();
        limits(&most, &carried, load, heaviest)
    }
}

/// Of `most` what each node's memory carries, for what it carried and the load of its tasks, and the
/// heaviest task's part of that.
fn limits(most: &[Option<u64>], carried: &[u64], load: Vec<u64>, heaviest: u64) -> Bandwidth {
    let mut bandwidth = Bandwidth::unlimited(most.len());
    let known: Vec<(usize, u64)> =
        most.iter().enumerate().filter_map(|(n, most)| Some((n, (*most)?))).collect();
    let carries_all = |n: usize, most: u64| carried[n] >= part(most, SATURATED_PERMILLE).max(1);
    let is_full = |n: usize, most: u64| load[n] > 0 && carries_all(n, most);
    let fulls = || known.iter().filter(|&&(n, most)| is_full(n, most)).map(|&(n, _)| n);
    let spare = |&(n, most): &(usize, u64)| match is_full(n, most) {
        true => 0,
        false => u128::from(part(most, ROOM_PERMILLE).saturating_sub(load[n])),
    };
    // A node whose memory has no limit carries u64::MAX.
    let room: u128 = known.iter().map(spare).sum();
    let surplus = |n: usize| u128::from(load[n].saturating_sub(carried[n] / 2));
    let too_much: u128 = fulls().map(surplus).sum();
    let half = fulls().map(|n| carried[n] / 2 + heaviest / 2).max();
    let all: u128 = known.iter().map(|&(n, _)| u128::from(load[n])).sum();
    let carries: u128 = known.iter().map(|&(_, most)| u128::from(most)).sum();
    // Whatever the order in which tasks come, the last one finds room.
    let last = |most: u64| {
        let fair = all.saturating_mul(u128::from(most)).div_ceil(carries.max(1));
        u64::try_from(fair).unwrap_or(u64::MAX).saturating_add(heaviest)
    };
    let nobody_goes = known.iter().all(|&(n, most)| load[n] <= last(most));
    let room_for_all =
        all <= known.iter().map(|&(_, most)| u128::from(part(most, ROOM_PERMILLE))).sum();
    for &(n, most) in &known {
        bandwidth.full[n] = carries_all(n, most);
        let (keeps, takes) = if too_much > room {
            let comes =
                if nobody_goes && room_for_all { part(most, ROOM_PERMILLE) } else { u64::MAX };
            (last(most), last(most).min(comes))
        } else if is_full(n, most) {
            let half = carried[n] / 2 + heaviest / 2;
            (half, half)
        } else {
            // No more than the half of the fullest: what that would like is not known.
            let room = part(most, ROOM_PERMILLE);
            (u64::MAX, half.map_or(room, |half| room.min(load[n].max(half))))
        };
        (bandwidth.keeps[n], bandwidth.takes[n]) = (keeps, takes);
    }
    bandwidth.load = load;
    bandwidth
}

fn part(of: u64, permille: u64) -> u64 {
    of / 1000 * permille
}

#[cfg(test)]
mod tests {
    use numaherd_model::scene::{Scene, task_id};
    use numaherd_model::{Action, NodeId, Placement};

    use super::*;
    use crate::{Herd, Mechanisms};

    const GB: u64 = 1_000_000_000;

    /// Four tasks that share 16 MiB, all of both on node 0 of two, each reading so much; a node carries
    /// 4 GB/s.
    fn group(each: u64) -> Scene {
        let mut scene = Scene::two_by_four();
        scene.shared(100, 75);
        for tid in 1..=4 {
            scene.task(tid, tid - 1, 1000);
        }
        for r in 0..8 {
            scene.region(r, &[(1, 30), (2, 30), (3, 30), (4, 30)], &[(0, 512)]);
        }
        let traffic = &mut scene.edit().traffic;
        traffic.most = vec![(NodeId(0), 4 * GB), (NodeId(1), 4 * GB)];
        traffic.tasks = (1..=4).map(|tid| (task_id(tid), each)).collect();
        scene
    }

    /// How many tasks are placed on node 1.
    fn sent(scene: &Scene, parts: Mechanisms) -> usize {
        let plan = Herd::with(parts).decide(&scene.snapshot());
        let to_1 = |action: &&Action| matches!(action, Action::PlaceTask { node: NodeId(1), .. });
        plan.actions.iter().filter(to_1).count()
    }

    #[test]
    fn a_group_that_fills_a_nodes_memory_spreads_over_two() {
        assert_eq!(sent(&group(GB), Mechanisms::default()), 2);
        // 3.6 GB/s of 4 is below 93 %.
        assert_eq!(sent(&group(GB * 9 / 10), Mechanisms::default()), 0);
        let without = Mechanisms { bandwidth: false, ..Mechanisms::default() };
        assert_eq!(sent(&group(GB), without), 0);
    }

    #[test]
    fn what_was_spread_stays_apart_while_it_asks_for_more_than_a_node_has() {
        let mut scene = group(GB * 3 / 2);
        for (n, task) in scene.edit().tasks.iter_mut().enumerate() {
            task.home = Some(NodeId(n as u32 / 2));
        }
        assert_eq!(sent(&scene, Mechanisms::default()), 0);
        let to_0 = |scene: &Scene, parts| {
            let plan = Herd::with(parts).decide(&scene.snapshot());
            let home = |a: &&Action| matches!(a, Action::PlaceTask { node: NodeId(0), .. });
            plan.actions.iter().filter(home).count()
        };
        assert_eq!(to_0(&scene, Mechanisms::default()), 0);
        // 4 × 0.8 GB/s are below 85 % of 4: they come together again.
        scene.edit().traffic.tasks.iter_mut().for_each(|task| task.1 = GB * 8 / 10);
        assert_eq!(to_0(&scene, Mechanisms::default()), 2);
        // And with nothing measured, at once.
        scene.edit().traffic = Default::default();
        assert_eq!(to_0(&scene, Mechanisms::default()), 2);
    }

    #[test]
    fn a_full_node_keeps_half_where_others_have_room_and_all_keep_their_part_where_not() {
        let none = u64::MAX;
        let is = |load: [u64; 3], keeps: [u64; 3], takes: [u64; 3]| {
            let found = limits(&[Some(1000), Some(1000), None], &load, load.to_vec(), 100);
            assert_eq!((&found.keeps[..], &found.takes[..]), (&keeps[..], &takes[..]), "{load:?}");
        };
        is([900, 0, 9000], [none; 3], [850, 850, none]);
        // 950 / 2 and half of the heaviest.
        is([950, 300, 0], [525, none, none], [525, 525, none]);
        // 475 do not fit 850 - 400: (950 + 400) / 2 + 100
        is([950, 400, 0], [775, 775, none], [775, 775, none]);
        // Nor 465 850 - 730, but both are less than 2 × 850, and nobody has to go: (930 + 730) / 2 + 100.
        is([930, 730, 0], [930, 930, none], [850, 850, none]);
        // Here somebody has to.
        is([950, 700, 0], [925, 925, none], [925, 925, none]);
        // And these are more.
        is([950, 800, 0], [975, 975, none], [975, 975, none]);
    }

    /// The two on node 1 wait for memory of node 0, which is full; they have asked for 1.5 and 1.4 GB/s before.
    /// Of the two on node 0, which ask for 1.3 each now, 2.6 - 4 / 2 = 0.6 GB/s would have to go, and node 1
    /// has room for 3.4 - 2.9 = 0.5. With a fair part and a task more, (2.6 + 2.9) / 2 + 1.5 = 4.25 GB/s, three
    /// of them could be on one node. But all ask for 5.5 of 2 × 3.4, and with 3.4 each they stay apart.
    #[test]
    fn a_group_that_is_spread_stays_so_while_its_memory_fills_one_node() {
        let mut scene = group(0);
        for (n, task) in scene.edit().tasks.iter_mut().enumerate() {
            (task.last_cpu.0, task.home) = (n as u32 / 2 * 4, Some(NodeId(n as u32 / 2)));
        }
        let rates = [13, 13, 15, 14].map(|tenths| tenths * GB / 10);
        let traffic = &mut scene.edit().traffic;
        traffic.tasks.iter_mut().zip(rates).for_each(|(task, rate)| task.1 = rate);
        traffic.carried = vec![(NodeId(0), 4 * GB), (NodeId(1), 0)];
        let plan = Herd::new().decide(&scene.snapshot());
        let placed = |a: &&Action| matches!(a, Action::PlaceTask { .. });
        assert_eq!(plan.actions.iter().filter(placed).count(), 0, "{plan:?}");
    }

    #[test]
    fn tasks_that_all_use_one_full_memory_from_two_nodes_do_not_come_together_there() {
        // All of 4 GB/s is of node 0's memory; two tasks are on node 1.
        let mut scene = group(GB);
        for (n, task) in scene.edit().tasks.iter_mut().enumerate() {
            task.last_cpu.0 = n as u32 / 2 * 4;
        }
        scene.edit().traffic.carried = vec![(NodeId(0), 4 * GB), (NodeId(1), 0)];
        let placed = |scene: &Scene| {
            let plan = Herd::new().decide(&scene.snapshot());
            plan.actions.iter().filter(|a| matches!(a, Action::PlaceTask { .. })).count()
        };
        assert_eq!(placed(&scene), 0);
        scene.edit().traffic = Default::default();
        assert_eq!(placed(&scene), 2);
    }
}
