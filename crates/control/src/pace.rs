//! How long to wait until the next turn of the loop.
//!
//! Quick while there is something to do, doubling up to a bound without new evidence, once
//! everything has converged, or while others are busy at each look: the loop itself runs on the
//! CPUs it looks after. Listening for faults costs next to nothing, so enough of those end a wait
//! ([`Pace::wakes`]).

use numaherd_model::{EvidenceGrade, Nanos, Waiting};

use crate::calls::Calls;
use crate::calm::Calm;
use crate::controller::Turn;

/// Between turns while something may be to do. Guessed: a tenth of the kernel's scan period.
const QUICK: Nanos = Nanos(100_000_000);
/// After a turn that did something: there may be more of it, and the moved have to run meanwhile. Guessed.
const BRIEF: Nanos = Nanos(20_000_000);
/// Between turns after nothing has happened for long: at least, and where looking is dear, at most.
const SLOW: (Nanos, Nanos) = (Nanos(1_000_000_000), Nanos(5_000_000_000));
/// The latter once all has converged: births, exits, who waits for a CPU and faults end that wait. Guessed.
const SLOWEST: Nanos = Nanos(10_000_000_000);

/// Faults that are worth a look. Guessed: a scan of the kernel's makes more; where one comes now and
/// then, a look for each took a quarter of a CPU (shared).
const WORTH_A_LOOK: usize = 8;

/// Wait after a turn with nothing to do for long, in units of its CPU time: 0.4 % of a CPU.
const SLOW_REST: u64 = 250;

/// Wait after a turn that only looked, in units of its CPU time: a quarter of a CPU at the most. Guessed.
const REST: u64 = 3;

/// That is no longer than this: a look takes ten seconds then. Guessed.
const LONGEST_REST: Nanos = Nanos(30_000_000_000);

/// The waiting times.
#[derive(Clone, Debug)]
pub struct Pace {
    wait: Nanos,
    /// Between turns while something may be to do, and the shortest wait that faults end.
    quick: Nanos,
    soon: Nanos,
    /// The shortest wait, whatever is heard.
    least: Nanos,
    /// CPU time of the turn before.
    before: Nanos,
    /// Whether births ended this wait, and the one before.
    born: (bool, bool),
    /// Tasks that ended, tasks that wait where they are held, and tasks that were born while all had converged.
    exits: Calls,
    queues: Calls,
    births: Calls,
    /// Whether the turn before found others to be busy than the one before it, and that one too.
    renewed: (bool, bool),
}

impl Pace {
    /// The shortest wait that faults end. Guessed: what a turn finds that comes sooner, it finds a part of.
    pub const SOON: Nanos = Nanos(50_000_000);

    /// Starts quick.
    #[must_use]
    pub fn new() -> Pace {
        Pace {
            wait: QUICK,
            quick: QUICK,
            soon: Pace::SOON,
            least: Pace::SOON,
            before: Nanos(0),
            born: (false, false),
            exits: Calls::default(),
            queues: Calls::default(),
            births: Calls::default(),
            renewed: (false, false),
        }
    }

    /// Looks the less often for new evidence the less there is to lose by distance, in thousandths of what there is
    /// where these times were measured: looking costs the same.
    pub fn hurry(&mut self, lost_permille: u64) {
        let longer = |time: Nanos| Nanos((time.0 * 1000 / lost_permille.max(1)).min(SLOW.0.0));
        (self.quick, self.soon) = (longer(QUICK), longer(Pace::SOON));
    }

    /// How long to wait after a turn that acted or not, found this, and used so much CPU time. A turn
    /// that only looked is followed by a wait of several times that: on slow CPUs, looking is dear. One dear turn
    /// does not count: whoever is new is looked at more closely once, and is just what is waited for.
    pub fn next(&mut self, acted: bool, found: Found, used: Nanos) -> Nanos {
        self.born = (false, self.born.0);
        self.renewed = (found == Found::Others, self.renewed.0);
        let rest = |used: Nanos| Nanos(REST * used.0).min(LONGEST_REST);
        let within =
            |most: Nanos| Nanos((SLOW_REST * used.0).clamp(SLOW.0.0, most.0)).max(rest(used));
        let slow = within(SLOW.1);
        for calls in [&mut self.exits, &mut self.queues, &mut self.births] {
            calls.turned(acted, (self.quick, slow));
        }
        // Whoever begins starts others once; who does so all the time is over before it is known.
        let storm = self.is_storm() && !acted;
        let most = match found {
            Found::Unsure => return Pace::SOON,
            Found::Others if storm => slow,
            Found::More | Found::Others => self.quick,
            Found::Nothing => SLOW.0,
            // Whether the others go on, the next looks tell.
            Found::Fewer => {
                self.wait = self.quick.min(self.wait);
                slow
            }
            Found::Converged => within(SLOWEST),
        };
        self.wait = if acted { self.quick } else { Nanos((self.wait.0 * 2).min(most.0)) };
        let usual = used.min(std::mem::replace(&mut self.before, used));
        let least = rest(usual);
        self.least = least.max(if storm { self.wait } else { self.soon });
        self.born.1 |= storm;
        if acted { BRIEF } else { self.wait.max(least) }
    }

    /// Whether others were busy at each of the last looks.
    #[must_use]
    pub fn is_storm(&self) -> bool {
        self.renewed == (true, true)
    }

    /// Whether a wait ends early, after so long, for tasks that were born meanwhile: however dear looking is, but
    /// not two waits running, lest who starts threads all the time be looked at all the time.
    pub fn births_wake(&mut self, waited: Nanos) -> bool {
        self.born.0 = !self.born.1 && waited >= Pace::SOON;
        self.born.0
    }

    /// The same, now, once all has converged: whom those bore that we hold somewhere can run nowhere else until it is set
    /// free. Who starts threads all the time is looked at hardly more often than others.
    pub fn newborn_wake(&mut self, now: Nanos, waited: Nanos) -> bool {
        self.allows(waited) && self.births.wake(now)
    }

    /// Whether a wait may end early after so long, as far as looking is dear.
    #[must_use]
    pub fn allows(&self, waited: Nanos) -> bool {
        waited >= self.least
    }

    /// Whether a wait ends early, now and after so long, for tasks that have ended since the turn.
    pub fn exits_wake(&mut self, now: Nanos, waited: Nanos) -> bool {
        self.allows(waited) && self.exits.wake(now)
    }

    /// Whether a wait ends early, now and after so long, for a task that waits for a CPU where it is held.
    pub fn queues_wake(&mut self, now: Nanos, waited: Nanos) -> bool {
        self.allows(waited) && self.queues.wake(now)
    }

    /// Nobody waits any more: the next who does is worth a look at once.
    pub fn queues_are_calm(&mut self) {
        self.queues = Calls::default();
    }

    /// Whether a wait ends early, after so long and with so many faults heard since the turn.
    #[must_use]
    pub fn wakes(&self, waited: Nanos, heard: usize) -> bool {
        self.allows(waited) && heard >= WORTH_A_LOOK
    }
}

/// What a turn found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// That it takes another look.
    Unsure,
    /// New evidence.
    More,
    /// Hardly more than the turn before: the next will decide the same.
    Nothing,
    /// That others are busy than in the turn before.
    Others,
    /// That a process has fewer busy tasks than in the turn before.
    Fewer,
    /// That all has settled.
    Converged,
}

impl Found {
    /// Reads it from a turn. Of a program that has just begun there is news without a fault: it starts threads, which
    /// page tables are enough to place.
    #[must_use]
    pub fn of(turn: &Turn, calm: &Calm) -> Found {
        let by_faults = turn.snapshot.grade == EvidenceGrade::HintingFaults;
        let samples = if calm.is_calm() { 0 } else { turn.samples };
        match (turn.is_settled(), turn.faults + samples < WORTH_A_LOOK) {
            _ if turn.plan.waiting == Some(Waiting::Look) => Found::Unsure,
            _ if turn.renewed => Found::Others,
            _ if turn.has_fewer() => Found::Fewer,
            (true, _) => Found::Converged,
            (_, true) if by_faults && !turn.has_just_begun() => Found::Nothing,
            _ => Found::More,
        }
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
        assert_eq!(pace.next(false, Found::More, none), QUICK);
        let waits: Vec<u64> =
            (0..6).map(|_| pace.next(false, Found::Converged, none).0 / 1_000_000).collect();
        assert_eq!(waits, [200, 400, 800, 1000, 1000, 1000]);
        assert_eq!(pace.next(false, Found::More, none), QUICK);
    }

    #[test]
    fn without_new_evidence_looks_become_fewer_until_there_is_some() {
        let mut pace = Pace::new();
        let mut waits = |found| pace.next(false, found, Nanos(0)).0 / 1_000_000;
        let nothing: Vec<u64> = (0..5).map(|_| waits(Found::Nothing)).collect();
        assert_eq!(nothing, [200, 400, 800, 1000, 1000]);
        assert_eq!(waits(Found::More), 100);
    }

    #[test]
    fn enough_faults_end_a_wait_that_was_long_enough() {
        let mut pace = Pace::new();
        let millis = |n: u64| Nanos(n * 1_000_000);
        pace.next(false, Found::Nothing, millis(1));
        assert!(pace.wakes(millis(50), 8));
        assert!(!pace.wakes(millis(49), 8) && !pace.wakes(millis(50), 7));
        // looking took 60 ms, once
        pace.next(false, Found::Nothing, millis(60));
        assert!(pace.wakes(millis(50), 8));
        // and again: a quarter of a CPU at the most
        pace.next(false, Found::Nothing, millis(60));
        assert!(!pace.wakes(millis(179), 100) && pace.wakes(millis(180), 100));
    }

    #[test]
    fn births_end_a_wait_however_dear_looking_is_but_not_two_running() {
        let mut pace = Pace::new();
        let long = Nanos(90_000_000);
        (0..2).for_each(|_| _ = pace.next(false, Found::More, long));
        assert!(!pace.births_wake(Nanos(49_000_000)) && pace.births_wake(Pace::SOON));
        pace.next(false, Found::More, long);
        assert!(!pace.births_wake(Pace::SOON));
        pace.next(false, Found::More, long);
        assert!(pace.births_wake(Pace::SOON));
    }

    #[test]
    fn births_end_a_wait_once_all_has_converged_but_not_each() {
        let mut pace = Pace::new();
        let ended = |pace: &mut Pace, at: u64| {
            let ends = pace.newborn_wake(Nanos(at * 1_000_000), Pace::SOON);
            pace.next(false, Found::Converged, Nanos(0));
            ends
        };
        assert!(!pace.newborn_wake(Nanos(0), Nanos(Pace::SOON.0 - 1)));
        let all: Vec<u64> = (0..80).map(|n| 50 * n).filter(|at| ended(&mut pace, *at)).collect();
        assert_eq!(all, [0, 100, 300, 700, 1500, 2500, 3500]);
        // After a while in which nobody was born.
        assert!(ended(&mut pace, 9000));
    }

    #[test]
    fn a_storm_of_short_processes_is_looked_at_less_and_less() {
        let mut pace = Pace::new();
        let long = Nanos(20_000_000);
        let mut waits = |found| pace.next(false, found, long).0 / 1_000_000;
        let storm: Vec<u64> = (0..8).map(|_| waits(Found::Others)).collect();
        assert_eq!(storm, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(waits(Found::More), 100);
        assert!(!pace.is_storm());
        let mut waits = |found| pace.next(false, found, long).0 / 1_000_000;
        assert_eq!([Found::Others, Found::Others].map(&mut waits), [100, 200]);
        // Nothing ends such a wait: it would be news of those who are gone.
        assert!(!pace.wakes(Nanos(199_000_000), 1000));
        assert!(pace.is_storm() && !pace.births_wake(Nanos(199_000_000)));
    }

    #[test]
    fn where_there_is_little_to_lose_looks_are_rarer_but_births_end_a_wait_as_soon() {
        let mut pace = Pace::new();
        pace.hurry(250);
        let none = Nanos(0);
        assert_eq!(pace.next(false, Found::More, none), Nanos(200_000_000), "doubles");
        assert_eq!(pace.next(false, Found::More, none), Nanos(400_000_000));
        assert_eq!(pace.next(false, Found::More, none), Nanos(400_000_000));
        assert!(!pace.wakes(Nanos(199_000_000), 100) && pace.wakes(Nanos(200_000_000), 8));
        assert!(pace.births_wake(Pace::SOON));
        assert_eq!(pace.next(true, Found::More, none), BRIEF);
        let rare = (0..9).map(|_| pace.next(false, Found::Nothing, none)).max();
        assert_eq!(rare, Some(SLOW.0));
        pace.hurry(1000);
        assert_eq!(pace.next(false, Found::More, none), QUICK);
    }

    #[test]
    fn another_look_follows_soon() {
        let mut pace = Pace::new();
        (0..4).for_each(|_| _ = pace.next(false, Found::Nothing, Nanos(0)));
        assert_eq!(pace.next(false, Found::Unsure, Nanos(0)), Pace::SOON);
        assert_eq!(pace.next(false, Found::Nothing, Nanos(0)), SLOW.0);
    }

    #[test]
    fn with_nothing_to_do_dear_looks_become_rare() {
        let mut pace = Pace::new();
        let mut waits = |used| {
            (0..8).map(|_| pace.next(false, Found::Converged, Nanos(used)).0 / 1_000_000).max()
        };
        assert_eq!(waits(4_000_000), Some(1000));
        // 12 ms: 0.4 % of 3 s
        assert_eq!(waits(12_000_000), Some(3000));
        assert_eq!(waits(30_000_000), Some(7500));
        assert_eq!(waits(90_000_000), Some(10_000));
        // A look of four seconds is not to take nearly half of a CPU then, either.
        assert_eq!(waits(4_000_000_000), Some(12_000));
    }

    #[test]
    fn looking_takes_a_quarter_of_a_cpu_at_the_most_and_acting_is_not_slowed() {
        let mut pace = Pace::new();
        let long = Nanos(90_000_000);
        assert_eq!(pace.next(false, Found::More, long), QUICK, "the first");
        assert_eq!(pace.next(false, Found::More, long), Nanos(270_000_000));
        assert_eq!(pace.next(true, Found::More, long), BRIEF);
        let longer = Nanos(900_000_000);
        assert_eq!(pace.next(false, Found::More, longer), Nanos(270_000_000), "once");
        assert_eq!(pace.next(false, Found::More, longer), Nanos(2_700_000_000));
        let longest = Nanos(20_000_000_000);
        (0..2).for_each(|_| _ = pace.next(false, Found::More, longest));
        assert_eq!(pace.next(false, Found::More, longest), LONGEST_REST);
    }
}
