//! What of a journal is still needed to undo its run: the rest need not be kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use numaherd_model::{Change, CpuSet, Nanos, ProcessId, TaskId};

use crate::system::{Running, System};

/// The changes that undoing still asks for, of those that were written down so far, all of them made.
/// There are no more than a few for each task and process that lives, for each knob, and for each two masks
/// of ours and of an owner, however long the run goes on.
#[must_use]
pub fn in_force(root: &Path, changes: &[(Nanos, Change)]) -> Vec<(Nanos, Change)> {
    in_force_on(&mut Running::new(root), changes)
}

/// The same on a kernel of the caller's.
pub fn in_force_on(system: &mut dyn System, changes: &[(Nanos, Change)]) -> Vec<(Nanos, Change)> {
    let mut needed = knobs(changes);
    needed.extend(tasks(system, changes));
    needed.extend(masks(system, changes));
    needed.into_iter().map(|line| changes[line].clone()).collect()
}

/// Of each knob the change that tells what somebody else had put there last, the first since with each of our
/// values, by which later ones are told from others', and the last.
fn knobs(changes: &[(Nanos, Change)]) -> BTreeSet<usize> {
    let mut by_path: BTreeMap<&Path, (BTreeMap<&str, usize>, usize)> = BTreeMap::new();
    for (line, (_, change)) in changes.iter().enumerate() {
        let Change::Knob { path, before, after } = change else { continue };
        let (ours, last) = by_path.entry(path).or_default();
        if !ours.contains_key(before.as_str()) {
            ours.clear();
        }
        ours.entry(after).or_insert(line);
        *last = line;
    }
    by_path.into_values().flat_map(|(ours, last)| ours.into_values().chain([last])).collect()
}

/// Of each task that lives the last change; of the last of all, which may not have been made, also the one
/// before it.
fn tasks(system: &mut dyn System, changes: &[(Nanos, Change)]) -> BTreeSet<usize> {
    let mut last: BTreeMap<TaskId, (usize, ProcessId)> = BTreeMap::new();
    let mut needed = BTreeSet::new();
    for (line, (_, change)) in changes.iter().enumerate() {
        let Change::Affinity { task, process, .. } = change else { continue };
        let before = last.insert(*task, (line, *process));
        needed.extend(before.filter(|_| line + 1 == changes.len()).map(|(line, _)| line));
    }
    let alive =
        |(task, (_, process)): &(TaskId, (usize, ProcessId))| lives(system, process.tgid, *task);
    needed.extend(last.into_iter().filter(alive).map(|(_, (line, _))| line));
    needed
}

/// Who inherited a mask of ours is told by when its process had it first and last; whose parents have
/// ended, by when anybody had it first.
fn masks(system: &mut dyn System, changes: &[(Nanos, Change)]) -> BTreeSet<usize> {
    let mut of_process: BTreeMap<(ProcessId, &CpuSet, &CpuSet), (usize, usize)> = BTreeMap::new();
    let mut of_any: BTreeMap<(&CpuSet, &CpuSet), usize> = BTreeMap::new();
    for (line, (_, change)) in changes.iter().enumerate() {
        let Change::Affinity { process, before, after, .. } = change else { continue };
        if after == before {
            continue;
        }
        of_any.entry((after, before)).or_insert(line);
        of_process.entry((*process, after, before)).or_insert((line, line)).1 = line;
    }
    let mut alive: BTreeMap<ProcessId, bool> = BTreeMap::new();
    let mut needed: BTreeSet<usize> = of_any.into_values().collect();
    for ((process, ..), (first, last)) in of_process {
        let main = TaskId { tid: process.tgid, start: process.start };
        if *alive.entry(process).or_insert_with(|| lives(system, process.tgid, main)) {
            needed.extend([first, last]);
        }
    }
    needed
}

/// Whether a task is there, as far as can be told.
fn lives(system: &mut dyn System, tgid: u32, task: TaskId) -> bool {
    system.stat(tgid, task.tid).map_or(true, |stat| stat.is_some_and(|stat| stat.id == task))
}
