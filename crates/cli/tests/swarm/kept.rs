//! Masks that an ended run left in place (`--keep`), and a run after it.

use std::collections::BTreeMap;

use numaherd_linux::live::Kept;
use numaherd_model::{Observe, TaskId};

use crate::refused::Bench;
use crate::{Story, same_as_alone};

fn masks(bench: &Bench) -> BTreeMap<TaskId, Kept> {
    let left = bench.left();
    Kept::of(&left.changes, left.start)
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
    first.place(100, 0);
    first.shared.0.borrow_mut().run(1_000_000_000);
    first.shared.0.borrow_mut().clone_thread(102, 100);
    let mut second = Bench::on(first.shared.clone(), start);
    let mut masks = masks(&first);
    // It began after its processes.
    masks.values_mut().for_each(|kept| kept.since = start + 1);
    second.machine.take_over(masks);
    let snapshot = second.machine.observe(&mut Vec::new()).unwrap();
    let owners = snapshot.tasks.iter().map(|task| (task.id.tid, task.cpus_owner.to_string()));
    let expected = [(100, "0-7"), (101, "0-3"), (102, "0-7")].map(|(tid, cpus)| (tid, cpus.into()));
    assert_eq!(owners.collect::<Vec<_>>(), expected);
}
