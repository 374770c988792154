//! Masks of ours that came to somebody for whom they were not made: handed down to a thread or a child, or from one program
//! to the next, or put back by a program that had read one.

use numaherd_model::{CpuSet, Nanos, ProcessId, TaskId, WorldError};

use super::{Custody, Hands, Ours, has_more, is_untouched, put_back};
use crate::ReadError;
use crate::allowance::is_inherited;
use crate::live::read_error;

/// Generations looked back for the process that handed a mask down.
const MOST_ANCESTORS: usize = 16;

/// A mask of ours that is back so soon after its owner had set another is back because the program remembered what it
/// found. Guessed: later, somebody may want just that.
const REMEMBERED: Nanos = Nanos(10_000_000_000);

impl Custody {
    /// A task that was born with a mask of ours, of its own process or an ancestor's, is set free.
    pub(super) fn free_newborn(
        &mut self,
        hands: &mut Hands<'_>,
        (task, process): (TaskId, ProcessId),
        parent: u32,
        current: &mut CpuSet,
    ) -> Result<(), WorldError> {
        if self.tasks.is_empty() && self.lost.is_empty() {
            return Ok(());
        }
        let of_now = self.tasks.values().map(|ours| (ours, u64::MAX));
        let ours = || of_now.clone().chain(self.lost.iter().map(|(ours, until)| (ours, *until)));
        let exact = |ours: &Ours| ours.set == *current;
        // Most are born of nobody's we placed, and show more CPUs than we ever set.
        let remains = |ours: &Ours| {
            current.is_subset(&ours.set) || current.intersection(&ours.set).is_empty()
        };
        if !ours().any(|(ours, _)| remains(ours)) {
            return Ok(());
        }
        let mut usable = None;
        if !ours().any(|(ours, _)| exact(ours)) {
            usable = Some(hands.usable(process.tgid, task.tid)?);
        }
        // Of its own process, or of an ancestor: then with what that had when it, or who stands between the two, was
        // born.
        let born_with = |ours: &Ours, born: u64| {
            let inherited = |usable| is_inherited(current, &ours.set, &ours.owner, usable, true);
            usable.as_ref().map_or_else(|| exact(ours), inherited)
                && ours.owner != ours.set
                && ours.since <= born
        };
        // By start time too: the pid may have been that of somebody who ended since the last look.
        let found_in = |is_one: &dyn Fn(ProcessId) -> bool, born: u64| {
            let mut had = ours().filter(|(o, until)| is_one(o.process) && born <= *until);
            had.find(|(o, _)| born_with(o, born)).map(|(o, _)| o.clone())
        };
        let heirs_of = |process, born| found_in(&|one| one == process, born);
        let (mut found, mut born) = (heirs_of(process, task.start), process.start);
        let mut next = hands.parents.of(process.tgid).unwrap_or(parent);
        for _ in 0..MOST_ANCESTORS {
            if found.is_some() || next == 0 {
                break;
            }
            let told = hands.parents.of(next);
            // Whom we may not look at is none that we have placed.
            let stat = ReadError::unless_refused(hands.system.stat(next, next));
            // Who has ended was born no later than its children.
            match (stat.map_err(read_error)?.filter(|stat| stat.id.start <= born), told) {
                (Some(stat), _) => {
                    found = heirs_of(ProcessId { tgid: next, start: stat.id.start }, born);
                    (next, born) = (told.unwrap_or(stat.ppid), stat.id.start);
                }
                // It was placed, maybe, and has ended since the last look.
                (None, told) => {
                    found = found_in(&|one| one.tgid == next && one.start <= born, born);
                    let Some(parent) = told else { break };
                    next = parent;
                }
            }
        }
        match found {
            Some(parent) => self.free(hands, (task, process), &parent, current),
            None => Ok(()),
        }
    }

    /// Sets a task free that came to a mask of ours which was made for another, or for another program.
    fn free(
        &mut self,
        hands: &mut Hands<'_>,
        (task, process): (TaskId, ProcessId),
        ours: &Ours,
        current: &mut CpuSet,
    ) -> Result<(), WorldError> {
        // Its owner may have set one since whose other CPUs are offline.
        let usable = hands.usable(process.tgid, task.tid)?;
        let counts = !ours.set.intersection(&usable).is_empty();
        if counts && has_more(hands.system, (process.tgid, task.tid), &ours.set) {
            return Ok(());
        }
        self.born_confined += u64::from(task.tid == process.tgid);
        hands.write_down((task, process), &ours.owner, &ours.set)?;
        if hands.acts && put_back(hands.system, task.tid, &ours.owner).is_ok() {
            *current = hands.system.affinity(task.tid).unwrap_or_else(|_| ours.owner.clone());
        }
        Ok(())
    }

    /// A process runs another program than at the last look. Whichever of its threads executed it is the main one now, with
    /// its own mask, and there is no other. Whether that mask was ours, and is its owner's again.
    pub(super) fn executed(
        &mut self,
        hands: &mut Hands<'_>,
        (task, process): (TaskId, ProcessId),
        before: &CpuSet,
        current: &mut CpuSet,
    ) -> Result<bool, WorldError> {
        // Its owner's, and it may be the same as another thread has from us.
        if !self.tasks.contains_key(&task) && before == current {
            return Ok(false);
        }
        let of_process = self.tasks.values().filter(|other| other.process == process);
        let all: Vec<Ours> = of_process.cloned().collect();
        let had = match all.iter().find(|other| other.set == *current) {
            None if !all.is_empty() => {
                let who = (process.tgid, task.tid);
                let usable = hands.usable(who.0, who.1)?;
                let still = |o: &&Ours| is_untouched(hands.system, who, current, &o.set, &usable);
                all.iter().find(still)
            }
            exactly => exactly,
        };
        let Some(had) = had.filter(|had| had.owner != had.set) else { return Ok(false) };
        let had = had.clone();
        self.give_up(hands, task);
        self.free(hands, (task, process), &had, current)?;
        Ok(true)
    }

    /// A program that sets a mask for a moment puts back the one that it found: ours. Where its cpuset does not have all CPUs
    /// it may be what that leaves of its owner's.
    pub(super) fn remember(
        &mut self,
        hands: &mut Hands<'_>,
        task: TaskId,
        current: &CpuSet,
    ) -> Result<(), WorldError> {
        let Some((at, ours)) = self.owners.get(&task) else { return Ok(()) };
        if ours.set != *current || hands.system.monotonic().since(*at) > REMEMBERED {
            return Ok(());
        }
        let usable = hands.usable(ours.process.tgid, task.tid)?;
        if usable == hands.system.possible().map_err(read_error)? {
            let Some((_, ours)) = self.owners.remove(&task) else { return Ok(()) };
            if hands.acts {
                hands.write_down((task, ours.process), &ours.owner, &ours.set)?;
            }
            self.tasks.insert(task, ours);
        }
        Ok(())
    }
}
