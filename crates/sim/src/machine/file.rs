//! Machine files. The format is that of the emulated machine, so that one file serves both; what
//! only the emulated machine needs is passed over, and what only the simulator needs stands in the
//! table `[sim]`.
//!
//! Where `[sim]` is missing, a thread's speed follows from the emulated machine's figures: ten
//! instructions for a line of 64 bytes, and one miss with the overlap of `[prefetch]`.

use std::collections::BTreeMap;

use numaherd_model::places::{Pair, header, line_of};
use serde::Deserialize;

use super::{Cpu, KernelCosts, LINE_BYTES, Llc, Machine, NodeSpec, Routes, Share};
use crate::{SimError, wrong};

/// Machines that come with numaherd.
const BUILT_IN: &[(&str, &str)] = &[
    ("2x4", include_str!("../../../../machines/2x4.toml")),
    ("2x4-near", include_str!("../../../../machines/2x4-near.toml")),
    ("4x2", include_str!("../../../../machines/4x2.toml")),
    ("8x1", include_str!("../../../../machines/8x1.toml")),
    ("autonuma", include_str!("../../../../machines/autonuma.toml")),
    ("two-socket", include_str!("../../../../machines/two-socket.toml")),
    ("snc2", include_str!("../../../../machines/snc2.toml")),
    ("nps4", include_str!("../../../../machines/nps4.toml")),
    ("sparse", include_str!("../../../../machines/sparse.toml")),
    ("cpu-only", include_str!("../../../../machines/cpu-only.toml")),
    ("cxl", include_str!("../../../../machines/cxl.toml")),
    ("autonuma-slides", include_str!("../../../../machines/documents/autonuma-slides.toml")),
    ("numacore", include_str!("../../../../machines/documents/numacore.toml")),
    ("proliant-585", include_str!("../../../../machines/documents/proliant-585.toml")),
    ("numaq", include_str!("../../../../machines/documents/numaq.toml")),
    ("x5-8", include_str!("../../../../machines/documents/x5-8.toml")),
];

/// Instructions for a line in the workloads' inner loop: eight stores of 8 bytes and the loop's
/// own. Counted in the source; the emulated machine's compiler may do it in fewer.
const INSTRUCTIONS_PER_LINE: f64 = 10.0;

/// Kernel costs where a file has no `[sim.kernel]` and is for the emulated machine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    cpu: CpuTable,
    #[serde(rename = "cache")]
    _cache: Option<toml::Table>,
    llc: Option<LlcTable>,
    coherence: Option<Coherence>,
    prefetch: Option<Prefetch>,
    memory: Option<Memory>,
    links: Option<Links>,
    node: Vec<NodeSpec>,
    distance: Distance,
    sim: Option<SimTable>,
    #[serde(default)]
    provenance: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuTable {
    instructions_per_second: Option<f64>,
    #[serde(default = "one")]
    threads_per_core: u32,
    smt_speedup_percent: Option<f64>,
}

fn one() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LlcTable {
    bytes: f64,
    #[serde(rename = "ways")]
    _ways: Option<u32>,
    latency_ns: f64,
    cpus: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Coherence {
    transfer_ns: Option<Vec<Vec<f64>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prefetch {
    load_overlap: Option<f64>,
    store_overlap: Option<f64>,
    stores_fetch: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    bandwidth_mb_s: Rates,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Links {
    bandwidth_mb_s: Rates,
    between: Option<Vec<Pair<u32>>>,
}

/// No memory takes longer, and times of a whole run of such accesses can still be told.
const MOST_LATENCY_NS: f64 = 1e9;

/// Nothing carries less, and times of a piece of memory can still be told.
const LEAST_MB_S: f64 = 0.001;

/// One figure for all, or one for each.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number or a list of numbers")]
enum Rates {
    All(f64),
    Each(Vec<f64>),
}

impl Rates {
    /// As many as wanted.
    fn expand(&self, field: &'static str, count: usize) -> Result<Vec<f64>, Wrong> {
        let rates = match self {
            Rates::All(rate) => vec![*rate; count],
            Rates::Each(rates) if rates.len() == count => rates.clone(),
            Rates::Each(rates) => {
                let found = rates.len();
                return Err((field, format!("{field}: one figure or {count}, found {found}")));
            }
        };
        rates.iter().try_for_each(|&rate| sound_rate(field, rate))?;
        Ok(rates)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Distance {
    slit: Vec<Vec<u32>>,
    #[serde(default)]
    latency_ns: Vec<Vec<f64>>,
}

/// What only the simulator needs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SimTable {
    stream_mb_s: f64,
    #[serde(default)]
    work_ns: f64,
    #[serde(default)]
    kernel: KernelCosts,
}

/// A field and what was expected of it.
type Wrong = (&'static str, String);

fn positive(field: &'static str, value: f64) -> Result<(), Wrong> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err((field, format!("{field}: a number above 0, found {value}")))
}

fn sound_rate(field: &'static str, mb_s: f64) -> Result<(), Wrong> {
    positive(field, mb_s)?;
    if mb_s >= LEAST_MB_S {
        return Ok(());
    }
    Err((field, format!("{field}: {LEAST_MB_S} or more, found {mb_s}")))
}

/// Whether there is a figure from each node to each.
fn square<T>(rows: &[Vec<T>], nodes: usize, field: &'static str) -> Result<(), Wrong> {
    if rows.len() == nodes && rows.iter().all(|row| row.len() == nodes) {
        return Ok(());
    }
    Err((field, format!("{field}: {nodes} rows of {nodes}")))
}

impl Machine {
    /// Names of the machines that come with numaherd.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// One of them.
    ///
    /// # Errors
    /// None, unless a file that comes with numaherd is wrong.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Result<Machine, SimError>> {
        Machine::built_in_text(name).map(|text| Machine::parse(name, name, text))
    }

    /// The file of one of them.
    #[must_use]
    pub fn built_in_text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads a machine file's text. `path` is only for messages.
    ///
    /// # Errors
    /// [`SimError::Parse`] with path, line, and what was expected.
    pub fn parse(name: &str, path: &str, text: &str) -> Result<Machine, SimError> {
        let file: File = toml::from_str(text).map_err(|e| wrong::told(path, text, &e))?;
        // What is wrong with all tables of a name shows at the last.
        let tables = |field| text.lines().filter(|line| header(line) == Some(field)).count();
        file.machine(name).map_err(|(field, expected)| {
            let line = line_of(text, field, tables(field).saturating_sub(1));
            let key = field.rsplit('.').next().unwrap_or_default();
            let expected = wrong::with_found(text, line, key, expected);
            SimError::Parse { path: path.into(), line, expected }
        })
    }
}

impl File {
    fn machine(self, name: &str) -> Result<Machine, Wrong> {
        self.check_nodes()?;
        self.check_prefetch()?;
        let nodes = self.node.len();
        let latency_ns = self.latencies()?;
        let own = (0..latency_ns.len()).filter(|&node| self.node[node].is_home());
        let nearest_ns = own.map(|node| latency_ns[node][node]).fold(f64::INFINITY, f64::min);
        let cpu = self.cpu(nearest_ns)?;
        let memory_mb_s = match &self.memory {
            Some(memory) => memory.bandwidth_mb_s.expand("memory.bandwidth_mb_s", nodes)?,
            None => vec![f64::INFINITY; nodes],
        };
        let links = self.links(&latency_ns)?;
        let transfer_ns = self.transfers(&latency_ns)?;
        let llc = self.llc()?;
        self.check_kernel()?;
        let stores_fetch = self.prefetch.as_ref().and_then(|p| p.stores_fetch).unwrap_or(true);
        Ok(Machine {
            name: name.into(),
            title: self.title,
            derived: false,
            cpu,
            memory_mb_s,
            links,
            stores_fetch,
            node: self.node,
            slit: self.distance.slit,
            latency_ns,
            transfer_ns,
            llc,
            coherent: self.coherence.is_some(),
            kernel: self.sim.map(|sim| sim.kernel).unwrap_or_default(),
            provenance: self.provenance,
        })
    }

    /// The lab's bounds.
    fn check_prefetch(&self) -> Result<(), Wrong> {
        let Some(prefetch) = &self.prefetch else { return Ok(()) };
        let told = [
            ("prefetch.load_overlap", prefetch.load_overlap),
            ("prefetch.store_overlap", prefetch.store_overlap),
        ];
        match told.iter().find(|(_, told)| told.is_some_and(|told| !(1.0..=64.0).contains(&told))) {
            Some((field, _)) => Err((field, format!("{field}: 1 to 64"))),
            None => Ok(()),
        }
    }

    fn check_nodes(&self) -> Result<(), Wrong> {
        let nodes = self.node.len();
        if nodes == 0 || nodes > 64 {
            return Err(("node", format!("node: 1 to 64 [[node]] tables, found {nodes}")));
        }
        if !self.node.is_sorted_by(|a, b| a.id < b.id) {
            return Err(("node", "node.id: ascending ids".into()));
        }
        let cpus: u64 = self.node.iter().map(|node| u64::from(node.cpus)).sum();
        if cpus == 0 || cpus > 4096 {
            return Err(("node.cpus", format!("node.cpus: 1 to 4096 in all, found {cpus}")));
        }
        if self.node.iter().any(|node| node.memory_mib > 1 << 30) {
            return Err(("node.memory_mib", "node.memory_mib: at most 2^30".into()));
        }
        if self.node.iter().all(|node| node.memory_mib == 0) {
            return Err(("node.memory_mib", "node.memory_mib: a node with memory".into()));
        }
        if !self.node.iter().any(NodeSpec::is_home) {
            return Err(("node.cpus", "node.cpus: a node with both CPUs and memory".into()));
        }
        let threads = self.cpu.threads_per_core;
        if threads == 0 || self.node.iter().any(|node| !node.cpus.is_multiple_of(threads)) {
            let expected = "cpu.threads_per_core: a divisor of every node's cpus";
            return Err(("cpu.threads_per_core", expected.into()));
        }
        Ok(())
    }

    /// Ten figures of at most a second each never overflow.
    fn check_kernel(&self) -> Result<(), Wrong> {
        let Some(SimTable { kernel, .. }) = &self.sim else { return Ok(()) };
        let whole = [
            ("sim.kernel.fault_ns", kernel.fault_ns),
            ("sim.kernel.arm_ns", kernel.arm_ns),
            ("sim.kernel.flush_ns", kernel.flush_ns),
            ("sim.kernel.move_ns", kernel.move_ns),
            ("sim.kernel.rmap_ns", kernel.rmap_ns),
        ];
        if let Some((field, found)) = whole.into_iter().find(|(_, ns)| *ns > 1_000_000_000) {
            return Err((field, format!("{field}: at most 1e9, found {found}")));
        }
        if !(0.0..=1e9).contains(&kernel.walk_ns) {
            return Err(("sim.kernel.walk_ns", "sim.kernel.walk_ns: 0 to 1e9".into()));
        }
        if kernel.rmap_ns > kernel.move_ns {
            let expected = "sim.kernel.rmap_ns: at most move_ns, of which it is a part";
            return Err(("sim.kernel.rmap_ns", expected.into()));
        }
        Ok(())
    }

    fn latencies(&self) -> Result<Vec<Vec<f64>>, Wrong> {
        let nodes = self.node.len();
        let Distance { slit, latency_ns } = &self.distance;
        square(slit, nodes, "distance.slit")?;
        let wrong = |a: usize, b: usize| {
            if a == b { slit[a][b] != 10 } else { !(11..=254).contains(&slit[a][b]) }
        };
        if (0..nodes).any(|a| (0..nodes).any(|b| wrong(a, b))) {
            let expected = "distance.slit: 10 on the diagonal, 11 to 254 elsewhere";
            return Err(("distance.slit", expected.into()));
        }
        if latency_ns.is_empty() {
            // As on the emulated machine: 100 ns for SLIT 10, and in proportion.
            let row = |row: &Vec<u32>| row.iter().map(|&d| f64::from(d) * 10.0).collect();
            return Ok(slit.iter().map(row).collect());
        }
        square(latency_ns, nodes, "distance.latency_ns")?;
        let slower = |a: usize| {
            let likely = latency_ns[a][a]..=MOST_LATENCY_NS;
            latency_ns[a].iter().all(|ns| likely.contains(ns))
        };
        if (0..nodes).any(|a| latency_ns[a][a] <= 0.0 || !slower(a)) {
            let expected = "distance.latency_ns: above 0, a second (1e9) at the most, nothing nearer than a node's own memory";
            return Err(("distance.latency_ns", expected.into()));
        }
        Ok(latency_ns.clone())
    }

    fn transfers(&self, latency_ns: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, Wrong> {
        let told = self.coherence.as_ref().and_then(|coherence| coherence.transfer_ns.as_ref());
        let transfer_ns = told.map_or(latency_ns, Vec::as_slice).to_vec();
        square(&transfer_ns, self.node.len(), "coherence.transfer_ns")?;
        transfer_ns.iter().flatten().try_for_each(|&ns| positive("coherence.transfer_ns", ns))?;
        Ok(transfer_ns)
    }

    fn llc(&self) -> Result<Option<Llc>, Wrong> {
        let Some(llc) = &self.llc else { return Ok(None) };
        positive("llc.bytes", llc.bytes)?;
        positive("llc.latency_ns", llc.latency_ns)?;
        let is_divisor =
            |&cpus: &u32| cpus > 0 && self.node.iter().all(|node| node.cpus.is_multiple_of(cpus));
        let cpus = match llc.cpus {
            None => Share::Node,
            Some(cpus) if is_divisor(&cpus) => Share::Cpus(cpus),
            Some(_) => return Err(("llc.cpus", "llc.cpus: a divisor of every node's cpus".into())),
        };
        Ok(Some(Llc { bytes: llc.bytes, latency_ns: llc.latency_ns, cpus }))
    }

    fn cpu(&self, nearest_ns: f64) -> Result<Cpu, Wrong> {
        let threads_per_core = self.cpu.threads_per_core;
        let most = 100.0 * f64::from(threads_per_core);
        let smt_speedup_percent = self.cpu.smt_speedup_percent.unwrap_or(most);
        if !(100.0..=most).contains(&smt_speedup_percent) {
            let expected = format!("cpu.smt_speedup_percent: 100 to {most}");
            return Err(("cpu.smt_speedup_percent", expected));
        }
        let (stream_mb_s, work_ns, read_stall) = match (&self.sim, self.cpu.instructions_per_second)
        {
            (Some(sim), _) => (sim.stream_mb_s, sim.work_ns, 1.0),
            (None, Some(speed)) => {
                positive("cpu.instructions_per_second", speed)?;
                let overlap = |told: fn(&Prefetch) -> Option<f64>| {
                    self.prefetch.as_ref().and_then(told).unwrap_or(1.0)
                };
                let (stores, loads) = (overlap(|p| p.store_overlap), overlap(|p| p.load_overlap));
                let slow = most / smt_speedup_percent;
                let work_ns = INSTRUCTIONS_PER_LINE * 1e9 / speed * slow;
                let stream_mb_s = LINE_BYTES * 1000.0 / (work_ns + nearest_ns / stores);
                (stream_mb_s, work_ns, stores / loads)
            }
            (None, None) => {
                let expected = "sim.stream_mb_s (or cpu.instructions_per_second, as for the lab)";
                return Err(("sim", expected.into()));
            }
        };
        sound_rate("sim.stream_mb_s", stream_mb_s)?;
        if !(0.0..LINE_BYTES * 1000.0 / stream_mb_s).contains(&work_ns) {
            let line_ns = LINE_BYTES * 1000.0 / stream_mb_s;
            let expected = format!("sim.work_ns: 0 to the {line_ns:.1} ns of a whole line");
            return Err(("sim.work_ns", expected));
        }
        Ok(Cpu {
            stream_mb_s,
            nearest_ns,
            work_ns,
            read_stall,
            threads_per_core,
            smt_speedup_percent,
        })
    }

    fn links(&self, latency_ns: &[Vec<f64>]) -> Result<Vec<(usize, usize, f64)>, Wrong> {
        let nodes = self.node.len();
        let slit = &self.distance.slit;
        let index = |id: u32| self.node.iter().position(|node| node.id == id);
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        match self.links.as_ref().and_then(|links| links.between.as_ref()) {
            Some(between) => {
                for &Pair(a, b) in between {
                    let known = index(a).zip(index(b)).filter(|(a, b)| a != b);
                    let expected =
                        || format!("links.between: pairs of different node ids, found [{a}, {b}]");
                    let (a, b) = known.ok_or_else(|| ("links.between", expected()))?;
                    if pairs.contains(&(a, b)) || pairs.contains(&(b, a)) {
                        let (a, b) = (self.node[a].id, self.node[b].id);
                        let expected =
                            format!("links.between: each pair once, found [{a}, {b}] again");
                        return Err(("links.between", expected));
                    }
                    pairs.push((a, b));
                }
            }
            None => pairs.extend(nearest(slit)),
        }
        let field = "links.bandwidth_mb_s";
        let rates = match &self.links {
            Some(links) => links.bandwidth_mb_s.expand(field, pairs.len())?,
            None => vec![f64::INFINITY; pairs.len()],
        };
        let links: Vec<(usize, usize, f64)> =
            pairs.into_iter().zip(rates).map(|((a, b), rate)| (a, b, rate)).collect();
        if Routes::new(&links, latency_ns).is_some() || nodes == 1 {
            return Ok(links);
        }
        Err(("links.between", "links.between: links that connect all nodes".into()))
    }
}

/// The pairs of nodes whose distance is the least that either has to another node; all pairs if
/// these do not connect all nodes.
pub(super) fn nearest(slit: &[Vec<u32>]) -> Vec<(usize, usize)> {
    let nodes = slit.len();
    let all: Vec<(usize, usize)> =
        (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b))).collect();
    let of = |a: usize| (0..nodes).filter(|&b| b != a).map(|b| slit[a][b]).min();
    let least: Vec<Option<u32>> = (0..nodes).map(of).collect();
    let near = |&(a, b): &(usize, usize)| [least[a], least[b]].contains(&Some(slit[a][b]));
    let some: Vec<(usize, usize)> = all.iter().copied().filter(near).collect();
    let linked: Vec<_> = some.iter().map(|&(a, b)| (a, b, 1.0)).collect();
    let equal = vec![vec![1.0; nodes]; nodes];
    if Routes::new(&linked, &equal).is_some() { some } else { all }
}
