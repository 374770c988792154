//! Whether tasks that end, or wait for a CPU where they are held, are worth a look.
//!
//! When some of a program's tasks have ended, memory that they shared with the others is those others' alone, and
//! their CPUs are free. While looks are rare, once all has converged, nobody would see that for seconds: of four
//! threads that outlive four others by three seconds, each goes over half of what they shared from afar to the end
//! (`shared` in the lab). But a server whose threads come and go is not to be looked at each time. So a look for those that
//! ended which led to nothing is followed by the next no sooner than a while later, twice as long each time. The same goes
//! for tasks that wait: where all CPUs are taken there is nowhere to let them go.
//!
//! Example: of threads that end all the time, with nothing to gain, some are looked at after 0, 0.1, 0.3, 0.7, 1.5 and 3.1 s,
//! and then every 2 s where that is how often it looks anyway. Where pages or tasks were moved, the next ones that end are
//! looked at again.

use numaherd_model::Nanos;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// When they ended a wait last.
    last: Option<Nanos>,
    /// For how long after that they do not.
    rest: Nanos,
    /// Whether they ended the last wait.
    woke: bool,
}

impl Calls {
    /// Whether a wait ends now, for tasks that have ended, or waited, since the last look.
    pub fn wake(&mut self, now: Nanos) -> bool {
        self.woke = self.last.is_none_or(|last| now.since(last) >= self.rest);
        if self.woke {
            // Nobody was in the way for long: it begins anew.
            let long_ago = |last: Nanos| now.since(last) > Nanos(self.rest.0 * 2);
            if self.last.is_some_and(long_ago) {
                self.rest = Nanos(0);
            }
            self.last = Some(now);
        }
        self.woke
    }

    /// What the turn after a wait came to: it acted, or it did not; and how long waits are, at the least and at the most.
    pub fn turned(&mut self, acted: bool, (least, most): (Nanos, Nanos)) {
        if std::mem::take(&mut self.woke) {
            let longer = Nanos((self.rest.0 * 2).clamp(least.0, most.0.max(least.0)));
            self.rest = if acted { Nanos(0) } else { longer };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: (Nanos, Nanos) = (Nanos(100), Nanos(2000));

    /// Moments at which a look is taken, of these at which tasks end, if looks act or not.
    fn looks(moments: impl IntoIterator<Item = u64>, acts: bool) -> Vec<u64> {
        let mut calls = Calls::default();
        let mut look = |&now: &u64| {
            let wakes = calls.wake(Nanos(now));
            calls.turned(acts, LIMITS);
            wakes
        };
        moments.into_iter().filter(|now| look(now)).collect()
    }

    #[test]
    fn those_that_end_all_the_time_are_looked_at_as_seldom_as_others() {
        let all = || (0..80).map(|n| n * 100);
        assert_eq!(looks(all(), false), [0, 100, 300, 700, 1500, 3100, 5100, 7100]);
        assert_eq!(looks(all(), true).len(), 80, "each of them led to something");
    }

    #[test]
    fn after_a_while_without_any_it_begins_anew() {
        assert_eq!(
            looks([0, 100, 150, 300, 600, 2000, 2100, 2150], false),
            [0, 100, 300, 2000, 2100]
        );
    }

    #[test]
    fn turns_after_other_waits_say_nothing_of_those_that_end() {
        let mut calls = Calls::default();
        assert!(calls.wake(Nanos(0)));
        calls.turned(false, LIMITS);
        (0..9).for_each(|_| calls.turned(false, LIMITS));
        assert!(!calls.wake(Nanos(99)) && calls.wake(Nanos(100)));
        calls.turned(true, LIMITS);
        assert!(calls.wake(Nanos(100)));
    }
}
