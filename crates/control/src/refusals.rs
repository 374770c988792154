//! Which memory could not be moved of late, so that it is not tried again at once.
//!
//! What to wait follows from why pages stayed. Pages that were in use for a moment are soon free;
//! those held for long (by a device, by direct I/O) look the same to whoever asks, so each further
//! refusal doubles the wait. A node without room needs reclaim to do its work. Pages that other
//! processes map too stay as long as these do. What is held where it is, by a device of one of those or since its huge pages
//! would be split, is waited for likewise, and its tasks have to come to it meanwhile. And a process that is left alone as a whole rests
//! as a whole: its tasks have to come to its memory. A node that its memory may not be on is none to send it to, for as
//! long as it lives.
//!
//! Example: a region of which 200 of 512 pages are busy waits 1 s; if 150 are still busy then, 2 s,
//! and so on up to a minute; once less than one in twenty stays, it is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_model::{Action, Nanos, NodeId, Outcome, ProcessId, RegionId, SkipReason, Snapshot};

const SECOND: u64 = 1_000_000_000;

/// First and longest waits. Guessed: a pause between two tries that costs next to nothing, and a
/// time after which the world is another.
const BUSY: (Nanos, Nanos) = (Nanos(SECOND), Nanos(60 * SECOND));
const FULL: (Nanos, Nanos) = (Nanos(2 * SECOND), Nanos(60 * SECOND));
const SHARED: (Nanos, Nanos) = (Nanos(60 * SECOND), Nanos(600 * SECOND));
const HELD: (Nanos, Nanos) = (Nanos(120 * SECOND), Nanos(1920 * SECOND));
const LEFT_ALONE: (Nanos, Nanos) = (Nanos(30 * SECOND), Nanos(30 * SECOND));

/// See the module.
#[derive(Debug, Default)]
pub struct Refusals {
    regions: BTreeMap<RegionId, Rest>,
    processes: BTreeMap<ProcessId, Rest>,
    /// Nodes that the kernel does not let a process's memory go to, for as long as that lives.
    forbidden: BTreeSet<(ProcessId, NodeId)>,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Nanos,
    wait: Nanos,
    /// Whether it stays where it is until then.
    held: bool,
}

impl Refusals {
    /// Learns from what became of an action.
    pub fn learn(&mut self, action: &Action, outcome: &Outcome, now: Nanos) {
        let Action::MovePages { region, to, .. } = action else { return };
        if let Outcome::Skipped(SkipReason::Forbidden { .. }) = outcome {
            self.forbidden.insert((region.process, *to));
        }
        if let Outcome::Skipped(SkipReason::LeftAlone { .. }) = outcome {
            rest(&mut self.processes, region.process, LEFT_ALONE, now);
        }
        match waits(outcome) {
            Some(waits) => {
                let rest = rest(&mut self.regions, *region, waits, now);
                rest.held = matches!(outcome, Outcome::Skipped(SkipReason::Held { .. }));
            }
            None => _ = self.regions.remove(region),
        }
    }

    /// Marks the regions that rest, and forgets those that are no more.
    pub fn fill(&mut self, snapshot: &mut Snapshot) {
        let now = snapshot.time;
        self.forbid(snapshot);
        self.processes.retain(|_, rest| rest.until > now);
        if self.regions.is_empty() && self.processes.is_empty() {
            return;
        }
        self.regions.retain(|region, _| snapshot.region(*region).is_some());
        for region in &mut snapshot.regions {
            let own = self.regions.get(&region.id).filter(|rest| rest.until > now);
            region.stays |= own.is_some_and(|rest| rest.held);
            region.stays |= self.processes.contains_key(&region.id.process);
            region.rests = own.is_some() || region.stays;
        }
    }

    /// Adds what was refused for good to what cpusets forbid. What they do forbid by now needs no remembering: if they
    /// allow it one day, it may be tried again.
    fn forbid(&mut self, snapshot: &mut Snapshot) {
        if self.forbidden.is_empty() {
            return;
        }
        let alive: BTreeSet<ProcessId> = snapshot.tasks.iter().map(|task| task.process).collect();
        self.forbidden.retain(|(process, node)| {
            alive.contains(process) && snapshot.allows_memory(*process, *node)
        });
        for (process, node) in &self.forbidden {
            snapshot.forbid_memory(*process, *node);
        }
    }
}

fn rest<K: Ord>(
    all: &mut BTreeMap<K, Rest>,
    who: K,
    (first, longest): (Nanos, Nanos),
    now: Nanos,
) -> &mut Rest {
    let begin = Rest { until: now, wait: Nanos(first.0 / 2), held: false };
    let rest = all.entry(who).or_insert(begin);
    rest.wait = Nanos((rest.wait.0 * 2).clamp(first.0, longest.0));
    rest.until = Nanos(now.0 + rest.wait.0);
    rest
}

/// The first and the longest wait that an outcome asks for; none if it went well.
fn waits(outcome: &Outcome) -> Option<(Nanos, Nanos)> {
    match outcome {
        outcome if outcome.is_as_good_as_done() => None,
        Outcome::Partial { refused, .. } => {
            if refused.full > 0 {
                Some(FULL)
            } else if refused.shared >= refused.busy + refused.other {
                Some(SHARED)
            } else {
                Some(BUSY)
            }
        }
        Outcome::Skipped(SkipReason::Refused { .. } | SkipReason::Checked { .. }) => Some(FULL),
        Outcome::Skipped(SkipReason::LeftAlone { .. }) => Some(LEFT_ALONE),
        Outcome::Skipped(SkipReason::Held { .. }) => Some(HELD),
        Outcome::Skipped(_) | Outcome::Done { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::{PROCESS, Scene};
    use numaherd_model::{Bytes, Pages, Reason, Refusal};

    fn scene() -> Scene {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        (0..2).for_each(|r| scene.region(r, &[(1, 100)], &[(1, 512)]));
        scene
    }

    fn move_of(region: usize) -> Action {
        Action::MovePages {
            region: scene().edit().regions[region].id,
            len: Bytes(2 << 20),
            to: NodeId(0),
            pages: Pages(512),
            reason: Reason::UsersThere { permille: 1000 },
        }
    }

    /// Which of the two regions rest, some seconds on.
    fn rests(refusals: &mut Refusals, seconds: u64) -> [bool; 2] {
        let mut snapshot = scene().snapshot();
        snapshot.time = Nanos(seconds * SECOND);
        refusals.fill(&mut snapshot);
        [snapshot.regions[0].rests, snapshot.regions[1].rests]
    }

    fn partial(moved: u64, refused: Refusal) -> Outcome {
        Outcome::Partial { moved: Pages(moved), refused }
    }

    #[test]
    fn each_further_refusal_doubles_the_wait_and_success_ends_it() {
        let mut refusals = Refusals::default();
        let busy = |busy| Refusal { busy, ..Refusal::default() };
        let mut learn = |outcome: &Outcome, at: u64| {
            refusals.learn(&move_of(0), outcome, Nanos(at * SECOND));
            let until = (at..at + 100).find(|&second| !rests(&mut refusals, second)[0]);
            until.unwrap() - at
        };
        let waited: Vec<u64> =
            (0..8).map(|nth| learn(&partial(100, busy(200)), 100 * nth)).collect();
        assert_eq!(waited, [1, 2, 4, 8, 16, 32, 60, 60]);
        // 500 of 512 went: the rest are stragglers.
        assert_eq!(learn(&partial(500, busy(12)), 900), 0);
        assert_eq!(learn(&partial(100, busy(200)), 950), 1);
    }

    #[test]
    fn who_shares_or_has_no_room_waits_longer() {
        let mut refusals = Refusals::default();
        let shared = Refusal { shared: 300, busy: 20, ..Refusal::default() };
        refusals.learn(&move_of(0), &partial(1, shared), Nanos(0));
        let full = Refusal { full: 300, ..Refusal::default() };
        refusals.learn(&move_of(1), &partial(1, full), Nanos(0));
        assert_eq!(rests(&mut refusals, 1), [true, true]);
        assert_eq!(rests(&mut refusals, 59), [true, false]);
        assert_eq!(rests(&mut refusals, 60), [false, false]);
    }

    #[test]
    fn a_process_left_alone_rests_whole() {
        let mut refusals = Refusals::default();
        let why = SkipReason::LeftAlone { why: "it has a userfaultfd".into() };
        refusals.learn(&move_of(0), &Outcome::Skipped(why), Nanos(0));
        assert!(refusals.processes.contains_key(&PROCESS));
        assert_eq!(rests(&mut refusals, 29), [true, true]);
        assert_eq!(rests(&mut refusals, 30), [false, false]);
    }

    /// As of huge pages that would be split, or memory that somebody's device writes to.
    #[test]
    fn what_is_held_stays_and_its_tasks_are_drawn_to_it() {
        let mut refusals = Refusals::default();
        let why = SkipReason::Held { why: "process 9 maps it too: it has VFIO open".into() };
        refusals.learn(&move_of(0), &Outcome::Skipped(why), Nanos(0));
        let mut stays = |seconds: u64| {
            let mut snapshot = scene().snapshot();
            snapshot.time = Nanos(seconds * SECOND);
            refusals.fill(&mut snapshot);
            [0, 1].map(|nth| (snapshot.regions[nth].stays, snapshot.regions[nth].rests))
        };
        assert_eq!(stays(119), [(true, true), (false, false)]);
        assert_eq!(stays(120), [(false, false); 2]);
        // Refused for a moment it is none of that.
        let busy = Refusal { busy: 200, ..Refusal::default() };
        refusals.learn(&move_of(0), &partial(100, busy), Nanos(200 * SECOND));
        let mut snapshot = scene().snapshot();
        snapshot.time = Nanos(201 * SECOND);
        refusals.fill(&mut snapshot);
        assert!(snapshot.regions[0].rests && !snapshot.regions[0].stays);
    }

    #[test]
    fn what_its_cpuset_forbids_is_not_tried_again() {
        let mut refusals = Refusals::default();
        let forbidden = Outcome::Skipped(SkipReason::Forbidden { node: NodeId(0) });
        refusals.learn(&move_of(0), &forbidden, Nanos(0));
        let mut snapshot = scene().snapshot();
        snapshot.time = Nanos(1_000_000 * SECOND);
        refusals.fill(&mut snapshot);
        assert!(!snapshot.allows_memory(PROCESS, NodeId(0)));
        assert!(snapshot.allows_memory(PROCESS, NodeId(1)) && !snapshot.regions[0].rests);
        // By now it is known of the cpuset, and nothing more when that has changed again.
        refusals.fill(&mut snapshot);
        let mut allowed = scene().snapshot();
        refusals.fill(&mut allowed);
        assert!(allowed.allows_memory(PROCESS, NodeId(0)));
        refusals.learn(&move_of(0), &forbidden, Nanos(0));
        allowed.tasks.clear();
        refusals.fill(&mut allowed);
        assert!(refusals.forbidden.is_empty(), "it has ended");
    }
}
