//! Threads of one process that each do something of their own: a thread's way from event to event.
//!
//! What takes CPU time is a phase of the process (`Process::phases`), which the engine goes through as any other, block by
//! block; this says what comes next. A thread that has a CPU and nothing to do on it (`Task::phase_ns` has no time) comes
//! to its next event at once, in an event of the queue of its own: a crowd that wakes together is no deep recursion.
//!
//! Not modelled: that waking up, locks and timers take CPU time.

use std::collections::{BTreeSet, VecDeque};

use numaherd_model::{CpuId, CpuSet, Nanos};

use super::{BLOCK_BYTES, Block, Event, Lock, Process, Sim, Span, State, Step, births};
use crate::SimError;
use crate::account::Place;
use crate::layout::{Layout, Users};
use crate::workload::programs::{CHUNK_NS, Programs, TURN_NS, TaskEvent, computing};
use crate::workload::{Part, ProcessSpec};

/// What the threads of a process do.
pub(crate) struct Script {
    pub programs: Programs,
    /// The first of its tasks: the others follow.
    first: usize,
    threads: Vec<Thread>,
    memory: Vec<Memory>,
    /// Who waits at each condition, with the lock that it has to have when it goes on.
    pub conditions: Vec<VecDeque<(usize, Option<usize>)>>,
    /// How many each barrier waits for, and who has come.
    pub barriers: Vec<(usize, Vec<usize>)>,
    /// When each timer went off last, of those that all threads share.
    timers: Vec<Option<u64>>,
    /// Turns of phases that are over.
    pub turns: u64,
}

/// Where a thread is.
struct Thread {
    task: usize,
    /// Where it may run, unless something says otherwise.
    cpus: CpuSet,
    loops: u32,
    phase: usize,
    turn: u32,
    event: usize,
    /// Its timers' beginning, once it has begun.
    zero_ns: Option<u64>,
    turn_ns: u64,
    /// When each timer of its own went off last.
    timers: Vec<Option<u64>>,
}

/// Blocks that some threads go over.
struct Memory {
    first: usize,
    count: usize,
    bytes: f64,
    /// Who has a slice, ascending.
    sharers: Vec<usize>,
}

impl Memory {
    /// Slice `index` of `slices`.
    fn slice(&self, index: usize) -> (usize, usize, f64) {
        let slices = self.sharers.len();
        let (from, to) = (index * self.count / slices, (index + 1) * self.count / slices);
        (self.first + from, self.first + to, self.bytes / slices as f64)
    }
}

impl Script {
    /// A task waits at nothing any more.
    pub(super) fn forget(&mut self, t: usize) {
        self.conditions.iter_mut().for_each(|waiting| waiting.retain(|(other, _)| *other != t));
        self.barriers.iter_mut().for_each(|(_, waiting)| waiting.retain(|other| *other != t));
    }
}

/// What a thread comes to.
enum Next {
    /// It does this, on its CPU.
    Work(usize),
    /// It leaves its CPU, and wakes then, if nobody wakes it.
    Sleep(Place, Option<u64>),
    /// Others may run first.
    GiveWay,
    /// It may no longer run where it is.
    Elsewhere,
    End,
}

impl Sim {
    pub(super) fn add_programs(
        &mut self,
        kind: usize,
        spec: &ProcessSpec,
        programs: &Programs,
    ) -> Result<(), SimError> {
        programs.check_cpus(self.machine.cpus())?;
        let machine = self.machine.clone();
        let layout = Layout::new(&machine, spec, self.options.tie, (0, 1));
        let (process, first) = (self.processes.len(), self.tasks.len());
        let mut threads = Vec::new();
        let mut thread_node = Vec::new();
        for (number, task) in programs.kinds().enumerate() {
            let told = &programs.tasks[task];
            let begins = told.phases[0].cpus.as_ref().or(told.cpus.as_ref());
            let tied = layout.thread(number);
            let cpus = self.or_anywhere(self.cpus_of(tied));
            let begins = begins.cloned().unwrap_or_else(|| {
                let begins = layout.begins(number);
                self.or_anywhere(self.cpus_of(begins))
            });
            let may = |cpu: usize| begins.contains(CpuId(cpu as u32));
            let cpu = self.options.scheduling.fork(&self.domains, &self.load, 0, &may);
            thread_node.push(self.node_of[cpu]);
            let allowed = told.phases[0].cpus.as_ref().or(told.cpus.as_ref()).unwrap_or(&cpus);
            self.add_task(process, number, cpu, allowed.clone());
            let timers = vec![None; programs.timers.len()];
            let (turn, event) = (0, 0);
            let thread = Thread {
                task,
                cpus,
                loops: 0,
                phase: 0,
                turn,
                event,
                zero_ns: None,
                turn_ns: 0,
                timers,
            };
            threads.push(thread);
        }
        self.touch_first(spec);
        let mut blocks = Vec::new();
        let mut memory = Vec::new();
        for (number, told) in programs.memory.iter().enumerate() {
            let (users, sharers) = (programs.users(number), programs.sharers(number));
            let bytes = if users.is_empty() { 0 } else { programs.bytes_of(number, sharers.len()) };
            let count = (bytes.div_ceil(BLOCK_BYTES) as usize).max(sharers.len());
            let is_sliced = programs.is_sliced(number);
            let nodes: BTreeSet<usize> = users.iter().map(|&user| thread_node[user]).collect();
            let nodes: Vec<usize> = nodes.into_iter().collect();
            for block in 0..count {
                let owner = sharers[((block + 1) * sharers.len()).div_ceil(count) - 1];
                let with = Users {
                    owner: thread_node[owner],
                    first: thread_node[users[0]],
                    nodes: &nodes,
                    is_sliced,
                    start: told.start,
                };
                let wanted = layout.memory_of(block, &with);
                let home = self.allocate(wanted, BLOCK_BYTES).ok_or_else(|| {
                    let all = (blocks.len() + count - block, blocks.len());
                    births::no_room(
                        process,
                        all,
                        &format!("a block of 2 for each user of {}", told.name),
                    )
                })?;
                blocks.push(Block { home: home as u16, armed: false });
            }
            memory.push(Memory {
                first: blocks.len() - count,
                count,
                bytes: bytes as f64,
                sharers,
            });
        }
        let idle = computing(Nanos(TURN_NS), false);
        let phases = programs.work.iter().map(|work| work.phase.clone()).chain([idle]).collect();
        let locks = programs.locks.iter().map(|name| Lock::named(name.clone())).collect();
        let new = self.new_process(spec, kind, (0, 1), (blocks, phases), locks);
        match programs.duration {
            Some(duration) => self.schedule(duration.0, Event::End(process as u32)),
            None => self.stuck = Some(0),
        }
        let script = Script {
            first,
            threads,
            memory,
            conditions: vec![VecDeque::new(); programs.conditions.len()],
            barriers: programs.parties().into_iter().map(|all| (all, Vec::new())).collect(),
            timers: vec![None; programs.timers.len()],
            turns: 0,
            programs: programs.clone(),
        };
        self.processes.push(Process { script: Some(Box::new(script)), ..new });
        Ok(())
    }

    /// The running task comes to its next event, at once.
    #[inline(never)]
    pub(super) fn follow_next(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        self.steps[cpu] =
            Step { begun: self.now, lines_from: self.now, ends: self.now, ..Step::default() };
        self.schedule(self.now, Event::Follow(t as u32));
    }

    /// Unless it is no longer there, or has come to it already.
    pub(super) fn follow_if_there(&mut self, t: usize) {
        if !self.is_stale(t) && self.tasks[t].phase_ns == u64::MAX {
            self.follow(t);
        }
    }

    /// The running task goes from event to event, up to one that takes time.
    fn follow(&mut self, t: usize) {
        if self.tasks[t].doomed {
            self.end_task(t);
            return;
        }
        let p = self.tasks[t].process;
        // Apart, while it changes; whoever comes to run below has to find it there again.
        let Some(mut script) = self.processes[p].script.take() else { return };
        let next = self.next_event(&mut script, t);
        if let Next::Work(work) = next {
            self.begin_work(&script, t, work);
        }
        self.processes[p].script = Some(script);
        match next {
            Next::Work(_) | Next::Elsewhere => self.go_on(t),
            Next::Sleep(place, wakes) => {
                self.sleep(t, place);
                if let Some(at) = wakes {
                    self.schedule(at, Event::Wake(t as u32));
                }
            }
            Next::GiveWay => self.give_way(t),
            Next::End => self.end_task(t),
        }
    }

    fn next_event(&mut self, script: &mut Script, t: usize) -> Next {
        let now = self.now;
        loop {
            let thread = &mut script.threads[t - script.first];
            let task = &script.programs.tasks[thread.task];
            if thread.zero_ns.is_none() {
                let zero_ns = now + task.delay.0;
                (thread.zero_ns, thread.turn_ns) = (Some(zero_ns), zero_ns);
                if task.delay.0 > 0 {
                    return Next::Sleep(Place::Sleeping, Some(zero_ns));
                }
            }
            let phase = &task.phases[thread.phase];
            let told = phase.cpus.as_ref().or(task.cpus.as_ref()).unwrap_or(&thread.cpus);
            if thread.event == 0 && self.rest[t].owner != *told {
                self.rest[t].owner = told.clone();
                self.rest[t].allowed = self.or_anywhere(told.clone());
                self.tasks[t].unsettled = true;
                return Next::Elsewhere;
            }
            let Some(&event) = phase.events.get(thread.event) else {
                thread.event = 0;
                thread.turn += 1;
                script.turns += 1;
                self.note_turn();
                if phase.loops == Some(thread.turn) {
                    (thread.turn, thread.phase) = (0, thread.phase + 1);
                }
                if thread.phase == task.phases.len() {
                    (thread.phase, thread.loops) = (0, thread.loops.wrapping_add(1));
                    if task.loops == Some(thread.loops) {
                        return Next::End;
                    }
                }
                let begun = std::mem::replace(&mut thread.turn_ns, now);
                if now.saturating_sub(begun) < TURN_NS {
                    thread.turn_ns += TURN_NS;
                    return Next::Work(script.programs.work.len());
                }
                continue;
            };
            thread.event += 1;
            if let Some(next) = self.meet(script, t, event) {
                return next;
            }
        }
    }

    /// A running thread comes to this event. Answers what it does then, if that takes time.
    fn meet(&mut self, script: &mut Script, t: usize, event: TaskEvent) -> Option<Next> {
        let p = self.tasks[t].process;
        match event {
            TaskEvent::Work(work) => Some(Next::Work(work)),
            TaskEvent::Sleep(Nanos(0)) => None,
            TaskEvent::Sleep(time) => Some(Next::Sleep(Place::Sleeping, Some(self.now + time.0))),
            TaskEvent::Timer(timer, period) => self.set_timer(script, t, timer, period),
            TaskEvent::Lock(lock) => {
                let has_it = self.processes[p].locks[lock].ask(t, self.now);
                (!has_it).then_some(Next::Sleep(Place::Lock, None))
            }
            TaskEvent::Unlock(lock) => {
                self.release_lock(t, lock);
                None
            }
            TaskEvent::Wait { condition, lock } => {
                // As it should be called, it has the lock; else it does without, before and after.
                let has_it = self.processes[p].locks[lock].is_held_by(t);
                self.release_lock(t, lock);
                script.conditions[condition].push_back((t, has_it.then_some(lock)));
                Some(Next::Sleep(Place::Condition, None))
            }
            TaskEvent::Sync { condition, lock } => {
                self.meet(script, t, TaskEvent::Signal(condition));
                self.meet(script, t, TaskEvent::Wait { condition, lock })
            }
            TaskEvent::Suspend(condition) => {
                script.conditions[condition].push_back((t, None));
                Some(Next::Sleep(Place::Condition, None))
            }
            TaskEvent::Signal(condition) => {
                let first = script.conditions[condition].pop_front();
                first.into_iter().for_each(|waiting| self.let_go(p, waiting));
                None
            }
            TaskEvent::Broadcast(condition) => {
                let all = std::mem::take(&mut script.conditions[condition]);
                all.into_iter().for_each(|waiting| self.let_go(p, waiting));
                None
            }
            TaskEvent::Barrier(barrier) => {
                let (all, waiting) = &mut script.barriers[barrier];
                if waiting.len() + 1 < *all {
                    waiting.push(t);
                    return Some(Next::Sleep(Place::Barrier, None));
                }
                for waiting in std::mem::take(waiting) {
                    self.schedule(self.now, Event::Wake(waiting as u32));
                }
                None
            }
            TaskEvent::Yield => {
                let others = !self.queues[self.tasks[t].cpu].is_empty();
                others.then_some(Next::GiveWay)
            }
        }
    }

    /// Who waited at a condition goes on, as soon as it has the lock that goes with it.
    fn let_go(&mut self, p: usize, (t, lock): (usize, Option<usize>)) {
        if lock.is_none_or(|lock| self.processes[p].locks[lock].ask(t, self.now)) {
            self.schedule(self.now, Event::Wake(t as u32));
        }
    }

    /// A timer goes off a period after its last time. One that is over already makes nobody wait: the next counts from
    /// now, or, where it is absolute, from when it should have been.
    fn set_timer(
        &mut self,
        script: &mut Script,
        t: usize,
        timer: usize,
        period: Nanos,
    ) -> Option<Next> {
        let told = &script.programs.timers[timer];
        let thread = &mut script.threads[t - script.first];
        let last = if told.own { &mut thread.timers[timer] } else { &mut script.timers[timer] };
        let zero_ns = thread.zero_ns.unwrap_or(self.now);
        let next = last.unwrap_or(zero_ns) + period.0;
        let missed = next <= self.now;
        *last = Some(if missed && !told.absolute { self.now } else { next });
        (!missed).then_some(Next::Sleep(Place::Sleeping, Some(next)))
    }

    /// What a thread's work goes over, from now on.
    fn begin_work(&mut self, script: &Script, t: usize, work: usize) {
        let phase = &self.processes[self.tasks[t].process].phases[work];
        let memory = script.programs.work.get(work).and_then(|work| work.memory);
        let span = match (memory, phase.seconds) {
            (None, None) => {
                let len = (phase.compute_ns / CHUNK_NS as f64).ceil().max(1.0);
                Span { first: 0, len: len as u32, lines: phase.compute_ns / len }
            }
            (None, Some(_)) => Span { first: 0, len: u32::MAX, lines: CHUNK_NS as f64 },
            (Some(memory), _) => {
                let memory = &script.memory[memory];
                let own = memory.sharers.binary_search(&(t - script.first)).unwrap_or(0);
                let (first, end, bytes) = match phase.memory {
                    Part::Slice => memory.slice(own),
                    Part::NextSlice => memory.slice((own + 1) % memory.sharers.len()),
                    _ => (memory.first, memory.first + memory.count, memory.bytes),
                };
                Span::of(first, end, bytes, phase.range)
            }
        };
        let task = &mut self.tasks[t];
        (task.span, task.phase, task.pass, task.block) = (span, work as u32, 0, 0);
        task.phase_ns = self.now;
    }

    /// A thread has come to the end of a pass.
    #[inline(never)]
    pub(super) fn end_work(&mut self, t: usize, over: bool) {
        let task = &mut self.tasks[t];
        let phase = &self.processes[task.process].phases[task.phase as usize];
        task.pass += 1;
        if over || phase.seconds.is_none() && task.pass == phase.times {
            task.phase_ns = u64::MAX;
            self.follow(t);
        } else {
            self.go_on(t);
        }
    }

    /// The time of a process is up: all its tasks end, wherever they are.
    pub(super) fn end_process(&mut self, p: usize) {
        for t in 0..self.tasks.len() {
            if self.tasks[t].process != p || self.tasks[t].state == State::Done {
                continue;
            }
            let task = &self.tasks[t];
            if task.state == State::Running {
                self.interrupt(t);
                self.moving.remove(&t);
                self.end_task(t);
                continue;
            }
            if task.begun {
                self.account.add(task.place, self.now - task.since);
            }
            self.vanish(t);
        }
    }
}

#[cfg(test)]
mod tests;
