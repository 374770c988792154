//! Balances that go on now, by the journals that they keep: whom they look after, and what they have switched off.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use numaherd_linux::knobs::Knob;
use numaherd_linux::live::Kept;
use numaherd_linux::process::TaskReader;
use numaherd_linux::sys::identity::effective_user;
use numaherd_model::{Change, ProcessId, TaskId};
use numaherd_trace::LeftBehind;

use crate::session::{is_alive, left_behind};
use crate::strangers::strangers;

/// This user's runs that still change things.
///
/// # Errors
/// The folder of journals cannot be read.
pub fn living(dir: &Path) -> Result<Vec<LeftBehind>> {
    let mut reader = TaskReader::new("/".as_ref());
    let boot = reader.boot_id()?;
    let mut living = Vec::new();
    for left in left_behind(dir)?.journals {
        if left.boot == boot && !left.kept && is_alive(&left, &mut reader)? {
            living.push(left);
        }
    }
    Ok(living)
}

/// The masks that this user's ended runs left in place on purpose: of each task the last, for who was taken over by a later
/// run has that one's.
///
/// # Errors
/// The folder of journals cannot be read.
pub fn kept(dir: &Path) -> Result<BTreeMap<TaskId, Kept>> {
    let mut journals = left_behind(dir)?.journals;
    let boot = TaskReader::new("/".as_ref()).boot_id()?;
    journals.retain(|left| left.kept && left.boot == boot);
    journals.sort_by_key(|left| left.start);
    let mut kept = BTreeMap::new();
    journals.iter().for_each(|left| kept.extend(Kept::of(&left.changes, left.start)));
    kept.retain(|_, mask| mask.owner != mask.set);
    Ok(kept)
}

/// Which run it is, in words.
pub fn told(left: &LeftBehind) -> String {
    let LeftBehind { run, pid, about, .. } = left;
    format!("run {run} of process {pid} ({about})")
}

/// Whether a run names a process, or has placed it.
pub fn looks_after(left: &LeftBehind, process: ProcessId) -> bool {
    named(left).any(|tgid| tgid == process.tgid) || placed(left).any(|of| of == process)
}

/// The processes that a run looks after and that are there, by their ids.
pub fn looked_after(left: &LeftBehind, reader: &mut TaskReader) -> BTreeSet<u32> {
    let placed: BTreeSet<ProcessId> = placed(left).collect();
    let mut lives = |of: &ProcessId| {
        let stat = reader.stat(of.tgid, of.tgid).ok().flatten();
        stat.is_some_and(|stat| stat.id.start == of.start)
    };
    let there = placed.into_iter().filter(|of| lives(of)).map(|of| of.tgid);
    there.chain(named(left)).collect()
}

/// The processes that other runs than this one look after, with their descendants, and which; none where those cannot be
/// read. Of `namesakes`, those that are called as we are, some may be other users', to whom some of the `busy` are left. Next to
/// nothing where there are no others.
pub fn beside(
    dir: &Path,
    run: &str,
    (namesakes, busy): (&[u32], &[ProcessId]),
) -> BTreeMap<u32, String> {
    let mut reader = TaskReader::new("/".as_ref());
    let mut theirs = strangers(&mut reader, effective_user(), namesakes, busy);
    theirs.extend(own_beside(dir, run));
    theirs
}

/// The same of this user's runs.
fn own_beside(dir: &Path, run: &str) -> BTreeMap<u32, String> {
    let is_other = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        name.to_str().and_then(|name| name.strip_suffix(".journal")).is_some_and(|of| of != run)
    };
    let mut theirs = BTreeMap::new();
    if !std::fs::read_dir(dir).is_ok_and(|entries| entries.flatten().any(is_other)) {
        return theirs;
    }
    let mut reader = TaskReader::new("/".as_ref());
    for left in living(dir).unwrap_or_default().iter().filter(|left| left.run != run) {
        let why = format!("{} looks after it", told(left));
        // What it has started, too.
        let roots = looked_after(left, &mut reader).into_iter().chain([left.pid]);
        for root in roots.collect::<Vec<_>>() {
            let tree = reader.tree(root).unwrap_or_default();
            theirs.extend(tree.into_iter().map(|tgid| (tgid, why.clone())));
        }
    }
    theirs
}

fn named(left: &LeftBehind) -> impl Iterator<Item = u32> {
    let each = left.about.split(", ").filter_map(|about| about.strip_prefix("process "));
    each.filter_map(|tgid| tgid.parse().ok())
}

fn placed(left: &LeftBehind) -> impl Iterator<Item = ProcessId> {
    left.changes.iter().filter_map(|(_, change)| match change {
        Change::Affinity { process, .. } => Some(*process),
        Change::Knob { .. } => None,
    })
}

/// Whether it was the run that switched the kernel's balancing off, and has not switched it on again: so it does once
/// nothing is left to find out.
pub fn has_switched_off(left: &LeftBehind) -> bool {
    let is_balancing =
        |path: &Path| Knob::NumaBalancing.paths().iter().any(|name| path.ends_with(name));
    let last = left.changes.iter().rev().find_map(|(_, change)| match change {
        Change::Knob { path, after, .. } if is_balancing(path) => Some(after),
        _ => None,
    });
    // Tiering stays as it was.
    last.is_some_and(|mode| mode.trim().parse().is_ok_and(|mode: u64| mode & 1 == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::{Journal, Nanos};
    use numaherd_trace::{Event, FileJournal};

    fn run(about: &str, changes: Vec<Change>) -> LeftBehind {
        LeftBehind {
            path: "j".into(),
            run: "r".into(),
            boot: "b".into(),
            pid: 1,
            start: 1,
            about: about.into(),
            tunes: false,
            kept: false,
            changes: changes.into_iter().map(|change| (Nanos(0), change)).collect(),
            unreadable: Vec::new(),
        }
    }

    fn placed(process: ProcessId) -> Change {
        let task = TaskId { tid: 9, start: 1 };
        Change::Affinity { task, process, before: Default::default(), after: Default::default() }
    }

    #[test]
    fn a_run_looks_after_whom_it_names_and_whom_it_has_placed() {
        let process = |tgid| ProcessId { tgid, start: 1 };
        let left = run("process 12, process 3", vec![placed(process(7))]);
        let looks = [1, 2, 3, 7, 12].map(|tgid| looks_after(&left, process(tgid)));
        assert_eq!(looks, [false, false, true, true, true]);
        // Of those that were placed only who is there, and not who has an id of one that has ended.
        let mut reader = TaskReader::new("/".as_ref());
        let ours = std::process::id();
        let start = reader.stat(ours, ours).unwrap().unwrap().id.start;
        let own = ProcessId { tgid: ours, start };
        let of = |process| {
            looked_after(&run("sleep 9", vec![placed(process)]), &mut TaskReader::new("/".as_ref()))
        };
        assert_eq!(of(own), BTreeSet::from([ours]));
        assert_eq!(of(ProcessId { start: start + 1, ..own }), BTreeSet::new());
        assert_eq!(
            looked_after(&run("process 4, process 5", Vec::new()), &mut reader),
            BTreeSet::from([4, 5])
        );
    }

    #[test]
    fn of_masks_that_were_left_in_place_the_last_counts() {
        let dir = tempfile::tempdir().unwrap();
        let boot = TaskReader::new("/".as_ref()).boot_id().unwrap();
        let cpus = |list: &str| list.parse::<numaherd_model::CpuSet>().unwrap();
        let change = |tid, before: &str, after: &str| {
            let (task, process) = (TaskId { tid, start: 1 }, ProcessId { tgid: 7, start: 1 });
            Change::Affinity { task, process, before: cpus(before), after: cpus(after) }
        };
        let write = |run: &str, boot: &str, start, keep: bool, changes: &[Change]| {
            let (run, boot) = (run.to_string(), boot.to_string());
            let (about, tunes) = (String::new(), false);
            let name = run.clone();
            // Of a process that is not there.
            let begin = Event::Begin { run, boot, pid: u32::MAX >> 1, start, about, tunes };
            let user = numaherd_linux::sys::identity::effective_user();
            let mut journal = FileJournal::create(dir.path(), user, &name, begin).unwrap();
            changes.iter().for_each(|change| journal.before(change).unwrap());
            if keep {
                journal.keep().unwrap();
            }
        };
        write("a", &boot, 20, true, &[change(7, "0-7", "4-7")]);
        write("b", &boot, 10, true, &[change(7, "0-7", "0-3"), change(8, "0-7", "0-3")]);
        // One that was released, one that is to be put back, and one of another boot.
        write("c", &boot, 30, true, &[change(9, "0-7", "0-3"), change(9, "0-7", "0-7")]);
        write("d", &boot, 30, false, &[change(7, "0-7", "0-1")]);
        write("e", "another", 40, true, &[change(7, "0-7", "0-1")]);
        let kept = kept(dir.path()).unwrap();
        let told = kept.iter().map(|(task, of)| (task.tid, of.set.to_string(), of.since));
        // When the change was written down, which may have taken its time.
        let since = |run: &str, line: usize| {
            let left = LeftBehind::read(&dir.path().join(format!("{run}.journal")));
            let left = left.unwrap().unwrap();
            left.start + left.changes[line].0.0 / numaherd_linux::sys::clock::tick().0
        };
        let expected = [(7, "4-7".into(), since("a", 0)), (8, "0-3".into(), since("b", 1))];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert!(expected[0].2 >= 20 && expected[1].2 >= 10);
        assert!(kept.values().all(|of| of.owner == cpus("0-7")));
    }

    #[test]
    fn a_run_that_switched_the_balancing_off_is_told_from_one_that_switched_it_on_again() {
        let knob = |name: &str, after: &str| Change::Knob {
            path: name.into(),
            before: String::new(),
            after: after.into(),
        };
        let balancing = |after| knob("/proc/sys/kernel/numa_balancing", after);
        let other = || knob("/sys/kernel/debug/sched/numa_balancing/scan_size_mb", "0");
        assert!(!has_switched_off(&run("", vec![other()])));
        assert!(has_switched_off(&run("", vec![balancing("1"), balancing("0"), other()])));
        assert!(!has_switched_off(&run("", vec![balancing("0"), balancing("1")])));
    }
}
