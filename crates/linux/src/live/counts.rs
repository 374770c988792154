//! What the live machine counted so far, and what the kernel did for it.

use numaherd_model::Nanos;

use super::LiveMachine;

impl LiveMachine {
    /// Whether tasks, of whomever, were born since the last look, and none since this was asked last. This costs
    /// next to nothing.
    pub fn births_are_over(&mut self) -> bool {
        self.family.births_are_over(self.system.as_mut())
    }

    /// How many tasks were born of those that are looked after; None where that is not known. This costs next to nothing.
    #[must_use]
    pub fn born(&self) -> Option<u64> {
        self.faults.as_ref().and_then(|faults| faults.born())
    }

    /// How many tasks that had faulted have ended; 0 where that is not known. This costs next to nothing.
    #[must_use]
    pub fn exited(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.exited())
    }

    /// Faults that were lost because we were too slow.
    #[must_use]
    pub fn lost_faults(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.lost())
    }

    /// Processes that were born with the CPUs of one node, because their parent was placed, before
    /// they were set free.
    #[must_use]
    pub fn born_confined(&self) -> u64 {
        self.custody.born_confined
    }

    /// The longest that a task can have waited for a page on its way, as estimated.
    #[must_use]
    pub fn longest_pause(&self) -> Nanos {
        self.mover.longest_pause()
    }
}
