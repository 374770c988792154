//! Memory of files: tmpfs, or the page cache.
//!
//! It is read() and written(), so it is in nobody's page tables: it takes no hinting faults, no placement sees or
//! moves it, and it outlives whoever brought it. It takes room on nodes, and what goes over it is carried by memory and
//! links, and found in last-level caches, by whichever process. A part that nobody has touched yet is nowhere: who
//! touches it first has it put where its policy says, or the nearest node with room, and pays for that as for other
//! first touches: a fault for each page, which are small ones, and clearing. Where no node has room it ends, as what is
//! told that there is no space left, and the run says so: it did less than its work, so its time says nothing.
//!
//! A file is taken in blocks of 2 MiB or less: the shortest part that a phase goes over by itself is a whole number of
//! them, as if it were a file of its own.

use super::retiming::NEVER_NS;
use super::{BLOCK_BYTES, Sim};
use crate::SimError;
use crate::account::Place;
use crate::layout::{self, filled};
use crate::machine::LINE_BYTES;
use crate::workload::{FilePart, FileStart, PhaseSpec, Workload};

/// Of a small page.
const PAGE_BYTES: u64 = 4096;

/// Blocks of a file of which so many equal parts, each a whole number of them, are gone over by themselves: no longer
/// than a block of other memory, and no shorter than a page.
pub(crate) fn blocks(bytes: u64, parts: u64) -> u64 {
    let parts = parts.clamp(1, bytes / PAGE_BYTES);
    parts * bytes.div_ceil(parts * BLOCK_BYTES)
}

/// One of them.
struct File {
    name: String,
    /// As the workload has it.
    bytes: f64,
    /// What each of its blocks takes: whole pages.
    block_bytes: u64,
    /// By block, the node that it is on.
    homes: Vec<Option<u16>>,
    /// Tasks that ended because no node had room for a block of it.
    ended: usize,
}

/// All files.
pub(super) struct Files {
    all: Vec<File>,
    /// Bytes that they take, by node.
    on: Vec<u64>,
}

impl Files {
    /// None, on so many nodes.
    pub(super) fn none(nodes: usize) -> Files {
        Files { all: Vec::new(), on: vec![0; nodes] }
    }

    /// Bytes that they take, by node.
    pub(super) fn on(&self) -> &[u64] {
        &self.on
    }

    /// First and last block, the latter not included, and bytes, of part `index` of so many.
    fn part(&self, file: usize, (index, parts): (u64, u64)) -> (usize, usize, f64) {
        let file = &self.all[file];
        let count = file.homes.len() as u64;
        let (from, to) = (index * count / parts, (index + 1) * count / parts);
        (from as usize, to.max(from + 1) as usize, file.bytes / parts as f64)
    }
}

/// Of each of so many blocks of a file.
fn block_bytes(bytes: u64, count: u64) -> u64 {
    bytes.div_ceil(count).next_multiple_of(PAGE_BYTES)
}

impl Sim {
    /// Files are there before anybody comes, as far as somebody brought them before.
    pub(super) fn place_files(&mut self, workload: &Workload) -> Result<(), SimError> {
        let nodes = layout::homes(&self.machine);
        for (spec, count) in workload.file.iter().zip(workload.file_blocks(self.machine.cpus())) {
            let bytes = spec.mib << 20;
            let block_bytes = block_bytes(bytes, count);
            let mut homes = vec![None; count as usize];
            for (block, home) in homes.iter_mut().enumerate() {
                let wanted = match spec.start {
                    FileStart::OneNode => nodes[0],
                    FileStart::Interleave => nodes[block % nodes.len()],
                    FileStart::FirstTouch => continue,
                };
                let node = self.allocate(wanted, block_bytes);
                let node = node.ok_or_else(|| self.too_large(workload))?;
                self.files.on[node] += block_bytes;
                *home = Some(node as u16);
            }
            self.files.all.push(File {
                name: spec.name.clone(),
                bytes: bytes as f64,
                block_bytes,
                homes,
                ended: 0,
            });
        }
        let to_come = self.files.all.iter().map(|file| {
            let missing = file.homes.iter().filter(|home| home.is_none()).count();
            missing as u64 * file.block_bytes
        });
        // A node may be left with less than a block; who comes later finds that out.
        match to_come.sum::<u64>() > self.free.iter().sum() {
            true => Err(self.too_large(workload)),
            false => Ok(()),
        }
    }

    fn too_large(&self, workload: &Workload) -> SimError {
        let mib: u64 = workload.file.iter().map(|file| file.mib).sum();
        let room: u64 = self.machine.node.iter().map(|node| node.memory_mib).sum();
        let problem = if mib > room {
            format!("they have {mib} MiB, and all nodes {room}")
        } else {
            let blocks = workload.file.iter().zip(workload.file_blocks(self.machine.cpus()));
            let bytes = blocks.map(|(file, count)| count * block_bytes(file.mib << 20, count));
            let whole = bytes.sum::<u64>().div_ceil(1 << 20);
            format!(
                "they have {mib} MiB, which are {whole} in blocks of whole pages, each on one node, and all nodes {room}"
            )
        };
        let problem = format!(
            "the workload's files do not fit the machine: {problem}: make them smaller, or give the machine more memory"
        );
        SimError::Unfit { problem }
    }

    /// Whose a block is, for caches: files come first, then processes.
    pub(super) fn owner(&self, process: usize, file: Option<usize>) -> usize {
        file.unwrap_or(self.files.all.len() + process)
    }

    /// Blocks and bytes of a file that a task's phase goes over, its range apart.
    pub(super) fn part_of_file(&self, t: usize, phase: &PhaseSpec) -> (usize, usize, f64) {
        let process = &self.processes[self.tasks[t].process];
        let (copies, slices) = (self.queued[process.kind].spec.copies, process.slices as u64);
        let index = u64::from(process.copy) * slices + u64::from(self.rest[t].slice);
        let part = match phase.part {
            Some(FilePart::Slice) => (index, u64::from(copies) * slices),
            Some(FilePart::All) | None => (0, 1),
        };
        self.files.part(phase.of_file().unwrap_or(0), part)
    }

    /// The running task comes to a block of a file: on which node that is, and the nanoseconds that it takes to touch
    /// it first. None where there is no room for it.
    pub(super) fn come_to(&mut self, t: usize, file: usize, block: usize) -> Option<(usize, u64)> {
        if let Some(home) = self.files.all[file].homes[block] {
            return Some((usize::from(home), 0));
        }
        let block_bytes = self.files.all[file].block_bytes;
        let from = self.node_of[self.tasks[t].cpu];
        let home = self.allocate(self.fills(t, from), block_bytes)?;
        self.files.all[file].homes[block] = Some(home as u16);
        self.files.on[home] += block_bytes;
        self.rest[t].filled += 1;
        let line_ns = self.machine.line_ns(from, home, self.machine.cpu.threads_per_core);
        let clear_ns = block_bytes as f64 / LINE_BYTES * line_ns;
        let faults = block_bytes / PAGE_BYTES;
        let ns = (faults * self.machine.kernel.fault_ns).saturating_add(clear_ns as u64);
        let ns = ns.min(NEVER_NS);
        self.account.add_times(Place::Clearing, ns, faults);
        Some((home, ns))
    }

    /// The running task found no room for a block of a file: it ends with this step.
    #[cold]
    pub(super) fn end_for_room(&mut self, t: usize, file: usize) {
        // One that is interrupted comes here again, and one that ends anyway does not end for this.
        if !std::mem::replace(&mut self.tasks[t].doomed, true) {
            self.files.all[file].ended += 1;
        }
    }

    /// If less was done than the workload says because no node had room: how many tasks ended, and at which file, and
    /// how many processes never began.
    #[must_use]
    pub fn out_of_room(&self) -> Option<String> {
        let files = self.files.all.iter().filter(|file| file.ended > 0).map(|file| {
            let tasks = if file.ended == 1 { "task" } else { "tasks" };
            format!("{} {tasks} ended at the file {}", file.ended, file.name)
        });
        let kinds = self.queued.iter().filter(|kind| kind.passed_over > 0).map(|kind| {
            let processes = if kind.passed_over == 1 { "process" } else { "processes" };
            let name = kind.spec.name.as_ref().map_or(String::new(), |name| format!(" of {name}"));
            format!("{} {processes}{name} never began", kind.passed_over)
        });
        let all: Vec<String> = files.chain(kinds).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// The node on which a task on node `from` would have the next block that it fills.
    fn fills(&self, t: usize, from: usize) -> usize {
        let rest = &self.rest[t];
        let owned = |node: &usize| {
            let mut cpus = rest.owner.iter();
            cpus.any(|cpu| self.node_of[cpu.0 as usize] == *node)
        };
        let tied_to = || (0..self.machine.node.len()).filter(owned).collect();
        // Each task counts by itself, from its number on: what one fills may be less than a block.
        filled(&self.machine, self.options.tie, from, tied_to, t + rest.filled as usize)
    }

    /// Takes so many bytes from `wanted`, or from the nearest node with room.
    pub(super) fn allocate(&mut self, wanted: usize, bytes: u64) -> Option<usize> {
        let slit = &self.machine.slit[wanted];
        let fits = |node: &usize| self.free[*node] >= bytes;
        let node = (0..self.free.len()).filter(fits).min_by_key(|&node| (slit[node], node))?;
        self.free[node] -= bytes;
        Some(node)
    }

    /// All memory, in whosever hands.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let files = self.files.on.iter().sum::<u64>();
        self.taken_by_processes() + files + self.free.iter().sum::<u64>() + self.taken
    }

    /// Bytes.
    pub(crate) fn taken_by_processes(&self) -> u64 {
        let blocks: usize = self.processes.iter().map(|process| process.blocks.len()).sum();
        blocks as u64 * BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests;
