//! Memory in mappings too long to be walked that takes no hinting faults: its owner may have given it a policy.
//!
//! The kernel's scans pass over such a mapping in no time, and go round and round in the rest. So if the rest has faulted
//! twice over, and the mapping not once, it is silent: what faults tell is of a small part of the memory, and says nothing
//! of where threads belong. A mapping that is scanned takes most of the time of a round, and of the faults.
//!
//! Example: of 500 GiB a buffer pool has 480 in one interleaved mapping. Once 40 GiB of the other 20 have faulted, and
//! nothing of the pool, 40 per mille of the memory can be seen.

use std::ops::Range;

use numaherd_model::{Bytes, HintingFault};

use super::quiet::Hidden;
use super::walk;
use crate::memory::residence::Unseen;
use crate::sys::pages::{self, PageStatus};
use crate::system::Memory;

/// Pages looked up of a mapping, to know how much of it is there. Guessed.
const SAMPLES: u64 = 256;

/// Rounds that faults on the rest have to come to.
const ROUNDS: u64 = 2;

/// And the least that has to have faulted, one in so much of all: what is the rest is known by a few pages only.
const LEAST_PART: u64 = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Silence {
    /// Mappings of which nothing was heard since they were first looked at, and what is there of each.
    silent: Vec<(Range<u64>, Bytes)>,
    /// Those of which something was.
    heard: Vec<Range<u64>>,
    /// Pages of the rest that faulted meanwhile.
    rest: u64,
    resident: Bytes,
}

impl Silence {
    /// Looks which mappings are to be heard of, for a process with so much memory, that of the reserve among it.
    pub fn look(&mut self, memory: &mut (impl Memory + ?Sized), tgid: u32, resident: Bytes) {
        let own = memory.own_ranges(tgid).ok().flatten().unwrap_or_default();
        let shared = memory.shared_ranges(tgid).ok().flatten().unwrap_or_default();
        let own = own.iter().map(|range| (range.start, range.len));
        let all = own.chain(shared.iter().map(|range| (range.start, range.len)));
        let long = all.filter(|(_, len)| walk::is_long(*len));
        let long: Vec<Range<u64>> = long.map(|(start, len)| start..start + len.0).collect();
        self.heard.retain(|range| long.iter().any(|one| one.contains(&range.start)));
        let heard = |range: &Range<u64>| self.heard.iter().any(|one| range.contains(&one.start));
        let long: Vec<Range<u64>> = long.into_iter().filter(|range| !heard(range)).collect();
        // One that is new says nothing yet.
        let known =
            |range: &Range<u64>| self.silent.iter().any(|(one, _)| one.start == range.start);
        if !long.iter().all(known) {
            self.rest = 0;
        }
        let there = |range: Range<u64>| {
            let there = there(memory, tgid, &range);
            (range, there)
        };
        self.silent = long.into_iter().map(there).collect();
        self.resident = resident;
    }

    /// These faults of the process came in.
    pub fn hear(&mut self, faults: &[HintingFault]) {
        if self.silent.is_empty() {
            return;
        }
        for fault in faults.iter().filter(|fault| !fault.is_sample()) {
            let Some(address) = fault.address else { continue };
            match self.silent.iter().position(|(range, _)| range.contains(&address)) {
                Some(at) => self.heard.push(self.silent.remove(at).0),
                None => self.rest += fault.pages.0,
            }
        }
    }

    /// What that hides, if most of the memory is silent.
    pub fn hides(&self) -> Option<Hidden> {
        let silent: u64 = self.silent.iter().map(|(_, there)| there.0).sum();
        let rest = self.resident.0.saturating_sub(silent);
        let enough = (rest * ROUNDS).max(self.resident.0 / LEAST_PART);
        if silent == 0 || self.rest <= Bytes(enough).pages(pages::size()).0 {
            return None;
        }
        let permille = u128::from(rest) * 1000 / u128::from(self.resident.0.max(1));
        Hidden::if_low(permille as u32, Unseen::Silent)
    }
}

/// What of a range is there, going by some of its pages.
fn there(memory: &mut (impl Memory + ?Sized), tgid: u32, range: &Range<u64>) -> Bytes {
    let step = (range.end - range.start) / SAMPLES;
    let page = pages::size().0;
    let addresses: Vec<u64> =
        (0..SAMPLES).map(|nth| (range.start + nth * step) / page * page).collect();
    let places = memory.locate(tgid, &addresses).unwrap_or_default();
    let there = places.iter().filter(|place| matches!(place, PageStatus::On(_))).count();
    Bytes(there as u64 * step)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use numaherd_model::{CpuId, FaultFlags, Nanos, NodeId, Pages};

    const GIB: u64 = 1 << 30;

    pub fn fault(address: u64, gib: u64, flags: u32) -> HintingFault {
        HintingFault {
            time: Nanos(0),
            tid: 7,
            tgid: 7,
            cpu: CpuId(0),
            memory_node: NodeId(0),
            pages: Pages(gib * GIB / pages::size().0),
            flags: FaultFlags(flags),
            address: Some(address),
            last_cpu: None,
            last_pid_low8: None,
        }
    }

    /// Of 500 GiB, 480 in one mapping.
    pub fn pool() -> Silence {
        let silent = vec![(1000 * GIB..1480 * GIB, Bytes(480 * GIB))];
        Silence { silent, resident: Bytes(500 * GIB), ..Silence::default() }
    }

    #[test]
    fn a_pool_of_which_nothing_is_heard_hides_most_once_the_rest_was_heard_of_twice() {
        let mut silence = pool();
        silence.hear(&[fault(GIB, 40, 0)]);
        assert_eq!(silence.hides(), None);
        // A sample is no fault.
        silence.hear(&[fault(1100 * GIB, 1, FaultFlags::SAMPLE)]);
        silence.hear(&[fault(GIB, 1, 0)]);
        let hidden = Hidden { permille: 40, cause: Unseen::Silent };
        assert_eq!(silence.hides(), Some(hidden));
        // Until one fault of it comes.
        silence.hear(&[fault(1479 * GIB, 1, 0)]);
        assert_eq!(silence.hides(), None);
    }

    /// A segment of the reserve of 30 GiB beside 40 that fault: more than half can be seen.
    #[test]
    fn what_is_of_the_reserve_hides_no_more_than_there_is_of_it() {
        let silent = vec![(1000 * GIB..1030 * GIB, Bytes(30 * GIB))];
        let mut silence = Silence { silent, resident: Bytes(70 * GIB), ..Silence::default() };
        silence.hear(&[fault(GIB, 500, 0)]);
        assert_eq!(silence.hides(), None);
    }

    #[test]
    fn a_mapping_of_which_hardly_anything_is_there_hides_nothing() {
        let mut silence = pool();
        silence.silent[0].1 = Bytes(240 * GIB);
        silence.hear(&[fault(GIB, 5000, 0)]);
        assert_eq!(silence.hides(), None);
        silence.silent.clear();
        assert_eq!(silence.hides(), None);
    }

    /// What is there of our own memory, and which mappings are long.
    #[test]
    fn only_long_mappings_are_listened_for() {
        let root = tempfile::tempdir().unwrap();
        let line = |start: u64, gib: u64, rest: &str| {
            format!("{:x}-{:x} {rest}\n", start * GIB, (start + gib) * GIB)
        };
        let most = 17 * pages::size().0 / 4096;
        let maps = line(1000, 1, "rw-p 00000000 00:00 0 ")
            + &line(2000, most, "rw-p 00000000 00:00 0 ")
            + &line(3000, most, "rw-s 00000000 00:01 9 /SYSV00000000")
            + &line(4000, most, "---p 00000000 00:00 0 ");
        crate::testing::put(root.path(), "proc/7/maps", &maps);
        let mut running = crate::system::Running::new(root.path());
        let mut silence = Silence::default();
        silence.look(&mut running, 7, Bytes(GIB));
        let starts = |silence: &Silence| {
            silence.silent.iter().map(|(range, _)| range.start / GIB).collect::<Vec<_>>()
        };
        assert_eq!(starts(&silence), [2000, 3000]);
        silence.hear(&[fault(2001 * GIB, 1, 0), fault(GIB, 1, 0)]);
        silence.look(&mut running, 7, Bytes(GIB));
        assert_eq!((starts(&silence), silence.rest > 0), (vec![3000], true));
        let buffer = vec![1_u8; 4 << 20];
        let start = buffer.as_ptr() as u64;
        let mut running = crate::system::Running::new("/".as_ref());
        let there = there(&mut running, std::process::id(), &(start..start + (4 << 20)));
        assert!(there == Bytes(0) || there > Bytes(3 << 20), "{there:?}");
    }
}
