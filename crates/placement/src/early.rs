//! Placing before it is known how far the tasks of a process share its memory, where that is right either
//! way.
//!
//! Whether memory is shared shows when a page is touched again, which takes a program that sweeps over
//! much of it most of a second. Where its memory lies shows at once. A process much of whose use is
//! remote has to be brought together in any case: if it shares its memory, on as few nodes as hold it; if
//! each task has its own, anywhere where that memory follows. So what is best if it is shared is done at
//! once, unless that costs more if it is not than it brings if it is, or has more tasks on one node than are on
//! any now: what is gathered there has that node's memory alone, and if memory is private need not be. A
//! process whose tasks are well is left as it was seen. Where faults have not shown a process's memory yet,
//! its page tables do ([`crate::tables`]).
//!
//! Worked example: two processes of four tasks on two nodes of four CPUs, two of each on either node, all
//! memory on node 0. If memory is private, four regions come to their tasks, whoever runs where. If it is
//! shared, one process belongs on node 0 and the other, with its memory, on node 1. That is as good in the
//! first case.

use std::collections::BTreeSet;

use numaherd_model::{CONVERGED_PERMILLE, EvidenceGrade, Nanos, ProcessId, Region, Snapshot};

use crate::bundles::{Busy, busy, by_process};
use crate::demand::{Demand, MIN_FAULTS, parts};
use crate::mechanisms::Mechanisms;
use crate::{sharing, tables};

/// Per mille of a process's faults that have to be on what was remote: more than where all is well.
pub const REMOTE_PERMILLE: u64 = 1000 - CONVERGED_PERMILLE as u64;

/// While threads are younger than this, whoever of their process was busy before may have prepared their memory,
/// and be about to sleep. Guessed: a turn of the loop.
const NEWBORN: Nanos = Nanos(100_000_000);

/// And who is alone in its process and younger than this may be about to start others, which would inherit its CPUs.
/// Guessed: faults will have told by then.
const ALONE: Nanos = Nanos(3_000_000_000);

/// Where tasks belong if memory is shared of which that is not known.
pub struct Early {
    /// The demand as it is then.
    pub demand: Demand,
    /// The node of each task, by index.
    pub at: Vec<usize>,
    /// Processes of which page tables alone tell, and that all is well: they may have to give way, and are not
    /// to be held. Whoever has just begun counts its CPUs.
    pub loose: Vec<ProcessId>,
}

impl Early {
    /// Whether a task may be held, by its index.
    #[must_use]
    pub fn may_hold(&self, snapshot: &Snapshot, task: usize) -> bool {
        self.loose.binary_search(&snapshot.tasks[task].process).is_err()
    }
}

/// Where they belong; `None` unless something is known of every busy task that is ours, and that is right either way. `assign`
/// is who finds it.
#[must_use]
pub fn assigned(
    snapshot: &Snapshot,
    apart: &Demand,
    today: &[usize],
    mechanisms: Mechanisms,
    assign: impl Fn(&Demand) -> Vec<usize>,
) -> Option<Early> {
    if !mechanisms.early {
        return None;
    }
    let (shared, loose) = if_shared(snapshot)?;
    let shared = Demand::with(&shared, mechanisms);
    let known =
        |i: usize| !shared.tasks[i].claims_cpu || shared.is_known(i) || snapshot.tasks[i].fixed;
    if !(0..shared.tasks.len()).all(known) {
        return None;
    }
    let at = assign(&shared);
    is_right(apart, &shared, today, &at).then_some(Early { demand: shared, at, loose })
}

/// Whether one of these busy tasks, ascending by process, may be busy only to start others, or may have been.
fn is_starting(snapshot: &Snapshot, busy: &[Busy]) -> bool {
    let newborn = snapshot.tasks.iter().filter(|task| task.age < NEWBORN && !task.fixed);
    let newborn: BTreeSet<ProcessId> = newborn.map(|task| task.process).collect();
    let is_doubtful = |tasks: &[Busy]| {
        let ages = tasks.iter().map(|&(_, i)| &snapshot.tasks[i]).filter(|task| !task.fixed);
        let oldest = ages.map(|task| task.age).max();
        let least = if tasks.len() == 1 { ALONE } else { Nanos(0) };
        let began = newborn.contains(&tasks[0].0);
        oldest.is_some_and(|oldest| oldest < least || began && oldest >= NEWBORN)
    };
    by_process(busy).any(is_doubtful)
}

/// The snapshot as it would be if those processes shared all their memory of which that is not known, whose
/// memory lies wrong, and nobody of whom has been placed, and the processes of which page tables tell that all is
/// well; `None` if there are none of the former, if neither faults nor page tables have shown where some
/// process's memory is, or while some process is only starting.
fn if_shared(snapshot: &Snapshot) -> Option<(Snapshot, Vec<ProcessId>)> {
    if snapshot.grade != EvidenceGrade::HintingFaults {
        return None;
    }
    let task = |&(_, i): &Busy| &snapshot.tasks[i];
    let is_remote = |tasks: &[Busy]| {
        let remote: u64 = tasks.iter().map(|one| task(one).remote_faults).sum();
        let all: u64 = tasks.iter().map(|one| task(one).fault_pages()).sum();
        remote * 1000 >= all.max(1) * REMOTE_PERMILLE
    };
    // Of one that shares its memory, a few of its tasks show where that is.
    let is_shown = |tasks: &[Busy]| {
        tasks.iter().filter(|one| task(one).fault_pages() >= MIN_FAULTS).count() * 2 >= tasks.len()
    };
    let busy = busy(snapshot);
    if is_starting(snapshot, &busy) {
        return None;
    }
    let (mut wrong, mut stand_ins): (Vec<Busy>, Vec<Region>) = Default::default();
    let mut loose = Vec::new();
    for tasks in by_process(&busy) {
        // Who is left alone takes up CPUs where it is, wherever its memory lies.
        if tasks.iter().all(|one| task(one).fixed) {
            continue;
        }
        let placed = tasks.iter().any(|one| task(one).home.is_some());
        let is_wrong = if is_shown(tasks) {
            is_remote(tasks)
        } else {
            let resident = tables::resident(snapshot, tasks).filter(|_| !placed)?;
            let far = tables::least_remote_permille(snapshot, tasks, resident) >= REMOTE_PERMILLE;
            stand_ins.extend(tables::stand_ins(snapshot, tasks, resident, far));
            loose.extend((!far).then_some(resident.process));
            far
        };
        if is_wrong && !placed {
            wrong.extend(tasks);
        }
    }
    let unknown: Vec<ProcessId> = sharing::unknown(snapshot, &wrong).collect();
    let shared = sharing::as_shared(snapshot, &unknown);
    if wrong.is_empty() || stand_ins.is_empty() {
        return shared.map(|shared| (shared, loose));
    }
    let mut shared = shared.unwrap_or_else(|| snapshot.clone());
    tables::put(&mut shared, stand_ins);
    Some((shared, loose))
}

/// Whether tasks where `at` says are right either way: what that saves over where they are now if memory is
/// shared is more than it costs if each task has what it was seen in, and no node is to have more of them
/// than the fullest has now; or than its part, while another has none: then the scheduler is still to spread them.
///
/// Example: four tasks of *stream* on four nodes, two of them on one for the moment, all memory on another: two of
/// them there would share that node's memory to the end, 1.47 times as slow as one on each (seen on the emulated 4x2).
fn is_right(apart: &Demand, shared: &Demand, today: &[usize], at: &[usize]) -> bool {
    let saved = |demand: &Demand| {
        let [now, then] = [today, at].map(|at| demand.total_cost(at) as i64);
        now - then
    };
    let (now, then) = (apart.loads(today), apart.loads(at));
    let spread = now.iter().zip(&apart.capacity).all(|(&now, &capacity)| now > 0 || capacity == 0);
    let most = match spread {
        true => vec![now.iter().copied().max().unwrap_or(0); now.len()],
        false => parts(&apart.capacity, now.iter().sum()),
    };
    let fits = then.iter().zip(&most).all(|(&then, &most)| then <= most.max(1));
    saved(shared) > 0 && saved(shared) + saved(apart) > 0 && fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Herd;
    use numaherd_model::scene::{Scene, task_id};
    use numaherd_model::{Action, NodeId, Pages, Placement, Resident, Snapshot, Waiting};

    /// The module's example: tasks 1 to 4 and 5 to 8 are a process each, two of each on either node. Each
    /// was seen in a region, which is on the node that `memory` says.
    fn two_processes(memory: impl Fn(u32) -> u32) -> Snapshot {
        let mut scene = Scene::two_by_four();
        for tid in 1..=8 {
            let cpu = [0, 1, 4, 5, 2, 3, 6, 7][tid as usize - 1];
            scene.task(tid, cpu, 1000);
            scene.region(u64::from(tid), &[(tid, 512)], &[(memory(tid), 512)]);
        }
        let mut snapshot = scene.snapshot();
        snapshot.sharing.clear();
        for task in &mut snapshot.tasks {
            let remote = memory(task.id.tid) != beside(task.id.tid);
            task.remote_faults = if remote { 512 } else { 0 };
        }
        let other = ProcessId { tgid: 5, start: 1 };
        snapshot.tasks[4..].iter_mut().for_each(|task| task.process = other);
        snapshot.regions[4..].iter_mut().for_each(|region| region.id.process = other);
        snapshot
    }

    /// The node that each task runs on.
    fn beside(tid: u32) -> u32 {
        [0, 0, 1, 1, 0, 0, 1, 1][tid as usize - 1]
    }

    /// The node each task is put on, with the process whose sharing is waited for.
    fn placed(herd: &mut Herd, snapshot: &Snapshot) -> Vec<Option<NodeId>> {
        let plan = herd.decide(snapshot);
        assert!(matches!(plan.waiting, Some(Waiting::Sharing { .. })), "{plan:?}");
        let to = |tid| {
            plan.actions.iter().find_map(|action| match action {
                Action::PlaceTask { task, node, .. } if *task == task_id(tid) => Some(*node),
                _ => None,
            })
        };
        (1..=8).map(to).collect()
    }

    #[test]
    fn who_is_far_from_its_memory_comes_together_whether_it_shares_that_or_not() {
        let mut snapshot = two_processes(|_| 0);
        let mut herd = Herd::new();
        let to = placed(&mut herd, &snapshot);
        assert!(to.iter().all(Option::is_some), "{to:?}");
        assert_eq!(to[..4], [to[0]; 4]);
        assert_eq!(to[4..], [to[4]; 4]);
        assert_ne!(to[0], to[4]);
        // With all of them on one node it does not matter any more: memory follows at once.
        for (task, node) in snapshot.tasks.iter_mut().zip(&to) {
            task.home = *node;
        }
        let plan = herd.decide(&snapshot);
        let follows = |action: &Action| matches!(action, Action::MovePages { to, .. } if to.0 == 1);
        assert!(plan.waiting.is_none() && plan.actions.iter().all(follows), "{plan:?}");
        assert_eq!(plan.actions.len(), 4);
        let without = Mechanisms { early: false, ..Mechanisms::default() };
        assert_eq!(placed(&mut Herd::with(without), &two_processes(|_| 0)), [None; 8]);
    }

    #[test]
    fn page_tables_will_do_until_faults_tell() {
        // The example, before anything has faulted.
        let mut snapshot = two_processes(|_| 0);
        snapshot.regions.clear();
        snapshot.tasks.iter_mut().for_each(|task| (task.faults, task.remote_faults) = (vec![], 0));
        let plan = |snapshot: &Snapshot| Herd::new().decide(snapshot);
        assert_eq!(plan(&snapshot).actions, []);
        let all_on = |node: u32| vec![(NodeId(node), Pages(1 << 14))];
        let lies = |i: usize, nodes| Resident { process: snapshot.tasks[i].process, nodes };
        let (first, other) = (lies(0, all_on(0)), lies(4, all_on(0)));
        let even = lies(4, (0..2).map(|node| (NodeId(node), Pages(1 << 13))).collect());
        snapshot.resident = vec![first.clone(), other];
        let made = plan(&snapshot);
        let nodes = |tids: std::ops::RangeInclusive<u32>| -> Vec<Option<NodeId>> {
            let to = |tid| {
                made.actions.iter().find_map(|action| match action {
                    Action::PlaceTask { task, node, .. } if *task == task_id(tid) => Some(*node),
                    _ => None,
                })
            };
            tids.map(to).collect()
        };
        assert!(matches!(made.waiting, Some(Waiting::Evidence { known: 0, busy: 8 })));
        assert_eq!(nodes(1..=4), [nodes(1..=1)[0]; 4]);
        assert_eq!(nodes(5..=8), [nodes(5..=5)[0]; 4]);
        assert!(nodes(1..=1) != nodes(5..=5) && made.actions.len() == 8);
        // Where the other's memory is with its tasks it gives way, and half of its memory with it; two of its
        // tasks stay where they are, and are not held there.
        snapshot.resident = vec![first.clone(), even.clone()];
        assert_eq!(plan(&snapshot).actions.len(), 6);
        // Where nobody's use need be remote, all is left to faults.
        let well = Resident { process: first.process, ..even.clone() };
        snapshot.resident = vec![well, even];
        assert_eq!(plan(&snapshot).actions, []);
        // Of one of them nothing is known; that matters only if it is ours to place.
        snapshot.resident = vec![first];
        snapshot.tasks[4..6].iter_mut().for_each(|task| task.busy_permille = 0);
        assert_eq!(plan(&snapshot).actions, []);
        snapshot.tasks[4..].iter_mut().for_each(|task| task.fixed = true);
        let of_first = |action: &Action| match action {
            Action::PlaceTask { task, node, .. } => task.tid <= 4 && node.0 == 0,
            _ => false,
        };
        let actions = plan(&snapshot).actions;
        assert!(actions.len() == 4 && actions.iter().all(of_first), "{actions:?}");
    }

    #[test]
    fn who_may_have_started_the_others_is_not_placed_yet() {
        let mut snapshot = two_processes(|_| 0);
        let mut nobody = |ages: [u64; 4]| {
            let tasks = snapshot.tasks[4..].iter_mut();
            tasks.zip(ages).for_each(|(task, age)| task.age = Nanos(age));
            placed(&mut Herd::new(), &snapshot) == [None; 8]
        };
        let (new, old) = (NEWBORN.0 - 1, NEWBORN.0);
        assert!(nobody([old, new, new, new]));
        assert!(!nobody([new; 4]) && !nobody([old; 4]));
    }

    #[test]
    fn who_is_alone_may_be_about_to_start_others() {
        let mut snapshot = two_processes(|_| 0);
        snapshot.regions.clear();
        snapshot.tasks = vec![snapshot.tasks[2].clone()];
        snapshot.tasks[0].faults.clear();
        let process = snapshot.tasks[0].process;
        let nodes = vec![(NodeId(0), Pages(1 << 14))];
        snapshot.resident = vec![Resident { process, nodes }];
        let mut is_early = |age| {
            snapshot.tasks[0].age = Nanos(age);
            !Herd::new().decide(&snapshot).actions.is_empty()
        };
        assert_eq!([is_early(ALONE.0 - 1), is_early(ALONE.0)], [false, true]);
    }

    #[test]
    fn who_is_well_is_left_as_it_was_seen() {
        assert_eq!(placed(&mut Herd::new(), &two_processes(beside)), [None; 8]);
    }

    #[test]
    fn nobody_is_gathered_who_has_a_node_to_spare() {
        let mut snapshot = two_processes(|_| 0);
        snapshot.tasks.truncate(4);
        snapshot.regions.truncate(4);
        assert_eq!(placed(&mut Herd::new(), &snapshot), [None; 8]);
    }

    #[test]
    fn while_the_scheduler_is_still_to_spread_tasks_nobody_is_gathered_beyond_a_nodes_part() {
        let right = |cpus: [u32; 4], at: [usize; 4]| {
            let mut scene = Scene::even(4, 2);
            for (tid, cpu) in (1..).zip(cpus) {
                scene.task(tid, cpu, 1000);
                scene.region(u64::from(tid), &[(tid, 512)], &[(3, 512)]);
            }
            let mut snapshot = scene.snapshot();
            // So that tasks had better go to it.
            snapshot.costs.page_move = numaherd_model::Nanos(100_000_000);
            snapshot.tasks.iter_mut().for_each(|task| task.remote_faults = 512);
            let process = snapshot.tasks[0].process;
            let apart = Demand::new(&snapshot);
            let shared = Demand::new(&sharing::as_shared(&snapshot, &[process]).unwrap());
            let today = apart.today();
            is_right(&apart, &shared, &today, &at)
        };
        // Two on node 1, none on node 0: two on node 3 would be as many, and one each are right.
        assert!(!right([2, 3, 4, 6], [1, 3, 2, 3]));
        assert!(right([2, 3, 4, 0], [1, 3, 2, 0]));
    }

    #[test]
    fn what_costs_more_if_memory_is_private_than_it_brings_if_it_is_shared_is_not_done() {
        let snapshot = two_processes(|_| 0);
        let apart = Demand::new(&snapshot);
        let shared = Demand::new(&if_shared(&snapshot).unwrap().0);
        let today = apart.today();
        let whole = [0, 0, 0, 0, 1, 1, 1, 1];
        assert!(is_right(&apart, &shared, &today, &whole));
        assert!(!is_right(&apart, &shared, &today, &today), "brings nothing");
        // Who is well with memory of its own, too dear to move, loses as much as sharing would bring.
        let snapshot = two_processes(beside);
        let processes = [snapshot.tasks[0].process, snapshot.tasks[4].process];
        let mut apart = Demand::new(&snapshot);
        apart.bundles.iter_mut().for_each(|bundle| bundle.page_cost *= 100_000);
        let shared = Demand::new(&sharing::as_shared(&snapshot, &processes).unwrap());
        assert!(!is_right(&apart, &shared, &today, &whole));
    }
}
