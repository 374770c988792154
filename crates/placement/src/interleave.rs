//! Memory that several nodes use in earnest lies on just those, in equal parts.
//!
//! Where the users of a bundle run on several nodes, no node is the right one for it. All of it on
//! one node means that who runs there has all of it near and everybody else nothing, and that one
//! node's memory serves them all. In equal parts the mean distance is the same, nobody waits for a
//! slowest, and each node's memory carries its part.
//!
//! Parts are whole regions, so huge pages stay whole. It is done only where it pays: what the worst
//! placed users gain must be clear, and more than what moving costs ([`Bundle::page_cost`]). Once
//! parts are equal nobody gains, so an unchanged load ends in no moves.
//!
//! What faults have not shown yet of a process's memory counts, too, as its page tables tell where that lies: who
//! goes over gigabytes shows what lies on one node long before the rest. Where a process has several bundles, it is
//! not known whose that is, and nothing is shared out before most of it has been shown.
//!
//! What lies on nodes where none of its users is comes to those where they are as soon as they have a
//! place ([`gather`]); equal parts wait until all else is at rest ([`spread`]).
//!
//! And where one node's memory carries all it can, as far as somebody measures that, parts are made equal though nobody
//! comes nearer: around a node in the middle all others have it near, and its memory has all of them.
//!
//! Example: tasks on nodes 0 and 1, SLIT 21, use eight regions alike, all on node 0. The tasks on
//! node 1 are at distance 11 on average, in equal parts 5.5: four regions go to node 1.
//!
//! Mainline does likewise page by page: `should_numa_migrate_memory` (v6.12) shares a group's pages
//! out to the nodes where it is active.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use numaherd_model::{Action, NodeId, Pages, Reason, Region, Snapshot};

use crate::bundles::WHOLE_TASK;
use crate::demand::{Amounts, Bundle, Demand, SHARE, add};
use crate::outlook::Outlook;
use crate::pages::{MIN_KNOWN_PAGES, MIN_USE_PERMILLE, expected_pages};
use crate::tables;

/// A node uses a bundle in earnest from this share of what its heaviest user node does, per mille.
/// Guessed: half.
const EARNEST_PERMILLE: u64 = 500;

/// The worst placed users must come nearer by this share of the distance they will have, per mille.
/// On two nodes: 550 ‰ of it on one of them. Guessed; one of 16 regions too many makes the tasks of a node 3 % slower, and
/// the program is as slow as they are.
const CLEAR_PERMILLE: u64 = 100;

/// A region of which less is known than one in this many of the mean region makes parts no more equal, and tells nothing of
/// who has memory alone. Guessed: stacks and what programs' threads have in common beside their work, of a few pages.
pub const SMALL: u64 = 8;

/// Most of a process's memory has been shown from this share on, per mille. Guessed.
const MOST_PERMILLE: u64 = 700;

/// Distances below are in thousandths.
const MILLI: u64 = 1000;

/// The moves, at most so many pages of them.
#[must_use]
pub fn spread(snapshot: &Snapshot, demand: &Demand, outlook: &Outlook, most: Pages) -> Vec<Action> {
    let mut left = most.0;
    let mut actions = Vec::new();
    for (b, bundle) in demand.bundles.iter().enumerate().filter(|(_, bundle)| !bundle.stays) {
        let weights = &outlook.of(b).weights;
        let Some(nodes) = in_earnest(demand, bundle, weights) else { continue };
        if bundle.regions.len() < nodes.len() {
            continue;
        }
        let Some(unseen) = unseen(snapshot, demand, bundle) else { continue };
        let lies = lies(demand, bundle, &unseen);
        if let Some(to) = pays(demand, bundle, &lies, weights, &nodes) {
            let mut parts = Parts::new(demand, bundle, lies, &nodes, to);
            for r in parts.in_order(snapshot, &bundle.regions) {
                let Some((to, pages)) = parts.next(snapshot, r).filter(|(_, p)| *p <= left) else {
                    continue;
                };
                left -= pages;
                actions.push(share(snapshot, demand, r, to, pages, nodes.len()));
            }
        }
    }
    actions
}

/// The moves of what lies on nodes that none of its users is on, to those that they are on, at most so
/// many pages: this need not wait until it is known who stays where among those.
#[must_use]
pub fn gather(snapshot: &Snapshot, demand: &Demand, outlook: &Outlook, most: Pages) -> Vec<Action> {
    let mut left = most.0;
    let mut actions = Vec::new();
    for (b, bundle) in demand.bundles.iter().enumerate().filter(|(_, bundle)| !bundle.stays) {
        let weights = &outlook.of(b).weights;
        let all_placed = bundle.users.iter().all(|&(task, _)| demand.tasks[task].placed);
        let Some(nodes) = in_earnest(demand, bundle, weights).filter(|_| all_placed) else {
            continue;
        };
        let away =
            |&&(node, _): &&(usize, u64)| weights.iter().all(|user| demand.beside[user.0] != node);
        let strays: Vec<(usize, u64)> = bundle.pages.iter().filter(away).copied().collect();
        if strays.is_empty() || !comes_nearer(demand, bundle, weights, &nodes, &strays) {
            continue;
        }
        let lies = lies(demand, bundle, &[]);
        let mut parts = Parts::new(demand, bundle, lies, &nodes, nodes.clone());
        for &r in &bundle.regions {
            let at = most_of(&snapshot.regions[r]);
            let at = at.and_then(|at| demand.nodes.binary_search(&at).ok());
            let strays = at.is_some_and(|at| strays.iter().any(|stray| stray.0 == at));
            let next = if strays { parts.next(snapshot, r) } else { None };
            let Some((to, pages)) = next.filter(|(_, pages)| *pages <= left) else { continue };
            left -= pages;
            actions.push(share(snapshot, demand, r, to, pages, nodes.len()));
        }
    }
    actions
}

/// Pages of a bundle that faults have not shown, by node, as far as page tables tell; `None` where it cannot be told
/// of which bundle they are, and they are many.
fn unseen(snapshot: &Snapshot, demand: &Demand, bundle: &Bundle) -> Option<Amounts> {
    let process = snapshot.regions[*bundle.regions.first()?].id.process;
    let Some(resident) = tables::of_process(snapshot, process) else { return Some(Amounts::new()) };
    let shown = tables::shown(snapshot, process);
    let more = |&(node, pages): &(NodeId, Pages)| {
        let seen = shown.nodes.iter().find(|(id, _)| *id == node).map_or(0, |(_, seen)| seen.0);
        let more = pages.0.saturating_sub(seen);
        let node = demand.nodes.binary_search(&node).ok().filter(|_| more > 0)?;
        Some((node, more))
    };
    let mut unseen: Amounts = resident.nodes.iter().filter_map(more).collect();
    let (known, all) = (tables::all(&shown), tables::all(resident));
    // Page tables were read a while ago: what has been moved since then counts on both nodes.
    let (left, sum) = (all.saturating_sub(known), unseen.iter().map(|(_, more)| more).sum::<u64>());
    unseen.iter_mut().for_each(|(_, more)| *more = *more * left / sum.max(1));
    let is_all = bundle.known * 1000 >= known * MOST_PERMILLE;
    let is_shown = known * 1000 >= all * MOST_PERMILLE;
    match (is_all, is_shown) {
        (true, _) => Some(unseen),
        (false, true) => Some(Amounts::new()),
        (false, false) => None,
    }
}

/// Pages of a bundle on each node of the machine: those that faults have shown, and more.
fn lies(demand: &Demand, bundle: &Bundle, more: &[(usize, u64)]) -> Vec<u64> {
    let mut lies = vec![0; demand.nodes.len()];
    bundle.pages.iter().chain(more).for_each(|&(node, pages)| lies[node] += pages);
    lies
}

/// One region's move.
fn share(
    snapshot: &Snapshot,
    demand: &Demand,
    r: usize,
    to: usize,
    pages: u64,
    nodes: usize,
) -> Action {
    let region = &snapshot.regions[r];
    let reason = Reason::UsersOnAll { nodes: nodes as u32 };
    let (to, pages, len) = (demand.nodes[to], Pages(pages), region.len);
    Action::MovePages { region: region.id, len, to, pages, reason }
}

/// The node that has most of a region.
fn most_of(region: &Region) -> Option<NodeId> {
    let most = region.pages.iter().max_by_key(|(node, pages)| (*pages, Reverse(*node)));
    most.map(|(node, _)| *node)
}

/// Whether strays in equal parts on these nodes are clearly nearer to their users, by more than moving
/// them costs.
fn comes_nearer(
    demand: &Demand,
    bundle: &Bundle,
    weights: &[(usize, u64)],
    nodes: &[usize],
    strays: &[(usize, u64)],
) -> bool {
    let far = |memory: usize| -> u64 {
        weights.iter().map(|&(cpus, weight)| weight * demand.distance(memory, cpus)).sum()
    };
    let count: u64 = strays.iter().map(|(_, pages)| pages).sum();
    let now = strays.iter().map(|&(node, pages)| far(node) / count.max(1) * pages).sum::<u64>();
    let then = nodes.iter().map(|&node| far(node)).sum::<u64>() / nodes.len() as u64;
    // Both are as if all of the bundle were strays.
    let gain = now.saturating_sub(then) / bundle.known.max(1) * count;
    now * 1000 >= then * (1000 + CLEAR_PERMILLE) && gain > count.saturating_mul(bundle.page_cost)
}

/// The nodes that use a bundle in earnest, ascending, if they are several and none has most of it; those without memory as
/// if they were the nearest that has some.
pub fn in_earnest(
    demand: &Demand,
    bundle: &Bundle,
    weights: &[(usize, u64)],
) -> Option<Vec<usize>> {
    let mut beside = Amounts::new();
    for &(node, weight) in weights {
        add(&mut beside, demand.beside[node], weight);
    }
    let weights = beside;
    let all: u64 = weights.iter().map(|(_, weight)| weight).sum();
    let most = weights.iter().map(|(_, weight)| *weight).max()?;
    if most * 1000 >= all * MIN_USE_PERMILLE {
        return None;
    }
    let earnest = |&&(node, weight): &&(usize, u64)| {
        weight * 1000 >= most * EARNEST_PERMILLE && demand.takes(bundle, node)
    };
    let mut nodes: Vec<usize> = weights.iter().filter(earnest).map(|(node, _)| *node).collect();
    nodes.sort_unstable();
    (nodes.len() > 1).then_some(nodes)
}

/// Where memory has to go for parts on these nodes to be equal, if that brings the worst placed users clearly nearer,
/// by more than moving costs; or where a memory that carries all it can gives up what is more than its part
/// to others, those others.
fn pays(
    demand: &Demand,
    bundle: &Bundle,
    lies: &[u64],
    weights: &[(usize, u64)],
    nodes: &[usize],
) -> Option<Vec<usize>> {
    if bundle.known == 0 {
        return None;
    }
    let known: u64 = lies.iter().sum();
    let far = |pages: &[u64]| {
        let all: u64 = pages.iter().sum();
        let from = |cpu: usize| {
            let far = |(node, p): (usize, &u64)| p * demand.distance(node, cpu) * MILLI;
            pages.iter().enumerate().map(far).sum::<u64>() / all
        };
        nodes.iter().map(|&cpu| from(cpu)).max().unwrap_or(0)
    };
    let mut parts = vec![0; lies.len()];
    nodes.iter().for_each(|&node| parts[node] = 1);
    let weight: u64 = weights.iter().map(|(_, weight)| weight).sum();
    let (now, then) = (far(lies), far(&parts));
    let nearer = now.saturating_sub(then);
    let fair = known / nodes.len() as u64;
    let arriving: u64 = nodes.iter().map(|&node| fair.saturating_sub(lies[node])).sum();
    let gain = weight.saturating_mul(nearer) / MILLI;
    let cost = arriving.saturating_mul(bundle.page_cost);
    if nearer * 1000 >= then * CLEAR_PERMILLE && gain > cost {
        return Some(nodes.to_vec());
    }
    let has_room = |node: &&usize| !demand.bandwidth.full[**node];
    let relieves = relief(demand, lies, nodes, fair).saturating_mul(weight) > cost;
    relieves.then(|| nodes.iter().filter(has_room).copied().collect())
}

/// What each user gains where a memory that carries all it can gives up what is more than its part, and another has
/// room for that: at the most so much less has to come from there. Guessed: half of that, at [`WHOLE_TASK`].
///
/// Example: all is on the first of four nodes, whose memory is full. A quarter of it remains, so three eighths of a
/// user's time.
fn relief(demand: &Demand, lies: &[u64], nodes: &[usize], fair: u64) -> u64 {
    let full = |node: usize| demand.bandwidth.full[node];
    if !nodes.iter().any(|&node| lies[node] < fair && !full(node)) {
        return 0;
    }
    let too_much = lies.iter().enumerate().filter(|&(node, _)| full(node));
    let most = too_much.map(|(_, pages)| *pages).max().unwrap_or(0);
    let clear = fair + fair * CLEAR_PERMILLE / 1000;
    if most <= clear { 0 } else { WHOLE_TASK / SHARE * (most - fair) / most / 2 }
}

/// A bundle being shared out.
#[derive(Clone)]
struct Parts<'a> {
    demand: &'a Demand,
    nodes: &'a [usize],
    /// Those of them that get more.
    to: Vec<usize>,
    /// Known pages on each node of the machine, as planned so far.
    have: Vec<u64>,
    /// Room left on each.
    room: Vec<u64>,
    /// Known pages from which a region counts.
    least: u64,
}

impl Parts<'_> {
    fn new<'a>(
        demand: &'a Demand,
        bundle: &Bundle,
        have: Vec<u64>,
        nodes: &'a [usize],
        to: Vec<usize>,
    ) -> Parts<'a> {
        let mean = bundle.known / (bundle.regions.len() as u64).max(1);
        let least = MIN_KNOWN_PAGES.max(mean / SMALL);
        Parts { demand, nodes, to, have, room: demand.room.clone(), least }
    }

    /// Regions (ascending) that count, in the order in which they are asked: those that were seen to change hands first, since
    /// others may be somebody's own after all, and of either kind as many as have to go by turns along their addresses.
    ///
    /// Who sweeps over memory of which one end is here and the other there is at the same node's memory as all who sweep
    /// with it, and the other node's idles meanwhile.
    fn in_order(&self, snapshot: &Snapshot, regions: &[usize]) -> Vec<usize> {
        let counts = |r: &usize| snapshot.regions[*r].known_pages().0 >= self.least;
        let changed_hands = |r: &usize| snapshot.regions[*r].switches > 0;
        let (surely, others): (Vec<usize>, Vec<usize>) =
            regions.iter().copied().filter(counts).partition(changed_hands);
        let mut tried = self.clone();
        [surely, others].into_iter().flat_map(|part| tried.by_turns(snapshot, part)).collect()
    }

    /// The same of one kind, which is planned with that.
    fn by_turns(&mut self, snapshot: &Snapshot, regions: Vec<usize>) -> Vec<usize> {
        let at = |r: usize| most_of(&snapshot.regions[r]);
        // Of each node, how many there are, and how many have to go.
        let mut nodes: BTreeMap<Option<NodeId>, (usize, usize)> = BTreeMap::new();
        for &r in &regions {
            let (all, go) = nodes.entry(at(r)).or_default();
            *all += 1;
            *go += usize::from(self.next(snapshot, r).is_some());
        }
        let mut passed: BTreeMap<Option<NodeId>, usize> = BTreeMap::new();
        let is_turn = |&r: &usize| {
            let (all, go) = nodes[&at(r)];
            let before = passed.entry(at(r)).or_default();
            *before += 1;
            *before * go / all > (*before - 1) * go / all
        };
        let (mut first, then): (Vec<usize>, Vec<usize>) = regions.into_iter().partition(is_turn);
        first.extend(then);
        first
    }

    /// Where a region goes, and how many pages are expected to move: to the node that has least,
    /// if that makes parts more equal.
    fn next(&mut self, snapshot: &Snapshot, r: usize) -> Option<(usize, u64)> {
        let region = &snapshot.regions[r];
        let at = most_of(region).filter(|_| !region.rests)?;
        let at = self.demand.nodes.binary_search(&at).ok()?;
        let known = region.known_pages().0;
        let &to = self.to.iter().min_by_key(|&&node| (self.have[node], node))?;
        let stranger = !self.nodes.contains(&at);
        let fairer = stranger || self.have[at] >= self.have[to] + 2 * known;
        let pages = expected_pages(snapshot, r, self.demand.nodes[to]);
        if at == to || known < self.least || !fairer || self.room[to] < pages {
            return None;
        }
        self.room[to] -= pages;
        for (node, pages) in &region.pages {
            let node: &NodeId = node;
            if let Ok(node) = self.demand.nodes.binary_search(node) {
                self.have[node] -= pages.0;
            }
        }
        self.have[to] += known;
        Some((to, pages))
    }
}

#[cfg(test)]
mod tests;
