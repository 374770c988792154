//! The masks that a run set, for whom and when: what a task that shows one was born with.
//!
//! There may be thousands of lines and thousands of tasks, so all is found by mask, and then by process.

use std::collections::BTreeMap;

use numaherd_model::{Change, CpuSet, Nanos, ProcessId, TaskId};

use crate::allowance::is_inherited;
use crate::sys::clock;

/// A task that had a mask of ours.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub task: TaskId,
    pub process: ProcessId,
    /// From which tick on the task may have had it, and when it was to get another.
    pub from: u64,
    pub until: Option<u64>,
    /// Which line of the journal says so.
    pub line: usize,
}

/// Those with one mask in place of one that their owner had allowed, oldest first.
#[derive(Debug, Default)]
pub(super) struct Sets {
    by_process: BTreeMap<ProcessId, Vec<Set>>,
    /// The first of each process.
    firsts: Vec<Set>,
}

/// All of them, by our mask and their owner's.
#[derive(Debug, Default)]
pub(super) struct Masks(BTreeMap<(CpuSet, CpuSet), Sets>);

impl Masks {
    /// The masks that a run set; a release is none.
    pub fn of(changes: &[(Nanos, Change)], since: u64) -> Masks {
        let mut masks = Masks::default();
        let mut latest: BTreeMap<TaskId, ((CpuSet, CpuSet), ProcessId, usize)> = BTreeMap::new();
        for (line, (written, change)) in changes.iter().enumerate() {
            let Change::Affinity { task, process, before, after } = change else { continue };
            let (task, process) = (*task, *process);
            let from = since + written.0 / clock::tick().0;
            // The last of all may not have been made.
            if let Some((key, process, nth)) = latest.remove(&task)
                && line + 1 < changes.len()
                && let Some(sets) = masks.0.get_mut(&key)
                && let Some(of_process) = sets.by_process.get_mut(&process)
            {
                of_process[nth].until = Some(from);
            }
            if after != before {
                let key = (after.clone(), before.clone());
                let set = Set { task, process, from, until: None, line };
                let nth = masks.0.entry(key.clone()).or_default().add(set);
                latest.insert(task, (key, process, nth));
            }
        }
        masks
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Our mask, its owner's, and who had ours.
    pub fn iter(&self) -> impl Iterator<Item = (&CpuSet, &CpuSet, &Sets)> {
        self.0.iter().map(|((mask, owner), sets)| (mask, owner, sets))
    }
}

impl Sets {
    /// Which of its process it is.
    fn add(&mut self, set: Set) -> usize {
        let of_process = self.by_process.entry(set.process).or_default();
        if of_process.is_empty() {
            self.firsts.push(set.clone());
        }
        of_process.push(set);
        of_process.len() - 1
    }

    /// Those of a process.
    pub fn of(&self, process: ProcessId) -> &[Set] {
        self.by_process.get(&process).map_or(&[], Vec::as_slice)
    }

    /// The first that was set for a process that is none of these.
    pub fn first_beside(&self, processes: &[ProcessId]) -> Option<&Set> {
        self.firsts.iter().find(|set| !processes.contains(&set.process))
    }
}

impl Set {
    /// Whether its task may have had it at this tick, as far as clocks go: a change is made a moment after it was written
    /// down.
    pub fn may_be_had(&self, born: u64) -> bool {
        self.from <= born && self.until.is_none_or(|until| born <= until + 1)
    }

    /// Of masks that a process had, the likeliest that a child was born with: one that a thread had then,
    /// the main thread's, which starts most, and the latest.
    pub fn likeliness(&self, born: u64) -> (bool, bool, u64) {
        let had = self.until.is_none_or(|until| until > born);
        (had, self.task.tid == self.process.tgid, self.from)
    }
}

/// A mask of ours that a task may show.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    pub mask: &'a CpuSet,
    pub owner: &'a CpuSet,
    pub sets: &'a Sets,
    /// It shows all of the mask, and nothing else.
    pub exact: bool,
    /// It shows the mask if it was born, since the mask was set, of the process that had it.
    pub by_kin: bool,
    /// The same if not.
    pub by_anybody: bool,
}

impl<'a> Shown<'a> {
    /// By a task that may run on `now`, with `usable` the CPUs of its cpuset that are online.
    pub fn new(
        (mask, owner, sets): (&'a CpuSet, &'a CpuSet, &'a Sets),
        now: &CpuSet,
        usable: &CpuSet,
    ) -> Shown<'a> {
        let exact = mask == now;
        let by = |kin| exact || is_inherited(now, mask, owner, usable, kin);
        // What kin does not show, nobody does.
        let by_kin = by(true);
        Shown { mask, owner, sets, exact, by_kin, by_anybody: by_kin && by(false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thread 5 of process 4 was given CPU 1 at tick 10 in place of its owner's 0-1, and CPU 2 at tick 20 in
    /// place of 1-2, for its owner had changed it; the main thread was given CPU 1 at tick 30.
    #[test]
    fn what_a_child_was_born_with_depends_on_when() {
        let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
        let process = ProcessId { tgid: 4, start: 1 };
        let change = |ticks, tid, before, after| {
            let (task, before, after) = (TaskId { tid, start: 1 }, cpus(before), cpus(after));
            (Nanos(ticks * clock::tick().0), Change::Affinity { task, process, before, after })
        };
        let masks = Masks::of(
            &[change(9, 5, "0-1", "1"), change(19, 5, "1-2", "2"), change(29, 4, "0-3", "1")],
            1,
        );
        let all = |mask: &str| -> Vec<(CpuSet, Set)> {
            let of_mask = masks.iter().filter(|(ours, ..)| **ours == cpus(mask));
            let of_process = |(_, owner, sets): (_, &CpuSet, &Sets)| {
                let of_process = sets.of(process).iter().cloned();
                of_process.map(|set| (owner.clone(), set)).collect::<Vec<_>>()
            };
            of_mask.flat_map(of_process).collect()
        };
        let spans = |mask| all(mask).into_iter().map(|(_, set)| (set.from, set.until));
        assert!(spans("1").eq([(10, Some(20)), (30, None)]) && spans("2").eq([(20, None)]));
        let handed_down = |born| {
            let then = all("1").into_iter().filter(|(_, set)| set.from <= born);
            then.max_by_key(|(_, set)| set.likeliness(born)).unwrap().0
        };
        assert_eq!(handed_down(15), cpus("0-1"));
        assert_eq!(handed_down(31), cpus("0-3"));
        let other = ProcessId { start: 2, ..process };
        assert!(masks.iter().all(|(.., sets)| sets.of(other).is_empty()));
        let (.., sets) = masks.iter().next().unwrap();
        assert_eq!(sets.first_beside(&[other]).unwrap().line, 0);
        assert!(sets.first_beside(&[process]).is_none());
    }
}
