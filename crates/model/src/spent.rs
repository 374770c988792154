//! How a task spends its time of late: running, and waiting for a CPU.

use crate::Nanos;

/// No share is taken over less. Guessed: some turns of a few tasks on one CPU, so that who has just waited for his
/// is not idle; and less than the shortest wait of a look that is to tell who is busy now.
const LEAST: Nanos = Nanos(40_000_000);

/// A task's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// When.
    pub at: Nanos,
    /// CPU time since it began.
    pub ran: Nanos,
    /// Time that it was runnable without running since it began.
    pub waited: Nanos,
}

impl Counters {
    /// Per mille of the time since `before` that it ran, and that it waited.
    fn since(&self, before: &Counters) -> (u32, u32) {
        let all = self.at.since(before.at).0.max(1);
        let permille = |time: Nanos| (time.0 * 1000 / all).min(1000) as u32;
        (permille(self.ran.since(before.ran)), permille(self.waited.since(before.waited)))
    }
}

/// Of which looks at a task's counters the next is compared with one.
///
/// Looks may come soon after each other; then each tells of the time since the last one but some.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    before: Counters,
    last: Counters,
}

impl Spent {
    /// Of a task that began then, and is seen for the first time: over its whole life.
    #[must_use]
    pub fn born(at: Nanos) -> Spent {
        let born = Counters { at, ..Counters::default() };
        Spent { before: born, last: born }
    }

    /// Per mille of the time of late that it ran, and that it waited for a CPU.
    pub fn see(&mut self, now: Counters) -> (u32, u32) {
        if now.at.since(self.last.at) >= LEAST {
            self.before = std::mem::replace(&mut self.last, now);
        }
        now.since(&self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, ran: u64, waited: u64) -> Counters {
        let [at, ran, waited] = [ms, ran, waited].map(|ms| Nanos(ms * 1_000_000));
        Counters { at, ran, waited }
    }

    #[test]
    fn shares_are_of_the_time_since_the_last_look_and_at_first_of_its_life() {
        let mut spent = Spent::born(at(1000, 0, 0).at);
        assert_eq!(spent.see(at(1200, 50, 100)), (250, 500));
        assert_eq!(spent.see(at(1300, 150, 100)), (1000, 0));
        assert_eq!(spent.see(at(1400, 150, 150)), (0, 500));
    }

    #[test]
    fn a_look_soon_after_another_tells_of_the_time_since_the_one_before() {
        let mut spent = Spent::born(Nanos(0));
        spent.see(at(100, 50, 50));
        // It has just had its turn, and then waits for the next: both are a half.
        assert_eq!(spent.see(at(120, 70, 50)), (583, 416));
        assert_eq!(spent.see(at(139, 70, 69)), (503, 496));
        // 100 ms after the first look that counted.
        assert_eq!(spent.see(at(200, 100, 100)), (500, 500));
        assert_eq!(spent.see(at(220, 100, 120)), (416, 583));
    }
}
