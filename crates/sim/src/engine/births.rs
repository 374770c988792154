//! Processes and tasks come: all at the start, or so many at a time and the next when one ends, as
//! `make -jN` has it. Kinds that come after another take the places that are left there, those further on first: what
//! is linked is linked as soon as all that belongs to it is there.
//!
//! Tasks that are there from the start begin one after the other; `turn_end` of one that has not
//! begun says when. A process that comes later touches its memory first itself, in its own time.

use numaherd_model::{CpuId, CpuSet, Nanos, ProcessId, Spent, TaskId};

use super::retiming::NEVER_NS;
use super::{
    BLOCK_BYTES, BLOCK_PAGES, Block, Event, Lock, Process, Rest, Seen, Sim, Span, State, Task,
    accesses,
};
use crate::account::Place;
use crate::layout::Layout;
use crate::machine::LINE_BYTES;
use crate::rmap::Mutex;
use crate::workload::{PhaseSpec, ProcessSpec, Workload};
use crate::{SimError, initial};

/// Between two threads' starts. Guessed: the time to create one.
const START_GAP_NS: u64 = 50_000;

/// Processes of one kind that are still to come.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) spec: ProcessSpec,
    next: u32,
    ended: u32,
    /// Of those that ended, how many never began: there was no room for their memory.
    pub(super) passed_over: u32,
    /// The kind it comes after, and the first in that row, whose places it takes.
    after: Option<usize>,
    first: usize,
    /// Places that nobody takes now; only of who is first in its row.
    places: Vec<(usize, usize)>,
}

impl Queued {
    /// Of the kind that it comes after, how many have to have ended before the next comes.
    fn waits_for(&self, copies: u32) -> u32 {
        let of_each = |each: u32| (self.next + 1).saturating_mul(each).min(copies);
        self.spec.each.map_or(copies, of_each)
    }
}

impl Sim {
    /// How many processes there were.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    pub(super) fn begin_all(&mut self, workload: &Workload) -> Result<(), SimError> {
        self.place_files(workload)?;
        for (kind, spec) in workload.process.iter().enumerate() {
            let after = workload.comes_after(kind);
            let first = if after.is_some() { 0 } else { spec.copies_at_once() };
            self.queued.push(Queued {
                spec: spec.clone(),
                next: first,
                ended: 0,
                passed_over: 0,
                after,
                first: after.map_or(kind, |after| self.queued[after].first),
                places: Vec::new(),
            });
            for part in 0..first as usize {
                self.add_process((kind, part as u32), spec, (part, first as usize))?;
            }
        }
        self.left = self.tasks.len();
        self.begin_next(0);
        Ok(())
    }

    /// A task begins, and has the next of those that are there from the start begin after it.
    pub(super) fn begin(&mut self, t: usize) {
        if self.tasks[t].turn_end > 0 {
            self.begin_next(t + 1);
        }
        self.wake(t);
    }

    fn begin_next(&mut self, t: usize) {
        if let Some(task) = self.tasks.get(t).filter(|task| task.turn_end > 0) {
            self.schedule(task.turn_end, Event::Begin(t as u32));
        }
    }

    /// A process has ended: the next come, as far as there are any that may, in its place and those that were left.
    pub(super) fn begin_others(&mut self, ended: usize) {
        let (kind, part) = (self.processes[ended].kind, self.processes[ended].part);
        let first = self.queued[kind].first;
        self.queued[kind].ended += 1;
        self.queued[first].places.push(part);
        while let Some(&place) = self.queued[first].places.last()
            && let Some(next) = self.next_of(first)
        {
            self.queued[next].next += 1;
            if self.begin_another(next, place) {
                self.queued[first].places.pop();
            } else {
                self.queued[next].ended += 1;
                self.queued[next].passed_over += 1;
            }
        }
    }

    /// The kind of which the next process comes, of those in a row.
    fn next_of(&self, first: usize) -> Option<usize> {
        let may_come = |kind: &usize| {
            let queued = &self.queued[*kind];
            let is_over = |after: usize| {
                let before = &self.queued[after];
                before.ended >= queued.waits_for(before.spec.copies)
            };
            queued.first == first
                && queued.next < queued.spec.copies
                && queued.after.is_none_or(is_over)
        };
        (0..self.queued.len()).rev().find(may_come)
    }

    /// A process of a kind comes. One for whose memory there is no room is passed over, as if it had been killed:
    /// answers false then.
    fn begin_another(&mut self, kind: usize, part: (usize, usize)) -> bool {
        let spec = self.queued[kind].spec.clone();
        let copy = self.queued[kind].next - 1;
        let first = self.tasks.len();
        let free = self.free.clone();
        if self.add_process((kind, copy), &spec, part).is_err() {
            self.free = free;
            self.rest.truncate(first);
            for task in self.tasks.drain(first..) {
                self.load[task.cpu] -= 1;
            }
            return false;
        }
        for t in first..self.tasks.len() {
            self.tasks[t].turn_end = 0;
            self.left += 1;
            let begin = self.now + START_GAP_NS;
            self.schedule(begin, Event::Begin(t as u32));
        }
        true
    }

    /// What it takes to touch memory first: before the run, or in the time of the first thread.
    pub(super) fn touch_first(&mut self, spec: &ProcessSpec) {
        let huge_pages = self.options.huge_pages;
        if spec.at_once.is_none() && spec.after.is_none() {
            let initial = initial::seconds(&self.machine, spec, self.options.tie, huge_pages);
            self.run.initial_seconds = self.run.initial_seconds.max(initial);
            return;
        }
        let blocks = (spec.memory_mib << 20).div_ceil(BLOCK_BYTES);
        let faults = blocks * if huge_pages { 1 } else { BLOCK_PAGES };
        let threads = spec.threads_on(self.machine.cpus());
        let first = self.tasks.len() - threads;
        if let Some(task) = self.tasks.get_mut(first) {
            let node = self.node_of[task.cpu];
            let line_ns = self.machine.line_ns(node, node, self.machine.cpu.threads_per_core);
            let clear_ns = (blocks * BLOCK_BYTES) as f64 / LINE_BYTES * line_ns;
            let ns = (faults * self.machine.kernel.fault_ns).saturating_add(clear_ns as u64);
            let ns = ns.min(NEVER_NS);
            task.debt_ns += ns;
            self.account.add_times(Place::Clearing, ns, faults);
        }
    }

    fn add_process(
        &mut self,
        (kind, copy): (usize, u32),
        spec: &ProcessSpec,
        part: (usize, usize),
    ) -> Result<(), SimError> {
        if let Some(programs) = &spec.programs {
            return self.add_programs(kind, spec, programs);
        }
        let layout = Layout::new(&self.machine, spec, self.options.tie, part);
        let threads = spec.threads_on(self.machine.cpus());
        let process = self.processes.len();
        let slices = layout.slices();
        let mut slice_node = Vec::with_capacity(slices);
        for slice in spec.slices(threads) {
            let begins = self.or_anywhere(self.cpus_of(layout.begins(slice)));
            let may = |cpu: usize| begins.contains(CpuId(cpu as u32));
            let cpu = self.options.scheduling.fork(&self.domains, &self.load, 0, &may);
            if slice == slice_node.len() {
                slice_node.push(self.node_of[cpu]);
            }
            let allowed = self.or_anywhere(self.cpus_of(layout.thread(slice)));
            self.add_task(process, slice, cpu, allowed);
        }
        self.touch_first(spec);
        let bytes = spec.memory_mib << 20;
        let blocks_of = |bytes: f64| ((bytes / BLOCK_BYTES as f64).ceil() as usize).max(slices);
        let shared_bytes = bytes as f64 * spec.shared;
        let shared = if spec.shared > 0.0 { blocks_of(shared_bytes) } else { 0 };
        let own = blocks_of(bytes as f64 - shared_bytes);
        let count = shared + own;
        let mut blocks = Vec::with_capacity(count);
        for block in 0..count {
            let slice = block.checked_sub(shared);
            let slice = slice.map(|block| ((block + 1) * slices).div_ceil(own) - 1);
            let wanted = layout.memory(block, slice, &slice_node);
            let home = self.allocate(wanted, BLOCK_BYTES).ok_or_else(|| {
                no_room(
                    process,
                    (count, block),
                    &format!("a block of 2 for each of {slices} threads"),
                )
            })?;
            blocks.push(Block { home: home as u16, armed: false });
        }
        let mut phases = spec.phase.clone();
        for (phase, told) in phases.iter_mut().zip(&spec.phase) {
            phase.times = spec.passes(told, slices);
        }
        let lock = Lock::named("lock");
        let new = self.new_process(spec, kind, part, (blocks, phases), vec![lock]);
        let bytes = bytes as f64;
        self.processes.push(Process { bytes, shared_bytes, shared, slices, copy, ..new });
        Ok(())
    }

    /// One with these blocks, and what its threads do; nothing of it is shared.
    pub(super) fn new_process(
        &self,
        spec: &ProcessSpec,
        kind: usize,
        part: (usize, usize),
        (blocks, phases): (Vec<Block>, Vec<PhaseSpec>),
        locks: Vec<Lock>,
    ) -> Process {
        let process = self.processes.len();
        Process {
            id: ProcessId { tgid: process as u32 + 1, start: process as u64 + 1 },
            seen: vec![Seen::default(); blocks.len()],
            bytes: blocks.len() as f64 * BLOCK_BYTES as f64,
            blocks,
            shared_bytes: 0.0,
            shared: 0,
            slices: 1,
            phases,
            rounds: spec.rounds.unwrap_or(1),
            hinting_faults: spec.hinting_faults,
            scan_at: 0,
            rmap: Mutex::default(),
            waiting_at_barrier: Vec::new(),
            locks,
            script: None,
            alive: spec.threads_on(self.machine.cpus()),
            kind,
            copy: 0,
            part,
            lines: 0.0,
            lines_per_operation: spec.lines_per_operation,
        }
    }

    pub(super) fn add_task(&mut self, process: usize, slice: usize, cpu: usize, allowed: CpuSet) {
        let index = self.tasks.len();
        self.load[cpu] += 1;
        self.tasks.push(Task {
            process,
            cpu,
            vruntime: 0,
            turn_end: 0,
            phase_ns: u64::MAX,
            span: Span::default(),
            block: 0,
            phase: 0,
            pass: 0,
            move_to: None,
            cpu_ns: 0,
            debt_ns: 0,
            since: 0,
            ran_ns: 0,
            lines_left: 0.0,
            bytes: 0.0,
            place: Place::Queue,
            state: State::Asleep,
            begun: false,
            doomed: false,
            unsettled: true,
        });
        self.rest.push(Rest {
            id: TaskId { tid: index as u32 + 1, start: index as u64 + 1 },
            slice: slice as u32,
            round: 0,
            owner: allowed.clone(),
            allowed,
            home: None,
            born: self.now,
            spent: Spent::born(Nanos(self.now)),
            waited_ns: 0,
            sample_ns: accesses::EVERY_NS,
            bytes_before: 0.0,
            bytes_s: 0,
            ended: 0,
            filled: 0,
            faulted: false,
        });
        // Until it begins, this says when.
        let begin = (index as u64 + 1) * START_GAP_NS + self.start.below(START_GAP_NS);
        self.tasks[index].turn_end = begin;
    }

    /// CPUs of these nodes; all where there are none.
    pub(super) fn cpus_of(&self, nodes: Option<Vec<usize>>) -> CpuSet {
        let wanted =
            |cpu: &usize| nodes.as_ref().is_none_or(|nodes| nodes.contains(&self.node_of[*cpu]));
        (0..self.node_of.len()).filter(wanted).map(|cpu| CpuId(cpu as u32)).collect()
    }

    /// These CPUs, if one of them is there; else all that are.
    pub(super) fn or_anywhere(&self, cpus: CpuSet) -> CpuSet {
        let there = |cpu: &CpuId| !self.gone[cpu.0 as usize];
        if cpus.iter().any(|cpu| there(&cpu)) {
            return cpus;
        }
        (0..self.gone.len()).map(|cpu| CpuId(cpu as u32)).filter(there).collect()
    }
}

/// So many blocks of a process, and so many that there is room for.
pub(super) fn no_room(process: usize, (blocks, found): (usize, usize), at_least: &str) -> SimError {
    SimError::Unfit {
        problem: format!(
            "the workload's memory does not fit the machine: process {process} needs {} MiB, {at_least} at least, \
             and finds room for {}: give --size or --threads, or the machine more memory",
            (blocks as u64 * BLOCK_BYTES) >> 20,
            (found as u64 * BLOCK_BYTES) >> 20
        ),
    }
}
