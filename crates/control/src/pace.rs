//! How long to wait until the next turn of the loop.
//!
//! Quick while there is something to do, doubling up to a bound once everything has converged:
//! the loop itself runs on the CPUs it looks after. A turn that finds the placement no longer
//! converged is quick again.

use numaherd_model::Nanos;

/// Between turns while something may be to do. Guessed: a tenth of the kernel's scan period.
const QUICK: Nanos = Nanos(100_000_000);
/// After a turn that did something: there may be more of it, and the moved have to run meanwhile. Guessed.
const BRIEF: Nanos = Nanos(20_000_000);
/// Between turns after nothing has happened for long: at least, and where looking is dear, at most.
const SLOW: (Nanos, Nanos) = (Nanos(1_000_000_000), Nanos(5_000_000_000));

/// Wait after a turn with nothing to do for long, in units of its CPU time: 0.4 % of a CPU.
const SLOW_REST: u64 = 250;

/// Wait after a turn that only looked, in units of its CPU time: a quarter of a CPU at the most. Guessed.
const REST: u64 = 3;

/// The waiting times.
#[derive(Clone, Debug)]
pub struct Pace {
    wait: Nanos,
}

impl Pace {
    /// Starts quick.
    #[must_use]
    pub fn new() -> Pace {
        Pace { wait: QUICK }
    }

    /// How long to wait after a turn that acted or not, converged or not, and used so much CPU
    /// time. A turn that only looked is followed by a wait of several times that: on slow CPUs,
    /// looking is dear.
    pub fn next(&mut self, acted: bool, converged: bool, used: Nanos) -> Nanos {
        let slow = Nanos((SLOW_REST * used.0).clamp(SLOW.0.0, SLOW.1.0));
        self.wait = if converged && !acted { Nanos((self.wait.0 * 2).min(slow.0)) } else { QUICK };
        if acted { BRIEF } else { Nanos(self.wait.0.max((REST * used.0).min(SLOW.0.0))) }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Pace::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_slows_down_when_converged_and_wakes_up() {
        let mut pace = Pace::new();
        let none = Nanos(0);
        assert_eq!(pace.next(false, false, none), QUICK);
        let waits: Vec<u64> = (0..6).map(|_| pace.next(false, true, none).0 / 1_000_000).collect();
        assert_eq!(waits, [200, 400, 800, 1000, 1000, 1000]);
        assert_eq!(pace.next(false, false, none), QUICK);
    }

    #[test]
    fn with_nothing_to_do_dear_looks_become_rare() {
        let mut pace = Pace::new();
        let mut waits =
            |used| (0..8).map(|_| pace.next(false, true, Nanos(used)).0 / 1_000_000).max();
        assert_eq!(waits(4_000_000), Some(1000));
        // 12 ms: 0.4 % of 3 s
        assert_eq!(waits(12_000_000), Some(3000));
        assert_eq!(waits(90_000_000), Some(5000));
    }

    #[test]
    fn looking_takes_a_quarter_of_a_cpu_at_the_most_and_acting_is_not_slowed() {
        let mut pace = Pace::new();
        let long = Nanos(90_000_000);
        assert_eq!(pace.next(false, false, long), Nanos(270_000_000));
        assert_eq!(pace.next(true, false, long), BRIEF);
        assert_eq!(pace.next(false, false, Nanos(900_000_000)), SLOW.0);
    }
}
