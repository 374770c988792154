//! Whether a thread has what it unlocks. Nothing in a task depends on what happens, so its file says it.

use std::collections::BTreeSet;

use super::events::kind;
use super::fields::{Fields, wrong};
use super::json::Fault;
use crate::workload::programs::{EventPhase, TaskEvent};

/// Fields of a phase, and where they stand.
type Written<'a, 't> = (Fields<'a, 't>, String);

/// Refuses to unlock what the thread does not hold: what rt-app does with it, nobody can say.
///
/// A phase's second turn leaves what its first left, and each further one is like the second. The first turn of all
/// phases begins with nothing, which is the least. So it does to go through two turns of each phase.
pub(super) fn check(phases: &[EventPhase], written: &[Written<'_, '_>]) -> Result<(), Fault> {
    let mut held = BTreeSet::new();
    for (phase, written) in phases.iter().zip(written) {
        let turns = if phase.loops == Some(1) { 1 } else { 2 };
        for _ in 0..turns {
            turn(phase, written, &mut held)?;
        }
        // Nobody comes to what is behind a phase without an end.
        if phase.loops.is_none() {
            break;
        }
    }
    Ok(())
}

fn turn(
    phase: &EventPhase,
    (all, field): &Written<'_, '_>,
    held: &mut BTreeSet<usize>,
) -> Result<(), Fault> {
    let mut unlocks = all.iter().filter(|(key, _)| kind(&key.name) == Some("unlock"));
    for event in &phase.events {
        match event {
            TaskEvent::Lock(lock) => {
                held.insert(*lock);
            }
            TaskEvent::Unlock(lock) => {
                let at = unlocks.next();
                if let Some((key, node)) = at.filter(|_| !held.remove(lock)) {
                    let field = format!("{field}.{}", key.name);
                    return wrong(node, &field, "a lock that its thread holds then");
                }
            }
            _ => {}
        }
    }
    Ok(())
}
