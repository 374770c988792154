//! Whom herd waits for before it places anybody.
//!
//! Where half of a load is not known yet, the half that is would be placed as if it had the machine for itself.
//! So herd waits until most who are busy have shown where their memory is, and whether they share it; for
//! nobody longer than [`PATIENCE`]. Where others come all the time and end before that (a build, a shell's
//! script, a server with a process for each request), there is always somebody to wait for. So those who are
//! known are not held up for longer than that either.
//!
//! Example: five busy tasks, all known after a second, and a parent's children, of whom three to eight are busy at
//! any time, none for longer than two seconds. Without the second bound nobody was placed in 40 s; with it, the
//! five are after five seconds.

use numaherd_model::{EvidenceGrade, Nanos, Snapshot, Waiting};

use super::{Herd, PATIENCE};
use crate::bundles::Busy;
use crate::demand::{Demand, MIN_FAULTS};
use crate::sharing;

/// Busy tasks that must have evidence before anybody is placed, per mille.
const ENOUGH_KNOWN_PERMILLE: u64 = 750;

impl Herd {
    /// What herd waits for, unless those who are known have been held up for long enough.
    pub(super) fn waits(&mut self, demand: &Demand, snapshot: &Snapshot) -> Option<Waiting> {
        let now = snapshot.time;
        let waiting = self.waits_for(demand, snapshot);
        // Where nobody is known, nobody is held up.
        let holds_up = !matches!(waiting, None | Some(Waiting::Evidence { known: 0, .. }));
        self.held_up_since = holds_up.then(|| self.held_up_since.unwrap_or(now));
        let is_enough = |since: Nanos| now.since(since) >= PATIENCE;
        waiting.filter(|_| !self.held_up_since.is_some_and(is_enough))
    }

    /// Evidence of most busy tasks, and for each process with several of them, whether they
    /// share their memory. Tasks that have long shown neither are not waited for.
    fn waits_for(&self, demand: &Demand, snapshot: &Snapshot) -> Option<Waiting> {
        let mut together: Vec<Busy> = Vec::new();
        let (mut known, mut busy) = (0, 0);
        for (i, task) in demand.tasks.iter().enumerate().filter(|(_, task)| task.claims_cpu) {
            let has_evidence = task.evidence >= MIN_FAULTS;
            let new = self.known_for(i, snapshot.time) < PATIENCE;
            known += u64::from(has_evidence);
            busy += u64::from(has_evidence || new);
            if new {
                together.push((snapshot.tasks[i].process, i));
            }
        }
        if known == 0 || known * 1000 < busy * ENOUGH_KNOWN_PERMILLE {
            return Some(Waiting::Evidence { known, busy });
        }
        if snapshot.grade != EvidenceGrade::HintingFaults {
            return None;
        }
        together.sort_unstable();
        let process = sharing::unknown(snapshot, &together).next()?;
        let pairs = snapshot.sharing_of(process).map_or(0, |sharing| sharing.samples);
        Some(Waiting::Sharing { process, pairs })
    }
}

#[cfg(test)]
mod tests {
    use numaherd_model::Placement as _;
    use numaherd_model::scene::Scene;

    use super::*;

    /// Four with memory on the wrong node; every second the children of before are others.
    struct Load(Scene);

    impl Load {
        fn new() -> Load {
            let mut scene = Scene::two_by_four();
            for tid in 1..=4 {
                scene.task(tid, tid - 1, 1000);
                scene.region(u64::from(tid), &[(tid, 400)], &[(1, 512)]);
            }
            Load(scene)
        }

        /// Another second, with so many children.
        fn second(&mut self, children: u32) -> Snapshot {
            let now = self.0.snapshot().time.0;
            self.0.edit().tasks.truncate(4);
            let first = 10 + (now / 1_000_000_000) as u32 * 10;
            (0..children).for_each(|n| self.0.task(first + n, 4 + n % 4, 1000));
            self.0.edit().time.0 += 1_000_000_000;
            self.0.snapshot()
        }
    }

    #[test]
    fn those_who_come_all_the_time_hold_up_nobody_for_long() {
        let (mut load, mut herd) = (Load::new(), Herd::new());
        for second in 0..20 {
            let plan = herd.decide(&load.second(4));
            let waits = plan.waiting.is_some();
            assert_eq!(waits, second < 4, "{second}: {plan:?}");
            assert_eq!(plan.actions.is_empty(), waits, "{second}: {plan:?}");
        }
    }

    #[test]
    fn whoever_comes_later_is_waited_for_again() {
        let (mut load, mut herd) = (Load::new(), Herd::new());
        let mut waits = |children| herd.decide(&load.second(children)).waiting.is_some();
        assert!((0..4).all(|_| waits(4)) && !waits(4));
        assert!(!waits(0), "nobody came");
        assert!((0..4).all(|_| waits(4)) && !waits(4));
    }

    #[test]
    fn where_nobody_is_known_nobody_is_held_up() {
        let (mut load, mut herd) = (Load::new(), Herd::new());
        let regions = std::mem::take(&mut load.0.edit().regions);
        let mut waits = |load: &mut Load| herd.decide(&load.second(4)).waiting.is_some();
        assert!((0..20).all(|_| waits(&mut load)));
        load.0.edit().regions = regions;
        assert!((0..4).all(|_| waits(&mut load)) && !waits(&mut load));
    }
}
