//! A better assignment of tasks to nodes: steepest descent by single moves and by swaps,
//! starting from where tasks are.
//!
//! A swap is numa/core's *flip* (Molnar 2012): two tasks change places in one step, so that no
//! node is overloaded in between and full nodes are no obstacle. The cost of an assignment
//! counts each bundle's memory at the node where it is cheapest, moving it included, so groups
//! that share memory are drawn together step by step: each swap that brings one more member to
//! the majority is an improvement by itself.
//!
//! No node ends up with more CPU-claiming tasks than its capacity unless it began so. Ties go
//! to the lower indices; the result depends on nothing but the demand.

use crate::demand::Demand;

/// Rounds after which we stop, come what may: each lowers the cost, so this is never met on
/// problems of sensible size.
const MOST_ROUNDS: usize = 10_000;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Move { task: usize, to: usize },
    Swap { a: usize, b: usize },
}

/// Where every task should run: for each task the index of a node. `min_gain` is the least
/// improvement worth a step, in the unit of the demand's costs.
#[must_use]
pub fn improve(demand: &Demand, min_gain: u64) -> Vec<usize> {
    let mut at: Vec<usize> = demand.tasks.iter().map(|task| task.now).collect();
    relieve(demand, &mut at);
    for _ in 0..MOST_ROUNDS {
        let load = load(demand, &at);
        let mut best: Option<(u64, Step)> = None;
        for step in steps(demand, &at, &load) {
            let gain = gain(demand, &mut at, step);
            if gain >= min_gain.max(1) && best.is_none_or(|(most, _)| gain > most) {
                best = Some((gain, step));
            }
        }
        match best {
            Some((_, step)) => apply(&mut at, step),
            None => break,
        }
    }
    at
}

/// Takes tasks off nodes that hold more than their capacity, cheapest first.
fn relieve(demand: &Demand, at: &mut [usize]) {
    loop {
        let load = load(demand, at);
        let Some(full) = (0..load.len()).find(|&node| load[node] > demand.capacity[node]) else {
            return;
        };
        let mut best: Option<(u64, Step)> = None;
        let leaves = |task: &usize| at[*task] == full && demand.tasks[*task].claims_cpu;
        let leavers: Vec<usize> = (0..at.len()).filter(leaves).collect();
        for task in leavers {
            for to in rooms(demand, task, &load) {
                let step = Step::Move { task, to };
                let before = cost_around(demand, at, step);
                let back = at[task];
                at[task] = to;
                let after = cost_around(demand, at, step);
                at[task] = back;
                // Costs may rise here: rank by the change, shifted to stay positive.
                let rank = (u64::MAX / 2 + before).saturating_sub(after);
                if best.is_none_or(|(most, _)| rank > most) {
                    best = Some((rank, step));
                }
            }
        }
        match best {
            Some((_, step)) => apply(at, step),
            // Nobody may leave, or nowhere is room: it stays as its owner has it.
            None => return,
        }
    }
}

/// CPU-claiming tasks on each node.
fn load(demand: &Demand, at: &[usize]) -> Vec<usize> {
    let mut load = vec![0; demand.nodes.len()];
    for (task, &node) in demand.tasks.iter().zip(at) {
        load[node] += usize::from(task.claims_cpu);
    }
    load
}

/// Nodes with room that the task may go to.
fn rooms<'a>(
    demand: &'a Demand,
    task: usize,
    load: &'a [usize],
) -> impl Iterator<Item = usize> + 'a {
    let claims = usize::from(demand.tasks[task].claims_cpu);
    (0..demand.nodes.len()).filter(move |&node| {
        load[node] + claims <= demand.capacity[node] && !demand.tasks[task].cpus[node].is_empty()
    })
}

fn steps(demand: &Demand, at: &[usize], load: &[usize]) -> Vec<Step> {
    let mut steps = Vec::new();
    let known = |task: usize| !demand.tasks[task].bundles.is_empty();
    for task in (0..at.len()).filter(|&task| known(task)) {
        let others = rooms(demand, task, load).filter(|&to| to != at[task]);
        steps.extend(others.map(|to| Step::Move { task, to }));
    }
    for a in 0..at.len() {
        for b in a + 1..at.len() {
            let (one, two) = (&demand.tasks[a], &demand.tasks[b]);
            let may = !one.cpus[at[b]].is_empty() && !two.cpus[at[a]].is_empty();
            let same_claim = one.claims_cpu == two.claims_cpu;
            if at[a] != at[b] && may && same_claim && (known(a) || known(b)) {
                steps.push(Step::Swap { a, b });
            }
        }
    }
    steps
}

fn apply(at: &mut [usize], step: Step) {
    match step {
        Step::Move { task, to } => at[task] = to,
        Step::Swap { a, b } => at.swap(a, b),
    }
}

/// What a step saves; 0 if nothing.
fn gain(demand: &Demand, at: &mut [usize], step: Step) -> u64 {
    let before = cost_around(demand, at, step);
    let undo = match step {
        Step::Move { task, .. } => Step::Move { task, to: at[task] },
        swap @ Step::Swap { .. } => swap,
    };
    apply(at, step);
    let after = cost_around(demand, at, step);
    apply(at, undo);
    before.saturating_sub(after)
}

/// Cost of the bundles that a step can change.
fn cost_around(demand: &Demand, at: &[usize], step: Step) -> u64 {
    let cost = |bundle: &usize| demand.best_memory(&demand.bundles[*bundle], at).1;
    match step {
        Step::Move { task, .. } => demand.tasks[task].bundles.iter().map(cost).sum(),
        Step::Swap { a, b } => {
            let (one, two) = (&demand.tasks[a].bundles, &demand.tasks[b].bundles);
            let only_two = two.iter().filter(|bundle| !one.contains(bundle));
            one.iter().chain(only_two).map(cost).sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;
    use proptest::prelude::*;

    fn solve(scene: &Scene) -> Vec<usize> {
        improve(&Demand::new(&scene.snapshot()), 1)
    }

    #[test]
    fn two_groups_of_four_that_are_mixed_end_on_a_node_each() {
        // numa01: tasks 1-4 share regions 0-3, tasks 5-8 share 4-7; all memory on node 0 and
        // each group spread two and two.
        let mut scene = Scene::two_by_four();
        for tid in 1..=8 {
            scene.task(tid, if tid % 2 == 0 { 4 } else { 0 }, 1000);
        }
        for r in 0..8 {
            let first = if r < 4 { 1 } else { 5 };
            let users: Vec<(u32, u64)> = (first..first + 4).map(|tid| (tid, 100)).collect();
            scene.region(r, &users, &[(0, 512)]);
        }
        let at = solve(&scene);
        assert!(
            at[..4].iter().all(|&n| n == at[0]) && at[4..].iter().all(|&n| n == 1 - at[0]),
            "{at:?}"
        );
    }

    #[test]
    fn private_tasks_that_are_balanced_stay_where_they_are() {
        let mut scene = Scene::two_by_four();
        for tid in 1..=8 {
            scene.task(tid, tid - 1, 1000);
            scene.region(u64::from(tid), &[(tid, 400)], &[(0, 512)]);
        }
        assert_eq!(solve(&scene), [0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn an_overloaded_node_is_relieved_by_the_task_that_loses_least() {
        let mut scene = Scene::two_by_four();
        for tid in 1..=5 {
            scene.task(tid, 0, 1000);
            let node = u32::from(tid == 3); // only task 3 has its memory on node 1
            scene.region(u64::from(tid), &[(tid, 400)], &[(node, 512)]);
        }
        assert_eq!(solve(&scene), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn a_task_whose_owner_forbids_a_node_is_not_sent_there() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.region(0, &[(1, 400)], &[(1, 200_000)]); // dear to move
        scene.edit().tasks[0].cpus_owner = "0-3".parse().unwrap();
        assert_eq!(solve(&scene), [0]);
    }

    #[derive(Debug, Clone)]
    struct Load {
        cpus: Vec<u32>,
        uses: Vec<(usize, u64)>,
        pages: Vec<u32>,
    }

    fn loads() -> impl Strategy<Value = Load> {
        let cpus = proptest::collection::vec(0u32..8, 1..9);
        let uses = proptest::collection::vec((0usize..9, 0u64..500), 0..30);
        (cpus, uses, proptest::collection::vec(0u32..2, 30)).prop_map(|(cpus, uses, pages)| Load {
            cpus,
            uses,
            pages,
        })
    }

    fn scene(load: &Load) -> Scene {
        let mut scene = Scene::two_by_four();
        for (i, &cpu) in load.cpus.iter().enumerate() {
            scene.task(i as u32 + 1, cpu, 1000);
        }
        for (r, &(user, faults)) in load.uses.iter().enumerate() {
            let user = (user % load.cpus.len()) as u32 + 1;
            let mate = (r % load.cpus.len()) as u32 + 1;
            let users =
                if mate == user { vec![(user, faults)] } else { vec![(user, faults), (mate, 50)] };
            let mut users = users;
            users.sort_unstable();
            scene.region(r as u64, &users, &[(load.pages[r], 512)]);
        }
        scene
    }

    proptest! {
        #[test]
        fn no_node_is_overfilled_and_the_cost_never_rises(load in loads()) {
            let scene = scene(&load);
            let demand = Demand::new(&scene.snapshot());
            let mut start: Vec<usize> = demand.tasks.iter().map(|t| t.now).collect();
            relieve(&demand, &mut start);
            let at = improve(&demand, 1);
            prop_assert!(demand.total_cost(&at) <= demand.total_cost(&start));
            let loads = super::load(&demand, &at);
            prop_assert!(loads.iter().zip(&demand.capacity).all(|(l, c)| l <= c), "{:?}", loads);
        }

        #[test]
        fn an_assignment_that_was_found_is_kept(load in loads()) {
            let mut scene = scene(&load);
            let at = improve(&Demand::new(&scene.snapshot()), 1);
            for (i, node) in at.iter().enumerate() {
                scene.at_home(i as u32 + 1, *node as u32);
            }
            prop_assert_eq!(improve(&Demand::new(&scene.snapshot()), 1), at);
        }
    }
}
