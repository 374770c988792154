//! A placement's plans, carried out on paper until nothing is left to do. Pure.
//!
//! Evidence stays what it is; where tasks run and pages lie follows the plans, and time passes
//! between them. Example: thread 1 on node 1, its region of 512 pages on node 0. The first plan
//! moves the thread or the region; after it all use is local, and the second plan is empty.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_model::{Action, Nanos, NodeId, Pages, Placement, Plan, Snapshot, Task, TaskId};
use numaherd_placement::demand::Demand;

/// Between two plans: more than herd leaves alone what it has just moved.
const STEP: Nanos = Nanos(2_500_000_000);
/// Nothing planned for so many steps means that nothing will be: longer than herd waits for
/// evidence of a task.
const QUIET: u32 = 3;
/// A plan moves 16 MiB at the most, so this is 16 GiB; then it is told as unfinished.
const MOST_STEPS: u32 = 1000;

/// What carrying out all plans comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// Tasks that would run on another node than now.
    pub tasks: u64,
    /// Pages that would move, each time counted.
    pub pages: u64,
    /// Local share of the evidence, by busy time; None without evidence.
    pub before: Option<f64>,
    /// The same afterwards.
    pub after: Option<f64>,
    /// How far the memory in use is by the evidence, on average, before and afterwards, in the units of the distance given.
    pub distances: Option<[f64; 2]>,
    /// CPU time that its tasks find, before and afterwards, per mille of one CPU.
    pub cpus: [u64; 2],
    /// Whether it came to an end.
    pub finished: bool,
}

impl Projection {
    /// Whether there is anything to do.
    pub fn moves(&self) -> bool {
        self.tasks + self.pages > 0
    }
}

/// Carries out plans until there are none.
pub fn project(
    placement: &mut impl Placement,
    mut snapshot: Snapshot,
    distance: impl Fn(NodeId, NodeId) -> f64,
) -> Projection {
    let (before, cpus) = (local_share(&snapshot), cpus_found(&snapshot));
    let far = mean(&snapshot, &distance);
    let begin: BTreeMap<TaskId, Option<NodeId>> =
        snapshot.tasks.iter().map(|task| (task.id, task.node(&snapshot.topology))).collect();
    let (mut pages, mut quiet, mut steps) = (0, 0, 0);
    while quiet < QUIET && steps < MOST_STEPS {
        let plan = placement.decide(&snapshot);
        quiet = if plan.actions.is_empty() { quiet + 1 } else { 0 };
        pages += carry_out(&mut snapshot, &plan);
        steps += 1;
    }
    let moved: BTreeSet<TaskId> = snapshot
        .tasks
        .iter()
        .filter(|task| begin.get(&task.id) != Some(&task.node(&snapshot.topology)))
        .map(|task| task.id)
        .collect();
    Projection {
        tasks: moved.len() as u64,
        pages,
        before,
        after: local_share(&snapshot),
        distances: far.zip(mean(&snapshot, distance)).map(Into::into),
        cpus: [cpus, cpus_found(&snapshot)],
        finished: quiet >= QUIET,
    }
}

/// Does on paper what a plan says; answers how many pages moved.
fn carry_out(snapshot: &mut Snapshot, plan: &Plan) -> u64 {
    let mut pages = 0;
    for action in &plan.actions {
        match action {
            Action::PlaceTask { task, node, cpus, .. } => {
                let found = snapshot.tasks.iter_mut().find(|found| found.id == *task);
                if let (Some(found), Some(cpu)) = (found, cpus.first()) {
                    found.home = Some(*node);
                    found.cpus_allowed = cpus.clone();
                    found.last_cpu = cpu;
                }
            }
            Action::ReleaseTask { task, cpus, .. } => {
                if let Some(found) = snapshot.tasks.iter_mut().find(|found| found.id == *task) {
                    found.home = None;
                    found.cpus_allowed = cpus.clone();
                }
            }
            Action::MovePages { region, to, .. } => {
                let Some(found) = snapshot.regions.iter_mut().find(|r| r.id == *region) else {
                    continue;
                };
                let all = found.known_pages();
                pages += all.0 - found.pages_on(*to).0;
                let from = std::mem::replace(&mut found.pages, vec![(*to, all)]);
                for (node, moved) in from.into_iter().filter(|(node, _)| node != to) {
                    refill(snapshot, node, moved, true);
                    refill(snapshot, *to, moved, false);
                }
            }
        }
    }
    snapshot.time = Nanos(snapshot.time.0 + STEP.0);
    snapshot.tasks.iter_mut().for_each(|task| task.age = Nanos(task.age.0 + STEP.0));
    pages
}

fn refill(snapshot: &mut Snapshot, node: NodeId, pages: Pages, more: bool) {
    if let Some(state) = snapshot.nodes.iter_mut().find(|state| state.id == node) {
        let free = state.free.0;
        state.free =
            Pages(if more { free.saturating_add(pages.0) } else { free.saturating_sub(pages.0) });
    }
}

/// The local share of what the tasks use, by how busy they are.
fn local_share(snapshot: &Snapshot) -> Option<f64> {
    mean(snapshot, |from, to| if from == to { 1.0 } else { 0.0 })
}

/// The mean of `distance` from each task to the memory that it uses, by how busy the task is; who uses
/// what is as herd takes it to be: where a page was touched first by one of several that share it, the
/// others use it too.
fn mean(snapshot: &Snapshot, distance: impl Fn(NodeId, NodeId) -> f64) -> Option<f64> {
    let demand = Demand::new(snapshot);
    let (mut far, mut all) = (0.0, 0.0);
    for bundle in demand.bundles.iter().filter(|bundle| bundle.known > 0) {
        for &(user, weight) in &bundle.users {
            let from = demand.nodes[demand.tasks[user].now];
            let to =
                |&(node, pages): &(usize, u64)| distance(from, demand.nodes[node]) * pages as f64;
            far += weight as f64 * bundle.pages.iter().map(to).sum::<f64>() / bundle.known as f64;
            all += weight as f64;
        }
    }
    (all > 0.0).then(|| far / all)
}

/// CPU time that the tasks find where they are kept, per mille of one CPU: on each node no more
/// than its CPUs give; those that are not kept anywhere take what is left.
///
/// Five busy tasks kept on four CPUs and three on four others find 7000.
fn cpus_found(snapshot: &Snapshot) -> u64 {
    let wanted = Task::wanted_permille;
    let (mut found, mut room) = (0, 0);
    for node in &snapshot.topology.nodes {
        let kept = snapshot.tasks.iter().filter(|task| task.home == Some(node.id));
        let capacity = 1000 * node.cpus.iter().count() as u64;
        let taken = kept.map(wanted).sum::<u64>().min(capacity);
        found += taken;
        room += capacity - taken;
    }
    let free = snapshot.tasks.iter().filter(|task| task.home.is_none());
    found + free.map(wanted).sum::<u64>().min(room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;
    use numaherd_placement::Herd;

    fn slit(from: NodeId, to: NodeId) -> f64 {
        if from == to { 10.0 } else { 21.0 }
    }

    #[test]
    fn misplaced_pages_and_threads_come_together_on_paper() {
        // Threads 1 and 2 on node 0, each with two regions of 512 pages on node 1
        let mut scene = Scene::two_by_four();
        for tid in [1, 2] {
            scene.task(tid, tid - 1, 1000);
            for index in 0..2 {
                scene.region(u64::from(2 * tid + index), &[(tid, 512)], &[(1, 512)]);
            }
        }
        let told = project(&mut Herd::new(), scene.snapshot(), slit);
        assert_eq!((told.before, told.after, told.finished), (Some(0.0), Some(1.0), true));
        assert_eq!((told.distances.map(|[_, after]| after), told.cpus), (Some(10.0), [2000, 2000]));
        // Either both threads move or all four regions do.
        assert!(matches!((told.tasks, told.pages), (2, 0) | (0, 2048)), "{told:?}");
    }

    #[test]
    fn who_shares_memory_uses_what_others_touched_first() {
        // Five threads, four of them on node 0 with all memory; each region was touched by one.
        let mut scene = Scene::two_by_four();
        for tid in 1..=5 {
            scene.task(tid, tid - 1, 1000);
            scene.region(u64::from(tid), &[(tid, 512)], &[(0, 512)]);
        }
        assert_eq!(local_share(&scene.snapshot()), Some(0.8));
        scene.edit().regions.truncate(4);
        // Four whose regions are seen and a fifth whose are not; or all use all.
        assert_eq!(local_share(&scene.snapshot()), Some(1.0));
        scene.shared(100, 80);
        assert_eq!(local_share(&scene.snapshot()), Some(0.8));
    }

    #[test]
    fn what_is_well_placed_stays() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.region(0, &[(1, 512)], &[(0, 512)]);
        let told = project(&mut Herd::new(), scene.snapshot(), slit);
        assert_eq!((told.tasks, told.pages, told.before), (0, 0, Some(1.0)));
        let nobody = project(&mut Herd::new(), Scene::two_by_four().snapshot(), slit);
        assert_eq!((nobody.before, nobody.after, nobody.finished), (None, None, true));
    }

    #[test]
    fn who_is_kept_where_there_are_too_few_cpus_finds_less() {
        let mut scene = Scene::two_by_four();
        (1..=8).for_each(|tid| scene.task(tid, tid - 1, 1000));
        let mut snapshot = scene.snapshot();
        assert_eq!(cpus_found(&snapshot), 8000);
        for (index, task) in snapshot.tasks.iter_mut().enumerate() {
            task.home = Some(NodeId(u32::from(index >= 5)));
        }
        assert_eq!(cpus_found(&snapshot), 7000); // 4 of 5, and 3
    }
}
