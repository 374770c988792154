//! The lowest grade of evidence: where each process's pages lie.
//!
//! `numa_maps` says how many pages of a mapping are on each node and nothing of who uses them,
//! so every busy thread of a process is taken to use all of its memory alike. That is enough to
//! bring whole processes together with their memory, as numad does, and no more.

use std::path::Path;

use numaherd_model::{
    Bytes, EvidenceGrade, Nanos, NodeFaults, NodeId, Pages, ProcessId, Region, RegionId, RegionUse,
    Snapshot, TaskId,
};

use crate::ReadError;
use crate::memory::{maps, numa_maps};

/// Mappings below this are not worth looking at.
const LEAST_PAGES: u64 = 512;

/// Fills in regions and faults per node from `numa_maps`.
pub fn fill(root: &Path, snapshot: &mut Snapshot) -> Result<(), ReadError> {
    snapshot.grade = EvidenceGrade::ResidentPages;
    let mut processes: Vec<ProcessId> = snapshot.tasks.iter().map(|task| task.process).collect();
    processes.sort_unstable();
    processes.dedup();
    for process in processes {
        let users: Vec<TaskId> = snapshot
            .tasks
            .iter()
            .filter(|task| task.process == process && task.busy_permille > 0)
            .map(|task| task.id)
            .collect();
        let mappings = numa_maps::read(root, process.tgid)?.unwrap_or_default();
        let ranges = maps::read(root, process.tgid)?.unwrap_or_default();
        for range in ranges {
            let Some(mapping) = mappings.iter().find(|m| m.start == range.start) else { continue };
            let pages_of =
                |&(node, bytes): &(NodeId, Bytes)| (node, bytes.pages(snapshot.page_size));
            let pages: Vec<(NodeId, Pages)> = mapping.nodes.iter().map(pages_of).collect();
            let all: u64 = pages.iter().map(|(_, pages)| pages.0).sum();
            if all < LEAST_PAGES || users.is_empty() {
                continue;
            }
            let share = all / users.len() as u64;
            snapshot.regions.push(Region {
                id: RegionId { process, start: range.start },
                len: range.len,
                users: users.iter().map(|&task| RegionUse { task, faults: share }).collect(),
                age: Nanos(0),
                pages,
            });
        }
    }
    snapshot.regions.sort_by_key(|region| region.id);
    sum_up(snapshot);
    Ok(())
}

/// Each task's faults per node, as if it had touched its share of every page.
fn sum_up(snapshot: &mut Snapshot) {
    let regions = &snapshot.regions;
    for task in &mut snapshot.tasks {
        for region in regions {
            let users = region.users.len() as u64;
            if !region.users.iter().any(|user| user.task == task.id) {
                continue;
            }
            for &(node, Pages(pages)) in &region.pages {
                let shared = pages / users;
                match task.faults.iter_mut().find(|faults| faults.node == node) {
                    Some(faults) => faults.shared += shared,
                    None => task.faults.push(NodeFaults { node, private: 0, shared }),
                }
            }
        }
        task.faults.sort_by_key(|faults| faults.node);
    }
}

#[cfg(test)]
mod tests;
