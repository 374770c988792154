//! An assignment of tasks to nodes that is being improved: knows its cost, keeps it up to date
//! as tasks change nodes, and never overfills a node by itself.
//!
//! Cost = Σ over bundles of (weight × distance to the bundle's memory, taken to be on the node
//! where that is cheapest, plus moving it there) + `task_cost` for each task that is not where it
//! is now + what sharing cores costs ([`crate::cores`]). All in the unit of [`crate::demand`].
//!
//! A change costs time in proportion to the bundles of the task and the nodes that each touches,
//! whatever the size of the machine.

use std::cmp::Reverse;

use crate::demand::{Amounts, Bundle, Demand, PoolLoads};
use crate::outlook::{Outlook, Prospect};
use crate::spread::Spread;

/// See the module.
pub struct Assignment<'a> {
    demand: &'a Demand,
    at: Vec<usize>,
    load: Vec<usize>,
    pools: PoolLoads,
    /// Tasks beyond the open CPUs of the node that they are on.
    crowd: usize,
    /// Bytes a second that the tasks on each node read and write.
    traffic: Vec<u64>,
    /// The tasks on each node that claim a CPU, in no order, and each one's place there.
    members: Vec<Vec<usize>>,
    place: Vec<usize>,
    /// How often one came to each node or left it.
    changes: Vec<usize>,
    bundles: Vec<Spread>,
    task_cost: u64,
    total: u64,
    scratch: Amounts,
}

impl<'a> Assignment<'a> {
    /// Everybody where they are now.
    pub fn today(demand: &'a Demand, task_cost: u64) -> Assignment<'a> {
        let at = demand.today();
        let mut members = vec![Vec::new(); demand.nodes.len()];
        let mut place = vec![0; at.len()];
        for (task, &node) in at.iter().enumerate().filter(|(i, _)| demand.tasks[*i].claims_cpu) {
            place[task] = members[node].len();
            members[node].push(task);
        }
        let load: Vec<usize> = members.iter().map(Vec::len).collect();
        let mut traffic = vec![0; demand.nodes.len()];
        at.iter().zip(&demand.tasks).for_each(|(&node, task)| traffic[node] += task.traffic);
        let spread = |bundle: &Bundle| Spread::new(demand, bundle, &at);
        let bundles: Vec<Spread> = demand.bundles.iter().map(spread).collect();
        let far: u64 = bundles.iter().map(|spread| spread.cost).sum();
        let total = far + demand.cores.total(&load);
        Assignment {
            crowd: demand.crowd_of(&load),
            changes: vec![0; demand.nodes.len()],
            scratch: Amounts::new(),
            pools: demand.pools.loads(&demand.tasks, &at),
            demand,
            at,
            load,
            traffic,
            members,
            place,
            bundles,
            task_cost,
            total,
        }
    }

    /// The node of each task, by index.
    pub fn at(&self) -> &[usize] {
        &self.at
    }

    /// What it means for memory.
    pub fn into_outlook(self) -> Outlook {
        let prospect = |Spread { weights, memory, .. }| Prospect { weights, memory };
        Outlook::of_all(self.bundles.into_iter().map(prospect))
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
        self.bundles[bundle].cost
    }

    /// The node where one bundle's memory is cheapest.
    pub fn memory_of(&self, bundle: usize) -> usize {
        self.bundles[bundle].memory
    }

    /// The weight of a bundle's users on each node that has some.
    pub fn weights(&self, bundle: usize) -> &[(usize, u64)] {
        &self.bundles[bundle].weights
    }

    /// Tasks that claim a CPU on each node.
    pub fn load(&self) -> &[usize] {
        &self.load
    }

    /// The same of each pool.
    pub fn pools(&self) -> &PoolLoads {
        &self.pools
    }

    /// The same tasks by index, in no order.
    pub fn members(&self, node: usize) -> &[usize] {
        &self.members[node]
    }

    /// How often one of them came to a node or left it.
    pub fn changes(&self, node: usize) -> usize {
        self.changes[node]
    }

    /// Whether a node holds more of them than it should.
    pub fn is_overfull(&self, node: usize) -> bool {
        self.is_crowded(node) || self.is_saturated(node)
    }

    /// Whether it holds more tasks than it should.
    pub fn is_crowded(&self, node: usize) -> bool {
        self.load[node] > self.demand.capacity[node] + self.demand.slack[node]
    }

    /// Whether its tasks ask more of a node's memory than it should be given.
    pub fn is_saturated(&self, node: usize) -> bool {
        self.traffic[node] > self.demand.bandwidth.keeps[node]
    }

    /// Bytes a second that the tasks on each node read and write.
    pub fn traffic(&self) -> &[u64] {
        &self.traffic
    }

    /// Whether two tasks can change places, one on `a` and one on `b`, without bringing a node's memory, or what it holds of
    /// those that may use the same CPUs, over what it keeps, or further over.
    pub fn carries(&self, (task, a): (usize, usize), (partner, b): (usize, usize)) -> bool {
        if !self.pool_has_room_for(task, partner, b) {
            return false;
        }
        let of = |task: usize| self.demand.tasks[task].traffic;
        let fits = |node: usize, comes: u64, goes: u64| {
            let most = self.demand.bandwidth.keeps[node].max(self.traffic[node]);
            self.traffic[node] + comes - goes <= most
        };
        fits(a, of(partner), of(task)) && fits(b, of(task), of(partner))
    }

    /// Whether a task's owner allows it a node and there is room for it.
    pub fn has_room(&self, task: usize, node: usize) -> bool {
        self.has_room_if(task, node, self.may_crowd(self.at[task]))
    }

    /// Whether a task that leaves this node may be one more than another has CPUs: if it is here, or if no CPU idles for
    /// it.
    pub fn may_crowd(&self, from: usize) -> bool {
        self.load[from] > self.demand.open[from] || self.crowd < self.demand.crowd
    }

    /// As [`Assignment::has_room`], of a task that may crowd a node or not.
    pub fn has_room_if(&self, task: usize, node: usize, may_crowd: bool) -> bool {
        let claims = self.demand.tasks[task].claims_cpu;
        let most = self.demand.capacity[node];
        let most = if may_crowd { most } else { most.min(self.demand.open[node]) };
        let free = !claims || self.load[node] < most && self.pool_has_room(task, node);
        let traffic = self.demand.tasks[task].traffic;
        let free = free
            && (traffic == 0 || self.traffic[node] + traffic <= self.demand.bandwidth.takes[node]);
        self.at[task] == node || free && self.allows(task, node)
    }

    /// Whether one more of those that may use the same CPUs fits on a node, where these are some of its CPUs.
    fn pool_has_room(&self, task: usize, node: usize) -> bool {
        self.pools.has_room(&self.demand.pools, self.demand.tasks[task].pool, node)
    }

    /// Whether it does if another one leaves that node.
    pub fn pool_has_room_for(&self, task: usize, leaves: usize, node: usize) -> bool {
        let (who, leaves) = (&self.demand.tasks[task], &self.demand.tasks[leaves]);
        let replaces = leaves.claims_cpu && leaves.pool == who.pool;
        !who.claims_cpu || replaces || self.pool_has_room(task, node)
    }

    /// Whether a task is on a node with more of those that may use the same CPUs than those are.
    pub fn crowds_its_pool(&self, task: usize) -> bool {
        let (who, node) = (&self.demand.tasks[task], self.at[task]);
        who.claims_cpu && self.pools.is_overfull(&self.demand.pools, who.pool, node)
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
        self.traffic[from] -= who.traffic;
        self.traffic[to] += who.traffic;
        let (crowding, relief) = self.crowding(task, from, to);
        self.total = self.total + crowding - relief;
        if who.claims_cpu {
            self.move_member(task, from, to);
        }
        self.total += self.task_cost * u64::from(from == who.now);
        self.total -= self.task_cost * u64::from(to == who.now);
        for &(b, weight) in &who.bundles {
            let spread = &mut self.bundles[b];
            let before = spread.cost;
            spread.shift(self.demand, &self.demand.bundles[b], weight, from, to);
            self.total = self.total - before + spread.cost;
        }
    }

    /// What it costs more on one node and less on the other, as to sharing cores, that a task goes.
    pub fn crowding(&self, task: usize, from: usize, to: usize) -> (u64, u64) {
        let cores = &self.demand.cores;
        if !cores.matter() || from == to || !self.demand.tasks[task].claims_cpu {
            return (0, 0);
        }
        let (on, there) = (self.load[from], self.load[to]);
        let more = cores.cost(to, there + 1) - cores.cost(to, there);
        (more, cores.cost(from, on) - cores.cost(from, on - 1))
    }

    /// Has a look at the assignment as it would be with a task elsewhere.
    pub fn with(&mut self, task: usize, to: usize, look: impl FnOnce(&mut Self)) {
        let from = self.at[task];
        let changes = (self.changes[from], self.changes[to]);
        self.put(task, to);
        look(self);
        self.put(task, from);
        (self.changes[from], self.changes[to]) = changes;
    }

    fn move_member(&mut self, task: usize, from: usize, to: usize) {
        let place = self.place[task];
        self.members[from].swap_remove(place);
        if let Some(&last) = self.members[from].get(place) {
            self.place[last] = place;
        }
        self.place[task] = self.members[to].len();
        self.members[to].push(task);
        let open = &self.demand.open;
        self.crowd -= usize::from(self.load[from] > open[from]);
        self.crowd += usize::from(self.load[to] >= open[to]);
        self.load[from] -= 1;
        self.load[to] += 1;
        let pool = self.demand.tasks[task].pool;
        self.pools.leave(pool, from);
        self.pools.come(pool, to);
        self.changes[from] += 1;
        self.changes[to] += 1;
    }

    /// What the assignment would cost with a task elsewhere.
    pub fn total_with(&mut self, task: usize, to: usize) -> u64 {
        let (total, crowding) = self.total_in_exchange(task, to);
        total + crowding
    }

    /// The same if another leaves that node, as to sharing cores, and what it costs more if nobody does.
    pub fn total_in_exchange(&mut self, task: usize, to: usize) -> (u64, u64) {
        let (from, who) = (self.at[task], &self.demand.tasks[task]);
        if from == to {
            return (self.total, 0);
        }
        let (crowding, relief) = self.crowding(task, from, to);
        let mut total = self.total - relief;
        total += self.task_cost * u64::from(to != who.now);
        total -= self.task_cost * u64::from(from != who.now);
        for &(b, weight) in &who.bundles {
            let (spread, change) = (&self.bundles[b], (weight, from, to));
            let bundle = &self.demand.bundles[b];
            let cost = spread.cost_with(self.demand, bundle, change, &mut self.scratch);
            total = total - spread.cost + cost;
        }
        (total, crowding)
    }

    /// The nearest node that has a core to itself for a task that shares one.
    fn free_core(&self, task: usize) -> Option<usize> {
        let here = self.at[task];
        // Where nobody shares a core there is no need to look.
        if self.demand.cores.cost(here, self.load[here]) == 0 {
            return None;
        }
        let gains = |node: &usize| {
            let (more, less) = self.crowding(task, here, *node);
            less > more && self.allows(task, *node)
        };
        let nodes = (0..self.load.len()).filter(gains);
        nodes.min_by_key(|&node| self.demand.distance(here, node))
    }

    /// Nodes worth a look for a task: where most memory of its bundles lies, where most of their
    /// other users are, where it has a core to itself, and where it is today. Ascending, without the
    /// one it is on; replaces what `nodes` held.
    pub fn attractions(&self, task: usize, nodes: &mut Vec<usize>) {
        let (here, who) = (self.at[task], &self.demand.tasks[task]);
        nodes.clear();
        for &(b, _) in &who.bundles {
            let elsewhere = |of: &[(usize, u64)]| {
                let others = of.iter().filter(|(node, _)| *node != here);
                others.map(|&(node, amount)| (amount, Reverse(node))).max()
            };
            let most =
                [elsewhere(&self.demand.bundles[b].pages), elsewhere(&self.bundles[b].weights)];
            for (_, Reverse(node)) in most.into_iter().flatten() {
                if !nodes.contains(&node) {
                    nodes.push(node);
                }
            }
        }
        let core = self.free_core(task);
        for node in core.into_iter().chain((who.now != here).then_some(who.now)) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes.retain(|&node| self.allows(task, node));
        nodes.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use numaherd_model::scene::Scene;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// On a machine of many nodes costs come from what is kept, and are those worked out anew.
        #[test]
        fn what_is_kept_costs_what_is_worked_out_anew(
            memory in proptest::collection::vec(0u32..12, 6),
            moves in proptest::collection::vec((0usize..8, 0usize..12), 1..20)
        ) {
            let mut scene = Scene::even(12, 2);
            (1..=8u32).for_each(|tid| scene.task(tid, tid * 3 % 24, 1000));
            for (r, &node) in memory.iter().enumerate() {
                let last = 2 + r as u32 % 6;
                let users: Vec<(u32, u64)> = (1..=last).map(|tid| (tid, 40 * u64::from(tid))).collect();
                scene.region(r as u64, &users, &[(node, 400)]);
            }
            let demand = Demand::new(&scene.snapshot());
            let mut assignment = Assignment::today(&demand, 7);
            for (task, to) in moves {
                let expected = assignment.total_with(task, to);
                assignment.put(task, to);
                let moved = demand.tasks.iter().zip(assignment.at()).filter(|(t, at)| t.now != **at);
                let anew = demand.total_cost(assignment.at()) + 7 * moved.count() as u64;
                prop_assert_eq!(assignment.total(), anew);
                prop_assert_eq!(expected, anew);
            }
        }
    }
}
