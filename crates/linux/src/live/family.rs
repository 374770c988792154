//! Whose tasks are looked after: processes that were named, and their descendants; and processes that were
//! found busy, with those that are born of them from then on. Named ones for as long as they live, and busy ones until
//! they have long been idle with no thread placed; never ourselves.
//!
//! Who was there before a process was found busy is nobody that it works with: all descend from process 1,
//! and whoever logged in from sshd. But who is born of it later may be born with a mask of ours, and is
//! followed with all descendants, if the process is still busy or has a thread that we placed.
//!
//! To find descendants, the children of every thread are read, which takes as long as to read what the threads do. But
//! a process that is new has a pid that is new, and the kernel gives those out in order: where the newest is
//! the one of before, nobody was born, and where there are as many new threads of known processes as new pids, nobody
//! else was.
//!
//! Who has no parent any more, for that ended before anybody looked, is nobody's child: a program that goes to the
//! background does just that. Where births are told, their order says of whom it descends ([`Family::hear`]).
//!
//! Example: 107 was the newest pid. Now it is 110, and known processes have the new threads 108, 109 and 110: there is
//! no other process. Had they the threads 108 and 110 only, 109 may be a child, and all are looked through.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_model::{Birth, Nanos, ProcessId};

use crate::ReadError;
use crate::process::TaskStat;
use crate::sys::clock;
use crate::system::{self, System};

/// How long it may be that only pids told that nobody was born: who restores a process that was saved chooses its pid.
const TRUSTED: Nanos = Nanos(1_000_000_000);

/// How long whoever was busy is kept that is no longer, and of whom nobody is placed: every look reads what each thread
/// does, and a host has hundreds of services that were busy once. What is known of its memory is lost with it, so it
/// is long. Guessed.
const KEPT: Nanos = Nanos(300_000_000_000);

/// What is told of a birth and what a start time says are so close together: both are of a clock tick. Guessed: a few.
const SAME: Nanos = Nanos(100_000_000);

/// See the module.
#[derive(Debug, Default)]
pub struct Family {
    targets: BTreeSet<ProcessId>,
    busy: BTreeSet<ProcessId>,
    known: BTreeMap<ProcessId, Bond>,
    /// Busy ones whose children were ours at the last look.
    bearing: BTreeSet<ProcessId>,
    /// Since when busy ones are idle, with no thread placed.
    idle: BTreeMap<ProcessId, Nanos>,
    /// Who is never looked after, nor anybody for descending from it.
    except: Option<u32>,
    /// The newest pid at the last look.
    newest: Option<u32>,
    /// And when it was asked for last.
    asked: Option<u32>,
    /// When all were looked through last.
    searched: Option<Nanos>,
    /// Since the last look, oldest first.
    births: Vec<Birth>,
}

/// Who comes with a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bond {
    /// All its descendants.
    Whole,
    /// Who is born of it from this tick on.
    Since(u64),
}

/// A process that is looked after.
#[derive(Debug)]
pub struct Member {
    /// Who it is.
    pub id: ProcessId,
    /// What its first thread does.
    pub leader: TaskStat,
    /// Its threads, ascending.
    pub threads: Vec<u32>,
}

impl Family {
    /// Of these processes.
    pub fn of(targets: impl IntoIterator<Item = ProcessId>) -> Family {
        Family { targets: targets.into_iter().collect(), ..Family::default() }
    }

    /// Leaves out this process, and its children but for those that are named.
    pub fn leave_out(&mut self, tgid: u32) {
        self.except = Some(tgid);
    }

    /// Names others, and tells who is busy.
    pub fn retarget(
        &mut self,
        targets: impl IntoIterator<Item = ProcessId>,
        busy: impl IntoIterator<Item = ProcessId>,
    ) {
        self.targets = targets.into_iter().collect();
        self.busy = busy.into_iter().collect();
        if !self.targets.union(&self.busy).all(|process| self.known.contains_key(process)) {
            self.searched = None;
        }
    }

    /// Whether anybody was born since the last look, and nobody since this was asked last: whoever starts threads has
    /// started them.
    pub fn births_are_over(&mut self, system: &mut dyn System) -> bool {
        let newest = system.newest_pid();
        let before = std::mem::replace(&mut self.asked, newest);
        newest.is_some() && newest == before && newest != self.newest
    }

    /// These processes were born since the last look, oldest first.
    pub fn hear(&mut self, births: Vec<Birth>) {
        self.births.extend(births);
    }

    /// Finds all who live, by pid; and whether they are others than the last time. Of some processes we have
    /// `placed` a thread.
    pub fn find(
        &mut self,
        system: &mut dyn System,
        now: Nanos,
        placed: impl Fn(&ProcessId) -> bool,
    ) -> Result<(Vec<Member>, bool), ReadError> {
        // Before any list of threads: who is born meanwhile is the next look's.
        let newest = system.newest_pid();
        let before = std::mem::replace(&mut self.newest, newest);
        let mut found = BTreeMap::new();
        for id in self.known.keys() {
            if let Some(member) = member(system, id.tgid)?.filter(|member| member.id == *id) {
                found.insert(id.tgid, member);
            }
        }
        let trusted = self.searched.is_some_and(|at| now.since(at) < TRUSTED);
        let mut bonds = self.known.clone();
        if !trusted || !self.births.is_empty() || !all_told(before.zip(newest), &found) {
            // Who bore children until a moment ago, too: they were born before this look.
            let parents = self.bearing(&bonds, &placed);
            let parents = parents.union(&self.bearing).copied().collect();
            self.search(system, &mut found, &mut bonds, parents)?;
            self.add_orphans(system, &mut found, &mut bonds, &placed)?;
            self.searched = Some(now);
        }
        self.births.clear();
        bonds.retain(|process, _| found.get(&process.tgid).is_some_and(|one| one.id == *process));
        self.release(&mut bonds, now, &placed);
        found.retain(|_, member| bonds.contains_key(&member.id));
        let changed = !bonds.keys().eq(self.known.keys());
        self.bearing = self.bearing(&bonds, &placed);
        self.known = bonds;
        Ok((found.into_values().collect(), changed))
    }

    /// Lets go of those that came for being busy and have been idle for long.
    fn release(
        &mut self,
        bonds: &mut BTreeMap<ProcessId, Bond>,
        now: Nanos,
        placed: &impl Fn(&ProcessId) -> bool,
    ) {
        let busy = self.bearing(bonds, placed);
        let is_idle = |process: &ProcessId, bond: &Bond| {
            matches!(bond, Bond::Since(_)) && !busy.contains(process)
        };
        self.idle
            .retain(|process, _| bonds.get(process).is_some_and(|bond| is_idle(process, bond)));
        bonds.retain(|process, bond| {
            !is_idle(process, bond) || now.since(*self.idle.entry(*process).or_insert(now)) < KEPT
        });
    }

    /// Those of the busy whose children are ours.
    fn bearing(
        &self,
        bonds: &BTreeMap<ProcessId, Bond>,
        placed: &impl Fn(&ProcessId) -> bool,
    ) -> BTreeSet<ProcessId> {
        let alone = bonds.iter().filter(|(_, bond)| matches!(bond, Bond::Since(_)));
        let alone = alone.map(|(process, _)| *process);
        alone.filter(|process| self.busy.contains(process) || placed(process)).collect()
    }

    /// Adds whoever is named or busy, children of these busy `parents`, and descendants.
    fn search(
        &self,
        system: &mut dyn System,
        found: &mut BTreeMap<u32, Member>,
        bonds: &mut BTreeMap<ProcessId, Bond>,
        parents: BTreeSet<ProcessId>,
    ) -> Result<(), ReadError> {
        let now = system.since_boot().0 / clock::tick().0;
        let named = self.targets.iter().map(|process| (*process, Bond::Whole));
        let busy = self.busy.iter().map(|process| (*process, Bond::Since(now)));
        for (process, bond) in named.chain(busy).filter(|(id, _)| Some(id.tgid) != self.except) {
            add(system, found, process.tgid)?;
            // Whoever has its pid now may be another.
            if found.get(&process.tgid).is_some_and(|found| found.id == process) {
                let known = bonds.entry(process).or_insert(bond);
                if bond == Bond::Whole {
                    *known = bond;
                }
            }
        }
        self.add_born(system, found, bonds, parents)?;
        let whole = bonds.iter().filter(|(_, bond)| **bond == Bond::Whole);
        let alive = whole.filter(|(id, _)| found.get(&id.tgid).is_some_and(|one| one.id == **id));
        let mut generation: Vec<u32> = alive.map(|(id, _)| id.tgid).collect();
        let mut searched: BTreeSet<u32> = generation.iter().copied().chain(self.except).collect();
        while !generation.is_empty() {
            generation = system.children(&generation)?;
            generation.retain(|child| searched.insert(*child));
            for child in &generation {
                add(system, found, *child)?;
                bonds.extend(found.get(child).map(|member| (member.id, Bond::Whole)));
            }
        }
        Ok(())
    }

    /// Adds who was born since the last look of ours, or of somebody who was, and whose parent has ended.
    fn add_orphans(
        &self,
        system: &mut dyn System,
        found: &mut BTreeMap<u32, Member>,
        bonds: &mut BTreeMap<ProcessId, Bond>,
        placed: &impl Fn(&ProcessId) -> bool,
    ) -> Result<(), ReadError> {
        if self.births.is_empty() {
            return Ok(());
        }
        let bearing = self.bearing(bonds, placed);
        let bears = |(process, bond): &(&ProcessId, &Bond)| {
            **bond == Bond::Whole || bearing.contains(process) || self.bearing.contains(process)
        };
        // Whoever lived at the last look was one of these, too.
        let mut parents: BTreeSet<u32> =
            bonds.iter().filter(bears).map(|(process, _)| process.tgid).collect();
        for birth in self.births.iter().filter(|birth| Some(birth.child) != self.except) {
            if !parents.contains(&birth.parent) {
                continue;
            }
            parents.insert(birth.child);
            if !found.contains_key(&birth.child) && is_orphan(system, *birth)? {
                add(system, found, birth.child)?;
                bonds.extend(found.get(&birth.child).map(|member| (member.id, Bond::Whole)));
            }
        }
        Ok(())
    }

    /// Adds who was born of busy processes since they were found to be so.
    fn add_born(
        &self,
        system: &mut dyn System,
        found: &mut BTreeMap<u32, Member>,
        bonds: &mut BTreeMap<ProcessId, Bond>,
        parents: BTreeSet<ProcessId>,
    ) -> Result<(), ReadError> {
        let parents: Vec<u32> = parents.into_iter().map(|process| process.tgid).collect();
        if parents.is_empty() {
            return Ok(());
        }
        for child in system.children(&parents)? {
            if found.contains_key(&child) || Some(child) == self.except {
                continue;
            }
            let Some(stat) = system.stat(child, child)? else { continue };
            let parent = found.get(&stat.ppid).and_then(|parent| bonds.get(&parent.id));
            if parent.is_some_and(|bond| matches!(bond, Bond::Since(at) if stat.id.start >= *at)) {
                add(system, found, child)?;
                bonds.extend(found.get(&child).map(|member| (member.id, Bond::Whole)));
            }
        }
        Ok(())
    }
}

/// Whether a process has whoever adopts orphans for its parent, in place of the one that created it.
fn is_orphan(system: &mut dyn System, birth: Birth) -> Result<bool, ReadError> {
    let Some(child) = system.stat(birth.child, birth.child)? else { return Ok(false) };
    // The pid of one that has ended may be a stranger's by now, who was born at another time.
    let age = system::age(system, child.id.start);
    let born = Nanos(system.monotonic().0.saturating_sub(age.0));
    if born.since(birth.time).max(birth.time.since(born)) > SAME {
        return Ok(false);
    }
    // Either's pid may be another's by now.
    let parent = ReadError::unless_refused(system.stat(birth.parent, birth.parent))?;
    let lives = parent.is_some_and(|parent| parent.id.start <= child.id.start && !parent.is_dead());
    Ok(!lives && child.ppid != birth.parent)
}

/// Adds a process, if it lives and is not there.
fn add(
    system: &mut dyn System,
    found: &mut BTreeMap<u32, Member>,
    tgid: u32,
) -> Result<(), ReadError> {
    if !found.contains_key(&tgid)
        && let Some(member) = member(system, tgid)?
    {
        found.insert(tgid, member);
    }
    Ok(())
}

/// A process, if it lives.
fn member(system: &mut dyn System, tgid: u32) -> Result<Option<Member>, ReadError> {
    let Some(leader) = system.stat(tgid, tgid)? else { return Ok(None) };
    let Some(threads) = system.threads(tgid)? else { return Ok(None) };
    let id = ProcessId { tgid, start: leader.id.start };
    Ok(Some(Member { id, leader, threads }))
}

/// Whether all pids that were given out since are those of threads of these.
fn all_told(pids: Option<(u32, u32)>, found: &BTreeMap<u32, Member>) -> bool {
    // Past the highest pid, low ones come again.
    let Some((before, newest)) = pids.filter(|(before, newest)| before <= newest) else {
        return false;
    };
    let is_new = |tid: &&u32| before < **tid && **tid <= newest;
    let new = found.values().flat_map(|member| &member.threads).filter(is_new).count();
    new == (newest - before) as usize
}

#[cfg(test)]
mod tests;
