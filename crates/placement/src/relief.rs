//! Placed tasks that wait for a CPU while there is one elsewhere.
//!
//! A placed task may only run on its node. If strangers come to run there, the scheduler cannot
//! take it elsewhere, and it is herd that makes it wait. What others take of a node's CPUs is known
//! only after some seconds; how long a task was runnable without running is known at once. So a
//! task whose wait has doubled is given its owner's CPUs back in the next turn of the loop, and
//! left to the scheduler for a while.
//!
//! Tasks of ours that have no place yet are no strangers: the scheduler can take them away, and herd is about to.
//! Somebody who was placed of late and waits for one of those is not let go: of two to a CPU on every CPU, each
//! that was let go crowded the other node, whose tasks were let go in turn (overcommit on the emulated 2x4).
//!
//! Example: unplaced, a task waited 5 % of the time; now 30 %, and node 1 has a CPU to spare: it
//! is let go. Had it waited 20 % before, or were a task to every CPU, it would stay.

use numaherd_model::{Nanos, Snapshot, Task};

use crate::demand::{Demand, PoolLoads};
use crate::herd::PATIENCE;

/// Waiting below this, per mille of the time, is no harm of ours: herd itself takes up to a quarter
/// of a CPU while it converges. Guessed.
const LEAST_PERMILLE: u32 = 300;

/// How long a task that was let go is left to the scheduler. Guessed: until it is known what others
/// take of each node.
const REST: Nanos = Nanos(5_000_000_000);

/// What is remembered of a task's waits.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// How long it usually waits for a CPU while it is not placed, per mille of the time.
    usual_permille: u32,
    /// Since when it has had a place.
    placed_at: Option<Nanos>,
    /// When it was let go.
    relieved_at: Option<Nanos>,
}

impl Waits {
    /// Of a task that is seen for the first time.
    #[must_use]
    pub fn new(task: &Task) -> Waits {
        Waits { usual_permille: task.waiting_permille, placed_at: None, relieved_at: None }
    }

    /// The task is seen.
    pub fn see(&mut self, task: &Task, now: Nanos) {
        if task.home.is_some() {
            self.placed_at.get_or_insert(now);
        } else {
            self.placed_at = None;
            self.usual_permille = (self.usual_permille * 7 + task.waiting_permille) / 8;
        }
    }

    /// Whether a task waits more than twice as long as it usually does.
    #[must_use]
    pub fn is_squeezed(&self, task: &Task) -> bool {
        let now = task.waiting_permille;
        now >= LEAST_PERMILLE && now > 2 * self.usual_permille
    }

    /// Whether it was placed of late.
    #[must_use]
    pub fn is_placed_of_late(&self, now: Nanos) -> bool {
        self.placed_at.is_some_and(|at| now.since(at) < PATIENCE)
    }

    /// It is let go.
    pub fn relieve(&mut self, now: Nanos) {
        self.relieved_at = Some(now);
    }

    /// Whether it was let go of late.
    #[must_use]
    pub fn is_relieved(&self, now: Nanos) -> bool {
        self.relieved_at.is_some_and(|at| now.since(at) < REST)
    }
}

/// Whether each node has tasks of ours that claim a CPU and have no place yet, but a choice.
#[must_use]
pub fn with_unplaced(demand: &Demand) -> Vec<bool> {
    let mut with = vec![false; demand.nodes.len()];
    for (i, task) in demand.tasks.iter().enumerate() {
        with[task.now] |= task.claims_cpu && !task.placed && demand.has_choice(i);
    }
    with
}

/// CPUs of each node that nobody claims. (With more tasks than CPUs a node may hold more of them than it has CPUs:
/// whoever waits there would wait elsewhere too.)
pub struct Room {
    free: Vec<usize>,
    /// Those that claim one, of each pool.
    pools: PoolLoads,
}

impl Room {
    /// With tasks where they are today.
    #[must_use]
    pub fn new(demand: &Demand) -> Room {
        let today = demand.today();
        let loads = demand.loads(&today);
        let free = demand.open.iter().zip(loads).map(|(open, load)| open.saturating_sub(load));
        Room { free: free.collect(), pools: demand.pools.loads(&demand.tasks, &today) }
    }

    /// Whether another node has such a CPU for a task that its owner allows there; takes it, if so. It is its
    /// owner's CPUs that it gets back, wherever its memory may be.
    pub fn is_elsewhere(&mut self, demand: &Demand, snapshot: &Snapshot, task: usize) -> bool {
        let here = demand.tasks[task].now;
        let open = snapshot.open_to(&snapshot.tasks[task]);
        let has_cpus =
            |node: usize| !snapshot.topology.nodes[node].cpus.intersection(&open).is_empty();
        let pool = demand.tasks[task].pool;
        let has_free = |node| self.free[node] > 0 && self.pools.has_room(&demand.pools, pool, node);
        let fits = |node: &usize| *node != here && has_free(*node) && has_cpus(*node);
        let Some(node) = (0..self.free.len()).find(fits) else { return false };
        self.free[node] -= 1;
        self.pools.come(pool, node);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Herd;
    use numaherd_model::scene::{Scene, task_id};
    use numaherd_model::{Action, Placement, Plan, Reason};

    /// Five busy tasks on two nodes of four CPUs, placed four and one, each beside its memory.
    fn placed() -> Scene {
        let mut scene = Scene::two_by_four();
        for tid in 1..=5 {
            scene.task(tid, tid - 1, 1000);
            scene.region(u64::from(tid), &[(tid, 400)], &[(u32::from(tid > 4), 512)]);
            scene.at_home(tid, u32::from(tid > 4));
        }
        scene
    }

    fn released(plan: &Plan) -> Vec<u32> {
        let of = |action: &Action| match action {
            Action::ReleaseTask { task, reason: Reason::Squeezed { .. }, .. } => Some(task.tid),
            _ => None,
        };
        plan.actions.iter().filter_map(of).collect()
    }

    #[test]
    fn a_task_whose_wait_doubled_is_let_go_and_then_left_alone() {
        let mut scene = placed();
        let released_first = |scene: &mut Scene| {
            let mut herd = Herd::new();
            herd.decide(&scene.snapshot());
            let mut squeezed = scene.snapshot();
            squeezed.tasks[0].waiting_permille = 300;
            squeezed.time.0 += 100_000_000;
            released(&herd.decide(&squeezed))
        };
        // Though its memory may be nowhere else.
        let mut confined = placed();
        confined.edit().forbid_memory(numaherd_model::scene::PROCESS, numaherd_model::NodeId(1));
        assert_eq!([&mut scene, &mut confined].map(released_first), [[1], [1]]);
        // While others of its process end, it may end too, beside its memory.
        let mut fewer = placed();
        fewer.edit().fewer = vec![(numaherd_model::scene::PROCESS, fewer.snapshot().time)];
        assert_eq!(released_first(&mut fewer), []);
        let mut herd = Herd::new();
        herd.decide(&scene.snapshot());
        scene.edit().tasks[0].waiting_permille = 300;
        scene.edit().time.0 += 100_000_000;
        assert_eq!(released(&herd.decide(&scene.snapshot())), [1]);
        // It is free, and runs beside strangers: nobody places it again for a while.
        scene.edit().tasks[0].home = None;
        scene.edit().time.0 += 1_000_000_000;
        let plan = herd.decide(&scene.snapshot());
        let places = |action: &Action| matches!(action, Action::PlaceTask { task, .. } if *task == task_id(1));
        assert!(!plan.actions.iter().any(places), "{plan:?}");
        scene.edit().tasks[0].waiting_permille = 0;
        scene.edit().time.0 += REST.0;
        assert!(herd.decide(&scene.snapshot()).actions.iter().any(places));
    }

    #[test]
    fn who_has_just_come_waits_for_ours_that_have_no_place_yet() {
        let mut scene = placed();
        // A sixth of which nothing is known runs on node 0.
        scene.task(6, 0, 1000);
        scene.edit().tasks[0].home = None;
        let mut herd = Herd::new();
        herd.decide(&scene.snapshot());
        scene.at_home(1, 0);
        let mut after = |milliseconds: u64, waits| {
            scene.edit().time.0 += milliseconds * 1_000_000;
            scene.edit().tasks[0].waiting_permille = waits;
            released(&herd.decide(&scene.snapshot()))
        };
        assert_eq!(after(20, 0), []);
        assert_eq!(after(100, 400), []);
        assert_eq!(after(3000, 400), []);
        assert_eq!(after(1000, 400), [1]);
    }

    #[test]
    fn who_always_waited_or_has_nowhere_to_go_stays() {
        let mut scene = placed();
        // It waited as long before it was placed.
        scene.edit().tasks[0].home = None;
        scene.edit().tasks[0].waiting_permille = 300;
        let mut herd = Herd::new();
        herd.decide(&scene.snapshot());
        scene.at_home(1, 0);
        scene.edit().time.0 += 100_000_000;
        assert_eq!(released(&herd.decide(&scene.snapshot())), []);
        // Others take what node 1 has left.
        let mut scene = placed();
        scene.edit().nodes[1].others_permille = 3000;
        scene.edit().tasks[0].waiting_permille = 300;
        assert_eq!(released(&Herd::new().decide(&scene.snapshot())), []);
    }

    #[test]
    fn with_more_tasks_than_cpus_none_is_free() {
        let mut scene = Scene::two_by_four();
        for tid in 1..=9 {
            let node = u32::from(tid > 5);
            scene.task(tid, node * 4 + tid % 4, 1000);
            scene.region(u64::from(tid), &[(tid, 400)], &[(node, 512)]);
            scene.at_home(tid, node);
        }
        // Five on node 0 and four on node 1, which may hold five as well.
        let mut herd = Herd::new();
        herd.decide(&scene.snapshot());
        scene.edit().tasks[0].waiting_permille = 600;
        scene.edit().time.0 += 5_000_000_000;
        assert_eq!(released(&herd.decide(&scene.snapshot())), []);
        // Two of node 1 have ended: one CPU is free there.
        scene.edit().tasks.truncate(7);
        scene.edit().time.0 += 100_000_000;
        assert_eq!(released(&herd.decide(&scene.snapshot())), [1]);
    }

    #[test]
    fn one_free_cpu_takes_one_task() {
        let mut scene = placed();
        scene.edit().nodes[1].others_permille = 2000;
        (0..4).for_each(|i| scene.edit().tasks[i].waiting_permille = 300);
        let mut herd = Herd::new();
        scene.edit().tasks.iter_mut().for_each(|task| task.waiting_permille /= 10);
        herd.decide(&scene.snapshot());
        (0..4).for_each(|i| scene.edit().tasks[i].waiting_permille = 300);
        assert_eq!(released(&herd.decide(&scene.snapshot())), [1]);
    }
}
