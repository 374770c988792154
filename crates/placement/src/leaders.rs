//! Leaders: tasks that go over shared memory ahead of the others, and take its faults.
//!
//! What the kernel arms faults once. Where tasks go over the same memory one behind the other, the first takes most of a
//! pass's faults, and may be first in the next pass too; two passes are all that a kernel since 6.7 makes soon. By how
//! often pages changed hands such memory is hardly shared.
//!
//! But where tasks share a part of their memory and have the rest alone, most of them are seen alone somewhere. Behind
//! a leader they are not: whoever is seen at all is seen where others were. So while few passes are known, and no more than
//! half of those who were seen had a region alone, and those regions that several were seen in connect them all, they
//! share all of it. Not so where they fall into teams ([`crate::teams`]): teams that do not fit a node are served worse
//! by that (`docs/results/herd.md`).
//!
//! Worked example: four tasks and 16 regions, seen in two passes. Nine regions were met by the first task twice, the
//! others by two of all four: the first leads. If each had a slice beside what they share, the second would be seen alone
//! in its own.

use numaherd_model::Snapshot;

use crate::bundles::{Busy, in_earnest, mate};
use crate::interleave::SMALL;

/// Touches of each page after the first, until which passes are few. Guessed: a leader that is first in each of five
/// passes is taken for one who has the memory alone.
const FEW_PAIRS: u64 = 4;

/// Tasks from which a leader can be told from one that has more memory than another, and at most: each is a bit.
const COUNT: std::ops::RangeInclusive<usize> = 3..=64;

/// Whether what these busy tasks of one process were seen to have alone is what some of them were first to touch.
pub fn lead(snapshot: &Snapshot, together: &[Busy]) -> bool {
    if !COUNT.contains(&together.len()) {
        return false;
    }
    let bit = |task| mate(snapshot, together, task).map_or(0, |i| 1_u64 << i);
    let seen = || snapshot.regions_of(together[0].0).iter().filter(|region| region.pairs > 0);
    let (count, pairs, known) = seen().fold((0, 0, 0), |(count, pairs, known), region| {
        (count + 1, pairs + region.pairs, known + region.known_pages().0)
    });
    if pairs >= known * FEW_PAIRS {
        return false;
    }
    let mut alone = 0_u64;
    let mut connected: Vec<u64> = Vec::new();
    for region in seen().filter(|region| region.known_pages().0 * count * SMALL >= known) {
        let users = in_earnest(region).fold(0, |users, user| users | bit(user.task));
        match users.count_ones() {
            0 => {}
            1 => alone |= users,
            _ => connect(&mut connected, users),
        }
    }
    let [all] = connected[..] else { return false };
    alone & !all == 0 && alone.count_ones() * 2 <= all.count_ones()
}

/// Adds tasks that were seen together to sets of which none has one of another.
fn connect(sets: &mut Vec<u64>, mut new: u64) {
    sets.retain(|set| {
        let meets = set & new != 0;
        new |= if meets { *set } else { 0 };
        !meets
    });
    sets.push(new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::busy;
    use numaherd_model::scene::Scene;

    /// Four tasks, and the users of each region, which was met so many times more after the first.
    fn leads(regions: &[&[u32]], pairs: u64) -> bool {
        let mut scene = Scene::two_by_four();
        scene.busy(4);
        for (r, users) in regions.iter().enumerate() {
            let users: Vec<(u32, u64)> = users.iter().map(|tid| (*tid, 512)).collect();
            scene.region(r as u64, &users, &[(0, 512)]);
        }
        scene.edit().regions.iter_mut().for_each(|region| region.pairs = pairs * 512);
        let snapshot = scene.snapshot();
        lead(&snapshot, &busy(&snapshot))
    }

    #[test]
    fn who_is_seen_only_where_others_were_shares_what_the_first_was_seen_to_have_alone() {
        let first: &[u32] = &[1];
        assert!(leads(&[first, first, first, &[1, 2], &[2, 3, 4]], 1));
        assert!(leads(&[first, first, &[2], &[1, 2], &[2, 3, 4]], 3), "two of four are first");
        assert!(!leads(&[first, first, &[1, 2], &[2, 3, 4]], 4), "five passes do not lie");
        assert!(!leads(&[first, first, &[1, 2], &[2, 3, 4]], 0), "nothing was met twice");
    }

    #[test]
    fn who_was_seen_alone_has_a_part_of_its_own() {
        assert!(!leads(&[&[1], &[2], &[3], &[1, 2, 3, 4]], 1));
        assert!(!leads(&[&[1], &[1], &[2, 3], &[3, 4]], 1), "the first shares nothing");
        assert!(!leads(&[&[1], &[1, 2], &[3, 4]], 1), "two teams");
        assert!(!leads(&[&[1], &[1]], 1), "nobody else was seen");
    }

    #[test]
    fn two_tasks_may_have_more_and_less() {
        let mut scene = Scene::two_by_four();
        scene.busy(2);
        scene.region(0, &[(1, 512)], &[(0, 512)]);
        scene.region(1, &[(1, 512), (2, 512)], &[(0, 512)]);
        scene.edit().regions.iter_mut().for_each(|region| region.pairs = 512);
        let snapshot = scene.snapshot();
        assert!(!lead(&snapshot, &busy(&snapshot)));
    }
}
