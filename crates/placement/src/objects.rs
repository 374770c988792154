//! Memory that several processes share is one thing, whatever each calls it.
//!
//! A region is a piece of one address space, so a segment that two processes map is two regions.
//! Where the snapshot says that they are the same piece of the same object (a file, shared memory),
//! they are taken together: their users are those of both, and their pages are counted once.
//!
//! Mappings begin anywhere, regions at multiples of 2 MiB: pieces are matched by the nearest multiple
//! of that in the object.
//!
//! Example: process 1 maps an object at 4 MiB, process 2 the same at 9 MiB. The region at 4 MiB of the
//! first and that at 8 MiB of the second, which holds the object's first MiB, are piece 0 of it.

use std::collections::BTreeMap;

use numaherd_model::{ObjectId, Snapshot};

/// Regions, by index, that are the same memory; of two processes at least.
#[must_use]
pub fn twins(snapshot: &Snapshot) -> Vec<Vec<usize>> {
    let mut pieces: BTreeMap<(ObjectId, u64), Vec<usize>> = BTreeMap::new();
    let mut ranges = snapshot.common.iter().peekable();
    for (r, region) in snapshot.regions.iter().enumerate() {
        // Both ascend by process and address.
        while ranges
            .next_if(|range| (range.process, range.end()) <= (region.id.process, region.id.start))
            .is_some()
        {}
        let Some(range) = ranges.peek().filter(|range| range.process == region.id.process) else {
            continue;
        };
        if range.start < region.id.start + region.len.0 {
            let into = region.id.start.saturating_sub(range.start);
            let size = region.len.0.max(1);
            pieces
                .entry((range.object, (range.offset + into + size / 2) / size))
                .or_default()
                .push(r);
        }
    }
    let process = |r: &usize| snapshot.regions[*r].id.process;
    let several = |rs: &Vec<usize>| rs.iter().any(|r| process(r) != process(&rs[0]));
    pieces.into_values().filter(several).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;
    use numaherd_model::{Bytes, NodeId, Placement, ProcessId, SharedRange};

    use crate::Herd;
    use crate::demand::Demand;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn process(tgid: u32) -> ProcessId {
        ProcessId { tgid, start: 1 }
    }

    fn range(tgid: u32, start: u64, mib: u64, inode: u64) -> SharedRange {
        let (process, len) = (process(tgid), Bytes(mib * MIB));
        SharedRange { process, start, len, object: ObjectId { device: 1, inode }, offset: 0 }
    }

    /// Two pairs of processes of one thread each, 1 with 3 and 2 with 4, each pair with a segment of
    /// 8 MiB on node 0 that both use; 1 and 2 run on node 0, 3 and 4 on node 1.
    fn pairs() -> Scene {
        let mut scene = Scene::even(2, 2);
        for tid in 1..=4 {
            scene.task(tid, tid - 1, 1000);
            for r in 0..4 {
                scene.region(u64::from(tid) * 8 + r, &[(tid, 100)], &[(0, 512)]);
            }
        }
        let snapshot = scene.edit();
        for task in &mut snapshot.tasks {
            task.process = process(task.id.tid);
        }
        snapshot.sharing.clear();
        for region in &mut snapshot.regions {
            let tid = region.users[0].task.tid;
            region.id.process = process(tid);
            let begin = GIB + u64::from(tid) * 16 * MIB;
            snapshot.common.push(range(tid, begin, 8, 70 + u64::from(tid % 2)));
        }
        snapshot.common.dedup();
        scene
    }

    #[test]
    fn the_same_piece_of_an_object_is_one_thing() {
        let snapshot = pairs().snapshot();
        // regions 0-3 are of process 1, 8-11 of process 3
        let expected: [&[usize]; 8] =
            [&[4, 12], &[5, 13], &[6, 14], &[7, 15], &[0, 8], &[1, 9], &[2, 10], &[3, 11]];
        assert_eq!(twins(&snapshot), expected);
        let demand = Demand::new(&snapshot);
        let users: Vec<Vec<usize>> =
            demand.bundles.iter().map(|b| b.users.iter().map(|user| user.0).collect()).collect();
        assert_eq!(users, [[0, 2], [1, 3]]);
        // counted once
        assert_eq!(demand.bundles[0].known, 4 * 512);
    }

    #[test]
    fn it_may_be_where_each_that_maps_it_may_have_memory() {
        for tgid in [1, 3] {
            let mut scene = pairs();
            scene.edit().forbid_memory(process(tgid), NodeId(1));
            let demand = Demand::new(&scene.snapshot());
            let may = |bundle: usize| demand.takes(&demand.bundles[bundle], 1);
            assert_eq!([may(0), may(1)], [false, true], "of process {tgid}");
            // Also where it has not shown any fault there.
            let other = process(4 - tgid);
            scene.edit().regions.retain(|region| region.id.process != process(tgid));
            let demand = Demand::new(&scene.snapshot());
            let user = scene.snapshot().tasks.iter().position(|task| task.process == other);
            let user = user.expect("the other's task");
            let mut its = demand.bundles.iter().filter(|b| b.users.iter().any(|u| u.0 == user));
            assert!(its.all(|bundle| !demand.takes(bundle, 1)), "of process {tgid} alone");
        }
    }

    #[test]
    fn pieces_are_matched_wherever_a_mapping_begins() {
        let mut scene = pairs();
        let snapshot = scene.edit();
        // The third process's mapping begins in the middle of a region.
        snapshot.common[2].start += MIB;
        let found = twins(snapshot);
        assert!(found.contains(&vec![0, 8]) && found.contains(&vec![3, 11]), "{found:?}");
        snapshot.common.truncate(1);
        assert_eq!(twins(snapshot), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn processes_that_share_memory_come_together() {
        let plan = Herd::new().decide(&pairs().snapshot());
        let home = |tid: u32| {
            let of = |action: &numaherd_model::Action| match action {
                numaherd_model::Action::PlaceTask { task, node, .. } if task.tid == tid => {
                    Some(*node)
                }
                _ => None,
            };
            plan.actions.iter().find_map(of).unwrap_or(NodeId((tid - 1) / 2))
        };
        assert!(home(1) == home(3) && home(2) == home(4) && home(1) != home(2), "{plan:?}");
        // Not known to be shared, each pair stays apart: memory would go to whoever uses it.
        let mut scene = pairs();
        scene.edit().common.clear();
        let plan = Herd::new().decide(&scene.snapshot());
        let moves =
            plan.actions.iter().filter(|a| matches!(a, numaherd_model::Action::MovePages { .. }));
        assert!(moves.count() > 0, "{plan:?}");
    }
}
