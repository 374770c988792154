//! How long a process would be held up if its mappings were read with their policies.
//!
//! The kernel tells of policies in `numa_maps` only, and counts the pages of each mapping for it, with the process's
//! lock on its mappings held: threads that map, unmap or grow memory wait, and on kernels before 6.4 whoever takes a
//! page fault waits behind those. It lets go between two mappings where little is read at a time, as we do, so that what
//! counts is the longest one. A huge page is counted as fast as a base page.
//!
//! All walks together have one budget: five hundred processes that map one large segment are five hundred walks of it.
//!
//! Example: a database with 500 GiB of base pages in one mapping would wait for three seconds at the least, or for eight. Its
//! mappings are not read; with 500 GiB of huge pages or in mappings of 1 GiB they are.

use numaherd_model::{Bytes, Nanos};

use crate::ReadError;
use crate::memory::numa_maps::Mapping;
use crate::sys::pages;
use crate::system::{Memory, System};

/// Base pages of one mapping that may be walked. Measured: 22 ns each for pages that lie one after the other (median of
/// three walks over 4 GiB on an idle development machine), so that it is a tenth of a second; and on a virtual machine with
/// both CPUs busy, at the lowest priority, 57 to 128 ns each (medians of seven walks over 1 and 4 GiB) and 114 to 144 ns
/// where pages lie anywhere: half a second.
const MOST_PAGES: u64 = 4 << 20;

/// Which part of one CPU's time all walks of all processes may take. Guessed.
pub const ALL_PART: u64 = 50;

/// Time of walks that may be done in a row where there were none for long, as at the start of sixty ranks of 10 ms. Guessed:
/// others wait so long for us.
const IN_A_ROW: Nanos = Nanos(500_000_000);

/// What walks of all processes cost so far.
#[derive(Debug, Default)]
pub struct Budget {
    /// When all is paid for.
    paid: Nanos,
}

impl Budget {
    /// Whether there may be another one.
    pub fn allows(&self, now: Nanos) -> bool {
        self.paid.since(now).0 < IN_A_ROW.0 * ALL_PART
    }

    /// One was from `begin` to `end`.
    pub fn spend(&mut self, begin: Nanos, end: Nanos) {
        self.paid = Nanos(self.paid.0.max(end.0) + end.since(begin).0 * ALL_PART);
    }
}

/// The budget, and what is called between two processes: others are not to wait for all of them.
pub type Pace<'a> = (&'a mut Budget, &'a mut dyn FnMut());

/// Why a process's mappings are not read.
pub const TOO_LONG: &str = "reading the policies of its memory would hold up its threads: too much is in base pages of one mapping";

/// Why they are read later.
pub const TOO_OFTEN: &str =
    "reading the policies of its memory has to wait: others took all the time there is for that";

/// All mappings of a process, which takes from `now` on what the budget is charged for; and how long that was.
pub fn mappings(
    system: &mut dyn System,
    tgid: u32,
    now: Nanos,
    walks: &mut Budget,
) -> Result<(Vec<Mapping>, Nanos), ReadError> {
    let begin = system.monotonic();
    let mappings = system.mappings(tgid)?.unwrap_or_default();
    let took = system.monotonic().since(begin);
    walks.spend(now, Nanos(now.0 + took.0));
    Ok((mappings, took))
}

/// Whether a process with so much resident memory would be held up for long, as far as can be told at no cost to it.
pub fn is_too_long(memory: &mut (impl Memory + ?Sized), tgid: u32, resident: Bytes) -> bool {
    if resident.pages(pages::size()).0 <= MOST_PAGES || !memory.is_mostly_base() {
        return false;
    }
    let mapped = memory.mapped(tgid).ok().flatten().unwrap_or_default();
    mapped.iter().any(|range| is_long(Bytes(range.end - range.start)))
}

/// Whether a mapping is longer than may be walked, if all of it is there.
pub fn is_long(len: Bytes) -> bool {
    len.pages(pages::size()).0 > MOST_PAGES
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use numaherd_model::{Nanos, ProcessId};

    use super::super::quiet::Aside;
    use super::*;
    use crate::memory::residence::Unseen;
    use crate::system::{self, Running};
    use crate::testing::put;

    /// Process 7 with so many kB of anonymous memory, of which so many of the machine's are huge, in mappings that long;
    /// the first half of it has a policy.
    fn process(root: &Path, resident: u64, (all, huge): (u64, u64), lengths: &[u64]) -> Running {
        put(root, "proc/7/status", &format!("RssAnon:\t{resident} kB\n"));
        put(root, "proc/meminfo", &format!("AnonPages: {all} kB\nAnonHugePages: {huge} kB\n"));
        let (mut start, mut maps) = (1_u64 << 40, String::new());
        for kib in lengths {
            maps += &format!("{start:x}-{:x} rw-p 00000000 00:00 0 \n", start + (kib << 10));
            start += (kib << 10) + (1 << 30);
        }
        put(root, "proc/7/maps", &maps);
        let policies = "1000 default stack anon=1 N0=1 kernelpagesize_kB=4\n\
                        10000000000 bind:0 anon=9000000 N0=9000000 kernelpagesize_kB=4\n";
        put(root, "proc/7/numa_maps", policies);
        Running::new(root)
    }

    #[test]
    fn policies_are_found_only_where_looking_for_them_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let all = 2 * MOST_PAGES * (pages::size().0 >> 10);
        let id = ProcessId { tgid: 7, start: 1 };
        let hidden = |huge, lengths: &[u64]| {
            let mut system = process(folder.path(), all, (all, huge), lengths);
            Aside::default()
                .hidden(&mut system, id, Nanos(1), &mut Budget::default())
                .map(|hidden| hidden.cause)
        };
        // A process that is as old as the machine, which is young where tests run.
        if system::age(&mut Running::new(folder.path()), 1) > Nanos(2 * MOST_PAGES * 100 * 500) {
            assert_eq!(hidden(0, &[all / 4; 4]), Some(Unseen::Policy));
            assert_eq!(hidden(all, &[all]), Some(Unseen::Policy));
        }
        assert_eq!(hidden(0, &[all]), None);
    }

    /// As of a database with 500 processes that map one segment of 8 GiB.
    #[test]
    fn all_walks_together_take_a_part_of_one_cpu() {
        let mut budget = Budget::default();
        let ms = 1_000_000;
        let mut walks = |from: u64, to: u64| {
            let mut now = from * 1000 * ms;
            let mut walked = 0;
            while now < to * 1000 * ms {
                if budget.allows(Nanos(now)) {
                    budget.spend(Nanos(now), Nanos(now + 100 * ms));
                    walked += 1;
                }
                now += 100 * ms;
            }
            walked
        };
        // Five at once and one every 5 s since: each is 100 ms.
        assert_eq!(walks(1000, 1001), 6);
        let hour = walks(1001, 4601);
        assert!((719..=721).contains(&hour), "{hour}");
    }

    #[test]
    fn one_long_mapping_of_base_pages_is_not_walked_and_several_or_huge_ones_are() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let page = pages::size().0 >> 10;
        let (all, half) = (6 * (MOST_PAGES >> 1) * page, 3 * (MOST_PAGES >> 1) * page);
        let tried = |resident, huge, lengths: &[u64]| {
            let mut system = process(root, resident, (all, huge), lengths);
            let resident = system.resident(7);
            is_too_long(&mut system, 7, resident)
        };
        assert!(tried(all, 0, &[all]));
        assert!(!tried(all, all, &[all]), "huge pages");
        // One a gibibyte of which is there, in a large reservation; and three of a third of all.
        assert!(!tried(1 << 20, 0, &[all]));
        assert!(!tried(all, 0, &[all / 3; 3]));
        assert!(tried(all, 0, &[half, half]));
        assert!(!is_too_long(&mut Running::new(root), 8, Bytes(all << 10)), "it has ended");
    }
}
