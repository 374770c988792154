//! Tasks that belong on one node together, whatever their faults say: those of a virtual node.
//!
//! A unit is a bundle without memory that each of its tasks uses more heavily than all its memory
//! together ([`TIE`]): the search gathers it like any other and no single task gains by leaving. A unit
//! that is larger than a node is torn as little as may be.
//!
//! Example: one of four virtual CPUs has 90 % of its faults on node 1, the others on node 0: all four
//! are on node 0. A vhost thread, which takes no faults, goes with them.

use numaherd_model::Snapshot;

use crate::demand::{Amounts, Bundle, DemandTask, Nodes, Regions, SHARE};

/// A task's weight in its unit. Guessed: twice what all its memory can weigh, so that distance to the
/// others always outweighs distance to memory.
const TIE: u64 = 2 * SHARE;

/// Appends a bundle for each unit, and gives each of its tasks its weight there.
pub fn tie(snapshot: &Snapshot, tasks: &mut [DemandTask], bundles: &mut Vec<Bundle>) {
    for unit in &snapshot.units {
        let found = unit.iter().filter_map(|id| tasks.binary_search_by_key(id, |t| t.id).ok());
        let users: Amounts = found.map(|task| (task, TIE)).collect();
        if users.len() < 2 {
            continue;
        }
        for &(task, weight) in &users {
            tasks[task].bundles.push((bundles.len(), weight));
            tasks[task].tied = true;
        }
        let (regions, pages) = (Regions::new(), Amounts::new());
        let forbidden = Nodes::new();
        bundles.push(Bundle {
            users,
            regions,
            pages,
            known: 0,
            page_cost: 0,
            stays: false,
            forbidden,
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Herd;
    use numaherd_model::scene::{Scene, task_id};
    use numaherd_model::{Action, Placement, TaskId};

    /// Two virtual nodes of four CPUs each, tasks 1-4 and 5-8, their memory on host nodes 1 and 0;
    /// task 4 has faulted mostly in the other's. Tasks are on every second host CPU. Nobody has to make room.
    fn guest() -> Scene {
        let mut scene = Scene::even(2, 6);
        for tid in 1..=8u32 {
            scene.task(tid, if tid % 2 == 0 { tid / 2 } else { 6 + tid / 2 }, 1000);
        }
        // A vhost thread, busy and without faults.
        scene.task(9, 0, 600);
        for tid in 1..=8u32 {
            let node = u32::from(tid < 4);
            scene.region(u64::from(tid), &[(tid, 400)], &[(node, 100_000)]);
        }
        scene.edit().costs.page_move.0 = 100_000;
        scene
    }

    fn homes(scene: &Scene) -> Vec<Option<u32>> {
        let snapshot = scene.snapshot();
        let mut herd = Herd::new();
        herd.decide(&snapshot);
        let mut later = snapshot;
        later.time.0 += 5_000_000_000;
        let plan = herd.decide(&later);
        let home = |id: TaskId| {
            plan.actions.iter().find_map(|action| match action {
                Action::PlaceTask { task, node, .. } if *task == id => Some(node.0),
                _ => None,
            })
        };
        (1..=9).map(|tid| home(task_id(tid))).collect()
    }

    #[test]
    fn a_virtual_node_stays_whole_and_its_vhost_thread_follows() {
        let mut scene = guest();
        let unit = |tids: &[u32]| tids.iter().map(|&tid| task_id(tid)).collect();
        scene.edit().units = vec![unit(&[1, 2, 3, 4, 9]), unit(&[5, 6, 7, 8])];
        let homes = homes(&scene);
        let [first, second] = [homes[0], homes[4]];
        assert_ne!(first, second, "{homes:?}");
        assert!(first.is_some() && homes[..4].iter().all(|home| *home == first), "{homes:?}");
        assert!(homes[4..8].iter().all(|home| *home == second), "{homes:?}");
        assert_eq!(homes[8], first, "{homes:?}");
    }

    #[test]
    fn left_to_itself_each_thread_would_go_where_its_faults_are() {
        let homes = homes(&guest());
        assert_eq!(homes[3], Some(0), "{homes:?}");
        assert_eq!((homes[0], homes[8]), (Some(1), None), "{homes:?}");
    }
}
