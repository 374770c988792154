//! Masks of ours that were handed down, or to another program, or back.

use numaherd_model::Observe;

use crate::refused::Bench;
use crate::{Story, same_as_alone};

const SECOND: u64 = 1_000_000_000;

/// Looks; answers what these may run on then, and how many programs began with a mask of ours.
fn look<const N: usize>(bench: &mut Bench, tids: [u32; N]) -> ([String; N], u64) {
    bench.machine.observe(&mut Vec::new()).unwrap();
    let kernel = bench.shared.0.borrow();
    let shows = tids.map(|tid| kernel.affinity(tid).unwrap().to_string());
    (shows, bench.machine.born_confined())
}

/// They were born after the look that the plan was made of, and before it was carried out.
#[test]
fn who_was_born_just_before_its_parent_was_released_or_went_elsewhere_is_set_free() {
    for released in [true, false] {
        let mut bench = Bench::new();
        bench.place(100, 0);
        bench.shared.0.borrow_mut().run(SECOND);
        look(&mut bench, []);
        bench.shared.0.borrow_mut().run(SECOND);
        bench.shared.0.borrow_mut().spawn(200, Some(100), 1);
        bench.shared.0.borrow_mut().clone_thread(102, 100);
        bench.shared.0.borrow_mut().run(SECOND);
        if released {
            bench.release(100)
        } else {
            bench.place(100, 1)
        };
        let parents = if released { "0-7" } else { "4-7" };
        let expected = [parents, "0-7", "0-7"].map(String::from);
        assert_eq!(look(&mut bench, [100, 102, 200]), (expected, 1), "{released}");
        bench.undone();
        same_as_alone(0, "", &bench.shared, &mut Story::default());
    }
}

/// Its children have lost it, and it was placed itself.
#[test]
fn whose_placed_parent_ended_before_a_look_is_set_free() {
    for late in [false, true] {
        let mut bench = Bench::hearing();
        bench.shared.0.borrow_mut().spawn(200, Some(100), 1);
        (0..if late { 4 } else { 1 }).for_each(|_| _ = look(&mut bench, []));
        bench.shared.0.borrow_mut().run(SECOND);
        bench.place_born(200, 0);
        bench.shared.0.borrow_mut().run(SECOND);
        bench.shared.0.borrow_mut().spawn(300, Some(200), 1);
        bench.shared.0.borrow_mut().end(200);
        assert_eq!(look(&mut bench, [300]), (["0-7".into()], 1), "{late}");
        bench.undone();
        bench.is_as_alone();
    }
}

/// It was started with the same CPUs that its parent had from us until a moment ago.
#[test]
fn who_was_born_after_its_parent_was_released_has_its_owners() {
    let mut bench = Bench::new();
    bench.place(100, 0);
    bench.shared.0.borrow_mut().run(SECOND);
    look(&mut bench, []);
    bench.release(100);
    bench.shared.0.borrow_mut().run(SECOND);
    bench.shared.0.borrow_mut().spawn(200, Some(100), 1);
    bench.shared.0.borrow_mut().owner_sets(200, &"0-3".parse().unwrap());
    assert_eq!(look(&mut bench, [200]), (["0-3".into()], 0));
    // The last line of all may not have been made.
    bench.place(101, 1);
    bench.undone();
    same_as_alone(0, "", &bench.shared, &mut Story::default());
}

/// A program that goes to the background: its first process starts another and ends, before anybody looks. A stranger with
/// such CPUs of its own has them from its owner, though its parent has ended too.
#[test]
fn who_lost_its_parent_before_a_look_is_looked_after_and_set_free() {
    let mut bench = Bench::hearing();
    bench.place(100, 0);
    bench.shared.0.borrow_mut().run(SECOND);
    {
        let mut kernel = bench.shared.0.borrow_mut();
        kernel.spawn(200, Some(100), 1);
        kernel.spawn(300, Some(200), 1);
        kernel.end(200);
        kernel.spawn(400, None, 1);
        kernel.owner_sets(400, &"0-3".parse().unwrap());
        kernel.spawn(500, Some(400), 1);
        kernel.end(400);
        // A daemon of a daemon.
        kernel.spawn(600, Some(300), 1);
        kernel.spawn(700, Some(600), 1);
        kernel.end(600);
    }
    let expected = ["0-7", "0-3", "0-7"].map(String::from);
    assert_eq!(look(&mut bench, [300, 500, 700]), (expected, 2));
    let tids = bench.machine.observe(&mut Vec::new()).unwrap().tasks;
    let tids: Vec<u32> = tids.iter().map(|task| task.id.tid).collect();
    assert_eq!(tids, [100, 101, 300, 700]);
    // And one of its own later.
    bench.place_born(300, 0);
    bench.shared.0.borrow_mut().run(SECOND);
    {
        let mut kernel = bench.shared.0.borrow_mut();
        kernel.spawn(800, Some(300), 1);
        kernel.spawn(900, Some(800), 1);
        kernel.end(800);
    }
    assert_eq!(look(&mut bench, [900]), (["0-7".into()], 3));
    bench.undone();
    bench.is_as_alone();
}

/// Whichever thread executes it becomes the main one, and has its own mask still.
#[test]
fn who_executes_another_program_is_set_free() {
    for (tid, both) in [(100, false), (100, true), (101, true), (101, false)] {
        let mut bench = Bench::new();
        bench.place(tid, 0);
        if both {
            bench.place(201 - tid, 1);
        }
        bench.shared.0.borrow_mut().run(SECOND);
        assert_eq!(look(&mut bench, []).1, 0);
        bench.shared.0.borrow_mut().execute(tid);
        let (shows, begun) = look(&mut bench, [100]);
        assert_eq!((shows, begun), (["0-7".to_string()], 1), "{tid} {both}");
        bench.undone();
        same_as_alone(0, "", &bench.shared, &mut Story::default());
    }
}

/// Nobody has looked since.
#[test]
fn of_who_executed_another_program_the_mask_is_undone() {
    for tid in [100, 101] {
        let mut bench = Bench::new();
        bench.place(100, 0);
        bench.place(101, 1);
        bench.shared.0.borrow_mut().execute(tid);
        assert_eq!(bench.undone(), (1, 0));
        same_as_alone(0, "", &bench.shared, &mut Story::default());
    }
}

/// A thread has ended, and to the main one its owner gives, or gave before, the CPUs that the former had from us. That it is
/// the owner's is known by a look, or by a thread that was there before.
#[test]
fn what_an_owner_gave_a_main_thread_is_not_undone() {
    for (placed, looks, others) in
        [(true, true, false), (true, false, true), (false, false, true), (false, true, true)]
    {
        let mut bench = Bench::new();
        if others {
            bench.shared.0.borrow_mut().clone_thread(102, 100);
            look(&mut bench, []);
        }
        bench.shared.0.borrow_mut().run(SECOND);
        if placed {
            bench.place(100, 0);
        }
        bench.place(101, 1);
        bench.shared.0.borrow_mut().run(SECOND);
        bench.shared.0.borrow_mut().end(101);
        bench.shared.0.borrow_mut().owner_sets(100, &"4-7".parse().unwrap());
        if looks {
            look(&mut bench, []);
        }
        // Who never was ours, or was given back, is none that somebody changed since.
        let changed = usize::from(placed && !looks);
        assert_eq!(bench.undone(), (0, changed), "{placed} {looks} {others}");
        same_as_alone(0, "", &bench.shared, &mut Story::default());
    }
}

/// It was bound to the CPUs that another thread had from us, and executes a program.
#[test]
fn a_main_thread_that_was_its_owners_is_so_after_it_executed_a_program() {
    let mut bench = Bench::new();
    bench.shared.0.borrow_mut().owner_sets(100, &"0-3".parse().unwrap());
    look(&mut bench, []);
    bench.place(101, 0);
    look(&mut bench, []);
    bench.shared.0.borrow_mut().execute(100);
    assert_eq!(look(&mut bench, [100]), (["0-3".into()], 0));
}

/// A program reads its mask, binds itself for a moment, in which we look, and puts back what it read.
#[test]
fn a_mask_of_ours_that_a_program_remembered_is_ours_again() {
    for (away, ours) in [(2 * SECOND, true), (11 * SECOND, false)] {
        let mut bench = Bench::new();
        bench.place(100, 0);
        bench.shared.0.borrow_mut().owner_sets(100, &"2".parse().unwrap());
        look(&mut bench, []);
        bench.shared.0.borrow_mut().run(away);
        let ours_again = bench.shared.0.borrow_mut().tasks.get_mut(&100).map(|task| {
            let all = "0-7".parse().unwrap();
            task.real.set(&"0-3".parse().unwrap(), &all, &all)
        });
        assert_eq!(ours_again, Some(true));
        let snapshot = bench.machine.observe(&mut Vec::new()).unwrap();
        assert_eq!(snapshot.tasks[0].home.is_some(), ours, "{away}");
        assert_eq!(snapshot.tasks[0].cpus_owner.len(), if ours { 8 } else { 4 });
    }
}
