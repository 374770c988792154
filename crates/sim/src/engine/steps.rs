//! A task's way through its work: block by block, pass by pass, phase by phase.

use numaherd_model::places::Pair;

use super::retiming::NEVER_NS;
use super::{BLOCK_BYTES, Event, JITTER_PERMILLE, Sim, Span, State, Step, TraceEvent};
use crate::account::Place;
use crate::machine::{How, LINE_BYTES};
use crate::workload::Part;

/// The lock of a process under which passes are made, where a phase has it so.
const PASSES: usize = 0;

impl Span {
    /// Some blocks of so many bytes together, or the part of them that is told.
    pub(super) fn of(
        mut first: usize,
        mut end: usize,
        mut bytes: f64,
        range: Option<Pair<f64>>,
    ) -> Span {
        if let Some(Pair(from, to)) = range {
            let at = |part: f64| first + (part * (end - first) as f64).round() as usize;
            let begin = at(from).min(end - 1);
            (first, end, bytes) = (begin, at(to).max(begin + 1), bytes * (to - from));
        }
        let len = end - first;
        Span { first: first as u32, len: len as u32, lines: bytes / len as f64 / LINE_BYTES }
    }
}

impl Step {
    /// What its lines take with waits as they are.
    fn lines_ns(&self) -> u64 {
        ((self.lines * self.line_ns * self.jitter) as u64).clamp(1, NEVER_NS)
    }
}

impl Sim {
    /// What the task's phase goes over, from now on.
    fn begin_phase(&mut self, t: usize) {
        let task = &self.tasks[t];
        let process = &self.processes[task.process];
        let rest = &self.rest[t];
        let (count, slices) = (process.blocks.len(), process.slices);
        // Equal parts of some blocks.
        let part = |first: usize, count: usize, bytes: f64, index: usize| {
            let (from, to) = (index * count / slices, (index + 1) * count / slices);
            (first + from, first + to, bytes / slices as f64)
        };
        let shared = process.shared;
        let slice = |slice: u32| {
            let own = process.bytes - process.shared_bytes;
            part(shared, count - shared, own, slice as usize % slices)
        };
        let phase = &process.phases[task.phase as usize];
        let (first, end, bytes) = match phase.memory {
            Part::All => (0, count, process.bytes),
            Part::File => self.part_of_file(t, phase),
            Part::Slice => slice(rest.slice),
            Part::NextSlice => slice(rest.slice + 1),
            Part::SharedPart => {
                part(0, shared, process.shared_bytes, (rest.slice + rest.round) as usize % slices)
            }
            // Only who has events of its own does that, and never begins a phase here.
            Part::Nothing => (0, 1, 0.0),
        };
        let task = &mut self.tasks[t];
        task.span = Span::of(first, end, bytes, phase.range);
        task.phase_ns = self.now;
    }

    /// The running task goes on with its next block.
    pub(crate) fn begin_step(&mut self, t: usize) {
        if self.tasks[t].phase_ns == u64::MAX {
            if self.processes[self.tasks[t].process].script.is_some() {
                self.follow_next(t);
                return;
            }
            self.begin_phase(t);
        }
        if self.tasks[t].block == 0 && !self.may_begin_pass(t) {
            self.sleep(t, Place::Lock);
            return;
        }
        let task = &mut self.tasks[t];
        let (p, cpu, span) = (task.process, task.cpu, task.span);
        if self.processes[p].phases[task.phase as usize].memory == Part::Nothing {
            self.compute(t);
            return;
        }
        let mut cost_ns = std::mem::take(&mut task.debt_ns);
        let resumed = task.lines_left > 0.0;
        let mut lines = if resumed { std::mem::take(&mut task.lines_left) } else { span.lines };
        let phase = &self.processes[p].phases[task.phase as usize];
        let (scattered, writes, compute_ns) = (phase.scattered, phase.writes, phase.compute_ns);
        let (work, file) = (phase.work, phase.of_file());
        let at =
            if scattered { self.scatter.below(u64::from(span.len)) as u32 } else { task.block };
        let b = (span.first + at) as usize;
        // A move that was interrupted goes on first.
        let mut moving = if resumed { self.moving.remove(&t) } else { None };
        let from = self.node_of[cpu];
        let home = match file {
            None => {
                if moving.is_none() && self.processes[p].blocks[b].armed {
                    let (fault_ns, small) = self.fault(t, b);
                    cost_ns += fault_ns;
                    moving = small;
                }
                usize::from(self.processes[p].blocks[b].home)
            }
            Some(file) => {
                let found = self.come_to(t, file, b);
                if found.is_none() {
                    lines = 0.0;
                    self.end_for_room(t, file);
                }
                cost_ns += found.map_or(0, |(_, ns)| ns);
                found.map_or(from, |(home, _)| home)
            }
        };
        let owner = self.owner(p, file);
        let brought = self.brought(cpu);
        let is_cached = !scattered && self.is_cached(cpu, owner, b, brought);
        if writes && !scattered {
            self.take_from_others(cpu, owner, b);
        }
        let how = || How { writes, busy: self.busy_threads(cpu), work };
        let line_ns = match (scattered, is_cached) {
            // The kernel has all memory in huge pages.
            (true, _) if file.is_some() => self.machine.miss_ns(from, home, true),
            (true, _) => self.speeds.miss_ns(from, home),
            (_, true) => self.speeds.cached_ns(how()),
            (_, false) => self.speeds.line_ns(from, home, how()),
        };
        let alone_ns = line_ns + compute_ns;
        let class =
            if is_cached { self.fabric.cached() } else { self.fabric.class(from, home, writes) };
        self.fabric.enter(class, alone_ns);
        if self.now >= self.solved + self.options.resolve_ns {
            self.fabric.solve();
            self.solved = self.now;
        }
        let jitter = self.jitter.around_one(JITTER_PERMILLE);
        let line_ns = alone_ns + self.fabric.wait_ns(class);
        self.fabric.flow(class, line_ns);
        let begun = self.now;
        let lines_from = if moving.is_some() { u64::MAX } else { begun + cost_ns };
        let (class, local) = (Some((class, alone_ns)), from == home);
        // A written line is read first, where stores fetch.
        let times = match (is_cached, writes && self.machine.stores_fetch) {
            (true, _) => 0.0,
            (_, false) => 1.0,
            (_, true) => 2.0,
        };
        let bytes_per_line = LINE_BYTES * times;
        self.steps[cpu] = Step {
            class,
            begun,
            block: b as u32,
            is_cached,
            brought: brought - (span.lines - lines) * LINE_BYTES,
            lines,
            bytes_per_line,
            home,
            local,
            lines_from,
            line_ns,
            jitter,
            ends: 0,
        };
        let work_ns = self.steps[cpu].lines_ns();
        match moving {
            None => self.schedule_end(t, lines_from + work_ns),
            Some(moving) => self.begin_move(t, moving, cost_ns),
        }
    }

    /// Whether it has the lock that the phase's passes need; if not, it waits for it.
    fn may_begin_pass(&mut self, t: usize) -> bool {
        let task = &self.tasks[t];
        let process = &mut self.processes[task.process];
        if !process.phases[task.phase as usize].lock || process.locks[PASSES].is_held_by(t) {
            return true;
        }
        process.locks[PASSES].ask(t, self.now)
    }

    /// How many threads of the CPU's core are busy, with the one that is about to be.
    pub(super) fn busy_threads(&self, cpu: usize) -> u32 {
        let threads = self.machine.cpu.threads_per_core as usize;
        let first = cpu / threads * threads;
        let others = (first..first + threads).filter(|&other| other != cpu);
        1 + others.filter(|&other| self.running[other].is_some()).count() as u32
    }

    /// The task's small pages have moved: its lines come.
    pub(crate) fn begin_lines(&mut self, t: usize) {
        let step = &mut self.steps[self.tasks[t].cpu];
        step.lines_from = self.now;
        let work_ns = step.lines_ns();
        self.schedule_end(t, self.now + work_ns);
    }

    /// The task leaves off in the middle of its block: what is left of it, it does when it runs
    /// next.
    pub(crate) fn interrupt(&mut self, t: usize) {
        let step = std::mem::take(&mut self.steps[self.tasks[t].cpu]);
        if self.tasks[t].phase_ns == u64::MAX {
            // Between two events: it comes to the next where it goes.
            return;
        }
        let left = if self.pause_move(t) {
            step.lines
        } else {
            self.tasks[t].debt_ns += step.lines_from.saturating_sub(self.now);
            let left_ns = step.ends - step.lines_from.max(self.now);
            // One that is about to end still has to: 0 would be a new block.
            let left = left_ns as f64 / (step.line_ns * step.jitter);
            left.max(f64::MIN_POSITIVE).min(step.lines)
        };
        self.tasks[t].lines_left = left;
        self.count(t, Step { lines: step.lines - left, ..step });
    }

    /// Counts lines and time of a step.
    fn count(&mut self, t: usize, step: Step) {
        let Some((class, alone_ns)) = step.class else {
            self.count_computing(t, step);
            return;
        };
        self.fabric.leave(class, alone_ns);
        self.fabric.flow(class, -step.line_ns);
        self.fabric.carry(class, step.lines);
        let work_ns = self.now.saturating_sub(step.lines_from);
        let alone_ns = (step.lines * alone_ns * step.jitter).ceil() as u64;
        let computing_ns = alone_ns.min(work_ns);
        if work_ns > 0 {
            self.account.add(Place::Computing, computing_ns);
        }
        if work_ns > computing_ns {
            self.account.add(Place::Full, work_ns - computing_ns);
        }
        if !step.is_cached {
            self.bring(self.tasks[t].cpu, step.lines);
        }
        self.lines.1 += step.lines;
        self.lines.0 += if step.local { step.lines } else { 0.0 };
        let bytes = step.lines * step.bytes_per_line;
        self.carried[step.home] += bytes;
        let ran = self.now - step.begun;
        let task = &mut self.tasks[t];
        task.bytes += bytes;
        task.cpu_ns += ran;
        task.vruntime += ran;
        let p = task.process;
        self.processes[p].lines += step.lines;
        self.note_done(p, step.lines, step.lines_from);
        if self.is_sampled(p) {
            self.sample_access(t, step.block as usize, ran);
        }
    }

    pub(super) fn end_step(&mut self, t: usize) {
        let step = std::mem::take(&mut self.steps[self.tasks[t].cpu]);
        self.count(t, step);
        let p = self.tasks[t].process;
        let phase = &self.processes[p].phases[self.tasks[t].phase as usize];
        if !phase.scattered && step.lines > 0.0 {
            let writes = phase.writes;
            let owner = self.owner(p, phase.of_file());
            self.keep(self.tasks[t].cpu, owner, step.block as usize, step.brought, writes);
        }
        let task = &mut self.tasks[t];
        let seconds = self.processes[p].phases[task.phase as usize].seconds;
        let over =
            seconds.is_some_and(|seconds| (self.now - task.phase_ns) as f64 >= seconds * 1e9);
        task.block += 1;
        if task.doomed {
            self.end_task(t);
        } else if task.block == task.span.len || over {
            task.block = 0;
            self.end_pass(t, over);
        } else {
            self.go_on(t);
        }
    }

    fn end_pass(&mut self, t: usize, over: bool) {
        if self.processes[self.tasks[t].process].script.is_some() {
            self.end_work(t, over);
            return;
        }
        self.release_lock(t, PASSES);
        let task = &mut self.tasks[t];
        let process = &mut self.processes[task.process];
        let phase = &process.phases[task.phase as usize];
        let sleep_ns = (phase.sleep_ms * 1e6) as u64;
        let barrier = phase.barrier;
        let timed = phase.seconds.is_some();
        task.pass += u32::from(!timed);
        let phase_over = over || !timed && task.pass == phase.times;
        if phase_over {
            task.pass = 0;
            task.phase += 1;
            task.phase_ns = u64::MAX;
        }
        if task.phase as usize == process.phases.len() && self.rest[t].round + 1 < process.rounds {
            self.rest[t].round += 1;
            task.phase = 0;
        }
        if task.phase as usize == process.phases.len() {
            self.end_task(t);
        } else if phase_over && barrier {
            self.wait_at_barrier(t, sleep_ns);
        } else if sleep_ns > 0 {
            self.sleep(t, Place::Sleeping);
            self.schedule(self.now + sleep_ns, Event::Wake(t as u32));
        } else {
            self.go_on(t);
        }
    }

    fn wait_at_barrier(&mut self, t: usize, sleep_ns: u64) {
        let p = self.tasks[t].process;
        self.sleep(t, Place::Barrier);
        self.processes[p].waiting_at_barrier.push(t);
        self.open_barrier(p, sleep_ns);
    }

    /// Lets everybody go once all that are alive have come.
    fn open_barrier(&mut self, p: usize, sleep_ns: u64) {
        let process = &mut self.processes[p];
        if process.waiting_at_barrier.len() < process.alive {
            return;
        }
        for waiting in std::mem::take(&mut process.waiting_at_barrier) {
            self.schedule(self.now + sleep_ns, Event::Wake(waiting as u32));
        }
    }

    pub(super) fn end_task(&mut self, t: usize) {
        self.sleep(t, Place::Sleeping);
        self.end_idle_task(t);
    }

    /// A task that is on no CPU and in no queue ends.
    pub(super) fn end_idle_task(&mut self, t: usize) {
        self.release_locks(t);
        self.tasks[t].state = State::Done;
        self.rest[t].ended = self.now;
        self.exited += u64::from(self.rest[t].faulted);
        self.left -= 1;
        let (ns, task) = (self.now, t as u32 + 1);
        self.note(TraceEvent::Ended { ns, task });
        if let Some(balancing) = &mut self.options.balancing {
            balancing.task_ended(self.rest[t].id);
        }
        let p = self.tasks[t].process;
        self.processes[p].alive -= 1;
        if self.processes[p].alive == 0 {
            self.forget(p);
            for block in std::mem::take(&mut self.processes[p].blocks) {
                self.free[usize::from(block.home)] += BLOCK_BYTES;
            }
            if let Some(mut balancing) = self.options.balancing.take() {
                balancing.process_ended(self.processes[p].id, self);
                self.options.balancing = Some(balancing);
            }
            self.begin_others(p);
        } else if !self.processes[p].waiting_at_barrier.is_empty() {
            self.open_barrier(p, 0);
        }
    }
}
