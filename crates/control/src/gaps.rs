//! What page tables tell while faults do not.
//!
//! Hinting faults take a while to come: the kernel's first scan of a task waits until it is a second old, and walks
//! its memory in pieces. Page tables tell at once where memory lies. They tell nothing of who uses it, but if
//! more of a process's tasks run on a node than of its memory is there, some use is remote, whoever uses what; that
//! is enough to place a process before its first faults ([`numaherd_model::Snapshot::resident`]).

use std::collections::BTreeMap;

use numaherd_model::{
    EvidenceGrade, Nanos, NodeId, Observe, Pages, ProcessId, Resident, Snapshot, Task, WorldError,
};

/// Bounds on how old it may be where a process's pages lie: as old as the process was when it was looked at,
/// for what is young allocates.
const AGE: (Nanos, Nanos) = (Nanos(100_000_000), Nanos(10_000_000_000));

/// What was found of each process.
#[derive(Debug, Default)]
pub struct Gaps {
    lying: BTreeMap<ProcessId, Lying>,
}

/// Where the pages of a process with so many tasks lie, and until when that is good.
#[derive(Debug)]
struct Lying {
    until: Nanos,
    tasks: usize,
    nodes: Vec<(NodeId, Pages)>,
}

impl Gaps {
    /// Fills in where the memory of processes lies none of whose tasks is placed, as long as faults have not shown
    /// that of all that are busy. Who is left alone or sleeps is left out.
    ///
    /// # Errors
    /// A process cannot be read, though it is there.
    pub fn fill(
        &mut self,
        machine: &mut (impl Observe + ?Sized),
        snapshot: &mut Snapshot,
    ) -> Result<(), WorldError> {
        if snapshot.grade != EvidenceGrade::HintingFaults {
            return Ok(());
        }
        let (now, mut resident) = (snapshot.time, Vec::new());
        let mut processes: BTreeMap<ProcessId, Vec<&Task>> = BTreeMap::new();
        for task in &snapshot.tasks {
            processes.entry(task.process).or_default().push(task);
        }
        processes.retain(|_, tasks| {
            tasks.iter().any(|task| task.busy_permille > 0 && task.faults.is_empty())
                && tasks.iter().all(|task| task.home.is_none() && !task.fixed)
        });
        self.lying.retain(|process, lying| now < lying.until && processes.contains_key(process));
        for (&process, tasks) in &processes {
            let nodes = self.lying(machine, process, tasks, now)?.to_vec();
            resident.extend((!nodes.is_empty()).then_some(Resident { process, nodes }));
        }
        snapshot.resident = resident;
        Ok(())
    }

    /// Where a process's pages lie, as of a while ago; looked at anew when tasks come or go.
    fn lying(
        &mut self,
        machine: &mut (impl Observe + ?Sized),
        process: ProcessId,
        tasks: &[&Task],
        now: Nanos,
    ) -> Result<&[(NodeId, Pages)], WorldError> {
        let count = tasks.len();
        if self.lying.get(&process).is_none_or(|lying| lying.tasks != count) {
            let until = Nanos(now.0 + age(tasks).clamp(AGE.0, AGE.1).0);
            let nodes = machine.pages_lie(process)?;
            self.lying.insert(process, Lying { until, tasks: count, nodes });
        }
        Ok(&self.lying[&process].nodes)
    }
}

fn age(tasks: &[&Task]) -> Nanos {
    tasks.iter().map(|task| task.age).max().unwrap_or_default()
}

#[cfg(test)]
mod tests;
