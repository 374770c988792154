//! Which regions follow their users.
//!
//! A region goes to the node where its bundle is cheapest under the planned assignment, moving
//! it included, if most of its use comes from there. The most misplaced go first, and a plan
//! moves a bounded amount, so that the loop looks again soon.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use numaherd_model::{Action, Bytes, Nanos, NodeId, Pages, Reason, Snapshot};

use crate::demand::Demand;
use crate::outlook::{Outlook, Prospect};

/// Least share of a region's use, per mille, that must come from the destination. Guessed: well
/// above half, so that noise in the evidence does not send shared memory to and fro.
pub const MIN_USE_PERMILLE: u64 = 600;

/// Known pages from which a region is worth a call. Guessed.
pub const MIN_KNOWN_PAGES: u64 = 4;

/// Misplaced per mille of a region's known pages from which it is moved: stragglers that the
/// kernel's faults will bring are not worth a call each.
const MIN_MISPLACED_PERMILLE: u64 = 60;

/// What one plan moves takes so long, of one CPU; as much memory as that is, or this. Guessed: so much that looking
/// is not what takes the time (at 1 us a page it is 0.4 GB, where 16 MiB a turn would be 0.5 GB a second), and so
/// little that what the next look shows comes in time: with a quarter of a second *uneven* on the simulated 4x2 took
/// 0.98 × bind instead of 0.89.
const MOST_TIME: Nanos = Nanos(100_000_000);
const LEAST_BYTES: Bytes = Bytes(16 << 20);

/// Most that one plan moves.
///
/// Example: pages of 4 KiB that take 8 us each: 12,500, or 49 MiB; of those that take 100 us, 4096, or 16 MiB.
#[must_use]
pub fn most(snapshot: &Snapshot) -> Pages {
    let in_time = MOST_TIME.0 / snapshot.costs.page_move.0.max(1);
    Pages(in_time.max(LEAST_BYTES.pages(snapshot.page_size).0))
}

/// The moves, most misplaced first. `stays` answers how much weight of a bundle's users will be beside its memory for
/// longer than a moment.
#[must_use]
pub fn follow(
    snapshot: &Snapshot,
    demand: &Demand,
    outlook: &Outlook,
    stays: impl Fn(usize) -> u64,
) -> Vec<Action> {
    if snapshot.kernel_tiering {
        return Vec::new();
    }
    let mut moves = Vec::new();
    for (b, bundle) in demand.bundles.iter().enumerate().filter(|(_, bundle)| !bundle.stays) {
        let &Prospect { ref weights, memory: to } = outlook.of(b);
        let all: u64 = weights.iter().map(|(_, weight)| weight).sum();
        let there = demand.weight_beside(weights, to);
        let permille = (there * 1000).checked_div(all).unwrap_or(0);
        if permille < MIN_USE_PERMILLE {
            continue;
        }
        let before = moves.len();
        for &r in &bundle.regions {
            if let Some(pages) = misplaced(snapshot, r, demand.nodes[to]) {
                moves.push((pages, Reverse(r), demand.nodes[to], permille as u32));
            }
        }
        // Most memory lies where it should: it is asked only where some does not.
        if moves.len() > before && stays(b) * 1000 < all * MIN_USE_PERMILLE {
            moves.truncate(before);
        }
    }
    // Of many only the first go.
    let mut moves = BinaryHeap::from(moves);
    let mut left = most(snapshot);
    let mut actions = Vec::new();
    while let Some((pages, Reverse(r), to, permille)) = moves.pop() {
        if pages > left {
            break;
        }
        left = Pages(left.0 - pages.0);
        let region = &snapshot.regions[r];
        let reason = Reason::UsersThere { permille };
        actions.push(Action::MovePages { region: region.id, len: region.len, to, pages, reason });
    }
    actions
}

/// Pages of the region expected to move; pages not seen yet are taken to lie like the seen
/// ones. `None` where it is not worth a call.
fn misplaced(snapshot: &Snapshot, r: usize, to: NodeId) -> Option<Pages> {
    let region = &snapshot.regions[r];
    if region.rests {
        return None;
    }
    let known = region.known_pages().0;
    let elsewhere = known - region.pages_on(to).0;
    if known < MIN_KNOWN_PAGES || elsewhere * 1000 < known * MIN_MISPLACED_PERMILLE {
        return None;
    }
    Some(Pages(expected_pages(snapshot, r, to)))
}

/// Pages of a region expected to move to a node, with those not seen yet taken to lie like the seen
/// ones.
pub fn expected_pages(snapshot: &Snapshot, r: usize, to: NodeId) -> u64 {
    let region = &snapshot.regions[r];
    let known = region.known_pages().0;
    let elsewhere = known - region.pages_on(to).0;
    let whole = region.len.pages(snapshot.page_size).0;
    (whole * elsewhere).div_ceil(known.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    fn planned(scene: &Scene, at: &[usize]) -> Vec<(u64, u32)> {
        let snapshot = scene.snapshot();
        let demand = Demand::new(&snapshot);
        let actions = follow(&snapshot, &demand, &Outlook::new(&demand, at), |_| u64::MAX / 1000);
        let of = |action: &Action| match action {
            Action::MovePages { pages, to, .. } => (pages.0, to.0),
            other => panic!("{other:?}"),
        };
        actions.iter().map(of).collect()
    }

    #[test]
    fn a_private_region_follows_its_task_whole() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 4, 1000);
        // 100 of 512 pages seen, all on node 0: all 512 are expected to move.
        scene.region(0, &[(1, 100)], &[(0, 100)]);
        assert_eq!(planned(&scene, &[1]), [(512, 1)]);
        assert_eq!(planned(&scene, &[0]), []);
    }

    #[test]
    fn memory_that_both_nodes_use_alike_stays() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.task(2, 4, 1000);
        scene.region(0, &[(1, 100), (2, 100)], &[(0, 512)]);
        assert_eq!(planned(&scene, &[0, 1]), []);
    }

    #[test]
    fn the_most_misplaced_go_first_and_the_amount_is_bounded() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 4, 1000);
        for r in 0..20 {
            scene.region(r, &[(1, 100)], &[(0, 60 + r), (1, 30)]);
        }
        assert_eq!(planned(&scene, &[1]).len(), 20);
        scene.edit().costs.page_move = Nanos(100_000);
        let moves = planned(&scene, &[1]);
        assert!(moves.windows(2).all(|pair| pair[0].0 >= pair[1].0));
        let pages = moves.iter().map(|m| m.0).sum::<u64>();
        assert!((3700..=4096).contains(&pages), "{moves:?}");
    }

    #[test]
    fn a_plan_moves_what_takes_a_tenth_of_a_second_and_16_mib_at_least() {
        let mut scene = Scene::two_by_four();
        let mut most = |each| {
            scene.edit().costs.page_move = Nanos(each);
            super::most(&scene.snapshot()).0
        };
        assert_eq!([most(8_000), most(1_000), most(100_000)], [12_500, 100_000, 4096]);
    }

    #[test]
    fn what_was_refused_of_late_rests() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 4, 1000);
        (0..2).for_each(|r| scene.region(r, &[(1, 100)], &[(0, 100)]));
        scene.edit().regions[0].rests = true;
        assert_eq!(planned(&scene, &[1]), [(512, 1)]);
    }

    #[test]
    fn nothing_moves_where_the_kernel_tiers_memory() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 4, 1000);
        scene.region(0, &[(1, 100)], &[(0, 100)]);
        scene.edit().kernel_tiering = true;
        assert_eq!(planned(&scene, &[1]), []);
    }
}
