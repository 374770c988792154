//! Tasks, CPUs, memory, and the queue of events.
//!
//! Invariants: a task is at one place (running, waiting, asleep, done); `load[cpu]` counts those
//! that run or wait there; every block is on one node and `free` knows it; a running task is in
//! exactly one class of the fabric.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use numaherd_model::{
    Balancing, CpuId, CpuSet, HintingFault, Nanos, NodeId, ProcessId, TaskId, Topology,
};
use numaherd_scheduling::{Domains, Queue, Scheduling};
use serde::Serialize;

use crate::fabric::{Class, Fabric};
use crate::layout::{Layout, Tie};
use crate::machine::{LINE_BYTES, Machine};
use crate::workload::{PhaseSpec, Workload};
use crate::{SimError, random::Stream};

mod steps;

/// Bytes of a block: a huge page.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// Base pages of a block.
pub const BLOCK_PAGES: u64 = BLOCK_BYTES / 4096;

/// By how much a block's time varies, in per mille either way. Guessed: enough that threads do
/// not march in step, as they never do.
const JITTER_PERMILLE: f64 = 10.0;
/// Between two threads' starts. Guessed: the time to create one.
const START_GAP_NS: u64 = 50_000;
/// Between two rounds of load balancing. Published: the order of a domain's balance interval.
const BALANCE_NS: u64 = 20_000_000;
/// Between two ticks of a CPU that concern NUMA balancing. Guessed: five of 4 ms.
const TICK_NS: u64 = 20_000_000;

/// How to simulate.
pub struct Options {
    /// Of all random streams.
    pub seed: u64,
    /// How tasks and memory are tied.
    pub tie: Tie,
    /// Huge pages, or small ones.
    pub huge_pages: bool,
    /// The kernel's NUMA balancing, if it is on.
    pub balancing: Option<Box<dyn Balancing>>,
    /// Who decides where tasks run.
    pub scheduling: Box<dyn Scheduling>,
    /// The waits in the fabric are found anew at most this often.
    pub resolve_ns: u64,
    /// Keep hinting faults for whoever observes.
    pub watch_faults: bool,
    /// Keep a trace.
    pub trace: bool,
    /// The run ends here even if the workload has not.
    pub limit: Nanos,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            tie: Tie::Free,
            huge_pages: true,
            balancing: None,
            scheduling: Box::new(numaherd_scheduling::Fair),
            resolve_ns: 1_000_000,
            watch_faults: false,
            trace: false,
            limit: Nanos(100_000_000_000_000),
        }
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// From the start to the last thread's end.
    pub seconds: f64,
    /// Every thread's end.
    pub thread_seconds: Vec<f64>,
    /// Bytes gone over.
    pub bytes: f64,
    /// Lines of a task's own node ÷ all.
    pub local_share: f64,
    /// Hinting faults taken; small pages each count.
    pub faults: u64,
    /// Base pages moved by the kernel's balancing.
    pub pages_moved_by_kernel: u64,
    /// Base pages moved through `Actuate`.
    pub pages_moved_by_us: u64,
    /// Tasks moved between nodes.
    pub task_moves: u64,
    /// CPU time spent in hinting faults, page moves and scans.
    pub kernel_seconds: f64,
    /// Time tasks waited for an anon_vma mutex.
    pub rmap_wait_seconds: f64,
    /// Events handled.
    pub events: u64,
    /// The limit came first.
    pub unfinished: bool,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum TraceEvent {
    /// A task begins to run on a CPU.
    Runs {
        /// When.
        ns: u64,
        /// Who.
        task: u32,
        /// Where.
        cpu: u32,
    },
    /// A task leaves its CPU.
    Stops {
        /// When.
        ns: u64,
        /// Who.
        task: u32,
        /// From where.
        cpu: u32,
    },
    /// A block moved.
    Moved {
        /// When.
        ns: u64,
        /// Whose memory.
        process: u32,
        /// Which block.
        block: usize,
        /// From which node.
        from: u32,
        /// To which node.
        to: u32,
    },
    /// A task ended.
    Ended {
        /// When.
        ns: u64,
        /// Who.
        task: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub home: u8,
    pub armed: bool,
    /// Task index + 1 and CPU of the last touch that the kernel saw; 0: none.
    pub last_task: u32,
    pub last_cpu: u16,
}

pub(crate) struct Process {
    pub id: ProcessId,
    pub blocks: Vec<Block>,
    pub bytes: f64,
    pub slices: usize,
    pub phases: Vec<PhaseSpec>,
    pub scan_at: usize,
    pub rmap_free_ns: u64,
    pub waiting_at_barrier: Vec<usize>,
    pub alive: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Waiting,
    Asleep,
    Done,
}

pub(crate) struct Task {
    pub id: TaskId,
    pub process: usize,
    pub thread: usize,
    pub state: State,
    pub cpu: usize,
    pub allowed: CpuSet,
    pub owner: CpuSet,
    pub home: Option<NodeId>,
    pub vruntime: u64,
    pub turn_end: u64,
    pub phase: usize,
    pub pass: u32,
    pub block: usize,
    pub cpu_ns: u64,
    pub observed: (u64, u64),
    pub debt_ns: u64,
    pub move_to: Option<usize>,
    pub step: Step,
    pub ended: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Step {
    class: Option<(Class, f64)>,
    begun: u64,
    lines: f64,
    local: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A task has come to the end of its block.
    Step(usize),
    /// A CPU's timer.
    Tick(usize),
    /// A task is no longer asleep.
    Wake(usize),
    Balance,
}

/// The simulated machine and what runs on it.
pub struct Sim {
    pub(crate) machine: Machine,
    pub(crate) topology: Topology,
    pub(crate) domains: Domains,
    pub(crate) node_of: Vec<usize>,
    pub(crate) fabric: Fabric,
    pub(crate) processes: Vec<Process>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) running: Vec<Option<usize>>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) load: Vec<u32>,
    /// Free bytes by node index.
    pub(crate) free: Vec<u64>,
    pub(crate) now: u64,
    pub(crate) options: Options,
    pub(crate) run: Run,
    pub(crate) faults: Vec<HintingFault>,
    pub(crate) trace: Vec<TraceEvent>,
    pub(crate) left: usize,
    pub(crate) spent: Nanos,
    pub(crate) vetoed_rounds: u32,
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    solved: u64,
    jitter: Stream,
    lines: (f64, f64),
}

impl Sim {
    /// The workload on the machine, about to start.
    ///
    /// # Errors
    /// [`SimError::Unfit`] if its memory does not fit.
    pub fn new(machine: &Machine, workload: &Workload, options: Options) -> Result<Sim, SimError> {
        let cpus = machine.cpus();
        let mut sim = Sim {
            topology: machine.topology(),
            domains: machine.domains(),
            node_of: machine.node_of_cpus(),
            fabric: Fabric::new(machine),
            processes: Vec::new(),
            tasks: Vec::new(),
            running: vec![None; cpus],
            queues: vec![Queue::default(); cpus],
            load: vec![0; cpus],
            free: machine.node.iter().map(|node| node.memory_mib << 20).collect(),
            now: 0,
            run: Run::default(),
            faults: Vec::new(),
            trace: Vec::new(),
            left: 0,
            spent: Nanos(0),
            vetoed_rounds: 0,
            heap: BinaryHeap::new(),
            number: 0,
            solved: 0,
            jitter: Stream::new(options.seed, "jitter"),
            lines: (0.0, 0.0),
            machine: machine.clone(),
            options,
        };
        let mut start = Stream::new(sim.options.seed, "start");
        for spec in &workload.process {
            for copy in 0..spec.copies {
                sim.add_process(spec, (copy as usize, spec.copies as usize), &mut start)?;
            }
        }
        sim.left = sim.tasks.len();
        sim.schedule(BALANCE_NS, Event::Balance);
        let ticks = if sim.options.balancing.is_some() { cpus } else { 0 };
        for cpu in 0..ticks {
            let first = TICK_NS + start.below(TICK_NS);
            sim.schedule(first, Event::Tick(cpu));
        }
        Ok(sim)
    }

    fn add_process(
        &mut self,
        spec: &crate::workload::ProcessSpec,
        share: (usize, usize),
        start: &mut Stream,
    ) -> Result<(), SimError> {
        let layout = Layout::new(&self.machine, spec, self.options.tie, share);
        let threads = spec.threads_on(self.machine.cpus());
        let process = self.processes.len();
        let mut thread_node = Vec::with_capacity(threads);
        for thread in 0..threads {
            let allowed = self.cpus_of(layout.thread(thread));
            let may = |cpu: usize| allowed.contains(CpuId(cpu as u32));
            let cpu = self.options.scheduling.fork(&self.domains, &self.load, 0, &may);
            thread_node.push(self.node_of[cpu]);
            self.add_task(process, thread, cpu, allowed, start);
        }
        let bytes = spec.memory_mib << 20;
        let count = (bytes.div_ceil(BLOCK_BYTES) as usize).max(threads);
        let mut blocks = Vec::with_capacity(count);
        for block in 0..count {
            let slice = ((block + 1) * threads).div_ceil(count) - 1;
            let wanted = layout.memory(block, slice, &thread_node);
            let home = self.allocate(wanted).ok_or_else(|| SimError::Unfit {
                problem: format!(
                    "the workload's memory does not fit the machine: process {process} needs {} \
                     MiB: give --size, or the machine more memory",
                    spec.memory_mib
                ),
            })?;
            blocks.push(Block { home: home as u8, armed: false, last_task: 0, last_cpu: 0 });
        }
        self.processes.push(Process {
            id: ProcessId { tgid: process as u32 + 1, start: process as u64 + 1 },
            blocks,
            bytes: bytes as f64,
            slices: threads,
            phases: spec.phase.clone(),
            scan_at: 0,
            rmap_free_ns: 0,
            waiting_at_barrier: Vec::new(),
            alive: threads,
        });
        Ok(())
    }

    fn add_task(
        &mut self,
        process: usize,
        thread: usize,
        cpu: usize,
        allowed: CpuSet,
        start: &mut Stream,
    ) {
        let index = self.tasks.len();
        self.load[cpu] += 1;
        self.tasks.push(Task {
            id: TaskId { tid: index as u32 + 1, start: index as u64 + 1 },
            process,
            thread,
            state: State::Asleep,
            cpu,
            owner: allowed.clone(),
            allowed,
            home: None,
            vruntime: 0,
            turn_end: 0,
            phase: 0,
            pass: 0,
            block: 0,
            cpu_ns: 0,
            observed: (0, 0),
            debt_ns: 0,
            move_to: None,
            step: Step::default(),
            ended: 0,
        });
        let begin = (index as u64 + 1) * START_GAP_NS + start.below(START_GAP_NS);
        self.schedule(begin, Event::Wake(index));
    }

    /// CPUs of these nodes; all where there are none.
    fn cpus_of(&self, nodes: Option<Vec<usize>>) -> CpuSet {
        let wanted =
            |cpu: &usize| nodes.as_ref().is_none_or(|nodes| nodes.contains(&self.node_of[*cpu]));
        (0..self.node_of.len()).filter(wanted).map(|cpu| CpuId(cpu as u32)).collect()
    }

    /// Takes a block's bytes from `wanted`, or from the nearest node with room.
    fn allocate(&mut self, wanted: usize) -> Option<usize> {
        let slit = &self.machine.slit[wanted];
        let fits = |node: &usize| self.free[*node] >= BLOCK_BYTES;
        let node = (0..self.free.len()).filter(fits).min_by_key(|&node| (slit[node], node))?;
        self.free[node] -= BLOCK_BYTES;
        Some(node)
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.heap.push(Reverse((at, self.number, event)));
    }

    /// Goes on until `until`, or until every task has ended. Says whether tasks are left.
    pub fn advance(&mut self, until: Nanos) -> bool {
        while self.left > 0 {
            let Some(&Reverse((at, _, event))) = self.heap.peek() else { break };
            if at > until.0 {
                break;
            }
            self.heap.pop();
            self.now = at;
            self.run.events += 1;
            match event {
                Event::Step(task) => self.end_step(task),
                Event::Wake(task) => self.wake(task),
                Event::Tick(cpu) => {
                    if let Some(task) = self.running[cpu] {
                        self.tick(task);
                    }
                    self.schedule(at + TICK_NS, event);
                }
                Event::Balance => {
                    self.balance();
                    self.schedule(at + BALANCE_NS, event);
                }
            }
        }
        if self.left > 0 {
            self.now = self.now.max(until.0);
        }
        self.left > 0
    }

    /// Runs to the end, or to the limit.
    pub fn finish(&mut self) -> Run {
        let limit = self.options.limit;
        self.advance(limit);
        self.result()
    }

    /// What it has come to so far.
    #[must_use]
    pub fn result(&self) -> Run {
        let ends = || self.tasks.iter().map(|task| task.ended);
        let last = if self.left > 0 { self.now } else { ends().max().unwrap_or(0) };
        let (local, all) = self.lines;
        Run {
            seconds: Nanos(last).as_secs_f64(),
            thread_seconds: ends().map(|end| Nanos(end).as_secs_f64()).collect(),
            bytes: all * LINE_BYTES,
            local_share: if all > 0.0 { local / all } else { 1.0 },
            unfinished: self.left > 0,
            ..self.run.clone()
        }
    }

    /// The trace so far.
    #[must_use]
    pub fn trace(&self) -> &[TraceEvent] {
        &self.trace
    }

    /// Sets the knobs of the kernel's NUMA balancing.
    pub fn set_scan(&mut self, periods: numaherd_model::ScanPeriods) {
        self.options.balancing.iter_mut().for_each(|balancing| balancing.set_scan(periods));
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// For each CPU, the index of its node.
    #[must_use]
    pub fn node_of_cpus(&self) -> &[usize] {
        &self.node_of
    }

    /// The time.
    #[must_use]
    pub fn time(&self) -> Nanos {
        Nanos(self.now)
    }

    pub(crate) fn note(&mut self, event: TraceEvent) {
        if self.options.trace {
            self.trace.push(event);
        }
    }
}

#[cfg(test)]
mod tests;
