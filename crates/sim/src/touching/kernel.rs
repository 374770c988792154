//! The threads of a page fault test, one event at a time: who asks for which line, who holds and who waits
//! for which lock, and who clears a page.

use std::collections::VecDeque;

use numaherd_scheduling::{Fair, Scheduling};

use super::line::{How, Line, Request, Then};
use super::queue::Queue;
use super::{AT_ONCE, FAULTS, JITTER_PERMILLE, LINES, LIST, PAGE_LINES, Stage, clear_ns};
use crate::layout::Tie;
use crate::machine::Machine;
use crate::random::Stream;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The thread enters its stage.
    Enter(usize),
    /// A line is there, asked of others or not.
    Arrived(usize, bool),
    /// The thread has cleared its page, if it was not put off since, which the number tells.
    Cleared(usize, u64),
}

pub struct Kernel<'a> {
    machine: &'a Machine,
    stages: Vec<Stage>,
    own_ns: f64,
    /// Where pages lie, and on which nodes they can.
    tie: Tie,
    homes: Vec<usize>,
    /// Node of each thread, its stage, and faults to go.
    node: Vec<usize>,
    at: Vec<usize>,
    left: Vec<u64>,
    /// Locks that each gave up and that are not free yet, since it goes on before its line is there, and
    /// whether it waits for that.
    leaving: Vec<usize>,
    stays: Vec<bool>,
    lines: Vec<Line>,
    /// Of each node's memory, requests that it is about to answer, and lines of which one waits for that.
    answering: Vec<usize>,
    waiting: Vec<VecDeque<usize>>,
    /// Who clears pages in each node's memory, with lines to go as of some time.
    clearing: Vec<Vec<(usize, f64)>>,
    as_of_ns: Vec<f64>,
    queue: Queue<What>,
    /// Of each thread's only end of clearing that counts: put off, it stands in the queue twice.
    counts: Vec<u64>,
    jitter: Stream,
}

impl<'a> Kernel<'a> {
    pub fn new(
        machine: &'a Machine,
        stages: Vec<Stage>,
        own_ns: f64,
        threads: usize,
        tie: Tie,
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
        let nodes = machine.node.len();
        let mut kernel = Kernel {
            machine,
            stages,
            own_ns,
            tie,
            homes: (0..nodes).filter(|&node| machine.node[node].is_home()).collect(),
            node,
            at: vec![0; threads],
            left: vec![FAULTS; threads],
            leaving: vec![0; threads],
            stays: vec![false; threads],
            lines: vec![Line::default(); LIST + (LINES - LIST) * nodes],
            answering: vec![0; nodes],
            waiting: vec![VecDeque::new(); nodes],
            clearing: vec![Vec::new(); nodes],
            as_of_ns: vec![0.0; nodes],
            queue: Queue::new(),
            counts: vec![0; threads],
            jitter: Stream::new(seed, "faults"),
        };
        (0..threads).for_each(|thread| kernel.queue.push(0.0, What::Enter(thread)));
        kernel
    }

    /// When each thread ended.
    pub fn run(&mut self) -> Vec<f64> {
        let mut ends = vec![0.0; self.at.len()];
        while let Some((now, what)) = self.queue.pop() {
            match what {
                What::Arrived(line, asked) => self.arrived(now, line, asked),
                What::Cleared(thread, number) if number == self.counts[thread] => {
                    self.cleared(now, thread);
                }
                What::Cleared(..) => {}
                What::Enter(thread) if self.at[thread] < self.stages.len() => {
                    self.enter(now, thread);
                }
                What::Enter(thread) => {
                    self.at[thread] = 0;
                    self.left[thread] -= 1;
                    if self.left[thread] == 0 {
                        ends[thread] = now;
                    } else {
                        self.enter(now, thread);
                    }
                }
            }
        }
        ends
    }

    fn enter(&mut self, now: f64, thread: usize) {
        let stage = self.stages[self.at[thread]];
        if stage.is_locked() && self.leaving[thread] > 0 {
            self.stays[thread] = true;
            return;
        }
        match stage {
            Stage::Own => {
                let own_ns = self.own_ns * self.jitter.around_one(JITTER_PERMILLE);
                self.next(now + own_ns, thread);
            }
            Stage::Held(ns) => self.next(now + ns, thread),
            Stage::Read(line) => self.ask(now, line, thread, false, Then::GoOn),
            Stage::Write(line) | Stage::Take(line, _) => {
                self.ask(now, line, thread, true, Then::GoOn);
            }
            Stage::Leave(line, how) => {
                if how == How::InTurn {
                    self.leaving[thread] += 1;
                    self.next(now, thread);
                }
                self.ask(now, line, thread, true, Then::Free(how));
            }
            Stage::Clear => {
                let lines = PAGE_LINES * self.jitter.around_one(JITTER_PERMILLE);
                self.clear(now, self.page(thread), |clearing| clearing.push((thread, lines)));
            }
        }
    }

    fn next(&mut self, at_ns: f64, thread: usize) {
        self.at[thread] += 1;
        self.queue.push(at_ns, What::Enter(thread));
    }

    /// Changes who clears pages in a node's memory, which changes when all of them are done.
    fn clear(&mut self, now: f64, node: usize, change: impl FnOnce(&mut Vec<(usize, f64)>)) {
        let mut clearing = std::mem::take(&mut self.clearing[node]);
        let since_ns = now - std::mem::replace(&mut self.as_of_ns[node], now);
        let count = clearing.len();
        for (thread, left) in &mut clearing {
            let cleared = since_ns / clear_ns(self.machine, self.node[*thread], node, count);
            *left = (*left - cleared).max(0.0);
        }
        change(&mut clearing);
        let count = clearing.len();
        for (thread, left) in &clearing {
            let line_ns = clear_ns(self.machine, self.node[*thread], node, count);
            self.counts[*thread] += 1;
            let what = What::Cleared(*thread, self.counts[*thread]);
            self.queue.push(now + left * line_ns, what);
        }
        self.clearing[node] = clearing;
    }

    fn cleared(&mut self, now: f64, thread: usize) {
        self.clear(now, self.page(thread), |clearing| {
            clearing.retain(|(other, _)| *other != thread)
        });
        self.next(now, thread);
    }

    /// The node on which the page lies that a thread touches now.
    fn page(&self, thread: usize) -> usize {
        let (own, homes) = (self.node[thread], self.homes.len());
        let Some(at) = self.homes.iter().position(|&home| home == own) else {
            // Nothing can lie on its own.
            let far = |&home: &usize| (self.machine.latency_ns[own][home] * 1000.0) as u64;
            return self.homes.iter().copied().min_by_key(|home| (far(home), *home)).unwrap_or(own);
        };
        let further = match self.tie {
            Tie::Free | Tie::Bind => 0,
            Tie::Inverse => (homes / 2).max(1),
            Tie::Interleave => self.left[thread] as usize,
        };
        self.homes[(at + further) % homes]
    }

    /// Asks for a line: of those that each node has, that of the page's.
    fn ask(&mut self, now: f64, line: usize, thread: usize, writes: bool, then: Then) {
        let own = self.page(thread) * (LINES - LIST);
        let line = if line < LIST { line } else { line + own };
        self.lines[line].ask(Request { thread, writes, then });
        self.answer(now, line);
    }

    /// Has the next request for a line answered, or wait for the node that its memory is of.
    fn answer(&mut self, now: f64, line: usize) {
        let home = self.home(line);
        let Some((thread, from)) = self.lines[line].next() else { return };
        if from.is_some() && self.answering[home] == AT_ONCE {
            if !self.waiting[home].contains(&line) {
                self.waiting[home].push_back(line);
            }
            return;
        }
        self.lines[line].answer();
        let to = self.node[thread];
        let ns = from.map_or(0.0, |from| self.machine.transfer_ns[to][self.node[from]]);
        self.answering[home] += usize::from(from.is_some());
        self.queue.push(now + ns, What::Arrived(line, from.is_some()));
    }

    /// The node whose memory a line is of: what is one for all is of the first thread's.
    fn home(&self, line: usize) -> usize {
        line.checked_sub(LIST).map_or(self.node[0], |line| line / (LINES - LIST))
    }

    fn arrived(&mut self, now: f64, line: usize, asked: bool) {
        let home = self.home(line);
        self.answering[home] -= usize::from(asked);
        let Some((request, mut lost)) = self.lines[line].arrived() else { return };
        let thread = request.thread;
        match request.then {
            Then::GoOn => self.has(now, line, thread),
            Then::Look => self.looks(now, line, thread),
            Then::Free(how) => {
                self.lines[line].free(how);
                if how == How::InTurn {
                    self.left_lock(now, thread);
                } else {
                    self.next(now, thread);
                }
            }
        }
        // Who waits and lost its copy looks again, all at once, in whatever order they get through.
        while !lost.is_empty() {
            let one = self.jitter.below(lost.len() as u64) as usize;
            let thread = lost.swap_remove(one);
            self.lines[line].ask(Request { thread, writes: false, then: Then::Look });
        }
        // Who waits for the node comes before who asks for the same line again.
        if let Some(next) = self.waiting[home].pop_front() {
            self.answer(now, next);
        }
        self.answer(now, line);
    }

    /// The thread has the line of its stage.
    fn has(&mut self, now: f64, line: usize, thread: usize) {
        let has = match self.stages[self.at[thread]] {
            Stage::Take(_, how) => self.lines[line].take(thread, how),
            _ => true,
        };
        if has {
            self.next(now, thread);
        }
    }

    /// The thread waits for the lock of its stage and has its line.
    fn looks(&mut self, now: f64, line: usize, thread: usize) {
        let Stage::Take(_, how) = self.stages[self.at[thread]] else { return };
        match (self.lines[line].look(thread, how), how) {
            (false, _) => {}
            (true, How::InTurn) => self.next(now, thread),
            (true, How::Reading | How::Writing) => {
                self.lines[line].ask(Request { thread, writes: true, then: Then::GoOn });
            }
        }
    }

    fn left_lock(&mut self, now: f64, thread: usize) {
        self.leaving[thread] -= 1;
        if self.leaving[thread] == 0 && std::mem::take(&mut self.stays[thread]) {
            self.queue.push(now, What::Enter(thread));
        }
    }
}
