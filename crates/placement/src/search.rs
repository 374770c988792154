//! A better assignment of tasks to nodes, starting from where tasks are.
//!
//! In each pass every task says which node it would rather be on and what that would bring; the
//! greatest gains go first. A task goes where there is room, or changes places with one that
//! loses less (numa/core's *flip*, Molnar 2012: no node is overloaded in between and full nodes
//! are no obstacle), or pushes one on to a third node. When no single step helps any more, whole
//! bundles are gathered on one node, kept where the sum is better. Small problems are then solved
//! exactly ([`crate::exact`]).
//!
//! The cost of an assignment counts each bundle's memory at the node where it is cheapest, moving
//! it included, so groups that share memory are drawn together step by step. Moving a task has
//! its price too, so an assignment that was found is kept.
//!
//! A pass costs n log n in tasks: each looks at the few nodes where its memory or its partners
//! are, and at a bounded number of partners to change places with. No node ends up with more
//! CPU-claiming tasks than its capacity unless it began so and their owners forbid better. Ties
//! go to the lower index; the result depends on nothing but the demand.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use smallvec::{SmallVec, smallvec};

use crate::assignment::Assignment;
use crate::demand::{Demand, DemandTask};
use crate::exact;

/// Passes after which we stop, come what may: each lowers the cost, most problems need two or
/// three.
const MOST_PASSES: usize = 32;

/// Tasks up to which every task of a full node is looked at as a partner, and every node as a
/// destination.
const FEW_TASKS: usize = 64;

/// Partners looked at on a full node of a larger problem: those that lose least by leaving.
const PARTNERS: usize = 4;

/// Who loses least by leaving a node of a larger problem is worked out anew when one in so many of
/// those there came or went.
const FRESH: usize = 1;

/// Nodes on which a bundle of a large problem is tried to be gathered: those with most of it.
const GATHERING_PLACES: usize = 3;

/// Bundles that are tried to be gathered in a pass, the dearest first.
const MOST_GATHERINGS: usize = 1024;

/// Where every task should run: for each task the index of a node. Moving a task must save at
/// least `task_cost`, in the unit of the demand's costs.
#[must_use]
pub fn improve(demand: &Demand, task_cost: u64) -> Vec<usize> {
    let assignment = descend(demand, task_cost);
    exact::improve(demand, &assignment, task_cost).unwrap_or_else(|| assignment.into_nodes())
}

/// Steps and gatherings from where tasks are now, until none helps: what [`improve`] does without
/// solving small problems exactly.
#[must_use]
pub fn descend(demand: &Demand, task_cost: u64) -> Assignment<'_> {
    let mut assignment = Assignment::today(demand, task_cost);
    relieve(demand, &mut assignment);
    let with_evidence = demand.tasks.iter().map(|task| !task.bundles.is_empty());
    let mut awake = Awake(with_evidence.collect());
    let mut partners = Partners::new(demand);
    for _ in 0..MOST_PASSES {
        let better = step_all(demand, &mut assignment, &mut partners, &mut awake)
            || gather_all(demand, &mut assignment, &mut partners, &mut awake);
        if !better {
            break;
        }
    }
    assignment
}

/// Takes tasks off nodes that hold more than their capacity, those that lose least first.
fn relieve(demand: &Demand, assignment: &mut Assignment) {
    for full in 0..demand.nodes.len() {
        if !assignment.is_overfull(full) {
            continue;
        }
        let crowded = assignment.load()[full] > demand.capacity[full];
        let members = assignment.members(full).iter().copied();
        let leavers = members.filter(|&task| crowded || demand.tasks[task].traffic > 0);
        let leavers: Vec<usize> = leavers.collect();
        let mut leavers: Vec<(u64, usize)> = leavers
            .into_iter()
            .filter_map(|task| Some((nearest_room(demand, assignment, task)?.0, task)))
            .collect();
        leavers.sort_unstable();
        for (_, task) in leavers {
            if !assignment.is_overfull(full) {
                break;
            }
            // Rooms fill up: what was best may be gone.
            if let Some((_, to)) = nearest_room(demand, assignment, task) {
                assignment.put(task, to);
            }
        }
    }
}

/// The cheapest node with room for a task other than its own, and what all costs then.
fn nearest_room(demand: &Demand, assignment: &mut Assignment, task: usize) -> Option<(u64, usize)> {
    let from = assignment.at()[task];
    let rooms = (0..demand.nodes.len()).filter(|&n| n != from && assignment.has_room(task, n));
    let rooms: Vec<usize> = rooms.collect();
    rooms.into_iter().map(|to| (assignment.total_with(task, to), to)).min()
}

/// Tasks that are looked at in the next pass.
struct Awake(Vec<bool>);

impl Awake {
    /// A task moved: whoever shares memory with it may see things differently now.
    fn around(&mut self, demand: &Demand, task: usize) {
        self.0[task] = true;
        for &(b, _) in &demand.tasks[task].bundles {
            demand.bundles[b].users.iter().for_each(|&(user, _)| self.0[user] = true);
        }
    }
}

/// One pass: everybody who gains by going elsewhere, greatest gain first. Whether any did.
fn step_all(
    demand: &Demand,
    assignment: &mut Assignment,
    partners: &mut Partners,
    awake: &mut Awake,
) -> bool {
    let mut wishes = Vec::new();
    let mut nodes = Vec::new();
    for task in (0..demand.tasks.len()).filter(|&task| std::mem::take(&mut awake.0[task])) {
        let total = assignment.total();
        destinations(demand, assignment, task, &mut nodes);
        for &to in &nodes {
            let with = assignment.total_with(task, to);
            if with < total {
                wishes.push((Reverse(total - with), task, to));
            }
        }
    }
    if wishes.is_empty() {
        return false;
    }
    wishes.sort_unstable();
    partners.hear(demand, assignment, &wishes);
    let mut better = false;
    for (_, task, to) in wishes {
        if let Some(moved) = step(demand, assignment, partners, task, to) {
            moved.into_iter().for_each(|task| awake.around(demand, task));
            better = true;
        }
    }
    better
}

/// Nodes that a task might gain by.
fn destinations(demand: &Demand, assignment: &Assignment, task: usize, nodes: &mut Vec<usize>) {
    if demand.tasks.len() > FEW_TASKS {
        assignment.attractions(task, nodes);
        return;
    }
    let from = assignment.at()[task];
    nodes.clear();
    nodes.extend((0..demand.nodes.len()).filter(|&n| n != from && assignment.allows(task, n)));
}

/// Puts a task on a node if that still lowers the cost: into a free place, in exchange for
/// another task, or by pushing one on. Answers who moved.
fn step(
    demand: &Demand,
    assignment: &mut Assignment,
    partners: &mut Partners,
    task: usize,
    to: usize,
) -> Option<SmallVec<[usize; 2]>> {
    let (from, before) = (assignment.at()[task], assignment.total());
    let alone = assignment.total_with(task, to);
    if from == to || alone >= before {
        return None;
    }
    if assignment.has_room(task, to) {
        assignment.put(task, to);
        return Some(smallvec![task]);
    }
    let near = partners.of(demand, assignment, task, to, from);
    let carries = |&partner: &usize| assignment.carries((task, from), (partner, to));
    let near: Found = near.into_iter().filter(carries).collect();
    let mut best = (before, None);
    let mut nodes = Vec::new();
    for partner in near {
        // Two that have no memory in common save what each saves.
        let together = demand.have_in_common(task, partner);
        if together {
            assignment.put(task, to);
        }
        places(demand, assignment, partner, from, &mut nodes);
        for &place in &nodes {
            let total = assignment.total_with(partner, place);
            let total = if together { total } else { alone + total - before };
            if total < best.0 {
                best = (total, Some((partner, place)));
            }
        }
        if together {
            assignment.put(task, from);
        }
        // In a large problem, whoever loses nothing but the price of moving will do.
        if best.0 <= alone + assignment.task_cost() && demand.tasks.len() > FEW_TASKS {
            break;
        }
    }
    let (partner, place) = best.1?;
    assignment.put(task, to);
    assignment.put(partner, place);
    partners.arrived(partner, place);
    partners.arrived(task, to);
    Some(smallvec![task, partner])
}

/// Where a task may go that has to make room: the place just left, or wherever is some.
fn places(
    demand: &Demand,
    assignment: &Assignment,
    partner: usize,
    left: usize,
    nodes: &mut Vec<usize>,
) {
    let here = assignment.at()[partner];
    destinations(demand, assignment, partner, nodes);
    nodes.retain(|&node| node != here && node != left && assignment.has_room(partner, node));
    if assignment.allows(partner, left) {
        nodes.push(left);
    }
}

/// Tasks that are looked at as partners.
type Found = SmallVec<[usize; PARTNERS + 1]>;

/// Whom a task can change places with.
struct Partners {
    loose: Vec<Loose>,
    /// From node to node, those that wish to go, greatest gain last.
    bound: BTreeMap<(usize, usize), Vec<usize>>,
    few: bool,
}

/// Those on a node that lose least by leaving, least first.
#[derive(Default)]
struct Loose {
    tasks: VecDeque<usize>,
    /// The node's changes when this was worked out, and after how many more it is again.
    at: Option<usize>,
    lasts: usize,
}

impl Partners {
    fn new(demand: &Demand) -> Partners {
        let few = demand.tasks.len() <= FEW_TASKS;
        let loose = demand.nodes.iter().map(|_| Loose::default()).collect();
        Partners { loose, bound: BTreeMap::new(), few }
    }

    /// Takes in who wishes to go where, in a new pass.
    fn hear(
        &mut self,
        demand: &Demand,
        assignment: &Assignment,
        wishes: &[(Reverse<u64>, usize, usize)],
    ) {
        self.bound.clear();
        for &(_, task, to) in wishes.iter().rev().filter(|wish| demand.tasks[wish.1].claims_cpu) {
            self.bound.entry((assignment.at()[task], to)).or_default().push(task);
        }
        for node in (0..demand.nodes.len()).filter(|_| self.few) {
            self.loose[node] = Loose::new(demand, assignment, node);
        }
    }

    /// Those worth a look for a task that went from `left` to the full node `on`: one that
    /// wishes to go the other way, and some that are held least.
    fn of(
        &mut self,
        demand: &Demand,
        assignment: &Assignment,
        task: usize,
        on: usize,
        left: usize,
    ) -> Found {
        let at = assignment.at();
        let there = |partner: &usize| at[*partner] == on && *partner != task;
        let mut found = Found::new();
        if let Some(bound) = self.bound.get_mut(&(on, left)) {
            while bound.last().is_some_and(|partner| !there(partner)) {
                bound.pop();
            }
            found.extend(bound.last().copied());
        }
        if !self.few && !self.loose[on].still_holds(assignment, on) {
            self.loose[on] = Loose::new(demand, assignment, on);
        }
        let loose = &mut self.loose[on].tasks;
        while loose.front().is_some_and(|partner| at[*partner] != on) {
            loose.pop_front();
        }
        let claims = |partner: &usize| demand.tasks[*partner].claims_cpu;
        let most = if self.few { FEW_TASKS } else { PARTNERS };
        found.extend(loose.iter().copied().filter(there).filter(claims).take(most));
        found
    }

    /// A task came to a node, and may be a partner there.
    fn arrived(&mut self, task: usize, node: usize) {
        if self.few && !self.loose[node].tasks.contains(&task) {
            self.loose[node].tasks.push_back(task);
        }
    }
}

impl Loose {
    fn new(demand: &Demand, assignment: &Assignment, node: usize) -> Loose {
        let held = |&task: &usize| (hold(assignment, &demand.tasks[task], node), task);
        let mut tasks: Vec<(u64, usize)> = assignment.members(node).iter().map(held).collect();
        tasks.sort_unstable();
        let lasts = tasks.len() / FRESH;
        let tasks = tasks.into_iter().map(|(_, task)| task).collect();
        Loose { tasks, at: Some(assignment.changes(node)), lasts }
    }

    fn still_holds(&self, assignment: &Assignment, node: usize) -> bool {
        self.at.is_some_and(|at| assignment.changes(node) - at <= self.lasts)
    }
}

/// What holds a task on a node: its weight in memory that is there.
fn hold(assignment: &Assignment, task: &DemandTask, node: usize) -> u64 {
    let here = task.bundles.iter().filter(|(b, _)| assignment.memory_of(*b) == node);
    here.map(|(_, weight)| weight).sum()
}

/// Tries to bring the users of each scattered bundle to one node. Whether any attempt paid.
fn gather_all(
    demand: &Demand,
    assignment: &mut Assignment,
    partners: &mut Partners,
    awake: &mut Awake,
) -> bool {
    let few = demand.tasks.len() <= FEW_TASKS;
    let mut scattered: Vec<(Reverse<u64>, usize)> = (0..demand.bundles.len())
        .filter(|&b| few || assignment.weights(b).len() > 1)
        .map(|b| (Reverse(assignment.cost_of(b)), b))
        .filter(|(cost, _)| cost.0 > 0)
        .collect();
    scattered.sort_unstable();
    partners.hear(demand, assignment, &[]);
    let mut better = false;
    for (_, b) in scattered.into_iter().take(MOST_GATHERINGS) {
        for place in gathering_places(demand, assignment, b) {
            if let Some(moved) = gather(demand, assignment, partners, b, place) {
                moved.into_iter().for_each(|task| awake.around(demand, task));
                better = true;
            }
        }
    }
    better
}

/// Nodes on which a bundle is tried to be gathered: of a large problem those where most of its users
/// are, else all of them, for what its users use besides may lie anywhere.
fn gathering_places(demand: &Demand, assignment: &Assignment, b: usize) -> Vec<usize> {
    if demand.tasks.len() <= FEW_TASKS {
        return (0..demand.nodes.len()).collect();
    }
    let mut places = assignment.weights(b).to_vec();
    places.sort_unstable_by_key(|&(node, weight)| (Reverse(weight), node));
    places.truncate(GATHERING_PLACES);
    places.into_iter().map(|(node, _)| node).collect()
}

/// Brings all users of a bundle to a node, into free places or in exchange for whoever is held
/// least; takes all of it back unless the whole is cheaper. Answers who moved.
fn gather(
    demand: &Demand,
    assignment: &mut Assignment,
    partners: &mut Partners,
    b: usize,
    place: usize,
) -> Option<Vec<usize>> {
    let before = assignment.total();
    let mut done: Vec<(usize, usize)> = Vec::new();
    let users = &demand.bundles[b].users;
    let stranger = |task: &usize| users.binary_search_by_key(task, |user| user.0).is_err();
    for &(task, _) in users {
        let from = assignment.at()[task];
        if from == place || !assignment.allows(task, place) {
            continue;
        }
        if !assignment.has_room(task, place) {
            let near = partners.of(demand, assignment, task, place, from);
            let fits = |partner: &usize| {
                stranger(partner)
                    && assignment.allows(*partner, from)
                    && assignment.carries((task, from), (*partner, place))
            };
            let Some(partner) = near.into_iter().find(fits) else { break };
            done.push((partner, place));
            assignment.put(partner, from);
        }
        done.push((task, from));
        assignment.put(task, place);
    }
    if assignment.total() < before {
        done.iter().for_each(|&(task, _)| partners.arrived(task, assignment.at()[task]));
        return Some(done.into_iter().map(|(task, _)| task).collect());
    }
    for (task, back) in done.into_iter().rev() {
        assignment.put(task, back);
    }
    None
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
            let mut start = Assignment::today(&demand, 1);
            relieve(&demand, &mut start);
            let at = improve(&demand, 1);
            prop_assert!(demand.total_cost(&at) <= start.total());
            let load = |node| at.iter().filter(|&&n| n == node).count();
            prop_assert!((0..2).all(|node| load(node) <= demand.capacity[node]), "{:?}", at);
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
