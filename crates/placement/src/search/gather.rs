//! Whole bundles at once: where no single step helps, all users of a scattered bundle are brought to one
//! node, and stay if the sum is better.

use std::cmp::Reverse;

use super::partners::Partners;
use super::{Awake, FEW_TASKS};
use crate::assignment::Assignment;
use crate::demand::Demand;

/// Nodes on which a bundle of a large problem is tried to be gathered: those with most of it.
const GATHERING_PLACES: usize = 3;

/// Bundles that are tried to be gathered in a pass, the dearest first.
const MOST_GATHERINGS: usize = 1024;

/// Tries to bring the users of each scattered bundle to one node. Whether any attempt paid.
pub fn gather_all(
    demand: &Demand,
    assignment: &mut Assignment,
    partners: &mut Partners,
    awake: &mut Awake,
) -> bool {
    let few = demand.tasks.len() <= FEW_TASKS;
    let mut scattered: Vec<(Reverse<u64>, usize)> = (0..demand.bundles.len())
        .filter(|&b| few || assignment.weights(b).len() > 1)
        .map(|b| (Reverse(assignment.cost_of(b)), b))
        .filter(|(cost, _)| cost.0 > 0)
        .collect();
    // There may be a hundred times as many.
    if scattered.len() > MOST_GATHERINGS {
        scattered.select_nth_unstable(MOST_GATHERINGS);
        scattered.truncate(MOST_GATHERINGS);
    }
    scattered.sort_unstable();
    partners.hear(demand, assignment, &[]);
    let mut better = false;
    for (_, b) in scattered {
        for place in gathering_places(demand, assignment, b) {
            if let Some(moved) = gather(demand, assignment, partners, b, place) {
                moved.into_iter().for_each(|task| awake.around(demand, task));
                better = true;
            }
        }
    }
    better
}

/// Nodes on which a bundle is tried to be gathered: of a large problem those where most of its users
/// are, else all of them, for what its users use besides may lie anywhere.
fn gathering_places(demand: &Demand, assignment: &Assignment, b: usize) -> Vec<usize> {
    if demand.tasks.len() <= FEW_TASKS {
        return (0..demand.nodes.len()).collect();
    }
    let mut places = assignment.weights(b).to_vec();
    places.sort_unstable_by_key(|&(node, weight)| (Reverse(weight), node));
    places.truncate(GATHERING_PLACES);
    places.into_iter().map(|(node, _)| node).collect()
}

/// Brings all users of a bundle to a node, into free places or in exchange for whoever is held
/// least; takes all of it back unless the whole is cheaper. Answers who moved.
fn gather(
    demand: &Demand,
    assignment: &mut Assignment,
    partners: &mut Partners,
    b: usize,
    place: usize,
) -> Option<Vec<usize>> {
    let before = assignment.total();
    let mut done: Vec<(usize, usize)> = Vec::new();
    let users = &demand.bundles[b].users;
    let stranger = |task: &usize| users.binary_search_by_key(task, |user| user.0).is_err();
    for &(task, _) in users {
        let from = assignment.at()[task];
        if from == place || !assignment.allows(task, place) {
            continue;
        }
        let has_room = assignment.has_room(task, place);
        if !has_room || assignment.crowding(task, from, place).0 > 0 {
            let near = partners.of(demand, assignment, task, place, from);
            let fits = |partner: &usize| {
                stranger(partner)
                    && assignment.allows(*partner, from)
                    && assignment.carries((task, from), (*partner, place))
                    && assignment.pool_has_room_for(*partner, task, from)
            };
            match near.into_iter().find(fits) {
                Some(partner) => {
                    done.push((partner, place));
                    assignment.put(partner, from);
                }
                None if has_room => {}
                None => break,
            }
        }
        done.push((task, from));
        assignment.put(task, place);
    }
    if assignment.total() < before {
        done.iter().for_each(|&(task, _)| partners.arrived(task, assignment.at()[task]));
        return Some(done.into_iter().map(|(task, _)| task).collect());
    }
    for (task, back) in done.into_iter().rev() {
        assignment.put(task, back);
    }
    None
}
