//! Masks that an ended run left in place (`--keep`), and a run after it.

use std::collections::BTreeMap;

use numaherd_linux::live::Kept;
use numaherd_model::{CpuId, NodeId, Observe, TaskId};

use crate::refused::Bench;
use crate::{Story, same_as_alone};

/// What the first run on a kernel left in place.
fn masks(bench: &Bench) -> BTreeMap<TaskId, Kept> {
    let left = bench.left();
    Kept::of(&left.changes, left.start)
}

/// What the owner of each task allows it, as a run sees it.
fn owners(bench: &mut Bench) -> Vec<(u32, String)> {
    let snapshot = bench.machine.observe(&mut Vec::new()).unwrap();
    snapshot.tasks.iter().map(|task| (task.id.tid, task.cpus_owner.to_string())).collect()
}

fn told<const N: usize>(expected: [(u32, &str); N]) -> Vec<(u32, String)> {
    expected.map(|(tid, cpus)| (tid, cpus.into())).into()
}

/// A thread that was left on one node is moved to the other; whichever run is undone first, its owner's mask is what is
/// there in the end.
#[test]
fn a_mask_that_was_kept_binds_no_later_run_and_its_owners_is_put_back_in_any_order() {
    for oldest_first in [true, false] {
        let mut first = Bench::new();
        let start = first.task(100).start;
        for tid in [100, 101] {
            first.place(tid, 0);
        }
        let mut second = Bench::on(first.shared.clone(), start);
        second.machine.take_over(masks(&first));
        let snapshot = second.machine.observe(&mut Vec::new()).unwrap();
        let free = snapshot.tasks.iter().map(|task| task.cpus_owner.to_string());
        assert_eq!(free.collect::<Vec<_>>(), ["0-7"; 2], "its owner allowed all");
        second.place(100, 1);
        let undone = match oldest_first {
            // Of the one that the second run did not move.
            true => [first.undone(), second.undone()],
            false => [second.undone(), first.undone()],
        };
        let expected = if oldest_first { [(1, 1), (1, 0)] } else { [(1, 0), (1, 0)] };
        assert_eq!(undone, expected);
        same_as_alone(0, "", &first.shared, &mut Story::default());
    }
}

/// Its owner has set another since: that is the owner's.
#[test]
fn a_mask_that_an_owner_set_after_a_run_that_kept_its_own_binds() {
    let mut first = Bench::new();
    first.place(100, 0);
    first.shared.0.borrow_mut().owner_sets(100, &"4-5".parse().unwrap());
    let mut second = Bench::on(first.shared.clone(), first.task(100).start);
    second.machine.take_over(masks(&first));
    let snapshot = second.machine.observe(&mut Vec::new()).unwrap();
    let owners = snapshot.tasks.iter().map(|task| task.cpus_owner.to_string());
    assert_eq!(owners.collect::<Vec<_>>(), ["4-5", "0-7"]);
}

/// A thread that had its owner's mask before the run that kept the same for others is its owner's still; one that was born
/// with it is free.
#[test]
fn who_was_born_with_a_kept_mask_is_told_from_whom_its_owner_gave_the_same() {
    let mut first = Bench::new();
    let start = first.task(100).start;
    first.shared.0.borrow_mut().owner_sets(101, &"0-3".parse().unwrap());
    first.shared.0.borrow_mut().run(1_000_000_000);
    first.place(100, 0);
    first.shared.0.borrow_mut().run(1_000_000_000);
    first.shared.0.borrow_mut().clone_thread(102, 100);
    let mut second = Bench::on(first.shared.clone(), start);
    second.machine.take_over(masks(&first));
    assert_eq!(owners(&mut second), told([(100, "0-7"), (101, "0-3"), (102, "0-7")]));
}

/// A run goes on for a while before it places a thread. A child that was started before that with the same CPUs has them
/// from its owner, and so have the threads that the child starts later. Neither that run nor the next takes them for ours.
#[test]
fn who_was_born_with_the_same_before_a_mask_was_set_keeps_it() {
    for by_the_next in [false, true] {
        let mut first = Bench::new();
        let start = first.task(100).start;
        first.shared.0.borrow_mut().run(1_000_000_000);
        first.shared.0.borrow_mut().spawn(200, Some(100), 1);
        first.shared.0.borrow_mut().owner_sets(200, &"0-3".parse().unwrap());
        first.shared.0.borrow_mut().run(1_000_000_000);
        first.place(100, 0);
        first.shared.0.borrow_mut().run(1_000_000_000);
        first.shared.0.borrow_mut().clone_thread(201, 200);
        // One that has ours.
        first.shared.0.borrow_mut().spawn(300, Some(100), 1);
        let left = first.left();
        let expected = [(100, "0-7"), (101, "0-7"), (200, "0-3"), (201, "0-3"), (300, "0-7")];
        if by_the_next {
            let mut next = Bench::on(first.shared.clone(), start);
            next.machine.take_over(Kept::of(&left.changes, left.start));
            assert_eq!(owners(&mut next), told(expected));
            next.undone();
        } else {
            assert_eq!(owners(&mut first), told(expected));
        }
        first.undo(&left);
        same_as_alone(0, "", &first.shared, &mut Story::default());
    }
}

/// One CPU of a mask that was kept, or all of them, went offline between the runs: it is not its owner's for that. A mask
/// of which nothing is left is put back at once, as one of this run's own is.
#[test]
fn a_mask_that_was_kept_is_known_with_cpus_of_it_offline() {
    for (offline, home, shows) in [(3..4, Some(NodeId(0)), "0-2"), (0..4, None, "4-7")] {
        let mut first = Bench::new();
        let start = first.task(100).start;
        first.place(100, 0);
        let masks = masks(&first);
        for cpu in offline.clone() {
            first.shared.0.borrow_mut().plug(CpuId(cpu), false);
        }
        let mut second = Bench::on(first.shared.clone(), start);
        second.machine.take_over(masks);
        let snapshot = second.machine.observe(&mut Vec::new()).unwrap();
        let task = &snapshot.tasks[0];
        let all = first.shared.0.borrow().online.clone();
        assert_eq!((&task.cpus_owner, task.home), (&all, home), "{offline:?}");
        assert_eq!(task.cpus_allowed.to_string(), shows);
        second.place(100, 1);
        for cpu in offline {
            first.shared.0.borrow_mut().plug(CpuId(cpu), true);
        }
        second.undone();
        first.undone();
        first.is_as_alone();
    }
}
