//! What a placement sees: the machine, its tasks and their memory at one moment.
//!
//! Everything is sorted by id, so that equal machines give equal snapshots and iteration order
//! never depends on a hash. Evidence carries its grade and its age.

use serde::{Deserialize, Serialize};

use crate::{
    Bytes, CpuId, CpuSet, Nanos, NodeId, NodeSet, ObjectId, Pages, ProcessId, RegionId, TaskId,
    Topology, Traffic,
};

/// Faults, in pages, from which a task's evidence counts. Guessed: a handful of faults on
/// stack and libraries says nothing of its working set.
pub const MIN_FAULTS: u64 = 48;

/// Per mille of the time that a task runs or waits for a CPU, from which it claims one.
pub const CLAIMS_A_CPU: u32 = 250;

/// The same of a task that is placed: who is near what claims a CPU would claim one now and then. Guessed.
pub const KEEPS_A_CPU: u32 = 200;

/// Less than this over the last seconds, and a placed task has no need of its place. Guessed, well below what claims a
/// CPU, lest who is near that be placed and released in turn.
pub const IDLES: u32 = 100;

/// Per mille of local evidence from which nothing is left to gain (numa/core: 921 of 1024).
pub const CONVERGED_PERMILLE: u32 = 900;

/// How good a piece of evidence is, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceGrade {
    /// Nothing is known.
    None,
    /// Where the pages lie (`numa_maps`): says nothing of who uses them.
    ResidentPages,
    /// The kernel's hinting faults: who touched which page.
    HintingFaults,
    /// Hardware samples.
    Hardware,
}

/// A node's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Which node.
    pub id: NodeId,
    /// Free memory.
    pub free: Pages,
    /// High watermark summed over the node's zones: below it the kernel reclaims.
    pub high_watermark: Pages,
    /// CPU time that tasks not in our care take there, per mille of one CPU.
    #[serde(default)]
    pub others_permille: u32,
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// Running or waiting for a CPU.
    Runnable,
    /// Waiting for something else.
    Sleeping,
}

/// A task's faults on one node's memory, in pages, decayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFaults {
    /// Where the memory is.
    pub node: NodeId,
    /// Pages nobody else touched in between.
    pub private: u64,
    /// Pages another task touched in between.
    pub shared: u64,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Identity.
    pub id: TaskId,
    /// Its process.
    pub process: ProcessId,
    /// CPUs it may run on now.
    pub cpus_allowed: CpuSet,
    /// CPUs its owner allowed: what `cpus_allowed` was before we first touched it.
    pub cpus_owner: CpuSet,
    /// Not ours to place, whatever its owner allows: a real-time or deadline task, or one whose
    /// affinity the kernel lets nobody change.
    #[serde(default)]
    pub fixed: bool,
    /// The node we placed it on, if we did.
    pub home: Option<NodeId>,
    /// CPU it last ran on.
    pub last_cpu: CpuId,
    /// CPU time it has used.
    pub cpu_time: Nanos,
    /// CPU time used since the last snapshot, per mille of one CPU.
    pub busy_permille: u32,
    /// Time it was runnable without running since the last snapshot, per mille.
    #[serde(default)]
    pub waiting_permille: u32,
    /// Both together over the last seconds, where they are known for so long ([`crate::Spent::usual`]): a program that
    /// collects its garbage has all its threads sleep for tenths of a second, and nobody has gone for that.
    #[serde(default)]
    pub usual_permille: Option<u32>,
    /// Age: time since it started.
    pub age: Nanos,
    /// What it is doing.
    pub state: TaskState,
    /// Evidence per node, ascending by node: where pages were after the fault.
    pub faults: Vec<NodeFaults>,
    /// Of its faults, in pages and decayed likewise, those on memory that was remote before: the kernel brings
    /// most pages to whoever faults on them first.
    #[serde(default)]
    pub remote_faults: u64,
}

impl Task {
    /// Whether it has enough to do to claim a CPU, however seldom it gets one: now and for a while; once it is placed, for
    /// a while.
    #[must_use]
    pub fn claims_cpu(&self) -> bool {
        let now = self.wanted_permille() >= u64::from(CLAIMS_A_CPU);
        match (self.usual_permille, self.home) {
            (None, _) => now,
            (Some(usual), None) => now && usual >= CLAIMS_A_CPU,
            (Some(usual), Some(_)) => usual >= KEEPS_A_CPU,
        }
    }

    /// Whether it may use no CPUs but those set apart, and so takes none of those that are for all.
    #[must_use]
    pub fn is_apart(&self, isolated: &CpuSet) -> bool {
        !self.cpus_owner.is_empty() && self.cpus_owner.is_subset(isolated)
    }

    /// CPU time that it wants, per mille of one CPU: what it got, and what it waited for.
    #[must_use]
    pub fn wanted_permille(&self) -> u64 {
        u64::from(self.busy_permille.saturating_add(self.waiting_permille).min(1000))
    }

    /// The same over the last seconds, where that is known.
    #[must_use]
    pub fn usually_wanted_permille(&self) -> u64 {
        self.usual_permille.map_or_else(|| self.wanted_permille(), u64::from)
    }

    /// Whether it has had next to nothing to do for a while, as far as that is known.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.usual_permille.map_or_else(|| !self.claims_cpu(), |usual| usual < IDLES)
    }

    /// All its faults, in pages, decayed.
    #[must_use]
    pub fn fault_pages(&self) -> u64 {
        self.faults.iter().map(|on| on.private + on.shared).sum()
    }

    /// The node it is on, or is kept on: what it counts for where no plan sends it elsewhere.
    #[must_use]
    pub fn node(&self, topology: &Topology) -> Option<NodeId> {
        self.home.or_else(|| topology.node_of_cpu(self.last_cpu))
    }
}

/// A task's share of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionUse {
    /// Who.
    pub task: TaskId,
    /// Its faults there, in pages, decayed.
    pub faults: u64,
}

/// A piece of an address space and who uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Which.
    pub id: RegionId,
    /// Length; a multiple of the page size.
    pub len: Bytes,
    /// Pages known per node, ascending by node; pages not yet seen are missing.
    pub pages: Vec<(NodeId, Pages)>,
    /// Who touches it, ascending by task.
    pub users: Vec<RegionUse>,
    /// Touches of its pages before which another one was seen, in pages. Unlike its users they are remembered when the
    /// program goes on to something else: who uses a region changes then, and mostly not whether it is shared.
    #[serde(default)]
    pub pairs: u64,
    /// Of these, by another task than the one before.
    #[serde(default)]
    pub switches: u64,
    /// Age of the newest evidence.
    pub age: Nanos,
    /// Its pages were refused of late: for now they stay where they are.
    #[serde(default)]
    pub rests: bool,
    /// Its pages are never moved: whoever uses them has to come to them.
    #[serde(default)]
    pub stays: bool,
}

impl Region {
    /// All pages known, wherever they are.
    #[must_use]
    pub fn known_pages(&self) -> Pages {
        Pages(self.pages.iter().map(|(_, p)| p.0).sum())
    }

    /// Pages known on `node`.
    #[must_use]
    pub fn pages_on(&self, node: NodeId) -> Pages {
        self.pages.iter().find(|(n, _)| *n == node).map_or(Pages(0), |(_, p)| *p)
    }

    /// Per mille of its use that is by tasks on another node than its pages, with users where this says; those of
    /// whom it says nothing do not count.
    ///
    /// Example: all pages on node 0, three faults by a task there and one by a task on node 1: 250.
    #[must_use]
    pub fn remote_permille(&self, node_of: impl Fn(TaskId) -> Option<NodeId>) -> u32 {
        let known = self.known_pages().0;
        let (mut far, mut all) = (0, 0);
        for user in &self.users {
            let Some(node) = node_of(user.task) else { continue };
            far += user.faults * (known - self.pages_on(node).0);
            all += user.faults * known;
        }
        (far * 1000).checked_div(all).unwrap_or(0) as u32
    }
}

/// The machine, its tasks and their memory at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When, on the machine's monotonic clock.
    pub time: Nanos,
    /// Base page size.
    pub page_size: Bytes,
    /// What is online.
    pub topology: Topology,
    /// CPUs set apart (`isolcpus`, `nohz_full`): only for tasks whose owner allows no others.
    #[serde(default)]
    pub isolated: CpuSet,
    /// One per node of the topology, in its order.
    pub nodes: Vec<NodeState>,
    /// Tasks in our care, ascending by id.
    pub tasks: Vec<Task>,
    /// Regions with evidence, ascending by id.
    pub regions: Vec<Region>,
    /// What several processes in our care map, ascending by process and address.
    #[serde(default)]
    pub common: Vec<SharedRange>,
    /// Tasks that belong on one node together, each list ascending: a virtual machine's virtual nodes.
    #[serde(default)]
    pub units: Vec<Vec<TaskId>>,
    /// What memory carries and what is asked of it, as far as somebody measures that.
    #[serde(default)]
    pub traffic: Traffic,
    /// Processes whose memory may be on some nodes only, ascending.
    #[serde(default)]
    pub mems_allowed: Vec<MemsAllowed>,
    /// How much the tasks of each process share, ascending by process; processes nothing is
    /// known of are missing.
    pub sharing: Vec<Sharing>,
    /// Where the memory of processes lies, by their page tables: of those none of whose tasks is placed, and of
    /// those that share it over several nodes, as far as somebody looked; ascending by process.
    #[serde(default)]
    pub resident: Vec<Resident>,
    /// Best grade of the evidence at hand.
    pub grade: EvidenceGrade,
    /// Since all had converged, faults have come that tell of another phase. (The loop fills it in.)
    #[serde(default)]
    pub stirred: bool,
    /// Processes that have fewer busy tasks than before, since some ended, and when that was seen last; ascending. (The
    /// loop fills it in.)
    #[serde(default)]
    pub fewer: Vec<(ProcessId, Nanos)>,
    /// Whether the kernel moves pages between tiers: then we move none.
    pub kernel_tiering: bool,
    /// What acting costs here, measured while acting.
    pub costs: Costs,
}

/// A piece of an object in one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedRange {
    /// Whose address space.
    pub process: ProcessId,
    /// First address.
    pub start: u64,
    /// Length.
    pub len: Bytes,
    /// Of what.
    pub object: ObjectId,
    /// Where in it the piece begins, in bytes.
    pub offset: u64,
}

impl SharedRange {
    /// First address behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.len.0
    }
}

/// The nodes that a process's memory may be on: those of its cpuset (`cpuset.mems`), but for such as the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemsAllowed {
    /// Whose.
    pub process: ProcessId,
    /// Which.
    pub nodes: NodeSet,
}

/// How much the tasks of a process share its memory.
///
/// A page that all share is touched by somebody else than last time more often than not; one
/// that a task has to itself, never.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// Which process.
    pub process: ProcessId,
    /// Pages seen touched twice, since both tasks live.
    pub samples: u64,
    /// Of these, by two different tasks.
    pub switches: u64,
}

/// Where a process's memory lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// Whose.
    pub process: ProcessId,
    /// Pages on each node that has some, ascending.
    pub nodes: Vec<(NodeId, Pages)>,
}

/// What acting costs on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// Time to move one base page.
    pub page_move: Nanos,
    /// Time that a hinting fault takes, without a move.
    #[serde(default = "usual_fault")]
    pub fault: Nanos,
}

/// Guessed: a minor fault on a server.
fn usual_fault() -> Nanos {
    Nanos(1_000)
}

impl Default for Costs {
    /// Guessed, until pages have been moved: 4 KiB at 1 GB/s and as much again for page tables
    /// and interrupts.
    fn default() -> Self {
        Costs { page_move: Nanos(8_000), fault: usual_fault() }
    }
}

impl Snapshot {
    /// The task with this id.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.binary_search_by_key(&id, |task| task.id).ok().map(|i| &self.tasks[i])
    }

    /// The region with this id.
    #[must_use]
    pub fn region(&self, id: RegionId) -> Option<&Region> {
        self.regions.binary_search_by_key(&id, |region| region.id).ok().map(|i| &self.regions[i])
    }

    /// How much the tasks of this process share, if anything was seen of it.
    #[must_use]
    pub fn sharing_of(&self, process: ProcessId) -> Option<&Sharing> {
        let found = self.sharing.binary_search_by_key(&process, |sharing| sharing.process);
        found.ok().map(|i| &self.sharing[i])
    }

    /// The nodes that a process's memory may be on; `None` for any.
    #[must_use]
    pub fn mems_allowed_of(&self, process: ProcessId) -> Option<&NodeSet> {
        let found = self.mems_allowed.binary_search_by_key(&process, |allowed| allowed.process);
        found.ok().map(|i| &self.mems_allowed[i].nodes)
    }

    /// Whether a process's memory may be on a node.
    #[must_use]
    pub fn allows_memory(&self, process: ProcessId, node: NodeId) -> bool {
        self.mems_allowed_of(process).is_none_or(|nodes| nodes.contains(node))
    }

    /// The processes that map some of what a region is of, its own first; others as often as they map it.
    pub fn mappers(&self, region: RegionId) -> impl Iterator<Item = ProcessId> + '_ {
        let len = self.region(region).map_or(0, |region| region.len.0);
        // Ascending by process and address.
        let before =
            |range: &SharedRange| (range.process, range.end()) <= (region.process, region.start);
        let own = self.common[self.common.partition_point(before)..].iter();
        let meets = move |range: &&SharedRange| {
            range.process == region.process && range.start < region.start + len
        };
        let others = own.take_while(meets).flat_map(move |own| {
            // From where to where of the object.
            let place = |address: u64| own.offset + address.clamp(own.start, own.end()) - own.start;
            let (from, to) = (place(region.start), place(region.start + len));
            let same = move |other: &&SharedRange| {
                let begins = other.offset;
                other.object == own.object && begins < to && from < begins + other.len.0
            };
            self.common.iter().filter(same).map(|other| other.process)
        });
        std::iter::once(region.process).chain(others)
    }

    /// The CPUs that a task may be given: its owner's, without those set apart unless it has no others.
    #[must_use]
    pub fn open_to(&self, task: &Task) -> CpuSet {
        let shared = task.cpus_owner.difference(&self.isolated);
        if shared.is_empty() { task.cpus_owner.clone() } else { shared }
    }

    /// A process's memory may not be on this node either.
    pub fn forbid_memory(&mut self, process: ProcessId, node: NodeId) {
        let found = self.mems_allowed.binary_search_by_key(&process, |allowed| allowed.process);
        let at = found.unwrap_or_else(|at| {
            let nodes = self.topology.nodes.iter().map(|node| node.id).collect();
            self.mems_allowed.insert(at, MemsAllowed { process, nodes });
            at
        });
        self.mems_allowed[at].nodes.remove(node);
    }

    /// A process's regions, ascending.
    #[must_use]
    pub fn regions_of(&self, process: ProcessId) -> &[Region] {
        let begin = self.regions.partition_point(|region| region.id.process < process);
        let end = self.regions.partition_point(|region| region.id.process <= process);
        &self.regions[begin..end]
    }

    /// CPUs of a node that tasks not in our care keep busy: three quarters of one and more count as one.
    #[must_use]
    pub fn others(&self, id: NodeId) -> usize {
        let permille = self.node(id).map_or(0, |state| state.others_permille);
        (permille as usize + 250) / 1000
    }

    /// The state of this node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&NodeState> {
        self.nodes.iter().find(|node| node.id == id)
    }
}
