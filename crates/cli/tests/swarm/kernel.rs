//! A kernel made up in memory: tasks with affinities, cpusets, CPUs that come and go, pages on
//! nodes.
//!
//! Affinities follow Linux: a task keeps the mask that was set and may run on that mask's CPUs in
//! its cpuset and online; with nothing in common, on all of the cpuset. Since 6.2 the mask survives
//! a change of the cpuset, before it is forgotten ([`Kernel::keeps_masks`]). If the last CPU of a
//! task goes offline, its mask is forgotten too.
//!
//! Each task has its mask twice: as it is, and as it would be if nobody had balanced. What is put
//! back in the end must be the latter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use numaherd_model::{Birth, CpuId, CpuSet, Nanos, NodeSet, ProcessId};

/// Base pages in a region, and their size.
pub const PAGES: usize = 512;
pub const PAGE_BYTES: u64 = 4096;

/// Not touched yet.
pub const NOWHERE: u8 = u8::MAX;

/// Length of a clock tick, the unit of start times.
pub const TICK_NS: u64 = 10_000_000;

/// A mask that was set, and what is left of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    pub set: Option<CpuSet>,
    pub cpus: CpuSet,
}

impl Mask {
    fn of(cpuset: &CpuSet) -> Mask {
        Mask { set: None, cpus: cpuset.clone() }
    }

    /// Sets a mask; false where the kernel refuses.
    pub fn set(&mut self, wanted: &CpuSet, cpuset: &CpuSet, online: &CpuSet) -> bool {
        let cpus = wanted.intersection(cpuset);
        if cpus.intersection(online).is_empty() {
            return false;
        }
        *self = Mask { set: Some(wanted.clone()), cpus };
        true
    }

    /// The cpuset is another.
    fn confine(&mut self, cpuset: &CpuSet, online: &CpuSet, keeps: bool) {
        let kept = self.set.as_ref().filter(|_| keeps).map(|set| set.intersection(cpuset));
        let kept = kept.filter(|cpus| !cpus.intersection(online).is_empty());
        self.cpus = kept.unwrap_or_else(|| cpuset.clone());
        self.set = self.set.take().filter(|_| keeps);
    }

    /// A CPU went offline; true if that broke the mask.
    fn shrink(&mut self, cpuset: &CpuSet, online: &CpuSet) -> bool {
        let broken = self.cpus.intersection(online).is_empty();
        if broken {
            *self = Mask::of(cpuset);
        }
        broken
    }
}

/// A thread.
#[derive(Clone, Debug)]
pub struct FakeTask {
    pub tgid: u32,
    pub parent: u32,
    pub start: u64,
    pub group: usize,
    /// As it is, and as it would be if nobody had balanced.
    pub real: Mask,
    pub alone: Mask,
    /// The kernel refused to put its owner's mask back, or broke a mask: what was the owner's is
    /// nowhere any more.
    pub excused: bool,
    pub last_cpu: CpuId,
    pub run_ns: u64,
    pub busy: bool,
    pub real_time: bool,
    /// How many programs its process has executed so far.
    pub program: u64,
    /// Nobody named its process, nor one that it descends from.
    pub stranger: bool,
}

/// 2 MiB of a process.
#[derive(Clone, Debug)]
pub struct FakeRegion {
    pub start: u64,
    pub nodes: Vec<u8>,
    /// Whose it is; none: all of the process use it.
    pub owner: Option<u32>,
    /// Its pages are held by a device: the kernel never moves them.
    pub pinned: bool,
}

/// See the module.
pub struct Kernel {
    pub now: u64,
    pub keeps_masks: bool,
    pub nodes: u32,
    pub cpus_per_node: u32,
    pub online: CpuSet,
    /// Cpusets; the first is the root.
    pub groups: Vec<CpuSet>,
    pub tasks: BTreeMap<u32, FakeTask>,
    /// The pid or thread id that was given out last, and whether one was that is lower than another before.
    pub newest: (u32, bool),
    pub memory: BTreeMap<u32, Vec<FakeRegion>>,
    /// Pages free on each node, and below which the kernel reclaims.
    pub free: Vec<u64>,
    pub high: u64,
    pub settings: BTreeMap<PathBuf, String>,
    pub locked: bool,
    /// Nobody may set the affinity of this thread.
    pub untouchable: Option<u32>,
    /// Processes that were born of others and not told yet.
    pub births: Vec<Birth>,
    /// Processes with the run's mark.
    pub marked: BTreeSet<u32>,
    /// Calls of the balancer that change something, until it is killed.
    pub fuse: Option<u64>,
    pub killed: bool,
    /// When each change was written down.
    pub written: Vec<u64>,
    /// Lines of the journal that were left out since.
    pub dropped: u64,
    /// Processes whose threads have masks of their own each: which of them a newborn had is nowhere
    /// to be read.
    pub mixed: BTreeSet<u32>,
    /// Times that a process ran out of its quota of CPU time.
    pub throttled: BTreeMap<u32, u64>,
    /// Groups are outside our namespace: nobody tells of their cpusets.
    pub groups_unseen: bool,
    /// Nodes that a process's memory may be on, of those that may not have it on all.
    pub mems: BTreeMap<u32, NodeSet>,
    /// Processes with a userfaultfd.
    pub watched: BTreeSet<u32>,
    /// Processes most of whose memory takes no faults.
    pub hidden: BTreeSet<u32>,
    /// While pages of this process are on their way, this task of it ends.
    pub ends_in_move: Option<(u32, u32)>,
    /// The balancer has ended and things are put back.
    pub undoing: bool,
    /// Times that undoing took an owner's mask for ours.
    pub coincidences: u64,
    /// Times the balancer set the affinity of a stranger.
    pub strangers_touched: u64,
    /// Times the balancer brought a node below its watermark.
    pub pressed: u64,
    pub random: fastrand::Rng,
}

impl Kernel {
    pub fn new(seed: u64, nodes: u32, cpus_per_node: u32, keeps_masks: bool) -> Kernel {
        let all: CpuSet = (0..nodes * cpus_per_node).map(CpuId).collect();
        let high = 1000;
        Kernel {
            now: 100_000_000_000,
            keeps_masks,
            nodes,
            cpus_per_node,
            online: all.clone(),
            groups: vec![all.clone(), all.clone(), all],
            tasks: BTreeMap::new(),
            newest: (0, false),
            memory: BTreeMap::new(),
            free: vec![1 << 18; nodes as usize],
            high,
            settings: BTreeMap::new(),
            locked: false,
            untouchable: None,
            births: Vec::new(),
            marked: BTreeSet::new(),
            fuse: None,
            killed: false,
            written: Vec::new(),
            dropped: 0,
            mixed: BTreeSet::new(),
            throttled: BTreeMap::new(),
            groups_unseen: false,
            mems: BTreeMap::new(),
            watched: BTreeSet::new(),
            hidden: BTreeSet::new(),
            ends_in_move: None,
            undoing: false,
            coincidences: 0,
            strangers_touched: 0,
            pressed: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Every process, with its start.
    pub fn processes(&self) -> Vec<ProcessId> {
        let leader = |(tid, task): (&u32, &FakeTask)| {
            (*tid == task.tgid).then_some(ProcessId { tgid: *tid, start: task.start })
        };
        self.tasks.iter().filter_map(leader).collect()
    }

    pub fn possible(&self) -> CpuSet {
        (0..self.nodes * self.cpus_per_node).map(CpuId).collect()
    }

    pub fn node_of(&self, cpu: CpuId) -> u32 {
        cpu.0 / self.cpus_per_node
    }

    pub fn cpus_of(&self, node: u32) -> CpuSet {
        let first = node * self.cpus_per_node;
        (first..first + self.cpus_per_node).map(CpuId).collect()
    }

    /// The CPUs of a cpuset; those online where none of it is. The root has all there may be.
    pub fn cpuset(&self, group: usize) -> CpuSet {
        if group == 0 {
            return self.possible();
        }
        let own = self.groups[group].intersection(&self.online);
        if own.is_empty() { self.online.clone() } else { own }
    }

    pub fn affinity(&self, tid: u32) -> Option<CpuSet> {
        Some(self.tasks.get(&tid)?.real.cpus.intersection(&self.online))
    }

    /// What the affinity would be if nobody had balanced.
    pub fn affinity_alone(&self, tid: u32) -> Option<CpuSet> {
        Some(self.tasks.get(&tid)?.alone.cpus.intersection(&self.online))
    }

    /// The balancer does something; false once it is dead.
    pub fn may_act(&mut self) -> bool {
        match &mut self.fuse {
            Some(0) => self.killed = true,
            Some(left) => *left -= 1,
            None => {}
        }
        !self.killed
    }

    /// A new process of its own, or a child.
    pub fn spawn(&mut self, pid: u32, parent: Option<u32>, group: usize) {
        let cpuset = self.cpuset(group);
        let like = parent.and_then(|parent| self.tasks.get(&parent).cloned());
        let mixed = like.as_ref().is_some_and(|like| self.mixed.contains(&like.tgid));
        let mut task = like.map_or_else(
            || FakeTask {
                tgid: pid,
                parent: 1,
                start: self.now / TICK_NS,
                group,
                real: Mask::of(&cpuset),
                alone: Mask::of(&cpuset),
                excused: false,
                last_cpu: cpuset.first().expect("a cpuset has a CPU"),
                run_ns: 0,
                busy: true,
                real_time: false,
                program: 1,
                stranger: false,
            },
            |like| FakeTask {
                tgid: pid,
                parent: like.tgid,
                start: self.now / TICK_NS,
                run_ns: 0,
                ..like
            },
        );
        task.excused |= mixed;
        if self.marked.contains(&task.parent) {
            self.marked.insert(pid);
        }
        self.give_out(pid);
        self.births.extend(parent.map(|_| {
            let time = Nanos(self.now);
            Birth { time, child: pid, parent: task.parent }
        }));
        self.tasks.insert(pid, task);
        self.memory.insert(pid, Vec::new());
    }

    fn give_out(&mut self, tid: u32) {
        let (newest, again) = self.newest;
        self.newest = (tid, again || tid <= newest);
    }

    /// A new thread of a process, with what its creator had.
    pub fn clone_thread(&mut self, tid: u32, creator: u32) {
        let Some(like) = self.tasks.get(&creator).cloned() else { return };
        let start = self.now / TICK_NS;
        let excused = like.excused || self.mixed.contains(&like.tgid);
        self.give_out(tid);
        self.tasks.insert(tid, FakeTask { start, run_ns: 0, excused, ..like });
    }

    /// Gives a process a region, all of it on a node.
    pub fn allocate(&mut self, tgid: u32, owner: Option<u32>, node: u32, pinned: bool) {
        let regions = self.memory.entry(tgid).or_default();
        let start = (u64::from(tgid) << 36) + ((regions.len() as u64) << 21);
        let nodes = vec![node as u8; PAGES];
        regions.push(FakeRegion { start, nodes, owner, pinned });
        let free = &mut self.free[node as usize];
        *free = free.saturating_sub(PAGES as u64);
    }

    /// A thread ends; with its leader, the process.
    pub fn end(&mut self, tid: u32) {
        let Some(task) = self.tasks.remove(&tid) else { return };
        if task.tgid != tid {
            return;
        }
        self.tasks.retain(|_, other| other.tgid != tid);
        let regions = self.memory.remove(&tid).unwrap_or_default();
        self.give_back(&regions);
        self.disown(tid);
        // Orphans become children of process 1.
        self.tasks.values_mut().filter(|t| t.parent == tid).for_each(|t| t.parent = 1);
    }

    /// A thread executes another program: it is the main thread of its process from then on, and there is no other.
    pub fn execute(&mut self, tid: u32) {
        let Some(mut task) = self.tasks.get(&tid).cloned() else { return };
        let Some(start) = self.tasks.get(&task.tgid).map(|main| main.start) else { return };
        self.tasks.retain(|_, other| other.tgid != task.tgid);
        // Whether a main thread that we let go of has another's mask, or its owner's that is the same, nobody can tell who has
        // not looked since.
        let is_held = |task: &FakeTask| task.real != task.alone;
        let was_held = self.tasks.get(&task.tgid).is_some_and(is_held);
        task.excused |= is_held(&task) && !was_held;
        (task.start, task.program) = (start, task.program + 1);
        self.memory.insert(task.tgid, Vec::new()).into_iter().for_each(|old| self.give_back(&old));
        self.tasks.insert(task.tgid, task);
    }

    fn give_back(&mut self, regions: &[FakeRegion]) {
        for node in regions.iter().flat_map(|region| &region.nodes).filter(|n| **n != NOWHERE) {
            self.free[*node as usize] += 1;
        }
    }

    /// An owner sets an affinity.
    pub fn owner_sets(&mut self, tid: u32, cpus: &CpuSet) {
        let Some(group) = self.tasks.get(&tid).map(|task| task.group) else { return };
        let (cpuset, online) = (self.cpuset(group), self.online.clone());
        if let Some(task) = self.tasks.get_mut(&tid)
            && task.real.set(cpus, &cpuset, &online)
        {
            task.alone.set(cpus, &cpuset, &online);
            task.excused = false;
        }
        self.disown(tid);
    }

    /// What the descendants of a process were allowed by their owner that were born with a mask of
    /// ours can no longer be told.
    fn disown(&mut self, tgid: u32) {
        let possible = self.possible();
        let mut above = vec![tgid];
        while let Some(parent) = above.pop() {
            for (child, task) in self.tasks.iter_mut().filter(|(_, task)| task.parent == parent) {
                let set = task.real.set.as_ref().filter(|set| **set != possible);
                task.excused |= set.is_some() && task.real.set != task.alone.set;
                above.extend((*child == task.tgid).then_some(*child));
            }
        }
    }

    /// A cpuset gets these CPUs.
    pub fn confine(&mut self, group: usize, cpus: CpuSet) {
        self.groups[group] = cpus;
        self.reconfine(|task| task.group == group);
    }

    /// A process goes to another group.
    pub fn attach(&mut self, tgid: u32, group: usize) {
        for task in self.tasks.values_mut().filter(|task| task.tgid == tgid) {
            task.group = group;
        }
        self.reconfine(|task| task.tgid == tgid);
    }

    fn reconfine(&mut self, which: impl Fn(&FakeTask) -> bool) {
        let cpusets: Vec<CpuSet> = (0..self.groups.len()).map(|group| self.cpuset(group)).collect();
        let (online, keeps) = (self.online.clone(), self.keeps_masks);
        for task in self.tasks.values_mut().filter(|task| which(task)) {
            // An early kernel forgets its owner's mask now; to put that back is no harm.
            task.excused |= !keeps && task.alone.set.is_some();
            task.real.confine(&cpusets[task.group], &online, keeps);
            task.alone.confine(&cpusets[task.group], &online, keeps);
        }
    }

    /// A CPU goes offline or comes back. Tasks of the root keep their masks.
    pub fn plug(&mut self, cpu: CpuId, online: bool) {
        if online {
            self.online.insert(cpu)
        } else {
            self.online.remove(cpu)
        };
        let cpusets: Vec<CpuSet> = (0..self.groups.len()).map(|group| self.cpuset(group)).collect();
        let now_online = self.online.clone();
        for task in self.tasks.values_mut() {
            let cpuset = &cpusets[task.group];
            // What a broken mask was is nowhere any more, or should not be put back.
            let real = task.real.shrink(cpuset, &now_online);
            let alone = task.alone.shrink(cpuset, &now_online);
            task.excused |= real || alone;
        }
        self.reconfine(|task| task.group != 0);
    }

    /// Time passes and tasks run where they may.
    pub fn run(&mut self, nanoseconds: u64) {
        self.now += nanoseconds;
        let online = self.online.clone();
        let random = &mut self.random;
        for task in self.tasks.values_mut() {
            let may: Vec<CpuId> = task.real.cpus.intersection(&online).iter().collect();
            if !may.contains(&task.last_cpu) && !may.is_empty() {
                task.last_cpu = may[random.usize(..may.len())];
            }
            task.run_ns += if task.busy { nanoseconds } else { 0 };
        }
    }

    /// All pages of all processes, by process.
    pub fn pages(&self) -> BTreeMap<u32, usize> {
        let count = |regions: &Vec<FakeRegion>| {
            let touched =
                |region: &FakeRegion| region.nodes.iter().filter(|n| **n != NOWHERE).count();
            regions.iter().map(touched).sum()
        };
        self.memory.iter().map(|(tgid, regions)| (*tgid, count(regions))).collect()
    }
}
