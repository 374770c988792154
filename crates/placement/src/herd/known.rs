//! What herd remembers of a task.

use numaherd_model::{Nanos, Snapshot, Task, TaskId};

use crate::relief;

/// Memory does not follow a task that is not held and came to its node within this time. Guessed: where the
/// scheduler takes it to and fro it is gone before its pages have come.
const RESTLESS: Nanos = Nanos(500_000_000);

/// How long the most that a task asked of memory counts. Guessed: so long that a group which was spread,
/// and asks for less since, is not brought together and spread again and again.
const PEAK: Nanos = Nanos(600_000_000_000);

/// A younger task may be filling its memory, which it will not go on with: what it asks for counts now, and is not
/// remembered. Guessed.
const FILLS: Nanos = Nanos(1_000_000_000);

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
    /// The node it was on when it was seen last, by index, and when it was seen to have come there from another.
    node: Option<usize>,
    came_at: Option<Nanos>,
}

impl Known {
    /// A task that is seen for the first time.
    pub fn new(task: &Task, snapshot: &Snapshot) -> Known {
        Known {
            id: task.id,
            first_seen: snapshot.time,
            placed_at: None,
            waits: relief::Waits::new(task),
            away: Nanos(0),
            traffic: (0, snapshot.time),
            node: None,
            came_at: None,
        }
    }

    /// It is on this node, by index.
    pub fn is_on(&mut self, node: usize, now: Nanos) {
        if self.node.replace(node).is_some_and(|before| before != node) {
            self.came_at = Some(now);
        }
    }

    /// Whether it came to its node of late.
    pub fn is_restless(&self, now: Nanos) -> bool {
        self.came_at.is_some_and(|at| now.since(at) < RESTLESS)
    }

    /// The most that a task of this age asked of memory of late, with what it asks now.
    pub fn peak(&mut self, bytes: u64, age: Nanos, now: Nanos) -> u64 {
        if age < FILLS {
            return bytes;
        }
        if bytes >= self.traffic.0 || now.since(self.traffic.1) >= PEAK {
            self.traffic = (bytes, now);
        }
        self.traffic.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    /// It fills its memory at 900 a second, then asks for 300, once for 400, and then for 200 for a long time.
    #[test]
    fn the_most_that_was_asked_for_counts_for_a_while_but_not_what_it_began_with() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        let snapshot = scene.snapshot();
        let mut known = Known::new(&snapshot.tasks[0], &snapshot);
        let mut at = |halves: u64, bytes| {
            let age = Nanos(halves * 500_000_000);
            known.peak(bytes, age, Nanos(snapshot.time.0 + age.0))
        };
        assert_eq!([at(1, 900), at(2, 300), at(3, 400), at(4, 200)], [900, 300, 400, 400]);
        let long = 2 * PEAK.0 / 1_000_000_000;
        assert_eq!([at(long, 200), at(long + 3, 200)], [400, 200]);
    }
}
