//! A simulated machine: CPUs, memory, links, and how fast each is.
//!
//! Bandwidths are 10⁶ bytes a second, latencies nanoseconds. Rows and columns follow the order of
//! the `[[node]]` tables, which is ascending by id. CPUs are numbered through in that order;
//! siblings of a core have neighbouring numbers. Files are read in [`file`](self::file).
//!
//! A thread that streams through memory deals with one line of 64 bytes at a time. While nobody
//! waits for memory, and its siblings are busy, that takes
//!
//! ```text
//! line_ns(cpu's node, memory's node) = work + stall × latency(cpu's, memory's) / nearest
//! stall = 64000 / stream_mb_s − work
//! ```
//!
//! where nearest is the least latency that CPUs of a node have to its own memory: a thread there writes `stream_mb_s` to
//! it, one whose own memory is farther writes less. Of a line that is only read the stall is [`Cpu::read_stall`] of that.
//! Whatever else makes it slower is waiting for others at a memory or link that is full
//! ([`crate::fabric`]).

mod derived;
pub(crate) mod file;
mod written;

use std::collections::BTreeMap;

use numaherd_model::{Bytes, Latencies, NodeId, Topology, ways};
use numaherd_scheduling::{Domains, Place};
use serde::Deserialize;

pub use derived::Measured;

/// One simulated machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name: the file's, without the ending.
    pub name: String,
    /// One line on what it stands for.
    pub title: String,
    /// Whether it was made from a topology, not read from a machine file.
    pub derived: bool,
    /// Every CPU.
    pub cpu: Cpu,
    /// What each node's memory carries, reads and writes together; infinite where the file does
    /// not say.
    pub memory_mb_s: Vec<f64>,
    /// Between the nodes: pairs of node indices, and what each direction carries.
    pub links: Vec<(usize, usize, f64)>,
    /// Whether a written line is fetched first. Then it counts twice at the memory, and once
    /// each way on the links; else once, and one way.
    pub stores_fetch: bool,
    /// Nodes, ascending by id.
    pub node: Vec<NodeSpec>,
    /// What the firmware tells the kernel.
    pub slit: Vec<Vec<u32>>,
    /// What a miss costs while nobody waits.
    pub latency_ns: Vec<Vec<f64>>,
    /// What a line costs that another CPU has written: row = the CPU's node, column = the writer's.
    pub transfer_ns: Vec<Vec<f64>>,
    /// Its last-level caches, if they count.
    pub llc: Option<Llc>,
    /// Whether a CPU sees what others have written, and where it is.
    pub coherent: bool,
    /// What the kernel's work costs.
    pub kernel: KernelCosts,
    /// Where the figures come from, by their path in the file.
    pub provenance: BTreeMap<String, String>,
}

/// A CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpu {
    /// What a thread writes to the nearest memory, its siblings busy and nobody waiting for memory.
    pub stream_mb_s: f64,
    /// How far that memory is, in nanoseconds.
    pub nearest_ns: f64,
    /// Of the time for a line, what does not depend on where the line is.
    pub work_ns: f64,
    /// What a read line waits for memory, of what a written one does.
    pub read_stall: f64,
    /// Threads of a core.
    pub threads_per_core: u32,
    /// What the busy threads of a core do together, in percent of one alone.
    pub smt_speedup_percent: f64,
}

/// Each of its last-level caches.
#[derive(Clone, Debug, PartialEq)]
pub struct Llc {
    /// What it holds.
    pub bytes: f64,
    /// What a line costs that it has.
    pub latency_ns: f64,
    /// CPUs that share one.
    pub cpus: Share,
}

/// CPUs that share a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All of a node.
    Node,
    /// So many, in the order of their numbers.
    Cpus(u32),
}

/// A node.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// The kernel's number for it.
    pub id: u32,
    /// Number of CPUs; may be 0 (CXL).
    pub cpus: u32,
    /// Memory.
    pub memory_mib: u64,
}

impl NodeSpec {
    /// Whether threads and their memory can be together there.
    #[must_use]
    pub fn is_home(&self) -> bool {
        self.cpus > 0 && self.memory_mib > 0
    }
}

/// What the kernel's own work costs, in nanoseconds. The defaults are guesses for a server of
/// 2012: a fault with its TLB miss, an interprocessor interrupt to flush TLBs, the fixed part of
/// moving one page, a page table's entry that is mostly cached. Copying itself is charged to the
/// memory it goes through.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelCosts {
    /// A hinting fault.
    pub fault_ns: u64,
    /// Arming one page for hinting faults.
    pub arm_ns: u64,
    /// A TLB flush on all CPUs that run the process.
    pub flush_ns: u64,
    /// Moving one page, the copy apart: unmap, allocate, map again.
    pub move_ns: u64,
    /// Of that, how long the process's anon_vma mutex is held (4 KiB pages only).
    pub rmap_ns: u64,
    /// A walk of the page tables, for memory touched here and there (4 KiB pages only).
    pub walk_ns: f64,
}

impl Default for KernelCosts {
    fn default() -> Self {
        KernelCosts {
            fault_ns: 1_000,
            arm_ns: 40,
            flush_ns: 4_000,
            move_ns: 2_000,
            rmap_ns: 1_500,
            walk_ns: 40.0,
        }
    }
}

/// Bytes of a cache line.
pub const LINE_BYTES: f64 = 64.0;

impl Machine {
    /// The way between nodes; `None` if two are not connected.
    #[must_use]
    pub fn routes(&self) -> Option<Routes> {
        Routes::new(&self.links, &self.latency_ns)
    }

    /// Number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.node.iter().map(|node| node.cpus as usize).sum()
    }

    /// For each CPU, the index of its node.
    #[must_use]
    pub fn node_of_cpus(&self) -> Vec<usize> {
        let cpus_of = |(index, node): (usize, &NodeSpec)| vec![index; node.cpus as usize];
        self.node.iter().enumerate().flat_map(cpus_of).collect()
    }

    /// Its scheduling domains: one last-level cache a node.
    #[must_use]
    pub fn domains(&self) -> Domains {
        let threads = self.cpu.threads_per_core as usize;
        let place =
            |(cpu, &node): (usize, &usize)| Place { core: cpu / threads, cache: node, node };
        let places: Vec<Place> = self.node_of_cpus().iter().enumerate().map(place).collect();
        Domains::new(&places, &self.slit)
    }

    /// What its kernel shows.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let node = |spec: &NodeSpec| (NodeId(spec.id), spec.cpus, Bytes(spec.memory_mib << 20));
        let topology = Topology::numbered(self.node.iter().map(node), self.slit.clone());
        topology.with_cores_of(self.cpu.threads_per_core)
    }

    /// The same with what whoever measured it found.
    #[must_use]
    pub fn measured_topology(&self) -> Topology {
        let mut topology = self.topology();
        self.latencies().fill(&mut topology);
        topology
    }

    fn latencies(&self) -> Latencies {
        let ids = |has: fn(&NodeSpec) -> bool| {
            let nodes = self.node.iter().zip(0..).filter(move |(node, _)| has(node));
            nodes.map(|(node, index)| (NodeId(node.id), index)).unzip::<_, usize, Vec<_>, Vec<_>>()
        };
        let (cpu_nodes, rows) = ids(|node| node.cpus > 0);
        let (memory_nodes, columns) = ids(|node| node.memory_mib > 0);
        let row = |&from: &usize| columns.iter().map(|&to| self.latency_ns[from][to]).collect();
        Latencies { cpu_nodes, memory_nodes, ns: rows.iter().map(row).collect() }
    }

    /// Nanoseconds in which a thread on node `from` deals with a line of node `to` while nobody
    /// waits for memory, and so many threads of its core are busy, itself among them.
    #[must_use]
    pub fn line_ns(&self, from: usize, to: usize, busy: u32) -> f64 {
        (self.cpu.work_ns + self.stall_ns(self.latency_ns[from][to])) * self.alone(busy)
    }

    /// Of that of a thread with busy siblings, what depends on where the line is: so many nanoseconds away.
    fn stall_ns(&self, latency_ns: f64) -> f64 {
        let stall_ns = LINE_BYTES * 1000.0 / self.cpu.stream_mb_s - self.cpu.work_ns;
        stall_ns * (latency_ns / self.cpu.nearest_ns)
    }

    /// For each CPU, the index of its last-level cache, where they count.
    #[must_use]
    pub fn caches(&self) -> Option<Vec<usize>> {
        let share = self.llc.as_ref()?.cpus;
        let node_of = self.node_of_cpus();
        Some(match share {
            Share::Node => node_of,
            Share::Cpus(cpus) => (0..node_of.len()).map(|cpu| cpu / cpus as usize).collect(),
        })
    }

    /// A thread alone on its core has all of its pipelines and misses in flight to itself: of the time
    /// that it takes with all siblings busy, so much with `busy` of the core's threads. Each of these adds as much to
    /// what the core does (guessed: more than two are rarely measured).
    ///
    /// Example: four threads that do 160 % of one together, 40 % each. Two do 120 %, 60 % each: two thirds of the time;
    /// alone it is two fifths.
    fn alone(&self, busy: u32) -> f64 {
        let threads = f64::from(self.cpu.threads_per_core);
        let together = |busy: f64| match self.cpu.threads_per_core {
            1 => 1.0,
            _ => {
                1.0 + (self.cpu.smt_speedup_percent / 100.0 - 1.0) * (busy - 1.0) / (threads - 1.0)
            }
        };
        let busy = f64::from(busy);
        (busy / together(busy)) / (threads / together(threads))
    }

    /// Nanoseconds a thread on node `from` waits for a line of node `to` that nothing announced,
    /// while nobody else waits for memory. Small pages have to be found first.
    #[must_use]
    pub fn miss_ns(&self, from: usize, to: usize, huge_pages: bool) -> f64 {
        self.latency_ns[from][to] + if huge_pages { 0.0 } else { self.kernel.walk_ns }
    }
}

/// How a thread goes over lines: writing or only reading, with so many threads of its core busy, itself among them,
/// and with how much of the machine's work for a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub writes: bool,
    pub busy: u32,
    pub work: f64,
}

/// Nanoseconds for a line while nobody waits: of memory, from each node to each; of the last-level cache, on each
/// node; and for a miss that nothing announced, from each node to each.
#[derive(Clone, Debug)]
pub(crate) struct Speeds {
    nodes: usize,
    /// Threads of a core: so many figures there are for each line that is written, by how many of them are busy, and
    /// as many for each that is read.
    threads: usize,
    memory: Vec<f64>,
    cached: Vec<f64>,
    miss: Vec<f64>,
    /// Of a line, by how many are busy, what does not depend on where it is.
    work_ns: Vec<f64>,
    /// By how many are busy, how much longer computing takes than alone.
    computing: Vec<f64>,
}

impl Speeds {
    pub(crate) fn of(machine: &Machine, huge_pages: bool) -> Speeds {
        let nodes = machine.node.len();
        let threads = machine.cpu.threads_per_core;
        let alone: Vec<f64> = (1..=threads).map(|busy| machine.alone(busy)).collect();
        let line = |latency_ns: f64| -> Vec<f64> {
            let stall_ns = machine.stall_ns(latency_ns);
            let less_ns = stall_ns * (1.0 - machine.cpu.read_stall);
            let written = alone.iter().map(|alone| (machine.cpu.work_ns + stall_ns) * alone);
            let read =
                written.clone().zip(&alone).map(|(written, alone)| written - less_ns * alone);
            written.chain(read).collect()
        };
        let cached_ns = machine.llc.as_ref().map_or(f64::NAN, |llc| llc.latency_ns);
        let all = || (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        Speeds {
            nodes,
            threads: threads as usize,
            memory: all().flat_map(|(from, to)| line(machine.latency_ns[from][to])).collect(),
            cached: line(cached_ns),
            miss: all().map(|(from, to)| machine.miss_ns(from, to, huge_pages)).collect(),
            work_ns: alone.iter().map(|alone| machine.cpu.work_ns * alone).collect(),
            computing: alone.iter().map(|ns| ns / alone[0]).collect(),
        }
    }

    /// What a line takes at least, wherever it is and whatever part of the machine's work for it is done.
    pub(crate) fn least_ns(&self) -> f64 {
        // Without a cache that counts, those figures are none.
        let lines = self.memory.iter().chain(&self.cached).filter(|ns| !ns.is_nan());
        let most = self.work_ns.iter().copied().fold(0.0, f64::max);
        lines.fold(f64::INFINITY, |least, &ns| least.min(ns - most)).max(0.0)
    }

    /// From node `from`, of node `to`'s memory.
    pub(crate) fn line_ns(&self, from: usize, to: usize, how: How) -> f64 {
        let first = (from * self.nodes + to) * 2 * self.threads;
        self.of_line(&self.memory[first..], how)
    }

    /// Of the last-level cache. Of no meaning where those do not count.
    pub(crate) fn cached_ns(&self, how: How) -> f64 {
        self.of_line(&self.cached, how)
    }

    fn of_line(&self, line: &[f64], how: How) -> f64 {
        let busy = how.busy as usize - 1;
        line[usize::from(!how.writes) * self.threads + busy] - self.work_ns[busy] * (1.0 - how.work)
    }

    /// How much longer a thread computes, without memory, than alone on its core, with so many busy there.
    pub(crate) fn computing(&self, busy: u32) -> f64 {
        self.computing[busy as usize - 1]
    }

    pub(crate) fn miss_ns(&self, from: usize, to: usize) -> f64 {
        self.miss[from * self.nodes + to]
    }
}

/// Links and the ways over them.
#[derive(Clone, Debug, PartialEq)]
pub struct Routes {
    /// Node indices at the ends of each directed link, and what it carries.
    pub directed: Vec<(usize, usize, f64)>,
    /// `via[a][b]`: links from `a` to `b`.
    pub via: Vec<Vec<Vec<usize>>>,
}

impl Routes {
    /// As the emulated machine has them: fewest links, then least latency summed up, then the link named first; `None`
    /// if two nodes are not connected.
    fn new(links: &[(usize, usize, f64)], latency_ns: &[Vec<f64>]) -> Option<Routes> {
        let both = |&(a, b, mb_s): &(usize, usize, f64)| [(a, b, mb_s), (b, a, mb_s)];
        let directed: Vec<(usize, usize, f64)> = links.iter().flat_map(both).collect();
        let ends: Vec<(usize, usize)> = directed.iter().map(|&(a, b, _)| (a, b)).collect();
        let nodes = latency_ns.len();
        let far = |a: usize, b: usize| latency_ns[a][b];
        let from = |ways: Vec<Option<Vec<usize>>>| ways.into_iter().collect();
        let via = ways(nodes, &ends, far).into_iter().map(from).collect::<Option<Vec<_>>>()?;
        Some(Routes { directed, via })
    }
}

#[cfg(test)]
pub(crate) mod tests;
