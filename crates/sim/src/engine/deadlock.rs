//! Tasks that wait for each other, and for nobody else.

use super::{Sim, State};
use crate::account::Place;

/// After so many rounds it is sure.
const SURE: u32 = 2;

impl Sim {
    /// Whether it was so the last time, too: whoever is there waits for what nobody does any more. Once it is, it stays so.
    pub(super) fn is_stuck(&mut self) -> bool {
        let Some(before) = self.stuck else { return false };
        let waits = |place| matches!(place, Place::Lock | Place::Condition | Place::Barrier);
        let nobody_goes_on = self.tasks.iter().all(|task| {
            task.state == State::Done || task.state == State::Asleep && waits(task.place)
        });
        // Who was let go just now still seems to wait.
        self.stuck = Some(if nobody_goes_on { before + 1 } else { 0 });
        self.stuck >= Some(SURE)
    }

    /// If tasks wait for each other for ever: at what.
    #[must_use]
    pub fn stuck(&self) -> Option<String> {
        self.stuck.filter(|rounds| *rounds >= SURE)?;
        let names = self.processes.iter().filter_map(|process| {
            let script = process.script.as_ref()?;
            let count = |waiting: usize, what: &str, name: &str| {
                (waiting > 0).then(|| format!("{waiting} at the {what} {name}"))
            };
            let locks = process.locks.iter().map(|lock| (lock.waiting(), "lock", lock.name()));
            let conditions = script.conditions.iter().zip(&script.programs.conditions);
            let conditions = conditions.map(|(all, name)| (all.len(), "condition", name.as_str()));
            let barriers = script.barriers.iter().zip(&script.programs.barriers);
            let barriers = barriers.map(|((_, all), name)| (all.len(), "barrier", name.as_str()));
            let all = locks.chain(conditions).chain(barriers);
            let all: Vec<String> = all.filter_map(|(n, what, name)| count(n, what, name)).collect();
            Some(all.join(", "))
        });
        Some(names.collect::<Vec<_>>().join(", "))
    }
}
