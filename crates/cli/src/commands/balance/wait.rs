//! What is heard between two turns of the loop, and what ends the wait for the next one early.

use std::process::{Child, ExitCode};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use numaherd_control::controller::Turn;
use numaherd_linux::live::{LiveMachine, Queue};
use numaherd_linux::sys::clock;
use numaherd_model::{Nanos, Snapshot, WorldError};

use super::{NAP, Runner, code_of, ended};
use crate::args::Balance;
use crate::interrupt;

/// Longest sleep while evidence is awaited. Guessed: a waking costs a few dozen microseconds.
const SHORT_NAP: Duration = Duration::from_millis(30);
/// The same while tasks are held: who waits for a CPU there is to be free within 100 ms.
const HELD_NAP: Duration = Duration::from_millis(50);

impl Runner {
    /// Waits after a turn, so long or until something is worth a look; answers how it ends, if it does. `before` is what
    /// had become of tasks when the turn began.
    pub fn wait(
        &mut self,
        turn: &Turn,
        wait: Nanos,
        before: Lives,
        (mut child, args): (Option<&mut Child>, &Balance),
    ) -> Result<Option<ExitCode>> {
        let begun = Instant::now();
        let until = begun + Duration::from_nanos(wait.0);
        let watches = may_be_freed(&turn.snapshot);
        let nap = match turn.is_settled() {
            true if watches => HELD_NAP,
            true => NAP,
            false => SHORT_NAP,
        };
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if let Some(code) = self.is_over(child.as_deref_mut(), args)? {
                return Ok(Some(code));
            }
            let waited = Nanos(begun.elapsed().as_nanos() as u64);
            let called = self.is_called(turn, waited, before);
            if self.or_not(called)? {
                break;
            }
            let squeezed = if watches { self.is_squeezed(waited) } else { Ok(false) };
            if self.or_not(squeezed)? {
                break;
            }
            std::thread::sleep(left.min(nap));
        }
        Ok(None)
    }

    /// Waits a little, where there was no turn to wait after; answers how it ends, if it does.
    pub fn nap(&mut self, child: Option<&mut Child>, args: &Balance) -> Result<Option<ExitCode>> {
        if let Some(code) = self.is_over(child, args)? {
            return Ok(Some(code));
        }
        std::thread::sleep(NAP);
        Ok(None)
    }

    /// Tells that we live; answers how it ends, if it does.
    fn is_over(&mut self, child: Option<&mut Child>, args: &Balance) -> Result<Option<ExitCode>> {
        self.pulse.beat();
        if self.interrupted.load(Ordering::Relaxed) {
            return Ok(Some(interrupt::code()));
        }
        Ok(ended(child, args)?.map(code_of))
    }

    /// The same as what was found out; where that could not be read, no.
    fn or_not(&mut self, found: Result<bool, WorldError>) -> Result<bool> {
        found.or_else(|error| self.misread.passed_over(error).map(|()| false))
    }

    /// Whether something is worth a look, after so long.
    fn is_called(&mut self, turn: &Turn, waited: Nanos, before: Lives) -> Result<bool, WorldError> {
        let heard = self.machine.listen()?;
        let wakes = match turn.is_settled() {
            true => {
                self.controller.is_stirred(heard)
                    || is_held(&turn.snapshot)
                        && self.have_born(before)
                        && self.pace.newborn_wake(clock::monotonic(), waited)
            }
            false => {
                self.pace.wakes(waited, self.calm.news(heard))
                    || turn.has_just_begun()
                        && self.machine.births_are_over()
                        && self.pace.births_wake(waited)
            }
        };
        let enough = self.machine.has_heard_enough() && self.pace.allows(waited);
        Ok(wakes
            || enough
            || self.machine.exited() != before.exited
                && self.pace.exits_wake(clock::monotonic(), waited))
    }

    /// Whether tasks were born since of those that are looked after, or where nobody tells of whom, anywhere.
    fn have_born(&mut self, before: Lives) -> bool {
        match before.born {
            Some(born) => self.machine.born() != Some(born),
            None => self.machine.births_are_over(),
        }
    }

    /// Whether somebody waits for a CPU where we hold them and that is worth a look, after so long.
    fn is_squeezed(&mut self, waited: Nanos) -> Result<bool, WorldError> {
        Ok(match self.machine.queue()? {
            Queue::Waits => self.pace.queues_wake(clock::monotonic(), waited),
            Queue::Calm => {
                self.pace.queues_are_calm();
                false
            }
            Queue::Open => false,
        })
    }
}

/// How many tasks had ended, and were born, so far.
#[derive(Clone, Copy, Debug)]
pub struct Lives {
    pub exited: u64,
    pub born: Option<u64>,
}

impl Lives {
    /// As of now.
    pub fn of(machine: &LiveMachine) -> Lives {
        Lives { exited: machine.exited(), born: machine.born() }
    }
}

/// Whether we hold somebody somewhere.
fn is_held(snapshot: &Snapshot) -> bool {
    snapshot.tasks.iter().any(|task| task.home.is_some())
}

/// Whether somebody is held, and not all CPUs are taken by those in our care: else there is nowhere to let them go.
fn may_be_freed(snapshot: &Snapshot) -> bool {
    let tasks = &snapshot.tasks;
    is_held(snapshot)
        && tasks.iter().filter(|task| task.claims_cpu()).count() < snapshot.topology.cpus().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    #[test]
    fn who_is_held_may_be_freed_while_a_cpu_is_left() {
        let mut scene = Scene::two_by_four();
        for tid in 1..=7 {
            scene.task(tid, tid - 1, 1000);
        }
        assert!(!may_be_freed(&scene.snapshot()), "nobody is held");
        scene.at_home(1, 0);
        assert!(may_be_freed(&scene.snapshot()));
        scene.task(8, 7, 1000);
        assert!(!may_be_freed(&scene.snapshot()), "eight on eight CPUs");
    }
}
