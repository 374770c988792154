//! What mainline decides on a world of two nodes of two CPUs, one process.

use numaherd_model::CpuId;
use numaherd_model::scene::Scene;

use super::super::world::{World, id};
use super::*;

/// Faults of each task on the memory of one node, and the end of the pass.
fn pass(mainline: &mut Mainline, world: &World, faults: &[(u32, u32)]) {
    for &(tid, home) in faults {
        for _ in 0..8 {
            let touch = world.touch(tid, home, None);
            let (node, home) = (index_of(world, touch.node), home as usize);
            mainline.count(&touch, node, (home, home), world);
        }
    }
    mainline.pass_ended(ProcessId { tgid: 1, start: 1 }, world);
}

#[test]
fn a_page_comes_to_whoever_had_it_last_and_not_to_who_shares_it_from_afar() {
    let world = World::new([Some(1), None, Some(2), None]);
    let mut mainline = Mainline::new(Switches::default());
    let here = Some((NodeId(0), Cause::Private));
    assert_eq!(mainline.on_fault(&world.touch(1, 1, None), &world), here);
    assert_eq!(mainline.on_fault(&world.touch(1, 1, Some((1, 0))), &world), here);
    // Task 2 touched it last, on node 1: nothing says yet that node 0 needs it more.
    let shared = world.touch(1, 1, Some((2, 2)));
    assert_eq!(mainline.on_fault(&shared, &world), None);
}

#[test]
fn two_tasks_on_each_others_memory_change_places() {
    let mut world = World::new([Some(1), Some(3), Some(2), Some(4)]);
    let mut mainline = Mainline::new(Switches::default());
    pass(&mut mainline, &world, &[(1, 1), (2, 0), (3, 0), (4, 1)]);
    world.now = Nanos(1_000_000_000);
    // The others learn of their faults first; both are where they want to be.
    for tid in [3, 4, 2] {
        mainline.place_by_faults(id(tid), &world);
    }
    // All CPUs are busy: 1 gains 1000 of 1000 and so does 2, while 4 would lose as much.
    let why = Cause::Preferred { more: 1000, of_group: false };
    assert_eq!(mainline.place(id(1), &world), Some((TaskMove::Swap(id(2)), why)));
    assert_eq!(mainline.place(id(3), &world), None);
    let mut alone = Mainline::new(Switches { swaps: false, ..Switches::default() });
    pass(&mut alone, &world, &[(1, 1), (2, 0), (3, 0), (4, 1)]);
    assert_eq!(alone.place(id(1), &world), None, "without swaps nobody can go anywhere");
}

#[test]
fn a_free_cpu_where_the_memory_is_is_taken() {
    let mut world = World::new([Some(1), Some(3), None, None]);
    let mut mainline = Mainline::new(Switches::default());
    pass(&mut mainline, &world, &[(1, 1), (3, 0)]);
    world.now = Nanos(1_000_000_000);
    let why = Cause::Preferred { more: 1000, of_group: false };
    assert_eq!(mainline.place(id(1), &world), Some((TaskMove::To(CpuId(2)), why)));
}

#[test]
fn scans_come_seldom_once_faults_are_local_and_often_while_they_are_not() {
    let mut world = World::new([Some(1), None, Some(2), None]);
    let mut mainline = Mainline::new(Switches::default());
    let period = |mainline: &Mainline, tid| mainline.tasks[&id(tid)].period.0 / 1_000_000;
    // 1 GiB: 250 ms at first. All private: 10 slots of 10, so three slots more.
    pass(&mut mainline, &world, &[(1, 0)]);
    world.now = Nanos(1_000_000_000);
    mainline.place(id(1), &world);
    assert_eq!(period(&mainline, 1), 325);
    assert_eq!(mainline.tasks[&id(1)].locality, [0; 3]);
    // A page of its own that comes from afar, and none that was near: twice as long.
    mainline.on_fault(&world.touch(1, 1, Some((1, 0))), &world);
    mainline.pass_ended(ProcessId { tgid: 1, start: 1 }, &world);
    world.now = Nanos(2_000_000_000);
    mainline.place(id(1), &world);
    assert_eq!(period(&mainline, 1), 650);
    // Nothing told by which to pace: what was counted is kept.
    assert_eq!(mainline.tasks[&id(1)].locality, [512, 0, 0]);
    // It is placed in faults only.
    mainline.pass_ended(ProcessId { tgid: 1, start: 1 }, &world);
    world.now = Nanos(3_000_000_000);
    mainline.place(id(1), &world);
    assert_eq!(period(&mainline, 1), 650);
}

#[test]
fn after_a_move_that_failed_scans_come_half_as_often_and_the_page_counts_where_it_is() {
    let mut world = World::new([Some(1), None, Some(2), None]);
    let mut mainline = Mainline::new(Switches::default());
    // 1 GiB: 250 ms at first. Local, and one page in two that was to come and could not.
    for home in [0, 1] {
        let touch = world.touch(1, home, Some((1, 0)));
        if mainline.on_fault(&touch, &world).is_some() {
            mainline.stayed(&touch, &world);
        }
    }
    mainline.pass_ended(ProcessId { tgid: 1, start: 1 }, &world);
    world.now = Nanos(1_000_000_000);
    mainline.place(id(1), &world);
    let task = &mainline.tasks[&id(1)];
    assert_eq!(task.period.0 / 1_000_000, 500);
    assert_eq!([both(&task.mem, 0), both(&task.mem, 1)], [512, 512]);
    // The kernel keeps that a move failed: half as often again, though all was local since.
    mainline.on_fault(&world.touch(1, 0, Some((1, 0))), &world);
    mainline.pass_ended(ProcessId { tgid: 1, start: 1 }, &world);
    world.now = Nanos(2_000_000_000);
    mainline.place(id(1), &world);
    let task = &mainline.tasks[&id(1)];
    assert_eq!((task.period.0 / 1_000_000, task.locality), (1000, [512, 1024, 512]));
}

#[test]
fn seven_faults_of_ten_are_enough_for_scans_to_come_later() {
    let mut world = World::new([Some(1), Some(3), Some(2), None]);
    let mut mainline = Mainline::new(Switches { groups: false, ..Switches::default() });
    // 7 of 10 are on its own node, and all are shared.
    for home in [0, 0, 0, 0, 0, 0, 0, 1, 1, 1] {
        let touch = world.touch(1, home, Some((3, 1)));
        let (node, home) = (index_of(&world, touch.node), home as usize);
        mainline.count(&touch, node, (home, home), &world);
    }
    mainline.pass_ended(ProcessId { tgid: 1, start: 1 }, &world);
    world.now = Nanos(1_000_000_000);
    mainline.place(id(1), &world);
    // One slot of ten later: 250 ms at first.
    assert_eq!(mainline.tasks[&id(1)].period.0 / 1_000_000, 275);
}

/// The kernel asks whether the node is active on which the page is after all.
#[test]
fn a_shared_page_that_could_not_come_is_not_local_for_where_it_was_to_go() {
    let mut world = World::new([Some(1), Some(3), Some(2), None]);
    world.topology = Scene::even(3, 2).snapshot().topology;
    let mut mainline = Mainline::new(Switches::default());
    let group = mainline.own_group(id(1), &world);
    // Its group runs on the first two nodes, and nobody on the third, where the page is.
    mainline.groups.get_mut(&group).unwrap().cpu = vec![[8, 0], [8, 0], [0, 0]];
    let touch = world.touch(1, 2, Some((3, 1)));
    let to = mainline.on_fault(&touch, &world);
    assert_eq!(to, Some((NodeId(0), Cause::GroupAsks)));
    assert_eq!(mainline.tasks[&id(1)].locality, [0, 512, 0]);
    mainline.stayed(&touch, &world);
    assert_eq!(mainline.tasks[&id(1)].locality, [512, 0, 512]);
}

#[test]
fn after_two_passes_the_mappings_that_nobody_touched_come_first() {
    let process = ProcessId { tgid: 1, start: 1 };
    // Scans that arm something, in so many seconds of 100 scans that are due.
    let armed = |skips_mappings| {
        let mut world = World::new([Some(1), None, Some(2), None]);
        let switches = Switches { skips_mappings, ..Switches::default() };
        let mut mainline = Mainline::new(switches);
        mainline.task(id(2), &world);
        let mut armed = Vec::new();
        for second in 0..100 {
            world.now = Nanos(second * 2_000_000_000);
            if mainline.scan(id(1), &world).is_some() {
                // The process is no larger than one scan.
                mainline.pass_ended(process, &world);
                armed.push(second);
            }
        }
        armed
    };
    // Two threads: 19 mappings and 2 of the other's. The first look only starts the clock.
    assert_eq!(armed(true)[..5], [1, 2, 3, 3 + 22, 3 + 2 * 22]);
    assert_eq!(armed(false).len(), 99);
}

#[test]
fn tasks_that_share_pages_become_one_group() {
    let world = World::new([Some(1), Some(3), Some(2), Some(4)]);
    let mut mainline = Mainline::new(Switches::default());
    for (tid, last) in [(1, (3, 1)), (3, (1, 0)), (1, (3, 1)), (2, (1, 0)), (1, (2, 2))] {
        mainline.on_fault(&world.touch(tid, 0, Some(last)), &world);
    }
    let groups: Vec<_> = [1, 2, 3].map(|tid| mainline.tasks[&id(tid)].group).into();
    assert!(groups[0].is_some() && groups.iter().all(|group| *group == groups[0]), "{groups:?}");
    assert_eq!(mainline.groups.len(), 1);
    let mut apart = Mainline::new(Switches { groups: false, ..Switches::default() });
    apart.on_fault(&world.touch(1, 0, Some((3, 1))), &world);
    assert!(apart.groups.is_empty());
}

/// A world in which task 5 waits behind task 1, and what each of them prefers.
fn queue(prefer: [Option<usize>; 2]) -> (World, Mainline) {
    let mut world = World::new([Some(1), Some(3), Some(2), Some(4)]);
    world.waiting[0] = vec![5];
    let mut mainline = Mainline::new(Switches::default());
    for (tid, preferred) in [1, 5].into_iter().zip(prefer) {
        mainline.task(id(tid), &world).preferred = preferred;
    }
    (world, mainline)
}

#[test]
fn a_task_on_its_preferred_node_is_not_taken_before_others_of_its_queue_are() {
    let goes = |prefer, pull| {
        let (world, mainline) = queue(prefer);
        mainline.may_move(id(5), NodeId(0), NodeId(1), pull, &world)
    };
    let pulls = [Pull::Idle, Pull::NewIdle, Pull::Busy];
    // Task 1 would as well be elsewhere; where both would rather stay one has to go.
    assert_eq!(pulls.map(|pull| goes([None, Some(0)], pull)), [false; 3]);
    assert_eq!(pulls.map(|pull| goes([Some(0), Some(0)], pull)), [true; 3]);
    // One that runs is only taken where it prefers to be, or is no worse.
    assert!(!goes([Some(0), Some(0)], Pull::Running));
    // There is one look through the queue.
    assert!(!goes([None, Some(1)], Pull::Wanted));
    assert_eq!(pulls.map(|pull| goes([None, Some(1)], pull)), [true; 3]);
}

#[test]
fn a_task_that_prefers_a_third_node_is_taken_where_it_loses_nothing_or_the_cpu_idles() {
    let (world, mut mainline) = queue([None, None]);
    let goes = |mainline: &Mainline| {
        [Pull::Idle, Pull::NewIdle, Pull::Busy]
            .map(|pull| mainline.may_move(id(5), NodeId(0), NodeId(1), pull, &world))
    };
    mainline.task(id(5), &world).mem = vec![[0, 30], [0, 10]];
    // A CPU that has just run out asks as a busy one does.
    assert_eq!(goes(&mainline), [true, false, false]);
    mainline.task(id(5), &world).mem = vec![[0, 10], [0, 10]];
    assert_eq!(goes(&mainline), [true; 3]);
    mainline.task(id(5), &world).mem = vec![[0, 30], [0, 10]];
    mainline.set_scan(None);
    assert_eq!(goes(&mainline), [true; 3], "switched off it has no say");
}

#[test]
fn a_task_that_leaves_its_preferred_node_is_scanned_as_one_that_begins() {
    let (world, mut mainline) = queue([None, None]);
    let mut period = |pass, preferred, from| {
        let task = mainline.task(id(5), &world);
        (task.pass, task.preferred, task.period) = (pass, preferred, Nanos(9_000_000_000));
        mainline.moved(id(5), NodeId(from), &world);
        mainline.tasks[&id(5)].period.0 / 1_000_000
    };
    // 1 GiB: 250 ms at first.
    assert_eq!(period(3, Some(0), 0), 250);
    assert_eq!(period(3, None, 0), 250);
    assert_eq!(period(3, Some(0), 1), 9000, "it comes home, or was elsewhere before");
    assert_eq!(period(0, Some(0), 1), 250, "nothing was learnt yet");
    // Two that share three quarters of their faults: twice that, and three quarters of it.
    let group = Group { members: 2, mem: vec![[599, 100], [0, 100]], cpu: vec![[0, 0]; 2] };
    mainline.groups.insert(5, group);
    mainline.task(id(5), &world).group = Some(5);
    let group = &mainline.groups[&5];
    assert_eq!(group.stretch(Nanos(250_000_000)), 375_000_000);
    let task = mainline.task(id(5), &world);
    (task.pass, task.preferred) = (3, Some(0));
    mainline.moved(id(5), NodeId(0), &world);
    assert_eq!(mainline.tasks[&id(5)].period, Nanos(375_000_000));
}

#[test]
fn where_nothing_tells_how_to_pace_the_whole_process_is_left_alone_for_the_new_period() {
    let mut world = World::new([Some(1), Some(3), None, None]);
    let mut mainline = Mainline::new(Switches::default());
    let scans = |mainline: &mut Mainline, world: &mut World, ms: u64| {
        world.now = Nanos(ms * 1_000_000);
        mainline.scan(id(3), world).is_some()
    };
    for tid in [1, 3] {
        mainline.scan(id(tid), &world);
    }
    assert!(scans(&mut mainline, &mut world, 1000));
    // A page of its own that comes from afar, and none that was near: 250 ms become 500.
    mainline.on_fault(&world.touch(1, 1, Some((1, 0))), &world);
    mainline.pass_ended(ProcessId { tgid: 1, start: 1 }, &world);
    world.now = Nanos(1_200_000_000);
    mainline.place(id(1), &world);
    assert_eq!(mainline.tasks[&id(1)].period.0 / 1_000_000, 500);
    assert!(!scans(&mut mainline, &mut world, 1300), "the other's period is over, too");
    assert!(scans(&mut mainline, &mut world, 1700));
}

#[test]
fn a_group_forgets_the_faults_of_one_that_has_ended() {
    let world = World::new([Some(1), Some(3), Some(2), Some(4)]);
    let mut mainline = Mainline::new(Switches::default());
    for (tid, last) in [(1, (3, 1)), (3, (1, 0)), (1, (3, 1))] {
        mainline.on_fault(&world.touch(tid, 0, Some(last)), &world);
    }
    mainline.pass_ended(ProcessId { tgid: 1, start: 1 }, &world);
    for tid in [1, 3] {
        mainline.place_by_faults(id(tid), &world);
    }
    let faults = |mainline: &Mainline| -> Vec<(u64, u64)> {
        mainline.groups.values().map(|group| (group.members, both(&group.mem, 0))).collect()
    };
    assert_eq!(faults(&mainline), [(2, 3 * 512)]);
    mainline.task_ended(id(1));
    assert_eq!(faults(&mainline), [(1, 512)]);
    mainline.task_ended(id(3));
    assert_eq!(faults(&mainline), []);
}
