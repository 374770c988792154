//! The lowest grade of evidence: where each process's pages lie.
//!
//! The page tables say on which node a page is and nothing of who uses it, so every busy thread
//! of a process is taken to use all of its memory alike. That is enough to bring whole processes
//! together with their memory, as numad does, and no more.
//!
//! A mapping is cut into pieces, and of each piece a few pages spread over it are looked up.
//! Mappings with a memory policy of their own, or of a process that has one, and huge pages of the
//! reserve stay where they are: whoever set that up knows where that memory belongs, and tasks have to
//! come to it. (The kernel leaves them out of its hinting faults, too.) So does what lies on nodes without CPUs: the kernel
//! may have taken it there for not being used, or a graphics card's driver since that uses it, and nothing here says
//! that it would be used from where it came.

use std::collections::BTreeMap;
use std::time::Instant;

use numaherd_model::{
    Bytes, EvidenceGrade, Nanos, NodeFaults, NodeId, Pages, ProcessId, Region, RegionId, RegionUse,
    Snapshot, TaskId, Topology,
};

use super::walk::{self, Budget, Pace};
use crate::ReadError;
use crate::memory::maps::AnonymousRange;
use crate::memory::numa_maps::Mapping;
use crate::memory::residence;
use crate::sys::pages::PageStatus;
use crate::system::Memory;

/// Mappings below this are not worth looking at, and no piece is smaller.
const LEAST_PIECE: u64 = 2 << 20;

/// No piece is larger: what one plan moves at most.
const LARGEST_PIECE: u64 = 16 << 20;

/// Pieces of a mapping, if that makes them neither too small nor too large.
const PIECES: u64 = 512;

/// Pieces of a process that are looked at, lowest addresses first: 64 GiB at the most.
const MOST_PIECES: usize = 4096;

/// Pages looked up in a piece. Guessed: one in 32 of a piece of 2 MiB.
const SAMPLES: u64 = 16;

/// Bounds on how old knowledge of policies may be: as old as the process was when they were read, for a
/// young one may be about to give up the policy under which it fills its memory. Reading them has the
/// kernel walk all page tables: longer, where all that time would be taken by it.
const POLICIES_AGE: (Nanos, Nanos) = (Nanos(500_000_000), Nanos(10_000_000_000));

/// What was good until so long ago is not gone by any more, where there was no time to read it again. Guessed: sixty processes
/// of which each takes 50 ms have their turn once in that time.
const OUTDATED: Nanos = Nanos(150_000_000_000);

/// What is known of each process's mappings beyond where they are.
#[derive(Debug, Default)]
pub struct Policies {
    /// Those that stay where they are, and until when that is good.
    kept: BTreeMap<ProcessId, (Nanos, BTreeMap<u64, Kept>)>,
    /// Whose may or should not be read, and why.
    pub(super) unreadable: BTreeMap<ProcessId, String>,
}

/// Bytes of a mapping on each node, by its start; none if it is not the process's own.
type Kept = Vec<(NodeId, Bytes)>;

impl Policies {
    /// The process's own, as of the last few seconds; none where they may or should not be read.
    fn of(
        &mut self,
        memory: &mut (impl Memory + ?Sized),
        process: ProcessId,
        (now, age): (Nanos, Nanos),
        walks: &mut Budget,
    ) -> Option<&BTreeMap<u64, Kept>> {
        if self.kept.get(&process).is_none_or(|(until, _)| now >= *until) {
            let resident = memory.resident(process.tgid);
            if walk::is_too_long(memory, process.tgid, resident) {
                self.kept.remove(&process);
                self.unreadable.insert(process, walk::TOO_LONG.into());
                return None;
            }
            // What was known is good until it is its turn.
            let outdated = |(until, _): &(Nanos, _)| now.since(*until) >= OUTDATED;
            if walks.allows(now) {
                self.read(memory, process, (now, age), walks);
            } else if self.kept.get(&process).is_none_or(outdated) {
                self.kept.remove(&process);
                self.unreadable.insert(process, walk::TOO_OFTEN.into());
            }
        }
        self.kept.get(&process).map(|(_, kept)| kept)
    }

    fn read(
        &mut self,
        memory: &mut (impl Memory + ?Sized),
        process: ProcessId,
        (now, age): (Nanos, Nanos),
        walks: &mut Budget,
    ) {
        let begin = Instant::now();
        let Ok(mappings) = memory.mappings(process.tgid) else {
            self.kept.remove(&process);
            return;
        };
        let took = Nanos(begin.elapsed().as_nanos() as u64);
        walks.spend(now, Nanos(now.0 + took.0));
        let mappings = mappings.unwrap_or_default();
        let stays = |mapping: &&Mapping| mapping.policy != "default" || mapping.huge;
        let kept = mappings.iter().filter(stays).map(|mapping| {
            let own = residence::unseen(mapping).map(|_| mapping.nodes.clone());
            (mapping.start, own.unwrap_or_default())
        });
        let age = age.clamp(POLICIES_AGE.0, POLICIES_AGE.1).0;
        let until = Nanos(now.0 + age.max(took.0 * walk::ALL_PART));
        self.kept.insert(process, (until, kept.collect()));
    }

    /// These processes, of those that are left, in the order in which to ask for their policies: there may not be time
    /// for all, and each is to have its turn.
    fn in_turn<T>(&mut self, processes: BTreeMap<ProcessId, T>) -> Vec<(ProcessId, T)> {
        self.kept.retain(|process, _| processes.contains_key(process));
        let mut all: Vec<(ProcessId, T)> = processes.into_iter().collect();
        all.sort_by_key(|(process, _)| self.kept.get(process).map(|(until, _)| *until));
        all
    }
}

/// Fills in regions and faults per node; calls `beat` for each process, and walks what the budget allows.
pub fn fill(
    memory: &mut (impl Memory + ?Sized),
    snapshot: &mut Snapshot,
    policies: &mut Policies,
    (walks, beat): Pace<'_>,
) -> Result<(), ReadError> {
    snapshot.grade = EvidenceGrade::ResidentPages;
    policies.unreadable.clear();
    for (process, (users, age)) in policies.in_turn(by_process(snapshot)) {
        if users.is_empty() {
            continue;
        }
        beat();
        let ranges = match memory.own_ranges(process.tgid) {
            Err(error) if error.is_refused() => {
                policies.unreadable.insert(process, error.to_string());
                continue;
            }
            ranges => ranges?.unwrap_or_default(),
        };
        let Some(kept) = policies.of(memory, process, (snapshot.time, age), walks) else {
            continue;
        };
        let page = snapshot.page_size;
        let staying = kept.iter().filter(|(_, nodes)| !nodes.is_empty()).map(|(&start, nodes)| {
            let all = Bytes(nodes.iter().map(|(_, bytes)| bytes.0).sum());
            let pages = nodes.iter().map(|&(node, bytes)| (node, bytes.pages(page))).collect();
            region(RegionId { process, start }, all, pages, &users, true)
        });
        snapshot.regions.extend(staying);
        let ours = ranges.iter().filter(|range| !kept.contains_key(&range.start));
        let pieces: Vec<AnonymousRange> = ours.flat_map(cut).take(MOST_PIECES).collect();
        let addresses: Vec<u64> = pieces.iter().flat_map(samples).collect();
        // Nothing of one that has ended or belongs to someone else.
        let places = memory.locate(process.tgid, &addresses).unwrap_or_default();
        for (piece, places) in pieces.iter().zip(places.chunks(SAMPLES as usize)) {
            let pages = pages_of(piece, places, page);
            if !pages.is_empty() {
                let id = RegionId { process, start: piece.start };
                let stays = is_beyond(&pages, &snapshot.topology);
                snapshot.regions.push(region(id, piece.len, pages, &users, stays));
            }
        }
    }
    snapshot.regions.sort_by_key(|region| region.id);
    sum_up(snapshot);
    Ok(())
}

/// Whether most of it lies on nodes without CPUs, such as CXL or a graphics card's.
fn is_beyond(pages: &[(NodeId, Pages)], topology: &Topology) -> bool {
    let has_cpus = |id: NodeId| topology.cpu_nodes().any(|node| node.id == id);
    let beyond = pages.iter().filter(|(node, _)| !has_cpus(*node));
    let beyond: u64 = beyond.map(|(_, pages)| pages.0).sum();
    beyond * 2 > pages.iter().map(|(_, pages)| pages.0).sum()
}

/// A region that these tasks use alike.
fn region(
    id: RegionId,
    len: Bytes,
    pages: Vec<(NodeId, Pages)>,
    users: &[TaskId],
    stays: bool,
) -> Region {
    let faults = pages.iter().map(|(_, pages)| pages.0).sum::<u64>() / users.len().max(1) as u64;
    let users = users.iter().map(|&task| RegionUse { task, faults }).collect();
    Region { id, len, pages, users, pairs: 0, switches: 0, age: Nanos(0), rests: stays, stays }
}

/// The pieces of a mapping, at multiples of their size where the kernel can use huge pages.
fn cut(range: &AnonymousRange) -> Vec<AnonymousRange> {
    let size =
        (range.len.0 / PIECES).clamp(LEAST_PIECE, LARGEST_PIECE).next_multiple_of(LEAST_PIECE);
    let (mut start, end) = (range.start, range.start + range.len.0);
    let mut pieces = Vec::new();
    while range.len.0 >= LEAST_PIECE && start < end && pieces.len() < MOST_PIECES {
        let next = ((start / LEAST_PIECE) * LEAST_PIECE + size).min(end);
        pieces.push(AnonymousRange { start, len: Bytes(next - start) });
        start = next;
    }
    pieces
}

/// Addresses spread over a piece.
fn samples(piece: &AnonymousRange) -> impl Iterator<Item = u64> + use<> {
    let (start, len) = (piece.start, piece.len.0);
    (0..SAMPLES).map(move |nth| (start + len * nth / SAMPLES) & !0xfff)
}

/// A piece's resident pages per node, going by those looked up.
fn pages_of(piece: &AnonymousRange, places: &[PageStatus], page: Bytes) -> Vec<(NodeId, Pages)> {
    let all = piece.len.pages(page).0;
    let of = |(node, seen)| (node, Pages(all * seen / SAMPLES));
    per_node(places).into_iter().map(of).collect()
}

/// How many of these are on each node that has some, ascending.
pub fn per_node(places: &[PageStatus]) -> Vec<(NodeId, u64)> {
    let mut nodes: Vec<(NodeId, u64)> = Vec::new();
    for place in places {
        if let PageStatus::On(node) = place {
            match nodes.binary_search_by_key(node, |(node, _)| *node) {
                Ok(i) => nodes[i].1 += 1,
                Err(i) => nodes.insert(i, (*node, 1)),
            }
        }
    }
    nodes
}

/// Each process's busy threads, ascending, and the age of its oldest.
fn by_process(snapshot: &Snapshot) -> BTreeMap<ProcessId, (Vec<TaskId>, Nanos)> {
    let mut processes: BTreeMap<ProcessId, (Vec<TaskId>, Nanos)> = BTreeMap::new();
    for task in &snapshot.tasks {
        let (users, age) = processes.entry(task.process).or_default();
        users.extend((task.busy_permille > 0).then_some(task.id));
        *age = task.age.max(*age);
    }
    processes
}

/// Each task's faults per node, as if it had touched its share of every page. Regions of a process have the same users.
fn sum_up(snapshot: &mut Snapshot) {
    for own in snapshot.regions.chunk_by(|a, b| a.id.process == b.id.process) {
        let users = &own[0].users;
        let mut faults: BTreeMap<NodeId, u64> = BTreeMap::new();
        for &(node, Pages(pages)) in own.iter().flat_map(|region| &region.pages) {
            *faults.entry(node).or_insert(0) += pages / users.len().max(1) as u64;
        }
        let each: Vec<NodeFaults> = faults
            .into_iter()
            .map(|(node, shared)| NodeFaults { node, private: 0, shared })
            .collect();
        for user in users {
            let at = snapshot.tasks.binary_search_by_key(&user.task, |task| task.id);
            at.into_iter().for_each(|at| snapshot.tasks[at].faults.clone_from(&each));
        }
    }
}

#[cfg(test)]
mod tests;
