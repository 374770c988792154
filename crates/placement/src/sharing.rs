//! How far tasks share memory, where too few faults tell: what would follow if they share all of it.
//!
//! Herd takes such memory, once it has waited long enough, to be private to the tasks that were seen in it,
//! and all of that could be local. If the tasks share it instead, those on another node than a page are far
//! from it wherever it lies. A promise has to hold for both.
//!
//! Worked example: four tasks, two on each node, one region each, all on node 0. Private, two regions
//! follow their tasks and all use is local. Shared, the four fit node 0, and the other two come there.

use numaherd_model::{EvidenceGrade, ProcessId, Sharing, Snapshot};

use crate::bundles::{Busy, MIN_PAIRS, busy, by_process, shared_permille};

/// The snapshot as it would be if every process whose sharing is not known shared all of its memory;
/// `None` where it is known of all.
#[must_use]
pub fn if_shared(snapshot: &Snapshot) -> Option<Snapshot> {
    if snapshot.grade != EvidenceGrade::HintingFaults {
        return None;
    }
    let unknown: Vec<ProcessId> = unknown(snapshot, &busy(snapshot)).collect();
    as_shared(snapshot, &unknown)
}

/// The snapshot as it would be if these processes shared all of their memory; `None` without any.
#[must_use]
pub fn as_shared(snapshot: &Snapshot, unknown: &[ProcessId]) -> Option<Snapshot> {
    if unknown.is_empty() {
        return None;
    }
    let mut shared = snapshot.clone();
    shared.sharing.retain(|sharing| !unknown.contains(&sharing.process));
    let all = |process| Sharing { process, samples: MIN_PAIRS, switches: MIN_PAIRS };
    shared.sharing.extend(unknown.iter().copied().map(all));
    shared.sharing.sort_unstable_by_key(|sharing| sharing.process);
    Some(shared)
}

/// The processes of these busy tasks of which it is not known how far they share memory; both in
/// the order of [`busy`].
pub fn unknown<'a>(
    snapshot: &'a Snapshot,
    busy: &'a [Busy],
) -> impl Iterator<Item = ProcessId> + 'a {
    let unknown = |tasks: &&[Busy]| shared_permille(snapshot, tasks).is_none();
    by_process(busy).filter(unknown).map(|tasks| tasks[0].0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::Demand;
    use numaherd_model::scene::{PROCESS, Scene};

    /// Four tasks, two on each node, each seen in a region of its own on node 0.
    fn four() -> Scene {
        let mut scene = Scene::two_by_four();
        for (tid, cpu) in [(1, 0), (2, 1), (3, 4), (4, 5)] {
            scene.task(tid, cpu, 1000);
            scene.region(u64::from(tid), &[(tid, 512)], &[(0, 512)]);
        }
        scene
    }

    /// The users of each bundle.
    fn users(snapshot: &Snapshot) -> Vec<usize> {
        Demand::new(snapshot).bundles.iter().map(|bundle| bundle.users.len()).collect()
    }

    #[test]
    fn what_each_seems_to_have_alone_may_be_everybodys() {
        let mut scene = four();
        for pairs in [0, MIN_PAIRS - 1] {
            scene.shared(pairs, 0);
            assert_eq!(users(&scene.snapshot()), [1, 1, 1, 1]);
            assert_eq!(users(&if_shared(&scene.snapshot()).unwrap()), [4]);
        }
    }

    #[test]
    fn what_is_known_stands() {
        let mut scene = four();
        scene.shared(MIN_PAIRS, 0);
        assert_eq!(if_shared(&scene.snapshot()), None);
        let mut alone = Scene::two_by_four();
        alone.task(1, 0, 1000);
        alone.task(2, 1, 100);
        assert_eq!(if_shared(&alone.snapshot()), None);
        let mut tables = four();
        tables.edit().grade = EvidenceGrade::ResidentPages;
        assert_eq!(if_shared(&tables.snapshot()), None);
    }

    #[test]
    fn other_processes_stay_as_they_are_known() {
        let mut scene = four();
        let other = ProcessId { tgid: 0, start: 1 };
        let known = Sharing { process: other, samples: 9, switches: 1 };
        scene.edit().sharing = vec![known.clone()];
        let told = if_shared(&scene.snapshot()).unwrap().sharing;
        assert_eq!((&told[0], told[1].process, told.len()), (&known, PROCESS, 2));
    }
}
