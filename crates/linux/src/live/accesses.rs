//! What sampled accesses tell of memory that takes no hinting faults: huge pages of the reserve.
//!
//! Processes most of whose memory is such are sampled, and each access to it is handed on as a fault on the
//! huge page that it is on: whoever sums up faults need not know. Accesses to the rest of their memory
//! are left out, for that takes faults. Pages that others may map too, that have a memory policy of
//! their owner's, or that are larger than 2 MiB are never moved: of an access to one of those it is
//! told who, and on which node, and not where.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_model::{
    Access, AccessSource, Bytes, CpuSet, FaultFlags, HintingFault, Nanos, ProcessId, Topology,
};

use super::huge;
use super::quiet::{Hidden, WALK_PART};
use crate::memory::numa_maps::Mapping;
use crate::memory::residence::Unseen;
use crate::sys::pages::{self, PageStatus};
use crate::system::{self, System};

/// How often each CPU is looked at while something is to be found out. Guessed: a tenth of a millisecond each
/// time, on a slow CPU, is a hundredth of it. Not a round number, so that what a program does at such times is
/// not all that is seen of it.
const OFTEN: Nanos = Nanos(9_970_000);

/// And once little is left to find out: often enough to notice another phase in seconds.
const RARELY: Nanos = Nanos(249_700_000);

/// Bounds on how old knowledge of mappings may be: as old as the process was when they were read.
const AGE: (Nanos, Nanos) = (Nanos(200_000_000), Nanos(10_000_000_000));

/// The sampler, and whom it looks at.
#[derive(Default)]
pub struct Accesses {
    source: Option<Box<dyn AccessSource>>,
    /// Why it gave up.
    refused: Option<String>,
    settled: bool,
    watched: BTreeMap<ProcessId, Reserve>,
    drained: Vec<Access>,
}

/// A process's mappings, and until when that is good.
#[derive(Default)]
struct Reserve {
    until: Nanos,
    /// Where each begins, ascending, and what it is if it is of the reserve.
    mappings: Vec<(u64, Option<Kind>)>,
}

/// A mapping of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Moves,
    Stays,
}

impl Accesses {
    /// With a sampler, if there is one.
    pub fn new(source: Option<Box<dyn AccessSource>>) -> Accesses {
        Accesses { source, ..Accesses::default() }
    }

    /// Whether it makes up for what faults do not show of a process.
    pub fn make_up(&self, hidden: &Hidden) -> bool {
        hidden.cause == Unseen::Hugetlb && self.source.is_some() && self.refused.is_none()
    }

    /// Why accesses cannot be sampled after all.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Whether little is left to find out.
    pub fn settle(&mut self, settled: bool, cpus: &CpuSet) {
        if std::mem::replace(&mut self.settled, settled) != settled {
            let processes: Vec<ProcessId> = self.watched.keys().copied().collect();
            self.watch(&processes, cpus);
        }
    }

    /// Looks at these processes, and at no others.
    pub fn watch(&mut self, processes: &[ProcessId], cpus: &CpuSet) {
        let Some(source) = self.source.as_mut().filter(|_| self.refused.is_none()) else { return };
        self.watched.retain(|process, _| processes.contains(process));
        let mut new = processes.to_vec();
        new.retain(|process| !self.watched.contains_key(process));
        self.watched.extend(new.into_iter().map(|process| (process, Reserve::default())));
        let tgids: Vec<u32> = processes.iter().map(|process| process.tgid).collect();
        let every = if self.settled { RARELY } else { OFTEN };
        if let Err(error) = source.watch(&tgids, cpus, every) {
            self.refused = Some(error.to_string());
        }
    }

    /// Adds what was found since the last time: of each thread each huge page once, for more would say no more,
    /// and is dear to add up.
    pub fn hear(
        &mut self,
        system: &mut dyn System,
        topology: &Topology,
        faults: &mut Vec<HintingFault>,
    ) {
        let Some(source) = self.source.as_mut().filter(|_| !self.watched.is_empty()) else {
            return;
        };
        self.drained.clear();
        source.drain(&mut self.drained);
        self.drained.sort_by_key(|access| access.time);
        let mut known = BTreeSet::new();
        self.drained.retain(|access| known.insert((access.tid, start(access))));
        for (process, reserve) in &mut self.watched {
            let mut own = self.drained.iter().filter(|a| a.tgid == process.tgid).peekable();
            if own.peek().is_none() {
                continue;
            }
            reserve.read(system, *process);
            let known = own.filter_map(|access| Some((*access, reserve.kind(access.address)?)));
            let known: Vec<(Access, Kind)> = known.collect();
            let addresses: Vec<u64> = known.iter().map(|(access, _)| start(access)).collect();
            // Nothing of one that has ended.
            let places = system.locate(process.tgid, &addresses).unwrap_or_default();
            let found = known.iter().zip(places);
            faults.extend(found.filter_map(|(known, place)| fault(known, place, topology)));
        }
    }
}

/// The first address of the piece of 2 MiB that an access is to.
fn start(access: &Access) -> u64 {
    access.address / huge::BYTES * huge::BYTES
}

/// An access as a fault; `None` where the page is not there.
fn fault(
    &(access, kind): &(Access, Kind),
    place: PageStatus,
    topology: &Topology,
) -> Option<HintingFault> {
    let PageStatus::On(node) = place else { return None };
    let local = topology.node_of_cpu(access.cpu) == Some(node);
    Some(HintingFault {
        time: access.time,
        tid: access.tid,
        tgid: access.tgid,
        cpu: access.cpu,
        memory_node: node,
        pages: Bytes(huge::BYTES).pages(pages::size()),
        flags: FaultFlags(if local { FaultFlags::FAULT_LOCAL } else { 0 }),
        address: (kind == Kind::Moves).then_some(access.address),
        last_cpu: None,
        last_pid_low8: None,
    })
}

impl Reserve {
    /// Reads the mappings if it is time.
    fn read(&mut self, system: &mut dyn System, process: ProcessId) {
        let begin = system.monotonic();
        if begin < self.until {
            return;
        }
        let mappings = system.mappings(process.tgid).ok().flatten().unwrap_or_default();
        self.mappings = mappings.iter().map(|mapping| (mapping.start, kind(mapping))).collect();
        let age = system::age(system, process.start).clamp(AGE.0, AGE.1);
        // The kernel walked all page tables for it.
        let end = system.monotonic();
        self.until = Nanos(end.0 + age.0.max(end.since(begin).0 * WALK_PART));
    }

    /// What an address that was accessed is in, if that is of the reserve.
    fn kind(&self, address: u64) -> Option<Kind> {
        let above = self.mappings.partition_point(|(start, _)| *start <= address);
        self.mappings.get(above.checked_sub(1)?)?.1
    }
}

fn kind(mapping: &Mapping) -> Option<Kind> {
    if !mapping.huge {
        return None;
    }
    let resident: u64 = mapping.nodes.iter().map(|(_, bytes)| bytes.0).sum();
    let moves = mapping.policy == "default"
        && mapping.anonymous.0 == resident
        && mapping.page_size.0 == huge::BYTES;
    Some(if moves { Kind::Moves } else { Kind::Stays })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::numa_maps::parse;
    use numaherd_model::scene::Scene;
    use numaherd_model::{CpuId, NodeId};

    #[test]
    fn only_private_huge_pages_of_2_mib_without_a_policy_move() {
        let of = |line: &str| kind(&parse(line).unwrap());
        let huge = "file=/anon_hugepage huge";
        let own = |policy| format!("1000 {policy} {huge} anon=3 dirty=3 N0=2 N1=1");
        assert_eq!(of(&(own("default") + " kernelpagesize_kB=2048")), Some(Kind::Moves));
        assert_eq!(of(&(own("default") + " kernelpagesize_kB=1048576")), Some(Kind::Stays));
        assert_eq!(of(&(own("bind:0") + " kernelpagesize_kB=2048")), Some(Kind::Stays));
        let shared = "1000 default file=/SYSV00000000 huge dirty=3 N0=3 kernelpagesize_kB=2048";
        assert_eq!(of(shared), Some(Kind::Stays));
        assert_eq!(of("1000 default anon=3 dirty=3 N0=3 kernelpagesize_kB=4"), None);
    }

    #[test]
    fn an_address_is_in_the_mapping_that_begins_below_it() {
        let mappings = vec![(0x1000, None), (0x20_0000, Some(Kind::Moves)), (0x80_0000, None)];
        let reserve = Reserve { until: Nanos(0), mappings };
        let of = |address| reserve.kind(address);
        assert_eq!((of(0xfff), of(0x1000), of(0x1f_ffff)), (None, None, None));
        assert_eq!((of(0x20_0000), of(0x7f_ffff)), (Some(Kind::Moves), Some(Kind::Moves)));
        assert_eq!(of(0x80_0000), None);
    }

    #[test]
    fn an_access_is_a_fault_on_its_huge_page_where_that_is() {
        let topology = Scene::two_by_four().snapshot().topology;
        let access =
            |cpu| Access { time: Nanos(7), tid: 3, tgid: 2, cpu: CpuId(cpu), address: 0x40_1234 };
        let on = PageStatus::On(NodeId(1));
        let near = fault(&(access(4), Kind::Moves), on, &topology).unwrap();
        let far = fault(&(access(3), Kind::Stays), on, &topology).unwrap();
        assert!(near.flags.has(FaultFlags::FAULT_LOCAL) && !far.flags.has(FaultFlags::FAULT_LOCAL));
        assert_eq!((near.address, far.address), (Some(0x40_1234), None));
        assert_eq!((near.memory_node, near.pages.0, near.tid), (NodeId(1), 512, 3));
        assert_eq!(start(&access(0)), 0x40_0000);
        assert!(fault(&(access(4), Kind::Moves), PageStatus::Absent, &topology).is_none());
    }
}
