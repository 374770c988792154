//! Where page tables are all there is to tell, processes are placed whole or left alone.
//!
//! Page tables say where memory lies and nothing of who uses it: every task of a process is taken to use all of its
//! memory alike. That is enough to bring a process together that one node holds. To divide one over nodes it is
//! not: which of its tasks come to which memory would be arbitrary, and be decided anew at every look, as the
//! scheduler moves them. So a process is left alone, and what it has been given is taken back, if no node holds its busy
//! tasks, if a plan would divide it, or if it runs on several nodes and has its memory there ([`crate::tables`]).
//!
//! Worked example: on two nodes of four CPUs, a process of four tasks, two on either node, with all memory on node 0,
//! comes together there. With half of its memory on either node it is left alone, and so is one of five tasks.

use std::collections::BTreeSet;

use numaherd_model::{EvidenceGrade, ProcessId, Snapshot};

use crate::bundles::{Busy, busy, by_process};
use crate::{early, tables};

/// The snapshot with processes left alone that are not to be placed, or that what `plan` finds would divide; `None`
/// where faults or better evidence is at hand. `plan` answers the node of each task, by index.
pub fn told(
    snapshot: &Snapshot,
    mut plan: impl FnMut(&Snapshot) -> Vec<usize>,
) -> Option<Snapshot> {
    let mut alone = left_alone(snapshot)?;
    loop {
        let told = leaving(snapshot, &alone);
        let before = alone.len();
        alone.extend(divided(snapshot, &plan(&told)));
        if alone.len() == before {
            return Some(told);
        }
    }
}

/// Processes that are left alone, whatever else there is to place.
fn left_alone(snapshot: &Snapshot) -> Option<BTreeSet<ProcessId>> {
    if snapshot.grade != EvidenceGrade::ResidentPages {
        return None;
    }
    let topology = &snapshot.topology;
    let most = topology.nodes.iter().map(|node| node.cpus.difference(&snapshot.isolated).len());
    let most = most.max().unwrap_or(0);
    let busy = busy(snapshot);
    let is_whole = |tasks: &[Busy]| {
        let ours = tasks.iter().map(|&(_, i)| &snapshot.tasks[i]);
        let at: BTreeSet<_> =
            ours.clone().map(|task| topology.node_of_cpu(task.last_cpu)).collect();
        let placed = ours.clone().any(|task| task.home.is_some());
        let resident = tables::shown(snapshot, tasks[0].0);
        let far = || tables::least_remote_permille(snapshot, tasks, &resident);
        tasks.len() <= most && (placed || at.len() == 1 || far() >= early::REMOTE_PERMILLE)
    };
    let alone = by_process(&busy).filter(|tasks| !is_whole(tasks)).map(|tasks| tasks[0].0);
    Some(alone.collect())
}

/// The snapshot with those processes as if neither their tasks nor their memory were ours to move, and their memory
/// used by those who are beside it.
fn leaving(snapshot: &Snapshot, alone: &BTreeSet<ProcessId>) -> Snapshot {
    let mut told = snapshot.clone();
    for task in told.tasks.iter_mut().filter(|task| alone.contains(&task.process)) {
        task.fixed = true;
    }
    for region in told.regions.iter_mut().filter(|region| alone.contains(&region.id.process)) {
        let most = region.pages.iter().max_by_key(|(_, pages)| *pages).map(|(node, _)| *node);
        region.users.retain(|user| {
            let task = snapshot.task(user.task);
            task.and_then(|task| snapshot.topology.node_of_cpu(task.last_cpu)) == most
        });
        (region.rests, region.stays) = (true, true);
    }
    told.regions.retain(|region| !region.users.is_empty());
    told
}

/// Processes whose busy tasks would be on several nodes, each task where `at` says.
fn divided(snapshot: &Snapshot, at: &[usize]) -> Vec<ProcessId> {
    let busy = busy(snapshot);
    let is_divided = |tasks: &&[Busy]| tasks.iter().any(|&(_, i)| at[i] != at[tasks[0].1]);
    by_process(&busy).filter(is_divided).map(|tasks| tasks[0].0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Herd;
    use numaherd_model::scene::Scene;
    use numaherd_model::{Action, NodeId, Placement, Plan};

    /// Processes whose tasks are on these CPUs, with so many pages on each of two nodes of four CPUs.
    fn scene(processes: &[(&[u32], [u64; 2])]) -> Snapshot {
        let mut scene = Scene::two_by_four();
        let (mut tid, mut index) = (0, 0);
        let mut of = Vec::new();
        for (p, (cpus, pages)) in processes.iter().enumerate() {
            let first = tid + 1;
            for &cpu in *cpus {
                tid += 1;
                scene.task(tid, cpu, 1000);
            }
            let users: Vec<(u32, u64)> = (first..=tid).map(|tid| (tid, 400)).collect();
            for (node, &pages) in (0..).zip(pages).filter(|(_, pages)| **pages > 0) {
                scene.region(index, &users, &[(node, pages)]);
                index += 1;
                of.push(p as u32 + 1);
            }
            let process = ProcessId { tgid: p as u32 + 1, start: 1 };
            let ours = scene.edit().tasks.iter_mut().filter(|task| task.id.tid >= first);
            ours.for_each(|task| task.process = process);
        }
        let process = |tgid: u32| ProcessId { tgid, start: 1 };
        let regions = scene.edit().regions.iter_mut().zip(of);
        regions.for_each(|(region, p)| region.id.process = process(p));
        scene.edit().grade = EvidenceGrade::ResidentPages;
        scene.snapshot()
    }

    /// Tasks that a plan places, and on which node.
    fn placed(plan: &Plan) -> Vec<(u32, u32)> {
        let of = |action: &Action| match action {
            Action::PlaceTask { task, node, .. } => Some((task.tid, node.0)),
            _ => None,
        };
        plan.actions.iter().filter_map(of).collect()
    }

    fn alone(processes: &[(&[u32], [u64; 2])]) -> Vec<u32> {
        left_alone(&scene(processes)).unwrap().iter().map(|process| process.tgid).collect()
    }

    #[test]
    fn a_process_is_left_alone_that_no_node_holds_or_that_has_its_memory_where_it_runs() {
        assert_eq!(alone(&[(&[0, 1, 4, 5], [512, 0])]), []);
        assert_eq!(alone(&[(&[0, 1, 4, 5], [512, 512])]), [1]);
        assert_eq!(alone(&[(&[0, 1, 2, 3, 4], [512, 0])]), [1]);
        assert_eq!(alone(&[(&[0, 1], [512, 0]), (&[2, 4], [500, 512])]), [2]);
        let mut faults = scene(&[(&[0, 4], [512, 512])]);
        faults.grade = EvidenceGrade::HintingFaults;
        assert_eq!(left_alone(&faults), None);
    }

    #[test]
    fn who_comes_together_does_so_whole_and_who_is_left_alone_is_not_touched() {
        let decide = |processes: &[(&[u32], [u64; 2])]| Herd::new().decide(&scene(processes));
        let plan = decide(&[(&[0, 1, 4, 5], [512, 0])]);
        assert_eq!(placed(&plan), [(3, 0), (4, 0)]);
        for well in [[512, 512], [512, 500]] {
            let plan = decide(&[(&[0, 1, 4, 5], well), (&[2, 6], [512, 0])]);
            // The second is held, too, where six crowd nodes of four.
            assert_eq!(placed(&plan), [(5, 0), (6, 0)]);
            assert_eq!(plan.actions.len(), 2);
        }
        assert_eq!(decide(&[(&[0, 1, 2, 3, 4, 5, 6, 7], [512, 0])]).actions, []);
    }

    #[test]
    fn of_three_that_two_nodes_do_not_hold_whole_one_is_left_alone() {
        // Three of each, all far from their memory: whoever would be divided stays as it is.
        let three: [(&[u32], [u64; 2]); 3] =
            [(&[4, 5, 6], [512, 0]), (&[0, 1, 4], [0, 512]), (&[2, 3, 7], [0, 512])];
        let snapshot = scene(&three);
        let plan = Herd::new().decide(&snapshot);
        for tids in [1..=3, 4..=6, 7..=9] {
            let nodes: BTreeSet<u32> =
                placed(&plan).iter().filter(|(tid, _)| tids.contains(tid)).map(|p| p.1).collect();
            assert!(nodes.len() <= 1, "{plan:?}");
        }
        assert!(!placed(&plan).is_empty());
    }

    #[test]
    fn a_placed_process_that_has_grown_too_large_is_let_go() {
        let mut snapshot = scene(&[(&[0, 1, 2, 3, 4], [512, 0])]);
        snapshot.tasks[0].home = Some(NodeId(0));
        let plan = Herd::new().decide(&snapshot);
        assert!(matches!(plan.actions[..], [Action::ReleaseTask { .. }]), "{plan:?}");
    }
}
