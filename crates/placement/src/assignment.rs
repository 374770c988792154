//! An assignment of tasks to nodes that is being improved: knows its cost, keeps it up to date
//! as tasks change nodes, and never overfills a node by itself.
//!
//! Cost = Σ over bundles of (weight × distance to the bundle's memory, taken to be on the node
//! where that is cheapest, plus moving it there) + `task_cost` for each task that is not where it
//! is now. All in the unit of [`crate::demand`].
//!
//! A change costs time in proportion to the bundles of the task and the nodes that each touches,
//! whatever the size of the machine.

use std::cmp::Reverse;

use crate::demand::Demand;

/// See the module.
pub struct Assignment<'a> {
    demand: &'a Demand,
    at: Vec<usize>,
    load: Vec<usize>,
    weights: Vec<Vec<(usize, u64)>>,
    /// Where each bundle's memory is cheapest, and what it costs there.
    memory: Vec<(usize, u64)>,
    task_cost: u64,
    total: u64,
    scratch: Vec<(usize, u64)>,
}

impl<'a> Assignment<'a> {
    /// Everybody where they are now.
    pub fn today(demand: &'a Demand, task_cost: u64) -> Assignment<'a> {
        let at: Vec<usize> = demand.tasks.iter().map(|task| task.now).collect();
        let mut load = vec![0; demand.nodes.len()];
        for (task, &node) in demand.tasks.iter().zip(&at) {
            load[node] += usize::from(task.claims_cpu);
        }
        let weights: Vec<_> = demand.bundles.iter().map(|bundle| bundle.weights(&at)).collect();
        let costs = demand.bundles.iter().zip(&weights);
        let memory: Vec<_> = costs.map(|(b, weights)| demand.best_memory(b, weights)).collect();
        let total = memory.iter().map(|(_, cost)| cost).sum();
        Assignment { demand, at, load, weights, memory, task_cost, total, scratch: Vec::new() }
    }

    /// The node of each task, by index.
    pub fn at(&self) -> &[usize] {
        &self.at
    }

    /// The same, for good.
    pub fn into_nodes(self) -> Vec<usize> {
        self.at
    }

    /// What it costs.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What each task costs that is not where it is now.
    pub fn task_cost(&self) -> u64 {
        self.task_cost
    }

    /// What one bundle costs.
    pub fn cost_of(&self, bundle: usize) -> u64 {
        self.memory[bundle].1
    }

    /// The node where one bundle's memory is cheapest.
    pub fn memory_of(&self, bundle: usize) -> usize {
        self.memory[bundle].0
    }

    /// The weight of a bundle's users on each node that has some.
    pub fn weights(&self, bundle: usize) -> &[(usize, u64)] {
        &self.weights[bundle]
    }

    /// Tasks that claim a CPU on each node.
    pub fn load(&self) -> &[usize] {
        &self.load
    }

    /// Whether a node holds more of them than it should.
    pub fn is_overfull(&self, node: usize) -> bool {
        self.load[node] > self.demand.capacity[node]
    }

    /// Whether a task's owner allows it a node and there is room for it.
    pub fn has_room(&self, task: usize, node: usize) -> bool {
        let claims = self.demand.tasks[task].claims_cpu;
        let free = !claims || self.load[node] < self.demand.capacity[node];
        self.at[task] == node || free && self.allows(task, node)
    }

    /// Whether a task's owner allows it a node.
    pub fn allows(&self, task: usize, node: usize) -> bool {
        !self.demand.cpus(task, node).is_empty()
    }

    /// Puts a task on a node, room or not.
    pub fn put(&mut self, task: usize, to: usize) {
        let from = std::mem::replace(&mut self.at[task], to);
        if from == to {
            return;
        }
        let who = &self.demand.tasks[task];
        self.load[from] -= usize::from(who.claims_cpu);
        self.load[to] += usize::from(who.claims_cpu);
        self.total += self.task_cost * u64::from(from == who.now);
        self.total -= self.task_cost * u64::from(to == who.now);
        for &(b, weight) in &who.bundles {
            let weights = &mut self.weights[b];
            shift(weights, weight, from, to);
            let best = self.demand.best_memory(&self.demand.bundles[b], weights);
            let before = std::mem::replace(&mut self.memory[b], best);
            self.total = self.total - before.1 + best.1;
        }
    }

    /// What the assignment would cost with a task elsewhere.
    pub fn total_with(&mut self, task: usize, to: usize) -> u64 {
        let (from, who) = (self.at[task], &self.demand.tasks[task]);
        let mut total = self.total;
        total += self.task_cost * u64::from(to != who.now);
        total -= self.task_cost * u64::from(from != who.now);
        for &(b, weight) in &who.bundles {
            self.scratch.clone_from(&self.weights[b]);
            shift(&mut self.scratch, weight, from, to);
            let cost = self.demand.best_memory(&self.demand.bundles[b], &self.scratch).1;
            total = total - self.memory[b].1 + cost;
        }
        total
    }

    /// Nodes worth a look for a task: where most memory of its bundles lies, where most of their
    /// other users are, and where it is today. Ascending, without the one it is on; replaces what
    /// `nodes` held.
    pub fn attractions(&self, task: usize, nodes: &mut Vec<usize>) {
        let (here, who) = (self.at[task], &self.demand.tasks[task]);
        nodes.clear();
        for &(b, _) in &who.bundles {
            let elsewhere = |of: &[(usize, u64)]| {
                let others = of.iter().filter(|(node, _)| *node != here);
                others.map(|&(node, amount)| (amount, Reverse(node))).max()
            };
            let most = [elsewhere(&self.demand.bundles[b].pages), elsewhere(&self.weights[b])];
            for (_, Reverse(node)) in most.into_iter().flatten() {
                if !nodes.contains(&node) {
                    nodes.push(node);
                }
            }
        }
        if who.now != here && !nodes.contains(&who.now) {
            nodes.push(who.now);
        }
        nodes.retain(|&node| self.allows(task, node));
        nodes.sort_unstable();
    }
}

/// Moves a weight from one node to another; nodes without any are not listed.
fn shift(weights: &mut Vec<(usize, u64)>, weight: u64, from: usize, to: usize) {
    if let Some(i) = weights.iter().position(|(node, _)| *node == from) {
        weights[i].1 -= weight;
        if weights[i].1 == 0 {
            weights.swap_remove(i);
        }
    }
    if weight > 0 {
        match weights.iter_mut().find(|(node, _)| *node == to) {
            Some((_, sum)) => *sum += weight,
            None => weights.push((to, weight)),
        }
    }
}
