//! Memory comes to tasks that would otherwise crowd a node.
//!
//! A task with memory of its own is as well off wherever that follows, and to move one task is cheaper than to
//! move its memory, if it has just begun and who knows how long it lives: so tasks that the scheduler had
//! spread would be gathered on the node where a main thread put everybody's memory, as long as CPUs are left
//! there. But they share that node's memory bandwidth and caches then, which is what the scheduler spread
//! them for, and of which nothing is known where nobody measures it. Such a task stays where it is, and its memory comes to it, unless it makes the nodes more even by going.
//!
//! Worked example: four tasks, two on each of two nodes of four CPUs, each with a region of its own on node 1.
//! The cheapest is all four on node 1. It is two and two, and two regions go to node 0. Were three on node 0,
//! one of them would go. (*stream* on the emulated machines, whose threads were placed a tenth of a second after they had
//! begun: 1.15 × bind on 2x4 and 1.45 on 4x2 without this.)

use crate::demand::{Demand, DemandTask};

/// Has tasks stay where they are today whose memory can come as well, where to go to it would make the nodes less
/// even; of the rest of an assignment nothing changes.
pub fn level(demand: &Demand, today: &[usize], at: &mut [usize]) {
    if today == at {
        return;
    }
    let mut load = demand.loads(at);
    for (i, task) in demand.tasks.iter().enumerate() {
        let (here, there) = (today[i], at[i]);
        if here == there || !task.claims_cpu || task.tied || load[here] >= demand.capacity[here] {
            continue;
        }
        // By CPUs, where nodes have not alike many.
        let uneven =
            load[there] * demand.capacity[here] > (load[here] + 1) * demand.capacity[there];
        if uneven && can_come(demand, task, here) {
            at[i] = here;
            load[there] -= 1;
            load[here] += 1;
        }
    }
}

/// Whether a task has most of its memory to itself, and that would come to it on a node.
fn can_come(demand: &Demand, task: &DemandTask, node: usize) -> bool {
    let comes = |&(b, weight): &(usize, u64)| {
        let bundle = &demand.bundles[b];
        let own = bundle.users.len() == 1 && !bundle.stays;
        own && demand.best_memory(bundle, &[(node, weight)]).0 == node
    };
    let own = task.bundles.iter().filter(|used| comes(used)).map(|(_, weight)| weight).sum();
    task.is_most(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::Nanos;
    use numaherd_model::scene::Scene;

    /// Four tasks on these nodes, each with a region of its own on node 1.
    fn four(on: [u32; 4]) -> Scene {
        let mut scene = Scene::two_by_four();
        for (tid, node) in (1..).zip(on) {
            scene.task(tid, node * 4 + tid - 1, 1000);
            scene.region(u64::from(tid), &[(tid, 400)], &[(1, 512)]);
        }
        scene
    }

    /// Where those are who were to be on node 1 all.
    fn levelled(scene: &Scene) -> Vec<usize> {
        let demand = Demand::new(&scene.snapshot());
        let today: Vec<usize> = demand.tasks.iter().map(|task| task.now).collect();
        let mut at = vec![1; today.len()];
        level(&demand, &today, &mut at);
        at
    }

    #[test]
    fn memory_comes_to_those_who_would_crowd_its_node() {
        assert_eq!(levelled(&four([0, 0, 1, 1])), [0, 0, 1, 1]);
        assert_eq!(levelled(&four([0, 0, 0, 1])), [0, 0, 1, 1]);
        assert_eq!(levelled(&four([1, 1, 1, 1])), [1; 4]);
    }

    #[test]
    fn who_shares_memory_or_cannot_have_it_moved_goes_to_it() {
        let mut scene = four([0, 0, 1, 1]);
        scene.edit().regions.clear();
        scene.region(0, &[(1, 400), (2, 400), (3, 400), (4, 400)], &[(1, 512)]);
        assert_eq!(levelled(&scene), [1; 4]);
        let mut scene = four([0, 0, 1, 1]);
        scene.edit().regions.iter_mut().for_each(|region| region.stays = true);
        assert_eq!(levelled(&scene), [1; 4]);
    }

    #[test]
    fn a_node_without_room_is_left() {
        let mut scene = four([0, 0, 1, 1]);
        scene.edit().nodes[0].others_permille = 4000;
        assert_eq!(levelled(&scene), [1; 4]);
    }

    #[test]
    fn herd_has_the_memory_of_spread_tasks_come_to_them() {
        use crate::{Herd, Mechanisms};
        use numaherd_model::{Action, Placement as _};
        let placed = |mechanisms| {
            let mut scene = four([0, 0, 1, 1]);
            // They have just begun, so that to move memory costs much beside what it is sure to bring.
            scene.edit().tasks.iter_mut().for_each(|task| task.age = Nanos(0));
            scene.edit().costs.page_move = Nanos(300_000);
            let plan = Herd::with(mechanisms).decide(&scene.snapshot());
            let places = |action: &&Action| matches!(action, Action::PlaceTask { .. });
            (plan.actions.iter().filter(places).count(), plan.actions.len())
        };
        assert_eq!(placed(Mechanisms::default()), (0, 2));
        assert_eq!(placed(Mechanisms { level: false, ..Mechanisms::default() }), (2, 2));
    }
}
