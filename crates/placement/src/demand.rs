//! From a snapshot to an assignment problem in integers.
//!
//! Regions that the same tasks use are taken together as one *bundle*. A task's *weight* in a
//! bundle is its share of the task's faults, times how busy the task is: [`SHARE`] is a task
//! that keeps a CPU busy and touches nothing else. Distances are SLIT less 10: 0 is local.
//!
//! Where the tasks of a process share its memory, a region's few faults are a small sample of who
//! uses it: a shared process's faults are spread over its busy tasks, as far as it is shared.
//!
//! Worked example: a task busy 50 % with 300 of its 400 faults in a bundle has a weight of
//! 500 ‰ × 3/4 = 0.375 of [`SHARE`] there.

use std::collections::BTreeMap;

use numaherd_model::{CpuSet, Nanos, NodeId, ProcessId, Region, Snapshot, Task, TaskId};

/// A whole task.
pub const SHARE: u64 = 1_000_000;

/// Faults, in pages, from which a task's evidence counts. Guessed: a handful of faults on
/// stack and libraries says nothing of its working set.
pub const MIN_FAULTS: u64 = 48;

/// A user with a smaller part of a region's faults than 1 in this many is left out.
const NEGLIGIBLE: u64 = 24;

/// Pairs of touches from which a process's sharing is known; until then a process with several
/// busy tasks is not known well enough to be placed. Guessed.
pub const MIN_PAIRS: u64 = 4;

/// Sharing below this, per mille, is taken for none: slices meet in a region here and there.
const LITTLE_SHARED_PERMILLE: u64 = 150;

/// Busy per mille from which a task claims a CPU.
const CLAIMS_A_CPU: u32 = 250;

/// Loss that SLIT distance stands for: at distance 20 a memory-bound task is taken to lose half
/// its time. Guessed; it only weighs moving pages against leaving them.
const LOSS_AT_TEN: u64 = SHARE / 2;

/// Bounds on how long a task is taken to live on: as long as it has lived (Lindy), within
/// these.
const HORIZON: (Nanos, Nanos) = (Nanos(1_000_000_000), Nanos(60_000_000_000));

/// A task, as the search sees it.
#[derive(Clone, Debug)]
pub struct DemandTask {
    /// Who.
    pub id: TaskId,
    /// Busy enough to claim a CPU.
    pub claims_cpu: bool,
    /// Faults, in pages, that say where its memory is.
    pub evidence: u64,
    /// For each node (by index), the CPUs of it that its owner allows; empty: it cannot go.
    pub cpus: Vec<CpuSet>,
    /// Index of the node it is on now.
    pub now: usize,
    /// Whether we put it there.
    pub placed: bool,
    /// Bundles it uses.
    pub bundles: Vec<usize>,
}

/// Regions with the same users.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Tasks, by index, with their weights.
    pub users: Vec<(usize, u64)>,
    /// Regions, by index into the snapshot's.
    pub regions: Vec<usize>,
    /// Known pages on each node.
    pub pages: Vec<u64>,
    /// Cost of moving one page, in the same unit as weight × distance.
    pub page_cost: u64,
}

/// The problem.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Nodes, ascending by id; every index below refers to this.
    pub nodes: Vec<NodeId>,
    /// SLIT less 10, from CPU's node to memory's node.
    pub excess: Vec<Vec<u64>>,
    /// Whether a node has memory.
    pub has_memory: Vec<bool>,
    /// Tasks that claim a CPU which each node may hold.
    pub capacity: Vec<usize>,
    /// Tasks.
    pub tasks: Vec<DemandTask>,
    /// Bundles.
    pub bundles: Vec<Bundle>,
}

impl Demand {
    /// Reads a snapshot.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Demand {
        let topology = &snapshot.topology;
        let nodes: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
        let excess_of =
            |a: &NodeId, b: &NodeId| u64::from(topology.distance(*a, *b)).saturating_sub(10);
        let mut tasks: Vec<DemandTask> =
            snapshot.tasks.iter().map(|task| demand_task(task, snapshot)).collect();
        let bundles = bundles(snapshot, &mut tasks);
        let claims = tasks.iter().filter(|task| task.claims_cpu).count();
        Demand {
            excess: nodes.iter().map(|a| nodes.iter().map(|b| excess_of(a, b)).collect()).collect(),
            has_memory: topology.nodes.iter().map(|node| node.memory.0 > 0).collect(),
            capacity: capacity(snapshot, claims),
            nodes,
            tasks,
            bundles,
        }
    }

    /// What a bundle costs with its memory on `memory` and its users where `at` says.
    #[must_use]
    pub fn cost_with(&self, bundle: &Bundle, memory: usize, at: &[usize]) -> u64 {
        let distance: u64 =
            bundle.users.iter().map(|&(task, weight)| weight * self.excess[at[task]][memory]).sum();
        let elsewhere: u64 = bundle.pages.iter().sum::<u64>() - bundle.pages[memory];
        distance + elsewhere * bundle.page_cost
    }

    /// The node where a bundle's memory costs least, and what it costs there. Ties go to the
    /// node that holds most of it, then to the lower id.
    #[must_use]
    pub fn best_memory(&self, bundle: &Bundle, at: &[usize]) -> (usize, u64) {
        let with_memory = (0..self.nodes.len()).filter(|&node| self.has_memory[node]);
        let costs = with_memory.map(|node| (node, self.cost_with(bundle, node, at)));
        let better = |&(node, cost): &(usize, u64)| (cost, u64::MAX - bundle.pages[node], node);
        costs.min_by_key(better).unwrap_or((0, 0))
    }

    /// What all bundles cost.
    #[must_use]
    pub fn total_cost(&self, at: &[usize]) -> u64 {
        self.bundles.iter().map(|bundle| self.best_memory(bundle, at).1).sum()
    }

    /// Per mille of all weight that is local, with memory where it lies now.
    #[must_use]
    pub fn strength_permille(&self, at: &[usize]) -> u32 {
        let (mut local, mut all) = (0, 0);
        for bundle in &self.bundles {
            let pages: u64 = bundle.pages.iter().sum();
            for &(task, weight) in &bundle.users {
                all += weight;
                local += (weight * bundle.pages[at[task]]).checked_div(pages).unwrap_or(0);
            }
        }
        (local * 1000).checked_div(all).unwrap_or(0) as u32
    }
}

/// CPU-claiming tasks per node: its CPUs; with more tasks than CPUs, its fair part of them,
/// rounded up.
fn capacity(snapshot: &Snapshot, claims: usize) -> Vec<usize> {
    let all = snapshot.topology.cpus().len().max(1);
    let of = |cpus: usize| {
        if claims <= all { cpus } else { (claims * cpus).div_ceil(all) }
    };
    snapshot.topology.nodes.iter().map(|node| of(node.cpus.len())).collect()
}

fn demand_task(task: &Task, snapshot: &Snapshot) -> DemandTask {
    let nodes = &snapshot.topology.nodes;
    let here = task.home.or_else(|| snapshot.topology.node_of_cpu(task.last_cpu));
    DemandTask {
        id: task.id,
        claims_cpu: task.busy_permille >= CLAIMS_A_CPU,
        evidence: task.faults.iter().map(|f| f.private + f.shared).sum(),
        cpus: nodes.iter().map(|node| node.cpus.intersection(&task.cpus_owner)).collect(),
        now: nodes.iter().position(|node| Some(node.id) == here).unwrap_or(0),
        placed: task.home.is_some(),
        bundles: Vec::new(),
    }
}

/// How much of its memory the busy tasks of a process share, per mille; `None` where that is
/// not known yet.
///
/// Of two touches of a page that `k` tasks share evenly, `(k - 1) / k` are by different ones:
/// 4 tasks and 18 switches in 32 pairs are 18/32 × 4/3 = 750 ‰.
#[must_use]
pub fn shared_permille(snapshot: &Snapshot, process: ProcessId, busy: u64) -> Option<u64> {
    if busy < 2 {
        return Some(0);
    }
    let sharing = snapshot.sharing.iter().find(|sharing| sharing.process == process)?;
    if sharing.samples < MIN_PAIRS {
        return None;
    }
    let permille = sharing.switches * 1000 * busy / (sharing.samples * (busy - 1));
    Some(if permille < LITTLE_SHARED_PERMILLE { 0 } else { permille.min(1000) })
}

/// A region's users, by index, with their faults: those seen, and as far as the process is
/// shared, all its busy tasks alike.
fn users_of(
    region: &Region,
    index_of: &dyn Fn(TaskId) -> Option<usize>,
    shared: Option<&(u64, Vec<usize>)>,
) -> BTreeMap<usize, u64> {
    let whole: u64 = region.users.iter().map(|user| user.faults).sum();
    let (permille, mates) = shared.map_or((0, &[][..]), |(p, mates)| (*p, mates.as_slice()));
    let mut users = BTreeMap::new();
    for user in region.users.iter().filter(|user| user.faults * NEGLIGIBLE >= whole) {
        if let Some(task) = index_of(user.task) {
            *users.entry(task).or_default() += user.faults * (1000 - permille) / 1000;
        }
    }
    for &mate in mates.iter().filter(|_| permille > 0) {
        *users.entry(mate).or_default() += (whole * permille / 1000).div_ceil(mates.len() as u64);
    }
    users.retain(|_, faults| *faults > 0 && *faults * NEGLIGIBLE >= whole);
    users
}

/// For each process, how much it is shared and its busy tasks, by index.
fn sharing(snapshot: &Snapshot) -> BTreeMap<ProcessId, (u64, Vec<usize>)> {
    let mut busy: BTreeMap<ProcessId, Vec<usize>> = BTreeMap::new();
    for (index, task) in snapshot.tasks.iter().enumerate() {
        if task.busy_permille >= CLAIMS_A_CPU {
            busy.entry(task.process).or_default().push(index);
        }
    }
    let with = |(process, tasks): (ProcessId, Vec<usize>)| {
        let permille = shared_permille(snapshot, process, tasks.len() as u64).unwrap_or(0);
        (process, (permille, tasks))
    };
    busy.into_iter().map(with).collect()
}

/// Takes regions together and gives each task its weights. Fills `tasks[..].bundles`, and the
/// evidence of tasks that share what others were seen to use.
fn bundles(snapshot: &Snapshot, tasks: &mut [DemandTask]) -> Vec<Bundle> {
    let index_of = |id: TaskId| snapshot.tasks.binary_search_by_key(&id, |task| task.id).ok();
    let sharing = sharing(snapshot);
    let mut all_faults = vec![0u64; tasks.len()];
    // Users (by index) -> the bundle's regions and each user's faults.
    let mut groups: BTreeMap<Vec<usize>, (Vec<usize>, Vec<u64>)> = BTreeMap::new();
    for (r, region) in snapshot.regions.iter().enumerate() {
        let users = users_of(region, &index_of, sharing.get(&region.id.process));
        if users.is_empty() {
            continue;
        }
        let key: Vec<usize> = users.keys().copied().collect();
        let group = groups.entry(key).or_insert_with(|| (Vec::new(), vec![0; users.len()]));
        group.0.push(r);
        for (sum, (task, faults)) in group.1.iter_mut().zip(&users) {
            *sum += faults;
            all_faults[*task] += faults;
        }
    }
    for (task, faults) in tasks.iter_mut().zip(&all_faults) {
        task.evidence = task.evidence.max(*faults);
    }
    let nodes = &snapshot.topology.nodes;
    let mut bundles = Vec::new();
    for (users, (regions, faults)) in groups {
        let weight = |&task: &usize, faults: u64| {
            let busy = u64::from(snapshot.tasks[task].busy_permille.min(1000));
            SHARE * busy / 1000 * faults / all_faults[task].max(1)
        };
        let pages_on =
            |node: NodeId| regions.iter().map(|&r| snapshot.regions[r].pages_on(node).0).sum();
        let age = users.iter().map(|&task| snapshot.tasks[task].age).max().unwrap_or_default();
        let horizon = age.clamp(HORIZON.0, HORIZON.1);
        for &task in &users {
            tasks[task].bundles.push(bundles.len());
        }
        bundles.push(Bundle {
            // A second lost per second is a whole task at distance 10 / LOSS_AT_TEN.
            page_cost: snapshot.costs.page_move.0 * (10 * SHARE * SHARE / LOSS_AT_TEN) / horizon.0,
            pages: nodes.iter().map(|node| pages_on(node.id)).collect(),
            users: users.iter().zip(faults).map(|(task, f)| (*task, weight(task, f))).collect(),
            regions,
        });
    }
    bundles
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    #[test]
    fn weight_is_the_share_of_faults_times_how_busy_the_task_is() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 500);
        scene.region(0, &[(1, 300)], &[(0, 512)]);
        scene.region(1, &[(1, 100), (2, 100)], &[(1, 512)]);
        scene.task(2, 4, 1000);
        let demand = Demand::new(&scene.snapshot());
        assert_eq!(demand.bundles[0].users, [(0, 375_000)]);
        assert_eq!(demand.bundles[1].users, [(0, 125_000), (1, SHARE)]);
    }

    #[test]
    fn regions_with_the_same_users_are_one_bundle_and_a_stray_fault_does_not_split_it() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.task(2, 1, 1000);
        for r in 0..4 {
            scene.region(r, &[(1, 500), (2, if r == 2 { 5 } else { 0 })], &[(0, 512)]);
        }
        let demand = Demand::new(&scene.snapshot());
        assert_eq!(demand.bundles.len(), 1);
        assert_eq!(demand.bundles[0].pages, [2048, 0]);
    }

    #[test]
    fn a_few_faults_in_a_shared_process_stand_for_all_its_busy_tasks() {
        let mut scene = Scene::two_by_four();
        for tid in 1..=4 {
            scene.task(tid, 0, 1000);
            scene.region(u64::from(tid), &[(tid, 512)], &[(0, 512)]);
        }
        // 24 of 32 pairs are switches, as 4 tasks that share everything give.
        scene.shared(32, 24);
        let demand = Demand::new(&scene.snapshot());
        assert_eq!(demand.bundles.len(), 1);
        assert!(demand.bundles[0].users.iter().all(|&(_, weight)| weight == SHARE));
    }

    #[test]
    fn slices_that_meet_here_and_there_stay_private() {
        let mut scene = Scene::two_by_four();
        for tid in 1..=4 {
            scene.task(tid, 0, 1000);
            scene.region(u64::from(tid), &[(tid, 512)], &[(0, 512)]);
        }
        scene.shared(32, 3);
        assert_eq!(Demand::new(&scene.snapshot()).bundles.len(), 4);
    }

    #[test]
    fn with_more_tasks_than_cpus_each_node_takes_its_fair_part() {
        let mut scene = Scene::two_by_four();
        for tid in 1..=11 {
            scene.task(tid, 0, 1000);
        }
        assert_eq!(Demand::new(&scene.snapshot()).capacity, [6, 6]);
    }

    #[test]
    fn moving_a_page_costs_what_it_takes_over_what_is_left() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.region(0, &[(1, 100)], &[(1, 512)]);
        let demand = Demand::new(&scene.snapshot());
        // 8 us a page over a horizon of 10 s, where a whole second a second is 20e6:
        // 8e3 * 20e6 / 10e9 = 16.
        assert_eq!(demand.bundles[0].page_cost, 16);
        assert_eq!(demand.cost_with(&demand.bundles[0], 0, &[0]), 512 * 16);
        assert_eq!(demand.cost_with(&demand.bundles[0], 1, &[0]), 11 * SHARE);
    }
}
