//! Steps of a task that go over no memory: it computes, as fast as its core's other threads let it.

use super::retiming::NEVER_NS;
use super::{Sim, Step};
use crate::account::Place;
use crate::workload::programs::CHUNK_NS;

impl Sim {
    /// The running task computes, up to the next time at which others may run.
    #[inline(never)]
    pub(super) fn compute(&mut self, t: usize) {
        let task = &mut self.tasks[t];
        let phase = &self.processes[task.process].phases[task.phase as usize];
        let resumed = task.lines_left > 0.0;
        let mut ns = if resumed { std::mem::take(&mut task.lines_left) } else { task.span.lines };
        let slower = self.speeds.computing(self.busy_threads(self.tasks[t].cpu));
        let task = &mut self.tasks[t];
        if phase.seconds.is_some() {
            // On the clock: as long as is left, however fast that is.
            let ends = task.phase_ns as f64 + phase.compute_ns;
            ns = (CHUNK_NS as f64).min(ends - self.now as f64).max(1.0) / slower;
        }
        let cost_ns = std::mem::take(&mut task.debt_ns);
        let lines_from = self.now + cost_ns;
        self.steps[task.cpu] = Step {
            class: None,
            begun: self.now,
            // Nothing comes into the cache.
            is_cached: true,
            lines: ns,
            local: true,
            lines_from,
            line_ns: slower,
            jitter: 1.0,
            ..Step::default()
        };
        self.schedule_end(t, lines_from + ((ns * slower) as u64).clamp(1, NEVER_NS));
    }

    /// Counts the time of a step that went over no memory.
    #[inline(never)]
    pub(super) fn count_computing(&mut self, t: usize, step: Step) {
        let work_ns = self.now.saturating_sub(step.lines_from);
        if work_ns > 0 {
            self.account.add(Place::Computing, work_ns);
        }
        let ran = self.now - step.begun;
        let task = &mut self.tasks[t];
        task.cpu_ns += ran;
        task.vruntime += ran;
    }
}
