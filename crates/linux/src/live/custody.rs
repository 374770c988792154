//! Whose affinity is ours, and what its owner had allowed.
//!
//! A task is in custody from when we first set its affinity until it ends, is released, or its
//! owner sets another. Every change is written down before it is made. A task that was born with a
//! mask of ours, as threads and children of a placed task are, is written down and set free. So is one that executes another
//! program, which starts with it: the program is as new as a child's.

use std::collections::BTreeMap;
use std::ops::Bound;

use numaherd_model::{
    Change, CpuSet, Journal, Nanos, NodeId, Outcome, Pages, ProcessId, SkipReason, TaskId,
    Topology, WorldError,
};

use super::{read_error, skipped};
use crate::ReadError;
use crate::allowance::{self, is_still};
use crate::process::TaskStat;
use crate::sys::{SysError, clock};
use crate::system::System;

pub use parents::Parents;

mod handed;
mod parents;

/// How old knowledge of a thread's cpuset may be where it only guides plans.
const CPUSET_AGE: Nanos = Nanos(5_000_000_000);

/// Threads whose cpusets are looked at within that time: where more are placed, each is looked at the more seldom.
/// Guessed: three small files each, 0.2 % of a CPU.
const CPUSETS: u64 = 400;

/// A task we placed.
#[derive(Clone, Debug)]
struct Ours {
    process: ProcessId,
    /// What puts its owner's affinity back.
    owner: CpuSet,
    set: CpuSet,
    /// None where an ended run left it, and it tells of no node: all of its CPUs are offline.
    home: Option<NodeId>,
    /// From which tick on it may have had the mask: who was there before was not born with that.
    since: u64,
}

/// A mask that an ended run of ours left in place on purpose.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What puts its owner's affinity back.
    pub owner: CpuSet,
    /// The mask.
    pub set: CpuSet,
    /// From which tick on the task may have had it: who was there before was not born with it.
    pub since: u64,
}

impl Kept {
    /// What a run that began at the tick `since` left in place, as its journal tells: of each task the last. A run may go
    /// on for days before it sets a mask, and what was born meanwhile with the same has it from its owner.
    pub fn of(changes: &[(Nanos, Change)], since: u64) -> BTreeMap<TaskId, Kept> {
        let mut kept = BTreeMap::new();
        for (written, change) in changes {
            if let Change::Affinity { task, before, after, .. } = change {
                let (owner, set) = (before.clone(), after.clone());
                let since = since + written.0 / clock::tick().0;
                kept.insert(*task, Kept { owner, set, since });
            }
        }
        kept
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Custody {
    tasks: BTreeMap<TaskId, Ours>,
    /// What was ours, since the last look, and until which tick: whom its tasks gave birth to before has a mask of ours
    /// still.
    lost: Vec<(Ours, u64)>,
    /// Tasks that turned out to be their owners' again, when, and what was ours.
    owners: BTreeMap<TaskId, (Nanos, Ours)>,
    /// Which program each process ran at the last look, by its main thread, where that is known, and on which CPUs that
    /// might run.
    programs: BTreeMap<TaskId, ((u64, u64), CpuSet)>,
    /// CPUs of each placed thread's cpuset that are online, and when we looked: the threads of one process may be in
    /// several (libvirt's vCPUs and emulator).
    cpusets: BTreeMap<TaskId, (Nanos, CpuSet)>,
    /// Masks that an ended run of ours left in place on purpose, of tasks that were not seen yet.
    kept: BTreeMap<TaskId, Kept>,
    /// Processes that were born with a mask of ours, or executed a program with one: a runtime that counts its CPUs at its
    /// start (JVM, Go, OpenMP) counted too few.
    pub born_confined: u64,
}

/// What the kernel and the journal are to a change.
pub struct Hands<'a> {
    pub system: &'a mut dyn System,
    pub journal: &'a mut dyn Journal,
    pub parents: &'a Parents,
    pub acts: bool,
}

impl Hands<'_> {
    fn write_down(
        &mut self,
        (task, process): (TaskId, ProcessId),
        before: &CpuSet,
        after: &CpuSet,
    ) -> Result<(), WorldError> {
        let (before, after) = (before.clone(), after.clone());
        let change = Change::Affinity { task, process, before, after };
        self.journal.before(&change).map_err(|source| WorldError::Journal { source })
    }

    /// A change that was written down could not be made: what is in force still, a mask of ours or with
    /// none what its owner allowed, is what undoing will find, however much is written down after it.
    fn not_made(
        &mut self,
        error: &SysError,
        who: (TaskId, ProcessId),
        owner: &CpuSet,
        in_force: Option<&CpuSet>,
    ) -> Result<(), WorldError> {
        match error.is_gone() {
            true => Ok(()),
            false => self.write_down(who, owner, in_force.unwrap_or(owner)),
        }
    }

    /// The time, as start times have it.
    fn ticks(&mut self) -> u64 {
        self.system.since_boot().0 / clock::tick().0
    }

    /// What the owner of a thread that shows these CPUs allows it, where none of our masks is in force.
    fn owners(&mut self, who: (u32, u32), current: &CpuSet) -> Result<CpuSet, WorldError> {
        let mask = self.system.mask(who.0, who.1);
        match (self.system.cpuset(who.0, who.1), mask) {
            // Nothing but the mask says where it may run.
            (None, Some(mask)) => Ok(mask),
            (cpuset, _) => {
                let usable = usable_of(self.system, cpuset.as_ref()).map_err(read_error)?;
                let possible = self.system.possible().map_err(read_error)?;
                Ok(allowance::owners(current, &usable, &possible))
            }
        }
    }

    /// CPUs of a thread's cpuset that are online.
    fn usable(&mut self, tgid: u32, tid: u32) -> Result<CpuSet, WorldError> {
        usable(self.system, tgid, tid).map_err(read_error)
    }
}

/// CPUs of a thread's cpuset that are online.
pub(crate) fn usable(system: &mut dyn System, tgid: u32, tid: u32) -> Result<CpuSet, ReadError> {
    let cpuset = system.cpuset(tgid, tid);
    usable_of(system, cpuset.as_ref())
}

/// CPUs of a cpuset that are online; without one, all of those.
fn usable_of(system: &mut dyn System, cpuset: Option<&CpuSet>) -> Result<CpuSet, ReadError> {
    let online = system.online()?;
    let cpuset = cpuset.map(|cpuset| cpuset.intersection(&online));
    Ok(cpuset.filter(|cpus| !cpus.is_empty()).unwrap_or(online))
}

/// Whether a thread that shows just our CPUs has others in its mask, which are offline: then somebody
/// has set it since.
fn has_more(system: &mut dyn System, (tgid, tid): (u32, u32), ours: &CpuSet) -> bool {
    system.mask(tgid, tid).is_some_and(|mask| !mask.is_subset(ours))
}

/// Whether a thread that shows other CPUs than we set still has our mask. What a cpuset or hotplug left of
/// another may be the same CPUs: with 1 and 3 of 0-3 online, our 0-1 and its owner's 1-2 both show 1.
pub(crate) fn is_untouched(
    system: &mut dyn System,
    who: (u32, u32),
    current: &CpuSet,
    ours: &CpuSet,
    usable: &CpuSet,
) -> bool {
    let shows = !ours.intersection(usable).is_empty();
    is_still(current, ours, usable) && !(shows && has_more(system, who, ours))
}

/// The one node that some of these CPUs are of. Those that are offline are of none.
pub(super) fn only_node_of(topology: &Topology, cpus: &CpuSet) -> Option<NodeId> {
    let mut with = topology.nodes.iter().filter(|node| !node.cpus.intersection(cpus).is_empty());
    with.next().filter(|_| with.next().is_none()).map(|node| node.id)
}

/// Gives a thread the mask of its owner. Where its cpuset has none of those CPUs any more, the
/// kernel refuses, and all CPUs stand in: answers false then.
pub(crate) fn put_back(
    system: &mut dyn System,
    tid: u32,
    owner: &CpuSet,
) -> Result<bool, SysError> {
    match system.set_affinity(tid, owner) {
        Ok(()) => Ok(true),
        Err(SysError::Refused { call, source }) => {
            let refused = |_| SysError::Refused { call, source };
            let possible = system.possible().map_err(refused)?;
            system.set_affinity(tid, &possible).map(|()| false)
        }
        Err(error) => Err(error),
    }
}

impl Custody {
    /// Forgets tasks that are no more.
    pub fn retain(&mut self, alive: impl Fn(&TaskId) -> bool) {
        self.tasks.retain(|task, _| alive(task));
        self.cpusets.retain(|task, _| alive(task));
        self.owners.retain(|task, _| alive(task));
        self.programs.retain(|task, _| alive(task));
        self.lost.clear();
    }

    /// Takes masks for ours that an ended run left in place: not their owners', they bind nobody to what was right then.
    pub fn take_over(&mut self, kept: impl IntoIterator<Item = (TaskId, Kept)>) {
        self.kept.extend(kept);
    }

    /// Where we placed a task.
    pub fn home(&self, task: TaskId) -> Option<NodeId> {
        self.tasks.get(&task).and_then(|ours| ours.home)
    }

    /// The tasks that we placed, ascending, from there on.
    pub fn held(&self, from: Bound<TaskId>) -> impl Iterator<Item = (TaskId, ProcessId)> + '_ {
        let held = self.tasks.range((from, Bound::Unbounded));
        let held = held.filter(|(_, ours)| ours.home.is_some());
        held.map(|(task, ours)| (*task, ours.process))
    }

    /// Whether we placed a thread of this process.
    pub fn has_placed(&self, process: ProcessId) -> bool {
        self.tasks.values().any(|ours| ours.process == process)
    }

    /// The CPUs that the owner of a task allows it today: those it has, unless we set them.
    pub fn owners_cpus(
        &mut self,
        system: &mut dyn System,
        task: TaskId,
        current: &CpuSet,
        now: Nanos,
    ) -> Result<CpuSet, WorldError> {
        let Some(ours) = self.tasks.get(&task) else { return Ok(current.clone()) };
        let age = Nanos(CPUSET_AGE.0 / CPUSETS * CPUSETS.max(self.tasks.len() as u64));
        let known = self.cpusets.get(&task).filter(|(at, _)| now.since(*at) < age);
        let usable = match known {
            Some((_, usable)) => usable.clone(),
            None => {
                let usable = usable(system, ours.process.tgid, task.tid).map_err(read_error)?;
                self.cpusets.insert(task, (now, usable.clone()));
                usable
            }
        };
        Ok(allowance::effective(&ours.owner, &usable))
    }

    /// Notices an owner that changed an affinity of ours, and a task that was born with one: that
    /// is set free at once, for nothing is known of it, and a crowd born of one placed task would
    /// be crammed onto its node. `current` is the task's affinity, before and after; `home` says which node some CPUs are
    /// of: the owner of a kept mask is known without it.
    pub fn recognise(
        &mut self,
        hands: &mut Hands<'_>,
        (stat, process): (&TaskStat, ProcessId),
        newborn: bool,
        current: &mut CpuSet,
        home: impl FnOnce(&CpuSet) -> Option<NodeId>,
    ) -> Result<(), WorldError> {
        let task = stat.id;
        if let Some(Kept { owner, set, since }) = self.kept.remove(&task) {
            let home = home(&set);
            self.tasks.insert(task, Ours { process, owner, set, home, since });
        }
        self.remember(hands, task, current)?;
        if let Some(program) = stat.program.filter(|_| task.tid == process.tgid) {
            let before = self.programs.insert(task, (program, current.clone()));
            let other = before.filter(|(before, _)| *before != program);
            if let Some((_, before)) = other
                && self.executed(hands, (task, process), &before, current)?
            {
                return Ok(());
            }
        }
        match self.tasks.get(&task).cloned() {
            Some(ours) => self.recheck(hands, task, &ours, current),
            None if newborn => self.free_newborn(hands, (task, process), stat.ppid, current),
            None => Ok(()),
        }
    }

    /// A task is its owner's again, with the CPUs that it shows: whatever our mask was, it is not to be undone.
    fn lose(
        &mut self,
        hands: &mut Hands<'_>,
        task: TaskId,
        current: &CpuSet,
    ) -> Result<(), WorldError> {
        if let Some(ours) = self.give_up(hands, task) {
            if hands.acts {
                let owner = hands.owners((ours.process.tgid, task.tid), current)?;
                hands.write_down((task, ours.process), &owner, &owner)?;
            }
            self.owners.insert(task, (hands.system.monotonic(), ours));
        }
        Ok(())
    }

    /// A task is ours no more; whom it gave birth to until now may have its mask. Answers what was ours.
    fn give_up(&mut self, hands: &mut Hands<'_>, task: TaskId) -> Option<Ours> {
        let ours = self.tasks.remove(&task)?;
        self.lost.push((ours.clone(), hands.ticks()));
        Some(ours)
    }

    /// A task of ours shows other CPUs than we set: a cpuset or hotplug took some away, or its
    /// owner changed them.
    fn recheck(
        &mut self,
        hands: &mut Hands<'_>,
        task: TaskId,
        ours: &Ours,
        current: &mut CpuSet,
    ) -> Result<(), WorldError> {
        if ours.set == *current {
            return Ok(());
        }
        self.cpusets.remove(&task);
        let who = (ours.process.tgid, task.tid);
        let usable = hands.usable(who.0, who.1)?;
        if !is_untouched(hands.system, who, current, &ours.set, &usable) {
            return self.lose(hands, task, current);
        }
        if ours.set.intersection(&usable).is_empty() {
            // It runs elsewhere, and our mask would count again one day.
            let who = (task, ours.process);
            hands.write_down(who, &ours.owner, &ours.owner)?;
            if !hands.acts {
                return Ok(());
            }
            if let Err(error) = put_back(hands.system, task.tid, &ours.owner) {
                return hands.not_made(&error, who, &ours.owner, Some(&ours.set));
            }
            self.give_up(hands, task);
            *current = hands.system.affinity(task.tid).unwrap_or(usable);
        }
        Ok(())
    }

    /// Allows a task these CPUs, or with no node, what its owner allowed.
    pub fn place(
        &mut self,
        hands: &mut Hands<'_>,
        (task, process): (TaskId, ProcessId),
        to: Option<(NodeId, &CpuSet)>,
    ) -> Result<Outcome, WorldError> {
        // The tid may belong to somebody else by now.
        let stat = hands.system.stat(process.tgid, task.tid).map_err(read_error)?;
        if stat.is_none_or(|stat| stat.id != task) {
            return Ok(Outcome::Skipped(SkipReason::Gone));
        }
        let current = match hands.system.affinity(task.tid) {
            Ok(current) => current,
            Err(error) => return Ok(skipped(&error)),
        };
        let ours = self.tasks.get(&task).cloned();
        let in_force = ours.as_ref().map(|ours| ours.set.clone());
        let now = hands.ticks();
        // Who has it already may have handed it down since it has it.
        let had = ours.as_ref().filter(|ours| to.is_some_and(|(_, set)| ours.set == *set));
        let since = had.map_or(now, |ours| ours.since);
        let owner = match ours {
            Some(ours) if ours.set == current => {
                if has_more(hands.system, (process.tgid, task.tid), &ours.set) {
                    self.lose(hands, task, &current)?;
                    return Ok(Outcome::Skipped(SkipReason::OwnerChanged));
                }
                ours.owner
            }
            Some(ours) => {
                let who = (process.tgid, task.tid);
                let usable = hands.usable(who.0, who.1)?;
                if !is_untouched(hands.system, who, &current, &ours.set, &usable) {
                    return Ok(Outcome::Skipped(SkipReason::OwnerChanged));
                }
                ours.owner
            }
            None => hands.owners((process.tgid, task.tid), &current)?,
        };
        let set = to.map_or(&owner, |(_, cpus)| cpus);
        hands.write_down((task, process), &owner, set)?;
        let done = match to {
            Some((_, cpus)) => hands.system.set_affinity(task.tid, cpus),
            None => put_back(hands.system, task.tid, &owner).map(|_| ()),
        };
        if let Err(error) = done {
            hands.not_made(&error, (task, process), &owner, in_force.as_ref())?;
            return Ok(skipped(&error));
        }
        self.owners.remove(&task);
        let before = match to {
            Some((home, set)) => {
                let (set, home) = (set.clone(), Some(home));
                self.tasks.insert(task, Ours { process, owner, set, home, since })
            }
            None => self.tasks.remove(&task),
        };
        // Whom it gave birth to since the last look has that.
        let before = before.filter(|before| to.is_none_or(|(_, set)| before.set != *set));
        self.lost.extend(before.map(|before| (before, hands.ticks())));
        Ok(Outcome::Done { moved: Pages(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Running;
    use crate::testing::put;

    /// The run began at tick 100, moved one task after 5 s, and placed the other after 7 s.
    #[test]
    fn a_mask_that_was_kept_counts_from_when_it_was_set() {
        let change = |ms: u64, tid, after: &str| {
            let (task, process) = (TaskId { tid, start: 1 }, ProcessId { tgid: 7, start: 1 });
            let (before, after) = ("0-7".parse().unwrap(), after.parse().unwrap());
            (Nanos(ms * 1_000_000), Change::Affinity { task, process, before, after })
        };
        let kept =
            Kept::of(&[change(0, 7, "0-3"), change(5000, 7, "4-7"), change(7000, 8, "4-7")], 100);
        let ticks = |seconds: u64| seconds * 1_000_000_000 / clock::tick().0;
        let since: Vec<u64> = kept.values().map(|kept| kept.since - 100).collect();
        assert_eq!(since, [ticks(5), ticks(7)]);
    }

    #[test]
    fn threads_of_one_process_have_each_what_its_own_cpuset_allows() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        put(root.path(), "sys/devices/system/cpu/online", "0-7\n");
        for (tid, group, cpus) in [(7, "emulator", "0-1"), (8, "vcpu0", "4-7")] {
            put(root.path(), &format!("proc/7/task/{tid}/cgroup"), &format!("0::/vm/{group}\n"));
            let file = format!("sys/fs/cgroup/vm/{group}/cpuset.cpus.effective");
            put(root.path(), &file, &format!("{cpus}\n"));
        }
        let mut system = Running::new(root.path());
        let mut custody = Custody::default();
        let all: CpuSet = "0-7".parse().unwrap();
        let id = |tid| TaskId { tid, start: 1 };
        for tid in [7, 8] {
            let process = ProcessId { tgid: 7, start: 1 };
            let (owner, set, home) = (all.clone(), all.clone(), Some(NodeId(0)));
            let ours = Ours { process, owner, set, home, since: 0 };
            custody.tasks.insert(id(tid), ours);
        }
        let mut of = |tid, now| {
            custody.owners_cpus(&mut system, id(tid), &all, Nanos(now)).unwrap().to_string()
        };
        assert_eq!([of(7, 0), of(8, 0)], ["0-1", "4-7"]);
        // It is looked at again in its time only.
        put(root.path(), "sys/fs/cgroup/vm/vcpu0/cpuset.cpus.effective", "6-7\n");
        assert_eq!(of(8, CPUSET_AGE.0 - 1), "4-7");
        assert_eq!(of(8, CPUSET_AGE.0), "6-7");
        custody.retain(|task| task.tid == 7);
        assert_eq!(custody.cpusets.keys().collect::<Vec<_>>(), [&id(7)]);
    }
}
