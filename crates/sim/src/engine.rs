//! Tasks, CPUs, memory, and the queue of events.
//!
//! Invariants: a task is at one place (running, waiting, asleep, done); `load[cpu]` counts those
//! that run or wait there; every block is on one node and `free` knows it; a running task is in
//! exactly one class of the fabric.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use numaherd_model::{CpuSet, HintingFault, Nanos, NodeId, ProcessId, Spent, TaskId, Topology};
use numaherd_scheduling::{Domains, Queue};

use crate::account::{Account, Place};
use crate::fabric::{Class, Fabric};
use crate::machine::{LINE_BYTES, Machine, Speeds};
use crate::rmap::{Moving, Mutex};
use crate::workload::{Pace, PhaseSpec, Workload};
use crate::{SimError, random::Stream};

mod accesses;
mod births;
mod caches;
mod computing;
mod course;
mod deadlock;
pub(crate) mod files;
mod locks;
pub mod mishaps;
mod programs;
mod retiming;
mod run;
mod samples;
mod steps;

use births::Queued;
use caches::Caches;
use course::Course;
use files::Files;
use locks::Lock;
pub use mishaps::Mishap;
use programs::Script;
use retiming::{NEAR, SAME};
pub use run::{Options, Run, TraceEvent};
pub use samples::Sample;
use samples::Samples;

/// Bytes of a block: a huge page.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// Base pages of a block.
pub const BLOCK_PAGES: u64 = BLOCK_BYTES / 4096;

/// By how much a block's time varies, in per mille either way. Guessed: enough that threads do
/// not march in step, as they never do.
const JITTER_PERMILLE: f64 = 10.0;
/// Between two rounds of load balancing. Published: the order of a domain's balance interval.
const BALANCE_NS: u64 = 20_000_000;
/// Between two ticks of a CPU that concern NUMA balancing. Guessed: five of 4 ms.
pub(crate) const TICK_NS: u64 = 20_000_000;

/// Where a block is. Looked up at every step: who was seen there last stands apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub home: u16,
    pub armed: bool,
}

/// The last touch of a block that the kernel saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Index + 1; 0: none was seen.
    pub task: u32,
    pub cpu: u16,
}

pub(crate) struct Process {
    pub id: ProcessId,
    pub blocks: Vec<Block>,
    /// By block.
    pub seen: Vec<Seen>,
    /// All, and those that all threads use: its first blocks.
    pub bytes: f64,
    pub shared_bytes: f64,
    pub shared: usize,
    pub slices: usize,
    pub phases: Vec<PhaseSpec>,
    pub rounds: u32,
    pub hinting_faults: bool,
    pub scan_at: usize,
    pub rmap: Mutex,
    pub waiting_at_barrier: Vec<usize>,
    pub locks: Vec<Lock>,
    /// What its threads do, where each kind of them does something else; none takes the room of one where all do
    /// the same.
    pub script: Option<Box<Script>>,
    pub alive: usize,
    /// Who comes when it ends, if anybody does; and which of its kind it is.
    pub kind: usize,
    pub copy: u32,
    /// Which of the machine's parts is its own, of how many, where processes share that out.
    pub part: (usize, usize),
    /// Lines gone over, and those of an operation.
    pub lines: f64,
    pub lines_per_operation: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Waiting,
    Asleep,
    Done,
}

/// What a task's next block needs. With many tasks each is fetched from memory at every turn: what
/// is seldom needed stands in [`Rest`], and the block of one that runs in its CPU's [`Step`].
#[repr(align(128))]
pub(crate) struct Task {
    pub process: usize,
    pub cpu: usize,
    pub vruntime: u64,
    pub turn_end: u64,
    /// When its phase began, and what it goes over.
    pub phase_ns: u64,
    pub span: Span,
    pub block: u32,
    pub phase: u32,
    pub pass: u32,
    pub move_to: Option<u16>,
    pub cpu_ns: u64,
    pub debt_ns: u64,
    /// Where it is while it does not run, and since when.
    pub since: u64,
    /// When it last left a CPU.
    pub ran_ns: u64,
    /// Lines left of a block that was interrupted; 0: none was.
    pub lines_left: f64,
    /// Bytes that memory carried for it.
    pub bytes: f64,
    pub place: Place,
    pub state: State,
    /// It has been on a CPU.
    pub begun: bool,
    /// It ends with its block.
    pub doomed: bool,
    /// Its CPU may no longer be one of those that it is allowed.
    pub unsettled: bool,
}

// Two cache lines: one more would be fetched with every block.
const _: () = assert!(size_of::<Task>() == 128);

/// The rest of a task.
pub(crate) struct Rest {
    pub id: TaskId,
    pub slice: u32,
    /// Rounds of all phases that are over.
    pub round: u32,
    pub allowed: CpuSet,
    pub owner: CpuSet,
    pub home: Option<NodeId>,
    /// When it began, and how it spent its time since.
    pub born: u64,
    pub spent: Spent,
    /// Time that it waited for a CPU, but for what it is waiting now.
    pub waited_ns: u64,
    /// CPU time until its access is sampled next, where they are.
    pub sample_ns: u64,
    /// Bytes that memory carried for it: until it was looked last, and a second.
    pub bytes_before: f64,
    pub bytes_s: u64,
    pub ended: u64,
    /// Blocks of files that it touched first.
    pub filled: u32,
    /// Whether it has faulted.
    pub faulted: bool,
}

/// The blocks that a phase goes over, and the lines of each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    first: u32,
    len: u32,
    lines: f64,
}

/// The block that a CPU's task is at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Step {
    class: Option<(Class, f64)>,
    pub begun: u64,
    /// Which it is, among the process's, or those of the phase's file.
    block: u32,
    /// It is in the CPU's last-level cache.
    is_cached: bool,
    /// How much had been brought in there when the task began it.
    brought: f64,
    lines: f64,
    /// What memory carries for each, and which.
    bytes_per_line: f64,
    home: usize,
    local: bool,
    /// Its lines come after faults, small pages that move, and what is owed.
    lines_from: u64,
    /// Of each line, with waits as they are now; the jitter comes on top.
    line_ns: f64,
    jitter: f64,
    /// When it ends, unless it is interrupted; 0 while small pages move.
    ends: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A task has come to the end of its block.
    Step(u32),
    /// A stage of small pages that a task moves is over.
    Move(u32),
    /// A CPU's timer.
    Tick(u32),
    /// A task begins, and the next one after it.
    Begin(u32),
    /// A task is no longer asleep.
    Wake(u32),
    /// A task that has a CPU comes to its next event.
    Follow(u32),
    /// All is over that a process does.
    End(u32),
    Balance,
    Sample,
    /// By its number among the options'.
    Mishap(u32),
}

/// The simulated machine and what runs on it.
pub struct Sim {
    pub(crate) machine: Machine,
    pub(crate) topology: Topology,
    pub(crate) domains: Domains,
    pub(crate) node_of: Vec<usize>,
    pub(crate) fabric: Fabric,
    speeds: Speeds,
    caches: Option<Caches>,
    files: Files,
    pub(crate) processes: Vec<Process>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) rest: Vec<Rest>,
    /// By CPU.
    pub(crate) steps: Vec<Step>,
    pub(crate) running: Vec<Option<usize>>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) load: Vec<u32>,
    /// Free bytes by node index, and those that others took since.
    pub(crate) free: Vec<u64>,
    pub(crate) taken: u64,
    /// CPUs that went away.
    pub(crate) gone: Vec<bool>,
    pub(crate) no_moves_until: u64,
    pub(crate) no_faults_until: u64,
    pub(crate) now: u64,
    /// Bytes that each node's memory carried: since it was counted last, and a second before.
    pub(crate) carried: Vec<f64>,
    pub(crate) carried_s: Vec<u64>,
    /// When traffic was counted last.
    pub(crate) traffic_ns: u64,
    pub(crate) options: Options,
    pub(crate) run: Run,
    pub(crate) faults: Vec<HintingFault>,
    pub(crate) trace: Vec<TraceEvent>,
    pub(crate) left: usize,
    /// Tasks that ended and had faulted.
    pub(crate) exited: u64,
    pub(crate) spent: Nanos,
    /// And how long that took.
    pub(crate) took: Nanos,
    pub(crate) vetoed_rounds: u32,
    /// Rounds of load balancing.
    pub(crate) rounds: u64,
    pub(crate) account: Account,
    /// Small pages that tasks move now, or will go on to move when they run next.
    pub(crate) moving: BTreeMap<usize, Moving>,
    course: Course,
    samples: Samples,
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    solved: u64,
    start: Stream,
    jitter: Stream,
    scatter: Stream,
    queued: Vec<Queued>,
    lines: (f64, f64),
    /// Rounds of load balancing in a row that found nobody who may ever go on; none are counted where that cannot be.
    stuck: Option<u32>,
}

impl Sim {
    /// The workload on the machine, about to start.
    ///
    /// # Errors
    /// [`SimError::Unfit`] if its memory does not fit, or it has too many threads there.
    pub fn new(machine: &Machine, workload: &Workload, options: Options) -> Result<Sim, SimError> {
        let cpus = machine.cpus();
        workload.check_threads(cpus)?;
        let speeds = Speeds::of(machine, options.huge_pages);
        workload.check_length(cpus, speeds.least_ns(), options.limit)?;
        workload.check_steps(cpus, &Pace::of(machine))?;
        let mut sim = Sim {
            topology: machine.measured_topology(),
            domains: machine.domains(),
            node_of: machine.node_of_cpus(),
            fabric: Fabric::new(machine),
            speeds,
            caches: Caches::new(machine),
            files: Files::none(machine.node.len()),
            processes: Vec::new(),
            tasks: Vec::new(),
            rest: Vec::new(),
            steps: vec![Step::default(); cpus],
            running: vec![None; cpus],
            queues: vec![Queue::default(); cpus],
            load: vec![0; cpus],
            free: machine.node.iter().map(|node| node.memory_mib << 20).collect(),
            taken: 0,
            gone: vec![false; cpus],
            no_moves_until: 0,
            no_faults_until: 0,
            now: 0,
            carried: vec![0.0; machine.node.len()],
            carried_s: vec![0; machine.node.len()],
            traffic_ns: 0,
            run: Run::default(),
            faults: Vec::new(),
            trace: Vec::new(),
            left: 0,
            exited: 0,
            spent: Nanos(0),
            took: Nanos(0),
            vetoed_rounds: 0,
            rounds: 0,
            account: Account::default(),
            moving: BTreeMap::new(),
            course: Course::default(),
            samples: Samples::default(),
            heap: BinaryHeap::new(),
            number: 0,
            solved: 0,
            start: Stream::new(options.seed, "start"),
            jitter: Stream::new(options.seed, "jitter"),
            scatter: Stream::new(options.seed, "scatter"),
            queued: Vec::new(),
            lines: (0.0, 0.0),
            stuck: None,
            machine: machine.clone(),
            options,
        };
        sim.begin_all(workload)?;
        sim.schedule(BALANCE_NS, Event::Balance);
        let in_order = sim.options.balancing.as_ref().map(|own| own.ticks_in_order());
        let ticks = if in_order.is_some() { cpus } else { 0 };
        for cpu in 0..ticks {
            let anywhere = sim.start.below(TICK_NS);
            let own = cpu as u64 * TICK_NS / cpus as u64;
            let after = if in_order == Some(true) { own } else { anywhere };
            sim.schedule(TICK_NS + after, Event::Tick(cpu as u32));
        }
        if sim.options.samples {
            Samples::begin(&mut sim);
        }
        sim.plan_mishaps();
        Ok(sim)
    }

    #[inline]
    pub(crate) fn schedule(&mut self, at: u64, event: Event) {
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
                Event::Step(task) if self.is_stale(task as usize) => {
                    // Interrupted, or given another end: not one of the run's.
                    self.run.events -= 1;
                    continue;
                }
                Event::Step(task) => self.end_step(task as usize),
                Event::Move(task) => self.end_stage(task as usize),
                Event::Wake(task) => self.wake(task as usize),
                Event::Begin(task) => self.begin(task as usize),
                Event::Follow(task) => self.follow_if_there(task as usize),
                Event::End(process) => self.end_process(process as usize),
                Event::Tick(cpu) => {
                    if let Some(task) = self.running[cpu as usize] {
                        self.tick(task);
                    }
                    self.schedule(at + TICK_NS, event);
                }
                Event::Sample => self.sample(),
                Event::Mishap(number) => {
                    self.suffer(self.options.mishaps[number as usize].1);
                }
                Event::Balance => {
                    if self.is_stuck() {
                        break;
                    }
                    self.balance();
                    self.schedule(at + BALANCE_NS, event);
                }
            }
            if self.options.exact {
                self.retime(SAME);
            } else if self.fabric.has_jumped() {
                self.solved = self.now;
                self.retime(NEAR);
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
        let ends = || self.rest.iter().map(|task| task.ended);
        let last = if self.left > 0 { self.now } else { ends().max().unwrap_or(0) };
        let (local, all) = self.lines;
        Run {
            seconds: Nanos(last).as_secs_f64(),
            thread_seconds: ends().map(|end| Nanos(end).as_secs_f64()).collect(),
            bytes: all * LINE_BYTES,
            operations: self.operations(),
            local_share: if all > 0.0 { local / all } else { 1.0 },
            unfinished: self.left > 0,
            ..self.run.clone()
        }
    }

    /// Where tasks have spent their time so far.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The trace so far.
    #[must_use]
    pub fn trace(&self) -> &[TraceEvent] {
        &self.trace
    }

    /// Sets the knobs of the kernel's NUMA balancing, or switches it off.
    pub fn set_scan(&mut self, periods: Option<numaherd_model::ScanPeriods>) {
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
