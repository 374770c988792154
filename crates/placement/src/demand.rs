//! From a snapshot to an assignment problem in integers.
//!
//! Regions that the same tasks use are taken together as one *bundle*. A task's *weight* in a
//! bundle is its share of the task's faults, times how busy the task is: [`SHARE`] is a task
//! that keeps a CPU busy and touches nothing else. Distances are in [`SLIT_UNIT`]s, less a node's own: 0 is local.
//!
//! Where the tasks of a process share its memory, a region's few faults are a small sample of who
//! uses it: a shared process's faults are spread over its busy tasks, as far as it is shared.
//!
//! Worked example: a task busy 50 % with 300 of its 400 faults in a bundle has a weight of
//! 500 ‰ × 3/4 = 0.375 of [`SHARE`] there.

mod pools;
mod room;
mod tasks;

use std::cmp::Reverse;

use numaherd_model::{CpuSet, NodeId, Snapshot, TaskId, Topology};
use smallvec::SmallVec;

use crate::bandwidth::Bandwidth;
use crate::bundles::bundles;
use crate::cores::Cores;
use crate::mechanisms::Mechanisms;
use crate::outlook::{Outlook, Prospect};
use crate::{interleave, lost, units};

/// A whole task.
pub const SHARE: u64 = 1_000_000;

/// What one of SLIT's tenths is in a [`Demand`]'s distances: measured latencies are finer.
pub const SLIT_UNIT: u64 = 100;

pub use numaherd_model::MIN_FAULTS;
pub use pools::{PoolLoads, PoolOf, Pools};
pub use room::parts;

/// Of its use, per mille, what one node has to have for memory to be that node's: what
/// [`crate::pages`] asks for.
const MOST_USE_PERMILLE: u64 = 600;

/// The part of what sharing memory out costs more than having it on one node that counts: one in so
/// many. Guessed: enough to tell assignments of the same mean distance apart.
const SCATTERED: u64 = 4;

/// Up to so many nodes, every one is tried for a bundle's memory; beyond, those that hold some
/// of it or run one of its users. A node that is neither can be cheapest only as a middle
/// between many, which a handful of nodes has and where it costs little to look.
pub const FEW_NODES: usize = 8;

/// Indices with an amount each. Most bundles lie on one node and have one user, who uses no other:
/// one entry is kept in place, which spares the search of a large problem a miss of the cache.
pub type Amounts = SmallVec<[(usize, u64); 1]>;

/// Regions, by index into the snapshot's: many bundles have one or two, which are kept in place.
pub type Regions = SmallVec<[usize; 2]>;

/// Nodes, by index.
pub type Nodes = SmallVec<[usize; 2]>;

/// A task, as the search sees it.
#[derive(Clone, Debug)]
pub struct DemandTask {
    /// Who.
    pub id: TaskId,
    /// Busy enough to claim a CPU.
    pub busy: bool,
    /// And that one of those that are for all, and not one set apart.
    pub claims_cpu: bool,
    /// Faults, in pages, that say where its memory is.
    pub evidence: u64,
    /// Its pool, if its owner allows it some of a node's CPUs and not all.
    pub pool: PoolOf,
    /// Which of [`Demand::masks`] is its own.
    pub mask: usize,
    /// Whether its owner allows it CPUs on several nodes.
    pub has_choice: bool,
    /// Index of the node it is on now.
    pub now: usize,
    /// Whether we put it there.
    pub placed: bool,
    /// Belongs to a unit: it goes with that, whatever is known of it.
    pub tied: bool,
    /// Bytes a second that it reads and writes, where that is measured.
    pub traffic: u64,
    /// Bundles it uses, with its weight in each.
    pub bundles: Amounts,
}

impl DemandTask {
    /// All of its weight.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.bundles.iter().map(|(_, weight)| weight).sum()
    }

    /// Whether a part of its weight is most of it: two thirds. Guessed.
    #[must_use]
    pub fn is_most(&self, part: u64) -> bool {
        part * 3 >= self.weight() * 2 && part > 0
    }
}

/// Regions with the same users.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Tasks, by index and ascending, with their weights.
    pub users: Amounts,
    /// Regions, by index into the snapshot's.
    pub regions: Regions,
    /// Known pages on each node that has some, ascending.
    pub pages: Amounts,
    /// All of them together.
    pub known: u64,
    /// Cost of moving one page, in the same unit as weight × distance.
    pub page_cost: u64,
    /// Its pages are never moved.
    pub stays: bool,
    /// Nodes that they may not be on, by index: those that the cpuset of a process that maps it leaves out.
    pub forbidden: Nodes,
}

impl Bundle {
    /// Known pages on a node.
    #[must_use]
    pub fn pages_on(&self, node: usize) -> u64 {
        self.pages.iter().find(|(n, _)| *n == node).map_or(0, |(_, pages)| *pages)
    }

    /// The weight of its users that is local, for tasks where `at` says and memory where it lies now; beside a node that
    /// has no memory, on the nearest that has.
    #[must_use]
    pub fn local(&self, demand: &Demand, at: &[usize]) -> u64 {
        let near = |&(task, weight): &(usize, u64)| {
            let pages = self.pages_on(demand.beside[at[task]]);
            (weight * pages).checked_div(self.known).unwrap_or(0)
        };
        self.users.iter().map(near).sum()
    }

    /// The weight of its users on each node that has some, for tasks where `at` says.
    #[must_use]
    pub fn weights(&self, at: &[usize]) -> Amounts {
        let mut weights = Amounts::new();
        self.users.iter().for_each(|&(task, weight)| add(&mut weights, at[task], weight));
        weights
    }
}

/// The problem.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Nodes, ascending by id; every index below refers to this.
    pub nodes: Vec<NodeId>,
    /// How much farther than its own, CPUs' node by CPUs' node, each to every memory's node, in [`SLIT_UNIT`]s.
    excess: Vec<u32>,
    /// How much there is to lose by distance ([`lost::permille`]).
    pub lost_permille: u64,
    /// Whether a node has memory.
    pub has_memory: Vec<bool>,
    /// The nearest node that has memory: mostly itself.
    pub beside: Vec<usize>,
    /// Pages that a node can take without coming near its high watermark.
    pub room: Vec<u64>,
    /// CPUs of each node that are neither set apart nor taken by others.
    pub open: Vec<usize>,
    /// Tasks that claim a CPU which each node may hold.
    pub capacity: Vec<usize>,
    /// Tasks beyond their nodes' open CPUs while no such CPU idles: the part of each node is rounded up, and were all
    /// to hold that much, some would hold too little.
    pub crowd: usize,
    /// Tasks that each may keep beyond that.
    pub slack: Vec<usize>,
    /// What it costs that tasks share cores.
    pub cores: Cores,
    /// What the memory of each node may be given: no limit, until [`Bandwidth::new`] says more.
    pub bandwidth: Bandwidth,
    /// Whether small problems count [`Demand::scatter_cost`].
    pub scatter: bool,
    /// For each mask that some owner set, the CPUs of each node in it that a task may be given; empty: the task cannot
    /// go there.
    pub masks: Vec<Vec<CpuSet>>,
    /// Tasks of each pool that claim a CPU which each node may hold.
    pub pools: Pools,
    /// Tasks.
    pub tasks: Vec<DemandTask>,
    /// Bundles.
    pub bundles: Vec<Bundle>,
}

impl Demand {
    /// Reads a snapshot.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Demand {
        Demand::with(snapshot, Mechanisms { scatter: false, ..Mechanisms::default() })
    }

    /// The same, with only these parts of herd.
    #[must_use]
    pub fn with(snapshot: &Snapshot, mechanisms: Mechanisms) -> Demand {
        let topology = &snapshot.topology;
        let nodes: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
        let far = if mechanisms.latencies { Topology::far_at } else { Topology::far_by_slit_at };
        let excess_of = |a, b| far(topology, a, b).saturating_sub(10 * SLIT_UNIT as u32);
        let pairs = (0..nodes.len()).flat_map(|a| (0..nodes.len()).map(move |b| (a, b)));
        let (mut tasks, masks, pools) = tasks::of(snapshot);
        let mut bundles = bundles(snapshot, &mut tasks, mechanisms.teams);
        units::tie(snapshot, &mut tasks, &mut bundles);
        let bandwidth = Bandwidth::unlimited(nodes.len());
        let claims = tasks.iter().filter(|task| task.claims_cpu).count();
        let open = room::cpus(snapshot);
        let (capacity, slack) = room::tasks(snapshot, &open, claims);
        Demand {
            excess: pairs.map(|(cpus, memory)| excess_of(cpus, memory)).collect(),
            lost_permille: lost::of(lost::others(topology).map(|(a, b)| excess_of(a, b).into())),
            beside: beside(topology),
            has_memory: topology.nodes.iter().map(|node| node.memory.0 > 0).collect(),
            room: topology.nodes.iter().map(|node| room::pages(snapshot, node)).collect(),
            crowd: claims.saturating_sub(open.iter().sum()),
            open,
            capacity,
            slack,
            cores: if mechanisms.cores { Cores::new(snapshot) } else { Cores::of_their_own() },
            bandwidth,
            scatter: mechanisms.scatter,
            nodes,
            masks,
            pools,
            tasks,
            bundles,
        }
    }

    /// The node of each task now.
    #[must_use]
    pub fn today(&self) -> Vec<usize> {
        self.tasks.iter().map(|task| task.now).collect()
    }

    /// CPUs of a node that a task's owner allows it.
    #[must_use]
    pub fn cpus(&self, task: usize, node: usize) -> &CpuSet {
        &self.masks[self.tasks[task].mask][node]
    }

    /// How much farther memory on one node is to CPUs on another than their own, both by index: 11 [`SLIT_UNIT`]s at
    /// SLIT 21.
    #[must_use]
    pub fn distance(&self, memory: usize, cpus: usize) -> u64 {
        u64::from(self.excess[cpus * self.nodes.len() + memory])
    }

    /// The same from a node's CPUs to the memory of each node.
    #[must_use]
    pub fn distances(&self, cpus: usize) -> &[u32] {
        &self.excess[cpus * self.nodes.len()..][..self.nodes.len()]
    }

    /// Tasks that claim a CPU on each node, for tasks where `at` says.
    #[must_use]
    pub fn loads(&self, at: &[usize]) -> Vec<usize> {
        let mut loads = vec![0; self.nodes.len()];
        let busy = self.tasks.iter().zip(at).filter(|(task, _)| task.claims_cpu);
        busy.for_each(|(_, &node)| loads[node] += 1);
        loads
    }

    /// Tasks beyond the open CPUs of their node, with so many on each.
    #[must_use]
    pub fn crowd_of(&self, load: &[usize]) -> usize {
        load.iter().zip(&self.open).map(|(load, open)| load.saturating_sub(*open)).sum()
    }

    /// Whether it is known, or does not matter, where a task's memory is.
    #[must_use]
    pub fn is_known(&self, task: usize) -> bool {
        let task = &self.tasks[task];
        task.busy && (task.tied || task.evidence >= MIN_FAULTS)
    }

    /// Whether two tasks use a bundle together.
    #[must_use]
    pub fn have_in_common(&self, a: usize, b: usize) -> bool {
        let of_b = &self.tasks[b].bundles;
        self.tasks[a].bundles.iter().any(|(one, _)| of_b.iter().any(|(other, _)| one == other))
    }

    /// Where most of a bundle lies that is never moved, and what it costs there: Σ weight × the mean
    /// distance to its pages.
    fn as_it_lies(&self, bundle: &Bundle, weights: &[(usize, u64)]) -> (usize, u64) {
        let most = bundle.pages.iter().max_by_key(|&&(node, pages)| (pages, Reverse(node)));
        let cost = |&(from, weight): &(usize, u64)| weight * self.mean_far(bundle, from) / 1000;
        (most.map_or(0, |&(node, _)| node), weights.iter().map(cost).sum())
    }

    /// The mean distance, in thousandths, from CPUs on a node to the pages of a bundle.
    #[must_use]
    pub fn mean_far(&self, bundle: &Bundle, cpus: usize) -> u64 {
        let far = |&(node, pages): &(usize, u64)| pages * self.distance(node, cpus) * 1000;
        bundle.pages.iter().map(far).sum::<u64>() / bundle.known.max(1)
    }

    /// Whether a node has memory, and a bundle's may be on it.
    #[must_use]
    pub fn takes(&self, bundle: &Bundle, node: usize) -> bool {
        self.has_memory[node] && !bundle.forbidden.contains(&node)
    }

    /// Of these weights by node those whose nearest memory is this.
    #[must_use]
    pub fn weight_beside(&self, weights: &[(usize, u64)], memory: usize) -> u64 {
        let there = weights.iter().filter(|&&(node, _)| self.beside[node] == memory);
        there.map(|(_, weight)| weight).sum()
    }

    /// Where a bundle's memory may come to be, by the rules of [`Demand::best_memory`], each with what it costs to
    /// bring it there.
    #[must_use]
    pub fn destinations(&self, bundle: &Bundle) -> Amounts {
        let far = |node: usize| bundle.known - bundle.pages_on(node);
        let nodes = (0..self.nodes.len()).filter(|&node| self.takes(bundle, node));
        let fits = |&node: &usize| far(node) <= self.room[node];
        let all_full = !nodes.clone().any(|node| fits(&node));
        let open = nodes.filter(|node| all_full || fits(node));
        open.map(|node| (node, far(node) * bundle.page_cost)).collect()
    }

    /// Whether a task may run on more than one node.
    #[must_use]
    pub fn has_choice(&self, task: usize) -> bool {
        self.tasks[task].has_choice
    }

    /// The node where a bundle's memory costs least, given the weight of its users on each node,
    /// and what it costs there: Σ weight × distance, and moving what is elsewhere. Of nodes that
    /// have room for that, if there is one: else tasks must go to their memory. Ties go to the node
    /// that holds most of it, then to the lower id. What is never moved costs what it costs where it
    /// lies.
    #[must_use]
    pub fn best_memory(&self, bundle: &Bundle, weights: &[(usize, u64)]) -> (usize, u64) {
        if bundle.stays {
            return self.as_it_lies(bundle, weights);
        }
        let known = bundle.known;
        let better = |best: Option<(bool, u64, u64, usize)>, node: usize| {
            let there = bundle.pages_on(node);
            let moving = (known - there) * bundle.page_cost;
            let full = known - there > self.room[node];
            // Moving alone is dearer: most nodes of a large machine are done with here.
            if !self.takes(bundle, node)
                || best.is_some_and(|best| (best.0, best.1) < (full, moving))
            {
                return best;
            }
            let distance = weights.iter().map(|&(from, weight)| weight * self.distance(node, from));
            let key = (full, distance.sum::<u64>() + moving, u64::MAX - there, node);
            Some(best.map_or(key, |best| best.min(key)))
        };
        let concerned = bundle.pages.iter().chain(weights).map(|&(node, _)| node);
        let cheapest = match self.nodes.len() {
            0..=FEW_NODES => None,
            _ => concerned.fold(None, better),
        };
        let cheapest = cheapest.or_else(|| (0..self.nodes.len()).fold(None, better));
        cheapest.map_or((0, 0), |(_, cost, _, node)| (node, cost))
    }

    /// What it costs beyond [`Demand::best_memory`] that a bundle's users are scattered: their mean
    /// distance may be small with all memory on one node, but those who are elsewhere have it all far,
    /// and the rest waits for them. So memory that several nodes use in earnest will be shared out
    /// ([`crate::interleave`]), and this is a part of what that costs more. `weights` may name a node
    /// several times.
    ///
    /// Example: four tasks on a square of nodes, SLIT 16 along its sides and 22 across, two on node 0 and
    /// one on each of its neighbours. Memory on node 0 costs 6 + 6, no more than with two and two on
    /// neighbours. In equal parts on three nodes it costs 2 × 4 + 6 + 6 = 20, and on the two 4 × 3 = 12.
    #[must_use]
    pub fn scatter_cost(&self, bundle: &Bundle, weights: &[(usize, u64)]) -> u64 {
        if !self.scatter || bundle.stays || bundle.users.len() < 2 || self.nodes.len() > FEW_NODES {
            return 0;
        }
        let mut on = [0; FEW_NODES];
        weights.iter().for_each(|&(node, weight)| on[node] += weight);
        let all: u64 = on.iter().sum();
        let most = on.iter().copied().max().unwrap_or(0);
        if most * 1000 >= all * MOST_USE_PERMILLE {
            return 0;
        }
        let is_part = |&node: &usize| on[node] * 2 >= most && self.takes(bundle, node);
        let parts = (0..self.nodes.len()).filter(is_part);
        let far = |memory: usize| -> u64 {
            (0..self.nodes.len()).map(|cpus| on[cpus] * self.distance(memory, cpus)).sum()
        };
        let (count, sum) = parts.fold((0, 0), |(count, sum), node| (count + 1, sum + far(node)));
        let least = (0..self.nodes.len()).filter(|&node| self.takes(bundle, node)).map(far).min();
        let parts = u64::checked_div(sum, count).unwrap_or(0);
        parts.saturating_sub(least.unwrap_or(0)) / SCATTERED
    }

    /// What all bundles cost, and that tasks share cores.
    #[must_use]
    pub fn total_cost(&self, at: &[usize]) -> u64 {
        let bundles = self.bundles.iter();
        let far = bundles.map(|bundle| self.best_memory(bundle, &bundle.weights(at)).1);
        far.sum::<u64>() + self.cores.total(&self.loads(at))
    }

    /// Per mille of all weight that is local, with memory where it lies now.
    #[must_use]
    pub fn strength_permille(&self, at: &[usize]) -> u32 {
        let (mut local, mut all) = (0, 0);
        for bundle in self.bundles.iter().filter(|bundle| !bundle.pages.is_empty()) {
            all += bundle.users.iter().map(|(_, weight)| weight).sum::<u64>();
            local += bundle.local(self, at);
        }
        (local * 1000).checked_div(all).unwrap_or(0) as u32
    }

    /// Per mille of all weight that is not local now and will be with memory where it is to lie. What is never
    /// moved does not count, and what several nodes use in earnest neither: about as much of that is local
    /// wherever it lies.
    ///
    /// Example: two tasks on two nodes, all memory on the first, half of each one's weight in memory of its own
    /// and half in memory of both: 250, the second one's own.
    #[must_use]
    pub fn misplaced_permille(&self, at: &[usize], outlook: &Outlook) -> u32 {
        let (mut comes, mut all) = (0, 0);
        for (b, bundle) in self.bundles.iter().enumerate().filter(|(_, b)| !b.pages.is_empty()) {
            let &Prospect { ref weights, memory } = outlook.of(b);
            all += weights.iter().map(|(_, weight)| weight).sum::<u64>();
            if bundle.stays || interleave::in_earnest(self, bundle, weights).is_some() {
                continue;
            }
            let then = self.weight_beside(weights, memory);
            comes += then.saturating_sub(bundle.local(self, at));
        }
        (comes * 1000).checked_div(all).unwrap_or(0) as u32
    }
}

/// Adds an amount to what there is of a node.
pub fn add(amounts: &mut Amounts, node: usize, amount: u64) {
    match amounts.iter_mut().find(|(known, _)| *known == node) {
        Some((_, sum)) => *sum += amount,
        None => amounts.push((node, amount)),
    }
}

/// Of each node the nearest that has memory, itself if it has some.
fn beside(topology: &Topology) -> Vec<usize> {
    let nodes = &topology.nodes;
    let nearest = |at: usize| {
        let has_memory = (0..nodes.len()).filter(|&node| nodes[node].memory.0 > 0);
        has_memory.min_by_key(|&node| (topology.far_by_slit_at(at, node), node)).unwrap_or(at)
    };
    let of = |at: usize| if nodes[at].memory.0 > 0 { at } else { nearest(at) };
    (0..nodes.len()).map(of).collect()
}

#[cfg(test)]
mod tests;
