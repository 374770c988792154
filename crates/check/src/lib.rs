//! Lints a plan against the snapshot it was made from, apart from whoever made it.
//!
//! A placement may be wrong; what this crate refuses is not done. It never makes things worse:
//! no task onto CPUs its owner forbids or onto a node that has more tasks than CPUs, no page
//! onto a node short of memory, no ping-pong. Refusals are data ([`Problem`]) and are logged
//! like everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use numaherd_model::{
    Action, CpuSet, Nanos, Node, NodeId, Pages, Plan, RegionId, Snapshot, Task, TaskId,
};

/// Free memory a destination keeps above its high watermark, per mille of the node's memory.
/// Guessed: what a burst of allocations takes while pages are on their way.
const MARGIN_PERMILLE: u64 = 20;

/// A task that changed its node this often within [`PING_PONG_WINDOW`] stays where it is.
const PING_PONG_MOVES: usize = 3;

/// See [`PING_PONG_MOVES`].
const PING_PONG_WINDOW: Nanos = Nanos(10_000_000_000);

/// A region that was moved goes to no other node within this.
const REGION_REST: Nanos = Nanos(2_000_000_000);

/// Why an action is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The snapshot has no such task or region.
    Unknown,
    /// No such node, or it has no CPUs or no memory, whichever is needed.
    NoSuchNode(NodeId),
    /// CPUs that are not all the node's, or that the owner forbids, or none.
    WrongCpus(CpuSet),
    /// The node would have more busy tasks than CPUs.
    Overloaded {
        /// Which.
        node: NodeId,
        /// Busy tasks it would have.
        tasks: usize,
        /// What it may have.
        capacity: usize,
    },
    /// The node would come too close to its high watermark.
    ShortOfMemory {
        /// Which.
        node: NodeId,
        /// What would be free.
        free: Pages,
        /// What must stay free.
        needed: Pages,
    },
    /// It was moved too often of late.
    PingPong,
    /// The kernel tiers memory; pages are its business.
    Tiering,
    /// Memory of this process may not be on this node, and neither may a task be sent there that may go to others.
    Forbidden(NodeId),
    /// A second action on the same thing.
    Twice,
    /// A task that is not ours to place.
    Fixed,
}

impl Problem {
    /// The node that is short of memory, where that is it.
    #[must_use]
    pub fn short_of_memory(&self) -> Option<NodeId> {
        match self {
            Problem::ShortOfMemory { node, .. } => Some(*node),
            _ => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Unknown => write!(f, "it is not in the snapshot"),
            Problem::NoSuchNode(node) => write!(f, "node {node} cannot take it"),
            Problem::WrongCpus(cpus) => write!(f, "cpus '{cpus}' are not its to use there"),
            Problem::Overloaded { node, tasks, capacity } => {
                write!(f, "node {node} would have {tasks} busy tasks for {capacity}")
            }
            Problem::ShortOfMemory { node, free, needed } => {
                write!(f, "node {node} would have {free} pages free and needs {needed}")
            }
            Problem::PingPong => write!(f, "it was moved too often of late"),
            Problem::Tiering => write!(f, "the kernel tiers memory"),
            Problem::Forbidden(node) => {
                write!(f, "memory of its process may not be on node {node} (cpuset.mems)")
            }
            Problem::Fixed => write!(f, "it is not ours to place"),
            Problem::Twice => write!(f, "it is in the plan twice"),
        }
    }
}

/// Checks plans, and remembers what it let through.
#[derive(Debug, Default)]
pub struct Checker {
    task_moves: BTreeMap<TaskId, Vec<(Nanos, NodeId)>>,
    region_moves: BTreeMap<RegionId, (Nanos, NodeId)>,
}

impl Checker {
    /// Nothing let through so far.
    #[must_use]
    pub fn new() -> Checker {
        Checker::default()
    }

    /// For each action of the plan, in order, what is wrong with it. Where a task is refused, whoever was to come
    /// in its place is too, if that is one too many: half an exchange overloads a node.
    pub fn review(&mut self, plan: &Plan, snapshot: &Snapshot) -> Vec<Option<Problem>> {
        self.forget(snapshot);
        let mut problems = vec![None; plan.actions.len()];
        let mut planned = Planned::new(snapshot, plan, &problems);
        for (action, problem) in plan.actions.iter().zip(&mut problems) {
            *problem = self.problem(action, snapshot, &mut planned);
        }
        refuse_comers(snapshot, plan, &mut problems);
        let passed = plan.actions.iter().zip(&problems).filter(|(_, problem)| problem.is_none());
        passed.for_each(|(action, _)| self.remember(action, snapshot.time));
        problems
    }

    fn problem(
        &self,
        action: &Action,
        snapshot: &Snapshot,
        planned: &mut Planned,
    ) -> Option<Problem> {
        match action {
            Action::PlaceTask { task, node, cpus, .. } => {
                self.place(*task, *node, cpus, snapshot, planned)
            }
            Action::ReleaseTask { task, cpus, .. } => {
                let Some(task) = snapshot.task(*task) else {
                    return Some(Problem::Unknown);
                };
                (*cpus != task.cpus_owner).then(|| Problem::WrongCpus(cpus.clone()))
            }
            Action::MovePages { region, to, pages, .. } => {
                self.move_pages(*region, *to, *pages, snapshot, planned)
            }
        }
    }

    fn place(
        &self,
        id: TaskId,
        node: NodeId,
        cpus: &CpuSet,
        snapshot: &Snapshot,
        planned: &mut Planned,
    ) -> Option<Problem> {
        let Some(task) = snapshot.task(id) else {
            return Some(Problem::Unknown);
        };
        let Some(place) = snapshot.topology.node(node).filter(|n| !n.cpus.is_empty()) else {
            return Some(Problem::NoSuchNode(node));
        };
        let open = snapshot.open_to(task);
        if cpus.is_empty() || !cpus.is_subset(&place.cpus) || !cpus.is_subset(&open) {
            return Some(Problem::WrongCpus(cpus.clone()));
        }
        if task.fixed {
            return Some(Problem::Fixed);
        }
        if task.node(&snapshot.topology) != Some(node)
            && !snapshot.allows_memory(task.process, node)
            && has_cpus_by_its_memory(snapshot, task)
        {
            return Some(Problem::Forbidden(node));
        }
        if planned.tasks.contains(&id) {
            return Some(Problem::Twice);
        }
        let moves = self.task_moves.get(&id).map_or(&[][..], Vec::as_slice);
        if moves.len() >= PING_PONG_MOVES && moves.last().is_some_and(|(_, last)| *last != node) {
            return Some(Problem::PingPong);
        }
        // Where everybody is once the whole plan is done: a swap overloads nobody.
        if let Some(overloaded) = planned.overloaded(task, node).filter(|_| task.claims_cpu()) {
            return Some(overloaded);
        }
        planned.tasks.insert(id);
        None
    }

    fn move_pages(
        &self,
        id: RegionId,
        to: NodeId,
        pages: Pages,
        snapshot: &Snapshot,
        planned: &mut Planned,
    ) -> Option<Problem> {
        if snapshot.region(id).is_none() {
            return Some(Problem::Unknown);
        }
        if snapshot.kernel_tiering {
            return Some(Problem::Tiering);
        }
        let memory = snapshot.topology.node(to).map_or(0, |node| node.memory.0);
        let Some(state) = snapshot.node(to).filter(|_| memory > 0) else {
            return Some(Problem::NoSuchNode(to));
        };
        let is_limited = !snapshot.mems_allowed.is_empty();
        if is_limited && !snapshot.mappers(id).all(|process| snapshot.allows_memory(process, to)) {
            return Some(Problem::Forbidden(to));
        }
        if planned.regions.contains(&id) {
            return Some(Problem::Twice);
        }
        let moved = self.region_moves.get(&id);
        if moved.is_some_and(|(_, last)| *last != to) {
            return Some(Problem::PingPong);
        }
        let margin = memory / snapshot.page_size.0 * MARGIN_PERMILLE / 1000;
        let needed = Pages(state.high_watermark.0 + margin);
        let coming = planned.arriving.entry(to).or_default();
        let free = Pages(state.free.0.saturating_sub(*coming + pages.0));
        if free < needed {
            return Some(Problem::ShortOfMemory { node: to, free, needed });
        }
        *coming += pages.0;
        planned.regions.insert(id);
        None
    }

    fn remember(&mut self, action: &Action, now: Nanos) {
        match action {
            Action::PlaceTask { task, node, .. } => {
                let moves = self.task_moves.entry(*task).or_default();
                if moves.last().is_none_or(|(_, last)| last != node) {
                    moves.push((now, *node));
                }
            }
            Action::MovePages { region, to, .. } => {
                self.region_moves.insert(*region, (now, *to));
            }
            Action::ReleaseTask { .. } => {}
        }
    }

    /// Drops what is too old to matter; a task's newest place is kept while it lives.
    fn forget(&mut self, snapshot: &Snapshot) {
        let recent = |at: Nanos| snapshot.time.since(at) < PING_PONG_WINDOW;
        let resting = |at: Nanos| snapshot.time.since(at) < REGION_REST;
        self.task_moves.retain(|task, moves| {
            let last = moves.len().saturating_sub(1);
            let mut index = 0;
            moves.retain(|(at, _)| {
                index += 1;
                recent(*at) || index - 1 == last
            });
            snapshot.task(*task).is_some()
        });
        self.region_moves.retain(|_, (at, _)| resting(*at));
    }
}

/// Whether a task's owner allows it CPUs on a node that its memory may be on.
fn has_cpus_by_its_memory(snapshot: &Snapshot, task: &Task) -> bool {
    let cpus = snapshot.open_to(task);
    let mut nodes = snapshot.topology.nodes.iter();
    nodes.any(|node| {
        snapshot.allows_memory(task.process, node.id) && !node.cpus.intersection(&cpus).is_empty()
    })
}

/// Refuses tasks that would come to nodes that are too full without those that were refused, until there are none.
fn refuse_comers(snapshot: &Snapshot, plan: &Plan, problems: &mut [Option<Problem>]) {
    let is_place = |action: &Action| matches!(action, Action::PlaceTask { .. });
    let mut more = plan.actions.iter().zip(&*problems).any(|(a, p)| is_place(a) && p.is_some());
    if !more {
        return;
    }
    let mut planned = Planned::new(snapshot, plan, problems);
    while std::mem::take(&mut more) {
        for (action, problem) in plan.actions.iter().zip(&mut *problems) {
            let Action::PlaceTask { task, node, .. } = action else { continue };
            let task = snapshot.task(*task).filter(|task| task.claims_cpu() && problem.is_none());
            let here =
                task.and_then(|task| task.node(&snapshot.topology)).filter(|here| here != node);
            let Some((task, here)) = task.zip(here) else { continue };
            if let Some(overloaded) = planned.overloaded(task, *node) {
                *problem = Some(overloaded);
                planned.shift(task, *node, here);
                more = true;
            }
        }
    }
}

/// What the plan's accepted actions amount to so far.
struct Planned<'a> {
    tasks: BTreeSet<TaskId>,
    regions: BTreeSet<RegionId>,
    arriving: BTreeMap<NodeId, u64>,
    /// All tasks.
    all: Pool,
    /// Those whose owner allows them these CPUs, where they are some of a node's and not all.
    pools: BTreeMap<&'a CpuSet, Pool>,
}

/// Tasks that claim a CPU and may use the same ones, on each node, and how many of them it may have.
#[derive(Default)]
struct Pool {
    load: BTreeMap<NodeId, usize>,
    capacity: BTreeMap<NodeId, usize>,
}

impl<'a> Planned<'a> {
    /// Nothing yet, but for where tasks are if all is done that is not refused.
    fn new(snapshot: &'a Snapshot, plan: &Plan, refused: &[Option<Problem>]) -> Planned<'a> {
        let mut destinations = BTreeMap::new();
        for (action, _) in plan.actions.iter().zip(refused).filter(|(_, refused)| refused.is_none())
        {
            if let Action::PlaceTask { task, node, .. } = action {
                destinations.entry(*task).or_insert(*node);
            }
        }
        let mut load = BTreeMap::new();
        let mut pools: BTreeMap<&CpuSet, Option<Pool>> = BTreeMap::new();
        let busy = snapshot.tasks.iter();
        let busy = busy.filter(|task| task.claims_cpu() && !task.is_apart(&snapshot.isolated));
        let claims = busy.clone().count();
        for task in busy {
            let here = || task.node(&snapshot.topology);
            let pool = pools.entry(&task.cpus_owner).or_insert_with(|| Pool::of(snapshot, task));
            if let Some(node) = destinations.get(&task.id).copied().or_else(here) {
                *load.entry(node).or_default() += 1;
                pool.iter_mut().for_each(|pool| *pool.load.entry(node).or_default() += 1);
            }
        }
        let mut pools: BTreeMap<&CpuSet, Pool> =
            pools.into_iter().filter_map(|(cpus, pool)| Some((cpus, pool?))).collect();
        pools.values_mut().for_each(Pool::share_out);
        Planned {
            tasks: BTreeSet::new(),
            regions: BTreeSet::new(),
            arriving: BTreeMap::new(),
            all: Pool { load, capacity: capacity(snapshot, claims) },
            pools,
        }
    }

    /// That a node has more busy tasks than it may have, of all or of those that may use a task's CPUs, if it has.
    fn overloaded(&self, task: &Task, node: NodeId) -> Option<Problem> {
        let pools = std::iter::once(&self.all).chain(self.pools.get(&task.cpus_owner));
        let counts = |pool: &Pool| {
            [&pool.load, &pool.capacity].map(|of| of.get(&node).copied().unwrap_or(0))
        };
        let [tasks, capacity] = pools.map(counts).find(|[tasks, capacity]| tasks > capacity)?;
        Some(Problem::Overloaded { node, tasks, capacity })
    }

    /// A task is counted elsewhere.
    fn shift(&mut self, task: &Task, from: NodeId, to: NodeId) {
        let pool = self.pools.get_mut(&task.cpus_owner);
        for pool in std::iter::once(&mut self.all).chain(pool) {
            *pool.load.entry(from).or_default() -= 1;
            *pool.load.entry(to).or_default() += 1;
        }
    }
}

impl Pool {
    /// Of a task, if it may use some of a node's CPUs that are not set apart, and not all.
    fn of(snapshot: &Snapshot, task: &Task) -> Option<Pool> {
        let cpus = snapshot.open_to(task);
        let count = |node: &Node| (node.id, node.cpus.intersection(&cpus).len());
        let capacity: BTreeMap<NodeId, usize> = snapshot.topology.nodes.iter().map(count).collect();
        let is_part = |node: &Node| {
            let all = node.cpus.difference(&snapshot.isolated).len();
            (1..all).contains(&capacity[&node.id])
        };
        let is_narrow = snapshot.topology.nodes.iter().any(is_part);
        is_narrow.then_some(Pool { load: BTreeMap::new(), capacity })
    }

    /// With more tasks than CPUs each node may have its fair part of them, rounded up.
    fn share_out(&mut self) {
        let claims: usize = self.load.values().sum();
        if claims > self.capacity.values().sum() {
            fair_parts(&mut self.capacity, claims);
        }
    }
}

/// Busy tasks that each node may have: its CPUs that are neither set apart nor taken by others;
/// with more busy tasks than those in the machine, its fair part of them (of all CPUs, where
/// nothing is left), rounded up.
fn capacity(snapshot: &Snapshot, claims: usize) -> BTreeMap<NodeId, usize> {
    let free = |node: &Node| {
        let others = snapshot.node(node.id).map_or(0, |state| state.others_permille as usize);
        node.cpus.difference(&snapshot.isolated).len().saturating_sub((others + 250) / 1000)
    };
    let nodes = &snapshot.topology.nodes;
    let mut room: BTreeMap<NodeId, usize> =
        nodes.iter().map(|node| (node.id, free(node))).collect();
    if claims > room.values().sum() {
        if room.values().all(|&free| free == 0) {
            room = nodes.iter().map(|node| (node.id, node.cpus.len())).collect();
        }
        fair_parts(&mut room, claims);
    }
    room
}

/// The fair part of so many tasks that each node gets by its room, rounded up.
fn fair_parts(room: &mut BTreeMap<NodeId, usize>, claims: usize) {
    let all = room.values().sum::<usize>().max(1);
    room.values_mut().for_each(|part| *part = (claims * *part).div_ceil(all));
}

#[cfg(test)]
mod tests;
