//! Samples of accesses to memory that takes no hinting faults, as `balance` takes them live: each CPU is
//! looked at about a hundred times a second of its tasks' time, and the block that is found counts as a
//! fault on it.

use numaherd_model::FaultFlags;

use super::Sim;

/// Between two looks at a CPU.
pub(super) const EVERY_NS: u64 = 9_970_000;

/// What a look takes of the task's time. Guessed: an interrupt, and writing the registers down.
const LOOK_NS: u64 = 2_000;

impl Sim {
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
        let beyond = ran_ns - rest.sample_ns;
        rest.sample_ns = EVERY_NS - beyond % EVERY_NS;
        let looks = beyond / EVERY_NS + 1;
        self.tasks[t].debt_ns += looks * LOOK_NS;
        let touch = self.touch(t, b);
        let local = touch.node == touch.home;
        self.show(&touch, touch.home, if local { FaultFlags::FAULT_LOCAL } else { 0 }, b);
    }
}
