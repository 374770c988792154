//! Tasks that wait for each other, and for nobody else.

use super::{Sim, State};
use crate::account::Place;

impl Sim {
    /// Whether it was so the last time, too: whoever is there waits for what nobody does any more. Once it is, it stays so.
    pub(super) fn is_stuck(&mut self) -> bool {
        let scripts = self.processes.iter().filter_map(|process| process.script.as_ref());
        let mut scripts = scripts.peekable();
        let may_be = scripts.peek().is_some()
            && scripts.all(|script| script.programs.duration.is_none())
            && self.tasks.iter().all(|task| {
                let waits = matches!(task.place, Place::Lock | Place::Condition | Place::Barrier);
                task.state == State::Done || task.state == State::Asleep && waits
            });
        // Who was let go just now still seems to wait.
        self.stuck = if may_be { self.stuck + 1 } else { 0 };
        self.stuck > 1
    }

    /// If tasks wait for each other for ever: at what.
    #[must_use]
    pub fn stuck(&self) -> Option<String> {
        if self.stuck < 2 {
            return None;
        }
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
