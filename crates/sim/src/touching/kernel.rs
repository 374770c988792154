//! The threads of a page fault test, one event at a time: who has which line, who holds and who waits for
//! which lock, and who clears a page.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use numaherd_scheduling::{Fair, Scheduling};

use super::{FAULTS, JITTER_PERMILLE, LINES, PAGE_LINES, PAGES, Stage, clear_ns};
use crate::machine::Machine;
use crate::random::Stream;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The thread enters its stage.
    Enter,
    /// It gives up the lock of its stage.
    Release,
    /// It has cleared its page.
    Cleared,
}

#[derive(Default)]
struct Lock {
    held: bool,
    last: Option<usize>,
    waiting: VecDeque<usize>,
}

pub struct Kernel<'a> {
    machine: &'a Machine,
    stages: Vec<Stage>,
    own_ns: f64,
    /// Node of each thread, its stage, and faults to go.
    node: Vec<usize>,
    at: Vec<usize>,
    left: Vec<u64>,
    lines: [(Option<usize>, f64); LINES],
    locks: Vec<Lock>,
    /// Who clears pages in each node's memory, with lines to go as of some time.
    clearing: Vec<Vec<(usize, f64)>>,
    as_of_ns: Vec<f64>,
    heap: BinaryHeap<Reverse<(u64, u64, usize, What)>>,
    number: u64,
    /// Of each thread's only event that counts: put off, it stands in the queue twice.
    counts: Vec<u64>,
    jitter: Stream,
}

impl<'a> Kernel<'a> {
    pub fn new(
        machine: &'a Machine,
        stages: Vec<Stage>,
        own_ns: f64,
        threads: usize,
        seed: u64,
    ) -> Self {
        let domains = machine.domains();
        let node_of = machine.node_of_cpus();
        let mut load = vec![0; machine.cpus()];
        let node = (0..threads)
            .map(|_| {
                let cpu = Fair.fork(&domains, &load, 0, &|_| true);
                load[cpu] += 1;
                node_of[cpu]
            })
            .collect();
        let mut kernel = Kernel {
            machine,
            stages,
            own_ns,
            node,
            at: vec![0; threads],
            left: vec![FAULTS; threads],
            lines: [(None, 0.0); LINES],
            locks: (0..PAGES + machine.node.len()).map(|_| Lock::default()).collect(),
            clearing: vec![Vec::new(); machine.node.len()],
            as_of_ns: vec![0.0; machine.node.len()],
            heap: BinaryHeap::new(),
            number: 0,
            counts: vec![0; threads],
            jitter: Stream::new(seed, "faults"),
        };
        (0..threads).for_each(|thread| kernel.schedule(0.0, thread, What::Enter));
        kernel
    }

    /// Times are whole picoseconds in the queue, so that they have an order.
    fn schedule(&mut self, at_ns: f64, thread: usize, what: What) {
        self.number += 1;
        self.counts[thread] = self.number;
        let at = (at_ns * 1000.0) as u64;
        self.heap.push(Reverse((at, self.number, thread, what)));
    }

    /// When each thread ended.
    pub fn run(&mut self) -> Vec<f64> {
        let mut ends = vec![0.0; self.at.len()];
        while let Some(Reverse((at, number, thread, what))) = self.heap.pop() {
            if number != self.counts[thread] {
                continue;
            }
            let now = at as f64 / 1000.0;
            match what {
                What::Enter => {}
                What::Release => self.release(now, thread),
                What::Cleared => self.cleared(now, thread),
            }
            if self.at[thread] == self.stages.len() {
                self.at[thread] = 0;
                self.left[thread] -= 1;
                if self.left[thread] == 0 {
                    ends[thread] = now;
                    continue;
                }
            }
            self.enter(now, thread);
        }
        ends
    }

    fn enter(&mut self, now: f64, thread: usize) {
        match self.stages[self.at[thread]] {
            Stage::Own => {
                let own_ns = self.own_ns * self.jitter.around_one(JITTER_PERMILLE);
                self.next(now + own_ns, thread);
            }
            Stage::Line(line) => self.write(now, thread, line, 1.0),
            Stage::Update(line) => self.write(now, thread, line, 2.0),
            Stage::Lock(lock, ..) => {
                let lock = self.of_node(lock, thread);
                if self.locks[lock].held {
                    self.locks[lock].waiting.push_back(thread);
                } else {
                    self.acquire(now, thread);
                }
            }
            Stage::Clear => {
                let lines = PAGE_LINES * self.jitter.around_one(JITTER_PERMILLE);
                self.clear(now, self.node[thread], |clearing| clearing.push((thread, lines)));
            }
        }
    }

    fn next(&mut self, at_ns: f64, thread: usize) {
        self.at[thread] += 1;
        self.schedule(at_ns, thread, What::Enter);
    }

    /// Changes who clears pages in a node's memory, which changes when all of them are done.
    fn clear(&mut self, now: f64, node: usize, change: impl FnOnce(&mut Vec<(usize, f64)>)) {
        let mut clearing = std::mem::take(&mut self.clearing[node]);
        let since_ns = now - std::mem::replace(&mut self.as_of_ns[node], now);
        let cleared = since_ns / clear_ns(self.machine, node, clearing.len());
        clearing.iter_mut().for_each(|(_, left)| *left = (*left - cleared).max(0.0));
        change(&mut clearing);
        let line_ns = clear_ns(self.machine, node, clearing.len());
        for (thread, left) in &clearing {
            self.schedule(now + left * line_ns, *thread, What::Cleared);
        }
        self.clearing[node] = clearing;
    }

    fn cleared(&mut self, now: f64, thread: usize) {
        self.clear(now, self.node[thread], |clearing| {
            clearing.retain(|(other, _)| *other != thread)
        });
        self.at[thread] += 1;
    }

    /// Fetches a line, so often, and has it until then.
    fn write(&mut self, now: f64, thread: usize, line: usize, times: f64) {
        let (owner, free) = self.lines[line];
        let end = now.max(free) + self.fetch_ns(owner, thread) * times;
        self.lines[line] = (Some(thread), end);
        self.next(end, thread);
    }

    /// What it takes to fetch a line that another thread wrote last.
    fn fetch_ns(&self, owner: Option<usize>, thread: usize) -> f64 {
        let from = owner.filter(|owner| *owner != thread);
        from.map_or(0.0, |from| self.machine.transfer_ns[self.node[thread]][self.node[from]])
    }

    /// The lock that is meant: of those that each node has, that of the thread's.
    fn of_node(&self, lock: usize, thread: usize) -> usize {
        if lock == PAGES { lock + self.node[thread] } else { lock }
    }

    fn acquire(&mut self, now: f64, thread: usize) {
        let Stage::Lock(lock, hold_ns, data, line) = self.stages[self.at[thread]] else { return };
        let lock = self.of_node(lock, thread);
        let fetch_ns = self.fetch_ns(self.locks[lock].last, thread) * f64::from(1 + data);
        self.locks[lock].held = true;
        self.locks[lock].last = Some(thread);
        let mut end = now + fetch_ns + hold_ns;
        if let Some(line) = line {
            let (owner, free) = self.lines[line];
            end = end.max(free + hold_ns) + self.fetch_ns(owner, thread);
            self.lines[line] = (Some(thread), end);
        }
        self.schedule(end, thread, What::Release);
    }

    fn release(&mut self, now: f64, thread: usize) {
        let Stage::Lock(lock, ..) = self.stages[self.at[thread]] else { return };
        let lock = self.of_node(lock, thread);
        self.at[thread] += 1;
        self.locks[lock].held = false;
        let others = self.locks[lock].waiting.len().saturating_sub(1) as f64;
        if let Some(next) = self.locks[lock].waiting.pop_front() {
            // Back to who gives it up, from those that look at it, and to half of these before the next.
            let ns = self.fetch_ns(Some(thread), next) * (1.0 + others / 2.0);
            self.acquire(now + ns, next);
        }
    }
}
