//! Where tasks go, worked out by hand, and what must not matter.

use super::*;
use numaherd_model::scene::Scene;
use proptest::prelude::*;

fn solve(scene: &Scene) -> Vec<usize> {
    improve(&Demand::new(&scene.snapshot()), 1).at().to_vec()
}

#[test]
fn two_groups_of_four_that_are_mixed_end_on_a_node_each() {
    // numa01: tasks 1-4 share regions 0-3, tasks 5-8 share 4-7; all memory on node 0 and
    // each group spread two and two.
    let mut scene = Scene::two_by_four();
    for tid in 1..=8 {
        scene.task(tid, if tid % 2 == 0 { 4 } else { 0 }, 1000);
    }
    for r in 0..8 {
        let first = if r < 4 { 1 } else { 5 };
        let users: Vec<(u32, u64)> = (first..first + 4).map(|tid| (tid, 100)).collect();
        scene.region(r, &users, &[(0, 512)]);
    }
    let at = solve(&scene);
    assert!(
        at[..4].iter().all(|&n| n == at[0]) && at[4..].iter().all(|&n| n == 1 - at[0]),
        "{at:?}"
    );
}

#[test]
fn private_tasks_that_are_balanced_stay_where_they_are() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=8 {
        scene.task(tid, tid - 1, 1000);
        scene.region(u64::from(tid), &[(tid, 400)], &[(0, 512)]);
    }
    assert_eq!(solve(&scene), [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn an_overloaded_node_is_relieved_by_the_task_that_loses_least() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=5 {
        scene.task(tid, 0, 1000);
        let node = u32::from(tid == 3); // only task 3 has its memory on node 1
        scene.region(u64::from(tid), &[(tid, 400)], &[(node, 512)]);
    }
    assert_eq!(solve(&scene), [0, 0, 1, 0, 0]);
}

#[test]
fn with_more_tasks_than_cpus_no_cpu_is_left_without_one() {
    // Three pairs that share memory on four nodes of a CPU: with a pair on each of three, the fourth would idle.
    for by_hand in [false, true] {
        let mut scene = Scene::even(4, 1);
        for tid in 1..=6 {
            scene.task(tid, (tid - 1) % 4, 1000);
        }
        for pair in 0..3 {
            let users = [(2 * pair + 1, 400), (2 * pair + 2, 400)];
            scene.region(u64::from(pair), &users, &[(pair, 512)]);
        }
        let demand = Demand::new(&scene.snapshot());
        assert_eq!((&demand.capacity[..], demand.crowd), (&[2, 2, 2, 2][..], 2));
        let found = if by_hand { descend(&demand, 1) } else { improve(&demand, 1) };
        let mut load = found.load().to_vec();
        load.sort_unstable();
        assert_eq!(load, [1, 1, 2, 2], "{:?}", found.at());
        assert!(found.total() < demand.total_cost(&demand.today()));
    }
}

#[test]
fn a_task_whose_owner_forbids_a_node_is_not_sent_there() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 0, 1000);
    scene.region(0, &[(1, 400)], &[(1, 200_000)]); // dear to move
    scene.edit().tasks[0].cpus_owner = "0-3".parse().unwrap();
    assert_eq!(solve(&scene), [0]);
}

#[derive(Debug, Clone)]
struct Load {
    cpus: Vec<u32>,
    uses: Vec<(usize, u64)>,
    pages: Vec<u32>,
}

fn loads() -> impl Strategy<Value = Load> {
    let cpus = proptest::collection::vec(0u32..8, 1..9);
    let uses = proptest::collection::vec((0usize..9, 0u64..500), 0..30);
    (cpus, uses, proptest::collection::vec(0u32..2, 30)).prop_map(|(cpus, uses, pages)| Load {
        cpus,
        uses,
        pages,
    })
}

fn scene(load: &Load) -> Scene {
    let mut scene = Scene::two_by_four();
    for (i, &cpu) in load.cpus.iter().enumerate() {
        scene.task(i as u32 + 1, cpu, 1000);
    }
    for (r, &(user, faults)) in load.uses.iter().enumerate() {
        let user = (user % load.cpus.len()) as u32 + 1;
        let mate = (r % load.cpus.len()) as u32 + 1;
        let users =
            if mate == user { vec![(user, faults)] } else { vec![(user, faults), (mate, 50)] };
        let mut users = users;
        users.sort_unstable();
        scene.region(r as u64, &users, &[(load.pages[r], 512)]);
    }
    scene
}

proptest! {
    #[test]
    fn no_node_is_overfilled_and_the_cost_never_rises(load in loads()) {
        let scene = scene(&load);
        let demand = Demand::new(&scene.snapshot());
        let mut start = Assignment::today(&demand, 1);
        relieve(&demand, &mut start);
        let at = improve(&demand, 1).at().to_vec();
        prop_assert!(demand.total_cost(&at) <= start.total());
        let load = |node| at.iter().filter(|&&n| n == node).count();
        prop_assert!((0..2).all(|node| load(node) <= demand.capacity[node]), "{:?}", at);
    }

    #[test]
    fn an_assignment_that_was_found_is_kept(load in loads()) {
        let mut scene = scene(&load);
        let at = solve(&scene);
        for (i, node) in at.iter().enumerate() {
            scene.at_home(i as u32 + 1, *node as u32);
        }
        prop_assert_eq!(solve(&scene), at);
    }
}
