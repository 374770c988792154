//! Of whom processes were born of late, where that is told: `/proc` knows the parent only while that lives.

use std::collections::BTreeMap;

use numaherd_model::Birth;

/// See the module.
#[derive(Debug, Default)]
pub struct Parents {
    /// Since the last look, and since the one before that: a child that bears another one and ends may be older.
    of: BTreeMap<u32, u32>,
    before: BTreeMap<u32, u32>,
}

impl Parents {
    /// These were born, oldest first.
    pub fn hear(&mut self, births: &[Birth]) {
        self.of.extend(births.iter().map(|birth| (birth.child, birth.parent)));
    }

    /// The next look begins.
    pub fn turned(&mut self) {
        self.before = std::mem::take(&mut self.of);
    }

    /// Of which process that one was born.
    pub fn of(&self, tgid: u32) -> Option<u32> {
        self.of.get(&tgid).or_else(|| self.before.get(&tgid)).copied()
    }
}
