//! The loop beside a simulated machine: the controller, placement, check and pace of `balance`,
//! with simulated time in place of the clock.

use anyhow::Result;
use numaherd_control::{Controller, Pace};
use numaherd_model::{Nanos, ScanPeriods, WorldError};
use numaherd_placement::Herd;
use numaherd_sim::Sim;

/// What `balance --tune-kernel` sets while it needs evidence, and once all has converged.
const QUICK: ScanPeriods = periods(300, 100, 100);
const SLOW: ScanPeriods = periods(1000, 4000, 60_000);

const fn periods(delay_ms: u64, min_ms: u64, max_ms: u64) -> ScanPeriods {
    let ns = 1_000_000;
    ScanPeriods { delay: Nanos(delay_ms * ns), min: Nanos(min_ms * ns), max: Nanos(max_ms * ns) }
}

/// Runs the machine to its end. Answers when the last change was made, if all had converged.
/// Looking takes no time here; moving pages does.
pub fn balance(sim: &mut Sim, herd: Herd) -> Result<Option<Nanos>> {
    let mut controller = Controller::new(herd);
    let mut pace = Pace::new();
    let (mut slow, mut last_change, mut converged) = (false, Nanos(0), None);
    sim.set_scan(QUICK);
    let mut next = Nanos(0);
    while sim.advance(next) {
        let turn = match controller.turn(sim) {
            Ok(turn) => turn,
            Err(WorldError::NoTasks) => break,
            Err(error) => return Err(error.into()),
        };
        if turn.acted() {
            last_change = sim.time();
        }
        converged = turn.plan.converged.then_some(last_change);
        if turn.plan.converged != slow {
            slow = turn.plan.converged;
            sim.set_scan(if slow { SLOW } else { QUICK });
        }
        let used = sim.take_spent();
        let wait = pace.next(turn.acted(), turn.plan.converged, used);
        next = Nanos(sim.time().0 + used.0 + wait.0);
    }
    Ok(converged)
}
