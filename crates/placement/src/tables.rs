//! What page tables tell of a process before its faults do.
//!
//! They say where memory lies and nothing of who uses it. But where more of a process's tasks run on a node than
//! of its memory lies there, some use is remote, whoever uses what: at least that part. A process of which
//! that is much belongs together with its memory, as if every task used all of it alike. Of another each task is
//! taken to use what is on its own node.
//!
//! Worked example: four tasks, two on each of two nodes. With all memory on node 0, the two on node 1 use what is
//! remote: 500 ‰ of all use at least. With half of it on either node, perhaps none is.

use numaherd_model::{
    Bytes, Node, NodeFaults, NodeId, Pages, ProcessId, Region, RegionId, RegionUse, Resident,
    Snapshot,
};

use crate::bundles::Busy;
use crate::demand::MIN_FAULTS;

/// Memory below this says nothing of where a process is going to have its own: that is what any program begins
/// with. Guessed.
const LEAST: Bytes = Bytes(16 << 20);

/// Where the memory of these tasks' process lies, if somebody looked and it has enough of it.
#[must_use]
pub fn resident<'a>(snapshot: &'a Snapshot, tasks: &[Busy]) -> Option<&'a Resident> {
    let least = LEAST.pages(snapshot.page_size).0;
    of_process(snapshot, tasks.first()?.0).filter(|resident| all(resident) >= least)
}

/// Where a process's memory lies, if somebody looked.
#[must_use]
pub fn of_process(snapshot: &Snapshot, process: ProcessId) -> Option<&Resident> {
    let at = snapshot.resident.binary_search_by_key(&process, |resident| resident.process).ok()?;
    Some(&snapshot.resident[at])
}

/// Where a process's memory lies, as far as its regions show.
#[must_use]
pub fn shown(snapshot: &Snapshot, process: ProcessId) -> Resident {
    let mut nodes: Vec<(NodeId, Pages)> = Vec::new();
    for &(node, pages) in snapshot.regions_of(process).iter().flat_map(|region| &region.pages) {
        match nodes.binary_search_by_key(&node, |(node, _)| *node) {
            Ok(i) => nodes[i].1.0 += pages.0,
            Err(i) => nodes.insert(i, (node, pages)),
        }
    }
    Resident { process, nodes }
}

/// Pages of it.
#[must_use]
pub fn all(resident: &Resident) -> u64 {
    resident.nodes.iter().map(|(_, pages)| pages.0).sum()
}

/// Per mille of these tasks' use that is remote at least, if all of them use memory alike much.
#[must_use]
pub fn least_remote_permille(snapshot: &Snapshot, tasks: &[Busy], resident: &Resident) -> u64 {
    let (count, all) = (tasks.len().max(1) as u64, all(resident).max(1));
    let beyond = |node: &Node| {
        let run = tasks.iter().filter(|one| runs_on(snapshot, one) == Some(node.id)).count() as u64;
        let there = resident.nodes.iter().find(|(id, _)| *id == node.id);
        (run * 1000 / count).saturating_sub(there.map_or(0, |(_, pages)| pages.0) * 1000 / all)
    };
    snapshot.topology.nodes.iter().map(beyond).sum()
}

fn runs_on(snapshot: &Snapshot, one: &Busy) -> Option<NodeId> {
    snapshot.topology.node_of_cpu(snapshot.tasks[one.1].last_cpu)
}

/// Regions in place of those that faults have not shown: all of it in one that all of these tasks use, or, not
/// `together`, what is on each node in one that the tasks there use.
#[must_use]
pub fn stand_ins(
    snapshot: &Snapshot,
    tasks: &[Busy],
    resident: &Resident,
    together: bool,
) -> Vec<Region> {
    let region = |nodes: &[(NodeId, Pages)], users: &[Busy]| {
        let first = nodes.first().map_or(0, |(node, _)| node.0);
        let pages: u64 = nodes.iter().map(|(_, pages)| pages.0).sum();
        let faults = (pages / users.len().max(1) as u64).max(MIN_FAULTS);
        let user = |one: &Busy| RegionUse { task: snapshot.tasks[one.1].id, faults };
        Region {
            id: RegionId { process: resident.process, start: u64::from(first) },
            len: Bytes(pages * snapshot.page_size.0),
            pages: nodes.to_vec(),
            users: users.iter().map(user).collect(),
            age: Default::default(),
            rests: false,
            pairs: 0,
            switches: 0,
            stays: false,
        }
    };
    if together {
        return vec![region(&resident.nodes, tasks)];
    }
    let there = |on: &(NodeId, Pages)| {
        let is_there = |one: &&Busy| runs_on(snapshot, one) == Some(on.0);
        let users: Vec<Busy> = tasks.iter().filter(is_there).copied().collect();
        region(&[*on], &users)
    };
    resident.nodes.iter().map(there).collect()
}

/// Puts those regions, ascending by process, in the place of what faults have shown of their processes.
pub fn put(snapshot: &mut Snapshot, stand_ins: Vec<Region>) {
    let of = |process: ProcessId| {
        let begin = stand_ins.partition_point(|region| region.id.process < process);
        stand_ins[begin..].iter().take_while(move |region| region.id.process == process)
    };
    let is_known = |process| of(process).next().is_some();
    snapshot.regions.retain(|region| !is_known(region.id.process));
    for task in snapshot.tasks.iter_mut().filter(|task| is_known(task.process)) {
        let uses = of(task.process).filter_map(|region| {
            let used = region.users.iter().find(|user| user.task == task.id)?;
            Some(NodeFaults { node: region.pages.first()?.0, private: 0, shared: used.faults })
        });
        task.faults = uses.collect();
    }
    snapshot.regions.extend(stand_ins);
    snapshot.regions.sort_by_key(|region| region.id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::busy;
    use numaherd_model::scene::{PROCESS, Scene, task_id};

    /// The module's example: two tasks on either node, so many pages on each.
    fn four(on: [u64; 2]) -> Snapshot {
        let mut scene = Scene::two_by_four();
        [0, 1, 4, 5].iter().zip(1..).for_each(|(&cpu, tid)| scene.task(tid, cpu, 1000));
        let nodes = (0..).map(NodeId).zip(on.map(Pages)).filter(|(_, pages)| pages.0 > 0);
        scene.edit().resident = vec![Resident { process: PROCESS, nodes: nodes.collect() }];
        scene.snapshot()
    }

    fn least_remote(on: [u64; 2]) -> Option<u64> {
        let snapshot = four(on);
        let tasks = busy(&snapshot);
        resident(&snapshot, &tasks).map(|known| least_remote_permille(&snapshot, &tasks, known))
    }

    #[test]
    fn more_tasks_than_memory_on_a_node_is_remote_whoever_uses_what() {
        assert_eq!(least_remote([8192, 0]), Some(500));
        assert_eq!(least_remote([0, 8192]), Some(500));
        assert_eq!(least_remote([4096, 4096]), Some(0));
        assert_eq!(least_remote([6144, 2048]), Some(250));
        // What any program has at its start says nothing.
        assert_eq!(least_remote([4000, 0]), None);
    }

    #[test]
    fn what_stands_in_is_everybodys_or_that_of_those_who_are_there() {
        let snapshot = four([6144, 2048]);
        let (tasks, known) = (busy(&snapshot), &snapshot.resident[0]);
        let users = |together| {
            let regions = stand_ins(&snapshot, &tasks, known, together);
            let of = |region: &Region| {
                let users = region.users.iter().map(|user| (user.task.tid, user.faults));
                (region.known_pages().0, users.collect::<Vec<_>>())
            };
            regions.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(users(true), [(8192, (1..=4).map(|tid| (tid, 2048)).collect())]);
        let apart = [(6144, vec![(1, 3072), (2, 3072)]), (2048, vec![(3, 1024), (4, 1024)])];
        assert_eq!(users(false), apart);
    }

    #[test]
    fn it_stands_in_the_place_of_what_faults_have_shown() {
        let mut snapshot = four([8192, 0]);
        snapshot.regions = stand_ins(&snapshot, &busy(&snapshot)[..1], &snapshot.resident[0], true);
        let regions = stand_ins(&snapshot, &busy(&snapshot), &snapshot.resident[0], true);
        put(&mut snapshot, regions.clone());
        assert_eq!(snapshot.regions, regions);
        let faults: Vec<u64> = snapshot.tasks.iter().map(|task| task.fault_pages()).collect();
        assert_eq!(faults, [2048; 4]);
        assert_eq!(snapshot.task(task_id(4)).unwrap().faults[0].node, NodeId(0));
    }
}
