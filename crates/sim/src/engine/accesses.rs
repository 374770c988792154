//! Samples of accesses, as `balance` takes them live: each CPU is looked at about a hundred times a second of its
//! tasks' time, four times when little is left to find out, and the block that is found counts as a fault on it.

use numaherd_model::{Bytes, FaultFlags, ProcessId, SAMPLED, View as _};

use super::Sim;

/// Between two looks at a CPU, and when little is left to find out.
pub(super) const EVERY_NS: u64 = 9_970_000;
const RARELY_NS: u64 = 249_700_000;

/// What a look takes of the task's time. Guessed: an interrupt, and writing the registers down.
const LOOK_NS: u64 = 2_000;

impl Sim {
    /// Whether accesses of a process are sampled.
    pub(super) fn is_sampled(&self, p: usize) -> bool {
        let faults = self.processes[p].hinting_faults;
        self.options.sample_accesses && !faults || self.options.sample_all && faults
    }

    /// The memory of a process, if samples tell of everybody's.
    #[must_use]
    pub fn told_of(&self, process: ProcessId) -> Option<Bytes> {
        self.options.sample_all.then(|| self.resident(process))
    }

    /// Whether little is left to find out: samples are taken rarely then.
    pub fn settle(&mut self, settled: bool) {
        self.options.sample_rarely = settled;
    }

    /// The task spent so long at a block. However often it was looked at there, the block counts once: more
    /// would say no more of where it is.
    pub(super) fn sample_access(&mut self, t: usize, b: usize, ran_ns: u64) {
        let task = &self.tasks[t];
        // Files are read and written in the kernel, which is not looked at.
        if self.processes[task.process].phases[task.phase as usize].of_file().is_some() {
            return;
        }
        let rest = &mut self.rest[t];
        if let Some(left) = rest.sample_ns.checked_sub(ran_ns) {
            rest.sample_ns = left;
            return;
        }
        let every_ns = if self.options.sample_rarely { RARELY_NS } else { EVERY_NS };
        let beyond = ran_ns - rest.sample_ns;
        rest.sample_ns = every_ns - beyond % every_ns;
        let looks = beyond / every_ns + 1;
        self.tasks[t].debt_ns += looks * LOOK_NS;
        let mut touch = self.touch(t, b);
        let faults = self.processes[self.tasks[t].process].hinting_faults;
        if faults && !self.options.huge_pages {
            touch.pages = SAMPLED;
        }
        let flags = FaultFlags::of_access(touch.node == touch.home, faults);
        self.show(&touch, touch.home, flags.0, b);
    }
}
