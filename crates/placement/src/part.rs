//! Which regions are of the part that a process shares, where it shares a part of its memory.
//!
//! How often a page's next touch is by another task says how much is shared, and not which regions are; who was seen in a
//! region says that only by and by. One where each touch was by the task before hardly is shared by eight; one
//! that three were seen in is. Two may have come by chance where all do, or have passed
//! it on from one to the other, or share it just the two: as many as chance would show are shared, and of twice as many
//! none is taken to be.
//!
//! When a program goes on to something else, others use a region than before; whether it is shared mostly stays.
//! So touches by another task than the one before are remembered then, and users are not.
//!
//! Example: 32 regions, half of them shared by 8 tasks, and three passes. Of 16 shared regions a third, 5, should
//! show two tasks. Five do: they are shared. Where ten do, they have been passed on.

use numaherd_model::{ProcessId, Region, RegionUse, Sharing, Snapshot};

use crate::bundles::in_earnest;

/// Sharing from which a process is taken to share each of its regions alike. Guessed: tasks that sweep
/// over the same memory in step are seen one after the other less often than chance would have it.
const WHOLLY_SHARED_PERMILLE: u64 = 700;

/// Passes from which regions that two were met in are counted: in one, two are met only where each has a piece of it.
const FEWEST_PASSES: u64 = 2;

/// Of the touches of memory that one task uses one in so many is by another one: it was passed on, or touched once
/// in passing. Guessed.
const STRAY: u64 = 16;

/// Passes beyond this tell no more: whoever sweeps first goes on to be first.
const MOST_PASSES: u64 = 8;

/// A region stays with one task if less than one in so many of its touches is by another one. Guessed.
const SELDOM: u64 = 8;

/// Regions that stay with one task from which they tell. Guessed: a slice of a few huge pages is one thread's luck.
const FEWEST_ALONE: u64 = 8;

/// See the module.
pub struct Part {
    /// How much of the process's memory it is.
    permille: u64,
    /// How likely a region that two of many were seen in is of it.
    pairs_permille: u64,
}

impl Part {
    /// Of a process that has these regions and shares so much of them, by so many tasks each, of those that `is_mate`
    /// tells.
    pub fn of(
        regions: &[Region],
        permille: u64,
        count: u64,
        is_mate: impl Fn(&RegionUse) -> bool,
    ) -> Part {
        let (mut pairs, mut by_chance) = (0, 0);
        for region in regions {
            let passes = passes(region);
            if passes >= FEWEST_PASSES {
                pairs += u64::from(in_earnest(region).filter(|user| is_mate(user)).count() == 2);
                by_chance += permille * pair_permille(count, passes) / 1000;
            }
        }
        // As many as chance has are shared, and of twice as many none.
        let pairs_permille = match by_chance {
            0 => 0,
            _ => 2000_u64.saturating_sub(pairs * 1_000_000 / by_chance).min(1000),
        };
        Part { permille, pairs_permille }
    }

    /// How far a region is shared, per mille, by `count` tasks that share this part of their memory, where so many
    /// users were seen in it. It either is or is not. Who shares it is as likely as any other to be the next seen in it, so
    /// that no more than `u` were seen in `n` passes has the odds of `u` ÷ `count` to the power of n - u.
    ///
    /// Example: half of a process's memory is shared by 8. A region that one task was seen in twice is
    /// shared by 1 ÷ (1 + 8) = 111 ‰, after three times by 15 ‰.
    pub fn of_region(&self, region: &Region, count: u64, users: u64) -> u64 {
        let passes = passes(region);
        match users {
            0 | 1 => {
                let [pairs, switches] = [region.pairs, region.switches].map(|n| times(n, region));
                self.alone(count, pairs.max(switches + passes.saturating_sub(1)), switches)
            }
            _ => self.with_others(count, users, passes),
        }
    }

    /// The same for a region that one user is seen in, by how many of its touches were by another task than the one
    /// before: of those that `k` share `(k - 1) / k`, and hardly any of others.
    fn alone(&self, count: u64, pairs: u64, switches: u64) -> u64 {
        if count < 2 {
            return 0;
        }
        let pow = |base: u64, times: u64| u128::from(base).pow(times as u32);
        let switches = switches.min(MOST_PASSES);
        let shared = u128::from(self.permille) * pow((count - 1) * STRAY, switches);
        let apart =
            u128::from(1000 - self.permille) * pow(count, pairs.clamp(switches, MOST_PASSES));
        (shared * 1000 / (apart + shared).max(1)) as u64
    }

    /// For one that several are seen in.
    fn with_others(&self, count: u64, users: u64, passes: u64) -> u64 {
        if count < 2 {
            return 0;
        }
        if users == 2 && count > 3 {
            return if passes < FEWEST_PASSES { 0 } else { self.pairs_permille };
        }
        if users * 2 > count || passes <= users {
            return 1000;
        }
        // Further ones by whoever sweeps first say no more.
        let more = passes.saturating_sub(users).min(4) as u32;
        let (apart, shared) =
            (count.pow(more) * (1000 - self.permille), users.pow(more) * self.permille);
        shared * 1000 / (apart + shared).max(1)
    }
}

/// Whether the process surely shares a part of its memory and not all: by two standard deviations of a share
/// seen in so many pairs of touches, or because regions tell ([`are_apart`]).
pub fn is_part(snapshot: &Snapshot, process: ProcessId, permille: u64) -> bool {
    let known = snapshot.sharing_of(process).filter(|_| permille > 0);
    let Some(sharing) = known else { return false };
    let samples = sharing.samples.max(1);
    let deviation = (permille * (1000 - permille.min(1000)) / samples).isqrt();
    permille + 2 * deviation < WHOLLY_SHARED_PERMILLE
        || are_apart(snapshot.regions_of(process), sharing)
}

/// Whether half as many more regions stay with one task as would if all were shared alike, by those whose touches tell.
/// Guessed, as a half: with two touches each, where half is shared by many, twice as many do.
///
/// Example: half of all touches are by another task than the one before. If all memory were shared alike, of 32 regions
/// with two such touches 8 would stay with one task. 17 do: those are not shared.
fn are_apart(regions: &[Region], sharing: &Sharing) -> bool {
    let stays = sharing.samples.saturating_sub(sharing.switches) * 1000 / sharing.samples.max(1);
    let (mut alone, mut by_chance) = (0, 0);
    for region in regions {
        let pairs = times(region.pairs, region).min(MOST_PASSES) as u32;
        if pairs >= 2 {
            alone += u64::from(region.switches * SELDOM < region.pairs);
            by_chance += (0..pairs).fold(1000, |left, _| left * stays / 1000);
        }
    }
    alone >= FEWEST_ALONE && alone * 2000 > 3 * by_chance
}

/// How often the scan came by a region, by what it knows: each pass shows each page once.
fn passes(region: &Region) -> u64 {
    times(region.users.iter().map(|user| user.faults).sum(), region).max(1)
}

/// How often all pages of a region that are known make up so many.
fn times(pages: u64, region: &Region) -> u64 {
    let known = region.known_pages().0.max(1);
    (pages + known / 2) / known
}

/// How likely just two of `count` tasks are seen in so many passes over what all share, per mille: any two of them,
/// in all passes and not one of them in all.
fn pair_permille(count: u64, passes: u64) -> u64 {
    let passes = passes.min(MOST_PASSES) as u32;
    let pairs = u128::from(count * count.saturating_sub(1) / 2);
    let ways = (1_u128 << passes).saturating_sub(2);
    (pairs * ways * 1000 / u128::from(count.max(1)).pow(passes)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::{PROCESS, Scene};

    const HALF: Part = Part { permille: 500, pairs_permille: 70 };

    #[test]
    fn who_is_seen_in_a_region_says_whether_it_is_shared() {
        let part = |users, passes| HALF.with_others(8, users, passes);
        // Two may have passed it on, and three have not, unless nobody else comes for long.
        assert_eq!([part(2, 1), part(2, 2), part(2, 9)], [0, 70, 70]);
        assert_eq!([part(3, 3), part(3, 4), part(3, 7)], [1000, 272, 19]);
        assert_eq!(
            [part(5, 9), HALF.with_others(3, 2, 9), HALF.with_others(1, 2, 2)],
            [1000, 1000, 0]
        );
    }

    #[test]
    fn touches_by_another_than_the_one_before_say_whether_it_is_shared() {
        let part = |pairs, switches| HALF.alone(8, pairs, switches);
        assert_eq!([part(0, 0), part(1, 0), part(2, 0), part(8, 0)], [500, 111, 15, 0]);
        // 16 × 7 ÷ 8 = 14 times as likely as before: passed on, or shared?
        assert_eq!([part(1, 1), part(2, 1), part(3, 1), part(6, 5)], [933, 636, 179, 999]);
        assert_eq!([HALF.alone(1, 2, 2), HALF.alone(64, 1000, 900)], [0, 999]);
    }

    #[test]
    fn whether_it_is_shared_outlives_who_uses_it() {
        let mut scene = Scene::two_by_four();
        scene.busy(8);
        scene.region(0, &[(1, 512)], &[(0, 512)]);
        let mut told = |pairs, switches| {
            let region = &mut scene.edit().regions[0];
            (region.pairs, region.switches) = (pairs, switches);
            HALF.of_region(&scene.snapshot().regions[0], 8, 1)
        };
        assert_eq!([told(0, 0), told(1024, 0), told(1536, 1300)], [500, 15, 999]);
    }

    #[test]
    fn so_many_of_those_who_share_are_met_by_chance() {
        // Two of eight: 7/8 in two passes, 28 × 6 ÷ 512 in three, 28 × 14 ÷ 4096 in four.
        let of_eight = |passes| pair_permille(8, passes);
        assert_eq!([1, 2, 3, 4].map(of_eight), [0, 875, 328, 95]);
        assert_eq!([pair_permille(2, 2), pair_permille(1, 3), pair_permille(0, 0)], [500, 0, 0]);
        assert_eq!(of_eight(MOST_PASSES), of_eight(1000));
    }

    /// So many regions in which three passes met one task, two, and three.
    fn seen(alone: u64, pairs: u64, more: u64) -> u64 {
        let mut scene = Scene::two_by_four();
        scene.busy(8);
        let met: [(u64, &[(u32, u64)]); 3] = [
            (alone, &[(1, 1536)]),
            (pairs, &[(1, 1024), (2, 512)]),
            (more, &[(1, 512), (2, 512), (3, 512)]),
        ];
        let regions = met.iter().flat_map(|&(count, users)| (0..count).map(move |_| users));
        for (index, users) in (0..).zip(regions) {
            scene.region(index, users, &[(0, 512)]);
        }
        Part::of(&scene.snapshot().regions, 500, 8, |_| true).pairs_permille
    }

    #[test]
    fn as_many_pairs_as_chance_has_are_shared_and_of_twice_as_many_none() {
        // 32 × 0.5 × 0.328 = 5.2
        assert_eq!([seen(16, 5, 11), seen(16, 0, 16)], [1000, 1000]);
        assert!((500..700).contains(&seen(16, 7, 9)));
        assert_eq!([seen(16, 11, 5), seen(0, 32, 0)], [0, 0]);
    }

    #[test]
    fn a_pass_shows_each_page_of_a_region_once() {
        let mut scene = Scene::two_by_four();
        (1..=3).for_each(|tid| scene.task(tid, 0, 1000));
        scene.region(0, &[(1, 512)], &[(1, 512)]);
        scene.region(1, &[(1, 512), (2, 1024)], &[(1, 512)]);
        scene.region(2, &[(1, 5), (3, 2)], &[(0, 3), (1, 4)]);
        let snapshot = scene.snapshot();
        assert_eq!(snapshot.regions.iter().map(passes).collect::<Vec<_>>(), [1, 3, 1]);
    }

    #[test]
    fn a_part_is_one_after_enough_pairs() {
        let mut scene = Scene::two_by_four();
        let mut told = |samples, permille| {
            scene.shared(samples, 0);
            is_part(&scene.snapshot(), PROCESS, permille)
        };
        // 500 and twice 158, or twice 79
        assert!(!told(10, 500) && told(40, 500));
        assert!(!told(1000, 0) && !told(1000, 750) && !told(1000, 1000));
    }

    /// So many regions that changed hands at none of two touches, at one, and at both.
    fn is_part_of(stayed: usize, once: usize, twice: usize) -> bool {
        let mut scene = Scene::two_by_four();
        scene.busy(8);
        let switches = [vec![0; stayed], vec![512; once], vec![1024; twice]].concat();
        for (index, &count) in (0..).zip(&switches) {
            scene.region(index, &[(1, 1536)], &[(0, 512)]);
            let region = &mut scene.edit().regions[index as usize];
            (region.pairs, region.switches) = (1024, count);
        }
        scene.shared(2 * switches.len() as u64, switches.iter().sum::<u64>() / 512);
        is_part(&scene.snapshot(), PROCESS, 690)
    }

    #[test]
    fn it_is_one_where_more_regions_stay_with_one_task_than_by_chance() {
        // Of 32 regions half of whose touches are by another task 8 would stay by chance.
        assert!(is_part_of(16, 0, 16) && !is_part_of(8, 16, 8));
        assert!(!is_part_of(12, 8, 12), "whoever sweeps first is often first again");
        assert!(!is_part_of(7, 0, 1), "few regions are one thread's luck");
    }
}
