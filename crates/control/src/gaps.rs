//! What page tables tell while faults do not.
//!
//! Hinting faults take a while to come: the kernel's first scan of a task waits until it is a second old, and walks
//! its memory in pieces. Page tables tell at once where memory lies. They tell nothing of who uses it, but if
//! more of a process's tasks run on a node than of its memory is there, some use is remote, whoever uses what; that
//! is enough to place a process before its first faults ([`numaherd_model::Snapshot::resident`]).
//!
//! And they tell of what faults have not shown yet of memory that several nodes share: who goes over gigabytes
//! takes long to show all of them, and what has been shown may be all that lies on one node.

use std::collections::BTreeMap;

use numaherd_model::{
    EvidenceGrade, MIN_FAULTS, Nanos, NodeId, Observe, Pages, ProcessId, Resident, Sharing,
    Snapshot, Task,
};

/// Bounds on how old it may be where a process's pages lie: as old as the process was when it was looked at,
/// for what is young allocates.
const AGE: (Nanos, Nanos) = (Nanos(100_000_000), Nanos(10_000_000_000));

/// What was found of each process.
#[derive(Debug, Default)]
pub struct Gaps(BTreeMap<ProcessId, Lying>);

/// Where the pages of a process with so many tasks lie, and until when that is good; for how long it is even if
/// tasks come or go.
#[derive(Debug)]
struct Lying {
    until: Nanos,
    at_least: Nanos,
    tasks: usize,
    nodes: Vec<(NodeId, Pages)>,
}

impl Gaps {
    /// Fills in where the memory of processes lies none of whose tasks is placed, as long as faults have not shown
    /// that of all that are busy, and of those that share memory over several nodes. Who is left alone or sleeps is
    /// left out.
    pub fn fill(&mut self, machine: &mut (impl Observe + ?Sized), snapshot: &mut Snapshot) {
        if snapshot.grade != EvidenceGrade::HintingFaults {
            return;
        }
        let now = snapshot.time;
        self.0.retain(|_, lying| now < lying.until);
        let is_unseen = |task: &Task| task.claims_cpu() && task.fault_pages() < MIN_FAULTS;
        // Guessed: a quarter of the pairs; slices meet in a region here and there.
        let is_shared = |known: &Sharing| known.switches * 4 > known.samples;
        if !snapshot.sharing.iter().any(is_shared) && !snapshot.tasks.iter().any(is_unseen) {
            // Mostly so: nobody is sorted by process then.
            return;
        }
        let mut processes: BTreeMap<ProcessId, Vec<&Task>> = BTreeMap::new();
        for task in &snapshot.tasks {
            processes.entry(task.process).or_default().push(task);
        }
        let topology = &snapshot.topology;
        let is_apart = |tasks: &[&Task]| {
            let busy = tasks.iter().filter(|task| task.claims_cpu());
            let mut nodes = busy.map(|task| topology.node_of_cpu(task.last_cpu));
            nodes.next().is_some_and(|first| nodes.any(|node| node != first))
        };
        processes.retain(|process, tasks| {
            let is_new = tasks.iter().any(|task| is_unseen(task))
                && tasks.iter().all(|task| task.home.is_none());
            let shares = || snapshot.sharing_of(*process).is_some_and(is_shared) && is_apart(tasks);
            tasks.iter().all(|task| !task.fixed) && (is_new || shares())
        });
        let known = |(process, tasks): (ProcessId, Vec<&Task>)| {
            let nodes = self.lying(machine, process, &tasks, now).to_vec();
            (!nodes.is_empty()).then_some(Resident { process, nodes })
        };
        snapshot.resident = processes.into_iter().filter_map(known).collect();
    }

    /// Where a process's pages lie, as of a while ago; looked at anew when tasks come or go.
    fn lying(
        &mut self,
        machine: &mut (impl Observe + ?Sized),
        process: ProcessId,
        tasks: &[&Task],
        now: Nanos,
    ) -> &[(NodeId, Pages)] {
        let count = tasks.len();
        let is_old = |lying: &Lying| lying.tasks != count && now >= lying.at_least;
        if self.0.get(&process).is_none_or(is_old) {
            let nodes = machine.pages_lie(process);
            let at_least = Nanos(now.0 + AGE.0.0);
            let until = Nanos(now.0 + age(tasks).clamp(AGE.0, AGE.1).0);
            self.0.insert(process, Lying { until, at_least, tasks: count, nodes });
        }
        &self.0[&process].nodes
    }
}

fn age(tasks: &[&Task]) -> Nanos {
    tasks.iter().map(|task| task.age).max().unwrap_or_default()
}

#[cfg(test)]
mod tests;
