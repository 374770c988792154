//! How a task spends its time of late: running, and waiting for a CPU.

use crate::Nanos;

/// No share is taken over less. Guessed: some turns of a few tasks on one CPU, so that who has just waited for his
/// is not idle; and less than the shortest wait of a look that is to tell who is busy now.
const LEAST: Nanos = Nanos(40_000_000);

/// What is usual is taken over as long, and up to twice that. Guessed: several garbage collections, and requests of a
/// server; and a place is kept for as long after a task has nothing more to do.
const LONG: Nanos = Nanos(2_000_000_000);

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
    #[must_use]
    pub fn since(&self, before: &Counters) -> (u32, u32) {
        let all = self.at.since(before.at).0.max(1);
        let permille = |time: Nanos| (time.0 * 1000 / all).min(1000) as u32;
        (permille(self.ran.since(before.ran)), permille(self.waited.since(before.waited)))
    }
}

/// Two looks, a while apart: what comes after is compared with the earlier, until another is as long after the later.
#[derive(Clone, Copy, Debug)]
struct Window {
    before: Counters,
    last: Counters,
}

impl Window {
    fn new(at: Counters) -> Window {
        Window { before: at, last: at }
    }

    fn see(&mut self, now: Counters, apart: Nanos) {
        if now.at.since(self.last.at) >= apart {
            self.before = std::mem::replace(&mut self.last, now);
        }
    }
}

/// Of which looks at a task's counters the next is compared with one.
///
/// Looks may come soon after each other; then each tells of the time since the last one but some. But who sleeps, and
/// has done nothing since the last look, does nothing now, whatever it did before.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    short: Window,
    /// What it had run and waited at the last look of all.
    seen: (Nanos, Nanos),
    /// For what is usual, from the first look on.
    long: Option<Window>,
}

impl Spent {
    /// Of a task that began then, and is seen for the first time: over its whole life.
    #[must_use]
    pub fn born(at: Nanos) -> Spent {
        let born = Counters { at, ..Counters::default() };
        Spent { short: Window::new(born), seen: (Nanos(0), Nanos(0)), long: None }
    }

    /// The next looks are compared with what it had spent then, not with looks before.
    pub fn start_at(&mut self, then: Counters) {
        self.short = Window::new(then);
    }

    /// Per mille of the time of late that it ran, and that it waited for a CPU; `sleeps` is whether it does neither.
    pub fn see(&mut self, now: Counters, sleeps: bool) -> (u32, u32) {
        let seen = std::mem::replace(&mut self.seen, (now.ran, now.waited));
        self.long.get_or_insert(Window::new(now)).see(now, LONG);
        let does_nothing = sleeps && seen == self.seen;
        self.short.see(now, LEAST);
        if does_nothing { (0, 0) } else { now.since(&self.short.before) }
    }

    /// Per mille of the last seconds that it ran or waited for a CPU; `None` where they are not known.
    #[must_use]
    pub fn usual(&self, now: Counters) -> Option<u32> {
        let from =
            self.long.map(|long| long.before).filter(|from| now.at.since(from.at) >= LONG)?;
        let (ran, waited) = now.since(&from);
        Some((ran + waited).min(1000))
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
        assert_eq!(spent.see(at(1200, 50, 100), false), (250, 500));
        assert_eq!(spent.see(at(1300, 150, 100), false), (1000, 0));
        assert_eq!(spent.see(at(1400, 150, 150), false), (0, 500));
    }

    #[test]
    fn a_look_soon_after_another_tells_of_the_time_since_the_one_before() {
        let mut spent = Spent::born(Nanos(0));
        spent.see(at(100, 50, 50), false);
        // It has just had its turn, and then waits for the next: both are a half.
        assert_eq!(spent.see(at(120, 70, 50), false), (583, 416));
        assert_eq!(spent.see(at(139, 70, 69), false), (503, 496));
        // Whoever sleeps now and did something since is not idle.
        assert_eq!(spent.see(at(139, 70, 70), true), (503, 503));
        // 100 ms after the first look that counted.
        assert_eq!(spent.see(at(200, 100, 100), false), (500, 500));
        assert_eq!(spent.see(at(220, 100, 120), false), (416, 583));
    }

    /// It runs for a second, sleeps for a third of one, runs again, and has nothing to do from 6 s on.
    #[test]
    fn what_is_usual_is_of_seconds_and_not_of_what_was_before_it_was_known() {
        let mut spent = Spent::born(Nanos(0));
        let (mut ran, mut usual) = (0, Vec::new());
        for tenth in 200..=320_u64 {
            let runs = tenth < 260 && tenth % 13 < 10;
            ran += if runs { 100 } else { 0 };
            let now = at(tenth * 100, ran, 0);
            spent.see(now, !runs);
            usual.push(spent.usual(now));
        }
        assert!(usual[..20].iter().all(Option::is_none), "{usual:?}");
        let known: Vec<u32> = usual[20..].iter().map(|one| one.unwrap()).collect();
        assert!(known[..40].iter().all(|one| (600..900).contains(one)), "{known:?}");
        assert_eq!(known[60..], [0; 41], "{known:?}");
    }

    #[test]
    fn who_sleeps_since_the_last_look_does_nothing_now() {
        let mut spent = Spent::born(Nanos(0));
        assert_eq!(spent.see(at(200, 200, 0), true), (1000, 0));
        assert_eq!(spent.see(at(220, 200, 0), true), (0, 0));
        // In a queue all the time, of which the kernel tells when it has ended.
        assert_eq!(spent.see(at(230, 200, 0), false), (869, 0));
    }
}
