//! Weights, costs and room, worked out by hand.

use super::*;
use numaherd_model::scene::{PROCESS, Scene, task_id};
use numaherd_model::{Action, CpuId, Pages, Placement as _, RegionUse};

/// A whole task at SLIT 21.
const AT_21: u64 = 11 * SLIT_UNIT * SHARE;

#[test]
fn memory_that_stays_costs_the_mean_distance_to_its_pages() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 0, 1000);
    scene.region(0, &[(1, 400)], &[(0, 128), (1, 384)]);
    scene.edit().regions[0].stays = true;
    let demand = Demand::new(&scene.snapshot());
    // three quarters at SLIT 21: 0.75 × 11 there, a quarter of it beside most of the pages
    assert_eq!(demand.total_cost(&[0]), AT_21 * 3 / 4);
    assert_eq!(demand.total_cost(&[1]), AT_21 / 4);
    assert_eq!(demand.best_memory(&demand.bundles[0], &[(0, SHARE)]).0, 1);
    // where the kernel tiers memory, all of it stays
    scene.edit().regions[0].stays = false;
    assert!(Demand::new(&scene.snapshot()).total_cost(&[1]) < SHARE * SLIT_UNIT);
    scene.edit().kernel_tiering = true;
    assert_eq!(Demand::new(&scene.snapshot()).total_cost(&[1]), AT_21 / 4);
}

#[test]
fn memory_of_one_node_can_be_misplaced_and_what_two_use_cannot() {
    let mut scene = Scene::two_by_four();
    for (tid, cpu) in [(1, 0), (2, 4)] {
        scene.task(tid, cpu, 1000);
        scene.region(u64::from(tid), &[(tid, 200)], &[(0, 512)]);
    }
    scene.region(9, &[(1, 200), (2, 200)], &[(0, 512)]);
    let misplaced = |scene: &Scene, at: &[usize]| {
        let demand = Demand::new(&scene.snapshot());
        demand.misplaced_permille(at, &Outlook::new(&demand, at))
    };
    assert_eq!(misplaced(&scene, &[0, 1]), 250);
    assert_eq!(misplaced(&scene, &[0, 0]), 0);
    // Together on the other node, they would have all of it there.
    assert_eq!(misplaced(&scene, &[1, 1]), 1000);
    // What task 2 has for itself is never moved.
    scene.edit().regions[1].stays = true;
    assert_eq!(misplaced(&scene, &[0, 1]), 0);
}

#[test]
fn weight_is_the_share_of_faults_times_how_busy_the_task_is() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 0, 500);
    scene.region(0, &[(1, 300)], &[(0, 512)]);
    scene.region(1, &[(1, 100), (2, 100)], &[(1, 512)]);
    scene.task(2, 4, 1000);
    let demand = Demand::new(&scene.snapshot());
    assert_eq!(demand.bundles[0].users[..], [(0, 375_000)]);
    assert_eq!(demand.bundles[1].users[..], [(0, 125_000), (1, SHARE)]);
}

#[test]
fn regions_with_the_same_users_are_one_bundle_and_a_stray_fault_does_not_split_it() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 0, 1000);
    scene.task(2, 1, 1000);
    for r in 0..4 {
        scene.region(r, &[(1, 500), (2, if r == 2 { 5 } else { 0 })], &[(0, 512)]);
    }
    let demand = Demand::new(&scene.snapshot());
    assert_eq!(demand.bundles.len(), 1);
    assert_eq!(demand.bundles[0].pages[..], [(0, 2048)]);
}

#[test]
fn a_few_faults_in_a_shared_process_stand_for_all_its_busy_tasks() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=4 {
        scene.task(tid, 0, 1000);
        scene.region(u64::from(tid), &[(tid, 512)], &[(0, 512)]);
    }
    // 24 of 32 pairs are switches, as 4 tasks that share everything give.
    scene.shared(32, 24);
    let demand = Demand::new(&scene.snapshot());
    assert_eq!(demand.bundles.len(), 1);
    assert!(demand.bundles[0].users.iter().all(|&(_, weight)| weight == SHARE));
}

/// As seen of the lab's *shared*: the main thread still met the kernel's first scan on a slice that it had filled.
#[test]
fn a_slice_that_the_main_thread_was_seen_in_is_not_of_the_part_that_all_share() {
    let mut scene = Scene::two_by_four();
    scene.busy(8);
    scene.task(9, 0, 0);
    for r in 0..32 {
        let slice = r >= 16;
        let mut users = vec![(r % 16 / 2 + 1, 1536)];
        if !slice {
            users = [0, 1, 3, 5].iter().map(|next| ((r + next) % 8 + 1, 512)).collect();
            users.sort_unstable();
        }
        scene.region(r.into(), &users, &[(0, 512)]);
        let region = scene.edit().regions.last_mut().unwrap();
        (region.pairs, region.switches) = (4 * 512, if slice { 0 } else { 4 * 512 });
    }
    let main = RegionUse { task: task_id(9), faults: 256 };
    scene.edit().regions[25].users.push(main);
    scene.shared(168, 87);
    let demand = Demand::new(&scene.snapshot());
    let shared = demand.bundles.iter().find(|bundle| bundle.users.len() == 8).unwrap();
    assert_eq!(shared.regions.to_vec(), (0..16).collect::<Vec<_>>());
}

#[test]
fn slices_that_meet_here_and_there_stay_private() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=4 {
        scene.task(tid, 0, 1000);
        scene.region(u64::from(tid), &[(tid, 512)], &[(0, 512)]);
    }
    scene.shared(32, 3);
    assert_eq!(Demand::new(&scene.snapshot()).bundles.len(), 4);
}

#[test]
fn with_more_tasks_than_cpus_each_node_takes_its_fair_part() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=11 {
        scene.task(tid, 0, 1000);
    }
    assert_eq!(Demand::new(&scene.snapshot()).capacity, [6, 6]);
}

#[test]
fn cpus_that_others_keep_busy_or_that_are_set_apart_are_not_counted_on() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 0, 1000);
    scene.edit().nodes[0].others_permille = 2800;
    scene.edit().isolated = "7".parse().unwrap();
    let demand = Demand::new(&scene.snapshot());
    assert_eq!(demand.capacity, [1, 3]); // 4 - 3, 4 - 1
    assert_eq!(demand.cpus(0, 1).to_string(), "4-6");
    // Its owner gave it nothing but a CPU that is set apart: that is where it belongs.
    scene.edit().tasks[0].cpus_owner = "7".parse().unwrap();
    assert_eq!(Demand::new(&scene.snapshot()).cpus(0, 1).to_string(), "7");
}

/// Three nodes, the second with CPUs and no memory, and the first nearer to it. Two tasks that have to be there.
#[test]
fn memory_goes_beside_a_node_that_has_none() {
    let mut scene = Scene::even(3, 4);
    let topology = &mut scene.edit().topology;
    topology.nodes[1].memory = numaherd_model::Bytes(0);
    topology.distances = vec![vec![10, 12, 32], vec![12, 10, 32], vec![32, 32, 10]];
    scene.task(1, 4, 1000);
    scene.task(2, 5, 1000);
    for task in &mut scene.edit().tasks {
        task.cpus_owner = "4-7".parse().unwrap();
        task.cpus_allowed = task.cpus_owner.clone();
    }
    (0..4).for_each(|region| scene.region(region, &[(1, 300), (2, 300)], &[(2, 512)]));
    let mut snapshot = scene.snapshot();
    let moves = |snapshot: &Snapshot| {
        let mut herd = crate::Herd::new();
        herd.decide(snapshot);
        let mut later = snapshot.clone();
        later.time.0 += 10_000_000_000;
        let plan = herd.decide(&later);
        let to = |action: &Action| matches!(action, Action::MovePages { to: NodeId(0), .. });
        let demand = Demand::new(&later);
        let (at, strength) = (demand.today(), demand.strength_permille(&demand.today()));
        let misplaced = demand.misplaced_permille(&at, &crate::outlook::Outlook::new(&demand, &at));
        (
            plan.actions.iter().filter(|action| to(action)).count(),
            plan.actions.len(),
            strength,
            misplaced,
        )
    };
    assert_eq!(moves(&snapshot), (4, 4, 0, 1000));
    // Once it is there, that is as good as it gets.
    snapshot.regions.iter_mut().for_each(|region| region.pages = vec![(NodeId(0), Pages(512))]);
    assert_eq!(moves(&snapshot), (0, 0, 1000, 0));
}

/// As those who poll for packets do.
#[test]
fn who_is_on_cpus_set_apart_takes_none_of_the_others() {
    let mut scene = Scene::even(2, 8);
    for tid in 1..=8 {
        scene.task(tid, tid - 1, 1000);
    }
    (0..8).for_each(|region| scene.region(region, &[(region as u32 + 1, 600)], &[(0, 512)]));
    scene.edit().isolated = "4-7,12-15".parse().unwrap();
    for task in &mut scene.edit().tasks[4..] {
        task.cpus_owner = "4-7".parse().unwrap();
        task.cpus_allowed = task.cpus_owner.clone();
    }
    let snapshot = scene.snapshot();
    let demand = Demand::new(&snapshot);
    assert_eq!(
        (demand.capacity.as_slice(), demand.loads(&demand.today())),
        (&[4, 4][..], vec![4, 0])
    );
    assert!((0..8).all(|task| demand.is_known(task)));
    // Nobody has to make room.
    let placed = |snapshot: &Snapshot| {
        let plan = crate::Herd::new().decide(snapshot);
        let placed = plan.actions.iter().filter_map(|action| match action {
            Action::PlaceTask { task, node, .. } => Some((task.tid, node.0)),
            _ => None,
        });
        placed.collect::<Vec<(u32, u32)>>()
    };
    assert!(placed(&snapshot).iter().all(|&(tid, node)| tid <= 4 && node == 0));
    // With CPUs set apart on both nodes they stay where they were put, though their memory is elsewhere.
    let mut both = scene.snapshot();
    for task in &mut both.tasks[4..] {
        task.cpus_owner = "4-7,12-15".parse().unwrap();
    }
    both.regions.iter_mut().for_each(|region| region.pages = vec![(NodeId(1), Pages(512))]);
    assert!(placed(&both).iter().all(|&(tid, _)| tid <= 4), "{:?}", placed(&both));
}

#[test]
fn where_others_take_every_cpu_there_is_still_a_fair_part() {
    let mut scene = Scene::two_by_four();
    scene.busy(4);
    scene.edit().nodes.iter_mut().for_each(|node| node.others_permille = 4000);
    assert_eq!(Demand::new(&scene.snapshot()).capacity, [2, 2]);
}

#[test]
fn a_fixed_task_has_no_choice() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 5, 1000);
    scene.edit().tasks[0].fixed = true;
    let demand = Demand::new(&scene.snapshot());
    assert!(!demand.has_choice(0) && demand.cpus(0, 0).is_empty());
    assert_eq!(demand.cpus(0, 1).to_string(), "4-7");
}

#[test]
fn memory_that_fits_nowhere_else_stays_and_tasks_go_to_it() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 4, 1000);
    scene.region(0, &[(1, 100)], &[(0, 512)]);
    scene.edit().costs.page_move.0 = 0;
    // Nothing is dearer than a task that is remote: the memory would come to node 1.
    let best = |scene: &Scene| {
        let demand = Demand::new(&scene.snapshot());
        demand.best_memory(&demand.bundles[0], &[(1, SHARE)])
    };
    assert_eq!(best(&scene), (1, 0));
    // 4096 below the watermark, 2 % of 2 GiB are 10485 pages: 14581 + 512 are needed.
    scene.edit().nodes[1].free.0 = 15_092;
    assert_eq!(best(&scene), (0, AT_21));
    assert_eq!(crate::search::improve(&Demand::new(&scene.snapshot()), 1).at(), [0]);
    scene.edit().nodes[1].free.0 = 15_093;
    assert_eq!(best(&scene), (1, 0));
    // With no room anywhere, it is as if there were.
    scene.edit().regions[0].pages =
        vec![(NodeId(0), numaherd_model::Pages(256)), (NodeId(1), numaherd_model::Pages(256))];
    scene.edit().nodes.iter_mut().for_each(|node| node.free.0 = 0);
    assert_eq!(best(&scene), (1, 0));
}

#[test]
fn moving_a_page_costs_what_it_takes_over_what_is_left() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 0, 1000);
    scene.region(0, &[(1, 100)], &[(1, 512)]);
    let demand = Demand::new(&scene.snapshot());
    // 8 us a page over a horizon of 10 s, where a whole second a second is 20e8:
    // 8e3 * 20e8 / 10e9 = 1600.
    assert_eq!(demand.bundles[0].page_cost, 1600);
    // Cheaper than a whole task at distance 11.
    assert_eq!(demand.best_memory(&demand.bundles[0], &[(0, SHARE)]), (0, 512 * 1600));
}

#[test]
fn users_on_neighbours_alone_are_less_scattered_at_the_same_mean_distance() {
    let mut scene = Scene::even(4, 2);
    for (a, b, far) in [(0, 1, 16), (0, 2, 16), (0, 3, 22), (1, 2, 22), (1, 3, 16), (2, 3, 16)] {
        scene.edit().topology.distances[a][b] = far;
        scene.edit().topology.distances[b][a] = far;
    }
    for (tid, cpu) in [(1, 0), (2, 1), (3, 2), (4, 4)] {
        scene.task(tid, cpu, 1000);
    }
    scene.region(0, &[(1, 100), (2, 100), (3, 100), (4, 100)], &[(0, 512)]);
    let mut demand = Demand::new(&scene.snapshot());
    let costs = |demand: &Demand, at: &[usize]| {
        let weights = demand.bundles[0].weights(at);
        (
            demand.best_memory(&demand.bundles[0], &weights).1,
            demand.scatter_cost(&demand.bundles[0], &weights),
        )
    };
    let (three, two) = ([0, 0, 1, 2], [0, 0, 1, 1]);
    assert_eq!(costs(&demand, &three), (12 * SLIT_UNIT * SHARE, 0));
    demand.scatter = true;
    // a quarter of 20 - 12, and of 12 - 12
    assert_eq!(costs(&demand, &three), (12 * SLIT_UNIT * SHARE, 2 * SLIT_UNIT * SHARE));
    assert_eq!(costs(&demand, &two), (12 * SLIT_UNIT * SHARE, 0));
}

#[test]
fn what_was_measured_counts_in_each_direction_and_not_where_it_is_left_out() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 0, 1000);
    // From CPUs of node 0 to memory of node 1, and the other way.
    scene.edit().topology.latencies = vec![vec![1000, 1300], vec![1100, 1000]];
    let with = |latencies| {
        let demand =
            Demand::with(&scene.snapshot(), Mechanisms { latencies, ..Mechanisms::default() });
        (demand.distance(1, 0), demand.distance(0, 1), demand.lost_permille)
    };
    assert_eq!(with(true), (300, 100, 333));
    assert_eq!(with(false), (1100, 1100, 1000));
}

#[test]
fn a_task_goes_to_no_node_that_its_memory_may_not_be_on() {
    let mut scene = Scene::even(3, 2);
    scene.task(1, 0, 1000);
    scene.region(0, &[(1, 400)], &[(0, 512)]);
    scene.edit().forbid_memory(PROCESS, NodeId(1));
    scene.edit().forbid_memory(PROCESS, NodeId(2));
    let goes = |scene: &Scene| {
        let demand = Demand::new(&scene.snapshot());
        let goes = [0, 1, 2].map(|node| !demand.cpus(0, node).is_empty());
        (goes, demand.has_choice(0))
    };
    assert_eq!(goes(&scene), ([true, false, false], true));
    // Where it is it may stay.
    scene.edit().tasks[0].last_cpu = CpuId(4);
    assert_eq!(goes(&scene), ([true, false, true], true));
    // It may run nowhere else.
    scene.edit().tasks[0].cpus_owner = "2-5".parse().unwrap();
    assert_eq!(goes(&scene), ([false, true, true], true));
}

#[test]
fn memory_goes_to_no_node_that_it_may_not_be_on() {
    let mut scene = Scene::even(3, 2);
    scene.task(1, 2, 1000);
    scene.region(0, &[(1, 400)], &[(0, 512)]);
    let best = |scene: &Scene| {
        let demand = Demand::new(&scene.snapshot());
        let bundle = &demand.bundles[0];
        let open = demand.destinations(bundle).iter().map(|(node, _)| *node).collect::<Vec<_>>();
        (demand.best_memory(bundle, &[(1, SHARE)]).0, open, bundle.stays)
    };
    assert_eq!(best(&scene), (1, vec![0, 1, 2], false));
    scene.edit().forbid_memory(PROCESS, NodeId(1));
    assert_eq!(best(&scene), (0, vec![0, 2], false));
    scene.edit().forbid_memory(PROCESS, NodeId(0));
    assert_eq!(best(&scene), (2, vec![2], false));
    scene.edit().forbid_memory(PROCESS, NodeId(2));
    assert!(best(&scene).2, "it can go nowhere");
}
