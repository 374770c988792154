//! CPUs of a node that are only for some of its tasks: cpusets, and masks of an owner's, that have some of a node's CPUs and
//! not all.
//!
//! A node holds as many tasks as it has CPUs. Of tasks that may use the same few of these it is to hold no more than those
//! are, or eight that may use four CPUs on either of two nodes would share the four of one. Where they are more than the CPUs
//! that they may use, it is each node's fair part of them, rounded up.
//!
//! Tasks of one pool have the same CPUs. That pools overlap, and that others use CPUs of a pool, too, is not looked at: each
//! bound has to be kept, and none is enough.

use numaherd_model::{CpuSet, Snapshot};

use super::DemandTask;
use super::room::parts;

/// Which pool, if any: of tasks that may use all of each node's CPUs, or none, a node holds as many as of any.
pub type PoolOf = Option<usize>;

/// How many tasks of each pool each node may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools(Vec<Vec<usize>>);

/// So many tasks of each pool that claim a CPU are on each node.
#[derive(Clone, Debug, Default)]
pub struct PoolLoads(Vec<Vec<usize>>);

/// The CPUs of each node among these, if they are some of those of a node that are not set apart, and not all.
pub fn some_of_each(snapshot: &Snapshot, cpus: &CpuSet) -> Option<Vec<usize>> {
    let nodes = &snapshot.topology.nodes;
    let counts: Vec<usize> = nodes.iter().map(|node| node.cpus.intersection(cpus).len()).collect();
    let all = nodes.iter().map(|node| node.cpus.difference(&snapshot.isolated).len());
    let is_narrow = counts.iter().zip(all).any(|(&some, all)| some > 0 && some < all);
    is_narrow.then_some(counts)
}

impl Pools {
    /// With so many CPUs of each node in each pool.
    pub fn new(cpus: Vec<Vec<usize>>, tasks: &[DemandTask]) -> Pools {
        let mut claims = vec![0; cpus.len()];
        let claiming = tasks.iter().filter(|task| task.claims_cpu);
        claiming.filter_map(|task| task.pool).for_each(|pool| claims[pool] += 1);
        let room = |(cpus, claims): (Vec<usize>, usize)| match claims <= cpus.iter().sum() {
            true => cpus,
            false => parts(&cpus, claims),
        };
        Pools(cpus.into_iter().zip(claims).map(room).collect())
    }

    /// As many, or as many as a node holds already.
    pub fn at_least(&self, held: &PoolLoads) -> Pools {
        let most = |(rooms, held): (&Vec<usize>, &Vec<usize>)| {
            rooms.iter().zip(held).map(|(&room, &held)| room.max(held)).collect()
        };
        Pools(self.0.iter().zip(&held.0).map(most).collect())
    }

    /// So many on each node, with tasks where `at` says.
    pub fn loads(&self, tasks: &[DemandTask], at: &[usize]) -> PoolLoads {
        let mut loads = PoolLoads(self.0.iter().map(|rooms| vec![0; rooms.len()]).collect());
        let claiming = tasks.iter().zip(at).filter(|(task, _)| task.claims_cpu);
        claiming.for_each(|(task, &node)| loads.come(task.pool, node));
        loads
    }
}

impl PoolLoads {
    /// One more.
    pub fn come(&mut self, pool: PoolOf, node: usize) {
        if let Some(pool) = pool {
            self.0[pool][node] += 1;
        }
    }

    /// One less.
    pub fn leave(&mut self, pool: PoolOf, node: usize) {
        if let Some(pool) = pool {
            self.0[pool][node] -= 1;
        }
    }

    /// Whether a node may hold one more of a pool.
    pub fn has_room(&self, pools: &Pools, pool: PoolOf, node: usize) -> bool {
        pool.is_none_or(|pool| self.0[pool][node] < pools.0[pool][node])
    }

    /// Whether a node holds more of a pool than it may.
    pub fn is_overfull(&self, pools: &Pools, pool: PoolOf, node: usize) -> bool {
        pool.is_some_and(|pool| self.0[pool][node] > pools.0[pool][node])
    }
}

#[cfg(test)]
mod tests {
    use numaherd_model::scene::Scene;
    use numaherd_model::{Action, Placement, Plan};

    use super::*;
    use crate::Herd;

    /// Eight busy tasks that share memory on node 0 of two nodes of eight CPUs, four on either, and may use these.
    fn shared(cpus: &str) -> Scene {
        let mut scene = Scene::even(2, 8);
        for tid in 1..=8 {
            scene.task(tid, if tid <= 4 { tid - 1 } else { tid + 3 }, 1000);
        }
        let users: Vec<(u32, u64)> = (1..=8).map(|tid| (tid, 200)).collect();
        (0..8).for_each(|region| scene.region(region, &users, &[(0, 512)]));
        for task in &mut scene.edit().tasks {
            task.cpus_owner = cpus.parse().unwrap();
            task.cpus_allowed = task.cpus_owner.clone();
        }
        scene
    }

    /// So many are on each node once the plan is done.
    fn loads(scene: &Scene, plan: &Plan) -> [usize; 2] {
        let snapshot = scene.snapshot();
        let mut loads = [0; 2];
        for task in &snapshot.tasks {
            let placed = plan.actions.iter().find_map(|action| match action {
                Action::PlaceTask { task: id, node, .. } if *id == task.id => Some(*node),
                _ => None,
            });
            let node = placed.or_else(|| task.node(&snapshot.topology)).unwrap();
            loads[node.0 as usize] += 1;
        }
        loads
    }

    #[test]
    fn those_that_share_memory_come_together_as_far_as_their_cpus_go() {
        let after = |cpus: &str| {
            let scene = shared(cpus);
            loads(&scene, &Herd::new().decide(&scene.snapshot()))
        };
        assert!(after("0-15").contains(&8), "all may use all: {:?}", after("0-15"));
        assert_eq!(after("0-3,8-11"), [4, 4]);
        // Six of the twelve that they may use are enough for no more than six.
        let uneven = after("0-5,8-13");
        assert!(uneven.iter().all(|&load| load <= 6), "{uneven:?}");
        // More than CPUs: a fair part.
        assert_eq!(after("0,8"), [4, 4]);
    }

    #[test]
    fn only_cpus_that_leave_out_some_of_a_node_are_a_pool() {
        let mut scene = Scene::even(2, 8);
        let narrow = |scene: &Scene, cpus: &str| {
            some_of_each(&scene.snapshot(), &cpus.parse().unwrap()).is_some()
        };
        assert_eq!(
            ["0-15", "0-7", "0-6", "8-14"].map(|cpus| narrow(&scene, cpus)),
            [false, false, true, true]
        );
        // Nobody is given those that are set apart.
        scene.edit().isolated = "7,15".parse().unwrap();
        assert_eq!(
            ["0-6,8-14", "0-6", "0-5"].map(|cpus| narrow(&scene, cpus)),
            [false, false, true]
        );
    }
}
