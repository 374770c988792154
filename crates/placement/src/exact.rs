//! The best assignment of a small problem, by branch and bound.
//!
//! Tasks are assigned one after the other, heaviest first. A bundle costs at least what its users
//! assigned so far cost at the node that is cheapest for them, for the others may all turn out to
//! be there; where the sum of that is no less than the best assignment known, nothing below is
//! looked at. Who differs from today has moved at least one task, and paid for it: near a good
//! placement that alone ends the search at once. The work is bounded: a problem that takes more keeps the best found until then.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::assignment::Assignment;
use crate::demand::{Bundle, Demand, FEW_NODES, PoolLoads, Pools};

/// Tasks up to which a problem is small.
const MOST_TASKS: usize = 12;

/// Partial assignments looked at before we stop: the loop runs on the machine that it looks after.
const MOST_STEPS: usize = 20_000;

/// A cheaper assignment than the given one, if the problem is small and there is one.
#[must_use]
pub fn improve(demand: &Demand, found: &Assignment, task_cost: u64) -> Option<Vec<usize>> {
    let matters =
        |task: &usize| demand.tasks[*task].claims_cpu || !demand.tasks[*task].bundles.is_empty();
    let mut tasks: Vec<usize> =
        (0..demand.tasks.len()).filter(matters).take(MOST_TASKS + 1).collect();
    if tasks.len() > MOST_TASKS || demand.nodes.len() > FEW_NODES {
        return None;
    }
    let weight = |&task: &usize| demand.tasks[task].bundles.iter().map(|(_, w)| w).sum::<u64>();
    tasks.sort_by_key(|task| (Reverse(weight(task)), *task));
    let scattered: u64 = demand
        .bundles
        .iter()
        .map(|bundle| demand.scatter_cost(bundle, &bundle.weights(found.at())))
        .sum();
    let prices: Vec<Price<'_>> = demand.bundles.iter().map(|b| Price::new(demand, b)).collect();
    // Nobody assigned yet: what is sure to be paid. Most of the time the assignment at hand
    // costs no more than that.
    let sure: u64 = prices.iter().map(|price| price.least).sum();
    let mut search = Search {
        demand,
        task_cost,
        at: found.at().to_vec(),
        load: found.load().to_vec(),
        pools: found.pools().clone(),
        most_pools: demand.pools.at_least(found.pools()),
        prices,
        best: None,
        bound: found.total() + scattered,
        steps: 0,
        traffic: found.traffic().to_vec(),
        most_traffic: demand
            .bandwidth
            .takes
            .iter()
            .zip(found.traffic())
            .map(|(&takes, &found)| takes.max(found))
            .collect(),
        limits: demand.capacity.iter().zip(found.load()).map(|(&c, &l)| c.max(l)).collect(),
        crowd: 0,
        most_crowd: demand.crowd.max(demand.crowd_of(found.load())),
    };
    for &task in tasks.iter().filter(|&&task| demand.tasks[task].claims_cpu) {
        search.load[search.at[task]] -= 1;
        search.pools.leave(demand.tasks[task].pool, search.at[task]);
    }
    search.crowd = demand.crowd_of(&search.load);
    for &task in &tasks {
        search.traffic[search.at[task]] -= demand.tasks[task].traffic;
    }
    let sure = sure + demand.cores.total(&search.load);
    search.descend(&tasks, sure, 0);
    search.best
}

/// What a bundle costs with the users assigned so far, wherever its memory may come to be.
struct Price<'a> {
    demand: &'a Demand,
    bundle: &'a Bundle,
    /// For each place of its memory, what a user on each node pays there, per `unit` of weight.
    far: SmallVec<[[u64; FEW_NODES]; FEW_NODES]>,
    unit: u64,
    /// For each place, what is to be paid there so far.
    sums: SmallVec<[u64; FEW_NODES]>,
    /// Weight of users on each node.
    on: [u64; FEW_NODES],
    /// Users that are still to be assigned.
    left: usize,
    /// The least of it.
    least: u64,
}

impl<'a> Price<'a> {
    /// With nobody assigned.
    fn new(demand: &'a Demand, bundle: &'a Bundle) -> Price<'a> {
        let nodes = 0..demand.nodes.len();
        let row = |far: &dyn Fn(usize) -> u64| {
            let mut row = [0; FEW_NODES];
            nodes.clone().for_each(|cpus| row[cpus] = far(cpus));
            row
        };
        let (mut far, mut sums) = (SmallVec::new(), SmallVec::new());
        let unit = if bundle.stays { 1000 } else { 1 };
        if bundle.stays {
            far.push(row(&|cpus| demand.mean_far(bundle, cpus)));
            sums.push(0);
        } else {
            for (node, moving) in demand.destinations(bundle) {
                far.push(row(&|cpus| demand.distance(node, cpus)));
                sums.push(moving);
            }
        }
        let left = bundle.users.len();
        let mut price =
            Price { demand, bundle, far, unit, sums, on: [0; FEW_NODES], left, least: 0 };
        price.least = price.sum();
        price
    }

    fn sum(&self) -> u64 {
        self.sums.iter().copied().min().unwrap_or(0) + self.scattered()
    }

    /// While some are to come, they may turn out to be where that costs nothing.
    fn scattered(&self) -> u64 {
        if self.left > 0 {
            return 0;
        }
        let mut weights = [(0, 0); FEW_NODES];
        for (node, weight) in self.on.iter().enumerate() {
            weights[node] = (node, *weight);
        }
        self.demand.scatter_cost(self.bundle, &weights)
    }

    /// What it would cost with one more user on a node.
    fn with(&self, node: usize, weight: u64) -> u64 {
        if self.left > 1 {
            let with = |(far, sum): (&[u64; FEW_NODES], &u64)| sum + weight * far[node] / self.unit;
            return self.far.iter().zip(&self.sums).map(with).min().unwrap_or(0);
        }
        let mut price = Price { far: self.far.clone(), sums: self.sums.clone(), ..*self };
        price.add(node, weight);
        price.least
    }

    fn add(&mut self, node: usize, weight: u64) {
        for (far, sum) in self.far.iter().zip(&mut self.sums) {
            *sum += weight * far[node] / self.unit;
        }
        self.on[node] += weight;
        self.left -= 1;
        self.least = self.sum();
    }

    fn withdraw(&mut self, node: usize, weight: u64) {
        for (far, sum) in self.far.iter().zip(&mut self.sums) {
            *sum -= weight * far[node] / self.unit;
        }
        self.on[node] -= weight;
        self.left += 1;
        self.least = self.sum();
    }
}

struct Search<'a> {
    demand: &'a Demand,
    task_cost: u64,
    at: Vec<usize>,
    load: Vec<usize>,
    /// The same of each pool, and the most that there may be.
    pools: PoolLoads,
    most_pools: Pools,
    /// Of each bundle.
    prices: Vec<Price<'a>>,
    best: Option<Vec<usize>>,
    bound: u64,
    steps: usize,
    limits: Vec<usize>,
    /// Tasks beyond open CPUs, and the most that there may be.
    crowd: usize,
    most_crowd: usize,
    /// Bytes a second on each node, and the most that it may have.
    traffic: Vec<u64>,
    most_traffic: Vec<u64>,
}

impl Search<'_> {
    /// How many of so many tasks that come to a node would be beyond its open CPUs.
    fn crowds(&self, node: usize, claims: usize) -> usize {
        if self.load[node] >= self.demand.open[node] { claims } else { 0 }
    }

    /// Assigns the first of `tasks` and then the others; `sure` is what is paid already, for
    /// `moved` tasks among other things. Moving nobody is not considered: it is no better than
    /// what was found.
    fn descend(&mut self, tasks: &[usize], sure: u64, moved: usize) {
        let to_come = if moved == 0 { self.task_cost } else { 0 };
        if sure + to_come >= self.bound {
            return;
        }
        let Some((&task, rest)) = tasks.split_first() else {
            self.bound = sure;
            self.best = Some(self.at.clone());
            return;
        };
        let who = &self.demand.tasks[task];
        let claims = usize::from(who.claims_cpu);
        let before: u64 = who.bundles.iter().map(|&(b, _)| self.prices[b].least).sum();
        let mut branches: SmallVec<[(u64, bool, usize); FEW_NODES]> = SmallVec::new();
        for node in 0..self.demand.nodes.len() {
            let room = self.load[node] + claims <= self.limits[node].max(claims)
                && self.crowd + self.crowds(node, claims) <= self.most_crowd;
            let room =
                room && (claims == 0 || self.pools.has_room(&self.most_pools, who.pool, node));
            let carries = self.traffic[node] + who.traffic <= self.most_traffic[node];
            if room && carries && !self.demand.cpus(task, node).is_empty() {
                let cost = if node == who.now { 0 } else { self.task_cost };
                let after = who.bundles.iter().map(|&(b, w)| self.prices[b].with(node, w));
                let after = after.sum::<u64>();
                let cores = &self.demand.cores;
                let on = self.load[node];
                let crowding = cores.cost(node, on + claims) - cores.cost(node, on);
                branches.push((sure - before + after + cost + crowding, node != who.now, node));
            }
        }
        branches.sort_unstable();
        for (sure, moves, node) in branches {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return;
            }
            for &(b, weight) in &who.bundles {
                self.prices[b].add(node, weight);
            }
            let before = std::mem::replace(&mut self.at[task], node);
            let crowds = self.crowds(node, claims);
            self.crowd += crowds;
            self.load[node] += claims;
            let pool = who.pool.filter(|_| claims > 0);
            self.pools.come(pool, node);
            self.traffic[node] += who.traffic;
            self.descend(rest, sure, moved + usize::from(moves));
            self.load[node] -= claims;
            self.pools.leave(pool, node);
            self.crowd -= crowds;
            self.traffic[node] -= who.traffic;
            self.at[task] = before;
            for &(b, weight) in &who.bundles {
                self.prices[b].withdraw(node, weight);
            }
        }
    }
}
