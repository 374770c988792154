//! Which memory several processes in our care map: remembered for a while, since asking costs a file a
//! process.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use numaherd_model::{Nanos, ObjectId, ProcessId, SharedRange};

use crate::ReadError;
use crate::memory::maps::ObjectRange;
use crate::system::{self, System};

/// Bounds on how long it is good: until a process is twice as old. Guessed: segments are mapped at a program's start
/// and stay.
const AGE: (Nanos, Nanos) = (Nanos(100_000_000), Nanos(10_000_000_000));

/// Until when what each process maps that others may map too is good, and that.
type Mapped = BTreeMap<ProcessId, (Nanos, Vec<ObjectRange>)>;

/// See the module.
#[derive(Debug, Default)]
pub struct Objects {
    mapped: Mapped,
    common: Vec<SharedRange>,
}

impl Objects {
    /// The ranges of these processes, ascending, of objects that at least two of them map. Nothing is
    /// read for a process that is alone, nor again for those that are known, whoever comes and goes.
    pub fn common(
        &mut self,
        system: &mut dyn System,
        processes: &BTreeSet<ProcessId>,
        now: Nanos,
    ) -> Result<&[SharedRange], ReadError> {
        if processes.len() < 2 {
            *self = Objects::default();
            return Ok(&[]);
        }
        let before = self.mapped.len();
        self.mapped.retain(|process, (until, _)| processes.contains(process) && now < *until);
        let mut changed = self.mapped.len() < before;
        for process in processes {
            if let Entry::Vacant(unknown) = self.mapped.entry(*process) {
                let age = system::age(system, process.start).clamp(AGE.0, AGE.1);
                unknown.insert((Nanos(now.0 + age.0), ranges(system, *process)?));
                changed = true;
            }
        }
        if changed {
            self.common = common(&self.mapped);
        }
        Ok(&self.common)
    }

    /// Whether a piece of an address space is one of them.
    pub fn has(&self, process: ProcessId, addresses: &Range<u64>) -> bool {
        self.of(process, addresses).next().is_some()
    }

    /// The other processes that map what a piece of an address space is of.
    pub fn others(&self, process: ProcessId, addresses: &Range<u64>) -> BTreeSet<ProcessId> {
        let objects: BTreeSet<ObjectId> =
            self.of(process, addresses).map(|range| range.object).collect();
        let others = self.common.iter().filter(|range| range.process != process);
        others.filter(|range| objects.contains(&range.object)).map(|range| range.process).collect()
    }

    fn of(&self, process: ProcessId, addresses: &Range<u64>) -> impl Iterator<Item = &SharedRange> {
        let inside = move |range: &&SharedRange| {
            range.process == process && range.start < addresses.end && addresses.start < range.end()
        };
        self.common.iter().filter(inside)
    }
}

/// What a process maps that others may map too; nothing where it has ended.
fn ranges(system: &mut dyn System, process: ProcessId) -> Result<Vec<ObjectRange>, ReadError> {
    match system.shared_ranges(process.tgid) {
        // Of somebody else's, which they may be all the same: such as a child that is another user.
        Err(error) if error.is_refused() => Ok(Vec::new()),
        ranges => Ok(ranges?.unwrap_or_default()),
    }
}

/// What several map.
fn common(mapped: &Mapped) -> Vec<SharedRange> {
    let all = || mapped.iter().flat_map(|(of, (_, ranges))| ranges.iter().map(|one| (*of, one)));
    let mut mapped_by: BTreeMap<ObjectId, (ProcessId, bool)> = BTreeMap::new();
    for (process, range) in all() {
        let (first, several) = mapped_by.entry(range.object).or_insert((process, false));
        *several |= *first != process;
    }
    let several =
        |range: &ObjectRange| mapped_by.get(&range.object).is_some_and(|(_, several)| *several);
    let of = |(process, range): (ProcessId, &ObjectRange)| SharedRange {
        process,
        start: range.start,
        len: range.len,
        object: range.object,
        offset: range.offset,
    };
    let mut common: Vec<SharedRange> = all().filter(|(_, range)| several(range)).map(of).collect();
    common.sort_unstable_by_key(|range| (range.process, range.start));
    common
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Running;
    use crate::testing::put;

    /// Maps a file of these numbers, as the kernel prints it.
    fn maps(root: &std::path::Path, tgid: u32, inodes: &[u32]) {
        let line = |inode: &u32| {
            format!(
                "7f{inode:04x}000000-7f{inode:04x}200000 rw-s 00000000 00:01 {inode} /dev/shm/x\n"
            )
        };
        put(root, &format!("proc/{tgid}/maps"), &inodes.iter().map(line).collect::<String>());
    }

    #[test]
    fn who_comes_is_read_and_nobody_again_until_ten_seconds_are_over() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let mut system = Running::new(root);
        let mut objects = Objects::default();
        let mut found = |tgids: &[u32], second: u64| {
            let of = tgids.iter().map(|&tgid| ProcessId { tgid, start: 1 }).collect();
            let now = Nanos(second * 1_000_000_000);
            let common = objects.common(&mut system, &of, now).unwrap();
            common.iter().map(|range| (range.process.tgid, range.object.inode)).collect::<Vec<_>>()
        };
        maps(root, 1, &[10, 11]);
        maps(root, 2, &[10]);
        maps(root, 3, &[11]);
        assert_eq!(found(&[1], 0), []);
        assert_eq!(found(&[1, 2], 0), [(1, 10), (2, 10)]);
        // What these two have is not read again for a third.
        maps(root, 2, &[11]);
        assert_eq!(found(&[1, 2, 3], 5), [(1, 10), (1, 11), (2, 10), (3, 11)]);
        assert_eq!(found(&[1, 3], 6), [(1, 11), (3, 11)]);
        // The first was read ten seconds ago, the third has five left.
        maps(root, 1, &[10]);
        maps(root, 3, &[10]);
        assert_eq!(found(&[1, 3], 10), []);
        assert_eq!(found(&[1, 3], 15), [(1, 10), (3, 10)]);
        // Whoever has ended, or is alone, has nothing in common.
        std::fs::remove_file(root.join("proc/3/maps")).unwrap();
        assert_eq!(found(&[1, 3], 30), []);
        assert_eq!(found(&[1], 31), []);
    }

    #[test]
    fn who_else_maps_a_piece_is_known_of_what_it_is_a_piece_of() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        maps(root, 1, &[10, 11]);
        maps(root, 2, &[10]);
        maps(root, 3, &[11]);
        let mut objects = Objects::default();
        let process = |tgid| ProcessId { tgid, start: 1 };
        let all = [1, 2, 3].map(process).into();
        objects.common(&mut Running::new(root), &all, Nanos(0)).unwrap();
        let others = |tgid, inode: u64| {
            let start = (0x7f_0000 + inode) << 24;
            let others = objects.others(process(tgid), &(start..start + 0x1000));
            others.into_iter().map(|process| process.tgid).collect::<Vec<_>>()
        };
        assert_eq!([others(1, 10), others(1, 11), others(2, 10)], [[2], [3], [1]]);
        assert_eq!(others(2, 11), []);
    }
}
