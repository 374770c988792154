//! Putting back what was changed: affinities, of children too, and knobs.
//!
//! A value is put back only if it still is what we wrote; someone may have changed it since.
//! A thread or process born with an affinity of ours is not in the journal if nobody looked
//! between its birth and now; it is recognised by its descent, or by the mark in its
//! environment, and by having exactly a mask that we set.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use numaherd_model::{Change, CpuSet, Nanos, ProcessId, TaskId};

use crate::allowance::is_still;
use crate::live::custody::{is_untouched, put_back, usable};
use crate::process::TaskStat;
use crate::system::{Running, System};
use masks::{Masks, Set, Shown};

pub use in_force::{in_force, in_force_on};

mod in_force;
mod masks;

/// Looks at all tasks again after a pass that found some: they may have been forking.
const MOST_PASSES: usize = 8;

/// Generations looked back for the process that handed a mask down.
const MOST_ANCESTORS: usize = 16;

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
    process: ProcessId,
    before: CpuSet,
    after: CpuSet,
    /// Our mask before that, which the task still has if the last change of all was written down
    /// and not made.
    earlier: Option<CpuSet>,
}

/// What a run leaves behind.
#[derive(Clone, Copy, Debug)]
pub struct Trail<'a> {
    /// Its changes, oldest first, and when each was written down, since `since` or later.
    pub changes: &'a [(Nanos, Change)],
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
    let mut undoing = Undoing { system, dry_run, undone: Undone::default() };
    undoing.knobs(changes);
    let mut tasks: BTreeMap<TaskId, Entry> = BTreeMap::new();
    let masks = Masks::of(changes, since);
    for (index, (_, change)) in changes.iter().enumerate() {
        let Change::Affinity { task, process, before, after } = change else { continue };
        let last = index + 1 == changes.len();
        let earlier = tasks.remove(task).map(|entry| entry.after).filter(|_| last);
        let (before, after) = (before.clone(), after.clone());
        tasks.insert(*task, Entry { process: *process, before, after, earlier });
    }
    // Those we know first: what they give birth to from then on has its own mask.
    let mut seen: BTreeSet<TaskId> = BTreeSet::new();
    for (task, entry) in &tasks {
        undoing.put_back(*task, entry, &masks);
        seen.insert(*task);
    }
    let roots: BTreeSet<u32> = tasks.values().map(|entry| entry.process.tgid).collect();
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
    dry_run: bool,
    undone: Undone,
}

impl Undoing<'_> {
    fn put_back(&mut self, task: TaskId, entry: &Entry, masks: &Masks) {
        let tgid = entry.process.tgid;
        let stat = self.system.stat(tgid, task.tid).ok().flatten();
        let alive = stat.is_some_and(|stat| stat.id == task);
        let Some(current) = self.system.affinity(task.tid).ok().filter(|_| alive) else {
            self.undone.gone += 1;
            return;
        };
        let usable = usable(self.system, tgid, task.tid).unwrap_or_else(|_| current.clone());
        // Our mask, or what a cpuset or hotplug left of it; a release has none.
        let ours = [Some(&entry.after), entry.earlier.as_ref()];
        let ours = ours.into_iter().flatten().filter(|mask| **mask != entry.before);
        let who = (tgid, task.tid);
        let still = ours.into_iter().find(|mask| is_still(&current, mask, &usable));
        if still.is_some_and(|mask| is_untouched(self.system, who, &current, mask, &usable)) {
            self.restore(task.tid, &entry.before);
        } else {
            // Never set after all, put back already, or the owner's own.
            let untouched = is_still(&current, &entry.before, &usable);
            // Where the last line gives it back, what it has now is its owner's.
            let may_be = task.tid == tgid && entry.after != entry.before;
            let shows = (&current, &usable);
            let by_another = may_be.then(|| self.masked_as_another(task, entry, shows, masks));
            match by_another.flatten() {
                Some(owner) => self.restore(task.tid, &owner),
                None => self.undone.changed_since += usize::from(!untouched),
            }
        }
    }

    /// What the owner allowed the thread of a process that has become this main one, if it has a mask that such a one
    /// had: the one that was not to be taken back, and the latest.
    fn masked_as_another(
        &mut self,
        task: TaskId,
        Entry { process, before: owner, .. }: &Entry,
        (current, usable): (&CpuSet, &CpuSet),
        masks: &Masks,
    ) -> Option<CpuSet> {
        let who = (process.tgid, task.tid);
        let threads = self.threads_beside_main(process.tgid);
        let had = masks.iter().flat_map(|(mask, owner, sets)| {
            let of_others = sets.of(*process).iter();
            let of_others = of_others.filter(|set| set.task != task && may_be_main(set, &threads));
            of_others.map(move |set| ((set.until.is_none(), set.line), mask, owner))
        });
        // Of a mask of which nothing could show, its owner's shows the same: only whom it would harm not is given that.
        let visible = had
            .filter(|(_, mask, before)| !mask.intersection(usable).is_empty() || *before == owner);
        let shown =
            visible.filter(|(_, mask, _)| is_untouched(self.system, who, current, mask, usable));
        shown.max_by_key(|(likeliness, ..)| *likeliness).map(|(.., owner)| owner.clone())
    }

    /// The threads of a process but its main one.
    fn threads_beside_main(&mut self, tgid: u32) -> Vec<TaskId> {
        let threads = self.system.threads(tgid).ok().flatten().unwrap_or_default();
        let others = threads.into_iter().filter(|tid| *tid != tgid);
        others.filter_map(|tid| Some(self.system.stat(tgid, tid).ok()??.id)).collect()
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
                // Of what the kernel runs there are many on a large machine, none of which has an environment.
                let stat = self.system.stat(tgid, tgid).ok().flatten();
                if stat.is_none_or(|stat| stat.is_kernels) {
                    continue;
                }
                if self.system.has_mark(tgid, mark).is_ok_and(|marked| marked == Some(true)) {
                    family.insert(tgid);
                }
            }
        }
        family
    }

    /// What the owner allowed a task that shows a mask of ours, if it does: as its own process or the
    /// nearest ancestor had it that we gave that mask; failing that, as the first had it, where that does
    /// no harm.
    fn inherited(&mut self, stat: &TaskStat, tgid: u32, masks: &Masks) -> Option<CpuSet> {
        let now = self.system.affinity(stat.id.tid).ok()?;
        let whole = self.system.mask(tgid, stat.id.tid);
        let usable = usable(self.system, tgid, stat.id.tid).ok()?;
        let lineage = self.lineage(tgid);
        let fits = |mask: &CpuSet| {
            whole.as_ref().is_none_or(|whole| whole.is_subset(mask))
                || *mask != now && mask.intersection(&usable).is_empty()
        };
        let fit = masks.iter().filter(|(mask, ..)| fits(mask));
        let shown: Vec<Shown<'_>> = fit.map(|of| Shown::new(of, &now, &usable)).collect();
        // A thread that we placed becomes its process's main one when it executes a program.
        let may_be = stat.id.tid == tgid && !shown.is_empty();
        let main = may_be.then(|| self.threads_beside_main(tgid));
        // Whose child it is says which of several masks it was born with, and when it was born of that
        // process, or who stands between the two was.
        for (nth, &process) in lineage.iter().enumerate() {
            let born = if nth == 0 { stat.id.start } else { lineage[nth - 1].start };
            let had =
                shown.iter().flat_map(|of| of.sets.of(process).iter().map(move |set| (of, set)));
            // Who was there before the mask was set was not born with it: what it shows, its cpuset may
            // have left.
            let may = had.filter(|(of, set)| match set.from <= born {
                true => of.by_kin && set.may_be_had(born),
                false => {
                    let executed = || main.as_ref().is_some_and(|others| may_be_main(set, others));
                    nth == 0 && of.by_anybody && executed()
                }
            });
            let likeliest = may.max_by_key(|(of, set)| (set.likeliness(born), of.exact, set.line));
            if let Some((of, _)) = likeliest {
                return Some(of.owner.clone());
            }
        }
        // Nobody tells that it was born with that. If it shows all of its cpuset, that may be all there is
        // to it, and only who was free to use all CPUs is put back without harm.
        let born = lineage.first().map_or(stat.id.start, |own| own.start);
        let others = shown.iter().filter(|of| of.by_anybody).filter_map(|of| {
            let first = of.sets.first_beside(&lineage).filter(|set| set.from <= born)?;
            Some((!of.exact, of.mask, first.line, of.owner))
        });
        let (.., owner) = others.min()?;
        let possible = self.system.possible().ok()?;
        (now != usable || possible.is_subset(owner)).then(|| owner.clone())
    }

    /// A process and its ancestors, nearest first; by start time too: a pid may be another's by now.
    fn lineage(&mut self, tgid: u32) -> Vec<ProcessId> {
        let mut lineage = Vec::new();
        let mut next = tgid;
        while lineage.len() < MOST_ANCESTORS {
            let Some(stat) = self.system.stat(next, next).ok().flatten() else { break };
            lineage.push(ProcessId { tgid: next, start: stat.id.start });
            next = stat.ppid;
        }
        lineage
    }

    fn knobs(&mut self, changes: &[(Nanos, Change)]) {
        for (path, knob) in knobs_set(changes) {
            let current = match self.system.setting(path) {
                Ok(current) => current,
                Err(error) => {
                    self.undone.failed.push(format!("{}: {error}", path.display()));
                    continue;
                }
            };
            let current = current.trim_end();
            if current == knob.original {
                // Not made, and somebody else's word for all that.
                self.undone.changed_since += usize::from(knob.original != knob.first);
                continue;
            }
            if !knob.is_ours(current) {
                self.undone.changed_since += 1;
                continue;
            }
            let done = match self.dry_run {
                true => Ok(()),
                false => self.system.set_setting(path, knob.original),
            };
            match done {
                Ok(()) => self.undone.knobs += 1,
                Err(error) => self.undone.failed.push(format!("{}: {error}", path.display())),
            }
        }
    }
}

/// Whether the thread that had a mask may have executed a program, and so be its process's main one: no thread of the
/// process outlives that, and those that there are `beside_main` were born since.
fn may_be_main(set: &Set, beside_main: &[TaskId]) -> bool {
    beside_main.iter().all(|thread| thread.start >= set.from && *thread != set.task)
}

/// What a run made of a knob.
struct KnobSet<'a> {
    /// What was there before all.
    first: &'a str,
    /// What is to be there again: the last value that somebody else put there.
    original: &'a str,
    /// Our values since, but for the last.
    earlier: BTreeSet<&'a str>,
    /// The last change: what was there, and what we were about to write.
    before: &'a str,
    after: &'a str,
}

impl KnobSet<'_> {
    /// Whether a value is ours: the last; or, if that was written down and not made, what was there
    /// then, unless somebody else had put that there.
    fn is_ours(&self, current: &str) -> bool {
        current == self.after || current == self.before && self.earlier.contains(current)
    }
}

fn knobs_set(changes: &[(Nanos, Change)]) -> BTreeMap<&Path, KnobSet<'_>> {
    let mut knobs: BTreeMap<&Path, KnobSet<'_>> = BTreeMap::new();
    for (_, change) in changes {
        let Change::Knob { path, before, after } = change else { continue };
        match knobs.get_mut(path.as_path()) {
            Some(knob) => {
                knob.earlier.insert(knob.after);
                if !knob.earlier.contains(before.as_str()) {
                    // Somebody else has set it since, and that counts.
                    knob.original = before;
                    knob.earlier.clear();
                }
                (knob.before, knob.after) = (before, after);
            }
            None => {
                let earlier = BTreeSet::new();
                let (first, original) = (before, before);
                knobs.insert(path, KnobSet { first, original, earlier, before, after });
            }
        }
    }
    knobs
}

#[cfg(test)]
mod tests;
