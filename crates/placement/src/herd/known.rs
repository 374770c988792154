//! What herd remembers of a task.

use numaherd_model::{Nanos, TaskId};

use crate::relief;

/// How long the most that a task asked of memory counts. Guessed: so long that a group which was spread,
/// and asks for less since, is not brought together and spread again and again.
const PEAK: Nanos = Nanos(600_000_000_000);

/// What is remembered of a task.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub id: TaskId,
    pub first_seen: Nanos,
    pub placed_at: Option<Nanos>,
    pub waits: relief::Waits,
    /// How long it has been away from its team's memory.
    pub away: Nanos,
    /// The most bytes a second that it asked of memory of late, and when.
    pub traffic: (u64, Nanos),
}

impl Known {
    /// The most that a task asked of memory of late, with what it asks now.
    pub fn peak(&mut self, bytes: u64, now: Nanos) -> u64 {
        if bytes >= self.traffic.0 || now.since(self.traffic.1) >= PEAK {
            self.traffic = (bytes, now);
        }
        self.traffic.0
    }
}
