//! Whose tasks are looked after: processes that were named, and their descendants, for as long as they live.
//!
//! To find descendants, the children of every thread are read, which takes as long as to read what the threads do. But
//! a process that is new has a pid that is new, and the kernel gives those out in order: where the newest is
//! the one of before, nobody was born, and where there are as many new threads of known processes as new pids, nobody
//! else was.
//!
//! Example: 107 was the newest pid. Now it is 110, and known processes have the new threads 108, 109 and 110: there is
//! no other process. Had they the threads 108 and 110 only, 109 may be a child, and all are looked through.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_model::{Nanos, ProcessId};

use crate::ReadError;
use crate::process::TaskStat;
use crate::system::System;

/// How long it may be that only pids told that nobody was born: who restores a process that was saved chooses its pid.
const TRUSTED: Nanos = Nanos(1_000_000_000);

/// See the module.
#[derive(Debug, Default)]
pub struct Family {
    targets: BTreeSet<ProcessId>,
    known: BTreeSet<ProcessId>,
    /// The newest pid at the last look.
    newest: Option<u32>,
    /// And when it was asked for last.
    asked: Option<u32>,
    /// When all were looked through last.
    searched: Option<Nanos>,
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

    /// Names others. Whoever was found stays so until it ends.
    pub fn retarget(&mut self, targets: impl IntoIterator<Item = ProcessId>) {
        let targets: BTreeSet<ProcessId> = targets.into_iter().collect();
        if !targets.is_subset(&self.known) {
            self.searched = None;
        }
        self.targets = targets;
    }

    /// Whether anybody was born since the last look, and nobody since this was asked last: whoever starts threads has
    /// started them.
    pub fn births_are_over(&mut self, system: &mut dyn System) -> bool {
        let newest = system.newest_pid();
        let before = std::mem::replace(&mut self.asked, newest);
        newest.is_some() && newest == before && newest != self.newest
    }

    /// Finds all who live, by pid; and whether they are others than the last time.
    pub fn find(
        &mut self,
        system: &mut dyn System,
        now: Nanos,
    ) -> Result<(Vec<Member>, bool), ReadError> {
        // Before any list of threads: who is born meanwhile is the next look's.
        let newest = system.newest_pid();
        let before = std::mem::replace(&mut self.newest, newest);
        let mut found = BTreeMap::new();
        for id in &self.known {
            if let Some(member) = member(system, id.tgid)?.filter(|member| member.id == *id) {
                found.insert(id.tgid, member);
            }
        }
        let trusted = self.searched.is_some_and(|at| now.since(at) < TRUSTED);
        if !trusted || !all_told(before.zip(newest), &found) {
            self.search(system, &mut found)?;
            self.searched = Some(now);
        }
        let known = found.values().map(|member| member.id).collect();
        let changed = std::mem::replace(&mut self.known, known) != self.known;
        Ok((found.into_values().collect(), changed))
    }

    /// Adds descendants.
    fn search(
        &self,
        system: &mut dyn System,
        found: &mut BTreeMap<u32, Member>,
    ) -> Result<(), ReadError> {
        let mut searched = BTreeSet::new();
        for target in self.targets.union(&self.known) {
            // Most are descendants of one looked at before.
            if searched.contains(&target.tgid) {
                continue;
            }
            if !found.contains_key(&target.tgid)
                && let Some(member) =
                    member(system, target.tgid)?.filter(|found| found.id == *target)
            {
                found.insert(target.tgid, member);
            }
            // Whoever has its pid now may be another.
            if found.get(&target.tgid).is_none_or(|found| found.id != *target) {
                continue;
            }
            for tgid in system.tree(target.tgid)? {
                searched.insert(tgid);
                if !found.contains_key(&tgid)
                    && let Some(member) = member(system, tgid)?
                {
                    found.insert(tgid, member);
                }
            }
        }
        Ok(())
    }
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
mod tests {
    use super::*;
    use crate::system::Running;
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
                family.find(&mut system, Nanos(seconds * TRUSTED.0 / 10)).unwrap();
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
        let newest =
            |pid: u32| put(root.path(), "proc/loadavg", &format!("0.1 0.2 0.3 1/99 {pid}\n"));
        let mut system = Running::new(root.path());
        let mut family = Family::default();
        assert!(!family.births_are_over(&mut system) && !family.births_are_over(&mut system));
        newest(20);
        family.find(&mut system, Nanos(0)).unwrap();
        let mut over = |pid| {
            newest(pid);
            family.births_are_over(&mut system)
        };
        assert_eq!([20, 20, 21, 23, 23].map(&mut over), [false, false, false, false, true]);
        family.find(&mut system, Nanos(0)).unwrap();
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
            let (found, _) = family.find(&mut system, Nanos(0)).unwrap();
            found.iter().map(|member| member.id.tgid).collect::<Vec<_>>()
        };
        assert_eq!(find(&mut family), [10]);
        family.retarget([id(20, 424_242)]);
        assert_eq!(find(&mut family), [10, 20]);
        let mut family = Family::of([id(10, 424_241), id(20, 424_242)]);
        assert_eq!(find(&mut family), [20]);
    }
}
