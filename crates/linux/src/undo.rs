//! Putting back what was changed: affinities, of children too, and knobs.
//!
//! A value is put back only if it still is what we wrote; someone may have changed it since.
//! A thread or process born with an affinity of ours is not in the journal if nobody looked
//! between its birth and now; it is recognised by its descent, or by the mark in its
//! environment, and by having exactly a mask that we set.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use numaherd_model::{Change, CpuSet, TaskId};

use crate::process::TaskReader;
use crate::sys::affinity;

/// Looks at all tasks again after a pass that found some: they may have been forking.
const MOST_PASSES: usize = 8;

/// Generations looked back for the process that handed a mask down.
const MOST_ANCESTORS: usize = 16;

/// A mask we set, with the processes it was set in and what their owners had allowed.
type Masks = BTreeMap<CpuSet, Vec<(u32, CpuSet)>>;

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Affinities put back.
    pub affinities: usize,
    /// Of those, tasks that had inherited ours.
    pub inherited: usize,
    /// Knobs put back.
    pub knobs: usize,
    /// Values that somebody changed since; they stay.
    pub changed_since: usize,
    /// Tasks that ended.
    pub gone: usize,
    /// What could not be put back, in plain words.
    pub failed: Vec<String>,
}

/// What is to be put back for a task: the first value before us, the last one of ours.
struct Entry {
    tgid: u32,
    before: CpuSet,
    after: CpuSet,
}

/// Undoes `changes`, oldest first in the list. `mark` is the `NAME=value` that our descendants
/// carry in their environment. With `dry_run` nothing is written, only counted.
pub fn undo(root: &Path, changes: &[Change], mark: Option<&str>, dry_run: bool) -> Undone {
    let mut undone = Undone::default();
    knobs(changes, dry_run, &mut undone);
    let mut reader = TaskReader::new(root);
    let mut tasks: BTreeMap<TaskId, Entry> = BTreeMap::new();
    let mut masks = Masks::new();
    for change in changes {
        let Change::Affinity { task, process, before, after } = change else { continue };
        if after != before {
            masks.entry(after.clone()).or_default().push((process.tgid, before.clone()));
        }
        tasks.entry(*task).and_modify(|entry| entry.after = after.clone()).or_insert_with(|| {
            Entry { tgid: process.tgid, before: before.clone(), after: after.clone() }
        });
    }
    // Those we know first: what they give birth to from then on has its own mask.
    let mut seen: BTreeSet<TaskId> = BTreeSet::new();
    for (task, entry) in &tasks {
        put_back(&mut reader, *task, entry, dry_run, &mut undone);
        seen.insert(*task);
    }
    let roots: BTreeSet<u32> = tasks.values().map(|entry| entry.tgid).collect();
    for _ in 0..MOST_PASSES {
        let before = undone.inherited;
        heirs(&mut reader, &roots, mark, &masks, &mut seen, dry_run, &mut undone);
        if undone.inherited == before {
            break;
        }
    }
    undone
}

fn put_back(
    reader: &mut TaskReader,
    task: TaskId,
    entry: &Entry,
    dry_run: bool,
    undone: &mut Undone,
) {
    let alive =
        reader.stat(entry.tgid, task.tid).ok().flatten().is_some_and(|stat| stat.id == task);
    let Some(current) = affinity::get(task.tid).ok().filter(|_| alive) else {
        undone.gone += 1;
        return;
    };
    if current != entry.after {
        // Never set after all, put back already, or the owner's own.
        undone.changed_since += usize::from(current != entry.before);
        return;
    }
    restore(task.tid, &entry.before, dry_run, undone);
}

fn restore(tid: u32, cpus: &CpuSet, dry_run: bool, undone: &mut Undone) {
    if dry_run {
        undone.affinities += 1;
        return;
    }
    match affinity::set(tid, cpus) {
        Ok(()) => undone.affinities += 1,
        Err(error) if error.is_gone() => undone.gone += 1,
        Err(error) => undone.failed.push(format!("task {tid}: {error}")),
    }
}

/// Tasks that inherited a mask of ours.
fn heirs(
    reader: &mut TaskReader,
    roots: &BTreeSet<u32>,
    mark: Option<&str>,
    masks: &Masks,
    seen: &mut BTreeSet<TaskId>,
    dry_run: bool,
    undone: &mut Undone,
) {
    let mut family: BTreeSet<u32> = BTreeSet::new();
    for &root in roots {
        family.extend(reader.tree(root).unwrap_or_default());
    }
    if let Some(mark) = mark {
        for tgid in reader.processes().unwrap_or_default() {
            if reader.has_mark(tgid, mark).is_ok_and(|marked| marked == Some(true)) {
                family.insert(tgid);
            }
        }
    }
    for tgid in family {
        for tid in reader.threads(tgid).ok().flatten().unwrap_or_default() {
            let Some(stat) = reader.stat(tgid, tid).ok().flatten() else { continue };
            if seen.contains(&stat.id) {
                continue;
            }
            let Some(set) = affinity::get(tid).ok().and_then(|now| masks.get(&now)) else {
                continue;
            };
            let Some(owner) = owner_of(reader, stat.ppid, tgid, set) else { continue };
            seen.insert(stat.id);
            undone.inherited += 1;
            restore(tid, owner, dry_run, undone);
        }
    }
}

/// What the owner allowed a task that has a mask we set: as for its own process, or the nearest
/// ancestor that we gave that mask; failing that, the first we ever gave it to.
fn owner_of<'a>(
    reader: &mut TaskReader,
    parent: u32,
    tgid: u32,
    set: &'a [(u32, CpuSet)],
) -> Option<&'a CpuSet> {
    let of = |tgid: u32| set.iter().find(|(process, _)| *process == tgid);
    let (mut process, mut next) = (tgid, parent);
    for _ in 0..MOST_ANCESTORS {
        if let Some((_, owner)) = of(process) {
            return Some(owner);
        }
        let Some(stat) = reader.stat(next, next).ok().flatten() else { break };
        (process, next) = (next, stat.ppid);
    }
    set.first().map(|(_, owner)| owner)
}

fn knobs(changes: &[Change], dry_run: bool, undone: &mut Undone) {
    let mut knobs: BTreeMap<&Path, (&str, &str)> = BTreeMap::new();
    for change in changes {
        let Change::Knob { path, before, after } = change else { continue };
        knobs.entry(path).and_modify(|knob| knob.1 = after).or_insert((before, after));
    }
    for (path, (before, after)) in knobs {
        let current = std::fs::read_to_string(path).unwrap_or_default();
        if current.trim_end() != after {
            undone.changed_since += usize::from(current.trim_end() != before);
            continue;
        }
        if before == after {
            continue;
        }
        match if dry_run { Ok(()) } else { std::fs::write(path, before) } {
            Ok(()) => undone.knobs += 1,
            Err(error) => undone.failed.push(format!("{}: {error}", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::ProcessId;
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

    fn change(task: TaskId, before: &CpuSet, after: &CpuSet) -> Change {
        let process = ProcessId { tgid: task.tid, start: task.start };
        Change::Affinity { task, process, before: before.clone(), after: after.clone() }
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
        let undone = undo("/".as_ref(), &changes, None, false);
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
        let undone = undo("/".as_ref(), &changes, Some(&format!("NUMAHERD_RUN={mark}")), false);
        assert_eq!((undone.inherited, undone.affinities), (1, 1));
        assert_eq!(affinity::get(orphan.task().tid).unwrap(), all);
        assert_eq!(affinity::get(stranger.task().tid).unwrap(), one);
    }

    #[test]
    fn a_reused_tid_is_left_alone() {
        let Some((all, one)) = masks() else { return };
        let sleeper = Sleeper::start("z");
        affinity::set(sleeper.task().tid, &one).unwrap();
        let other = TaskId { start: sleeper.task().start + 1, ..sleeper.task() };
        let undone = undo("/".as_ref(), &[change(other, &all, &one)], None, false);
        assert_eq!(undone.gone, 1);
    }

    #[test]
    fn knobs_go_back_to_the_first_value_unless_changed_since() {
        let dir = tempfile::tempdir().unwrap();
        let knob = |name: &str, before: &str, after: &str| Change::Knob {
            path: dir.path().join(name),
            before: before.into(),
            after: after.into(),
        };
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("ours", "3\n");
        write("theirs", "9\n");
        let changes = [knob("ours", "1", "2"), knob("ours", "2", "3"), knob("theirs", "1", "2")];
        let dry = undo("/".as_ref(), &changes, None, true);
        assert_eq!(
            (dry.knobs, std::fs::read_to_string(dir.path().join("ours")).unwrap()),
            (1, "3\n".into())
        );
        let undone = undo("/".as_ref(), &changes, None, false);
        assert_eq!((undone.knobs, undone.changed_since), (1, 1));
        assert_eq!(std::fs::read_to_string(dir.path().join("ours")).unwrap(), "1");
        assert_eq!(std::fs::read_to_string(dir.path().join("theirs")).unwrap(), "9\n");
    }
}
