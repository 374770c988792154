//! Machine files: what a simulated machine consists of, and where each figure comes from.
//!
//! Bandwidths are 10⁶ bytes a second, latencies nanoseconds. Rows and columns follow the order of
//! the `[[node]]` tables, which is ascending by id. CPUs are numbered through in that order;
//! siblings of a core have neighbouring numbers.
//!
//! A task that streams through memory writes a line of 64 bytes in
//! `latency(cpu's node, memory's node) / overlap` nanoseconds while nobody else is about; `overlap`
//! is given through `cpu.stream_mb_s`, which is what one thread, its siblings busy too, writes to
//! local memory. Everything slower than that is queueing ([`crate::fabric`]).

use std::collections::BTreeMap;

use numaherd_model::{Bytes, CpuId, Node, NodeId, Topology};
use numaherd_scheduling::{Domains, Place};
use serde::Deserialize;

use crate::SimError;

/// One simulated machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name: the file's, without the ending.
    #[serde(skip)]
    pub name: String,
    /// One line on what it stands for.
    pub title: String,
    /// Every CPU.
    pub cpu: Cpu,
    /// Every node's memory.
    pub memory: Memory,
    /// Between the nodes.
    pub links: Links,
    /// Nodes, ascending by id.
    pub node: Vec<NodeSpec>,
    /// How far they are from each other.
    pub distance: Distance,
    /// What the kernel's work costs.
    #[serde(default)]
    pub kernel: KernelCosts,
    /// Where the figures come from, by their path in the file.
    pub provenance: BTreeMap<String, String>,
}

/// A CPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Bytes a thread writes to local memory, its siblings busy and nobody waiting for memory.
    pub stream_mb_s: f64,
    /// Threads of a core.
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// What the busy threads of a core do together, in percent of one alone.
    #[serde(default = "hundred")]
    pub smt_speedup_percent: f64,
}

fn one() -> u32 {
    1
}

fn hundred() -> f64 {
    100.0
}

/// A node's memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// What its memory controller carries, reads and writes together. A written line is read
    /// first and written back later: it counts twice.
    pub bandwidth_mb_s: f64,
}

/// Links between nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// What a link carries in each direction, headers taken off.
    pub bandwidth_mb_s: f64,
    /// Pairs of node ids that are linked; all with all where it is absent.
    pub between: Option<Vec<(u32, u32)>>,
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

/// Distances between nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distance {
    /// What the firmware tells the kernel.
    pub slit: Vec<Vec<u32>>,
    /// What a miss costs while nobody waits.
    pub latency_ns: Vec<Vec<f64>>,
}

/// What the kernel's own work costs, in nanoseconds. The defaults are guesses for a server of
/// 2012: a fault with its TLB miss, an interprocessor interrupt to flush TLBs, the fixed part of
/// moving one page. Copying itself is charged to the memory it goes through.
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
}

impl Default for KernelCosts {
    fn default() -> Self {
        KernelCosts { fault_ns: 1_000, arm_ns: 40, flush_ns: 4_000, move_ns: 2_000, rmap_ns: 1_500 }
    }
}

/// Bytes of a cache line.
pub const LINE_BYTES: f64 = 64.0;

impl Machine {
    /// Reads a machine file's text. `path` is only for messages.
    ///
    /// # Errors
    /// [`SimError::Parse`] with path, line, and what was expected.
    pub fn parse(name: &str, path: &str, text: &str) -> Result<Machine, SimError> {
        let mut machine: Machine =
            toml::from_str(text).map_err(|e| SimError::toml(path, text, &e))?;
        machine.name = name.to_string();
        machine.check().map_err(|(field, expected)| SimError::Parse {
            path: path.into(),
            line: line_of(text, field),
            expected,
        })?;
        Ok(machine)
    }

    /// The first thing wrong: the field's path, and what was expected of it.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let nodes = self.node.len();
        if nodes == 0 || nodes > 64 {
            return Err(("node", format!("node: 1 to 64 [[node]] tables, found {nodes}")));
        }
        if !self.node.is_sorted_by(|a, b| a.id < b.id) {
            return Err(("node", "node.id: ascending ids".into()));
        }
        let positive = [
            ("cpu.stream_mb_s", self.cpu.stream_mb_s),
            ("memory.bandwidth_mb_s", self.memory.bandwidth_mb_s),
            ("links.bandwidth_mb_s", self.links.bandwidth_mb_s),
        ];
        for (field, value) in positive {
            if !(value.is_finite() && value > 0.0) {
                return Err((field, format!("{field}: a number above 0, found {value}")));
            }
        }
        let threads = self.cpu.threads_per_core;
        if threads == 0 || self.node.iter().any(|node| node.cpus % threads != 0) {
            return Err((
                "cpu.threads_per_core",
                "cpu.threads_per_core: a divisor of every node's cpus".into(),
            ));
        }
        let most = 100.0 * f64::from(threads);
        if !(100.0..=most).contains(&self.cpu.smt_speedup_percent) {
            return Err((
                "cpu.smt_speedup_percent",
                format!("cpu.smt_speedup_percent: 100 to {most}"),
            ));
        }
        let cpus: u32 = self.node.iter().map(|node| node.cpus).sum();
        if cpus == 0 || cpus > 4096 {
            return Err(("node.cpus", format!("node.cpus: 1 to 4096 in all, found {cpus}")));
        }
        if self.node.iter().all(|node| node.memory_mib == 0) {
            return Err(("node.memory_mib", "node.memory_mib: a node with memory".into()));
        }
        self.check_distances(nodes)?;
        self.check_links()
    }

    fn check_distances(&self, nodes: usize) -> Result<(), (&'static str, String)> {
        let Distance { slit, latency_ns } = &self.distance;
        if slit.len() != nodes || slit.iter().any(|row| row.len() != nodes) {
            return Err(("distance.slit", format!("distance.slit: {nodes} rows of {nodes}")));
        }
        if latency_ns.len() != nodes || latency_ns.iter().any(|row| row.len() != nodes) {
            return Err((
                "distance.latency_ns",
                format!("distance.latency_ns: {nodes} rows of {nodes}"),
            ));
        }
        let wrong = |a: usize, b: usize| {
            if a == b { slit[a][b] != 10 } else { !(11..=254).contains(&slit[a][b]) }
        };
        if (0..nodes).any(|a| (0..nodes).any(|b| wrong(a, b))) {
            return Err((
                "distance.slit",
                "distance.slit: 10 on the diagonal, 11 to 254 elsewhere".into(),
            ));
        }
        let slower =
            |a: usize| latency_ns[a].iter().all(|&ns| ns.is_finite() && ns >= latency_ns[a][a]);
        if (0..nodes).any(|a| latency_ns[a][a] <= 0.0 || !slower(a)) {
            return Err((
                "distance.latency_ns",
                "distance.latency_ns: above 0, nothing nearer than a node's own memory".into(),
            ));
        }
        Ok(())
    }

    fn check_links(&self) -> Result<(), (&'static str, String)> {
        for &(a, b) in self.links.between.iter().flatten() {
            if a == b || [a, b].iter().any(|id| self.node.iter().all(|node| node.id != *id)) {
                return Err((
                    "links.between",
                    format!("links.between: pairs of different node ids, found [{a}, {b}]"),
                ));
            }
        }
        match self.routes() {
            Some(_) => Ok(()),
            None => Err(("links.between", "links.between: links that connect all nodes".into())),
        }
    }

    /// Directed links, and for each pair of nodes the links from one to the other: fewest hops,
    /// then the lower node first. `None` if two nodes are not connected.
    #[must_use]
    pub fn routes(&self) -> Option<Routes> {
        let nodes = self.node.len();
        let index = |id: u32| self.node.iter().position(|node| node.id == id);
        let mut directed: Vec<(usize, usize)> = match &self.links.between {
            Some(pairs) => pairs
                .iter()
                .filter_map(|&(a, b)| index(a).zip(index(b)))
                .flat_map(|(a, b)| [(a, b), (b, a)])
                .collect(),
            None => (0..nodes)
                .flat_map(|a| (0..nodes).map(move |b| (a, b)))
                .filter(|(a, b)| a != b)
                .collect(),
        };
        directed.sort_unstable();
        directed.dedup();
        let mut via = vec![vec![None; nodes]; nodes];
        for (from, row) in via.iter_mut().enumerate() {
            row[from] = Some(Vec::new());
            let mut reached = vec![from];
            let mut at = 0;
            while at < reached.len() {
                let here = reached[at];
                let path: Vec<usize> = row[here].clone()?;
                for (link, &(a, b)) in directed.iter().enumerate() {
                    if a == here && row[b].is_none() {
                        row[b] = Some([&path[..], &[link]].concat());
                        reached.push(b);
                    }
                }
                at += 1;
            }
        }
        let via = via.into_iter().map(|row| row.into_iter().collect::<Option<Vec<_>>>());
        Some(Routes { via: via.collect::<Option<Vec<_>>>()?, directed })
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
        Domains::new(&places, &self.distance.slit)
    }

    /// What its kernel shows.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let mut cpus = (0..).map(CpuId);
        let node = |spec: &NodeSpec| {
            let memory = Bytes(spec.memory_mib << 20);
            let cpus = cpus.by_ref().take(spec.cpus as usize).collect();
            Node { id: NodeId(spec.id), cpus, memory, free: memory }
        };
        let nodes = self.node.iter().map(node).collect();
        Topology { nodes, distances: self.distance.slit.clone() }
    }

    /// Nanoseconds in which a thread on node `from` writes a line of node `to` while nobody waits
    /// for memory; `crowded`: its siblings are busy too.
    #[must_use]
    pub fn line_ns(&self, from: usize, to: usize, crowded: bool) -> f64 {
        let latency = &self.distance.latency_ns;
        let local_ns = LINE_BYTES * 1000.0 / self.cpu.stream_mb_s;
        let alone = if crowded {
            1.0
        } else {
            self.cpu.smt_speedup_percent / (100.0 * f64::from(self.cpu.threads_per_core))
        };
        // The stall grows with the latency; a thread alone on its core has all of the core's
        // misses in flight to itself.
        local_ns * alone * latency[from][to] / latency[from][from]
    }
}

/// Links and the ways over them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// Node indices at the ends of each directed link.
    pub directed: Vec<(usize, usize)>,
    /// `via[a][b]`: links from `a` to `b`.
    pub via: Vec<Vec<Vec<usize>>>,
}

/// The line of a field in a TOML text, from 1: the key within its table, or the table.
fn line_of(text: &str, field: &str) -> usize {
    let (table, key) = field.split_once('.').unwrap_or((field, ""));
    let mut in_table = false;
    let mut found = 1;
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.starts_with('[') {
            in_table = line.trim_matches(|c| c == '[' || c == ']') == table;
            if in_table && (found == 1 || key.is_empty()) {
                found = number;
            }
        } else if in_table && !key.is_empty() && line.split('=').next().map(str::trim) == Some(key)
        {
            return number;
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two nodes of two CPUs whose threads write a line in 64 ns locally and in 128 ns remotely.
    pub const SMALL: &str = r#"
title = "two nodes of two CPUs"
[cpu]
stream_mb_s = 1000
[memory]
bandwidth_mb_s = 3000
[links]
bandwidth_mb_s = 10000
[[node]]
id = 0
cpus = 2
memory_mib = 64
[[node]]
id = 1
cpus = 2
memory_mib = 64
[distance]
slit = [[10, 21], [21, 10]]
latency_ns = [[100, 200], [200, 100]]
[provenance]
"cpu.stream_mb_s" = "chosen: a line in 64 ns"
"#;

    pub fn small() -> Machine {
        Machine::parse("small", "small.toml", SMALL).unwrap()
    }

    #[test]
    fn a_line_takes_as_long_as_the_file_says() {
        let machine = small();
        // 64 bytes at 1000 MB/s = 64 ns; twice the latency, twice the time.
        assert_eq!(machine.line_ns(0, 0, true), 64.0);
        assert_eq!(machine.line_ns(0, 1, true), 128.0);
    }

    #[test]
    fn a_wrong_file_says_line_field_and_what_was_expected() {
        let says = |from: &str, to: &str| {
            let text = SMALL.replacen(from, to, 1);
            assert_ne!(text, SMALL);
            Machine::parse("x", "x.toml", &text).unwrap_err().to_string()
        };
        assert_eq!(
            says("stream_mb_s = 1000", "stream_mb_s = 0"),
            "x.toml:4: expected cpu.stream_mb_s: a number above 0, found 0"
        );
        assert!(says("cpus = 2", "cpus = \"two\"").starts_with("x.toml:11: "));
        assert!(says("stream_mb_s", "stream").contains("unknown field `stream`"));
        assert!(
            says("[[10, 21], ", "[[10], ").contains("x.toml:18: expected distance.slit: 2 rows")
        );
        assert!(says("[[100, 200]", "[[300, 200]").contains("distance.latency_ns"));
        let between = says("bandwidth_mb_s = 10000", "bandwidth_mb_s = 10000\nbetween = [[0, 7]]");
        assert!(between.contains("links.between") && between.contains("[0, 7]"), "{between}");
    }

    #[test]
    fn a_square_goes_round_its_corners() {
        let node = "[[node]]\nid = 2\ncpus = 1\nmemory_mib = 64\n[[node]]\nid = 3\ncpus = 1\nmemory_mib = 64\n[distance]";
        let text = SMALL
            .replace("[distance]", node)
            .replace("10000", "10000\nbetween = [[0, 1], [1, 3], [3, 2], [2, 0]]")
            .replace(
                "[[10, 21], [21, 10]]",
                "[[10,20,20,30],[20,10,30,20],[20,30,10,20],[30,20,20,10]]",
            )
            .replace("[[100, 200], [200, 100]]", "[[1,2,2,3],[2,1,3,2],[2,3,1,2],[3,2,2,1]]");
        let routes = Machine::parse("x", "x", &text).unwrap().routes().unwrap();
        let ends =
            |links: &[usize]| links.iter().map(|&link| routes.directed[link]).collect::<Vec<_>>();
        assert_eq!(ends(&routes.via[0][3]), [(0, 1), (1, 3)]);
        assert_eq!(ends(&routes.via[2][2]), []);
    }
}
