//! The best assignment of a small problem, by branch and bound.
//!
//! Tasks are assigned one after the other, heaviest first. A bundle costs at least what its users
//! assigned so far cost at the node that is cheapest for them, for the others may all turn out to
//! be there; where the sum of that is no less than the best assignment known, nothing below is
//! looked at. Who differs from today has moved at least one task, and paid for it: near a good
//! placement that alone ends the search at once. The work is bounded: a problem that takes more keeps the best found until then.

use std::cmp::Reverse;

use crate::assignment::Assignment;
use crate::demand::{Demand, FEW_NODES};

/// Tasks up to which a problem is small.
const MOST_TASKS: usize = 12;

/// Partial assignments looked at before we stop. Each is worth a few hundred instructions a
/// bundle, and the loop runs on the machine that it looks after.
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
    let mut search = Search {
        demand,
        task_cost,
        at: found.at().to_vec(),
        load: found.load().to_vec(),
        weights: vec![Vec::new(); demand.bundles.len()],
        least: (0..demand.bundles.len()).map(|b| least(demand, b, &[])).collect(),
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
    };
    for &task in tasks.iter().filter(|&&task| demand.tasks[task].claims_cpu) {
        search.load[search.at[task]] -= 1;
    }
    for &task in &tasks {
        search.traffic[search.at[task]] -= demand.tasks[task].traffic;
    }
    // Nobody assigned yet: what is sure to be paid. Most of the time the assignment at hand
    // costs no more than that.
    let sure = search.least.iter().sum();
    search.descend(&tasks, sure, 0);
    search.best
}

struct Search<'a> {
    demand: &'a Demand,
    task_cost: u64,
    at: Vec<usize>,
    load: Vec<usize>,
    /// Weight per node of each bundle's users that are assigned.
    weights: Vec<Vec<(usize, u64)>>,
    /// What each bundle costs at least.
    least: Vec<u64>,
    best: Option<Vec<usize>>,
    bound: u64,
    steps: usize,
    limits: Vec<usize>,
    /// Bytes a second on each node, and the most that it may have.
    traffic: Vec<u64>,
    most_traffic: Vec<u64>,
}

impl Search<'_> {
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
        let mut branches = Vec::new();
        for node in 0..self.demand.nodes.len() {
            let room = self.load[node] + claims <= self.limits[node].max(claims);
            let carries = self.traffic[node] + who.traffic <= self.most_traffic[node];
            if room && carries && !self.demand.cpus(task, node).is_empty() {
                let saved = self.assign(task, node);
                let cost = if node == who.now { 0 } else { self.task_cost };
                let after = who.bundles.iter().map(|&(b, _)| self.least[b]).sum::<u64>();
                let before = saved.iter().sum::<u64>();
                self.withdraw(task, &saved);
                branches.push((sure - before + after + cost, node != who.now, node));
            }
        }
        branches.sort_unstable();
        for (sure, moves, node) in branches {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return;
            }
            let saved = self.assign(task, node);
            let before = std::mem::replace(&mut self.at[task], node);
            self.load[node] += claims;
            self.traffic[node] += who.traffic;
            self.descend(rest, sure, moved + usize::from(moves));
            self.load[node] -= claims;
            self.traffic[node] -= who.traffic;
            self.at[task] = before;
            self.withdraw(task, &saved);
        }
    }

    /// Counts a task's weight on a node; answers what its bundles cost before.
    fn assign(&mut self, task: usize, node: usize) -> Vec<u64> {
        let mut saved = Vec::new();
        for &(b, weight) in &self.demand.tasks[task].bundles {
            self.weights[b].push((node, weight));
            let least = least(self.demand, b, &self.weights[b]);
            saved.push(std::mem::replace(&mut self.least[b], least));
        }
        saved
    }

    /// Takes the last assignment back.
    fn withdraw(&mut self, task: usize, saved: &[u64]) {
        for (&(b, _), &least) in self.demand.tasks[task].bundles.iter().zip(saved) {
            self.weights[b].pop();
            self.least[b] = least;
        }
    }
}

/// What a bundle costs with the weights assigned so far.
fn least(demand: &Demand, b: usize, weights: &[(usize, u64)]) -> u64 {
    let bundle = &demand.bundles[b];
    // While some are to come, they may turn out to be where that costs nothing.
    let all = weights.len() == bundle.users.len();
    let scattered = if all { demand.scatter_cost(bundle, weights) } else { 0 };
    demand.best_memory(bundle, weights).1 + scattered
}
