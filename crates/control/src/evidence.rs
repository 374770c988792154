//! Who touched which memory, summed up from hinting faults.
//!
//! Memory is taken in regions of 2 MiB. A region knows, page by page, on which node the page
//! was last seen, and how many faults each task took there. Counts are a window over about the
//! last four passes of the kernel's scan over the region: when they exceed that, all are
//! halved. So a task that takes over a region outweighs its predecessor within three passes,
//! and a region nobody scans keeps what is known of it.
//!
//! The kernel also tells who touched the page before (CPU and low 8 bits of the thread id,
//! numa/core's buddy relation). Where that names exactly one task of the same process, it is
//! credited half a fault: a page faults once per pass, whoever comes first, so without this a
//! region that all share could look private to the task that runs ahead.

use std::collections::BTreeMap;

use numaherd_model::{
    Bytes, EvidenceGrade, HintingFault, Nanos, NodeFaults, NodeId, Pages, ProcessId, Region,
    RegionId, RegionUse, Snapshot, Task, TaskId,
};

/// Bytes in a region: the kernel's huge page.
pub const REGION_BYTES: u64 = 2 << 20;

/// Weight of one page in the counts, so that half a fault is a whole number.
const PAGE_WEIGHT: u64 = 2;

/// Passes over a region that its counts remember.
const PASSES: u64 = 4;

/// Faults, in pages, that a task's counts per node remember.
const TASK_WINDOW: u64 = 16_384;

/// All evidence.
#[derive(Debug, Default)]
pub struct Evidence {
    regions: BTreeMap<RegionId, RegionEvidence>,
    tasks: BTreeMap<TaskId, BTreeMap<NodeId, Counts>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    private: u64,
    shared: u64,
}

#[derive(Debug)]
struct RegionEvidence {
    /// Node each page was last seen on.
    nodes: Vec<Option<NodeId>>,
    users: BTreeMap<TaskId, u64>,
    newest: Nanos,
}

impl Evidence {
    /// None so far.
    #[must_use]
    pub fn new() -> Evidence {
        Evidence::default()
    }

    /// Adds faults. Those of tasks that the snapshot does not have are left out.
    pub fn add(&mut self, faults: &[HintingFault], snapshot: &Snapshot) {
        let by_tid: BTreeMap<u32, &Task> = snapshot.tasks.iter().map(|t| (t.id.tid, t)).collect();
        let mut by_low8: BTreeMap<(ProcessId, u8), Option<TaskId>> = BTreeMap::new();
        for task in &snapshot.tasks {
            by_low8
                .entry((task.process, task.id.tid as u8))
                .and_modify(|who| *who = None)
                .or_insert(Some(task.id));
        }
        for fault in faults {
            let Some(task) = by_tid.get(&fault.tid) else {
                continue;
            };
            let before = fault.last_pid_low8.filter(|&low| low != fault.tid as u8);
            self.count_task(task.id, fault, before.is_some());
            let before = before.and_then(|low| *by_low8.get(&(task.process, low))?);
            if let Some(address) = fault.address {
                self.count_region(task, address, fault, before, snapshot.page_size);
            }
        }
    }

    fn count_task(&mut self, task: TaskId, fault: &HintingFault, shared: bool) {
        let nodes = self.tasks.entry(task).or_default();
        let counts = nodes.entry(fault.memory_node).or_default();
        *(if shared { &mut counts.shared } else { &mut counts.private }) += fault.pages.0;
        if nodes.values().map(|c| c.private + c.shared).sum::<u64>() > TASK_WINDOW {
            for counts in nodes.values_mut() {
                *counts = Counts { private: counts.private / 2, shared: counts.shared / 2 };
            }
        }
    }

    fn count_region(
        &mut self,
        task: &Task,
        address: u64,
        fault: &HintingFault,
        before: Option<TaskId>,
        page_size: Bytes,
    ) {
        let start = address / REGION_BYTES * REGION_BYTES;
        let pages = (REGION_BYTES / page_size.0) as usize;
        let region =
            self.regions.entry(RegionId { process: task.process, start }).or_insert_with(|| {
                RegionEvidence {
                    nodes: vec![None; pages],
                    users: BTreeMap::new(),
                    newest: Nanos(0),
                }
            });
        let first = ((address - start) / page_size.0) as usize;
        let first = if fault.pages.0 > 1 {
            first / fault.pages.0 as usize * fault.pages.0 as usize
        } else {
            first
        };
        let last = (first + fault.pages.0 as usize).min(pages);
        for node in &mut region.nodes[first.min(last)..last] {
            *node = Some(fault.memory_node);
        }
        region.newest = region.newest.max(fault.time);
        *region.users.entry(task.id).or_default() += PAGE_WEIGHT * fault.pages.0;
        if let Some(before) = before {
            *region.users.entry(before).or_default() += fault.pages.0;
        }
        if region.users.values().sum::<u64>() > PAGE_WEIGHT * PASSES * pages as u64 {
            for faults in region.users.values_mut() {
                *faults /= 2;
            }
        }
    }

    /// We moved this much of a region to a node: the pages that were seen elsewhere are there
    /// now.
    pub fn moved(&mut self, region: RegionId, to: NodeId) {
        if let Some(region) = self.regions.get_mut(&region) {
            region.nodes.fill(Some(to));
        }
    }

    /// Puts the evidence into the snapshot, and forgets tasks and processes it does not have.
    /// A snapshot whose evidence is of another grade keeps its own.
    pub fn fill(&mut self, snapshot: &mut Snapshot) {
        if snapshot.grade != EvidenceGrade::HintingFaults {
            return;
        }
        self.tasks.retain(|task, _| snapshot.task(*task).is_some());
        for task in &mut snapshot.tasks {
            let counts = self.tasks.get(&task.id).into_iter().flatten();
            task.faults = counts
                .map(|(&node, c)| NodeFaults { node, private: c.private, shared: c.shared })
                .collect();
        }
        for region in self.regions.values_mut() {
            region.users.retain(|task, faults| *faults > 0 && snapshot.task(*task).is_some());
        }
        self.regions.retain(|_, region| !region.users.is_empty());
        snapshot.regions =
            self.regions.iter().map(|(id, region)| region.show(*id, snapshot.time)).collect();
    }
}

impl RegionEvidence {
    fn show(&self, id: RegionId, now: Nanos) -> Region {
        let mut pages: BTreeMap<NodeId, u64> = BTreeMap::new();
        for node in self.nodes.iter().flatten() {
            *pages.entry(*node).or_default() += 1;
        }
        Region {
            id,
            len: Bytes(REGION_BYTES),
            pages: pages.into_iter().map(|(node, count)| (node, Pages(count))).collect(),
            users: self
                .users
                .iter()
                .map(|(&task, &faults)| RegionUse { task, faults: faults.div_ceil(PAGE_WEIGHT) })
                .collect(),
            age: now.since(self.newest),
        }
    }
}

#[cfg(test)]
mod tests;
