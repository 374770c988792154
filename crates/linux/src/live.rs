//! The live machine: what [`numaherd_model::Observe`] and [`numaherd_model::Actuate`] mean on a
//! running Linux.
//!
//! Looks after the processes it is given and their descendants, for as long as they live.
//! Every affinity is written down in the journal before it is changed. A task whose owner
//! changes its affinity meanwhile is the owner's again. A task born with an affinity that is
//! ours (a thread or child of a placed task) is written down and set free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use numaherd_model::{
    Costs, Counters, CpuSet, EvidenceGrade, FaultSource, HintingFault, Journal, Latencies, Nanos,
    NodeId, NodeSet, NodeState, Observe, Pages, ProcessId, Snapshot, Spent, Task, TaskId,
    TaskState, Topology, WorldError,
};

use crate::ReadError;
use crate::process::TaskStat;
use crate::sys::{clock, pages};
use crate::system::{self, Running, System};
use crate::vm;
pub use custody::Kept;
use custody::{Custody, Hands};
use errors::{read_error, skipped, unheard};
use family::{Family, Member};
pub use options::{LiveOptions, Sampled};
pub use queues::Queue;
pub use traffic::Counters as TrafficCounters;

mod accesses;
mod act;
mod counts;
pub(crate) mod custody;
mod errors;
mod family;
mod faulting;
mod gaps;
mod huge;
mod mems;
mod migrate;
mod objects;
mod options;
mod others;
mod owned;
mod queues;
mod quiet;
mod resident;
mod silence;
mod told;
mod traffic;
mod walk;
mod whose;

/// How old figures on nodes may be: `/proc/zoneinfo` is long, and reading it takes its time.
const NODES_AGE: Nanos = Nanos(1_000_000_000);

/// Faults that are heard between two looks: beyond, a look is due ([`LiveMachine::has_heard_enough`]), and the kernel's ring
/// holds some more until it comes. Guessed: a few megabytes.
const MOST_HEARD: usize = 50_000;

/// The idle task's: who watches nobody at all hears of everybody.
const NOBODY: u32 = 0;

/// The machine, and what we did to it.
pub struct LiveMachine {
    system: Box<dyn System>,
    topology: Topology,
    /// Nodes that had memory when that was read.
    with_memory: Option<NodeSet>,
    latencies: Option<Latencies>,
    faults: Option<Box<dyn FaultSource>>,
    /// Whether the source of faults was told whom to watch.
    watches: bool,
    /// Faults that were heard between two looks.
    heard: Vec<HintingFault>,
    accesses: accesses::Accesses,
    journal: Box<dyn Journal>,
    acts: bool,
    coverage: bool,
    /// Processes that another balancer looks after, and which.
    theirs: BTreeMap<u32, String>,
    family: Family,
    parents: custody::Parents,
    custody: Custody,
    processes: BTreeMap<TaskId, ProcessId>,
    /// When each task was seen last, and how long it had run and waited then.
    spent: BTreeMap<TaskId, Spent>,
    nodes: Option<(Nanos, Vec<NodeState>, bool)>,
    isolated: CpuSet,
    others: others::Others,
    queues: queues::Queues,
    meter: traffic::Meter,
    policies: resident::Policies,
    aside: quiet::Aside,
    walks: walk::Budget,
    objects: Option<objects::Objects>,
    /// Command lines of virtual machines; none where they are not looked for.
    guests: Option<BTreeMap<ProcessId, Option<Vec<u8>>>>,
    /// The threads of the last look, with their names.
    named: Vec<vm::Named>,
    stays: quiet::Stays,
    owned: owned::Owned,
    mems: mems::Mems,
    mover: migrate::Mover,
    /// What a hinting fault takes.
    fault: Nanos,
    beat: Box<dyn FnMut()>,
}

impl LiveMachine {
    /// Reads the topology; looks at no task yet.
    ///
    /// # Errors
    /// The topology cannot be read.
    pub fn new(options: LiveOptions) -> Result<LiveMachine, ReadError> {
        let mut machine = LiveMachine::on(Box::new(Running::new(Path::new("/"))), options)?;
        machine.fault = faulting::measured().unwrap_or(machine.fault);
        // We may descend from whom we look after, and would never end.
        machine.family.leave_out(std::process::id());
        Ok(machine)
    }

    /// The same on a kernel of the caller's.
    ///
    /// # Errors
    /// The topology cannot be read.
    pub fn on(mut system: Box<dyn System>, options: LiveOptions) -> Result<LiveMachine, ReadError> {
        Ok(LiveMachine {
            with_memory: system.with_memory()?,
            topology: measured(system.topology()?, options.latencies.as_ref()),
            latencies: options.latencies,
            isolated: system.isolated()?,
            faults: options.faults,
            watches: false,
            heard: Vec::new(),
            accesses: accesses::Accesses::new(options.accesses, options.sampled),
            journal: options.journal,
            acts: options.acts,
            coverage: options.coverage,
            theirs: BTreeMap::new(),
            family: Family::of(options.targets),
            parents: custody::Parents::default(),
            custody: Custody::default(),
            processes: BTreeMap::new(),
            spent: BTreeMap::new(),
            nodes: None,
            others: others::Others::default(),
            queues: queues::Queues::default(),
            meter: traffic::Meter::new(options.traffic),
            policies: resident::Policies::default(),
            aside: quiet::Aside::default(),
            walks: walk::Budget::default(),
            objects: options.objects.then(objects::Objects::default),
            guests: options.units.then(BTreeMap::new),
            named: Vec::new(),
            stays: quiet::Stays::default(),
            owned: owned::Owned::default(),
            mems: mems::Mems::default(),
            mover: migrate::Mover::new(options.pause),
            fault: Costs::default().fault,
            beat: options.beat,
            system,
        })
    }

    /// Looks after these processes and their descendants too, and after those that are `busy` with whom
    /// they give birth to. Whoever has a placed thread stays so until it ends: what its owner allowed is known
    /// only here.
    pub fn retarget(
        &mut self,
        targets: impl IntoIterator<Item = ProcessId>,
        busy: impl IntoIterator<Item = ProcessId>,
    ) {
        self.family.retarget(targets, busy);
    }

    /// Takes masks of tasks for ours, in place of their owners', that ended runs left in place on purpose.
    pub fn take_over(&mut self, kept: impl IntoIterator<Item = (TaskId, Kept)>) {
        self.custody.take_over(kept);
    }

    /// The faults since the last look; the next one has them too. This costs next to nothing where there
    /// are none.
    ///
    /// # Errors
    /// The kernel's stream cannot be read.
    pub fn listen(&mut self) -> Result<&[HintingFault], WorldError> {
        if self.heard.len() < MOST_HEARD {
            if let Some(source) = &mut self.faults {
                source.drain(&mut self.heard).map_err(unheard)?;
            }
            let pace: walk::Pace<'_> = (&mut self.walks, &mut self.beat);
            self.accesses.hear(self.system.as_mut(), &self.topology, pace, &mut self.heard);
        }
        Ok(&self.heard)
    }

    /// Whether no more is heard before a look: what comes from now on is lost once the kernel's ring is full.
    #[must_use]
    pub fn has_heard_enough(&self) -> bool {
        self.heard.len() >= MOST_HEARD
    }

    /// Whether a task that we hold on a node waits for a CPU there. This costs next to nothing.
    ///
    /// # Errors
    /// A file of the kernel's cannot be read.
    pub fn queue(&mut self) -> Result<Queue, WorldError> {
        let now = self.system.monotonic();
        let held = |from| self.custody.held(from);
        self.queues.squeezed(self.system.as_mut(), held, &mut self.spent, now).map_err(read_error)
    }

    /// The machine's.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Finds the processes in our care; tells the fault source when they change.
    fn find_processes(&mut self, now: Nanos) -> Result<Vec<Member>, WorldError> {
        self.parents.turned();
        if let Some(faults) = self.faults.as_mut().filter(|_| self.watches) {
            faults.drain(&mut self.heard).map_err(unheard)?;
            let births = faults.births();
            self.parents.hear(&births);
            self.family.hear(births);
        }
        let placed = |process: &ProcessId| self.custody.has_placed(*process);
        let found = self.family.find(self.system.as_mut(), now, placed);
        let (members, changed) = found.map_err(read_error)?;
        // At first it tells of everybody, whom nobody hears where there is nobody to look after.
        let told = std::mem::replace(&mut self.watches, true) && !changed;
        if let Some(faults) = self.faults.as_mut().filter(|_| !told) {
            let mut tgids: Vec<u32> = members.iter().map(|member| member.id.tgid).collect();
            if tgids.is_empty() {
                tgids.push(NOBODY);
            }
            let failed = |source| WorldError::Read { what: "the fault filter".into(), source };
            faults.watch(&tgids).map_err(failed)?;
        }
        Ok(members)
    }

    fn read_tasks(&mut self, now: Nanos) -> Result<Vec<Task>, WorldError> {
        let mut tasks = Vec::new();
        self.named.clear();
        for Member { id: process, leader, threads } in self.find_processes(now)? {
            let tgid = process.tgid;
            for tid in threads {
                // Whoever ends while we look is left out.
                let stat = match tid == tgid {
                    true => Some(leader.clone()),
                    false => self.system.stat(tgid, tid).map_err(read_error)?,
                };
                let Some(stat) = stat.filter(|stat| !stat.is_dead()) else { continue };
                let Ok(allowed) = self.system.affinity(tid) else { continue };
                tasks.push(self.task(process, &stat, allowed, now)?);
                self.named.push((stat.id, process, stat.comm));
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
        let newborn = !self.processes.contains_key(&stat.id);
        let (system, journal) = (self.system.as_mut(), self.journal.as_mut());
        let mut hands = Hands { system, journal, parents: &self.parents, acts: self.acts };
        let topology = &self.topology;
        let home = |cpus: &CpuSet| custody::only_node_of(topology, cpus);
        self.custody.recognise(&mut hands, (stat, process), newborn, &mut allowed, home)?;
        let tick = clock::tick();
        let schedstat = self.system.schedstat(process.tgid, stat.id.tid).map_err(read_error)?;
        let cpu_time = schedstat.map_or(Nanos(stat.cpu_ticks * tick.0), |s| s.run_time);
        let age = system::age(self.system.as_mut(), stat.id.start);
        let wait_time = schedstat.map_or(Nanos(0), |s| s.wait_time);
        // A task seen for the first time: over its whole life.
        let born = Nanos(now.0.saturating_sub(age.0));
        let spent = self.spent.entry(stat.id).or_insert_with(|| Spent::born(born));
        let counters = Counters { at: now, ran: cpu_time, waited: wait_time };
        let (busy_permille, waiting_permille) =
            spent.see(counters, stat.task_state() == TaskState::Sleeping);
        let usual_permille = spent.usual(counters);
        self.processes.insert(stat.id, process);
        let untold = self.coverage && self.is_untold(process);
        let system = self.system.as_mut();
        // Page tables show what faults do not.
        let by_faults = self.faults.is_some() && self.coverage;
        let hidden =
            by_faults.then(|| self.aside.hidden(system, process, now, &mut self.walks)).flatten();
        let hidden = hidden.is_some_and(|hidden| !self.accesses.make_up(&hidden)) || untold;
        let aside = self.aside.is_by_deadline(process, stat)
            || self.aside.is_grouped(system, process, now)
            || hidden;
        Ok(Task {
            id: stat.id,
            process,
            cpus_owner: self.custody.owners_cpus(system, stat.id, &allowed, now)?,
            fixed: stat.is_kernels
                || stat.is_real_time
                || aside
                || self.theirs.contains_key(&process.tgid),
            home: self.custody.home(stat.id),
            cpus_allowed: allowed,
            last_cpu: stat.last_cpu,
            cpu_time,
            busy_permille,
            waiting_permille,
            usual_permille,
            age,
            state: stat.task_state(),
            faults: Vec::new(),
            remote_faults: 0,
        })
    }

    /// The virtual nodes of the virtual machines in our care.
    fn units(&mut self) -> Vec<Vec<TaskId>> {
        let Some(guests) = &mut self.guests else { return Vec::new() };
        let system = self.system.as_mut();
        vm::units(&self.named, |process| {
            guests.entry(process).or_insert_with(|| system.command_line(process.tgid)).clone()
        })
    }

    /// Free memory and watermarks, and whether the kernel tiers memory.
    fn read_nodes(&mut self, now: Nanos) -> Result<(Vec<NodeState>, bool), WorldError> {
        if let Some((at, nodes, tiering)) = &self.nodes
            && now.since(*at) < NODES_AGE
        {
            return Ok((nodes.clone(), *tiering));
        }
        self.read_topology().map_err(read_error)?;
        let nodes = self.system.nodes().map_err(read_error)?;
        let mode = self.system.balancing_mode().map_err(read_error)?;
        let tiering = mode.is_some_and(|mode| mode & 2 != 0);
        self.nodes = Some((now, nodes.clone(), tiering));
        Ok((nodes, tiering))
    }

    /// Notices CPUs that came or went, and nodes whose memory did.
    fn read_topology(&mut self) -> Result<(), ReadError> {
        let with_memory = self.system.with_memory()?;
        if self.system.online()? != self.topology.cpus() || with_memory != self.with_memory {
            self.topology = measured(self.system.topology()?, self.latencies.as_ref());
            self.with_memory = with_memory;
            // What others take is known by a node's place among all.
            self.others = others::Others::default();
        }
        // Partitions come and go.
        self.isolated = self.system.isolated()?;
        Ok(())
    }
}

impl Observe for LiveMachine {
    fn observe(&mut self, faults: &mut Vec<HintingFault>) -> Result<Snapshot, WorldError> {
        let now = self.system.monotonic();
        let is_due = self.others.is_due(now, NODES_AGE);
        let busy = if is_due { Some(self.system.busy().map_err(read_error)?) } else { None };
        let tasks = self.read_tasks(now)?;
        self.others.found_nobody(tasks.is_empty());
        if tasks.is_empty() {
            self.accesses.watch(&[], &self.open_cpus());
            return Err(WorldError::NoTasks);
        }
        if let Some(before) = busy {
            let busy = (before, self.system.busy().map_err(read_error)?);
            let machine = (&self.topology, &self.isolated);
            self.others.sample(now, busy, &tasks, self.system.own_time(), machine);
        }
        let alive = |id: &TaskId| tasks.binary_search_by_key(id, |task| task.id).is_ok();
        self.custody.retain(alive);
        self.queues.retain(|task| self.custody.home(*task).is_some());
        self.processes.retain(|id, _| alive(id));
        let processes: BTreeSet<ProcessId> = self.processes.values().copied().collect();
        self.aside.retain(|process| processes.contains(process));
        self.mover.retain(|process| processes.contains(process));
        self.owned.see(&processes, now);
        if let Some(guests) = &mut self.guests {
            guests.retain(|process, _| processes.contains(process));
        }
        let common = match &mut self.objects {
            Some(objects) => {
                let found = objects.common(self.system.as_mut(), &processes, now);
                found.map_err(read_error)?.to_vec()
            }
            None => Vec::new(),
        };
        self.spent.retain(|id, _| alive(id));
        let (mut nodes, kernel_tiering) = self.read_nodes(now)?;
        self.others.fill(&mut nodes, &self.topology);
        // To read a CPU's counter interrupts it.
        let open = self.open_cpus();
        let (system, topology) = (self.system.as_mut(), &self.topology);
        let traffic = self.meter.see(system, now, &tasks, &open).map_err(read_error)?;
        let mems_allowed = self.mems.allowed(system, &processes, topology, now);
        let mut snapshot = Snapshot {
            time: now,
            page_size: pages::size(),
            topology: self.topology.clone(),
            isolated: self.isolated.clone(),
            nodes,
            tasks,
            regions: Vec::new(),
            common,
            units: self.units(),
            mems_allowed,
            traffic,
            sharing: Vec::new(),
            resident: Vec::new(),
            grade: EvidenceGrade::None,
            stirred: false,
            fewer: Vec::new(),
            kernel_tiering,
            costs: Costs { page_move: self.mover.page_move(), fault: self.fault },
        };
        match self.faults.is_some() || self.accesses.tells_all() {
            true => {
                faults.append(&mut self.heard);
                if let Some(source) = &mut self.faults {
                    source.drain(faults).map_err(unheard)?;
                }
                self.aside.hear(faults);
                self.accesses.learn(faults);
                let pace: walk::Pace<'_> = (&mut self.walks, &mut self.beat);
                self.accesses.hear(self.system.as_mut(), &self.topology, pace, faults);
                self.sample(&snapshot.tasks, now);
                snapshot.grade = EvidenceGrade::HintingFaults;
            }
            false => {
                // Where no CPU could be sampled so far, one may be now.
                self.sample(&snapshot.tasks, now);
                let memory = self.system.as_mut();
                let policies = &mut self.policies;
                let pace: walk::Pace<'_> = (&mut self.walks, &mut self.beat);
                let filled = resident::fill(memory, &mut snapshot, policies, pace);
                filled.map_err(read_error)?;
            }
        }
        Ok(snapshot)
    }

    fn is_at_work(&mut self) {
        (self.beat)();
    }

    fn pages_lie(&mut self, process: ProcessId) -> Vec<(NodeId, Pages)> {
        gaps::pages_lie(self.system.as_mut(), process)
    }

    fn mapped(&mut self, process: ProcessId) -> Option<Vec<Range<u64>>> {
        (self.beat)();
        match self.system.mapped(process.tgid).ok()? {
            // A process whose first thread has ended shows no memory, and has as much as before.
            Some(mapped) if mapped.is_empty() => None,
            mapped => Some(mapped.unwrap_or_default()),
        }
    }
}

/// A topology with what was measured of it.
fn measured(mut topology: Topology, latencies: Option<&Latencies>) -> Topology {
    latencies.into_iter().for_each(|latencies| latencies.fill(&mut topology));
    topology
}

#[cfg(test)]
mod tests;
