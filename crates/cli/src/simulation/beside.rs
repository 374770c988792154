//! The loop beside a simulated machine: the controller, placement, check, pace and scan knobs of
//! `balance`, with simulated time in place of the clock.

use anyhow::Result;
use numaherd_control::{Calm, Controller, Convergence, Found, Pace};
use numaherd_model::{Nanos, Placement, WorldError};
use numaherd_placement::{Scan, Seen, is_told, lost};
use numaherd_report::nodes::Move;
use numaherd_sim::Sim;

use super::moves;

/// Between two moments at which it is listened.
const NAP: Nanos = Nanos(50_000_000);

/// What came of it.
#[derive(Default)]
pub struct Balanced {
    /// When all had converged, if it had.
    pub converged: Option<Nanos>,
    /// What was done, or not, and why.
    pub moves: Vec<Move>,
}

/// Runs the machine to its end. Looking takes no time here; moving pages does. `tunes`: as `--tune-kernel` has it.
pub fn balance(sim: &mut Sim, placement: impl Placement, tunes: bool) -> Result<Balanced> {
    let mut controller = Controller::new(placement);
    let topology = &sim.machine().measured_topology();
    let mut pace = Pace::new();
    pace.hurry(lost::permille(topology));
    let (mut scan, mut convergence) = (Scan::Seek, Convergence::default());
    let mut seen = Seen { new_base: sim.base_pages(), ..Seen::default() };
    let (mut balanced, mut calm) = (Balanced::default(), Calm::default());
    if tunes {
        sim.set_scan(scan.knobs(topology));
    }
    let mut next = Nanos(0);
    while sim.advance(next) {
        let exited = sim.exited();
        let turn = match controller.turn(sim) {
            Ok(turn) => turn,
            Err(WorldError::NoTasks) => break,
            Err(error) => return Err(error.into()),
        };
        convergence.turned(sim.time(), turn.changed(), turn.plan.converged, exited);
        balanced.converged = convergence.at();
        balanced.moves.extend(moves::told(turn.snapshot.time, &turn.plan.actions, &turn.outcomes));
        seen.add(turn.faults as u64, turn.fault_pages.0);
        seen.storm = pace.is_storm();
        seen.told = is_told(&turn.snapshot, |process| sim.told_of(process));
        sim.settle(calm.turned(&turn, seen.storm));
        let next_scan = scan.after(&turn.snapshot, &turn.plan, seen);
        if tunes && next_scan != scan {
            scan = next_scan;
            sim.set_scan(scan.knobs(topology));
        }
        let (used, took) = sim.take_spent();
        let wait = pace.next(turn.acted(), Found::of(&turn, &calm), used);
        let begun = Nanos(sim.time().0 + took.0);
        next = Nanos(begun.0 + wait.0);
        if !sim.advance(begun) {
            break;
        }
        // Listens meanwhile.
        while sim.time() < next && sim.advance(next.min(Nanos(sim.time().0 + NAP.0))) {
            let waited = sim.time().since(begun);
            let wakes = match turn.is_settled() {
                true => controller.is_stirred(sim.heard()),
                false => pace.wakes(waited, calm.news(sim.heard())),
            };
            if wakes || sim.exited() != exited && pace.exits_wake(sim.time(), waited) {
                next = sim.time();
            }
        }
    }
    Ok(balanced)
}
