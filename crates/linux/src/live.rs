//! The live machine: what [`numaherd_model::Observe`] and [`numaherd_model::Actuate`] mean on a
//! running Linux.
//!
//! Looks after the processes it is given and their descendants, for as long as they live.
//! Every affinity is written down in the journal before it is changed. A task whose owner
//! changes its affinity meanwhile is the owner's again. A task born with an affinity that is
//! ours (a thread or child of a placed task) is written down and set free.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use numaherd_model::{
    Action, Actuate, Change, Costs, CpuSet, EvidenceGrade, FaultSource, HintingFault, Journal,
    Nanos, NodeId, NodeState, Observe, Outcome, ProcessId, SkipReason, Snapshot, Task, TaskId,
    Topology, WorldError,
};

use crate::process::{TaskReader, TaskStat};
use crate::sys::pages::{self, PageStatus};
use crate::sys::{SysError, affinity, clock};
use crate::{ReadError, knobs, memory};

mod migrate;
mod others;
mod resident;

/// How old figures on nodes may be: `/proc/zoneinfo` is long, and reading it takes its time.
const NODES_AGE: Nanos = Nanos(1_000_000_000);

/// The machine, and what we did to it.
pub struct LiveMachine {
    root: PathBuf,
    reader: TaskReader,
    topology: Topology,
    faults: Option<Box<dyn FaultSource>>,
    journal: Box<dyn Journal>,
    acts: bool,
    targets: BTreeSet<u32>,
    known: BTreeSet<u32>,
    ours: BTreeMap<TaskId, Ours>,
    processes: BTreeMap<TaskId, ProcessId>,
    last_run: BTreeMap<TaskId, (Nanos, Nanos)>,
    nodes: Option<(Nanos, Vec<NodeState>, bool)>,
    isolated: CpuSet,
    others: others::Others,
    policies: resident::Policies,
    mover: migrate::Mover,
    beat: Box<dyn FnMut()>,
}

/// A task we placed.
#[derive(Clone, Debug)]
struct Ours {
    owner: CpuSet,
    set: CpuSet,
    home: NodeId,
}

/// How to set up a [`LiveMachine`].
pub struct LiveOptions {
    /// `/`, unless this is a test.
    pub root: PathBuf,
    /// Processes to look after, with their descendants.
    pub targets: Vec<u32>,
    /// Hinting faults; without them, evidence is where the pages of each process lie.
    pub faults: Option<Box<dyn FaultSource>>,
    /// Where changes are written down.
    pub journal: Box<dyn Journal>,
    /// Whether to act, or only to say what would be done.
    pub acts: bool,
    /// Called often, so that whoever watches over us sees that we live.
    pub beat: Box<dyn FnMut()>,
}

impl LiveMachine {
    /// Reads the topology; looks at no task yet.
    ///
    /// # Errors
    /// The topology cannot be read.
    pub fn new(options: LiveOptions) -> Result<LiveMachine, ReadError> {
        Ok(LiveMachine {
            reader: TaskReader::new(&options.root),
            topology: crate::topology::read(&options.root)?,
            faults: options.faults,
            journal: options.journal,
            acts: options.acts,
            targets: options.targets.into_iter().collect(),
            known: BTreeSet::new(),
            ours: BTreeMap::new(),
            processes: BTreeMap::new(),
            last_run: BTreeMap::new(),
            nodes: None,
            isolated: crate::topology::isolated(&options.root)?,
            others: others::Others::default(),
            policies: resident::Policies::default(),
            mover: migrate::Mover::new(),
            beat: options.beat,
            root: options.root,
        })
    }

    /// Looks after these processes and their descendants too. Whoever is looked after stays so
    /// until it ends: what its owner allowed is known only here.
    pub fn retarget(&mut self, targets: impl IntoIterator<Item = u32>) {
        self.targets = targets.into_iter().collect();
    }

    /// Faults that were lost because we were too slow.
    #[must_use]
    pub fn lost_faults(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.lost())
    }

    /// Finds the processes in our care; tells the fault source when they change.
    fn find_processes(&mut self) -> Result<Vec<u32>, WorldError> {
        let mut found = BTreeSet::new();
        for &target in self.targets.union(&self.known) {
            // Most are descendants of one looked at before.
            if found.contains(&target) {
                continue;
            }
            if self.reader.stat(target, target).map_err(read_error)?.is_some() {
                found.extend(self.reader.tree(target).map_err(read_error)?);
            }
        }
        if found != self.known {
            let tgids: Vec<u32> = found.iter().copied().collect();
            if let Some(faults) = &mut self.faults {
                let failed = |source| WorldError::Read { what: "the fault filter".into(), source };
                faults.watch(&tgids).map_err(failed)?;
            }
            self.known = found;
        }
        Ok(self.known.iter().copied().collect())
    }

    fn read_tasks(&mut self, now: Nanos) -> Result<Vec<Task>, WorldError> {
        let mut tasks = Vec::new();
        for tgid in self.find_processes()? {
            let Some(leader) = self.reader.stat(tgid, tgid).map_err(read_error)? else { continue };
            let process = ProcessId { tgid, start: leader.id.start };
            let Some(threads) = self.reader.threads(tgid).map_err(read_error)? else { continue };
            for tid in threads {
                // Whoever ends while we look is left out.
                let stat = self.reader.stat(tgid, tid).map_err(read_error)?;
                let Some(stat) = stat.filter(|stat| !stat.is_dead()) else { continue };
                let Ok(allowed) = affinity::get(tid) else { continue };
                tasks.push(self.task(process, &stat, allowed, now)?);
                (self.beat)();
            }
        }
        tasks.sort_by_key(|task| task.id);
        Ok(tasks)
    }

    fn task(
        &mut self,
        process: ProcessId,
        stat: &TaskStat,
        mut allowed: CpuSet,
        now: Nanos,
    ) -> Result<Task, WorldError> {
        self.recognise(process, stat.id, &mut allowed)?;
        let tick = clock::tick();
        let schedstat = self.reader.schedstat(process.tgid, stat.id.tid).map_err(read_error)?;
        let cpu_time = schedstat.map_or(Nanos(stat.cpu_ticks * tick.0), |s| s.run_time);
        let age = clock::since_boot().since(Nanos(stat.id.start * tick.0));
        // A task seen for the first time: over its whole life.
        let (then, before) = self
            .last_run
            .insert(stat.id, (now, cpu_time))
            .unwrap_or((Nanos(now.0.saturating_sub(age.0)), Nanos(0)));
        let busy = cpu_time.since(before).0 * 1000 / now.since(then).0.max(1);
        self.processes.insert(stat.id, process);
        let ours = self.ours.get(&stat.id);
        Ok(Task {
            id: stat.id,
            process,
            cpus_owner: ours.map_or_else(|| allowed.clone(), |ours| ours.owner.clone()),
            fixed: stat.is_kernels || stat.is_real_time,
            home: ours.map(|ours| ours.home),
            cpus_allowed: allowed,
            last_cpu: stat.last_cpu,
            cpu_time,
            busy_permille: busy.min(1000) as u32,
            age,
            state: stat.task_state(),
            faults: Vec::new(),
        })
    }

    /// Notices an owner that changed an affinity of ours, and a task that was born with one:
    /// that is set free at once, for nothing is known of it, and a crowd born of one placed
    /// task would be crammed onto its node.
    fn recognise(
        &mut self,
        process: ProcessId,
        task: TaskId,
        allowed: &mut CpuSet,
    ) -> Result<(), WorldError> {
        if let Some(ours) = self.ours.get(&task) {
            if ours.set != *allowed {
                self.ours.remove(&task);
            }
            return Ok(());
        }
        let newborn = !self.processes.contains_key(&task);
        let parent = self.ours.values().find(|ours| ours.set == *allowed && ours.owner != ours.set);
        let Some(parent) = parent.filter(|_| newborn).cloned() else { return Ok(()) };
        let change = Change::Affinity {
            task,
            process,
            before: parent.owner.clone(),
            after: parent.set.clone(),
        };
        self.journal.before(&change).map_err(|source| WorldError::Journal { source })?;
        if self.acts && affinity::set(task.tid, &parent.owner).is_ok() {
            *allowed = parent.owner;
        }
        Ok(())
    }

    /// Free memory and watermarks, and whether the kernel tiers memory.
    fn read_nodes(&mut self, now: Nanos) -> Result<(Vec<NodeState>, bool), WorldError> {
        if let Some((at, nodes, tiering)) = &self.nodes
            && now.since(*at) < NODES_AGE
        {
            return Ok((nodes.clone(), *tiering));
        }
        let nodes = memory::zoneinfo::read(&self.root).map_err(read_error)?;
        let mode =
            knobs::read_number(&self.root, knobs::Knob::NumaBalancing).map_err(read_error)?;
        let tiering = mode.is_some_and(|mode| mode & 2 != 0);
        self.nodes = Some((now, nodes.clone(), tiering));
        Ok((nodes, tiering))
    }

    fn place(
        &mut self,
        task: TaskId,
        cpus: &CpuSet,
        node: Option<NodeId>,
    ) -> Result<Outcome, WorldError> {
        let Some(&process) = self.processes.get(&task) else {
            return Ok(Outcome::Skipped(SkipReason::Gone));
        };
        // The tid may belong to somebody else by now.
        let stat = self.reader.stat(process.tgid, task.tid).map_err(read_error)?;
        if stat.is_none_or(|stat| stat.id != task) {
            return Ok(Outcome::Skipped(SkipReason::Gone));
        }
        let current = match affinity::get(task.tid) {
            Ok(current) => current,
            Err(error) => return Ok(skipped(&error)),
        };
        let owner = match self.ours.get(&task) {
            Some(ours) if ours.set != current => {
                return Ok(Outcome::Skipped(SkipReason::OwnerChanged));
            }
            Some(ours) => ours.owner.clone(),
            None => current,
        };
        let change = Change::Affinity { task, process, before: owner.clone(), after: cpus.clone() };
        self.journal.before(&change).map_err(|source| WorldError::Journal { source })?;
        match affinity::set(task.tid, cpus) {
            Ok(()) => {}
            Err(error) => return Ok(skipped(&error)),
        }
        match node {
            Some(home) => self.ours.insert(task, Ours { owner, set: cpus.clone(), home }),
            None => self.ours.remove(&task),
        };
        Ok(Outcome::Done { moved: numaherd_model::Pages(0) })
    }
}

impl Observe for LiveMachine {
    fn observe(&mut self, faults: &mut Vec<HintingFault>) -> Result<Snapshot, WorldError> {
        let now = clock::monotonic();
        let tasks = self.read_tasks(now)?;
        if tasks.is_empty() {
            return Err(WorldError::NoTasks);
        }
        let alive = |id: &TaskId| tasks.binary_search_by_key(id, |task| task.id).is_ok();
        self.ours.retain(|id, _| alive(id));
        self.processes.retain(|id, _| alive(id));
        self.last_run.retain(|id, _| alive(id));
        let (mut nodes, kernel_tiering) = self.read_nodes(now)?;
        if self.others.is_due(now, NODES_AGE) {
            let busy = crate::cpu_time::read(&self.root).map_err(read_error)?;
            self.others.sample(now, busy, &tasks, &self.topology);
        }
        self.others.fill(&mut nodes, &self.topology);
        let mut snapshot = Snapshot {
            time: now,
            page_size: pages::size(),
            topology: self.topology.clone(),
            isolated: self.isolated.clone(),
            nodes,
            tasks,
            regions: Vec::new(),
            sharing: Vec::new(),
            grade: EvidenceGrade::None,
            kernel_tiering,
            costs: Costs { page_move: self.mover.page_move() },
        };
        match &mut self.faults {
            Some(source) => {
                let failed = |source| WorldError::Read { what: "hinting faults".into(), source };
                source.drain(faults).map_err(failed)?;
                snapshot.grade = EvidenceGrade::HintingFaults;
            }
            None => {
                resident::fill(&self.root, &mut snapshot, &mut self.policies, &mut locate)
                    .map_err(read_error)?;
            }
        }
        Ok(snapshot)
    }
}

impl Actuate for LiveMachine {
    fn apply(&mut self, actions: &[&Action]) -> Result<Vec<Outcome>, WorldError> {
        if !self.acts {
            return Ok(vec![Outcome::Skipped(SkipReason::DryRun); actions.len()]);
        }
        let mut outcomes = vec![Outcome::Skipped(SkipReason::Gone); actions.len()];
        // Moves to one node out of one address space are one call: each call has its price.
        let mut moves: BTreeMap<(ProcessId, NodeId), Vec<usize>> = BTreeMap::new();
        for (index, action) in actions.iter().enumerate() {
            outcomes[index] = match action {
                Action::PlaceTask { task, node, cpus, .. } => {
                    self.place(*task, cpus, Some(*node))?
                }
                Action::ReleaseTask { task, cpus, .. } => self.place(*task, cpus, None)?,
                Action::MovePages { region, to, .. } => {
                    moves.entry((region.process, *to)).or_default().push(index);
                    continue;
                }
            };
            (self.beat)();
        }
        for ((process, to), indices) in moves {
            let range = |&index: &usize| match actions[index] {
                Action::MovePages { region, len, .. } => region.start..region.start + len.0,
                _ => 0..0,
            };
            let ranges: Vec<std::ops::Range<u64>> = indices.iter().map(range).collect();
            let moved = self.mover.move_ranges(process, &ranges, to, &mut self.beat);
            for (index, outcome) in indices.into_iter().zip(moved) {
                outcomes[index] = outcome;
            }
        }
        Ok(outcomes)
    }
}

/// Where pages of a process are; nothing of one that has ended or belongs to someone else.
fn locate(tgid: u32, addresses: &[u64]) -> Vec<PageStatus> {
    let mut status = Vec::new();
    match pages::query(tgid, addresses, &mut status) {
        Ok(()) => status.into_iter().map(PageStatus::from_raw).collect(),
        Err(_) => Vec::new(),
    }
}

fn skipped(error: &SysError) -> Outcome {
    let gone = error.is_gone();
    Outcome::Skipped(if gone {
        SkipReason::Gone
    } else {
        SkipReason::Refused { error: error.to_string() }
    })
}

fn read_error(error: ReadError) -> WorldError {
    WorldError::Read { what: error.to_string(), source: std::io::Error::other("see there") }
}
