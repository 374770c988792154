//! Made-up processes, found look by look.

use super::*;
use crate::system::{Machine, Running};
use crate::testing::{FIELDS, put};
use std::path::Path;

fn thread(root: &Path, tgid: u32, tid: u32, children: &str) {
    let folder = format!("proc/{tgid}/task/{tid}");
    put(root, &format!("{folder}/stat"), &format!("{tid} (x) {FIELDS}"));
    put(root, &format!("{folder}/children"), children);
}

#[test]
fn children_are_looked_for_where_new_pids_are_not_those_of_threads() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let newest = |pid: u32| put(root, "proc/loadavg", &format!("0.1 0.2 0.3 1/99 {pid}\n"));
    let mut system = Running::new(root);
    let mut family = Family::of([ProcessId { tgid: 10, start: 424_242 }]);
    let mut find = |seconds: u64| {
        let (found, changed) =
            family.find(&mut system, Nanos(seconds * TRUSTED.0 / 10), |_| false).unwrap();
        let threads = found.iter().map(|member| member.threads.len()).sum::<usize>();
        (found.iter().map(|member| member.id.tgid).collect::<Vec<_>>(), threads, changed)
    };
    thread(root, 10, 10, "11 ");
    thread(root, 11, 11, "");
    newest(11);
    assert_eq!(find(0), (vec![10, 11], 2, true));
    // Two threads and nobody else; a child that no new pid tells of is one whose pid was chosen.
    thread(root, 11, 12, "");
    thread(root, 10, 13, "9 ");
    thread(root, 9, 9, "");
    newest(13);
    assert_eq!(find(1), (vec![10, 11], 4, false));
    assert_eq!(find(9), (vec![10, 11], 4, false));
    assert_eq!(find(10), (vec![9, 10, 11], 5, true));
    // A thread and a child, which has a child, and one that has ended.
    thread(root, 10, 14, "15 ");
    thread(root, 15, 15, "16 ");
    thread(root, 16, 16, "");
    newest(17);
    assert_eq!(find(11), (vec![9, 10, 11, 15, 16], 8, true));
    std::fs::remove_dir_all(root.join("proc/11")).unwrap();
    assert_eq!(find(12), (vec![9, 10, 15, 16], 6, true));
    // Past the highest pid.
    thread(root, 16, 16, "8 ");
    thread(root, 8, 8, "");
    newest(8);
    assert_eq!(find(13), (vec![8, 9, 10, 15, 16], 7, true));
}

#[test]
fn births_are_over_once_somebody_was_born_and_nobody_since() {
    let root = tempfile::tempdir().unwrap();
    let newest = |pid: u32| put(root.path(), "proc/loadavg", &format!("0.1 0.2 0.3 1/99 {pid}\n"));
    let mut system = Running::new(root.path());
    let mut family = Family::default();
    assert!(!family.births_are_over(&mut system) && !family.births_are_over(&mut system));
    newest(20);
    family.find(&mut system, Nanos(0), |_| false).unwrap();
    let mut over = |pid| {
        newest(pid);
        family.births_are_over(&mut system)
    };
    assert_eq!([20, 20, 21, 23, 23].map(&mut over), [false, false, false, false, true]);
    family.find(&mut system, Nanos(0), |_| false).unwrap();
    assert!(!family.births_are_over(&mut system));
}

#[test]
fn who_is_named_later_is_found_at_once_and_who_has_its_pid_now_is_not() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(root, "proc/loadavg", "0.1 0.2 0.3 1/99 20\n");
    thread(root, 10, 10, "");
    thread(root, 20, 20, "");
    let mut system = Running::new(root);
    let id = |tgid, start| ProcessId { tgid, start };
    let mut family = Family::of([id(10, 424_242)]);
    let mut find = |family: &mut Family| {
        let (found, _) = family.find(&mut system, Nanos(0), |_| false).unwrap();
        found.iter().map(|member| member.id.tgid).collect::<Vec<_>>()
    };
    assert_eq!(find(&mut family), [10]);
    family.retarget([id(20, 424_242)], []);
    assert_eq!(find(&mut family), [10, 20]);
    let mut family = Family::of([id(10, 424_241), id(20, 424_242)]);
    assert_eq!(find(&mut family), [20]);
}

/// A process of one thread that started at this tick, as a child of another.
fn born(root: &Path, (pid, start): (u32, u64), parent: u32, children: &str) {
    thread(root, pid, pid, children);
    let fields = FIELDS.replacen(" 7 ", &format!(" {parent} "), 1);
    let fields = fields.replace("424242", &start.to_string());
    put(root, &format!("proc/{pid}/task/{pid}/stat"), &format!("{pid} (x) {fields}"));
}

fn tgids(found: &[Member]) -> Vec<u32> {
    found.iter().map(|member| member.id.tgid).collect()
}

#[test]
fn we_are_not_of_a_family_that_we_descend_from_but_whom_we_started_is() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    // A shell, we, our supervisor, the command we were given, and its child.
    born(root, (10, 1), 1, "20 ");
    born(root, (20, 2), 10, "21 22 ");
    born(root, (21, 3), 20, "");
    born(root, (22, 4), 20, "23 ");
    born(root, (23, 5), 22, "");
    let mut system = Running::new(root);
    let id = |tgid, start| ProcessId { tgid, start };
    let mut family = Family::of([id(10, 1), id(20, 2), id(22, 4)]);
    family.leave_out(20);
    let mut find =
        |family: &mut Family| tgids(&family.find(&mut system, Nanos(0), |_| false).unwrap().0);
    assert_eq!(find(&mut family), [10, 22, 23]);
    // With no command, nobody is left once the shell has ended.
    let mut family = Family::of([id(10, 1)]);
    family.leave_out(20);
    assert_eq!(find(&mut family), [10]);
    std::fs::remove_dir_all(root.join("proc/10")).unwrap();
    assert_eq!(find(&mut family), []);
}

#[test]
fn with_who_is_busy_come_those_born_of_it_while_it_is_or_is_placed_and_no_others() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut system = Running::new(root);
    let ticks = |system: &mut Running| system.since_boot().0 / clock::tick().0;
    // Process 1 is busy for once, and a shell and a program descend from it.
    let (init, long_ago) = (ProcessId { tgid: 1, start: 0 }, 5);
    born(root, (1, 0), 0, "10 ");
    born(root, (10, long_ago), 1, "11 ");
    born(root, (11, long_ago), 10, "");
    let mut family = Family::default();
    let find = |family: &mut Family, system: &mut Running, placed: bool| {
        tgids(&family.find(system, Nanos(0), |process| placed && process.tgid == 1).unwrap().0)
    };
    family.retarget([], [init]);
    assert_eq!(find(&mut family, &mut system, false), [1]);
    // Born now, with a child: followed. A child of the one of before is not.
    let now = ticks(&mut system);
    born(root, (1, 0), 0, "10 30 ");
    born(root, (30, now), 1, "31 ");
    born(root, (31, now), 30, "");
    born(root, (10, long_ago), 1, "11 12 ");
    born(root, (12, now), 10, "");
    assert_eq!(find(&mut family, &mut system, false), [1, 30, 31]);
    // No longer busy: children born since the last look are followed, later ones not, unless it is placed.
    family.retarget([], []);
    let next = |pid: u32, system: &mut Running, family: &mut Family, placed| {
        let children: String = (30..=pid).map(|pid| format!("{pid} ")).collect();
        born(root, (1, 0), 0, &format!("10 {children}"));
        born(root, (pid, ticks(system)), 1, "");
        find(family, system, placed)
    };
    assert_eq!(next(40, &mut system, &mut family, false), [1, 30, 31, 40]);
    assert_eq!(next(41, &mut system, &mut family, false), [1, 30, 31, 40]);
    assert_eq!(next(42, &mut system, &mut family, true), [1, 30, 31, 40, 41, 42]);
    // Who is busy itself comes by itself, and who is named with all descendants.
    family.retarget([], [ProcessId { tgid: 11, start: long_ago }]);
    assert_eq!(find(&mut family, &mut system, false), [1, 11, 30, 31, 40, 41, 42]);
    family.retarget([ProcessId { tgid: 10, start: long_ago }], []);
    assert_eq!(find(&mut family, &mut system, false), [1, 10, 11, 12, 30, 31, 40, 41, 42]);
}

#[test]
fn who_was_busy_is_let_go_once_it_is_long_idle_and_nobody_of_it_is_placed() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut system = Running::new(root);
    let long_ago = 5;
    born(root, (10, long_ago), 1, "");
    born(root, (11, long_ago), 1, "");
    born(root, (12, long_ago), 1, "");
    let [named, service, placed] = [10, 11, 12].map(|tgid| ProcessId { tgid, start: long_ago });
    let mut family = Family::of([named]);
    let mut at = |second: u64, busy: &[ProcessId], is_placed: bool| {
        family.retarget([named], busy.iter().copied());
        let now = Nanos(second * 1_000_000_000);
        let whom = |process: &ProcessId| is_placed && *process == placed;
        let (found, changed) = family.find(&mut system, now, whom).unwrap();
        (tgids(&found), changed)
    };
    assert_eq!(at(0, &[service, placed], false), (vec![10, 11, 12], true));
    assert_eq!(at(2, &[], true), (vec![10, 11, 12], false));
    // Busy for a moment: its time begins anew.
    assert_eq!(at(200, &[service], true), (vec![10, 11, 12], false));
    assert_eq!(at(202, &[], true), (vec![10, 11, 12], false));
    assert_eq!(at(501, &[], true), (vec![10, 11, 12], false));
    assert_eq!(at(502, &[], true), (vec![10, 12], true));
    assert_eq!(at(503, &[], true), (vec![10, 12], false));
    // The other's begins once nobody of it is placed; and whoever is named stays for ever.
    assert_eq!(at(900, &[], false), (vec![10, 12], false));
    assert_eq!(at(1200, &[], false), (vec![10], true));
    // Busy again: found again.
    assert_eq!(at(1300, &[service], false), (vec![10, 11], true));
}
