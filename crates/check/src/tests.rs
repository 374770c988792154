//! One plan with each planted bug: every one must be caught, and the sound plan must pass.

use super::*;
use numaherd_model::scene::{PROCESS, Scene, task_id};
use numaherd_model::{Bytes, CpuId, ObjectId, ProcessId, Reason, SharedRange};

const REGION: RegionId = RegionId { process: PROCESS, start: 1 << 30 };

/// Two nodes of two CPUs and 400 MiB; the busy tasks are all on node 0, node 1 is nearly full.
fn snapshot(busy_on_node_0: u32) -> Snapshot {
    let mut scene = Scene::even(2, 2);
    (1..=busy_on_node_0).for_each(|tid| scene.task(tid, 0, 1000));
    scene.region(0, &[], &[]);
    for (node, free) in [(0, 50_000), (1, 5000)] {
        scene.edit().topology.nodes[node].memory = Bytes(400 << 20);
        scene.edit().nodes[node].free = Pages(free);
        scene.edit().nodes[node].high_watermark = Pages(1000);
    }
    scene.snapshot()
}

fn place(tid: u32, node: u32, cpus: &str) -> Action {
    let cpus = cpus.parse().unwrap();
    Action::PlaceTask { task: task_id(tid), node: NodeId(node), cpus, reason: Reason::Balance }
}

fn pages(to: u32, pages: u64) -> Action {
    let reason = Reason::UsersThere { permille: 1000 };
    Action::MovePages {
        region: REGION,
        len: Bytes(2 << 20),
        to: NodeId(to),
        pages: Pages(pages),
        reason,
    }
}

fn review(checker: &mut Checker, snapshot: &Snapshot, actions: &[Action]) -> Vec<Option<Problem>> {
    let plan = Plan { actions: actions.to_vec(), ..Plan::default() };
    checker.review(&plan, snapshot)
}

#[test]
fn a_sound_plan_passes() {
    let sound = [place(1, 0, "0-1"), place(2, 1, "2-3"), pages(1, 512)];
    assert_eq!(review(&mut Checker::new(), &snapshot(2), &sound), [None, None, None]);
}

#[test]
fn cpus_of_another_node_or_of_nobody_or_forbidden_are_caught() {
    let mut snapshot = snapshot(2);
    snapshot.tasks[1].cpus_owner = "2".parse().unwrap();
    let wrong = [place(1, 0, "1-2"), place(1, 0, ""), place(2, 1, "2-3"), place(1, 7, "0")];
    let found = review(&mut Checker::new(), &snapshot, &wrong);
    assert!(found[..3].iter().all(|p| matches!(p, Some(Problem::WrongCpus(_)))), "{found:?}");
    assert_eq!(found[3], Some(Problem::NoSuchNode(NodeId(7))));
}

#[test]
fn a_fixed_task_and_cpus_set_apart_are_caught() {
    let mut snapshot = snapshot(2);
    snapshot.tasks[0].fixed = true;
    snapshot.isolated = "3".parse().unwrap();
    let found = review(&mut Checker::new(), &snapshot, &[place(1, 0, "0-1"), place(2, 1, "2-3")]);
    assert_eq!(found[0], Some(Problem::Fixed));
    assert!(matches!(found[1], Some(Problem::WrongCpus(_))), "{found:?}");
    assert_eq!(review(&mut Checker::new(), &snapshot, &[place(2, 1, "2")]), [None]);
}

#[test]
fn a_node_that_others_keep_busy_has_room_for_fewer() {
    let mut snapshot = snapshot(2);
    snapshot.nodes[0].others_permille = 1000;
    let found = review(&mut Checker::new(), &snapshot, &[place(1, 0, "0-1")]);
    assert_eq!(found, [Some(Problem::Overloaded { node: NodeId(0), tasks: 2, capacity: 1 })]);
}

#[test]
fn an_overloaded_node_is_caught_and_a_swap_is_not() {
    let found = review(&mut Checker::new(), &snapshot(3), &[place(1, 0, "0-1")]);
    assert_eq!(found, [Some(Problem::Overloaded { node: NodeId(0), tasks: 3, capacity: 2 })]);
    let mut full = snapshot(4);
    for (task, cpu) in full.tasks.iter_mut().zip([0, 1, 2, 3]) {
        task.last_cpu = CpuId(cpu);
    }
    let swap = [place(1, 1, "2-3"), place(4, 0, "0-1")];
    assert_eq!(review(&mut Checker::new(), &full, &swap), [None, None]);
}

/// Three tasks that may use two of either node's four CPUs, and two that may use all.
#[test]
fn tasks_that_may_use_few_cpus_of_a_node_are_no_more_there_than_those_carry() {
    let mut scene = Scene::even(2, 4);
    let owners = ["0-1,4-5", "0-1,4-5", "0-1,4-5", "0-7", "0-7"];
    for (tid, cpus) in (1..).zip(owners) {
        scene.task(tid, if [3, 5].contains(&tid) { 4 } else { 0 }, 1000);
        scene.edit().tasks.last_mut().unwrap().cpus_owner = cpus.parse().unwrap();
    }
    let mut snapshot = scene.snapshot();
    let found = review(&mut Checker::new(), &snapshot, &[place(3, 0, "0-1")]);
    assert_eq!(found, [Some(Problem::Overloaded { node: NodeId(0), tasks: 3, capacity: 2 })]);
    // One of them goes, or one comes that may use the others.
    let swap = [place(3, 0, "0-1"), place(2, 1, "4-5")];
    assert_eq!(review(&mut Checker::new(), &snapshot, &swap), [None, None]);
    assert_eq!(review(&mut Checker::new(), &snapshot, &[place(5, 0, "0-3")]), [None]);
    // With half of the swap refused the other one would be too many.
    let fixed = |snapshot: &mut Snapshot, yes| snapshot.tasks[1].fixed = yes;
    fixed(&mut snapshot, true);
    let found = review(&mut Checker::new(), &snapshot, &swap);
    let overloaded = Problem::Overloaded { node: NodeId(0), tasks: 3, capacity: 2 };
    assert_eq!(found, [Some(overloaded), Some(Problem::Fixed)]);
    fixed(&mut snapshot, false);
    // With more of them than CPUs, a fair part may be there.
    snapshot.tasks[3..].iter_mut().for_each(|task| {
        task.cpus_owner = "0-1,4-5".parse().unwrap();
        task.last_cpu = CpuId(4);
    });
    assert_eq!(review(&mut Checker::new(), &snapshot, &[place(3, 0, "0-1")]), [None]);
}

#[test]
fn who_is_on_cpus_set_apart_leaves_the_others_to_others() {
    let mut scene = Scene::even(2, 4);
    scene.task(1, 0, 1000);
    scene.task(2, 4, 1000);
    scene.task(3, 2, 1000);
    scene.task(4, 3, 1000);
    scene.edit().isolated = "2-3".parse().unwrap();
    let mut snapshot = scene.snapshot();
    let found = |snapshot: &Snapshot| review(&mut Checker::new(), snapshot, &[place(2, 0, "0-1")]);
    let overloaded = Problem::Overloaded { node: NodeId(0), tasks: 4, capacity: 2 };
    assert_eq!(found(&snapshot), [Some(overloaded)]);
    snapshot.tasks[2..].iter_mut().for_each(|task| task.cpus_owner = "2-3".parse().unwrap());
    assert_eq!(found(&snapshot), [None]);
}

#[test]
fn half_an_exchange_is_refused_with_its_other_half() {
    let mut full = snapshot(4);
    for (task, cpu) in full.tasks.iter_mut().zip([0, 1, 2, 3]) {
        task.last_cpu = CpuId(cpu);
    }
    let mut checker = Checker::new();
    // Task 1 goes to and fro until it may not; task 4 with it.
    for nth in 0..3 {
        let (there, back) = if nth % 2 == 0 { (1, 0) } else { (0, 1) };
        let cpus = ["0-1", "2-3"];
        let swap = [place(1, there, cpus[there as usize]), place(4, back, cpus[back as usize])];
        assert_eq!(review(&mut checker, &full, &swap), [None, None]);
        full.tasks[0].last_cpu = CpuId(2 * there);
        full.tasks[3].last_cpu = CpuId(2 * back);
    }
    // Task 1 is on node 1 now. Tasks 2 and 3 change places all the same.
    let swaps = [place(1, 0, "0-1"), place(4, 1, "2-3"), place(2, 1, "2-3"), place(3, 0, "0-1")];
    let found = review(&mut Checker::new(), &full, &swaps);
    assert_eq!(found, [None, None, None, None]);
    // Of those who would come in its place the first stays away.
    let found = review(&mut checker, &full, &[place(1, 0, "0-1"), place(2, 1, "2-3")]);
    let overloaded = Problem::Overloaded { node: NodeId(1), tasks: 3, capacity: 2 };
    assert_eq!(found, [Some(Problem::PingPong), Some(overloaded.clone())]);
    let found = review(&mut checker, &full, &swaps[..3]);
    assert_eq!(found[0], Some(Problem::PingPong));
    // And who was refused is not remembered as moved.
    let mut one = Checker::new();
    assert_eq!(review(&mut one, &full, &[place(2, 1, "2-3")]), [Some(overloaded)]);
    assert_eq!(review(&mut one, &full, &swaps[2..]), [None, None]);
}

#[test]
fn memory_that_would_run_short_is_caught_counting_what_is_on_its_way() {
    // 5000 free, 1000 high watermark + 2 % of 102400 pages = 3048 must stay.
    assert_eq!(review(&mut Checker::new(), &snapshot(1), &[pages(1, 1952)]), [None]);
    let found = review(&mut Checker::new(), &snapshot(1), &[pages(1, 1953)]);
    let needed = Pages(3048);
    assert_eq!(
        found,
        [Some(Problem::ShortOfMemory { node: NodeId(1), free: Pages(3047), needed })]
    );
    let short = |problem: &Problem| problem.short_of_memory();
    assert_eq!(found[0].as_ref().and_then(short), Some(NodeId(1)));
    assert_eq!(short(&Problem::PingPong), None);
}

#[test]
fn to_and_fro_is_caught_until_time_has_passed() {
    let mut checker = Checker::new();
    let mut now = snapshot(1);
    assert_eq!(review(&mut checker, &now, &[pages(1, 10)]), [None]);
    assert_eq!(review(&mut checker, &now, &[pages(0, 10)]), [Some(Problem::PingPong)]);
    for (node, cpus) in [(0, "0-1"), (1, "2-3"), (0, "0-1")] {
        assert_eq!(review(&mut checker, &now, &[place(1, node, cpus)]), [None]);
    }
    assert_eq!(review(&mut checker, &now, &[place(1, 1, "2-3")]), [Some(Problem::PingPong)]);
    now.time = Nanos(now.time.0 + 11_000_000_000);
    assert_eq!(review(&mut checker, &now, &[place(1, 1, "2-3"), pages(0, 10)]), [None, None]);
}

#[test]
fn tiering_unknown_things_and_repetitions_are_caught() {
    let mut tiering = snapshot(1);
    tiering.kernel_tiering = true;
    assert_eq!(review(&mut Checker::new(), &tiering, &[pages(0, 1)]), [Some(Problem::Tiering)]);
    let twice = [place(1, 0, "0"), place(1, 1, "2"), place(9, 0, "0")];
    let found = review(&mut Checker::new(), &snapshot(1), &twice);
    assert_eq!(found, [None, Some(Problem::Twice), Some(Problem::Unknown)]);
}

#[test]
fn memory_stays_within_its_cpuset_and_tasks_come_no_farther_away_from_it() {
    let mut confined = snapshot(2);
    confined.forbid_memory(confined.tasks[0].process, NodeId(1));
    let forbidden = Some(Problem::Forbidden(NodeId(1)));
    let found = review(&mut Checker::new(), &confined, &[pages(1, 1), place(1, 1, "2-3")]);
    assert_eq!(found, [forbidden.clone(), forbidden]);
    // Back to it, or where it is now.
    confined.tasks[0].last_cpu = CpuId(2);
    for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
        assert_eq!(review(&mut Checker::new(), &confined, &[place(1, node, cpus)]), [None]);
    }
    // Its owner lets it run nowhere else.
    confined.tasks[0].last_cpu = CpuId(0);
    confined.tasks[0].cpus_owner = "2-3".parse().unwrap();
    assert_eq!(review(&mut Checker::new(), &confined, &[place(1, 1, "2-3")]), [None]);
    // Nor anywhere but on CPUs that are set apart.
    confined.tasks[0].cpus_owner = "0-3".parse().unwrap();
    confined.isolated = "0-1".parse().unwrap();
    assert_eq!(review(&mut Checker::new(), &confined, &[place(1, 1, "2-3")]), [None]);
}

#[test]
fn memory_of_several_processes_stays_within_the_cpuset_of_each() {
    let mut shared = snapshot(1);
    let own = shared.tasks[0].process;
    let other = ProcessId { tgid: own.tgid + 1, start: 1 };
    let object = ObjectId { device: 1, inode: 7 };
    let range = |process, start, offset| {
        let len = Bytes(2 << 20);
        SharedRange { process, start, len, object, offset }
    };
    let start = REGION.start;
    shared.common = vec![range(own, start, 0), range(other, 5 << 30, 0)];
    assert_eq!(review(&mut Checker::new(), &shared, &[pages(1, 1)]), [None]);
    shared.forbid_memory(other, NodeId(1));
    let found = review(&mut Checker::new(), &shared, &[pages(1, 1)]);
    assert_eq!(found, [Some(Problem::Forbidden(NodeId(1)))]);
    // Another piece of that object.
    shared.common[1] = range(other, 5 << 30, 2 << 20);
    assert_eq!(review(&mut Checker::new(), &shared, &[pages(1, 1)]), [None]);
}
