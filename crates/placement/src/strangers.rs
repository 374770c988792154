//! Busy tasks of a process that nothing is known of yet, while something is of others.
//!
//! Faults show one task after the other. While half of a process's threads have shown where their memory lies and the
//! others have not, these seem to use nothing, and to be as well on any node: so they would change places with those
//! that are known to be far from their memory, only to be far from their own. A stranger is taken to use memory as its
//! mates do on the whole: as much as each of them, where that of their process lies. That keeps it where most of that
//! is; nobody goes there for that alone.
//!
//! Example: four tasks, two on each of two nodes, all memory on node 0. The third has shown a region there, the first
//! nothing. To exchange them would bring the third to its memory and the first away from it.

use numaherd_model::Snapshot;

use crate::bundles::{busy, by_process};
use crate::demand::{Amounts, DemandTask, MIN_FAULTS};
use crate::tables;

/// One of them, and where it is taken to have its memory.
pub struct Stranger {
    /// Its index.
    pub task: usize,
    /// Pages on each node that has some, by index, ascending.
    pub pages: Amounts,
}

/// All of them. What is known of tasks has to be in `tasks`, their evidence.
#[must_use]
pub fn of(snapshot: &Snapshot, tasks: &[DemandTask]) -> Vec<Stranger> {
    let is_known = |i: usize| tasks[i].evidence >= MIN_FAULTS;
    let is_stranger =
        |i: usize| tasks[i].claims_cpu && tasks[i].evidence == 0 && tasks[i].has_choice;
    if !(0..tasks.len()).any(is_stranger) {
        return Vec::new();
    }
    let nodes = &snapshot.topology.nodes;
    let mut found = Vec::new();
    for together in by_process(&busy(snapshot)) {
        let known = together.iter().filter(|one| is_known(one.1)).count() as u64;
        let strangers = together.iter().filter(|one| is_stranger(one.1));
        if known == 0 || strangers.clone().next().is_none() {
            continue;
        }
        let process = together[0].0;
        let lies = tables::shown(snapshot, process);
        let each = |&(node, pages): &(numaherd_model::NodeId, numaherd_model::Pages)| {
            let node = nodes.binary_search_by_key(&node, |node| node.id).ok()?;
            Some((node, pages.0 / known)).filter(|(_, pages)| *pages > 0)
        };
        let pages: Amounts = lies.nodes.iter().filter_map(each).collect();
        let most = pages.iter().map(|(_, pages)| *pages).max();
        let is_beside = |node: usize| pages.iter().any(|on| on.0 == node && Some(on.1) == most);
        let beside = strangers.filter(|one| is_beside(tasks[one.1].now));
        found.extend(beside.map(|one| Stranger { task: one.1, pages: pages.clone() }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Herd;
    use crate::demand::Demand;
    use numaherd_model::scene::{Scene, task_id};
    use numaherd_model::{Action, NodeId, Placement};

    /// Eight tasks of one process, four on each of two nodes of four CPUs. These have shown a region each, on node 0.
    fn eight(known: impl IntoIterator<Item = u32>) -> Scene {
        let mut scene = Scene::two_by_four();
        scene.busy(8);
        for tid in known {
            scene.region(u64::from(tid), &[(tid, 512)], &[(0, 512)]);
        }
        scene.shared(40, 0);
        scene
    }

    /// Who is placed elsewhere than where it was.
    fn moved(scene: &Scene) -> Vec<u32> {
        let snapshot = scene.snapshot();
        let plan = Herd::new().decide(&snapshot);
        let elsewhere = |action: &Action| match action {
            Action::PlaceTask { task, node, .. } => {
                (snapshot.task(*task)?.node(&snapshot.topology) != Some(*node)).then_some(task.tid)
            }
            _ => None,
        };
        plan.actions.iter().filter_map(elsewhere).collect()
    }

    #[test]
    fn who_is_beside_its_mates_memory_does_not_make_room_for_those_that_are_known() {
        // The last of either node have shown nothing.
        assert_eq!(moved(&eight([1, 2, 3, 5, 6, 7])), [0; 0]);
        let snapshot = eight([1, 2, 3, 5, 6, 7]).snapshot();
        let demand = Demand::new(&snapshot);
        let strangers = of(&snapshot, &demand.tasks);
        let told: Vec<_> = strangers.iter().map(|s| (s.task, s.pages.to_vec())).collect();
        assert_eq!(told, [(3, vec![(0, 512)])], "the other is not beside it");
        assert_eq!(snapshot.tasks[3].id, task_id(4));
        assert!(!demand.is_known(3) && demand.nodes[0] == NodeId(0));
    }

    #[test]
    fn where_all_are_known_or_nobody_is_there_are_none() {
        for known in [1..9, 9..9] {
            let snapshot = eight(known).snapshot();
            assert_eq!(of(&snapshot, &Demand::new(&snapshot).tasks).len(), 0);
        }
    }
}
