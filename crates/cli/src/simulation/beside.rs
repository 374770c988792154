//! The loop beside a simulated machine: the controller, placement, check and pace of `balance`,
//! with simulated time in place of the clock.

use anyhow::Result;
use numaherd_control::{Controller, Found, Pace, Turn};
use numaherd_model::{Nanos, Placement, ScanPeriods, WorldError};
use numaherd_report::nodes::Move;
use numaherd_sim::Sim;

/// What `balance --tune-kernel` sets while it needs evidence, and once all has converged.
const QUICK: ScanPeriods = periods(300, 100, 100);
const SLOW: ScanPeriods = periods(1000, 4000, 60_000);

/// Between two moments at which it is listened.
const NAP: Nanos = Nanos(50_000_000);

const fn periods(delay_ms: u64, min_ms: u64, max_ms: u64) -> ScanPeriods {
    let ns = 1_000_000;
    ScanPeriods { delay: Nanos(delay_ms * ns), min: Nanos(min_ms * ns), max: Nanos(max_ms * ns) }
}

/// What came of it.
#[derive(Default)]
pub struct Balanced {
    /// When the last change was made, if all had converged.
    pub converged: Option<Nanos>,
    /// What was done, or not, and why.
    pub moves: Vec<Move>,
}

/// Runs the machine to its end. Looking takes no time here; moving pages does.
pub fn balance(sim: &mut Sim, placement: impl Placement) -> Result<Balanced> {
    let mut controller = Controller::new(placement);
    let mut pace = Pace::new();
    let (mut slow, mut last_change) = (false, Nanos(0));
    let mut balanced = Balanced::default();
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
        balanced.moves.extend(moves(&turn));
        balanced.converged = turn.plan.converged.then_some(last_change);
        if turn.plan.converged != slow {
            slow = turn.plan.converged;
            sim.set_scan(if slow { SLOW } else { QUICK });
        }
        let used = sim.take_spent();
        let wait = pace.next(turn.acted(), Found::of(&turn), used);
        let begun = Nanos(sim.time().0 + used.0);
        next = Nanos(begun.0 + wait.0);
        if !sim.advance(begun) {
            break;
        }
        // Listens meanwhile.
        while sim.time() < next && sim.advance(next.min(Nanos(sim.time().0 + NAP.0))) {
            let waited = sim.time().since(begun);
            let wakes = match turn.plan.converged {
                true => controller.is_stirred(sim.heard()),
                false => pace.wakes(waited, sim.heard().len()),
            };
            if wakes {
                next = sim.time();
            }
        }
    }
    Ok(balanced)
}

fn moves(turn: &Turn) -> impl Iterator<Item = Move> + '_ {
    let when = format!("{:.2} s", turn.snapshot.time.as_secs_f64());
    turn.plan.actions.iter().zip(&turn.outcomes).map(move |(action, outcome)| Move {
        when: when.clone(),
        what: action.to_string(),
        outcome: outcome.to_string(),
    })
}
