//! What herd plans, and when it plans nothing.

use std::collections::BTreeMap;

use super::*;
use numaherd_model::scene::{PROCESS, Scene, task_id};
use numaherd_model::{NodeId, TaskId};

/// The node a plan puts a task on, if it does.
fn destination(plan: &Plan, task: TaskId) -> Option<NodeId> {
    plan.actions.iter().find_map(|action| match action {
        Action::PlaceTask { task: who, node, .. } if *who == task => Some(*node),
        _ => None,
    })
}

fn numa02() -> Scene {
    let mut scene = Scene::two_by_four();
    for tid in 1..=8 {
        scene.task(tid, tid - 1, 1000);
        scene.region(u64::from(tid), &[(tid, 400)], &[(0, 512)]);
    }
    scene
}

#[test]
fn everybody_is_placed_and_the_remote_half_of_memory_follows() {
    let plan = Herd::new().decide(&numa02().snapshot());
    assert_eq!(destination(&plan, task_id(1)), Some(NodeId(0)));
    assert_eq!(destination(&plan, task_id(8)), Some(NodeId(1)));
    let moves = plan.actions.iter().filter(|a| matches!(a, Action::MovePages { .. })).count();
    assert_eq!(moves, 4);
    assert!(!plan.converged);
    assert_eq!(plan.strength_permille, 500);
}

/// Groups of 3 and 5 in one process, all memory on node 0, threads strewn. Each region was seen
/// used by two of its group.
fn uneven() -> Scene {
    let mut scene = Scene::two_by_four();
    for tid in 1..=8 {
        scene.task(tid, [0, 4, 1, 5, 2, 6, 3, 7][tid as usize - 1], 1000);
    }
    for r in 0..30 {
        let (a, b) = match r % 2 {
            0 => (r / 2 % 3, (r / 2 + 1) % 3),
            _ => (3 + r / 2 % 5, 3 + (r / 2 + 1) % 5),
        };
        let (a, b) = (a.min(b) as u32 + 1, a.max(b) as u32 + 1);
        scene.region(r, &[(a, 60), (b, 60)], &[(0, 512)]);
    }
    scene.shared(1000, 740);
    scene
}

#[test]
fn a_group_too_large_for_a_node_stays_whole_but_for_one_and_takes_turns() {
    let mut scene = uneven();
    let mut herd = Herd::new();
    let first = herd.decide(&scene.snapshot());
    let at: Vec<u32> = (1..=8).map(|tid| destination(&first, task_id(tid)).unwrap().0).collect();
    let with = |group: &[u32], node| group.iter().filter(|n| **n == node).count();
    assert_eq!(with(&at[..3], at[0]), 3, "{at:?}");
    assert_eq!(with(&at[3..], 1 - at[0]), 4, "{at:?}");
    // Everybody where the plan says, memory too; nothing happens for long.
    let of_three = at[0];
    let memory = |r: usize| if r.is_multiple_of(2) { of_three } else { 1 - of_three };
    for (tid, node) in (1..).zip(at) {
        scene.at_home(tid, node);
    }
    for r in 0..30 {
        scene.edit().regions[r].pages = vec![(NodeId(memory(r)), numaherd_model::Pages(512))];
    }
    let mut moved: BTreeMap<TaskId, usize> = BTreeMap::new();
    for tick in 1..=200_u64 {
        let mut snapshot = scene.snapshot();
        snapshot.time = Nanos(snapshot.time.0 + tick * 100_000_000);
        for action in herd.decide(&snapshot).actions {
            let Action::PlaceTask { task, node, reason, .. } = action else { panic!("{action:?}") };
            assert!(matches!(reason, Reason::Turn { .. }), "{reason:?}");
            *moved.entry(task).or_default() += 1;
            scene.at_home(task.tid, node.0);
        }
    }
    // 20 s by turns of 2 s: all five were away, twice each or nearly; the three never.
    let who: Vec<u32> = moved.keys().map(|task| task.tid).collect();
    assert_eq!(who, [4, 5, 6, 7, 8], "{moved:?}");
    assert!(moved.values().all(|times| (2..=4).contains(times)), "{moved:?}");
}

#[test]
fn a_lone_task_that_is_well_is_not_tied_down() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 0, 1000);
    scene.region(0, &[(1, 400)], &[(0, 512)]);
    let mut herd = Herd::new();
    let plan = herd.decide(&scene.snapshot());
    assert!(plan.actions.is_empty() && plan.converged, "{plan:?}");
}

#[test]
fn where_hardly_anything_is_misplaced_it_is_not_waited_long() {
    let mut scene = Scene::two_by_four();
    for (tid, cpu) in [(1, 0), (2, 4)] {
        scene.task(tid, cpu, 1000);
        scene.region(u64::from(tid), &[(tid, 200)], &[(u32::from(tid == 2), 512)]);
    }
    // Used by both, in equal parts on both; what one has alone lies with the other, cannot be moved now,
    // and comes when it can.
    for r in 3..=4 {
        scene.region(r, &[(1, 100), (2, 100)], &[(u32::from(r == 4), 512)]);
    }
    scene.edit().tasks.iter_mut().for_each(|task| task.fixed = true);
    let after = |scene: &mut Scene, calm: Nanos| {
        let mut herd = Herd::new();
        herd.decide(&scene.snapshot());
        scene.edit().time.0 += calm.0;
        let plan = herd.decide(&scene.snapshot());
        assert!(plan.actions.is_empty(), "{plan:?}");
        (plan.strength_permille, plan.misplaced_permille, plan.converged)
    };
    assert_eq!(after(&mut scene, Nanos(SETTLE.0 - 1)), (750, 0, false));
    assert_eq!(after(&mut scene, SETTLE), (750, 0, true));
    scene.edit().regions[0].pages = vec![(NodeId(1), numaherd_model::Pages(512))];
    scene.edit().regions[0].rests = true;
    assert_eq!(after(&mut scene, SETTLE), (500, 250, false));
    assert_eq!(after(&mut scene, QUIET), (500, 250, true));
}

#[test]
fn a_new_task_without_evidence_keeps_the_loop_awake_for_a_while() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 0, 1000);
    scene.region(0, &[(1, 400)], &[(0, 512)]);
    scene.task(2, 1, 0);
    let mut herd = Herd::new();
    assert!(!herd.decide(&scene.snapshot()).converged);
    scene.edit().time.0 += PATIENCE.0;
    assert!(herd.decide(&scene.snapshot()).converged);
}

#[test]
fn several_busy_tasks_wait_until_it_is_known_whether_they_share() {
    let mut scene = numa02();
    scene.shared(3, 3);
    let mut herd = Herd::new();
    assert_eq!(herd.decide(&scene.snapshot()).actions, []);
    scene.edit().time.0 += PATIENCE.0;
    assert!(!herd.decide(&scene.snapshot()).actions.is_empty());
}

#[test]
fn it_waits_until_most_busy_tasks_are_known() {
    let mut scene = numa02();
    scene.edit().regions.truncate(5);
    assert_eq!(Herd::new().decide(&scene.snapshot()).actions, []);
}

#[test]
fn a_good_placement_is_held_and_then_nothing_more_is_done() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=8 {
        scene.task(tid, tid - 1, 1000);
        scene.region(u64::from(tid), &[(tid, 400)], &[(u32::from(tid > 4), 512)]);
    }
    let mut herd = Herd::new();
    let plan = herd.decide(&scene.snapshot());
    let held = |action: &Action| {
        matches!(action, Action::PlaceTask { reason: Reason::Hold { permille: 1000 }, .. })
    };
    assert!(plan.actions.len() == 8 && plan.actions.iter().all(held), "{plan:?}");
    for tid in 1..=8 {
        scene.at_home(tid, u32::from(tid > 4));
    }
    scene.edit().time = Nanos(21_000_000_000);
    let plan = herd.decide(&scene.snapshot());
    assert!(plan.actions.is_empty() && plan.converged, "{plan:?}");
}

#[test]
fn a_task_that_was_just_placed_is_not_moved_again() {
    let mut scene = numa02();
    let mut herd = Herd::new();
    herd.decide(&scene.snapshot());
    for tid in 1..=8 {
        scene.at_home(tid, u32::from(tid > 4));
    }
    // Suddenly tasks 1 and 8 use each other's memory.
    let regions = &mut scene.edit().regions;
    for region in regions.iter_mut() {
        region.pages =
            vec![(NodeId(u32::from(region.users[0].task.tid > 4)), numaherd_model::Pages(200_000))];
    }
    regions[0].users[0].task = task_id(8);
    regions[7].users[0].task = task_id(1);
    scene.edit().time = Nanos(21_000_000_000);
    let places =
        |plan: &Plan| plan.actions.iter().filter(|a| matches!(a, Action::PlaceTask { .. })).count();
    assert_eq!(places(&herd.decide(&scene.snapshot())), 0);
    scene.edit().time = Nanos(23_000_000_000);
    assert_eq!(places(&herd.decide(&scene.snapshot())), 2);
}

#[test]
fn a_placed_task_that_hardly_runs_any_more_is_given_back() {
    let mut scene = numa02();
    let mut herd = Herd::new();
    herd.decide(&scene.snapshot());
    for tid in 1..=8 {
        scene.at_home(tid, u32::from(tid > 4));
    }
    scene.edit().tasks[2].busy_permille = 10;
    // Behind others in a queue, but not for want of something to do.
    (scene.edit().tasks[3].busy_permille, scene.edit().tasks[3].waiting_permille) = (10, 250);
    scene.edit().time.0 += SETTLE.0;
    let plan = herd.decide(&scene.snapshot());
    let given_back = |action: &&Action| matches!(action, Action::ReleaseTask { task, cpus, .. } if *task == task_id(3) && cpus.len() == 8);
    assert_eq!(plan.actions.iter().filter(given_back).count(), 1, "{plan:?}");
    let releases = |action: &&Action| matches!(action, Action::ReleaseTask { .. });
    assert_eq!(plan.actions.iter().filter(releases).count(), 1, "{plan:?}");
}

#[test]
fn tasks_only_leaves_pages_alone() {
    let plan = Herd::tasks_only().decide(&numa02().snapshot());
    assert!(plan.actions.iter().all(|action| matches!(action, Action::PlaceTask { .. })));
}

#[test]
fn who_has_no_choice_does_not_make_moves_of_others_cheaper() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=8 {
        scene.task(tid, [0, 1, 4, 5, 2, 3, 6, 7][tid as usize - 1], 1000);
    }
    // Four that share all they have and, with the rest of the CPUs taken, cannot be on one node.
    for r in 0..16 {
        scene.region(r, &[(1, 30), (2, 30), (3, 30), (4, 30)], &[(1, 200_000)]);
    }
    scene.shared(1000, 750);
    let mut herd = Herd::new();
    herd.decide(&scene.snapshot());
    for (tid, node) in [(1, 0), (2, 0), (3, 1), (4, 1)] {
        scene.at_home(tid, node);
    }
    scene.edit().tasks[4..].iter_mut().for_each(|task| task.fixed = true);
    // One where the memory is happens to be less busy than one who is not there.
    scene.edit().tasks[3].busy_permille = 816;
    scene.edit().time = Nanos(31_000_000_000);
    let plan = herd.decide(&scene.snapshot());
    let places = |action: &Action| matches!(action, Action::PlaceTask { .. });
    assert!(!plan.actions.iter().any(places), "{plan:?}");
}

#[test]
fn memory_does_not_follow_whom_the_scheduler_takes_to_and_fro() {
    let mut scene = Scene::two_by_four();
    scene.task(1, 0, 1000);
    scene.region(0, &[(1, 400)], &[(0, 512)]);
    scene.edit().costs.page_move = Nanos(1);
    let mut herd = Herd::new();
    let moves = |plan: &Plan| plan.actions.iter().any(|a| matches!(a, Action::MovePages { .. }));
    let places = |plan: &Plan| plan.actions.iter().any(|a| matches!(a, Action::PlaceTask { .. }));
    let mut after = |milliseconds: u64, cpu: u32| {
        scene.edit().time.0 += milliseconds * 1_000_000;
        scene.edit().tasks[0].last_cpu = numaherd_model::CpuId(cpu);
        let plan = herd.decide(&scene.snapshot());
        assert!(!places(&plan), "{plan:?}");
        moves(&plan)
    };
    assert!(!after(0, 0));
    assert!(!after(100, 4), "it has just come");
    assert!(!after(100, 0) && !after(100, 5) && !after(400, 6), "it comes and goes");
    assert!(after(100, 7), "it has been there for half a second");
}

#[test]
fn strangers_who_take_half_of_a_node_have_one_placed_task_go() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=8 {
        let node = u32::from(tid > 4);
        scene.task(tid, tid - 1, 1000);
        scene.region(u64::from(tid), &[(tid, 400)], &[(node, 512)]);
        scene.at_home(tid, node);
    }
    let mut herd = Herd::new();
    assert_eq!(herd.decide(&scene.snapshot()).actions, []);
    scene.edit().nodes[0].others_permille = 2000;
    scene.edit().time.0 += SETTLE.0;
    let plan = herd.decide(&scene.snapshot());
    let goes = |action: &Action| match action {
        Action::PlaceTask { task, node, .. } => Some((task.tid <= 4, node.0)),
        _ => None,
    };
    assert_eq!(plan.actions.iter().filter_map(goes).collect::<Vec<_>>(), [(true, 1)]);
}

#[test]
fn whoever_shows_nothing_makes_room() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=8 {
        scene.task(tid, tid - 1, 1000);
    }
    // The first belongs on node 1, where the last has not been seen to use anything.
    for tid in 1..=7 {
        scene.region(u64::from(tid), &[(tid, 400)], &[(u32::from(tid == 1 || tid > 4), 100_000)]);
    }
    scene.shared(1000, 0);
    scene.edit().costs.page_move.0 = 100_000;
    let plan = Herd::new().decide(&scene.snapshot());
    assert_eq!(destination(&plan, task_id(1)), Some(NodeId(1)));
    assert_eq!(destination(&plan, task_id(8)), Some(NodeId(0)));
}

#[test]
fn while_teams_may_yet_be_found_nothing_has_converged() {
    let after = |regions: u64, calm: Nanos| {
        let mut scene = Scene::two_by_four();
        (1..=4).for_each(|tid| scene.task(tid, tid * 2 - 2, 1000));
        // The first and the third, and the others, on both nodes: half of it is local.
        for r in 0..regions {
            let odd = r as u32 % 2;
            scene.region(r, &[(1 + odd, 60), (3 + odd, 60)], &[(r as u32 / 2 % 2, 512)]);
        }
        scene.shared(1000, 500);
        scene.edit().tasks.iter_mut().for_each(|task| task.fixed = true);
        let mut herd = Herd::new();
        herd.decide(&scene.snapshot());
        scene.edit().time.0 += calm.0;
        let plan = herd.decide(&scene.snapshot());
        assert_eq!((&plan.actions, plan.strength_permille), (&vec![], 500));
        (plan.converged, plan.calm)
    };
    assert_eq!(after(4, SETTLE), (false, false));
    assert_eq!(after(4, PATIENCE), (true, true));
    assert_eq!(after(40, SETTLE), (true, true));
}

/// Eight tasks on two nodes, all memory on node 0, which has no CPU for more than four of them.
#[test]
fn memory_that_may_be_on_one_node_only_does_not_follow_those_who_are_elsewhere() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=8 {
        scene.task(tid, tid - 1, 1000);
        scene.region(u64::from(tid), &[(tid, 400)], &[(0, 512)]);
    }
    let moves = |scene: &Scene| {
        let plan = Herd::new().decide(&scene.snapshot());
        let moves = plan.actions.iter().filter(|a| matches!(a, Action::MovePages { .. }));
        moves.count()
    };
    assert_eq!(moves(&scene), 4);
    scene.edit().forbid_memory(PROCESS, NodeId(1));
    assert_eq!(moves(&scene), 0);
}

/// Sixteen tasks ran on eight CPUs, and two of those on node 0 have ended.
#[test]
fn with_more_tasks_than_cpus_nobody_moves_while_others_end() {
    let mut scene = Scene::two_by_four();
    for tid in 1..=14 {
        let node = u32::from(tid > 6);
        scene.task(tid, 4 * node + tid % 4, 500);
        scene.region(u64::from(tid), &[(tid, 512)], &[(node, 512)]);
        scene.at_home(tid, node);
    }
    for task in &mut scene.edit().tasks {
        (task.waiting_permille, task.age) = (500, Nanos(25_000_000_000));
    }
    let goes = |scene: &Scene| {
        let plan = Herd::new().decide(&scene.snapshot());
        let goes = |tid: &u32| destination(&plan, task_id(*tid)) == Some(NodeId(0));
        (7..=14).filter(goes).count()
    };
    assert!(goes(&scene) > 0, "eight tasks share four CPUs, and six the others");
    scene.edit().fewer = vec![(PROCESS, scene.snapshot().time)];
    assert_eq!(goes(&scene), 0, "who goes may end before its memory has come");
    scene.edit().time.0 += SETTLE.0;
    assert!(goes(&scene) > 0, "they go on");
}
