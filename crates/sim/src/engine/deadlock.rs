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
            let locks =
                process.locks.iter().map(|lock| (lock.waiting(), None, "lock", lock.name()));
            let conditions = script.conditions.iter().zip(&script.programs.conditions);
            let conditions =
                conditions.map(|(all, name)| (all.len(), None, "condition", name.as_str()));
            let barriers = script.barriers.iter().zip(&script.programs.barriers);
            // Of how many, since one that is named twice waits for more than there are threads.
            let barriers =
                barriers.map(|((of, all), name)| (all.len(), Some(*of), "barrier", name.as_str()));
            let all = locks.chain(conditions).chain(barriers);
            let all = all.filter(|(waiting, ..)| *waiting > 0).map(|(waiting, of, what, name)| {
                let of = of.map_or(String::new(), |of| format!(" of {of}"));
                format!("{waiting}{of} at the {what} {name}")
            });
            let all: Vec<String> = all.collect();
            Some(all.join(", "))
        });
        Some(names.collect::<Vec<_>>().join(", "))
    }
}
