//! Memory that its owner gave a policy after it was seen in use: it stays where that has it.
//!
//! Memory that takes hinting faults has no policy, or the kernel would pass over it, and what has just faulted needs no
//! other proof. But what is known of it stays known when faults end, as they do with `mbind` or `set_mempolicy`, and would
//! move it against its owner's word. So before memory of a process moves that is known for longer, its policies are read,
//! at the cost and within the budget that [`super::walk`] tells of, and again while it goes on being moved. Where there is no
//! time for that, as others are read, what was known is good for a while longer. Where they may not be read, for that would
//! hold the process up, faults are believed.
//!
//! A program may give itself a policy for a moment while it allocates, and all of its memory shows that. What has one is
//! not moved, but only where it has it still when its policies are read again do its tasks have to come to it.
//!
//! Example: a database is looked after for an hour. It binds its buffers to node 1; when 200 MiB of them are to go to
//! node 0, that is seen and they stay.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use numaherd_model::{Nanos, NodeId, NodeSet, Outcome, ProcessId, SkipReason};

use super::walk::{self, Budget};
use crate::memory::numa_maps::Mapping;
use crate::system::System;

/// What was found out so long ago is believed: faults, and policies that were read. Guessed.
const FRESH: Nanos = Nanos(10_000_000_000);

/// The same where there is no time to read them: so many processes that are moved at once are each read in their turn.
/// Guessed.
const OUTDATED: Nanos = Nanos(120_000_000_000);

/// What policies are found to be: what is held where, for those of a process that are not the kernel's default.
const OWNED: &str = "its owner gave it a memory policy";

/// Why memory waits whose policies were not read for too long.
const UNREAD: &str = "whether its owner gave it a memory policy could not be read of late";

/// See the module.
#[derive(Debug, Default)]
pub struct Owned(BTreeMap<ProcessId, Known>);

/// What is known of a process's policies.
#[derive(Debug)]
struct Known {
    /// Until when nothing need be read, and until when it is good where nothing can be.
    until: Nanos,
    outdated: Nanos,
    /// What has a policy, ascending.
    ranges: Vec<Ruled>,
}

/// Memory with a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ruled {
    range: Range<u64>,
    /// Where the kernel's balancing may have it, which a policy can allow.
    nodes: NodeSet,
    /// Whether it had one when policies were read before, too.
    lasts: bool,
}

impl Owned {
    /// These are looked after: what will be known of those that are new is fresh for a while. Forgets all others.
    pub fn see(&mut self, processes: &BTreeSet<ProcessId>, now: Nanos) {
        self.0.retain(|process, _| processes.contains(process));
        for process in processes {
            self.0.entry(*process).or_insert_with(|| Known::since(now));
        }
    }

    /// Reads policies of a process that is about to have memory moved, if that is due.
    pub fn look(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        now: Nanos,
        walks: &mut Budget,
    ) {
        let known = self.0.entry(process).or_insert_with(|| Known::since(now));
        if now < known.until {
            return;
        }
        let resident = system.resident(process.tgid);
        if walk::is_too_long(system, process.tgid, resident) {
            *known = Known::since(now);
        } else if walks.allows(now) {
            let read = walk::mappings(system, process.tgid, now, walks);
            let Ok((mappings, took)) = read else { return };
            let ranges = ruled(&mappings, &known.ranges);
            let until = Nanos(now.0 + took.0 + FRESH.0.max(took.0 * walk::ALL_PART));
            *known = Known { until, outdated: Nanos(until.0 + OUTDATED.0), ranges };
        }
    }

    /// Why a piece of a process's memory is not to go to a node, if it is not.
    pub fn keeps(
        &self,
        process: ProcessId,
        piece: &Range<u64>,
        to: NodeId,
        now: Nanos,
    ) -> Option<Outcome> {
        let known = self.0.get(&process)?;
        if now >= known.outdated {
            let problem = UNREAD.into();
            return Some(Outcome::Skipped(SkipReason::Checked { problem, short: None }));
        }
        let first = known.ranges.partition_point(|one| one.range.end <= piece.start);
        let there = known.ranges[first..].iter().take_while(|one| one.range.start < piece.end);
        let one = there.filter(|one| !one.nodes.contains(to)).min_by_key(|one| !one.lasts)?;
        Some(Outcome::Skipped(match one.lasts {
            true => SkipReason::Held { why: OWNED.into() },
            false => SkipReason::Checked { problem: OWNED.into(), short: None },
        }))
    }
}

impl Known {
    fn since(now: Nanos) -> Known {
        let until = Nanos(now.0 + FRESH.0);
        Known { until, outdated: Nanos(until.0 + OUTDATED.0), ranges: Vec::new() }
    }
}

/// What of these mappings has a policy, and had `before`. A mapping is told with its start only, and what is between its
/// end and the next one is no memory.
fn ruled(mappings: &[Mapping], before: &[Ruled]) -> Vec<Ruled> {
    let ends = mappings.iter().skip(1).map(|next| next.start).chain([u64::MAX]);
    let with_policy = mappings.iter().zip(ends).filter(|(mapping, _)| mapping.policy != "default");
    let ruled = with_policy.map(|(mapping, end)| {
        let range = mapping.start..end;
        let at = before.partition_point(|one| one.range.end <= range.start);
        let lasts = before.get(at).is_some_and(|one| one.range.start < range.end);
        Ruled { range, nodes: balanced(&mapping.policy), lasts }
    });
    ruled.collect()
}

/// Among which nodes the kernel balances memory with this policy: `bind=balancing:0-1` has it do so, others do not.
fn balanced(policy: &str) -> NodeSet {
    let nodes = policy.rsplit_once(':').filter(|(mode, _)| mode.contains("balancing"));
    nodes.and_then(|(_, nodes)| nodes.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Running;
    use crate::testing::put;

    const PROCESS: ProcessId = ProcessId { tgid: 7, start: 1 };

    fn second(nth: u64) -> Nanos {
        Nanos(nth * 1_000_000_000)
    }

    /// What becomes of moves of 2 MiB at these addresses to node 0 or 1, at this second.
    fn moves(
        (owned, running, walks): (&mut Owned, &mut Running, &mut Budget),
        at: u64,
        pieces: &[(u64, u32)],
    ) -> Vec<Option<bool>> {
        owned.look(running, PROCESS, second(at), walks);
        let keeps = |&(start, node): &(u64, u32)| {
            let piece = start..start + (2 << 20);
            match owned.keeps(PROCESS, &piece, NodeId(node), second(at)) {
                Some(Outcome::Skipped(SkipReason::Held { .. })) => Some(true),
                Some(_) => Some(false),
                None => None,
            }
        };
        pieces.iter().map(keeps).collect()
    }

    #[test]
    fn memory_that_got_a_policy_after_it_was_seen_stays() {
        let root = tempfile::tempdir().unwrap();
        let maps = |policy: &str| {
            let lines = format!(
                "10000000 default anon=512 N0=512 kernelpagesize_kB=4\n\
                 20000000 {policy} anon=512 N0=512 kernelpagesize_kB=4\n\
                 30000000 bind=balancing:0 anon=512 N0=512 kernelpagesize_kB=4\n"
            );
            put(root.path(), "proc/7/numa_maps", &lines);
        };
        put(root.path(), "proc/7/status", "RssAnon:\t8192 kB\n");
        let mut running = Running::new(root.path());
        let (mut owned, mut walks) = (Owned::default(), Budget::default());
        owned.see(&[PROCESS].into(), second(0));
        let pieces = [(0x1000_0000, 1), (0x2000_0000, 1), (0x3000_0000, 1), (0x3000_0000, 0)];
        maps("bind:0");
        let mut at = |second| moves((&mut owned, &mut running, &mut walks), second, &pieces);
        // What has just been heard is fresh.
        assert_eq!(at(9), [None; 4]);
        // Once it may be for a moment; the tasks have to come to what has it for longer.
        assert_eq!(at(10), [None, Some(false), Some(false), None]);
        assert_eq!(at(19), [None, Some(false), Some(false), None]);
        assert_eq!(at(30), [None, Some(true), Some(true), None]);
        maps("default");
        assert_eq!(at(50), [None, None, Some(true), None]);
    }

    #[test]
    fn what_straddles_memory_with_a_policy_stays_too() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/7/status", "RssAnon:\t8192 kB\n");
        let lines = "10000000 default anon=1 N0=1 kernelpagesize_kB=4\n\
                     10100000 interleave:0-1 anon=1 N0=1 kernelpagesize_kB=4\n\
                     10300000 default anon=1 N0=1 kernelpagesize_kB=4\n";
        put(root.path(), "proc/7/numa_maps", lines);
        let mut running = Running::new(root.path());
        let (mut owned, mut walks) = (Owned::default(), Budget::default());
        owned.see(&[PROCESS].into(), second(0));
        let pieces = [(0x1000_0000, 1), (0x1020_0000, 0), (0x1030_0000, 0), (0x0fe0_0000, 0)];
        let at = moves((&mut owned, &mut running, &mut walks), 10, &pieces);
        assert_eq!(at, [Some(false), Some(false), None, None]);
    }

    #[test]
    fn where_policies_cannot_be_read_for_others_memory_waits_and_where_it_would_hold_up_faults_count()
     {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/7/status", "RssAnon:\t8192 kB\n");
        put(root.path(), "proc/7/numa_maps", "10000000 bind:0 anon=1 N0=1 kernelpagesize_kB=4\n");
        let mut running = Running::new(root.path());
        let (mut owned, mut walks) = (Owned::default(), Budget::default());
        owned.see(&[PROCESS].into(), second(0));
        // All that there is for hours, by others.
        walks.spend(second(9), second(1000));
        let pieces = [(0x1000_0000, 1)];
        let mut at = |at| moves((&mut owned, &mut running, &mut walks), at, &pieces);
        assert_eq!([at(11), at(129), at(130)], [[None], [None], [Some(false)]]);
        let mut walks = Budget::default();
        put(root.path(), "proc/7/status", "RssAnon:\t80000000 kB\n");
        put(root.path(), "proc/7/maps", "10000000-2000000000 rw-p 00000000 00:00 0 \n");
        put(root.path(), "proc/meminfo", "AnonPages: 80000000 kB\nAnonHugePages: 0 kB\n");
        assert_eq!(moves((&mut owned, &mut running, &mut walks), 131, &pieces), [None]);
    }
}
