//! Small pages that move under their process's anon_vma mutex.
//!
//! A page that moves takes the mutex twice: to find and unmap it (`page_lock_anon_vma`), and, once
//! it is copied, to map it again (`rmap_walk`). Those are the two places at which numa/core's
//! document of 30 November 2012 found tasks of a large process waiting. The mutex goes to whoever
//! asked first. A block's 512 pages are taken [`TOGETHER`] at a time: everything then happens that
//! many times as slowly and as seldom, and the shares of time stay what they are.
//!
//! A task that waits keeps its CPU: with as many threads as CPUs nobody else wants it.
//!
//! Worked example: 32 tasks whose pages need the mutex for 1.5 µs each and 6 µs besides finish a
//! page every 1.5 µs together, so that each waits 32 × 1.5 − 7.5 = 40.5 µs for each of its own.

use std::collections::VecDeque;

use crate::account::{LockUse, Place};
use crate::engine::{BLOCK_PAGES, Event, Sim};

/// Pages that are moved as if they were one. Guessed: few enough that a block takes its turn at
/// the mutex dozens of times.
const TOGETHER: u64 = 8;

/// A process's anon_vma mutex.
#[derive(Debug, Default)]
pub(crate) struct Mutex {
    holder: Option<usize>,
    waiting: VecDeque<usize>,
    pub used: LockUse,
}

/// What a task does with the pages it moves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Faults, where each page has its own.
    Faulting,
    /// Has or wants the mutex, to unmap.
    Unmapping,
    Copying,
    /// Has or wants the mutex, to map again.
    Mapping,
}

/// A block of small pages on its way, `TOGETHER` pages at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    stage: Stage,
    left: u64,
    /// When the mutex was asked for.
    asked: u64,
    /// For so many pages: faults, the mutex held each time, and what lies between.
    fault_ns: u64,
    held_ns: u64,
    between_ns: u64,
    /// What the task does afterwards takes so long.
    after_ns: u64,
}

impl Moving {
    /// A block's pages: all their faults, a copy of all, and for each page flushing and the rest.
    pub(crate) fn new(costs: &crate::machine::KernelCosts, faults: u64, copy_ns: u64) -> Moving {
        let rounds = BLOCK_PAGES / TOGETHER;
        let unlocked_ns = costs.move_ns.saturating_sub(costs.rmap_ns) + costs.flush_ns;
        Moving {
            stage: Stage::Faulting,
            left: rounds,
            asked: 0,
            fault_ns: faults * costs.fault_ns / rounds,
            // Half each. Guessed.
            held_ns: TOGETHER * costs.rmap_ns / 2,
            between_ns: copy_ns / rounds + TOGETHER * unlocked_ns,
            after_ns: 0,
        }
    }

    /// Then the task goes on for so long.
    pub(crate) fn before(self, after_ns: u64) -> Moving {
        Moving { after_ns, ..self }
    }
}

impl Sim {
    /// The task begins to move a block, after `delay_ns`; then its step goes on.
    pub(crate) fn begin_move(&mut self, t: usize, moving: Moving, delay_ns: u64) {
        self.moving.insert(t, moving);
        self.schedule(self.now + delay_ns + moving.fault_ns, Event::Move(t as u32));
    }

    /// The stage at which the task's pages are is over.
    pub(crate) fn end_stage(&mut self, t: usize) {
        let Some(mut moving) = self.moving.remove(&t) else { return };
        match moving.stage {
            Stage::Faulting => return self.ask(t, moving, Stage::Unmapping),
            Stage::Copying => return self.ask(t, moving, Stage::Mapping),
            Stage::Unmapping => {
                self.release(t);
                moving.stage = Stage::Copying;
                self.schedule(self.now + moving.between_ns, Event::Move(t as u32));
            }
            Stage::Mapping => {
                self.release(t);
                moving.left -= 1;
                if moving.left == 0 {
                    self.schedule_end(t, self.now + moving.after_ns);
                    return;
                }
                moving.stage = Stage::Faulting;
                self.schedule(self.now + moving.fault_ns, Event::Move(t as u32));
            }
        }
        self.moving.insert(t, moving);
    }

    fn ask(&mut self, t: usize, moving: Moving, stage: Stage) {
        self.moving.insert(t, Moving { stage, asked: self.now, ..moving });
        let mutex = &mut self.processes[self.tasks[t].process].rmap;
        if mutex.holder.is_some() {
            mutex.waiting.push_back(t);
        } else {
            self.grant(t);
        }
    }

    /// The task has the mutex, after whatever wait.
    fn grant(&mut self, t: usize) {
        let Some(&moving) = self.moving.get(&t) else { return };
        let waited = self.now - moving.asked;
        let mutex = &mut self.processes[self.tasks[t].process].rmap;
        mutex.holder = Some(t);
        mutex.used.take_times(waited, TOGETHER);
        mutex.used.held_ns += moving.held_ns;
        if waited > 0 {
            let place =
                if moving.stage == Stage::Unmapping { Place::PageLock } else { Place::RmapWalk };
            // Each of the pages would have waited.
            self.account.add_times(place, waited, TOGETHER);
            self.run.rmap_wait_seconds += waited as f64 / 1e9;
            self.run.kernel_seconds += waited as f64 / 1e9;
        }
        self.schedule(self.now + moving.held_ns, Event::Move(t as u32));
    }

    fn release(&mut self, t: usize) {
        let mutex = &mut self.processes[self.tasks[t].process].rmap;
        mutex.holder = None;
        if let Some(next) = mutex.waiting.pop_front() {
            self.grant(next);
        }
    }
}

#[cfg(test)]
mod tests;
