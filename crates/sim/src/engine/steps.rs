//! A task's way through its work: block by block, pass by pass, phase by phase.

use super::{BLOCK_BYTES, Event, JITTER_PERMILLE, Sim, State, Step, Task, TraceEvent};
use crate::machine::LINE_BYTES;
use crate::workload::Part;

impl Sim {
    /// The blocks that the task's phase goes over, and the bytes that each stands for.
    fn range(&self, task: &Task) -> (std::ops::Range<usize>, f64) {
        let process = &self.processes[task.process];
        let count = process.blocks.len();
        match process.phases[task.phase].memory {
            Part::All => (0..count, process.bytes / count as f64),
            Part::Slice => {
                let from = task.thread * count / process.slices;
                let to = (task.thread + 1) * count / process.slices;
                (from..to, process.bytes / process.slices as f64 / (to - from) as f64)
            }
        }
    }

    /// The running task goes on with its next block.
    pub(crate) fn begin_step(&mut self, t: usize) {
        let (range, bytes) = self.range(&self.tasks[t]);
        let b = range.start + self.tasks[t].block;
        let mut cost_ns = std::mem::take(&mut self.tasks[t].debt_ns);
        let p = self.tasks[t].process;
        if self.processes[p].blocks[b].armed {
            cost_ns += self.fault(t, b);
        }
        let (cpu, home) = (self.tasks[t].cpu, usize::from(self.processes[p].blocks[b].home));
        let phase = &self.processes[p].phases[self.tasks[t].phase];
        let from = self.node_of[cpu];
        let alone_ns = self.machine.line_ns(from, home, self.is_crowded(cpu)) + phase.compute_ns;
        let class = self.fabric.class(from, home, phase.writes);
        self.fabric.enter(class, alone_ns);
        if self.now >= self.solved + self.options.resolve_ns {
            self.fabric.solve();
            self.solved = self.now;
        }
        let lines = bytes / LINE_BYTES;
        let jitter = 1.0 + (self.jitter.unit() - 0.5) * 2.0 * JITTER_PERMILLE / 1000.0;
        let work_ns = lines * (alone_ns + self.fabric.wait_ns(class)) * jitter;
        let begun = self.now;
        self.tasks[t].step =
            Step { class: Some((class, alone_ns)), begun, lines, local: from == home };
        self.schedule(begun + cost_ns + (work_ns as u64).max(1), Event::Step(t));
    }

    /// Whether another thread of the CPU's core is busy.
    fn is_crowded(&self, cpu: usize) -> bool {
        let threads = self.machine.cpu.threads_per_core as usize;
        let first = cpu / threads * threads;
        (first..first + threads).any(|other| other != cpu && self.running[other].is_some())
    }

    pub(super) fn end_step(&mut self, t: usize) {
        let step = std::mem::take(&mut self.tasks[t].step);
        if let Some((class, alone_ns)) = step.class {
            self.fabric.leave(class, alone_ns);
        }
        self.lines.1 += step.lines;
        self.lines.0 += if step.local { step.lines } else { 0.0 };
        let ran = self.now - step.begun;
        let (range, _) = self.range(&self.tasks[t]);
        let task = &mut self.tasks[t];
        task.cpu_ns += ran;
        task.vruntime += ran;
        task.block += 1;
        if task.block == range.len() {
            task.block = 0;
            self.end_pass(t);
        } else {
            self.go_on(t);
        }
    }

    fn end_pass(&mut self, t: usize) {
        let task = &mut self.tasks[t];
        let process = &mut self.processes[task.process];
        let phase = &process.phases[task.phase];
        let sleep_ns = (phase.sleep_ms * 1e6) as u64;
        let barrier = phase.barrier;
        task.pass += 1;
        let phase_over = task.pass == phase.times;
        if phase_over {
            task.pass = 0;
            task.phase += 1;
        }
        if task.phase == process.phases.len() {
            self.end_task(t);
        } else if phase_over && barrier {
            self.wait_at_barrier(t, sleep_ns);
        } else if sleep_ns > 0 {
            self.sleep(t);
            self.schedule(self.now + sleep_ns, Event::Wake(t));
        } else {
            self.go_on(t);
        }
    }

    fn wait_at_barrier(&mut self, t: usize, sleep_ns: u64) {
        let p = self.tasks[t].process;
        self.sleep(t);
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
            self.schedule(self.now + sleep_ns, Event::Wake(waiting));
        }
    }

    fn end_task(&mut self, t: usize) {
        self.sleep(t);
        self.tasks[t].state = State::Done;
        self.tasks[t].ended = self.now;
        self.left -= 1;
        let (ns, task) = (self.now, self.tasks[t].id.tid);
        self.note(TraceEvent::Ended { ns, task });
        let p = self.tasks[t].process;
        self.processes[p].alive -= 1;
        if self.processes[p].alive == 0 {
            for block in std::mem::take(&mut self.processes[p].blocks) {
                self.free[usize::from(block.home)] += BLOCK_BYTES;
            }
        } else if !self.processes[p].waiting_at_barrier.is_empty() {
            self.open_barrier(p, 0);
        }
    }
}
