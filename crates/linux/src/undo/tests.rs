//! Undoing on the running kernel, of processes and files of our own.

use super::*;
use crate::process::TaskReader;
use crate::sys::affinity;
use std::process::{Child, Command};

struct Sleeper(Child);

impl Sleeper {
    fn start(mark: &str) -> Sleeper {
        let mut command = Command::new("sleep");
        command.arg("60").env("NUMAHERD_RUN", mark);
        let sleeper = Sleeper(command.spawn().unwrap());
        // Started is not yet ready: its environment appears a moment later.
        let environ = format!("/proc/{}/environ", sleeper.0.id());
        while std::fs::read(&environ).unwrap().is_empty() {
            std::thread::yield_now();
        }
        sleeper
    }
    fn task(&self) -> TaskId {
        let pid = self.0.id();
        TaskReader::new("/".as_ref()).stat(pid, pid).unwrap().unwrap().id
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn change(task: TaskId, before: &CpuSet, after: &CpuSet) -> (Nanos, Change) {
    let process = ProcessId { tgid: task.tid, start: task.start };
    (Nanos(0), Change::Affinity { task, process, before: before.clone(), after: after.clone() })
}

fn trail<'a>(changes: &'a [(Nanos, Change)], mark: Option<&'a str>) -> Trail<'a> {
    Trail { changes, mark, since: 0 }
}

/// All CPUs, and one of them; None on a machine with one CPU, where nothing can be told
/// apart.
fn masks() -> Option<(CpuSet, CpuSet)> {
    let all = affinity::get(0).unwrap();
    let one: CpuSet = all.iter().take(1).collect();
    (all.len() > 1).then_some((all, one))
}

#[test]
fn what_is_still_ours_is_put_back_and_what_the_owner_changed_stays() {
    let Some((all, one)) = masks() else { return };
    let (ours, theirs) = (Sleeper::start("a"), Sleeper::start("a"));
    affinity::set(ours.task().tid, &one).unwrap();
    let other: CpuSet = all.iter().skip(1).take(1).collect();
    affinity::set(theirs.task().tid, &other).unwrap();
    let changes = [change(ours.task(), &all, &one), change(theirs.task(), &all, &one)];
    let undone = undo("/".as_ref(), trail(&changes, None), false);
    assert_eq!((undone.affinities, undone.changed_since, undone.failed.len()), (1, 1, 0));
    assert_eq!(affinity::get(ours.task().tid).unwrap(), all);
    assert_eq!(affinity::get(theirs.task().tid).unwrap(), other);
}

#[test]
fn an_orphan_that_inherited_is_found_by_its_mark() {
    let Some((all, one)) = masks() else { return };
    let mark = format!("undo-test-{}", std::process::id());
    let (parent, orphan, stranger) =
        (Sleeper::start("x"), Sleeper::start(&mark), Sleeper::start("y"));
    for sleeper in [&orphan, &stranger] {
        affinity::set(sleeper.task().tid, &one).unwrap();
    }
    let changes = [change(parent.task(), &all, &one)];
    let undone = undo("/".as_ref(), trail(&changes, Some(&format!("NUMAHERD_RUN={mark}"))), false);
    assert_eq!((undone.inherited, undone.affinities), (1, 1));
    assert_eq!(affinity::get(orphan.task().tid).unwrap(), all);
    assert_eq!(affinity::get(stranger.task().tid).unwrap(), one);
}

#[test]
fn a_change_that_was_written_down_and_not_made_leaves_the_one_before() {
    let Some((all, one)) = masks() else { return };
    let other: CpuSet = all.iter().skip(1).take(1).collect();
    let sleeper = Sleeper::start("w");
    affinity::set(sleeper.task().tid, &one).unwrap();
    let changes = [change(sleeper.task(), &all, &one), change(sleeper.task(), &all, &other)];
    let undone = undo("/".as_ref(), trail(&changes, None), false);
    assert_eq!((undone.affinities, undone.changed_since), (1, 0));
    assert_eq!(affinity::get(sleeper.task().tid).unwrap(), all);
}

#[test]
fn a_reused_tid_is_left_alone() {
    let Some((all, one)) = masks() else { return };
    let sleeper = Sleeper::start("z");
    affinity::set(sleeper.task().tid, &one).unwrap();
    let other = TaskId { start: sleeper.task().start + 1, ..sleeper.task() };
    let undone = undo("/".as_ref(), trail(&[change(other, &all, &one)], None), false);
    assert_eq!(undone.gone, 1);
}

#[test]
fn knobs_go_back_to_the_first_value_unless_changed_since() {
    let dir = tempfile::tempdir().unwrap();
    let knob = |name: &str, before: &str, after: &str| {
        let path = dir.path().join(name);
        (Nanos(0), Change::Knob { path, before: before.into(), after: after.into() })
    };
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("ours", "3\n");
    write("theirs", "9\n");
    let changes = [knob("ours", "1", "2"), knob("ours", "2", "3"), knob("theirs", "1", "2")];
    let dry = undo("/".as_ref(), trail(&changes, None), true);
    assert_eq!(
        (dry.knobs, std::fs::read_to_string(dir.path().join("ours")).unwrap()),
        (1, "3\n".into())
    );
    let undone = undo("/".as_ref(), trail(&changes, None), false);
    assert_eq!((undone.knobs, undone.changed_since), (1, 1));
    assert_eq!(std::fs::read_to_string(dir.path().join("ours")).unwrap(), "1");
    assert_eq!(std::fs::read_to_string(dir.path().join("theirs")).unwrap(), "9\n");
}

/// Killed between the line and the write of a second value, the first is there still, and is ours; what
/// somebody wrote in between is not, though the line says it was there.
#[test]
fn a_knob_whose_last_change_was_not_made_goes_back_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let knob = |name: &str, before: &str, after: &str| {
        (Nanos(0), Change::Knob { path: path(name), before: before.into(), after: after.into() })
    };
    std::fs::write(path("ours"), "2\n").unwrap();
    std::fs::write(path("theirs"), "7\n").unwrap();
    let changes = [
        knob("ours", "1", "2"),
        knob("ours", "2", "3"),
        knob("ours", "2", "4"),
        knob("theirs", "1", "2"),
        knob("theirs", "7", "3"),
    ];
    let undone = undo("/".as_ref(), trail(&changes, None), false);
    assert_eq!((undone.knobs, undone.changed_since), (1, 1));
    assert_eq!(std::fs::read_to_string(path("ours")).unwrap(), "1");
    assert_eq!(std::fs::read_to_string(path("theirs")).unwrap(), "7\n");
}

/// Also where no more of the journal is kept than is needed.
#[test]
fn what_somebody_else_made_of_a_knob_meanwhile_is_what_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("knob");
    let knob = |(before, after): (&str, &str)| {
        let (before, after) = (before.to_string(), after.to_string());
        (Nanos(0), Change::Knob { path: path.clone(), before, after })
    };
    let values = [("60", "1"), ("1", "2"), ("30", "1"), ("1", "4"), ("4", "2"), ("2", "8")];
    let changes = values.map(knob);
    // Written down one after another; what was left out is missed at none of them.
    let mut kept = Vec::new();
    for (nth, change) in changes.iter().enumerate() {
        kept.push(change.clone());
        kept = in_force("/".as_ref(), &kept);
        for changes in [&changes[..=nth], &kept] {
            std::fs::write(&path, values[nth].1).unwrap();
            assert_eq!(undo("/".as_ref(), trail(changes, None), false).knobs, 1);
            let original = if nth < 2 { "60" } else { "30" };
            assert_eq!(std::fs::read_to_string(&path).unwrap(), original, "{nth}");
        }
    }
    // The last was not made.
    std::fs::write(&path, "2").unwrap();
    assert_eq!(undo("/".as_ref(), trail(&kept, None), false).knobs, 1);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "30");
}

/// As where debugfs is not mounted: nobody changed it, and it is to be put back once it is there.
#[test]
fn a_knob_that_cannot_be_read_is_told_and_not_taken_for_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("unmounted/knob");
    let changes = [(Nanos(0), Change::Knob { path, before: "1".into(), after: "2".into() })];
    let undone = undo("/".as_ref(), trail(&changes, None), false);
    assert_eq!((undone.knobs, undone.changed_since, undone.failed.len()), (0, 0, 1));
    assert!(undone.failed[0].contains("unmounted/knob"), "{undone:?}");
}

/// A run that goes on for months writes down thousands of newborns that have ended since.
#[test]
fn what_is_left_out_of_a_journal_is_not_missed() {
    let Some((all, one)) = masks() else { return };
    let other: CpuSet = all.iter().skip(1).take(1).collect();
    let (placed, released) = (Sleeper::start("p"), Sleeper::start("r"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("knob");
    std::fs::write(&path, "300").unwrap();
    let knob = |before: &str, after: &str| {
        let (before, after) = (before.to_string(), after.to_string());
        (Nanos(0), Change::Knob { path: path.clone(), before, after })
    };
    let mut changes = Vec::new();
    for nth in 0..1000 {
        let ended = TaskId { start: placed.task().start + 1 + nth, ..placed.task() };
        let (to, ms) = if nth % 2 == 0 { (&one, "100") } else { (&other, "300") };
        changes.push(change(ended, &all, to));
        changes.push(change(placed.task(), &all, to));
        changes.push(change(released.task(), &all, to));
        changes.push(knob(
            if nth == 0 {
                "1000"
            } else if ms == "100" {
                "300"
            } else {
                "100"
            },
            ms,
        ));
    }
    // Refused, and not told yet.
    changes.push(knob("300", "100"));
    changes.push(change(released.task(), &all, &all));
    changes.push(change(placed.task(), &all, &one));
    affinity::set(placed.task().tid, &other).unwrap();
    let needed = in_force("/".as_ref(), &changes);
    assert!(needed.len() < 20, "{} lines", needed.len());
    assert!(needed.iter().all(|line| changes.contains(line)));
    assert_eq!(in_force("/".as_ref(), &needed), needed, "nothing is left out twice");
    let undone = undo("/".as_ref(), trail(&needed, None), false);
    assert_eq!((undone.affinities, undone.knobs, undone.changed_since), (1, 1, 0), "{undone:?}");
    assert_eq!(affinity::get(placed.task().tid).unwrap(), all);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1000");
}
