//! Kinds, averages, and who goes where.

use super::super::world::{World, id};
use super::*;

#[test]
fn private_and_shared_have_hysteresis() {
    assert_eq!(kind_of(Kind::Unknown, &[[5, 0], [0, 5]]), Kind::Shared);
    assert_eq!(kind_of(Kind::Private, &[[9, 0], [0, 5]]), Kind::Private);
    assert_eq!(kind_of(Kind::Private, &[[10, 0], [0, 5]]), Kind::Shared);
    assert_eq!(kind_of(Kind::Shared, &[[3, 0], [0, 5]]), Kind::Shared);
    assert_eq!(kind_of(Kind::Shared, &[[2, 0], [0, 5]]), Kind::Private);
}

#[test]
fn averages_follow_and_a_stronger_buddy_takes_over() {
    let mut task = Task::new(2);
    task.new = vec![[0, 1600], [0, 0]];
    let buddy = TaskId { tid: 1, start: 1 };
    (task.candidate, task.candidate_faults) = (Some(buddy), 400);
    task.average(PAST_V18);
    // (15 × 0 + 1600) / 16.
    assert_eq!((task.faults[0], task.strength), ([0, 100], 1024));
    assert_eq!(kind_of(Kind::Unknown, &task.faults), Kind::Private);
    assert_eq!((task.converged_on, task.buddy, task.buddy_faults), (Some(0), Some(buddy), 400));
    task.average(PAST_V18);
    // (15 × 100 + 0) / 16, and 3 × 400 / 4.
    assert_eq!((task.faults[0][1], task.buddy_faults), (93, 300));
}

/// v18, with every task placed once a second.
fn v18() -> (Numacore, World) {
    (Numacore::new(Switches::v18()), World::new([Some(1), Some(2), Some(3), Some(4)]))
}

#[test]
fn a_pass_ends_when_the_next_one_begins() {
    let (mut numacore, mut world) = v18();
    let process = world.process_of(id(1));
    let pass = |numacore: &Numacore| numacore.processes[&process].pass;
    world.now = Nanos(1_100_000_000);
    assert!(numacore.scan(id(1), &world).is_some());
    numacore.pass_ended(process, &world);
    assert_eq!(pass(&numacore), 0, "its faults are still to come");
    // Too early for another scan of the process, then late enough.
    world.now = Nanos(1_250_000_000);
    assert_eq!((numacore.scan(id(1), &world), pass(&numacore)), (None, 0));
    world.now = Nanos(1_400_000_000);
    assert!(numacore.scan(id(1), &world).is_some());
    assert_eq!(pass(&numacore), 1);
}

#[test]
fn who_turns_into_a_shared_task_has_no_buddies_while_it_is_placed() {
    let (mut numacore, mut world) = v18();
    assert!((1..=4).all(|tid| numacore.scan(id(tid), &world).is_none()), "too early");
    // Amid the first second all are placed, without faults: they become shared, one after the
    // other, and nobody takes a CPU of who is not yet.
    world.now = Nanos(500_000_000);
    assert!((1..=4).all(|tid| numacore.place(id(tid), &world).is_none()));
    assert!((1..=4).all(|tid| numacore.kind(id(tid)) == Kind::Shared));
    // 2 turns private. A second later 3 and 4, who fill a node, would be beside 1.
    numacore.task(id(2), &world).kind = Kind::Private;
    for tid in [1, 3, 4] {
        numacore.task(id(tid), &world).new[0][0] = 1600;
    }
    world.now = Nanos(1_500_000_000);
    assert_eq!(numacore.place(id(3), &world), Some((TaskMove::Swap(id(2)), Cause::Compress)));
}
