//! Putting back what was changed: affinities, of children too, and knobs.
//!
//! A value is put back only if it still is what we wrote; someone may have changed it since.
//! A thread or process born with an affinity of ours is not in the journal if nobody looked
//! between its birth and now; it is recognised by its descent, or by the mark in its
//! environment, and by having exactly a mask that we set.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use numaherd_model::{Change, CpuSet, ProcessId, TaskId};

use crate::allowance::{is_inherited, is_still};
use crate::live::custody::{is_untouched, put_back, usable};
use crate::process::TaskStat;
use crate::system::{Running, System};

/// Looks at all tasks again after a pass that found some: they may have been forking.
const MOST_PASSES: usize = 8;

/// Generations looked back for the process that handed a mask down.
const MOST_ANCESTORS: usize = 16;

/// A mask we set, with whom it was set for.
type Masks = BTreeMap<CpuSet, Vec<Set>>;

/// A task that had a mask of ours, and what its owner had allowed.
#[derive(Clone)]
struct Set {
    process: ProcessId,
    leader: bool,
    owner: CpuSet,
}

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Affinities put back.
    pub affinities: usize,
    /// Of those, tasks that had inherited ours.
    pub inherited: usize,
    /// Of those, tasks whose cpuset has none of the CPUs any more that their owner had allowed:
    /// they may use all of it.
    pub widened: usize,
    /// Knobs put back.
    pub knobs: usize,
    /// Values that somebody changed since; they stay.
    pub changed_since: usize,
    /// Tasks that ended.
    pub gone: usize,
    /// What could not be put back, in plain words.
    pub failed: Vec<String>,
}

/// What is to be put back for a task: what its owner allowed last, in place of our last mask.
struct Entry {
    tgid: u32,
    before: CpuSet,
    after: CpuSet,
    /// Our mask before that, which the task still has if the last change of all was written down
    /// and not made.
    earlier: Option<CpuSet>,
}

/// What a run leaves behind.
#[derive(Clone, Copy, Debug)]
pub struct Trail<'a> {
    /// Its changes, oldest first.
    pub changes: &'a [Change],
    /// The `NAME=value` that its descendants carry in their environment.
    pub mark: Option<&'a str>,
    /// Start time of the process that made the changes.
    pub since: u64,
}

/// Undoes what a run did. With `dry_run` nothing is written, only counted.
pub fn undo(root: &Path, trail: Trail<'_>, dry_run: bool) -> Undone {
    undo_on(&mut Running::new(root), trail, dry_run)
}

/// The same on a kernel of the caller's.
pub fn undo_on(system: &mut dyn System, trail: Trail<'_>, dry_run: bool) -> Undone {
    let Trail { changes, mark, since } = trail;
    let mut undoing = Undoing { system, since, dry_run, undone: Undone::default() };
    undoing.knobs(changes);
    let mut tasks: BTreeMap<TaskId, Entry> = BTreeMap::new();
    let mut masks = Masks::new();
    for (index, change) in changes.iter().enumerate() {
        let Change::Affinity { task, process, before, after } = change else { continue };
        let last = index + 1 == changes.len();
        if after != before {
            let leader = task.tid == process.tgid;
            let set = Set { process: *process, leader, owner: before.clone() };
            masks.entry(after.clone()).or_default().push(set);
        }
        let earlier = tasks.remove(task).map(|entry| entry.after).filter(|_| last);
        let (before, after) = (before.clone(), after.clone());
        tasks.insert(*task, Entry { tgid: process.tgid, before, after, earlier });
    }
    // Those we know first: what they give birth to from then on has its own mask.
    let mut seen: BTreeSet<TaskId> = BTreeSet::new();
    for (task, entry) in &tasks {
        undoing.put_back(*task, entry);
        seen.insert(*task);
    }
    let roots: BTreeSet<u32> = tasks.values().map(|entry| entry.tgid).collect();
    for _ in 0..MOST_PASSES {
        let before = undoing.undone.inherited;
        undoing.heirs(&roots, mark, &masks, &mut seen);
        if undoing.undone.inherited == before {
            break;
        }
    }
    undoing.undone
}

/// What undoing works with.
struct Undoing<'a> {
    system: &'a mut dyn System,
    /// Threads that started later may have been born with a mask of ours.
    since: u64,
    dry_run: bool,
    undone: Undone,
}

impl Undoing<'_> {
    fn put_back(&mut self, task: TaskId, entry: &Entry) {
        let stat = self.system.stat(entry.tgid, task.tid).ok().flatten();
        let alive = stat.is_some_and(|stat| stat.id == task);
        let Some(current) = self.system.affinity(task.tid).ok().filter(|_| alive) else {
            self.undone.gone += 1;
            return;
        };
        let usable = usable(self.system, entry.tgid, task.tid).unwrap_or_else(|_| current.clone());
        // Our mask, or what a cpuset or hotplug left of it; a release has none.
        let ours = [Some(&entry.after), entry.earlier.as_ref()];
        let ours = ours.into_iter().flatten().filter(|mask| **mask != entry.before);
        let who = (entry.tgid, task.tid);
        let still = ours.into_iter().find(|mask| is_still(&current, mask, &usable));
        if still.is_some_and(|mask| is_untouched(self.system, who, &current, mask, &usable)) {
            self.restore(task.tid, &entry.before);
        } else {
            // Never set after all, put back already, or the owner's own.
            let untouched = is_still(&current, &entry.before, &usable);
            self.undone.changed_since += usize::from(!untouched);
        }
    }

    fn restore(&mut self, tid: u32, cpus: &CpuSet) {
        if self.dry_run {
            self.undone.affinities += 1;
            return;
        }
        match put_back(self.system, tid, cpus) {
            Ok(exactly) => {
                self.undone.affinities += 1;
                self.undone.widened += usize::from(!exactly);
            }
            Err(error) if error.is_gone() => self.undone.gone += 1,
            Err(error) => self.undone.failed.push(format!("task {tid}: {error}")),
        }
    }

    /// Tasks that inherited a mask of ours.
    fn heirs(
        &mut self,
        roots: &BTreeSet<u32>,
        mark: Option<&str>,
        masks: &Masks,
        seen: &mut BTreeSet<TaskId>,
    ) {
        if masks.is_empty() {
            return;
        }
        for tgid in self.family(roots, mark) {
            for tid in self.system.threads(tgid).ok().flatten().unwrap_or_default() {
                let Some(stat) = self.system.stat(tgid, tid).ok().flatten() else { continue };
                if seen.contains(&stat.id) {
                    continue;
                }
                let Some(owner) = self.inherited(&stat, tgid, masks) else { continue };
                seen.insert(stat.id);
                self.undone.inherited += 1;
                self.restore(tid, &owner);
            }
        }
    }

    /// Descendants of the processes we changed, and whoever carries our mark.
    fn family(&mut self, roots: &BTreeSet<u32>, mark: Option<&str>) -> BTreeSet<u32> {
        let mut family: BTreeSet<u32> = BTreeSet::new();
        for &root in roots {
            family.extend(self.system.tree(root).unwrap_or_default());
        }
        if let Some(mark) = mark {
            for tgid in self.system.processes().unwrap_or_default() {
                if self.system.has_mark(tgid, mark).is_ok_and(|marked| marked == Some(true)) {
                    family.insert(tgid);
                }
            }
        }
        family
    }

    /// What the owner allowed a task that shows a mask of ours, if it does: as [`Undoing::owner_of`] has
    /// it; failing that, as the first had it that we ever gave that mask.
    fn inherited(&mut self, stat: &TaskStat, tgid: u32, masks: &Masks) -> Option<CpuSet> {
        let now = self.system.affinity(stat.id.tid).ok()?;
        let whole = self.system.mask(tgid, stat.id.tid);
        let mut exact = masks.get(&now).cloned().unwrap_or_default();
        exact.retain(|_| whole.as_ref().is_none_or(|whole| whole.is_subset(&now)));
        let usable = usable(self.system, tgid, stat.id.tid).ok()?;
        let fits = |mask: &CpuSet| {
            whole.as_ref().is_none_or(|whole| whole.is_subset(mask))
                || mask.intersection(&usable).is_empty()
        };
        let leader = self.system.stat(tgid, tgid).ok().flatten();
        let own = leader.map(|leader| ProcessId { tgid, start: leader.id.start });
        let newborn = stat.id.start >= self.since;
        let all = masks.iter().filter(|(mask, _)| **mask != now && fits(mask));
        let all = all.flat_map(|(mask, set)| set.iter().map(move |set| (mask, set)));
        let cut = all.filter(|(mask, set)| {
            let kin = newborn && Some(set.process) == own;
            is_inherited(&now, mask, &set.owner, &usable, kin)
        });
        let cut: Vec<Set> = cut.map(|(_, set)| set.clone()).collect();
        // A mask of ours that a cpuset or hotplug cut may look like another of ours: whose child it is
        // says which.
        let both: Vec<Set> = cut.iter().chain(&exact).cloned().collect();
        let first = || exact.first().or(cut.first()).map(|set| set.owner.clone());
        self.owner_of(tgid, &both).or_else(first)
    }

    /// As for the task's own process, or the nearest ancestor that we gave that mask. Of several in a
    /// process, its main thread: it starts most.
    fn owner_of(&mut self, tgid: u32, set: &[Set]) -> Option<CpuSet> {
        // By start time too: a pid may be another's by now.
        let of = |process: ProcessId| {
            let latest =
                |leader: bool| set.iter().rfind(|s| s.process == process && (s.leader || !leader));
            latest(true).or_else(|| latest(false)).map(|set| set.owner.clone())
        };
        let mut next = tgid;
        for _ in 0..MOST_ANCESTORS {
            let stat = self.system.stat(next, next).ok().flatten()?;
            if let Some(owner) = of(ProcessId { tgid: next, start: stat.id.start }) {
                return Some(owner);
            }
            next = stat.ppid;
        }
        None
    }

    fn knobs(&mut self, changes: &[Change]) {
        let mut knobs: BTreeMap<&Path, (&str, &str)> = BTreeMap::new();
        for change in changes {
            let Change::Knob { path, before, after } = change else { continue };
            knobs.entry(path).and_modify(|knob| knob.1 = after).or_insert((before, after));
        }
        for (path, (before, after)) in knobs {
            let current = self.system.setting(path).unwrap_or_default();
            if current.trim_end() != after {
                self.undone.changed_since += usize::from(current.trim_end() != before);
                continue;
            }
            if before == after {
                continue;
            }
            let done = if self.dry_run { Ok(()) } else { self.system.set_setting(path, before) };
            match done {
                Ok(()) => self.undone.knobs += 1,
                Err(error) => self.undone.failed.push(format!("{}: {error}", path.display())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
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

    fn change(task: TaskId, before: &CpuSet, after: &CpuSet) -> Change {
        let process = ProcessId { tgid: task.tid, start: task.start };
        Change::Affinity { task, process, before: before.clone(), after: after.clone() }
    }

    fn trail<'a>(changes: &'a [Change], mark: Option<&'a str>) -> Trail<'a> {
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
        let undone =
            undo("/".as_ref(), trail(&changes, Some(&format!("NUMAHERD_RUN={mark}"))), false);
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
        let knob = |name: &str, before: &str, after: &str| Change::Knob {
            path: dir.path().join(name),
            before: before.into(),
            after: after.into(),
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
}
