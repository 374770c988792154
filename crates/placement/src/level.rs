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
//!
//! Before anybody is held, that is for good: the scheduler, which spreads tasks over nodes, may have just put two
//! where one should be, and would have mended it a moment later. So where tasks are about to be held, a node gives
//! what it has beyond its part to nodes that have less than theirs: of those without a place, who use hardly
//! anything but memory that can come along. (The same threads of *stream* on 4x2, two of four on one node and one node without:
//! 1.47 × bind without this, for as long as they ran.)

use crate::demand::{Demand, DemandTask, parts};

/// Of the use of a task that is sent away from where it is, per mille, what has to be of memory that comes along.
/// Guessed: what is not becomes remote.
const HARDLY_OTHERS_PERMILLE: u64 = 900;

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
        if uneven && task.is_most(own_coming(demand, task, here)) {
            at[i] = here;
            load[there] -= 1;
            load[here] += 1;
        }
    }
}

/// Has tasks go from nodes that have more than their part to those that have less, where their memory can come
/// along; of those who `may_go`, by index.
pub fn spread(demand: &Demand, at: &mut [usize], may_go: impl Fn(usize) -> bool) {
    let mut load = demand.loads(at);
    let parts = parts(&demand.capacity, load.iter().sum());
    for (i, task) in demand.tasks.iter().enumerate() {
        let here = at[i];
        let goes = load[here] > parts[here] && task.claims_cpu && !task.tied && may_go(i);
        let can_have = |&node: &usize| {
            let room = load[node] < parts[node].min(demand.capacity[node]);
            room && !demand.cpus(i, node).is_empty() && has_hardly_others(demand, task, node)
        };
        // By CPUs, where nodes have not alike many.
        let filled = |&node: &usize| load[node] * 1000 / demand.capacity[node].max(1);
        let there = (0..load.len()).filter(|_| goes).filter(can_have).min_by_key(filled);
        if let Some(there) = there {
            at[i] = there;
            load[here] -= 1;
            load[there] += 1;
        }
    }
}

/// Whether hardly any of a task's use would be of memory that is not its own on a node.
fn has_hardly_others(demand: &Demand, task: &DemandTask, node: usize) -> bool {
    let own = own_coming(demand, task, node);
    own > 0 && own * 1000 >= task.weight() * HARDLY_OTHERS_PERMILLE
}

/// The weight of a task in memory that it has to itself, and that would come to it on a node.
fn own_coming(demand: &Demand, task: &DemandTask, node: usize) -> u64 {
    let comes = |&&(b, weight): &&(usize, u64)| {
        let bundle = &demand.bundles[b];
        // What no fault has shown nobody knows to bring.
        let shown = !bundle.regions.is_empty();
        let own = bundle.users.len() == 1 && !bundle.stays && shown;
        own && demand.best_memory(bundle, &[(node, weight)]).0 == node
    };
    task.bundles.iter().filter(comes).map(|(_, weight)| weight).sum()
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
        let today = demand.today();
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

    /// Four tasks on these nodes of four with two CPUs each, each with a region of its own there.
    fn four_of_four(on: [u32; 4]) -> Scene {
        let mut scene = Scene::even(4, 2);
        for (tid, node) in (1..).zip(on) {
            scene.task(tid, node * 2 + tid % 2, 1000);
            scene.region(u64::from(tid), &[(tid, 400)], &[(node, 512)]);
        }
        scene
    }

    /// Where those are after spreading of whom some may go.
    fn spread_of(scene: &Scene, may_go: impl Fn(usize) -> bool) -> Vec<usize> {
        let demand = Demand::new(&scene.snapshot());
        let mut at: Vec<usize> = demand.tasks.iter().map(|task| task.now).collect();
        spread(&demand, &mut at, may_go);
        at
    }

    #[test]
    fn who_is_one_too_many_goes_to_a_node_that_has_less_than_its_part() {
        assert_eq!(spread_of(&four_of_four([1, 1, 2, 3]), |_| true), [0, 1, 2, 3]);
        assert_eq!(spread_of(&four_of_four([1, 1, 2, 2]), |_| true), [0, 1, 3, 2]);
        assert_eq!(spread_of(&four_of_four([1, 1, 2, 3]), |i| i == 1), [1, 0, 2, 3]);
        assert_eq!(spread_of(&four_of_four([1, 1, 2, 3]), |i| i > 1), [1, 1, 2, 3]);
        // Five on two nodes: three are a part, rounded up.
        let mut scene = four([0, 0, 0, 0]);
        scene.task(5, 4, 1000);
        scene.region(5, &[(5, 400)], &[(1, 512)]);
        assert_eq!(spread_of(&scene, |_| true), [1, 0, 0, 0, 1]);
    }

    #[test]
    fn who_would_be_far_from_memory_is_not_sent_away() {
        let stays = |edit: fn(&mut Scene)| {
            let mut scene = four_of_four([1, 1, 2, 3]);
            edit(&mut scene);
            assert_eq!(spread_of(&scene, |_| true), [1, 1, 2, 3]);
        };
        stays(|scene| scene.edit().regions.iter_mut().for_each(|region| region.stays = true));
        stays(|scene| scene.region(9, &[(1, 50), (2, 50)], &[(1, 512)]));
        stays(|scene| scene.edit().nodes[0].others_permille = 2000);
        stays(|scene| scene.edit().nodes[0].free = numaherd_model::Pages(0));
    }

    #[test]
    fn herd_spreads_whom_it_is_about_to_hold_and_only_those() {
        use crate::{Herd, Mechanisms};
        use numaherd_model::{Action, Placement as _};
        let goes = |scene: &Scene, mechanisms| {
            let plan = Herd::with(mechanisms).decide(&scene.snapshot());
            let to = |action: &Action| match action {
                Action::PlaceTask { task, node, .. } => Some((task.tid, node.0)),
                _ => None,
            };
            plan.actions.iter().filter_map(to).collect::<Vec<_>>()
        };
        let mut scene = four_of_four([1, 1, 2, 3]);
        let all = Mechanisms::default();
        assert_eq!(goes(&scene, all), [(1, 0), (2, 1), (3, 2), (4, 3)]);
        let without = Mechanisms { level: false, ..all };
        assert_eq!(goes(&scene, without), [(1, 1), (2, 1), (3, 2), (4, 3)]);
        // On a machine that has room for all on one node nobody is held, and the scheduler may still spread them.
        assert_eq!(goes(&four([1, 1, 1, 1]), all), []);
        // Who has been placed stays.
        (1..).zip([1, 1, 2, 3]).for_each(|(tid, node)| scene.at_home(tid, node));
        assert_eq!(goes(&scene, all), []);
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
