//! Looking at processes for a while: who ran on which node, where the memory lies, who faulted.
//!
//! All processes are looked at twice, [`GLANCE`] apart, to find the busiest; those are watched
//! every [`TICK`]. CPU time between two looks counts for the node of the CPU seen last.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use numaherd_bpf::{Choice, FaultStream, choose, probe};
use numaherd_linux::cpu_time;
use numaherd_linux::memory::residence::Residence;
use numaherd_linux::memory::{numa_maps, zoneinfo};
use numaherd_linux::process::TaskReader;
use numaherd_linux::sys::{clock, pages};
use numaherd_linux::task_counts::{self, TaskCounts};
use numaherd_model::{
    Bytes, CpuId, FaultFlags, FaultSource, HintingFault, Nanos, NodeId, NodeState, TaskId, Topology,
};

use crate::targets;

/// Between the two looks that find the busiest. Guessed: 30 ticks of the slowest kernel.
const GLANCE: Duration = Duration::from_millis(300);
/// Between looks at those that are watched. A quarter of a time slice's worth of migrations goes
/// unseen at most; guessed.
const TICK: Duration = Duration::from_millis(100);
/// So many processes are watched, unless they are named: reading where memory lies walks all of
/// a process's page tables.
const WATCHED: usize = 12;
/// Those that use less of a CPU are not worth it, in nanoseconds of a second.
const LEAST_BUSY: u64 = 10_000_000;
/// Faults within one such piece of memory come together: the kernel's huge page.
const PIECE_BYTES: u64 = 2 << 20;

/// What was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    pub topology: Topology,
    pub nodes: Vec<NodeState>,
    pub page_size: Bytes,
    pub seconds: f64,
    /// CPUs that everybody on the machine used together meanwhile, by node; none where the kernel does not tell.
    pub cpus_used: Option<BTreeMap<NodeId, f64>>,
    /// Busiest first.
    pub processes: Vec<Process>,
    /// Processes that were not looked at, since they hardly run.
    pub others: usize,
    /// Why faults were not sampled, if they were wanted.
    pub no_faults: Option<String>,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub command: String,
    /// Where its memory lies, or why that may not be known.
    pub residence: Result<Residence, String>,
    /// In the order of their ids.
    pub tasks: Vec<Task>,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Task {
    /// CPU time while it was watched, in nanoseconds by node.
    pub ran: Vec<(NodeId, u64)>,
    /// The kernel's own counts of its faults.
    pub counts: Option<TaskCounts>,
    /// Faults seen while sampling.
    pub faults: Faults,
}

/// Pages that faulted while sampling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub local: u64,
    pub all: u64,
    /// Pieces of memory they were in.
    pub pieces: u64,
}

impl Process {
    /// CPU time by node.
    pub fn ran(&self) -> Vec<(NodeId, u64)> {
        let mut nodes = BTreeMap::new();
        for (node, ns) in self.tasks.iter().flat_map(|task| &task.ran) {
            *nodes.entry(*node).or_insert(0) += ns;
        }
        nodes.into_iter().collect()
    }

    /// CPU time in nanoseconds.
    pub fn ran_ns(&self) -> u64 {
        self.tasks.iter().flat_map(|task| &task.ran).map(|(_, ns)| ns).sum()
    }
}

/// Looks at these processes and their descendants, or at the busiest; at their faults too where it is to be for long.
pub fn look(pids: &[u32], sample: Option<Duration>, stop: &AtomicBool) -> Result<Seen> {
    look_for(pids, sample.unwrap_or(GLANCE), sample.is_some(), stop)
}

/// The same for about so long, without their faults.
pub fn watch(pids: &[u32], time: Duration, stop: &AtomicBool) -> Result<Seen> {
    // It takes a glance to find the busiest.
    let finding = if pids.is_empty() { GLANCE } else { Duration::ZERO };
    look_for(pids, time.saturating_sub(finding).max(TICK), false, stop)
}

fn look_for(pids: &[u32], time: Duration, sampled: bool, stop: &AtomicBool) -> Result<Seen> {
    let root = Path::new("/");
    let mut watch = Watch::new(numaherd_linux::topology::read(root)?);
    for &pid in pids {
        targets::named(&mut watch.reader, pid)?;
    }
    let chosen = if pids.is_empty() { watch.busiest()? } else { watch.trees(pids)? };
    let one_node = watch.topology.nodes.len() < 2;
    let (mut stream, no_faults) =
        if sampled && !one_node { open(&chosen.pids) } else { (None, None) };
    let begin = Instant::now();
    watch.last.clear();
    watch.ran.clear();
    watch.tick(&chosen.pids)?;
    let busy = cpu_time::read(root)?;
    let mut faults = Vec::new();
    while begin.elapsed() < time && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
        watch.tick(&chosen.pids)?;
        if let Some(stream) = &mut stream {
            stream.drain(&mut faults)?;
        }
    }
    let busy = Some(busy).filter(|busy| !busy.is_empty()).zip(Some(cpu_time::read(root)?));
    let seconds = begin.elapsed().as_secs_f64();
    drop(stream);
    let cpus_used = busy.map(|(before, after)| used(&watch.topology, &before, &after, seconds));
    let mut processes = watch.processes(&chosen.pids, &faults)?;
    processes.sort_by_key(|process| (std::cmp::Reverse(process.ran_ns()), process.pid));
    Ok(Seen {
        nodes: zoneinfo::read(root)?,
        page_size: pages::size(),
        topology: watch.topology,
        seconds,
        cpus_used,
        processes,
        others: chosen.others,
        no_faults,
    })
}

/// Who is watched.
struct Chosen {
    pids: Vec<u32>,
    others: usize,
}

/// The stream of hinting faults of these processes, or why there is none.
fn open(pids: &[u32]) -> (Option<FaultStream>, Option<String>) {
    let opened = match choose(&probe(Path::new("/"))) {
        Choice::Unavailable { reason } => Err(reason),
        choice => FaultStream::open(&choice).map_err(|error| error.to_string()),
    };
    let watched = opened.and_then(|mut stream| {
        stream.watch(pids).map_err(|error| error.to_string())?;
        Ok(stream)
    });
    match watched {
        Ok(stream) => (Some(stream), None),
        Err(reason) => (None, Some(reason)),
    }
}

struct Watch {
    topology: Topology,
    reader: TaskReader,
    /// CPU time of each thread at the last look.
    last: BTreeMap<TaskId, u64>,
    /// CPU time since the first look, by thread, process and node.
    ran: BTreeMap<(u32, u32), BTreeMap<NodeId, u64>>,
}

impl Watch {
    fn new(topology: Topology) -> Watch {
        let reader = TaskReader::new("/".as_ref());
        Watch { topology, reader, last: BTreeMap::new(), ran: BTreeMap::new() }
    }

    fn trees(&mut self, pids: &[u32]) -> Result<Chosen> {
        let mut all = BTreeSet::new();
        for &pid in pids {
            all.extend(self.reader.tree(pid)?);
        }
        Ok(Chosen { pids: all.into_iter().collect(), others: 0 })
    }

    /// The processes that used most CPU time between two looks.
    fn busiest(&mut self) -> Result<Chosen> {
        let mut users = Vec::new();
        for pid in self.reader.processes()? {
            let stat = self.reader.listed_stat(pid)?;
            // The kernel's own have no memory.
            if pid != std::process::id() && stat.is_some_and(|stat| !stat.is_kernels) {
                users.push(pid);
            }
        }
        let begin = Instant::now();
        self.tick(&users)?;
        std::thread::sleep(GLANCE);
        self.tick(&users)?;
        let least = LEAST_BUSY * begin.elapsed().as_millis() as u64 / 1000;
        let mut used: BTreeMap<u32, u64> = BTreeMap::new();
        for ((pid, _), nodes) in &self.ran {
            *used.entry(*pid).or_insert(0) += nodes.values().sum::<u64>();
        }
        let mut busy: Vec<(u64, u32)> = used.into_iter().map(|(pid, ns)| (ns, pid)).collect();
        busy.retain(|(ns, _)| *ns >= least);
        busy.sort_unstable_by_key(|&(ns, pid)| (std::cmp::Reverse(ns), pid));
        busy.truncate(WATCHED);
        let pids: Vec<u32> = busy.into_iter().map(|(_, pid)| pid).collect();
        Ok(Chosen { others: users.len() - pids.len(), pids })
    }

    /// Looks at all threads of these processes.
    fn tick(&mut self, pids: &[u32]) -> Result<()> {
        let tick = clock::tick();
        for &pid in pids {
            for tid in self.reader.threads(pid)?.unwrap_or_default() {
                // Whoever ends while we look is left out.
                let Some(stat) = self.reader.stat(pid, tid)? else { continue };
                let exact = self.reader.schedstat(pid, tid)?;
                let used = exact.map_or(stat.cpu_ticks * tick.0, |stat| stat.run_time.0);
                let before = self.last.insert(stat.id, used);
                let nodes = self.ran.entry((pid, tid)).or_default();
                if let (Some(before), Some(node)) =
                    (before, self.topology.node_of_cpu(stat.last_cpu))
                {
                    *nodes.entry(node).or_insert(0) += used.saturating_sub(before);
                }
            }
        }
        Ok(())
    }

    fn processes(&mut self, pids: &[u32], faults: &[HintingFault]) -> Result<Vec<Process>> {
        let mut sampled = sum_up(faults);
        let mut processes = Vec::new();
        for &pid in pids {
            let Some(stat) = self.reader.stat(pid, pid)? else { continue };
            let mut tasks = Vec::new();
            for tid in self.reader.threads(pid)?.unwrap_or_default() {
                let ran = self.ran.remove(&(pid, tid)).unwrap_or_default();
                tasks.push(Task {
                    ran: ran.into_iter().collect(),
                    // Nobody else's business on some kernels: then there are none.
                    counts: task_counts::read(Path::new("/"), pid, tid).unwrap_or_default(),
                    faults: sampled.remove(&tid).unwrap_or_default(),
                });
            }
            let residence = self.residence(pid);
            processes.push(Process { pid, command: stat.comm, residence, tasks });
        }
        Ok(processes)
    }

    fn residence(&self, pid: u32) -> Result<Residence, String> {
        if let [only] = &self.topology.nodes[..] {
            return Ok(all_on(only.id, pid));
        }
        match numa_maps::read(Path::new("/"), pid) {
            Ok(Some(mappings)) => Ok(Residence::of(&mappings)),
            Ok(None) => Err("it has ended, or this kernel does not tell".into()),
            Err(_) => Err("another user's: run as root or with CAP_SYS_PTRACE".into()),
        }
    }
}

/// CPUs that were busy between two readings, by node.
fn used(
    topology: &Topology,
    before: &BTreeMap<CpuId, Nanos>,
    after: &BTreeMap<CpuId, Nanos>,
    seconds: f64,
) -> BTreeMap<NodeId, f64> {
    let by_node = topology.nodes.iter().map(|node| {
        // A CPU that came or went meanwhile has but one reading.
        let both = node.cpus.iter().filter_map(|cpu| Some((before.get(&cpu)?, after.get(&cpu)?)));
        let ns: u64 = both.map(|(before, after)| after.0.saturating_sub(before.0)).sum();
        (node.id, ns as f64 / 1e9 / seconds.max(0.001))
    });
    by_node.collect()
}

/// On one node everything lies there: its resident memory, without a walk over page tables.
fn all_on(node: NodeId, pid: u32) -> Residence {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut words = statm.split_ascii_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
    // size, resident, shared
    let (resident, shared) = (words.nth(1).unwrap_or(0), words.next().unwrap_or(0));
    let bytes = Bytes(resident.saturating_sub(shared) * pages::size().0);
    Residence { nodes: vec![(node, bytes)], seen: vec![(node, bytes)], unseen: Vec::new() }
}

/// Faults by thread.
fn sum_up(faults: &[HintingFault]) -> BTreeMap<u32, Faults> {
    let mut pieces: BTreeSet<(u32, Option<u64>)> = BTreeSet::new();
    let mut sums: BTreeMap<u32, Faults> = BTreeMap::new();
    for fault in faults {
        let sum = sums.entry(fault.tid).or_default();
        sum.all += fault.pages.0;
        if fault.flags.has(FaultFlags::FAULT_LOCAL) {
            sum.local += fault.pages.0;
        }
        let piece = fault.address.map(|address| address / PIECE_BYTES);
        sum.pieces += u64::from(pieces.insert((fault.tid, piece)));
    }
    sums
}

#[cfg(test)]
mod tests {
    use numaherd_model::scene::Scene;

    use super::*;

    #[test]
    fn a_nodes_cpus_count_whoever_used_them() {
        let topology = Scene::two_by_four().snapshot().topology;
        let reading = |busy: [u64; 8]| -> BTreeMap<CpuId, Nanos> {
            (0..).map(CpuId).zip(busy.map(|ms| Nanos(ms * 1_000_000))).collect()
        };
        let before = reading([5, 0, 0, 0, 9, 0, 0, 0]);
        let mut after = reading([505, 250, 0, 0, 9, 0, 0, 125]);
        // Within half a second CPUs 0 and 1 of node 0 were busy for 0.75 s, CPU 7 of node 1 for 0.125 s.
        let used_by =
            |after: &_| used(&topology, &before, after, 0.5).into_values().collect::<Vec<_>>();
        assert_eq!(used_by(&after), [1.5, 0.25]);
        after.remove(&CpuId(7));
        assert_eq!(used_by(&after), [1.5, 0.0], "it went offline");
    }
}
