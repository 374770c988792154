//! Who touched which memory, summed up from hinting faults.
//!
//! Memory is taken in regions of 2 MiB. A region knows, page by page, on which node the page
//! was last seen, and how many faults each task took there. Counts are a window over about the
//! last four passes of the kernel's scan over the region: when they exceed that, all are
//! halved. So a task that takes over a region outweighs its predecessor within three passes,
//! and a region nobody scans keeps what is known of it.
//!
//! A page faults once per pass, by whoever comes first, so a pass alone cannot tell memory that
//! all tasks of a process share from memory that each has to itself. Two passes can: each page
//! remembers who touched it last, and each process counts how often the next to touch it was
//! somebody else ([`Sharing`]). This is numa/core's buddy relation, observed; kernels that keep
//! the last task with the page lose it when the page is local or moves.

use std::collections::BTreeMap;

use numaherd_model::{
    Bytes, EvidenceGrade, HintingFault, Nanos, NodeFaults, NodeId, Pages, ProcessId, Region,
    RegionId, RegionUse, Sharing, Snapshot, Task, TaskId,
};

/// Bytes in a region: the kernel's huge page.
pub const REGION_BYTES: u64 = 2 << 20;

/// Passes over a region that its counts remember.
const PASSES: u64 = 4;

/// Faults, in pages, that a task's counts per node remember.
const TASK_WINDOW: u64 = 16_384;

/// Pairs of touches that a process's sharing remembers.
const SHARING_WINDOW: u64 = 256;

/// All evidence.
#[derive(Debug, Default)]
pub struct Evidence {
    regions: BTreeMap<RegionId, RegionEvidence>,
    tasks: BTreeMap<TaskId, BTreeMap<NodeId, Counts>>,
    sharing: BTreeMap<ProcessId, Sharing>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    private: u64,
    shared: u64,
}

#[derive(Debug)]
struct RegionEvidence {
    pages: Vec<Option<Seen>>,
    users: BTreeMap<TaskId, u64>,
    newest: Nanos,
}

/// A page's last touch that we know of.
#[derive(Debug, Clone, Copy)]
struct Seen {
    node: NodeId,
    tid: u32,
    time: Nanos,
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
        for fault in faults {
            let Some(task) = by_tid.get(&fault.tid) else { continue };
            let switched = match fault.address {
                Some(address) => self.count_region(task, address, fault, snapshot),
                None => false,
            };
            self.count_task(task.id, fault, switched);
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

    /// Answers whether somebody else touched the page last.
    fn count_region(
        &mut self,
        task: &Task,
        address: u64,
        fault: &HintingFault,
        snapshot: &Snapshot,
    ) -> bool {
        let start = address / REGION_BYTES * REGION_BYTES;
        let pages = (REGION_BYTES / snapshot.page_size.0) as usize;
        let id = RegionId { process: task.process, start };
        let region = self.regions.entry(id).or_insert_with(|| RegionEvidence::new(pages));
        // A huge page's fault stands for all of it.
        let size = (fault.pages.0.max(1) as usize).min(pages);
        let first = ((address - start) / snapshot.page_size.0) as usize / size * size;
        let touched = &mut region.pages[first..(first + size).min(pages)];
        let before = touched[0];
        touched.fill(Some(Seen { node: fault.memory_node, tid: fault.tid, time: fault.time }));
        region.newest = region.newest.max(fault.time);
        *region.users.entry(task.id).or_default() += fault.pages.0;
        if region.users.values().sum::<u64>() > PASSES * pages as u64 {
            for faults in region.users.values_mut() {
                *faults /= 2;
            }
        }
        // Who touched it before this task was born tells nothing of the two.
        let born = Nanos(snapshot.time.0.saturating_sub(task.age.0));
        match before.filter(|before| before.time >= born) {
            Some(before) => self.count_pair(task.process, before.tid != fault.tid),
            None => false,
        }
    }

    fn count_pair(&mut self, process: ProcessId, switched: bool) -> bool {
        let none = Sharing { process, samples: 0, switches: 0 };
        let sharing = self.sharing.entry(process).or_insert(none);
        sharing.samples += 1;
        sharing.switches += u64::from(switched);
        if sharing.samples > SHARING_WINDOW {
            sharing.samples /= 2;
            sharing.switches /= 2;
        }
        switched
    }

    /// We moved this much of a region to a node: the pages that were seen elsewhere are there
    /// now.
    pub fn moved(&mut self, region: RegionId, to: NodeId) {
        if let Some(region) = self.regions.get_mut(&region) {
            for seen in region.pages.iter_mut().flatten() {
                seen.node = to;
            }
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
        self.sharing.retain(|process, _| snapshot.tasks.iter().any(|t| t.process == *process));
        snapshot.regions =
            self.regions.iter().map(|(id, region)| region.show(*id, snapshot.time)).collect();
        snapshot.sharing = self.sharing.values().cloned().collect();
    }
}

impl RegionEvidence {
    fn new(pages: usize) -> RegionEvidence {
        RegionEvidence { pages: vec![None; pages], users: BTreeMap::new(), newest: Nanos(0) }
    }

    fn show(&self, id: RegionId, now: Nanos) -> Region {
        let mut pages: BTreeMap<NodeId, u64> = BTreeMap::new();
        // Run by run: neighbours mostly lie together, and this is done for every region a turn.
        for run in self.pages.chunk_by(|a, b| a.map(|a| a.node) == b.map(|b| b.node)) {
            if let Some(seen) = run[0] {
                *pages.entry(seen.node).or_default() += run.len() as u64;
            }
        }
        let users = self.users.iter().map(|(&task, &faults)| RegionUse { task, faults });
        Region {
            id,
            len: Bytes(REGION_BYTES),
            pages: pages.into_iter().map(|(node, count)| (node, Pages(count))).collect(),
            users: users.collect(),
            age: now.since(self.newest),
        }
    }
}

#[cfg(test)]
mod tests;
