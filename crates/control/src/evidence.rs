//! Who touched which memory, summed up from hinting faults.
//!
//! Memory is taken in regions of 2 MiB. A region knows, page by page, on which node the page
//! was last seen, and how many faults each task took there. Counts are a window over about the
//! last four passes of the kernel's scan over the region: when they exceed that, all are
//! halved. So a task that takes over a region outweighs its predecessor within three passes,
//! and a region nobody scans keeps what is known of it. Where a huge page is larger (512 MiB with base pages of 64 KiB, as
//! on ARM), its memory stays where it is, for what a move would take is reckoned by the region: tasks come to it.
//!
//! A page faults once per pass, by whoever comes first, so a pass alone cannot tell memory that
//! all tasks of a process share from memory that each has to itself. Two passes can: each page
//! remembers who touched it last, and each process counts how often the next to touch it was
//! somebody else ([`Sharing`]). This is numa/core's buddy relation, observed; kernels that keep
//! the last task with the page lose it when the page is local or moves. Two passes over much memory in
//! base pages take long; there, a fault in a region and another one there a while later are a pair too,
//! if the page itself has shown none: regions are what is moved.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use numaherd_model::{
    EvidenceGrade, FaultFlags, HintingFault, Nanos, NodeFaults, NodeId, ProcessId, RegionId,
    Sharing, Snapshot, Task, TaskId,
};

use crate::region::{PASSES, RegionEvidence, count_pairs};

/// Bytes in a region: the kernel's huge page.
pub const REGION_BYTES: u64 = 2 << 20;

/// Faults, in pages, that a task's counts per node remember.
const TASK_WINDOW: u64 = 16_384;

/// Pairs of touches that a process's sharing remembers.
const SHARING_WINDOW: u64 = 256;

/// All evidence.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Each process's, by where they begin: kept apart from what is known of them, so that where one is found is soon.
    regions: BTreeMap<ProcessId, BTreeMap<u64, Box<RegionEvidence>>>,
    tasks: BTreeMap<TaskId, TaskEvidence>,
    sharing: BTreeMap<ProcessId, Sharing>,
    /// Since when each process does something else, as far as it was heard to.
    faded: BTreeMap<ProcessId, Nanos>,
}

impl Evidence {
    /// None so far.
    #[must_use]
    pub fn new() -> Evidence {
        Evidence::default()
    }

    /// Adds faults. Those of tasks that the snapshot does not have are left out.
    pub fn add(&mut self, faults: &[HintingFault], snapshot: &Snapshot) {
        // A scan makes a task fault through a region page by page: what is looked up for one
        // fault mostly serves the next ones too.
        for run in faults.chunk_by(|a, b| a.tid == b.tid && place(a) == place(b)) {
            let by_tid = snapshot.tasks.binary_search_by_key(&run[0].tid, |task| task.id.tid);
            let Ok(task) = by_tid.map(|index| &snapshot.tasks[index]) else { continue };
            self.add_run(run, task, snapshot);
        }
    }

    /// Faults of one task in one region.
    fn add_run(&mut self, run: &[HintingFault], task: &Task, snapshot: &Snapshot) {
        let counts = self.tasks.entry(task.id).or_default();
        let Some(start) = place(&run[0]) else {
            run.iter().for_each(|fault| counts.add(fault, false));
            return;
        };
        let pages = (REGION_BYTES / snapshot.page_size.0) as usize;
        let own = self.regions.entry(task.process).or_default();
        let region = own.entry(start).or_insert_with(|| Box::new(RegionEvidence::new(pages)));
        let user = region.user(task.id);
        // Who touched a page before this task was born, or for something else, tells nothing of the two.
        let faded = self.faded.get(&task.process).copied().unwrap_or_default();
        let since = Nanos(snapshot.time.0.saturating_sub(task.age.0)).max(faded);
        for fault in run {
            let page = (fault.address.unwrap_or(start) - start) / snapshot.page_size.0;
            let before = region.touch(user, page as usize, fault);
            let pair = before.filter(|before| before.is_since(since, fault.time));
            let switched = pair.is_some_and(|before| before.tid != fault.tid);
            let pair = pair.map(|before| (before, fault.pages.0));
            let near = || {
                let before =
                    region.follow(fault).filter(|near| near.is_since(since, fault.time))?;
                Some((before, region.known()))
            };
            if let Some((before, pages)) = pair.or_else(near) {
                let none = Sharing { process: task.process, samples: 0, switches: 0 };
                let sharing = self.sharing.entry(task.process).or_insert(none);
                let Sharing { samples, switches, .. } = sharing;
                let switched = before.tid != fault.tid;
                count_pairs([samples, switches], 1, switched, SHARING_WINDOW);
                region.count_pair(pages, switched);
            }
            counts.add(fault, switched);
        }
    }

    /// These processes do something else since then: what was seen of them so far counts like one pass, and in a region
    /// for next to nothing once somebody was seen there again. Where pages are and how much a process shares stays
    /// known, and so does all of other processes.
    pub fn fade(&mut self, since: Nanos, tgids: &BTreeSet<u32>, snapshot: &Snapshot) {
        for (process, own) in &mut self.regions {
            if tgids.contains(&process.tgid) {
                own.values_mut().for_each(|region| region.fade());
            }
        }
        for task in snapshot.tasks.iter().filter(|task| tgids.contains(&task.process.tgid)) {
            self.faded.insert(task.process, since);
            if let Some(known) = self.tasks.get_mut(&task.id) {
                known.fade();
            }
        }
    }

    /// We moved this much of a region to a node: the pages that were seen elsewhere are there
    /// now.
    pub fn moved(&mut self, region: RegionId, to: NodeId) {
        let own = self.regions.get_mut(&region.process);
        if let Some(region) = own.and_then(|own| own.get_mut(&region.start)) {
            region.moved(to);
        }
    }

    /// How many regions of each process are known, ascending.
    pub fn regions(&self) -> Vec<(ProcessId, usize)> {
        self.regions.iter().map(|(process, own)| (*process, own.len())).collect()
    }

    /// Forgets the regions of a process of which it maps nothing any more, or where that cannot be told, those
    /// in which nobody was seen `since`. Answers how many are left.
    pub fn keep_mapped(
        &mut self,
        process: ProcessId,
        mapped: Option<&[Range<u64>]>,
        since: Nanos,
    ) -> usize {
        let is_mapped = |ranges: &[Range<u64>], start: u64| {
            let at = ranges.partition_point(|range| range.end <= start);
            ranges.get(at).is_some_and(|range| range.start < start + REGION_BYTES)
        };
        let Some(own) = self.regions.get_mut(&process) else { return 0 };
        own.retain(|start, region| {
            mapped.map_or(region.is_seen_since(since), |all| is_mapped(all, *start))
        });
        own.len()
    }

    /// Puts the evidence into the snapshot, and forgets tasks and processes it does not have.
    /// A snapshot whose evidence is of another grade keeps its own.
    pub fn fill(&mut self, snapshot: &mut Snapshot) {
        if snapshot.grade != EvidenceGrade::HintingFaults {
            return;
        }
        self.tasks.retain(|task, _| snapshot.task(*task).is_some());
        for task in &mut snapshot.tasks {
            let known = self.tasks.get(&task.id);
            task.faults = known.map_or_else(Vec::new, TaskEvidence::show);
            task.remote_faults = known.map_or(0, |known| known.remote);
        }
        for own in self.regions.values_mut() {
            own.retain(|_, region| {
                region.forget(|task| snapshot.task(task).is_some());
                !region.users.is_empty()
            });
        }
        self.regions.retain(|_, own| !own.is_empty());
        let alive: BTreeSet<ProcessId> = snapshot.tasks.iter().map(|task| task.process).collect();
        self.sharing.retain(|process, _| alive.contains(process));
        self.faded.retain(|process, _| alive.contains(process));
        let regions = self.regions.iter().flat_map(|(process, own)| {
            let id = |start| RegionId { process: *process, start };
            own.iter().map(move |(start, region)| (id(*start), region))
        });
        snapshot.regions = regions.map(|(id, region)| region.show(id, snapshot.time)).collect();
        snapshot.sharing = self.sharing.values().cloned().collect();
    }
}

/// The region of a fault.
pub fn place(fault: &HintingFault) -> Option<u64> {
    fault.address.map(|address| address / REGION_BYTES * REGION_BYTES)
}

/// A task's faults by node.
#[derive(Debug, Default)]
struct TaskEvidence {
    nodes: Vec<NodeFaults>,
    sum: u64,
    /// Of these, on memory that was remote.
    remote: u64,
}

impl TaskEvidence {
    fn add(&mut self, fault: &HintingFault, shared: bool) {
        let node = fault.memory_node;
        let at = self.nodes.iter().position(|faults| faults.node == node).unwrap_or_else(|| {
            self.nodes.push(NodeFaults { node, private: 0, shared: 0 });
            self.nodes.len() - 1
        });
        let counts = &mut self.nodes[at];
        *(if shared { &mut counts.shared } else { &mut counts.private }) += fault.pages.0;
        self.sum += fault.pages.0;
        let remote = !fault.flags.has(FaultFlags::FAULT_LOCAL);
        self.remote += if remote { fault.pages.0 } else { 0 };
        if self.sum > TASK_WINDOW {
            self.remote /= 2;
            for counts in &mut self.nodes {
                counts.private /= 2;
                counts.shared /= 2;
            }
            self.sum = self.nodes.iter().map(|counts| counts.private + counts.shared).sum();
        }
    }

    fn fade(&mut self) {
        for counts in &mut self.nodes {
            counts.private = counts.private.div_ceil(PASSES);
            counts.shared = counts.shared.div_ceil(PASSES);
        }
        self.remote = self.remote.div_ceil(PASSES);
        self.sum = self.nodes.iter().map(|counts| counts.private + counts.shared).sum();
    }

    fn show(&self) -> Vec<NodeFaults> {
        let mut nodes = self.nodes.clone();
        nodes.sort_unstable_by_key(|faults| faults.node);
        nodes
    }
}

#[cfg(test)]
pub(crate) mod tests;
