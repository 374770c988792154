//! What sampled accesses tell: of huge pages of the reserve, which take no hinting faults, and beside the faults, of the
//! memory that does.
//!
//! Each access is handed on as a fault, on the huge page that it is on: whoever sums up faults need not know. Pages of
//! the reserve that others may map too, that have a memory policy of their owner's, or that are larger than 2 MiB are
//! never moved: of an access to one of those it is told who, and on which node, and not where. Of other memory only
//! accesses to what is private and without a policy are told. A thread's own policy rules what it accesses that has none,
//! as in the kernel's faults (mpol_misplaced): to it that is memory with a policy. A fault comes when the kernel has
//! armed a page, once a pass, by whoever is first; a sample comes wherever a task spends its time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use numaherd_model::{
    Access, AccessSource, Bytes, CONVERGED_PERMILLE, CpuSet, FaultFlags, HintingFault, Missed,
    Nanos, Pages, ProcessId, SAMPLED, Topology,
};

use super::huge;
use super::options::Sampled;
use super::quiet::{Hidden, PAGE_WALK, WALK_PART};
use super::told::{Kind, Resident, Told, shows, told};
use super::walk::{self, Budget, Pace};
use crate::memory::residence::Unseen;
use crate::sys::pages::{self, PageStatus};
use crate::system::{self, System};

/// How often each CPU is looked at while something is to be found out. Guessed: a tenth of a millisecond each
/// time, on a slow CPU, is a hundredth of it. Not a round number, so that what a program does at such times is
/// not all that is seen of it.
const OFTEN: Nanos = Nanos(9_970_000);

/// And once little is left to find out: often enough to notice another phase in seconds.
const RARELY: Nanos = Nanos(249_700_000);

/// Samples a second of all CPUs together, at the most. Guessed: each takes some microseconds to read, so that it is less
/// than a tenth of a CPU.
const MOST_A_SECOND: u64 = 10_000;

/// Bounds on how old knowledge of mappings may be: as old as the process was when they were read.
const AGE: (Nanos, Nanos) = (Nanos(200_000_000), Nanos(10_000_000_000));

/// How soon mappings are read again for threads that began, or for accesses to what was not mapped, at the least; and what
/// part of the time that may take in a process's first seconds, in which it lays out its memory. Guessed.
const AGAIN: Nanos = Nanos(100_000_000);
const AGAIN_PART: u64 = 50;
const FIRST: Nanos = Nanos(10_000_000_000);

/// With less of its memory told than that, per mille, samples say little of where it is, as with coverage.
const LEAST_TOLD_PERMILLE: u32 = 500;

/// A thread that is found at the same huge page all the time has come again after so long. Guessed.
const STAYS: Nanos = Nanos(1_000_000_000);

/// And from then on nothing is known of it.
const FORGOTTEN: Nanos = Nanos(10_000_000_000);

/// The sampler, and whom it looks at.
#[derive(Default)]
pub struct Accesses {
    source: Option<Box<dyn AccessSource>>,
    sampled: Sampled,
    /// Why it gave up.
    refused: Option<String>,
    /// CPUs that cannot be sampled for now, and whether those are all.
    missed: Option<Missed>,
    blind: bool,
    settled: bool,
    watched: BTreeMap<ProcessId, Known>,
    drained: Vec<Access>,
    /// When that was.
    heard: Nanos,
    /// Where each thread was found last, and since when.
    visits: BTreeMap<u32, (u64, Nanos)>,
}

/// A process's mappings, and until when that is good.
#[derive(Default)]
struct Known {
    until: Nanos,
    /// When it was read, and when its newest thread was born: who begins threads has laid out their memory, and what policy
    /// it had meanwhile is over.
    read: Nanos,
    born: Nanos,
    /// Accesses were to what was not mapped then; and from when on it may be read again for that.
    unmapped: bool,
    again: Nanos,
    mappings: Vec<Told>,
    /// What it mapped, ascending.
    mapped: Vec<Range<u64>>,
    /// Whether a thread has a policy of its own, of those that were found since; and whether that is looked at.
    ruled: BTreeMap<u32, bool>,
    shows: bool,
    resident: Resident,
    /// Whether most memory of programs' own is in base pages, where no fault tells of its own.
    base: bool,
    /// Faults on its huge pages, and on others.
    faults: (u64, u64),
}

impl Accesses {
    /// With a sampler, if there is one.
    pub fn new(source: Option<Box<dyn AccessSource>>, sampled: Sampled) -> Accesses {
        Accesses { source, sampled, ..Accesses::default() }
    }

    /// Of which memory.
    pub fn sampled(&self) -> Sampled {
        self.sampled
    }

    /// Whether it makes up for what faults do not show of a process.
    pub fn make_up(&self, hidden: &Hidden) -> bool {
        let samples = self.sampled.reserve && self.source.is_some() && self.refused.is_none();
        hidden.cause == Unseen::Hugetlb && samples
    }

    /// Whether everybody's accesses are sampled, as far as is known: then nobody else need tell who uses what.
    pub fn tells_all(&self) -> bool {
        self.sampled.rest && self.source.is_some() && self.refused.is_none() && !self.blind
    }

    /// Why accesses cannot be sampled after all.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// CPUs that cannot be sampled for now.
    pub fn missed(&self) -> Option<&Missed> {
        self.missed.as_ref()
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
        self.watched.extend(new.into_iter().map(|process| (process, Known::default())));
        let tgids: Vec<u32> = processes.iter().map(|process| process.tgid).collect();
        let least = Nanos(cpus.len() as u64 * 1_000_000_000 / MOST_A_SECOND);
        let every = if self.settled { RARELY } else { OFTEN }.max(least);
        if let Err(error) = source.watch(&tgids, cpus, every) {
            self.refused = Some(error.to_string());
            self.watched.clear();
        }
        self.missed = source.missed();
        self.blind = self.missed.as_ref().is_some_and(|missed| missed.cpus == *cpus);
    }

    /// Whether it is sampled.
    pub fn is_watched(&self, process: ProcessId) -> bool {
        self.watched.contains_key(&process)
    }

    /// Whether an address of a process is in memory of the reserve, as far as is known.
    pub fn is_of_reserve(&self, process: ProcessId, address: u64) -> bool {
        let kind = self.read(process).and_then(|known| known.kind(address));
        kind.is_some_and(|kind| !kind.faults())
    }

    /// Whether of most of its memory no access is told, which others may map too, or is a file's, or has a policy.
    pub fn is_untold(&self, process: ProcessId) -> bool {
        let known = self.read(process);
        known.is_some_and(|known| {
            known.resident.told_permille(known.resident.all) < LEAST_TOLD_PERMILLE
        })
    }

    /// The memory of a process that samples tell of, if that is as good as all that it has.
    pub fn told_of(&self, process: ProcessId) -> Option<Bytes> {
        let known = self.read(process).filter(|known| !known.is_overdue(self.heard))?;
        let resident = known.resident;
        let is_most = resident.told_permille(resident.tellable) >= CONVERGED_PERMILLE;
        is_most.then_some(resident.told)
    }

    /// What is known of a process, once its mappings were read.
    fn read(&self, process: ProcessId) -> Option<&Known> {
        self.watched.get(&process).filter(|known| known.read > Nanos(0))
    }

    /// The newest thread of a process was born then.
    pub fn born(&mut self, process: ProcessId, at: Nanos) {
        if let Some(known) = self.watched.get_mut(&process) {
            known.born = known.born.max(at);
        }
    }

    /// Notes of these faults whether they were on huge pages.
    pub fn learn(&mut self, faults: &[HintingFault]) {
        let faults = if self.watched.is_empty() { &[] } else { faults };
        for run in faults.chunk_by(|a, b| a.tgid == b.tgid) {
            let known = of_tgid(&mut self.watched, run[0].tgid);
            known.into_iter().for_each(|(_, known)| known.learn(run));
        }
    }

    /// Adds what was found since the last time: of each thread each huge page once for each time it comes there, for more
    /// would say no more, and is dear to add up; and would look as if nobody else had been there between two times.
    pub fn hear(
        &mut self,
        system: &mut dyn System,
        topology: &Topology,
        (walks, beat): Pace<'_>,
        faults: &mut Vec<HintingFault>,
    ) {
        let Some(source) = self.source.as_mut().filter(|_| !self.watched.is_empty()) else {
            return;
        };
        self.drained.clear();
        source.drain(&mut self.drained);
        self.drained.sort_by_key(|access| access.time);
        let mut known = BTreeSet::new();
        // Of the reserve alone more is not too much: nothing else tells of that.
        let (visits, rest) = (&mut self.visits, self.sampled.rest);
        self.drained.retain(|access| {
            (!rest || comes(visits, access)) && known.insert((access.tid, start(access)))
        });
        let newest = self.drained.last().map_or(Nanos(0), |access| access.time);
        self.visits.retain(|_, (_, time)| newest.since(*time) < FORGOTTEN);
        // Of each process still in order.
        self.drained.sort_by_key(|access| access.tgid);
        self.heard = system.monotonic();
        for own in in_turn(&mut self.watched, &self.drained) {
            let watched = of_tgid(&mut self.watched, own[0].tgid);
            let Some((process, known)) = watched else { continue };
            known.read(system, *process, walks);
            known.hear(system, *process, own, topology, faults);
            beat();
        }
        // Whoever sums them up takes them to come one after the other.
        faults.sort_by_key(|fault| fault.time);
    }
}

/// Accesses of each process, in the order in which to read mappings: there may not be time for all, and each is to have
/// its turn.
fn in_turn<'a>(
    watched: &mut BTreeMap<ProcessId, Known>,
    drained: &'a [Access],
) -> Vec<&'a [Access]> {
    let mut all: Vec<&[Access]> = drained.chunk_by(|a, b| a.tgid == b.tgid).collect();
    all.sort_by_key(|own| of_tgid(watched, own[0].tgid).map(|(_, known)| known.read));
    all
}

/// The process with this id: of one that has ended none is heard any more.
fn of_tgid(
    watched: &mut BTreeMap<ProcessId, Known>,
    tgid: u32,
) -> Option<(&ProcessId, &mut Known)> {
    let of = |start| ProcessId { tgid, start };
    watched.range_mut(of(0)..=of(u64::MAX)).next()
}

/// Whether a thread was elsewhere before, or comes to where it was a while ago.
fn comes(visits: &mut BTreeMap<u32, (u64, Nanos)>, access: &Access) -> bool {
    let piece = start(access);
    let visit = visits.entry(access.tid).or_insert((u64::MAX, access.time));
    let stays = visit.0 == piece && access.time.since(visit.1) < STAYS;
    if !stays {
        *visit = (piece, access.time);
    }
    !stays
}

/// The address at which it is looked where the page is.
fn page(access: &Access, kind: Kind) -> u64 {
    if kind.faults() { access.address } else { start(access) }
}

/// The first address of the piece of 2 MiB that an access is to.
fn start(access: &Access) -> u64 {
    huge::start(access.address)
}

/// An access as a fault; `None` where the page is not there.
fn fault(
    &(access, kind): &(Access, Kind),
    place: PageStatus,
    base: bool,
    topology: &Topology,
) -> Option<HintingFault> {
    let PageStatus::On(node) = place else { return None };
    let local = topology.node_of_cpu(access.cpu) == Some(node);
    let faults = kind.faults();
    let few = kind == Kind::Edge || faults && base;
    Some(HintingFault {
        time: access.time,
        tid: access.tid,
        tgid: access.tgid,
        cpu: access.cpu,
        memory_node: node,
        pages: if few { SAMPLED } else { huge_page() },
        flags: FaultFlags::of_access(local, faults),
        address: (kind != Kind::Stays).then_some(access.address),
        last_cpu: None,
        last_pid_low8: None,
    })
}

/// Pages of a huge page.
fn huge_page() -> Pages {
    Bytes(huge::BYTES).pages(pages::size())
}

impl Known {
    /// Adds a process's accesses as faults.
    fn hear(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        own: &[Access],
        topology: &Topology,
        faults: &mut Vec<HintingFault>,
    ) {
        if self.is_stale(system.monotonic()) {
            return;
        }
        own.iter().for_each(|access| self.see(access.address));
        let mut told: Vec<(Access, Kind)> = Vec::new();
        for access in own {
            told.extend(self.kind_to(system, access).map(|kind| (*access, kind)));
        }
        let addresses: Vec<u64> = told.iter().map(|(access, kind)| page(access, *kind)).collect();
        // Nothing of one that has ended.
        let places = system.locate(process.tgid, &addresses).unwrap_or_default();
        let base = self.is_base();
        let found = told.iter().zip(places);
        faults.extend(found.filter_map(|(told, place)| fault(told, place, base, topology)));
    }

    /// Notes whether its memory is of huge pages.
    fn learn(&mut self, faults: &[HintingFault]) {
        for fault in faults.iter().filter(|fault| !fault.is_sample()) {
            let base = fault.is_on_base_page();
            *(if base { &mut self.faults.1 } else { &mut self.faults.0 }) += fault.pages.0;
        }
    }

    /// Whether most of its memory that faulted is in base pages.
    fn is_base(&self) -> bool {
        self.faults.1 > self.faults.0 || self.faults == (0, 0) && self.base
    }

    /// Reads the mappings if it is time, and there is time for it.
    fn read(&mut self, system: &mut dyn System, process: ProcessId, walks: &mut Budget) {
        let begin = system.monotonic();
        let new = (self.unmapped || self.born > self.read) && begin >= self.again;
        if begin < self.until && !new || !walks.allows(begin) {
            return;
        }
        let age = system::age(system, process.start);
        let has = system.resident(process.tgid);
        if self.read == Nanos(0) {
            // A young process with much memory, such as a fork of one, may be over before reading this has paid.
            let walk = has.pages(pages::size()).0 * PAGE_WALK.0 * AGAIN_PART;
            if age < Nanos(walk) {
                return;
            }
        }
        let layout = system.layout(process.tgid).ok().flatten().unwrap_or_default();
        // What runs inside a virtual machine is found in the kernel, and is not seen.
        let untold = layout.guest || walk::is_too_long(system, process.tgid, has);
        let mappings = if untold { None } else { system.mappings(process.tgid).ok().flatten() };
        let mappings = mappings.unwrap_or_default();
        self.mappings = told(&mappings, &layout.own);
        self.ruled.clear();
        self.shows = mappings.first().is_some_and(shows);
        self.resident = match untold {
            true => Resident::UNKNOWN,
            false => Resident::of(&mappings, &self.mappings, &layout),
        };
        self.mapped = layout.mapped;
        self.base = system.is_mostly_base();
        let bounded = age.clamp(AGE.0, AGE.1);
        // The kernel walked all page tables for it.
        let end = system.monotonic();
        walks.spend(begin, end);
        let took = end.since(begin).0;
        self.until = Nanos(end.0 + bounded.0.max(took * WALK_PART));
        let part = if age < FIRST { AGAIN_PART } else { WALK_PART };
        self.again = Nanos(end.0 + AGAIN.0.max(took * part));
        (self.read, self.unmapped) = (begin, false);
    }

    /// Notes whether an address is where nothing was mapped.
    fn see(&mut self, address: u64) {
        let above = self.mapped.partition_point(|range| range.start <= address);
        let below = above.checked_sub(1).map(|at| &self.mapped[at]);
        self.unmapped |= below.is_none_or(|range| range.end <= address);
    }

    /// Whether what is known of its mappings is so old that one may have got a policy since.
    fn is_stale(&self, now: Nanos) -> bool {
        now.since(self.read) > AGE.1
    }

    /// Whether it should have been read again long ago: there was no time for it, and nothing is told of it any more.
    fn is_overdue(&self, now: Nanos) -> bool {
        now.since(self.until) > self.until.since(self.read)
    }

    /// What an access is to, if it is told, given whose it is.
    fn kind_to(&mut self, system: &mut dyn System, access: &Access) -> Option<Kind> {
        let Access { tgid, tid, address, .. } = *access;
        let kind = self.kind(address)?;
        // The main thread's policy is that which mappings show.
        if kind == Kind::Stays || !self.shows || tid == tgid {
            return Some(kind);
        }
        match *self.ruled.entry(tid).or_insert_with(|| system.has_policy(tgid, tid)) {
            true => (kind == Kind::Moves).then_some(Kind::Stays),
            false => Some(kind),
        }
    }

    /// What an address that was accessed is in, if accesses to that are told.
    fn kind(&self, address: u64) -> Option<Kind> {
        let above = self.mappings.partition_point(|told| told.range.start <= address);
        let told = self.mappings.get(above.checked_sub(1)?)?;
        let piece = huge::start(address);
        let fits = told.range.start <= piece && piece + huge::BYTES <= told.range.end;
        let kind = if told.kind == Kind::Faults && !fits { Kind::Edge } else { told.kind };
        told.range.contains(&address).then_some(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::maps::{self, AnonymousRange};
    use crate::memory::numa_maps::parse;
    use crate::sys::clock;
    use crate::system::Memory as _;
    use numaherd_model::scene::Scene;
    use numaherd_model::{CpuId, NodeId};

    #[test]
    fn a_thread_that_stays_at_a_page_counts_once_a_second() {
        let mut visits = BTreeMap::new();
        let mut at = |ms: u64, tid, address| {
            let time = Nanos(ms * 1_000_000);
            comes(&mut visits, &Access { time, tid, tgid: 1, cpu: CpuId(0), address })
        };
        assert!(at(0, 1, 0x20_0000) && at(5, 2, 0x20_0000));
        assert!(!at(10, 1, 0x20_1000) && !at(999, 1, 0x3f_ffff) && at(1000, 1, 0x20_0000));
        assert!(at(1010, 1, 0x40_0000) && at(1020, 1, 0x20_0000), "it came back");
    }

    /// Has these accesses for whoever asks first, and cannot sample these CPUs.
    struct Source(Vec<Access>, Option<Missed>);

    impl AccessSource for Source {
        fn watch(&mut self, _: &[u32], _: &CpuSet, _: Nanos) -> std::io::Result<()> {
            Ok(())
        }

        fn missed(&self) -> Option<Missed> {
            self.1.clone()
        }

        fn drain(&mut self, accesses: &mut Vec<Access>) {
            accesses.append(&mut self.0);
        }
    }

    const ALL: Sampled = Sampled { reserve: true, rest: true, base: true };

    #[test]
    fn each_process_is_told_its_own_accesses_but_those_of_threads_with_a_policy() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (me, other) = (std::process::id(), child.id());
        let buffer = vec![1_u8; 8 << 20];
        let ours = (buffer.as_ptr() as u64).next_multiple_of(huge::BYTES);
        // The other's stack ends with its environment.
        let stack = *maps::read("/".as_ref(), other).unwrap().unwrap().last().unwrap();
        let theirs = stack.start + stack.len.0 - 1;
        let root = tempfile::tempdir().unwrap();
        let put = |path: String, text: &str| crate::testing::put(root.path(), &path, text);
        for (pid, start, len) in [(me, ours, 6 << 20), (other, stack.start, stack.len.0)] {
            let line = format!("{start:x}-{:x} rw-p 00000000 00:00 0 \n", start + len);
            put(format!("proc/{pid}/maps"), &line);
            let first = "1000 default file=/bin/x mapped=3 N0=3 kernelpagesize_kB=4";
            let text = format!("{first}\n{start:x} default anon=3 N0=3 kernelpagesize_kB=4\n");
            put(format!("proc/{pid}/numa_maps"), &text);
        }
        for (tid, policy) in [(71, "default"), (72, "bind:0")] {
            put(format!("proc/{me}/task/{tid}/numa_maps"), &format!("1000 {policy} file=/bin/x"));
        }
        let at = |time, tgid, tid, address| {
            let time = Nanos(clock::monotonic().0 + time);
            Access { time, tid, tgid, cpu: CpuId(0), address }
        };
        let found = vec![
            at(1, me, 71, ours),
            at(2, other, other, theirs),
            at(3, me, 72, ours),
            at(4, 1, 1, ours),
            at(5, me, me, ours + huge::BYTES),
        ];
        let mut accesses = Accesses::new(Some(Box::new(Source(found, None))), ALL);
        let process = |tgid| ProcessId { tgid, start: 0 };
        accesses.watch(&[process(me), process(other)], &"0".parse().unwrap());
        let mut system = system::Running::new(root.path());
        let topology = Scene::two_by_four().snapshot().topology;
        let mut faults = Vec::new();
        let mut walks = Budget::default();
        accesses.hear(&mut system, &topology, (&mut walks, &mut || {}), &mut faults);
        let seen = system.locate(other, &[theirs]);
        child.kill().unwrap();
        child.wait().unwrap();
        if !seen.is_ok_and(|places| matches!(places[0], PageStatus::On(_))) {
            eprintln!("skipped: where pages are is not told here");
            return;
        }
        let told: Vec<_> = faults.iter().map(|fault| (fault.tid, fault.address)).collect();
        let expected = [(71, ours), (other, theirs), (me, ours + huge::BYTES)];
        assert_eq!(told, expected.map(|(tid, address)| (tid, Some(address))));
    }

    /// What has a policy there is not known, and would be moved against it.
    #[test]
    fn of_a_process_that_reading_its_policies_would_hold_up_nothing_is_told() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| crate::testing::put(root.path(), path, text);
        let process = |gib: u64, more: &str| {
            put("proc/7/status", &format!("RssAnon:\t{} kB\n", gib << 20));
            put("proc/meminfo", "AnonPages: 100 kB\nAnonHugePages: 0 kB\n");
            let end = (1_u64 << 40) + (gib << 30);
            put("proc/7/maps", &format!("10000000000-{end:x} rw-p 00000000 00:00 0 \n{more}"));
            put("proc/7/numa_maps", "10000000000 default anon=9 N0=9 kernelpagesize_kB=4\n");
            let (id, mut known) = (ProcessId { tgid: 7, start: 1 }, Known::default());
            known.read(&mut system::Running::new(root.path()), id, &mut Budget::default());
            let kind = known.kind(1 << 40);
            let accesses =
                Accesses { watched: BTreeMap::from([(id, known)]), ..Accesses::default() };
            (kind, accesses.is_untold(id), accesses.told_of(id))
        };
        let nine = Bytes(9 * 4096);
        // Where pages are large, a mapping has fewer.
        let scale = pages::size().0 / 4096;
        assert_eq!(process(1, ""), (Some(Kind::Faults), false, Some(nine)));
        assert_eq!(process(17 * scale, ""), (None, true, None));
        // Nor of a virtual machine, where nothing is seen of what its guest does.
        let vcpu = "7f0000000000-7f0000003000 rw-s 00000000 00:0f 12 anon_inode:kvm-vcpu:0\n";
        assert_eq!(process(1, vcpu), (None, true, None));
    }

    #[test]
    fn mappings_are_read_once_there_is_time_for_it() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| crate::testing::put(root.path(), path, text);
        put("proc/7/status", "RssAnon:\t1024 kB\n");
        put("proc/7/maps", "10000000000-10040000000 rw-p 00000000 00:00 0 \n");
        put("proc/7/numa_maps", "10000000000 default anon=9 N0=9 kernelpagesize_kB=4\n");
        let mut system = system::Running::new(root.path());
        let id = ProcessId { tgid: 7, start: 1 };
        let mut walks = Budget::default();
        let now = clock::monotonic();
        walks.spend(now, Nanos(now.0 + 1_000_000_000));
        let mut known = Known::default();
        known.read(&mut system, id, &mut walks);
        assert_eq!(known.kind(1 << 40), None);
        known.read(&mut system, id, &mut Budget::default());
        assert_eq!(known.kind(1 << 40), Some(Kind::Faults));
    }

    /// One that takes long would never have its turn, and pass for told for ever.
    #[test]
    fn whose_mappings_were_read_longest_ago_is_first_and_who_is_overdue_is_told_no_more() {
        let second = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let id = |tgid| ProcessId { tgid, start: 1 };
        let access = |tgid| Access { time: second(1), tid: tgid, tgid, cpu: CpuId(0), address: 1 };
        let some = Bytes(4096);
        let resident = Resident { told: some, tellable: some, all: some };
        let known = |read, until| Known { read, until, resident, ..Known::default() };
        let watched = [
            (id(7), known(second(20), second(40))),
            (id(8), known(second(10), second(20))),
            (id(9), Known::default()),
        ];
        let mut accesses = Accesses { watched: watched.into(), ..Accesses::default() };
        let drained = [7, 7, 8, 9].map(access);
        let turns = in_turn(&mut accesses.watched, &drained);
        assert_eq!(turns.iter().map(|own| own[0].tgid).collect::<Vec<_>>(), [9, 8, 7]);
        let mut told = |at| {
            accesses.heard = second(at);
            [7, 8, 9].map(|tgid| accesses.told_of(id(tgid)).is_some())
        };
        assert_eq!(told(30), [true, true, false]);
        assert_eq!([told(31), told(61)], [[true, false, false], [false; 3]]);
    }

    /// It is memory whose owner has said where it belongs.
    #[test]
    fn of_the_reserve_what_a_thread_with_a_policy_accesses_stays() {
        let root = tempfile::tempdir().unwrap();
        let put = |tid: u32, policy| {
            let path = format!("proc/7/task/{tid}/numa_maps");
            crate::testing::put(root.path(), &path, &format!("1000 {policy} file=/bin/x"));
        };
        put(8, "default");
        put(9, "interleave:0-1");
        let mut system = system::Running::new(root.path());
        let told = |start, kind| Told { range: start..start + 0x1000, kind };
        let mappings = vec![told(0x1000, Kind::Moves), told(0x2000, Kind::Stays)];
        let mut known = Known { shows: true, mappings, ..Known::default() };
        let mut of = |tid, address| {
            let access = Access { time: Nanos(7), tid, tgid: 7, cpu: CpuId(0), address };
            known.kind_to(&mut system, &access)
        };
        assert_eq!([of(8, 0x1000), of(8, 0x2000)], [Some(Kind::Moves), Some(Kind::Stays)]);
        assert_eq!([of(9, 0x1000), of(9, 0x2000)], [Some(Kind::Stays); 2]);
        // Until its mappings are read again.
        put(8, "bind:0");
        assert_eq!((of(8, 0x1000), of(9, 0x3000)), (Some(Kind::Moves), None));
        // Once they were read, where its reserve is is known.
        known.read = Nanos(1);
        known.mappings.push(told(0x4000, Kind::Faults));
        let process = |tgid| ProcessId { tgid, start: 0 };
        let watched = BTreeMap::from([(process(7), known)]);
        let accesses = Accesses { watched, ..Accesses::default() };
        let of_reserve = |tgid, address| accesses.is_of_reserve(process(tgid), address);
        assert!(of_reserve(7, 0x1000) && of_reserve(7, 0x2000));
        assert!(!of_reserve(7, 0x3000) && !of_reserve(7, 0x4000) && !of_reserve(8, 0x1000));
    }

    #[test]
    fn where_no_cpu_is_sampled_nothing_is_told() {
        let missed = |cpus: &str| Missed { cpus: cpus.parse().unwrap(), why: "full".into() };
        let of = |cpus: &str| {
            let source = Source(Vec::new(), Some(missed(cpus)));
            let mut accesses = Accesses::new(Some(Box::new(source)), ALL);
            accesses.watch(&[ProcessId { tgid: 7, start: 1 }], &"0-3".parse().unwrap());
            assert_eq!((accesses.missed(), accesses.refused()), (Some(&missed(cpus)), None));
            accesses.tells_all()
        };
        assert_eq!([of("1-3"), of("0-3")], [true, false]);
    }

    #[test]
    fn what_was_not_mapped_is_worth_another_look_and_what_was_is_not() {
        let mut known = Known { mapped: vec![0x1000..0x3000, 0x8000..0x9000], ..Known::default() };
        [0x1000, 0x2fff, 0x8fff].iter().for_each(|address| known.see(*address));
        assert!(!known.unmapped);
        for address in [0xfff, 0x3000, 0x9000] {
            known.unmapped = false;
            known.see(address);
            assert!(known.unmapped, "{address:x}");
        }
    }

    /// Without a fault the machine's pages tell, with one the process's.
    #[test]
    fn what_pages_are_like_is_told_by_faults_or_by_what_most_are() {
        let base = |base, faults| Known { base, faults, ..Known::default() }.is_base();
        assert!(base(true, (0, 0)) && !base(false, (0, 0)));
        assert!(!base(true, (512, 8)) && base(false, (512, 520)));
    }

    /// The file behind a mapping is not its own, and is no range of its own.
    #[test]
    fn memory_that_faults_ends_where_its_mapping_does() {
        let line = |line: &str| parse(line).unwrap();
        let mappings = [
            line("1000 default file=/bin/x mapped=3 N0=3 kernelpagesize_kB=4"),
            line("5000 default anon=3 dirty=3 N0=3 kernelpagesize_kB=4"),
            line("9000 bind:0 anon=3 dirty=3 N0=3 kernelpagesize_kB=4"),
        ];
        let own = [0x5000, 0x9000].map(|start| AnonymousRange { start, len: Bytes(0x2000) });
        let known = Known { mappings: told(&mappings, &own), ..Known::default() };
        assert_eq!((known.kind(0x4fff), known.kind(0x5000)), (None, Some(Kind::Edge)));
        assert_eq!((known.kind(0x6fff), known.kind(0x7000)), (Some(Kind::Edge), None));
        assert_eq!((known.kind(0x1000), known.kind(0x9000)), (None, None));
    }

    #[test]
    fn an_address_is_in_the_mapping_that_begins_below_it() {
        let line = |line: &str| parse(line).unwrap();
        let mappings = [
            line("1000 bind:0 anon=1 N0=1 kernelpagesize_kB=4"),
            line("200000 default file=/anon_hugepage huge anon=3 N0=3 kernelpagesize_kB=2048"),
            line("800000 bind:0 anon=1 N0=1 kernelpagesize_kB=4"),
        ];
        let known = Known { mappings: told(&mappings, &[]), ..Known::default() };
        let of = |address| known.kind(address);
        assert_eq!((of(0xfff), of(0x1000), of(0x1f_ffff)), (None, None, None));
        assert_eq!((of(0x20_0000), of(0x7f_ffff)), (Some(Kind::Moves), Some(Kind::Moves)));
        assert_eq!(of(0x80_0000), None);
    }

    #[test]
    fn where_no_huge_page_fits_into_a_mapping_an_access_is_to_its_edge() {
        let range = 0x1f_f000..0x60_1000;
        let mappings = vec![Told { range, kind: Kind::Faults }];
        let known = Known { mappings, ..Known::default() };
        let of = |address| known.kind(address);
        assert_eq!((of(0x1f_f000), of(0x60_0fff)), (Some(Kind::Edge), Some(Kind::Edge)));
        assert_eq!((of(0x20_0000), of(0x5f_ffff)), (Some(Kind::Faults), Some(Kind::Faults)));
        assert_eq!(of(0x60_1000), None);
    }

    #[test]
    fn an_access_is_a_fault_on_its_huge_page_where_that_is() {
        let topology = Scene::two_by_four().snapshot().topology;
        let access =
            |cpu| Access { time: Nanos(7), tid: 3, tgid: 2, cpu: CpuId(cpu), address: 0x40_1234 };
        let on = PageStatus::On(NodeId(1));
        let near = fault(&(access(4), Kind::Moves), on, true, &topology).unwrap();
        let far = fault(&(access(3), Kind::Stays), on, true, &topology).unwrap();
        assert!(near.flags.has(FaultFlags::FAULT_LOCAL) && !far.flags.has(FaultFlags::FAULT_LOCAL));
        assert_eq!((near.address, far.address), (Some(0x40_1234), None));
        assert_eq!((near.memory_node, near.pages.0, near.tid), (NodeId(1), 512, 3));
        assert_eq!(start(&access(0)), 0x40_0000);
        assert!(fault(&(access(4), Kind::Moves), PageStatus::Absent, true, &topology).is_none());
        assert!(!near.flags.has(FaultFlags::SAMPLE));
        let of = |base| fault(&(access(4), Kind::Faults), on, base, &topology).unwrap();
        assert_eq!((of(false).pages.0, of(true).pages), (512, SAMPLED));
        let edge = fault(&(access(4), Kind::Edge), on, false, &topology).unwrap();
        assert_eq!((edge.pages, edge.flags), (SAMPLED, of(true).flags));
        assert!(of(true).flags.has(FaultFlags::SAMPLE) && of(true).address.is_some());
    }
}
