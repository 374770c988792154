//! A better assignment of tasks to nodes, starting from where tasks are.
//!
//! In each pass every task says which node it would rather be on and what that would bring; the
//! greatest gains go first. A task goes where there is room, or changes places with one that
//! loses less (numa/core's *flip*, Molnar 2012: no node is overloaded in between and full nodes
//! are no obstacle), or pushes one on to a third node. When no single step helps any more, whole
//! bundles are gathered on one node, kept where the sum is better. Small problems are then solved
//! exactly ([`crate::exact`]).
//!
//! The cost of an assignment counts each bundle's memory at the node where it is cheapest, moving
//! it included, so groups that share memory are drawn together step by step. Moving a task has
//! its price too, so an assignment that was found is kept.
//!
//! A pass costs n log n in tasks: each looks at the few nodes where its memory or its partners
//! are, and at a bounded number of partners to change places with. No node ends up with more
//! CPU-claiming tasks than its capacity unless it began so and their owners forbid better. Ties
//! go to the lower index; the result depends on nothing but the demand.

mod gather;
mod partners;

use std::cmp::Reverse;

use smallvec::{SmallVec, smallvec};

use self::gather::gather_all;
use self::partners::Partners;
use crate::assignment::Assignment;
use crate::demand::Demand;
use crate::exact;

/// Passes after which we stop, come what may: each lowers the cost, most problems need two or
/// three.
const MOST_PASSES: usize = 32;

/// Tasks up to which every task of a full node is looked at as a partner, and every node as a
/// destination.
const FEW_TASKS: usize = 64;

/// Where every task should run. Moving a task must save at least `task_cost`, in the unit of the
/// demand's costs.
#[must_use]
pub fn improve(demand: &Demand, task_cost: u64) -> Assignment<'_> {
    let mut assignment = descend(demand, task_cost);
    if let Some(better) = exact::improve(demand, &assignment, task_cost) {
        better.into_iter().enumerate().for_each(|(task, node)| assignment.put(task, node));
    }
    assignment
}

/// Steps and gatherings from where tasks are now, until none helps: what [`improve`] does without
/// solving small problems exactly.
#[must_use]
pub fn descend(demand: &Demand, task_cost: u64) -> Assignment<'_> {
    let mut assignment = Assignment::today(demand, task_cost);
    relieve(demand, &mut assignment);
    let with_evidence = demand.tasks.iter().map(|task| !task.bundles.is_empty());
    let mut awake = Awake(with_evidence.collect());
    let mut partners = Partners::new(demand);
    for _ in 0..MOST_PASSES {
        let better = step_all(demand, &mut assignment, &mut partners, &mut awake)
            || gather_all(demand, &mut assignment, &mut partners, &mut awake);
        if !better {
            break;
        }
    }
    assignment
}

/// Takes tasks off nodes that hold more than their capacity, those that lose least first.
fn relieve(demand: &Demand, assignment: &mut Assignment) {
    for full in 0..demand.nodes.len() {
        if !assignment.is_overfull(full) {
            continue;
        }
        let crowded = assignment.is_crowded(full);
        let members = assignment.members(full).iter().copied();
        let leavers = members.filter(|&task| crowded || demand.tasks[task].traffic > 0);
        let leavers: Vec<usize> = leavers.collect();
        let mut leavers: Vec<(u64, usize)> = leavers
            .into_iter()
            .filter_map(|task| Some((nearest_room(demand, assignment, task)?.0, task)))
            .collect();
        leavers.sort_unstable();
        for (_, task) in leavers {
            if !assignment.is_overfull(full) {
                break;
            }
            // Rooms fill up: what was best may be gone.
            if let Some((_, to)) = nearest_room(demand, assignment, task) {
                assignment.put(task, to);
            }
        }
    }
    // Those that may use a few of a node's CPUs may be too many for these where the node is not full.
    for task in 0..demand.tasks.len() {
        if !assignment.crowds_its_pool(task) {
            continue;
        }
        if let Some((_, to)) = nearest_room(demand, assignment, task) {
            assignment.put(task, to);
        }
    }
}

/// The cheapest node with room for a task other than its own, and what all costs then.
fn nearest_room(demand: &Demand, assignment: &mut Assignment, task: usize) -> Option<(u64, usize)> {
    let from = assignment.at()[task];
    let rooms = (0..demand.nodes.len()).filter(|&n| n != from && assignment.has_room(task, n));
    let rooms: Vec<usize> = rooms.collect();
    rooms.into_iter().map(|to| (assignment.total_with(task, to), to)).min()
}

/// What a task would gain on a node, the task and the node: small, since there are many to sort.
type Wish = (Reverse<u64>, u32, u32);

/// Tasks that are looked at in the next pass.
struct Awake(Vec<bool>);

impl Awake {
    /// A task moved: whoever shares memory with it may see things differently now.
    fn around(&mut self, demand: &Demand, task: usize) {
        self.0[task] = true;
        for &(b, _) in &demand.tasks[task].bundles {
            demand.bundles[b].users.iter().for_each(|&(user, _)| self.0[user] = true);
        }
    }
}

/// One pass: everybody who gains by going elsewhere, greatest gain first. Whether any did.
fn step_all(
    demand: &Demand,
    assignment: &mut Assignment,
    partners: &mut Partners,
    awake: &mut Awake,
) -> bool {
    let mut wishes: Vec<Wish> = Vec::new();
    let mut nodes = Vec::new();
    for task in (0..demand.tasks.len()).filter(|&task| std::mem::take(&mut awake.0[task])) {
        let total = assignment.total();
        destinations(demand, assignment, task, &mut nodes);
        for &to in &nodes {
            // Whoever changes places with another leaves cores as they are.
            let (with, _) = assignment.total_in_exchange(task, to);
            if with < total {
                wishes.push((Reverse(total - with), task as u32, to as u32));
            }
        }
    }
    if wishes.is_empty() {
        return false;
    }
    wishes.sort_unstable();
    partners.hear(demand, assignment, &wishes);
    let mut better = false;
    for (_, task, to) in wishes {
        let (task, to) = (task as usize, to as usize);
        if let Some(moved) = step(demand, assignment, partners, task, to) {
            moved.into_iter().for_each(|task| awake.around(demand, task));
            better = true;
        }
    }
    better
}

/// Nodes that a task might gain by.
fn destinations(demand: &Demand, assignment: &Assignment, task: usize, nodes: &mut Vec<usize>) {
    if demand.tasks.len() > FEW_TASKS {
        assignment.attractions(task, nodes);
        return;
    }
    let from = assignment.at()[task];
    nodes.clear();
    nodes.extend((0..demand.nodes.len()).filter(|&n| n != from && assignment.allows(task, n)));
}

/// Puts a task on a node if that still lowers the cost: into a free place, in exchange for
/// another task, or by pushing one on. Answers who moved.
fn step(
    demand: &Demand,
    assignment: &mut Assignment,
    partners: &mut Partners,
    task: usize,
    to: usize,
) -> Option<SmallVec<[usize; 2]>> {
    let (from, before) = (assignment.at()[task], assignment.total());
    let (in_exchange, crowding) = assignment.total_in_exchange(task, to);
    if from == to || in_exchange >= before {
        return None;
    }
    let alone = in_exchange + crowding;
    let has_room = assignment.has_room(task, to);
    // What whoever makes room leaves behind is what the task leaves.
    let may_crowd = assignment.may_crowd(if demand.tasks[task].claims_cpu { from } else { to });
    if has_room && crowding == 0 {
        assignment.put(task, to);
        return Some(smallvec![task]);
    }
    let near = partners.of(demand, assignment, task, to, from);
    // With room but no core to itself, it may still be best to go alone.
    let mut best = (if has_room { alone.min(before) } else { before }, None);
    let mut nodes = Vec::new();
    for partner in near {
        if !assignment.carries((task, from), (partner, to)) {
            continue;
        }
        // Two that have no memory in common save what each saves, where each has a core anyway.
        let mut look = |assignment: &mut Assignment, before: u64| {
            places(demand, assignment, (partner, task), (from, may_crowd), &mut nodes);
            for &place in &nodes {
                let total = alone + assignment.total_with(partner, place) - before;
                if total < best.0 {
                    best = (total, Some((partner, place)));
                }
            }
        };
        if demand.cores.matter() || demand.have_in_common(task, partner) {
            assignment.with(task, to, |assignment| look(assignment, alone));
        } else {
            look(assignment, before);
        }
        // In a large problem, whoever loses nothing but the price of moving will do.
        if best.0 <= alone + assignment.task_cost() && demand.tasks.len() > FEW_TASKS {
            break;
        }
    }
    let Some((partner, place)) = best.1 else {
        if best.0 < before {
            assignment.put(task, to);
            return Some(smallvec![task]);
        }
        partners.failed(from, to);
        return None;
    };
    assignment.put(task, to);
    assignment.put(partner, place);
    partners.arrived(partner, place);
    partners.arrived(task, to);
    Some(smallvec![task, partner])
}

/// Where a task may go that has to make room for another: the place just left, or wherever is some.
fn places(
    demand: &Demand,
    assignment: &Assignment,
    (partner, task): (usize, usize),
    (left, may_crowd): (usize, bool),
    nodes: &mut Vec<usize>,
) {
    let here = assignment.at()[partner];
    destinations(demand, assignment, partner, nodes);
    let fits = |node: usize| assignment.has_room_if(partner, node, may_crowd);
    nodes.retain(|&node| node != here && node != left && fits(node));
    if assignment.allows(partner, left) && assignment.pool_has_room_for(partner, task, left) {
        nodes.push(left);
    }
}

#[cfg(test)]
mod tests;
