//! What the loop and its undoing ask of a kernel, as traits: the running one answers with `/proc`,
//! `/sys` and system calls ([`Running`]), a test with a kernel made up in memory.
//!
//! Thin: nothing is decided here. Who ends meanwhile is `None`, or a [`SysError`] that says gone.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::Builder;

use numaherd_model::{Bytes, CpuId, CpuSet, Nanos, NodeId, NodeSet, NodeState, Topology};

use crate::memory::anonymous::Anonymous;
use crate::memory::maps::{self, AnonymousRange, Layout, ObjectRange};
use crate::memory::numa_maps::{self, Mapping};
use crate::memory::{vmstat, zoneinfo};
use crate::process::{Kept, SchedStat, TaskReader, TaskStat};
use crate::respect::{Coverage, Quotas};
use crate::sys::pages::{self, PageStatus, Target};
use crate::sys::{SysError, affinity, clock};
use crate::{ReadError, cgroup, cpu_time, knobs, reserve, respect, threads, topology};

/// Tasks: who they are and where they may run.
pub trait Tasks {
    /// A thread's stat.
    ///
    /// # Errors
    /// It is there but cannot be read.
    fn stat(&mut self, tgid: u32, tid: u32) -> Result<Option<TaskStat>, ReadError>;
    /// How long a thread ran and waited.
    ///
    /// # Errors
    /// It is there but cannot be read.
    fn schedstat(&mut self, tgid: u32, tid: u32) -> Result<Option<SchedStat>, ReadError>;
    /// The same of a thread that is asked for again and again.
    ///
    /// # Errors
    /// It is there but cannot be read.
    fn kept_schedstat(&mut self, tgid: u32, tid: u32) -> Result<Option<SchedStat>, ReadError> {
        self.schedstat(tgid, tid)
    }
    /// The threads of a process, ascending.
    ///
    /// # Errors
    /// They are there but cannot be listed.
    fn threads(&mut self, tgid: u32) -> Result<Option<Vec<u32>>, ReadError>;
    /// A process and its descendants, ascending.
    ///
    /// # Errors
    /// They cannot be listed.
    fn tree(&mut self, tgid: u32) -> Result<Vec<u32>, ReadError>;
    /// The children of these processes.
    ///
    /// # Errors
    /// They cannot be listed.
    fn children(&mut self, of: &[u32]) -> Result<Vec<u32>, ReadError>;
    /// The pid or thread id that the kernel gave out last; `None` where that cannot be told.
    fn newest_pid(&mut self) -> Option<u32>;
    /// All processes, ascending.
    ///
    /// # Errors
    /// They cannot be listed.
    fn processes(&mut self) -> Result<Vec<u32>, ReadError>;
    /// A process's command line, each word ended by a zero byte; `None` where it cannot be told.
    fn command_line(&mut self, tgid: u32) -> Option<Vec<u8>>;
    /// Whether a process has this `NAME=value` in its environment.
    ///
    /// # Errors
    /// It cannot be read, for another reason than lack of privilege.
    fn has_mark(&mut self, tgid: u32, mark: &str) -> Result<Option<bool>, ReadError>;
    /// CPUs a thread may run on that are online.
    ///
    /// # Errors
    /// The thread has ended.
    fn affinity(&mut self, tid: u32) -> Result<CpuSet, SysError>;
    /// The same with those that are offline; `None` where that cannot be told.
    fn mask(&mut self, tgid: u32, tid: u32) -> Option<CpuSet>;
    /// Allows a thread these CPUs, as far as its cpuset has them.
    ///
    /// # Errors
    /// The thread has ended, belongs to someone else, or no CPU remains.
    fn set_affinity(&mut self, tid: u32, cpus: &CpuSet) -> Result<(), SysError>;
    /// How often each of a process's groups has run out of its quota of CPU time.
    fn throttles(&mut self, tgid: u32) -> Quotas;
    /// Whether a process's control group is, or is below, an isolated partition.
    fn is_isolated(&mut self, tgid: u32) -> bool;
    /// The CPUs of a thread's cpuset; `None` where it has none of its own or that cannot be told.
    fn cpuset(&mut self, tgid: u32, tid: u32) -> Option<CpuSet>;
    /// The nodes that a process's memory may be on; `None` where that cannot be told.
    fn mems_allowed(&mut self, tgid: u32) -> Option<NodeSet>;
}

/// Memory of processes.
pub trait Memory {
    /// Memory that is a process's own, ascending.
    ///
    /// # Errors
    /// It is there but cannot be read.
    fn own_ranges(&mut self, tgid: u32) -> Result<Option<Vec<AnonymousRange>>, ReadError>;
    /// What a process maps shared and writable, ascending.
    ///
    /// # Errors
    /// It is there but cannot be read.
    fn shared_ranges(&mut self, tgid: u32) -> Result<Option<Vec<ObjectRange>>, ReadError>;
    /// Which addresses a process maps, ascending.
    ///
    /// # Errors
    /// They are there but cannot be read.
    fn mapped(&mut self, tgid: u32) -> Result<Option<Vec<Range<u64>>>, ReadError>;
    /// Both what is its own and which addresses it maps.
    ///
    /// # Errors
    /// They are there but cannot be read.
    fn layout(&mut self, tgid: u32) -> Result<Option<Layout>, ReadError> {
        let (own, mapped) = (self.own_ranges(tgid)?, self.mapped(tgid)?);
        Ok(own.zip(mapped).map(|(own, mapped)| Layout { own, mapped, ..Layout::default() }))
    }
    /// Why a process's pages are to stay where they are, if they are, for who else handles its memory. `beat` is called
    /// now and then.
    fn pages_stay(&mut self, tgid: u32, beat: &mut dyn FnMut()) -> Option<&'static str>;
    /// The same for how much of it is locked or pinned.
    fn locked(&mut self, _tgid: u32) -> Option<&'static str> {
        None
    }
    /// How much of a process's own memory can take hinting faults, as far as a cheap look shows.
    fn coverage(&mut self, tgid: u32) -> Option<Coverage>;
    /// What is resident of it in pages that page tables are walked for; none where that cannot be told.
    fn resident(&mut self, tgid: u32) -> Bytes {
        self.coverage(tgid).map_or(Bytes(0), |seen| seen.resident)
    }
    /// All mappings of a process with their policies and pages per node.
    ///
    /// # Errors
    /// They are there but cannot be read.
    fn mappings(&mut self, tgid: u32) -> Result<Option<Vec<Mapping>>, ReadError>;
    /// Whether a thread has a memory policy of its own, of a process whose first mapping has none, as far as can be told.
    fn has_policy(&mut self, _tgid: u32, _tid: u32) -> bool {
        false
    }
    /// Huge pages that the kernel has split since boot, over the whole machine, because there was no free one where they
    /// were moved to; None where it does not say.
    fn huge_splits(&mut self) -> Option<u64> {
        None
    }
    /// Whether most memory of programs' own, over the whole machine, is in base pages.
    fn is_mostly_base(&mut self) -> bool {
        false
    }
    /// Where the pages at these addresses are, one answer an address.
    ///
    /// # Errors
    /// The process has ended or belongs to someone else.
    fn locate(&mut self, tgid: u32, addresses: &[u64]) -> Result<Vec<PageStatus>, SysError>;
    /// Moves pages; one answer an address.
    ///
    /// # Errors
    /// The process has ended or belongs to someone else, or there is no such node.
    fn migrate(&mut self, tgid: u32, lot: &Lot) -> Result<Vec<PageStatus>, SysError>;
    /// The same of several lots, at once where the kernel can.
    ///
    /// # Errors
    /// For each lot, as for one.
    fn migrate_lots(&mut self, tgid: u32, lots: &[Lot]) -> Vec<Result<Vec<PageStatus>, SysError>> {
        lots.iter().map(|lot| self.migrate(tgid, lot)).collect()
    }
}

/// Pages that go to one node together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lot {
    /// Where to.
    pub to: NodeId,
    /// With those that other processes map.
    pub shared: bool,
    /// Of the pages.
    pub addresses: Vec<u64>,
}

/// The machine as a whole.
pub trait Machine {
    /// What is online.
    ///
    /// # Errors
    /// It cannot be read.
    fn topology(&mut self) -> Result<Topology, ReadError>;
    /// CPUs set apart.
    ///
    /// # Errors
    /// They cannot be read.
    fn isolated(&mut self) -> Result<CpuSet, ReadError>;
    /// CPUs that are online.
    ///
    /// # Errors
    /// They cannot be read.
    fn online(&mut self) -> Result<CpuSet, ReadError>;
    /// Nodes that have memory; `None` where that is not told.
    ///
    /// # Errors
    /// They cannot be read.
    fn with_memory(&mut self) -> Result<Option<NodeSet>, ReadError> {
        Ok(None)
    }
    /// CPUs that may ever be there.
    ///
    /// # Errors
    /// They cannot be read.
    fn possible(&mut self) -> Result<CpuSet, ReadError>;
    /// Free memory and watermarks.
    ///
    /// # Errors
    /// They cannot be read.
    fn nodes(&mut self) -> Result<Vec<NodeState>, ReadError>;
    /// Huge pages of a node's reserve that nobody has and nobody was promised.
    fn spare_reserve(&mut self, node: NodeId) -> u64;
    /// `kernel.numa_balancing`; `None` where the kernel has no such thing.
    ///
    /// # Errors
    /// It cannot be read.
    fn balancing_mode(&mut self) -> Result<Option<u64>, ReadError>;
    /// Busy time of each CPU.
    ///
    /// # Errors
    /// It cannot be read.
    fn busy(&mut self) -> Result<BTreeMap<CpuId, Nanos>, ReadError>;
    /// The CPU that this process is on, if that can be told, and the time it has taken on any.
    fn own_time(&mut self) -> (Option<CpuId>, Nanos);
    /// The clock of snapshots and faults.
    fn monotonic(&mut self) -> Nanos;
    /// The clock that tasks' start times count on.
    fn since_boot(&mut self) -> Nanos;
    /// A setting's text.
    ///
    /// # Errors
    /// It is not there or cannot be read.
    fn setting(&mut self, path: &Path) -> io::Result<String>;
    /// Writes a setting.
    ///
    /// # Errors
    /// It is not there or cannot be written.
    fn set_setting(&mut self, path: &Path, text: &str) -> io::Result<()>;
}

/// How long ago a task or process started, given its start in ticks since boot.
pub fn age(machine: &mut (impl Machine + ?Sized), start: u64) -> Nanos {
    machine.since_boot().since(Nanos(start.saturating_mul(clock::tick().0)))
}

/// All of it.
pub trait System: Tasks + Memory + Machine {}

impl<T: Tasks + Memory + Machine> System for T {}

/// The running kernel, read below a root; system calls go to the kernel we run on.
#[derive(Debug)]
pub struct Running {
    root: PathBuf,
    reader: TaskReader,
    mounts: cgroup::Mounts,
    kept: Kept,
}

impl Running {
    /// Reads below `root`: `/`, unless this is a test.
    #[must_use]
    pub fn new(root: &Path) -> Running {
        Running {
            root: root.to_path_buf(),
            reader: TaskReader::new(root),
            mounts: cgroup::Mounts::default(),
            kept: Kept::default(),
        }
    }
}

impl Tasks for Running {
    fn stat(&mut self, tgid: u32, tid: u32) -> Result<Option<TaskStat>, ReadError> {
        self.reader.stat(tgid, tid)
    }

    fn schedstat(&mut self, tgid: u32, tid: u32) -> Result<Option<SchedStat>, ReadError> {
        self.reader.schedstat(tgid, tid)
    }

    fn kept_schedstat(&mut self, tgid: u32, tid: u32) -> Result<Option<SchedStat>, ReadError> {
        self.kept.schedstat(&self.reader, (tgid, tid))
    }

    fn threads(&mut self, tgid: u32) -> Result<Option<Vec<u32>>, ReadError> {
        self.reader.threads(tgid)
    }

    fn tree(&mut self, tgid: u32) -> Result<Vec<u32>, ReadError> {
        self.reader.tree(tgid)
    }

    fn children(&mut self, of: &[u32]) -> Result<Vec<u32>, ReadError> {
        self.reader.children(of)
    }

    fn newest_pid(&mut self) -> Option<u32> {
        self.reader.newest_pid()
    }

    fn processes(&mut self) -> Result<Vec<u32>, ReadError> {
        self.reader.processes()
    }

    fn command_line(&mut self, tgid: u32) -> Option<Vec<u8>> {
        self.reader.command_line(tgid)
    }

    fn has_mark(&mut self, tgid: u32, mark: &str) -> Result<Option<bool>, ReadError> {
        self.reader.has_mark(tgid, mark)
    }

    fn affinity(&mut self, tid: u32) -> Result<CpuSet, SysError> {
        affinity::get(tid)
    }

    fn mask(&mut self, tgid: u32, tid: u32) -> Option<CpuSet> {
        self.reader.cpus_allowed(tgid, tid).ok().flatten()
    }

    fn set_affinity(&mut self, tid: u32, cpus: &CpuSet) -> Result<(), SysError> {
        affinity::set(tid, cpus)
    }

    fn throttles(&mut self, tgid: u32) -> Quotas {
        respect::throttles(&self.root, &mut self.mounts, tgid).unwrap_or_default()
    }

    fn is_isolated(&mut self, tgid: u32) -> bool {
        respect::is_isolated(&self.root, &mut self.mounts, tgid).unwrap_or(false)
    }

    fn cpuset(&mut self, tgid: u32, tid: u32) -> Option<CpuSet> {
        cgroup::cpuset(&self.root, &mut self.mounts, tgid, tid).ok().flatten()
    }

    fn mems_allowed(&mut self, tgid: u32) -> Option<NodeSet> {
        self.reader.mems_allowed(tgid).ok().flatten()
    }
}

impl Memory for Running {
    fn own_ranges(&mut self, tgid: u32) -> Result<Option<Vec<AnonymousRange>>, ReadError> {
        maps::read(&self.root, tgid)
    }

    fn shared_ranges(&mut self, tgid: u32) -> Result<Option<Vec<ObjectRange>>, ReadError> {
        maps::read_shared(&self.root, tgid)
    }

    fn mapped(&mut self, tgid: u32) -> Result<Option<Vec<Range<u64>>>, ReadError> {
        maps::read_mapped(&self.root, tgid)
    }

    fn layout(&mut self, tgid: u32) -> Result<Option<Layout>, ReadError> {
        maps::read_layout(&self.root, tgid)
    }

    fn pages_stay(&mut self, tgid: u32, beat: &mut dyn FnMut()) -> Option<&'static str> {
        respect::handled(&self.root, tgid, beat)
    }

    fn locked(&mut self, tgid: u32) -> Option<&'static str> {
        respect::locked(&self.root, tgid)
    }

    fn coverage(&mut self, tgid: u32) -> Option<Coverage> {
        respect::coverage(&self.root, tgid)
    }

    fn resident(&mut self, tgid: u32) -> Bytes {
        respect::resident(&self.root, tgid)
    }

    fn huge_splits(&mut self) -> Option<u64> {
        vmstat::huge_splits(&self.root)
    }

    fn mappings(&mut self, tgid: u32) -> Result<Option<Vec<Mapping>>, ReadError> {
        numa_maps::read(&self.root, tgid)
    }

    fn has_policy(&mut self, tgid: u32, tid: u32) -> bool {
        numa_maps::has_policy(&self.root, tgid, tid)
    }

    fn is_mostly_base(&mut self) -> bool {
        let anonymous = Anonymous::read(&self.root);
        anonymous.huge.0 * 2 < anonymous.all.0
    }

    fn locate(&mut self, tgid: u32, addresses: &[u64]) -> Result<Vec<PageStatus>, SysError> {
        let mut status = Vec::new();
        pages::query(tgid, addresses, &mut status)?;
        Ok(status.into_iter().map(PageStatus::from_raw).collect())
    }

    fn migrate(&mut self, tgid: u32, lot: &Lot) -> Result<Vec<PageStatus>, SysError> {
        migrate(tgid, lot)
    }

    /// Each lot in a thread of its own: a new thread starts on a CPU that has least to do, so that
    /// where all are busy, all lose alike.
    fn migrate_lots(&mut self, tgid: u32, lots: &[Lot]) -> Vec<Result<Vec<PageStatus>, SysError>> {
        // Whoever touches a page on its way waits for us.
        threads::at_once(lots, Builder::new, |lot| migrate(tgid, lot))
    }
}

fn migrate(tgid: u32, lot: &Lot) -> Result<Vec<PageStatus>, SysError> {
    let mut status = Vec::new();
    pages::migrate(tgid, &lot.addresses, Target::One(lot.to), lot.shared, &mut status)?;
    Ok(status.into_iter().map(PageStatus::from_raw).collect())
}

impl Machine for Running {
    fn topology(&mut self) -> Result<Topology, ReadError> {
        topology::read(&self.root)
    }

    fn isolated(&mut self) -> Result<CpuSet, ReadError> {
        topology::isolated(&self.root)
    }

    fn online(&mut self) -> Result<CpuSet, ReadError> {
        topology::online(&self.root)
    }

    fn with_memory(&mut self) -> Result<Option<NodeSet>, ReadError> {
        topology::with_memory(&self.root)
    }

    fn possible(&mut self) -> Result<CpuSet, ReadError> {
        topology::possible(&self.root)
    }

    fn nodes(&mut self) -> Result<Vec<NodeState>, ReadError> {
        zoneinfo::read(&self.root)
    }

    fn spare_reserve(&mut self, node: NodeId) -> u64 {
        reserve::spare(&self.root, node.0)
    }

    fn balancing_mode(&mut self) -> Result<Option<u64>, ReadError> {
        knobs::read_number(&self.root, knobs::Knob::NumaBalancing)
    }

    fn busy(&mut self) -> Result<BTreeMap<CpuId, Nanos>, ReadError> {
        cpu_time::read(&self.root)
    }

    fn own_time(&mut self) -> (Option<CpuId>, Nanos) {
        (affinity::current_cpu(), clock::cpu_time())
    }

    fn monotonic(&mut self) -> Nanos {
        clock::monotonic()
    }

    fn since_boot(&mut self) -> Nanos {
        clock::since_boot()
    }

    fn setting(&mut self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn set_setting(&mut self, path: &Path, text: &str) -> io::Result<()> {
        std::fs::write(path, text)
    }
}
