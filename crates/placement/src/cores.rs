//! What it costs that tasks share cores.
//!
//! Where a core has several CPUs (SMT siblings), a task beside another one gets a part of what it would get alone.
//! So a node is not as good for its eighth task as for its fourth because it has eight CPUs, if those are four cores:
//! to bring all who share memory to it has its price, which is weighed against distance. The kernel's balancing does
//! not weigh; its scheduler, which looks for idle cores first, works against it.
//!
//! Two siblings do about a quarter more than one of them alone (guessed; published figures are 1.1 to 1.4), so each
//! takes 1.6 times as long: what is 6 farther away in SLIT's tenths takes as long. Each task beyond a node's cores
//! slows itself and another one.
//!
//! Worked example: four tasks on two nodes of two cores of two CPUs each, that share all of their memory. Together
//! on one node they cost 2 × 12. Two and two, with memory on one node, those who are on the other cost 11 each at SLIT 21: 22,
//! which is less; at SLIT 31 it is more.

use numaherd_model::{Node, Snapshot};

use crate::demand::{SHARE, SLIT_UNIT};

/// What a task costs that shares its core, in weight × distance.
const SHARES_A_CORE: u64 = 6 * SHARE * SLIT_UNIT;

/// The cores of each node that are free for our tasks.
#[derive(Clone, Debug)]
pub struct Cores {
    /// By node; none where every CPU has a core to itself, and empty where that is so everywhere.
    free: Vec<Option<usize>>,
}

impl Cores {
    /// Of a machine where no CPU has a sibling, or where that does not matter.
    #[must_use]
    pub fn of_their_own() -> Cores {
        Cores { free: Vec::new() }
    }

    /// Those that are neither set apart nor taken by others, who take whole cores as long as there are some.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Cores {
        let free = |node: &Node| {
            let cpus = node.cpus.difference(&snapshot.isolated);
            let cores = snapshot.topology.cores(&cpus);
            let others = snapshot.others(node.id);
            (cores < cpus.len()).then(|| cores.saturating_sub(others))
        };
        let mut free: Vec<Option<usize>> = snapshot.topology.nodes.iter().map(free).collect();
        if free.iter().all(Option::is_none) {
            free.clear();
        }
        Cores { free }
    }

    fn of(&self, node: usize) -> Option<usize> {
        self.free.get(node).copied().flatten()
    }

    /// Whether tasks can be one too many for a node's cores that are not for its CPUs.
    #[must_use]
    pub fn matter(&self) -> bool {
        !self.free.is_empty()
    }

    /// How many of so many CPUs on a node have a core that no other task is on.
    #[must_use]
    pub fn most(&self, node: usize, cpus: usize) -> usize {
        self.of(node).map_or(cpus, |cores| cores.min(cpus))
    }

    /// What it costs to have so many tasks on a node that claim a CPU.
    #[must_use]
    pub fn cost(&self, node: usize, tasks: usize) -> u64 {
        let too_many = self.of(node).map_or(0, |cores| tasks.saturating_sub(cores));
        2 * SHARES_A_CORE * too_many as u64
    }

    /// The same for tasks on all nodes.
    #[must_use]
    pub fn total(&self, loads: &[usize]) -> u64 {
        loads.iter().enumerate().map(|(node, &tasks)| self.cost(node, tasks)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::Demand;
    use crate::mechanisms::Mechanisms;
    use crate::search;
    use numaherd_model::scene::Scene;

    /// Two nodes of two cores of two CPUs each, so far apart.
    fn scene(slit: u32) -> Scene {
        let mut scene = Scene::two_by_four();
        scene.cores_of(2);
        scene.edit().topology.distances = vec![vec![10, slit], vec![slit, 10]];
        scene
    }

    /// Tasks on these CPUs that share all of their memory, which is on node 0.
    fn sharing(slit: u32, cpus: &[u32]) -> Scene {
        let mut scene = scene(slit);
        (1..).zip(cpus).for_each(|(tid, &cpu)| scene.task(tid, cpu, 1000));
        let users: Vec<(u32, u64)> = (1..).zip(cpus).map(|(tid, _)| (tid, 100)).collect();
        scene.region(0, &users, &[(0, 512)]);
        scene
    }

    /// How many are on each node in the end, by steps alone and exactly.
    fn loads(scene: &Scene, mechanisms: Mechanisms) -> [Vec<usize>; 2] {
        let demand = Demand::with(&scene.snapshot(), mechanisms);
        let found = [search::descend(&demand, 1), search::improve(&demand, 1)];
        for found in &found {
            assert_eq!(found.total() - moved(&demand, found.at()), demand.total_cost(found.at()));
        }
        found.map(|found| found.load().to_vec())
    }

    fn moved(demand: &Demand, at: &[usize]) -> u64 {
        demand.tasks.iter().zip(at).filter(|(task, at)| task.now != **at).count() as u64
    }

    #[test]
    fn who_shares_memory_is_brought_together_where_distance_costs_more_than_shared_cores() {
        let all = Mechanisms::default();
        for cpus in [[0, 1, 2, 3], [0, 1, 4, 5]] {
            assert_eq!(loads(&sharing(21, &cpus), all), [[2, 2], [2, 2]]);
            assert_eq!(loads(&sharing(31, &cpus), all), [[4, 0], [4, 0]]);
            let without = Mechanisms { cores: false, ..all };
            assert_eq!(loads(&sharing(21, &cpus), without), [[4, 0], [4, 0]]);
        }
        // Two have a core each together.
        assert_eq!(loads(&sharing(12, &[0, 4]), all), [[2, 0], [2, 0]]);
    }

    #[test]
    fn who_changes_places_leaves_cores_as_they_are() {
        // One of each two is with the others' memory; both nodes have room for a task, and no core.
        let mut scene = scene(12);
        let home = [0, 1, 0, 1];
        for (tid, cpu) in (1..).zip([0, 2, 4, 6]) {
            scene.task(tid, cpu, 1000);
            scene.region(u64::from(tid), &[(tid, 100)], &[(home[tid as usize - 1], 512)]);
        }
        scene.edit().regions.iter_mut().for_each(|region| region.stays = true);
        let demand = Demand::new(&scene.snapshot());
        assert_eq!(search::descend(&demand, 1).at(), [0, 1, 0, 1]);
        assert_eq!(search::improve(&demand, 1).at(), [0, 1, 0, 1]);
    }

    #[test]
    fn others_and_cpus_set_apart_leave_fewer() {
        let mut scene = scene(21);
        scene.edit().nodes[0].others_permille = 1000;
        scene.edit().isolated = "6,7".parse().unwrap();
        let cores = Cores::new(&scene.snapshot());
        assert_eq!([cores.most(0, 4), cores.most(1, 2)], [1, 1]);
        assert_eq!(cores.total(&[1, 1]), 0);
        assert_eq!(cores.total(&[1, 3]), 4 * SHARES_A_CORE);
        assert!(cores.matter() && !Cores::of_their_own().matter());
        assert_eq!(Cores::new(&Scene::two_by_four().snapshot()).cost(0, 9), 0);
    }

    #[test]
    fn of_many_tasks_those_too_many_go_where_cores_are_free() {
        // Forty on one of three nodes of 32 cores of two CPUs each, each with memory of its own, and thirty on another.
        let mut scene = Scene::even(3, 64);
        scene.cores_of(2);
        for tid in 1..=70 {
            let node = u32::from(tid > 40);
            scene.task(tid, node * 64 + tid % 40, 1000);
            scene.region(u64::from(tid), &[(tid, 100)], &[(node, 512)]);
        }
        assert_eq!(loads(&scene, Mechanisms::default())[0], [32, 32, 6]);
    }
}
