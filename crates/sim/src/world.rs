//! The machine as `control` sees it: the same [`Observe`] and [`Actuate`] that the live machine
//! has, so that the very code of a placement runs here too.
//!
//! Placing tasks takes no time. Moving pages is work of numaherd's own threads, several at once as live: the caller
//! lets that time pass ([`Sim::take_spent`]) before the next turn, and tasks lose it that run where those do, the CPUs
//! of least load.

use std::collections::BTreeMap;

use numaherd_model::{
    Action, Actuate, Bytes, Costs, Counters, CpuId, CpuSet, EvidenceGrade, HintingFault, Nanos,
    NodeId, NodeState, Observe, Outcome, Pages, ProcessId, Refusal, RegionId, SkipReason, Snapshot,
    Task, TaskId, TaskState, Traffic, WorldError,
};

use crate::account::Place;
use crate::engine::{BLOCK_PAGES, Sim, State};
use crate::kernel::{RESERVE_PERMILLE, address};

/// Time over which traffic is counted. Guessed: long beside the 2 MiB that a task is followed by.
const TRAFFIC_WINDOW: Nanos = Nanos(200_000_000);

/// Threads that move pages at once, at the most. As live.
const MOVERS: usize = 8;

const PAGE: Bytes = Bytes(4096);

impl Sim {
    /// Faults since the last look; the next one has them too.
    #[must_use]
    pub fn heard(&self) -> &[HintingFault] {
        &self.faults
    }

    /// How many tasks that had faulted have ended.
    #[must_use]
    pub fn exited(&self) -> u64 {
        self.exited
    }

    /// Memory of processes that is in base pages.
    #[must_use]
    pub fn base_pages(&self) -> Bytes {
        Bytes(if self.options.huge_pages { 0 } else { self.taken_by_processes() })
    }
}

impl Observe for Sim {
    fn observe(&mut self, faults: &mut Vec<HintingFault>) -> Result<Snapshot, WorldError> {
        if self.left == 0 {
            return Err(WorldError::NoTasks);
        }
        faults.append(&mut self.faults);
        let tasks: Vec<Task> = (0..self.tasks.len()).filter_map(|t| self.observe_task(t)).collect();
        let traffic = self.observe_traffic();
        let mut topology = self.topology.clone();
        for (node, &free) in topology.nodes.iter_mut().zip(&self.free) {
            node.free = Bytes(free);
        }
        let state = |node: &numaherd_model::Node| NodeState {
            id: node.id,
            free: node.free.pages(PAGE),
            high_watermark: Pages(node.memory.0 / PAGE.0 * RESERVE_PERMILLE / 1000),
            others_permille: 0,
        };
        let copy_ns = self.copy_ns(0, 0, self.machine.node.len() - 1);
        let costs = &self.machine.kernel;
        let small = if self.options.huge_pages { 1 } else { BLOCK_PAGES };
        let block_ns = copy_ns + small * (costs.move_ns + costs.flush_ns);
        Ok(Snapshot {
            isolated: Default::default(),
            time: Nanos(self.now),
            page_size: PAGE,
            nodes: topology.nodes.iter().map(state).collect(),
            topology,
            tasks,
            common: Vec::new(),
            units: Vec::new(),
            mems_allowed: Vec::new(),
            traffic,
            regions: Vec::new(),
            sharing: Vec::new(),
            resident: Vec::new(),
            grade: EvidenceGrade::HintingFaults,
            stirred: false,
            fewer: Vec::new(),
            kernel_tiering: false,
            costs: Costs {
                page_move: Nanos((block_ns / BLOCK_PAGES).max(1)),
                fault: Nanos(costs.fault_ns),
            },
        })
    }

    /// Nothing is given back before its process ends.
    fn mapped(&mut self, _: ProcessId) -> Option<Vec<std::ops::Range<u64>>> {
        Some(std::iter::once(0..u64::MAX).collect())
    }

    fn pages_lie(&mut self, process: ProcessId) -> Vec<(NodeId, Pages)> {
        let found = self.processes.iter().find(|one| one.id == process);
        let mut nodes: BTreeMap<NodeId, Pages> = BTreeMap::new();
        for block in found.into_iter().flat_map(|process| &process.blocks) {
            let node = NodeId(self.machine.node[usize::from(block.home)].id);
            nodes.entry(node).or_default().0 += BLOCK_PAGES;
        }
        nodes.into_iter().collect()
    }
}

impl Sim {
    /// A task that has begun and not ended.
    fn observe_task(&mut self, t: usize) -> Option<Task> {
        let now = self.now;
        let process = &self.processes[self.tasks[t].process];
        // As live: whose memory takes no hinting faults is left alone if its accesses are not sampled either.
        let seen = process.hinting_faults || self.options.sample_accesses;
        let (process, fixed) = (process.id, !seen);
        let (task, rest) = (&self.tasks[t], &mut self.rest[t]);
        if task.state == State::Done {
            return None;
        }
        let (runs, waits) = match task.state {
            State::Running => (now - self.steps[task.cpu].begun, 0),
            State::Waiting => (0, now - task.since),
            State::Asleep | State::Done => (0, 0),
        };
        let (cpu_time, waited) = (Nanos(task.cpu_ns + runs), Nanos(rest.waited_ns + waits));
        let counters = Counters { at: Nanos(now), ran: cpu_time, waited };
        let sleeps = task.state == State::Asleep;
        let (busy_permille, waiting_permille) = rest.spent.see(counters, sleeps);
        Some(Task {
            fixed,
            id: rest.id,
            process,
            cpus_allowed: rest.allowed.clone(),
            cpus_owner: rest.owner.clone(),
            home: rest.home,
            last_cpu: CpuId(task.cpu as u32),
            cpu_time,
            busy_permille,
            waiting_permille,
            usual_permille: rest.spent.usual(counters),
            age: Nanos(now - rest.born),
            state: if sleeps { TaskState::Sleeping } else { TaskState::Runnable },
            faults: Vec::new(),
            remote_faults: 0,
        })
    }

    /// What memory carries, and what each task asked of it in the last [`TRAFFIC_WINDOW`] or longer: a
    /// machine on which somebody counts that.
    fn observe_traffic(&mut self) -> Traffic {
        let passed = self.now - self.traffic_ns;
        if passed >= TRAFFIC_WINDOW.0 {
            self.traffic_ns = self.now;
            let rate = |bytes: &mut f64| (std::mem::take(bytes) / passed as f64 * 1e9) as u64;
            self.carried_s = self.carried.iter_mut().map(rate).collect();
            for (task, rest) in self.tasks.iter().zip(&mut self.rest) {
                let bytes = task.bytes - std::mem::replace(&mut rest.bytes_before, task.bytes);
                rest.bytes_s = (bytes / passed as f64 * 1e9) as u64;
            }
        }
        let carries = self.topology.nodes.iter().zip(&self.machine.memory_mb_s);
        let tasks = self.tasks.iter().zip(&self.rest);
        let alive = tasks.filter(|(task, rest)| task.state != State::Done && rest.bytes_s > 0);
        let nodes = self.topology.nodes.iter().map(|node| node.id);
        Traffic {
            carried: nodes.zip(self.carried_s.iter().copied()).collect(),
            most: carries.map(|(node, mb_s)| (node.id, (mb_s * 1e6) as u64)).collect(),
            tasks: alive.map(|(_, rest)| (rest.id, rest.bytes_s)).collect(),
        }
    }

    /// CPU time that acting has taken since the last call, and how long it took.
    pub fn take_spent(&mut self) -> (Nanos, Nanos) {
        (std::mem::take(&mut self.spent), std::mem::take(&mut self.took))
    }

    fn place_task(&mut self, id: TaskId, home: Option<NodeId>, cpus: &CpuSet) -> Outcome {
        let t = id.tid as usize - 1;
        if self.rest.get(t).is_none_or(|task| task.id != id) || self.tasks[t].state == State::Done {
            return Outcome::Skipped(SkipReason::Gone);
        }
        if !cpus.iter().any(|cpu| self.gone.get(cpu.0 as usize) == Some(&false)) {
            let error = "EINVAL: none of these CPUs is there".into();
            return Outcome::Skipped(SkipReason::Refused { error });
        }
        self.rest[t].allowed = cpus.clone();
        self.rest[t].home = home;
        self.tasks[t].unsettled = true;
        if !self.allows(t, self.tasks[t].cpu) {
            let to = self.pick_allowed(t);
            self.send(t, to, None);
        }
        Outcome::Done { moved: Pages(0) }
    }

    fn move_region(&mut self, region: RegionId, len: Bytes, to: NodeId) -> Outcome {
        let process = self.processes.iter().position(|process| process.id == region.process);
        let Some((p, to)) = process.zip(self.index_of(to)) else {
            return Outcome::Skipped(SkipReason::Gone);
        };
        let (mut moved, mut refused) = (0, Refusal::default());
        for b in 0..self.processes[p].blocks.len() {
            let inside = (region.start..region.start + len.0).contains(&address(b));
            let from = usize::from(self.processes[p].blocks[b].home);
            if !inside || from == to {
                continue;
            }
            let ns = self.copy_ns(from, from, to);
            if self.relocate(p, b, to, None).is_none() {
                let busy = self.now < self.no_moves_until;
                *(if busy { &mut refused.busy } else { &mut refused.full }) += BLOCK_PAGES;
                continue;
            }
            let costs = &self.machine.kernel;
            let each = if self.options.huge_pages { 1 } else { BLOCK_PAGES };
            self.spent.0 += ns + each * (costs.move_ns + costs.flush_ns);
            moved += BLOCK_PAGES;
        }
        self.run.pages_moved_by_us += moved;
        let moved = Pages(moved);
        match refused.full + refused.busy {
            0 => Outcome::Done { moved },
            _ => Outcome::Partial { moved, refused },
        }
    }
}

impl Actuate for Sim {
    fn apply(&mut self, actions: &[&Action]) -> Result<Vec<Outcome>, WorldError> {
        let before = self.spent;
        let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
        for (i, action) in actions.iter().enumerate() {
            let outcome = match action {
                Action::PlaceTask { task, node, cpus, .. } => {
                    self.place_task(*task, Some(*node), cpus)
                }
                Action::ReleaseTask { task, cpus, .. } => self.place_task(*task, None, cpus),
                Action::MovePages { .. } => continue,
            };
            outcomes.insert(i, outcome);
        }
        for (i, action) in actions.iter().enumerate() {
            if let Action::MovePages { region, len, to, .. } = action {
                outcomes.insert(i, self.move_region(*region, *len, *to));
            }
        }
        let moved: u64 = outcomes.values().map(|outcome| outcome.moved().0).sum();
        self.charge(Nanos(self.spent.0 - before.0), moved / BLOCK_PAGES);
        Ok(outcomes.into_values().collect())
    }
}

impl Sim {
    /// Threads that move so many blocks at once, of which each has a CPU, the idlest there are. Whoever runs there
    /// loses that time.
    fn charge(&mut self, spent: Nanos, blocks: u64) {
        let mut cpus: Vec<usize> = (0..self.load.len()).collect();
        cpus.sort_by_key(|&cpu| (self.load[cpu], cpu));
        cpus.truncate(MOVERS.min(blocks.max(1) as usize));
        let each = spent.0 / cpus.len() as u64;
        self.took.0 += each;
        for t in cpus.into_iter().filter_map(|cpu| self.running[cpu]) {
            self.tasks[t].debt_ns += each;
            self.account.add(Place::Ours, each);
        }
    }
}
