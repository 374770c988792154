//! Which task runs on which CPU: turns, sleep, wakeups, balancing, moves.

use numaherd_model::{Cause, CpuId, Pull};

use crate::account::Place;
use crate::engine::{Sim, State, TraceEvent};

/// Rounds of load balancing after which NUMA balancing is no longer asked. Published: a domain's
/// cache_nice_tries, and two more.
const VETOED_ROUNDS: u32 = 3;
/// For so long after it ran, a task is not pulled to another node: its cache is warm. Published:
/// sched_migration_cost.
const HOT_NS: u64 = 500_000;

impl Sim {
    /// The task has come to the end of a block: it goes on, or elsewhere, or lets others.
    pub(crate) fn go_on(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        let wanted = self.tasks[t].move_to.take();
        let wanted = wanted.map(usize::from).filter(|&to| to != cpu && self.allows(t, to));
        let forced = self.tasks[t].unsettled && !self.allows(t, cpu);
        if forced || wanted.is_some() {
            let why = if wanted.is_some() { Cause::Active } else { Cause::Affinity };
            let to = wanted.unwrap_or_else(|| self.pick_allowed(t));
            self.leave_cpu(t);
            self.arrive(t, to, Some(why));
            self.dispatch(cpu);
        } else if !self.queues[cpu].is_empty() && self.now >= self.tasks[t].turn_end {
            self.give_way(t);
        } else {
            self.begin_step(t);
        }
    }

    /// The running task's turn is over: who has had the least is next.
    pub(crate) fn give_way(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        self.running[cpu] = None;
        let task = &mut self.tasks[t];
        (task.state, task.place, task.since) = (State::Waiting, Place::Queue, self.now);
        task.ran_ns = self.now;
        let vruntime = task.vruntime;
        self.queues[cpu].push(t, vruntime);
        self.dispatch(cpu);
    }

    pub(crate) fn allows(&self, t: usize, cpu: usize) -> bool {
        !self.gone[cpu] && self.rest[t].allowed.contains(CpuId(cpu as u32))
    }

    /// The CPU for a task that may not stay where it is.
    pub(crate) fn pick_allowed(&self, t: usize) -> usize {
        let may = |cpu: usize| self.allows(t, cpu);
        self.options.scheduling.fork(&self.domains, &self.load, self.tasks[t].cpu, &may)
    }

    /// A running task leaves its CPU.
    fn leave_cpu(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        self.running[cpu] = None;
        self.load[cpu] -= 1;
        self.tasks[t].ran_ns = self.now;
        let (ns, task) = (self.now, t as u32 + 1);
        self.note(TraceEvent::Stops { ns, task, cpu: cpu as u32 });
    }

    /// A task that is nowhere comes to a CPU, and runs there if it is free. Why, if that is not told elsewhere.
    fn arrive(&mut self, t: usize, to: usize, why: Option<Cause>) {
        let from = self.tasks[t].cpu;
        if self.node_of[from] != self.node_of[to] {
            self.run.task_moves += 1;
            if let Some(why) = why {
                self.note_sent(t, to, None, why);
            }
        }
        self.load[to] += 1;
        let task = &mut self.tasks[t];
        task.cpu = to;
        task.unsettled = false;
        if task.state != State::Running {
            self.account.add(task.place, self.now - task.since);
        }
        if task.state == State::Waiting {
            self.rest[t].waited_ns += self.now - task.since;
        }
        (task.state, task.place, task.since) = (State::Waiting, Place::Queue, self.now);
        // It keeps its lag, and its debt, only as far as one turn.
        let floor = self.queues[to].floor();
        let lead = task.vruntime.saturating_sub(self.queues[from].floor());
        task.vruntime = floor + lead.min(self.queues[to].turn_ns());
        self.queues[to].push(t, task.vruntime);
        self.came(t, from);
        self.dispatch(to);
    }

    /// The kernel's NUMA balancing learns of a task that is on another node than it was on that CPU.
    fn came(&mut self, t: usize, from: usize) {
        let from = self.node_of[from];
        if from != self.node_of[self.tasks[t].cpu]
            && let Some(mut balancing) = self.options.balancing.take()
        {
            balancing.moved(self.rest[t].id, self.node_id(from), self);
            self.options.balancing = Some(balancing);
        }
    }

    fn note_sent(&mut self, t: usize, to: usize, other: Option<usize>, why: Cause) {
        let number = |t: usize| t as u32 + 1;
        self.note(TraceEvent::Sent {
            ns: self.now,
            task: number(t),
            process: self.processes[self.tasks[t].process].id.tgid,
            from: self.tasks[t].cpu as u32,
            to: to as u32,
            other: other.map(number),
            why,
        });
    }

    /// The running task sleeps, or is blocked there.
    pub(crate) fn sleep(&mut self, t: usize, place: Place) {
        let cpu = self.tasks[t].cpu;
        self.leave_cpu(t);
        let task = &mut self.tasks[t];
        (task.state, task.place, task.since) = (State::Asleep, place, self.now);
        self.dispatch(cpu);
    }

    pub(crate) fn wake(&mut self, t: usize) {
        if self.tasks[t].state == State::Done {
            return;
        }
        let first = !std::mem::replace(&mut self.tasks[t].begun, true);
        let previous = self.tasks[t].cpu;
        if first {
            // Forked: its CPU was chosen, and counts it already.
            self.load[previous] -= 1;
            self.tasks[t].since = self.now;
            let to = if self.allows(t, previous) { previous } else { self.pick_allowed(t) };
            self.arrive(t, to, Some(Cause::Affinity));
            return;
        }
        let may = |cpu: usize| self.allows(t, cpu) && self.may_move(t, cpu, Pull::Busy);
        let cpu = self.options.scheduling.wake(&self.domains, &self.load, previous, &may);
        let cpu = if self.allows(t, cpu) { cpu } else { self.pick_allowed(t) };
        // It leaves its node only where nothing there is allowed.
        self.arrive(t, cpu, Some(Cause::Affinity));
    }

    /// Whether the kernel's NUMA balancing lets the scheduler take the task there.
    fn may_move(&self, t: usize, to: usize, pull: Pull) -> bool {
        let (from, to) = (self.node_of[self.tasks[t].cpu], self.node_of[to]);
        let (here, there) = (self.node_id(from), self.node_id(to));
        from == to
            || self
                .options
                .balancing
                .as_ref()
                .is_none_or(|own| own.may_move(self.rest[t].id, here, there, pull, self))
    }

    /// The next task runs if the CPU is free; an idle one pulls.
    pub(crate) fn dispatch(&mut self, cpu: usize) {
        if self.running[cpu].is_some() || self.gone[cpu] {
            return;
        }
        let next = self.queues[cpu].pop();
        let Some((t, _)) = next else {
            let from = self.options.scheduling.newidle(&self.domains, &self.load, cpu);
            if let Some(t) = from.and_then(|from| self.detach(from, cpu, Some(Pull::NewIdle))) {
                self.arrive(t, cpu, Some(Cause::IdlePull));
            }
            return;
        };
        self.running[cpu] = Some(t);
        let turn = self.queues[cpu].turn_ns();
        let task = &mut self.tasks[t];
        self.account.add(Place::Queue, self.now - task.since);
        if self.now > task.since {
            self.rest[t].waited_ns += self.now - task.since;
        }
        task.state = State::Running;
        task.turn_end = self.now + turn;
        let (ns, task) = (self.now, t as u32 + 1);
        self.note(TraceEvent::Runs { ns, task, cpu: cpu as u32 });
        self.begin_step(t);
    }

    /// Takes the last waiting task that may go to `to` out of the queue of `from`: first one that
    /// belongs there; without `pull`, any.
    fn detach(&mut self, from: usize, to: usize, pull: Option<Pull>) -> Option<usize> {
        let near = self.node_of[from] == self.node_of[to];
        let cold = |t: &usize| near || self.tasks[*t].ran_ns + HOT_NS <= self.now;
        let waiting = || self.queues[from].iter().map(|(t, _)| t).rev();
        let may = |t: &usize, pull: Pull| self.allows(*t, to) && self.may_move(*t, to, pull);
        let t = match pull {
            None => waiting().find(|t| self.allows(*t, to)),
            Some(pull) => waiting()
                .find(|t| cold(t) && may(t, Pull::Wanted))
                .or_else(|| waiting().find(|t| cold(t) && may(t, pull))),
        }?;
        self.unqueue(t);
        Some(t)
    }

    /// Takes a waiting task out of its queue.
    pub(crate) fn unqueue(&mut self, t: usize) {
        let (cpu, vruntime) = (self.tasks[t].cpu, self.tasks[t].vruntime);
        if self.queues[cpu].remove(t, vruntime) {
            self.load[cpu] -= 1;
        }
    }

    /// Sends a task to a CPU: at once if it runs or waits, as the kernel's stopper does it, and
    /// at its wakeup if it sleeps.
    pub(crate) fn send(&mut self, t: usize, to: usize, why: Option<Cause>) {
        let from = self.tasks[t].cpu;
        match self.tasks[t].state {
            State::Running | State::Waiting if from != to => {
                self.take_off(t);
                self.arrive(t, to, why);
                self.dispatch(from);
            }
            State::Asleep if self.tasks[t].begun => {
                self.tasks[t].cpu = to;
                self.came(t, from);
            }
            _ => {}
        }
    }

    /// Two tasks change places, in one step: no CPU idles meanwhile, so none pulls. Nothing happens unless
    /// each may run where the other is, as `migrate_swap_stop` has it.
    pub(crate) fn swap(&mut self, t: usize, other: usize, why: Cause) {
        let is_runnable = |t: usize| matches!(self.tasks[t].state, State::Running | State::Waiting);
        let (here, there) = (self.tasks[t].cpu, self.tasks[other].cpu);
        let may = self.allows(t, there) && self.allows(other, here);
        if here == there || !may || !is_runnable(t) || !is_runnable(other) {
            return;
        }
        self.take_off(t);
        self.take_off(other);
        if self.node_of[here] != self.node_of[there] {
            self.note_sent(t, there, Some(other), why);
        }
        self.arrive(t, there, None);
        self.arrive(other, here, None);
    }

    /// A task that runs or waits is on no CPU and in no queue.
    fn take_off(&mut self, t: usize) {
        if self.tasks[t].state == State::Running {
            self.interrupt(t);
            self.leave_cpu(t);
        } else {
            self.unqueue(t);
        }
        self.tasks[t].move_to = None;
    }

    /// One round of load balancing. Where NUMA balancing forbids a move it is not made, until that
    /// has happened in several rounds running. A queue gives its last waiting task; where only one task runs
    /// it is taken too, if it goes to an idle CPU.
    pub(crate) fn balance(&mut self) {
        let mut load = self.load.clone();
        let forced = self.vetoed_rounds > VETOED_ROUNDS;
        let mut vetoed = false;
        for (from, to) in self.options.scheduling.balance(&self.domains, &mut load) {
            let pull = if self.load[to] == 0 { Pull::Idle } else { Pull::Busy };
            if let Some(t) = self.detach(from, to, (!forced).then_some(pull)) {
                self.arrive(t, to, Some(Cause::Queues { forced }));
            } else if let Some(t) = self.running[from]
                && self.load[to] == 0
                && self.tasks[t].move_to.is_none()
                && self.allows(t, to)
            {
                if forced || self.may_move(t, to, Pull::Running) {
                    self.tasks[t].move_to = Some(to as u16);
                } else {
                    vetoed = true;
                }
            } else if self.queues[from].iter().any(|(t, _)| self.allows(t, to)) {
                vetoed = true;
            }
        }
        self.vetoed_rounds = if vetoed { self.vetoed_rounds + 1 } else { 0 };
        self.rounds += 1;
        for (from, to) in self.options.scheduling.rotate(&self.domains, &self.load, self.rounds) {
            if let Some(t) = self.detach(from, to, None) {
                self.arrive(t, to, Some(Cause::Rotation));
            }
        }
    }
}
