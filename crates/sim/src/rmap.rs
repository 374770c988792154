//! Small pages that move under their process's anon_vma mutex.
//!
//! A page that moves takes the mutex twice: to find and unmap it (`page_lock_anon_vma`), and, once
//! it is copied, to map it again (`rmap_walk`). Those are the two places at which numa/core's
//! document of 30 November 2012 found tasks of a large process waiting. The mutex goes to whoever
//! asked first. A block's 512 pages are taken [`TOGETHER`] at a time: everything then happens that
//! many times as slowly and as seldom, and the shares of time stay what they are.
//!
//! A task that waits keeps its CPU: with as many threads as CPUs nobody else wants it. One that is
//! sent elsewhere gives up the mutex, or its turn at it, and goes on with its pages there.
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
    /// What the stage takes yet, unless it waits, and when it ends; a wait has no end.
    stage_ns: u64,
    ends: u64,
    /// When the mutex was asked for.
    asked: u64,
    /// For so many pages: faults, the mutex held each time, and what lies between.
    fault_ns: u64,
    held_ns: u64,
    between_ns: u64,
}

impl Moving {
    /// A block's pages: all their faults, a copy of all, and for each page flushing and the rest.
    pub(crate) fn new(costs: &crate::machine::KernelCosts, faults: u64, copy_ns: u64) -> Moving {
        let rounds = BLOCK_PAGES / TOGETHER;
        let unlocked_ns = costs.move_ns.saturating_sub(costs.rmap_ns) + costs.flush_ns;
        let fault_ns = faults * costs.fault_ns / rounds;
        Moving {
            stage: Stage::Faulting,
            left: rounds,
            stage_ns: fault_ns,
            ends: 0,
            asked: 0,
            fault_ns,
            // Half each. Guessed.
            held_ns: TOGETHER * costs.rmap_ns / 2,
            between_ns: copy_ns / rounds + TOGETHER * unlocked_ns,
        }
    }

    /// The mutex is not needed for now: the stage that follows, unless all pages have moved.
    fn unlocked(self) -> Option<Moving> {
        if self.stage == Stage::Unmapping {
            return Some(Moving { stage: Stage::Copying, stage_ns: self.between_ns, ..self });
        }
        let left = self.left - 1;
        let next = Moving { stage: Stage::Faulting, stage_ns: self.fault_ns, left, ..self };
        (left > 0).then_some(next)
    }

    /// The stage before the one for which the mutex is wanted, over but for that.
    fn before_asking(self) -> Moving {
        let unmaps = self.stage == Stage::Unmapping;
        let stage = if unmaps { Stage::Faulting } else { Stage::Copying };
        Moving { stage, stage_ns: 0, ..self }
    }
}

impl Sim {
    /// The task moves a block, or goes on to move it, after `delay_ns`; then its step goes on.
    pub(crate) fn begin_move(&mut self, t: usize, moving: Moving, delay_ns: u64) {
        self.enter(t, Moving { stage_ns: delay_ns + moving.stage_ns, ..moving });
    }

    fn enter(&mut self, t: usize, moving: Moving) {
        let ends = self.now + moving.stage_ns;
        self.moving.insert(t, Moving { ends, ..moving });
        self.schedule(ends, Event::Move(t as u32));
    }

    /// The stage at which the task's pages are is over.
    pub(crate) fn end_stage(&mut self, t: usize) {
        // One of a move that was interrupted since comes to nothing.
        let Some(&moving) = self.moving.get(&t).filter(|moving| moving.ends == self.now) else {
            return;
        };
        match moving.stage {
            Stage::Faulting => self.ask(t, moving, Stage::Unmapping),
            Stage::Copying => self.ask(t, moving, Stage::Mapping),
            Stage::Unmapping | Stage::Mapping => {
                self.release(t);
                if let Some(next) = moving.unlocked() {
                    self.enter(t, next);
                } else {
                    self.moving.remove(&t);
                    self.begin_lines(t);
                }
            }
        }
    }

    /// The task leaves off; says whether it was moving pages. What it has not spent of its stage it
    /// spends when it goes on, then without the mutex.
    pub(crate) fn pause_move(&mut self, t: usize) -> bool {
        let Some(moving) = self.moving.remove(&t) else { return false };
        let mutex = &mut self.processes[self.tasks[t].process].rmap;
        let left_ns = moving.ends.saturating_sub(self.now);
        let next = match moving.stage {
            Stage::Faulting | Stage::Copying => Some(Moving { stage_ns: left_ns, ..moving }),
            Stage::Unmapping | Stage::Mapping if mutex.holder == Some(t) => {
                mutex.used.held_ns -= left_ns;
                self.release(t);
                let next = moving.unlocked();
                next.map(|next| Moving { stage_ns: left_ns + next.stage_ns, ..next })
            }
            Stage::Unmapping | Stage::Mapping => {
                mutex.waiting.retain(|waiting| *waiting != t);
                let waited = self.now - moving.asked;
                mutex.used.leave(waited, TOGETHER);
                self.account_wait(&moving, waited);
                Some(moving.before_asking())
            }
        };
        if let Some(next) = next {
            // Meanwhile no event is its own.
            self.moving.insert(t, Moving { ends: u64::MAX, ..next });
        } else {
            self.tasks[t].debt_ns += left_ns;
        }
        true
    }

    fn ask(&mut self, t: usize, moving: Moving, stage: Stage) {
        self.moving.insert(t, Moving { stage, asked: self.now, ends: u64::MAX, ..moving });
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
        self.account_wait(&moving, waited);
        self.enter(t, Moving { stage_ns: moving.held_ns, ..moving });
    }

    fn account_wait(&mut self, moving: &Moving, waited: u64) {
        if waited == 0 {
            return;
        }
        let unmaps = moving.stage == Stage::Unmapping;
        let place = if unmaps { Place::PageLock } else { Place::RmapWalk };
        // Each of the pages would have waited.
        self.account.add_times(place, waited, TOGETHER);
        self.run.rmap_wait_seconds += waited as f64 / 1e9;
        self.run.kernel_seconds += waited as f64 / 1e9;
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
