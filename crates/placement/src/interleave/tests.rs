//! What is shared out, and where to.

use super::*;
use crate::bandwidth::Bandwidth;
use numaherd_model::scene::Scene;

const MOST: Pages = Pages(1 << 20);

/// Eight tasks, half on each of two nodes, that use so many regions alike.
fn shared(pages: &[&[(u32, u64)]]) -> Scene {
    let mut scene = Scene::two_by_four();
    scene.busy(8);
    let users: Vec<(u32, u64)> = (1..=8).map(|tid| (tid, 100)).collect();
    for (r, pages) in pages.iter().enumerate() {
        scene.region(r as u64, &users, pages);
    }
    scene.shared(100, 90);
    scene
}

/// Where each region goes that goes anywhere.
fn planned(scene: &Scene, most: Pages) -> Vec<(u64, u32)> {
    planned_by(spread, scene, most)
}

#[test]
fn one_of_sixteen_too_many_goes_and_what_is_small_stays() {
    let (here, there, small): (&[_], &[_], &[_]) = (&[(0, 512)], &[(1, 512)], &[(0, 32)]);
    let scene = |near: usize, far: usize| {
        shared(&[[small].as_slice(), &vec![here; near], &vec![there; far]].concat())
    };
    assert_eq!(planned(&scene(9, 7), MOST), [(9, 1)]);
    assert_eq!(planned(&scene(8, 8), MOST), []);
}

/// Four nodes, of which the first is next to all others and these are not to each other, with a task on each: all
/// memory is on the first, which carries so many of 900 MB/s.
#[test]
fn around_a_node_whose_memory_is_full_parts_are_equal_though_nobody_comes_nearer() {
    let moved = |carried: [u64; 4]| {
        let mut scene = Scene::even(4, 1);
        let far = |a: usize, b: usize| match (a == b, a.min(b)) {
            (true, _) => 10,
            (false, 0) => 21,
            (false, _) => 31,
        };
        scene.edit().topology.distances =
            (0..4).map(|a| (0..4).map(|b| far(a, b)).collect()).collect();
        scene.busy(4);
        let users: Vec<(u32, u64)> = (1..=4).map(|tid| (tid, 100)).collect();
        (0..8).for_each(|r| scene.region(r, &users, &[(0, 512)]));
        scene.shared(100, 75);
        let traffic = &mut scene.edit().traffic;
        traffic.most = (0..4).map(|node| (NodeId(node), 900_000_000)).collect();
        let carried = carried.map(|megabytes| megabytes * 1_000_000);
        traffic.carried = (0..).map(NodeId).zip(carried).collect();
        planned_to(&scene)
    };
    assert_eq!(moved([897, 0, 0, 0]), [2, 2, 2]);
    assert_eq!(moved([600, 0, 0, 0]), [0; 3], "it carries more");
    assert_eq!(moved([897; 4]), [0; 3], "so do the others' no more");
    assert_eq!(moved([897, 897, 0, 0]), [0, 3, 2], "and one of the others no more");
}

/// Regions that go to nodes 1 to 3.
fn planned_to(scene: &Scene) -> [usize; 3] {
    let snapshot = scene.snapshot();
    let mut demand = Demand::new(&snapshot);
    demand.bandwidth = Bandwidth::new(&snapshot, &mut demand.tasks, |_, now| now);
    let at = demand.today();
    let actions = spread(&snapshot, &demand, &Outlook::new(&demand, &at), MOST);
    let goes = |to: u32| {
        let there =
            |action: &&Action| matches!(action, Action::MovePages { to: node, .. } if node.0 == to);
        actions.iter().filter(there).count()
    };
    [goes(1), goes(2), goes(3)]
}

type Plan = fn(&Snapshot, &Demand, &Outlook, Pages) -> Vec<Action>;

fn planned_by(plan: Plan, scene: &Scene, most: Pages) -> Vec<(u64, u32)> {
    let snapshot = scene.snapshot();
    let demand = Demand::new(&snapshot);
    let at = demand.today();
    let actions = plan(&snapshot, &demand, &Outlook::new(&demand, &at), most);
    let of = |action: &Action| match action {
        Action::MovePages { region, to, reason: Reason::UsersOnAll { nodes: 2 }, .. } => {
            ((region.start - (1 << 30)) >> 21, to.0)
        }
        other => panic!("{other:?}"),
    };
    actions.iter().map(of).collect()
}

#[test]
fn half_of_what_lies_on_one_node_goes_to_the_other_by_turns() {
    let here: &[(u32, u64)] = &[(0, 512)];
    let scene = shared(&[here; 8]);
    assert_eq!(planned(&scene, MOST), [(1, 1), (3, 1), (5, 1), (7, 1)]);
    // no more than is asked for
    assert_eq!(planned(&scene, Pages(1200)), [(1, 1), (3, 1)]);
}

#[test]
fn what_was_seen_to_change_hands_goes_before_what_may_be_somebodys_own() {
    let here: &[(u32, u64)] = &[(0, 512)];
    let mut scene = shared(&[here; 8]);
    let mut changed = |hands: &[usize]| {
        scene.edit().regions.iter_mut().for_each(|region| region.switches = 0);
        hands.iter().for_each(|&r| scene.edit().regions[r].switches = 1);
        planned(&scene, MOST)
    };
    assert_eq!(changed(&[0, 1, 5, 6]), [(0, 1), (1, 1), (5, 1), (6, 1)]);
    // Of three all go, and one of the five others.
    assert_eq!(changed(&[0, 1, 5]), [(0, 1), (1, 1), (5, 1), (7, 1)]);
}

#[test]
fn parts_that_are_about_equal_stay() {
    let here: &[(u32, u64)] = &[(0, 512)];
    let there: &[(u32, u64)] = &[(1, 512)];
    // 5 of 9 on node 0: with one less it would be 4
    let scene = shared(&[here, here, here, here, here, there, there, there, there]);
    assert_eq!(planned(&scene, MOST), []);
    // 43 of 80: 5.9 for the worst, less than a tenth above 5.5; 44 of 80: just that
    let scene = |near: usize| shared(&[vec![here; near], vec![there; 80 - near]].concat());
    assert_eq!(planned(&scene(43), MOST), []);
    assert_eq!(planned(&scene(44), MOST), [(10, 1), (21, 1), (32, 1), (43, 1)]);
    // 5 of 8
    let scene = shared(&[here, here, here, here, here, there, there, there]);
    assert_eq!(planned(&scene, MOST), [(4, 1)]);
}

#[test]
fn what_faults_have_not_shown_counts_where_page_tables_say_it_lies() {
    let here: &[(u32, u64)] = &[(0, 512)];
    let mut scene = shared(&[here; 8]);
    let mut on = |pages: [u64; 2]| {
        let nodes = (0..).map(NodeId).zip(pages.map(Pages)).collect();
        let process = numaherd_model::scene::PROCESS;
        scene.edit().resident = vec![numaherd_model::Resident { process, nodes }];
        let snapshot = scene.snapshot();
        let demand = Demand::new(&snapshot);
        let mut part = demand.bundles[0].clone();
        part.known /= 2;
        (planned(&scene, MOST).len(), unseen(&snapshot, &demand, &part).map(|more| more.len()))
    };
    // 4096 pages seen on node 0. Those of the other half, where there is one, are many or few.
    assert_eq!(on([8192, 8192]), (0, None));
    assert_eq!(on([16384, 0]), (8, None));
    assert_eq!(on([5120, 0]), (5, Some(0)));
    // Read before half of it came to node 0.
    assert_eq!(on([2048, 2048]), (4, Some(0)));
}

#[test]
fn memory_that_is_dear_to_move_rests_stays_or_belongs_to_one_node_is_left() {
    let regions: [&[(u32, u64)]; 8] = [&[(0, 512)]; 8];
    let mut scene = shared(&regions);
    // 2048 pages of a second each, in a minute
    scene.edit().costs.page_move.0 = 1_000_000_000;
    assert_eq!(planned(&scene, MOST), []);
    let mut scene = shared(&regions);
    scene.edit().regions[0].rests = true;
    scene.edit().regions[1].stays = true;
    assert_eq!(planned(&scene, MOST), [(3, 1), (5, 1), (7, 1)]);
    let mut scene = shared(&regions);
    scene.edit().kernel_tiering = true;
    assert_eq!(planned(&scene, MOST), []);
    // 6 of 8 tasks on node 0: it is theirs, and follows them
    let mut scene = shared(&regions);
    (4..6).for_each(|i| scene.edit().tasks[i].last_cpu.0 = 0);
    assert_eq!(planned(&scene, MOST), []);
}

#[test]
fn what_lies_on_a_node_that_does_not_use_it_comes_to_those_that_do() {
    let mut scene = Scene::even(3, 4);
    scene.busy(8);
    let users: Vec<(u32, u64)> = (1..=8).map(|tid| (tid, 100)).collect();
    (0..4).for_each(|r| scene.region(r, &users, &[(2, 512)]));
    scene.shared(100, 90);
    assert_eq!(planned(&scene, MOST), [(0, 0), (1, 1), (2, 0), (3, 1)]);
}

#[test]
fn strays_are_gathered_once_their_users_have_a_place_and_what_is_with_some_stays() {
    let mut scene = Scene::even(3, 4);
    scene.busy(8);
    let users: Vec<(u32, u64)> = (1..=8).map(|tid| (tid, 100)).collect();
    (0..4).for_each(|r| scene.region(r, &users, &[(0, 512)]));
    (4..8).for_each(|r| scene.region(r, &users, &[(2, 512)]));
    scene.shared(100, 90);
    assert_eq!(planned_by(gather, &scene, MOST), []);
    for task in &mut scene.edit().tasks {
        task.home = Some(NodeId(task.last_cpu.0 / 4));
    }
    // node 0 has four: all four strays go to node 1
    assert_eq!(planned_by(gather, &scene, MOST), [(4, 1), (5, 1), (6, 1), (7, 1)]);
    assert_eq!(planned_by(gather, &scene, Pages(1200)), [(4, 1), (5, 1)]);
    // 4 × 512 pages of a second each
    scene.edit().costs.page_move.0 = 1_000_000_000;
    assert_eq!(planned_by(gather, &scene, MOST), []);
}
