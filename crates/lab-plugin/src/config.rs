//! What the launcher tells the plugin: one JSON file, named by `config=PATH`.
//!
//! ```json
//! {"stats": "/run/x/stats", "clock_hz_ratio": 0.25, "quantum_ns": 50000,
//!  "instruction_ps": 10000, "line_bytes": 64, "cache_bytes": 65536, "cache_ways": 4,
//!  "cpu_node": [0, 0, 1, 1], "node_bytes": [2147483648, 2147483648],
//!  "below_4g_bytes": 3221225472, "latency_ns": [[100, 300], [300, 100]]}
//! ```
//!
//! These say how every machine is charged. The rest is optional, and what is absent is not
//! modelled:
//!
//! ```json
//! {"llc": {"bytes": 1048576, "ways": 16, "latency_ns": 30, "cpu_domain": [0, 0, 1, 1]},
//!  "coherence": {"transfer_ns": [[60, 320], [320, 60]]},
//!  "overlap": {"loads": 4, "stores": 4, "stores_fetch": true},
//!  "bandwidth": {"memory_bytes_per_second": [4000000000, 4000000000],
//!                "link_bytes_per_second": [1000000000, 1000000000],
//!                "routes": [[[], [0]], [[1], []]]},
//!  "smt": {"threads_per_core": 2, "busy_sibling_percent": 160}}
//! ```
//!
//! Invariant: a [`Config`] that [`Config::read`] returned is consistent, so nothing later has
//! to ask whether a node exists or a size is a power of two. Fields it does not know are left
//! alone.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::directory;

/// Bounds that keep products within 64 bits and node indices within a frame's spare bits.
const MAX_NODES: usize = 1024;
const MAX_INSTRUCTION_PS: u64 = 1 << 30;
const MAX_LATENCY_NS: u64 = 1_000_000_000;
const MAX_QUANTUM_NS: u64 = 1_000_000_000;
/// Bytes a second. Below, what is drawn at once ([`crate::fabric::LINES_AT_ONCE`]) would be a
/// good part of a window.
const RATES: std::ops::RangeInclusive<u64> = 16_000_000..=1_000_000_000_000;

/// What stands in the file.
#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    /// Path of the stats file.
    pub stats: PathBuf,
    /// Guest seconds per real second: 1 / dilation.
    pub clock_hz_ratio: f64,
    /// Guest time that a vCPU may run ahead of the clock before it sleeps.
    pub quantum_ns: u64,
    /// Guest time per instruction.
    pub instruction_ps: u64,
    /// Bytes of a cache line.
    pub line_bytes: u64,
    /// Bytes of each vCPU's cache.
    pub cache_bytes: u64,
    /// Its associativity.
    pub cache_ways: u64,
    /// Index of the node of each vCPU.
    pub cpu_node: Vec<usize>,
    /// Memory of each node; 0 for one that has CPUs alone.
    pub node_bytes: Vec<u64>,
    /// Guest-physical memory below the hole that ends at 4 GiB.
    pub below_4g_bytes: u64,
    /// Latency of a miss: row = the CPU's node, column = the memory's node.
    pub latency_ns: Vec<Vec<u64>>,
    /// Last-level caches.
    #[serde(default)]
    pub llc: Option<Llc>,
    /// Whether what one CPU writes makes the others' copies stale.
    #[serde(default)]
    pub coherence: Option<Coherence>,
    /// Into how many parts the latency of a foreseen miss falls.
    #[serde(default)]
    pub overlap: Overlap,
    /// Limits of memory and links.
    #[serde(default)]
    pub bandwidth: Option<Bandwidth>,
    /// Cores with several threads.
    #[serde(default)]
    pub smt: Smt,
}

/// Last-level caches, all alike.
#[derive(Clone, Debug, Deserialize)]
pub struct Llc {
    /// Bytes of each.
    pub bytes: u64,
    /// Associativity.
    pub ways: u64,
    /// What a hit costs.
    pub latency_ns: u64,
    /// Which one each vCPU uses, numbered from 0.
    pub cpu_domain: Vec<usize>,
}

/// What a line costs that another CPU has written.
#[derive(Clone, Debug, Deserialize)]
pub struct Coherence {
    /// Row = the CPU's node, column = the writer's; `latency_ns` if absent. Between CPUs of one
    /// last-level cache it is that cache's latency.
    #[serde(default)]
    pub transfer_ns: Option<Vec<Vec<u64>>>,
}

/// Misses of one run that are under way at a time.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Overlap {
    /// When it loads.
    pub loads: u64,
    /// When it stores.
    pub stores: u64,
    /// Whether a run of stores fetches the lines that it overwrites.
    #[serde(default = "yes")]
    pub stores_fetch: bool,
}

fn yes() -> bool {
    true
}

impl Default for Overlap {
    fn default() -> Self {
        Overlap { loads: 1, stores: 1, stores_fetch: true }
    }
}

/// What memory and links pass, in bytes a second.
#[derive(Clone, Debug, Deserialize)]
pub struct Bandwidth {
    /// Memory of each node, reads and write-backs together.
    pub memory_bytes_per_second: Vec<u64>,
    /// One direction of a link each.
    pub link_bytes_per_second: Vec<u64>,
    /// `routes[from][to]`: the links that data passes on its way, in order.
    pub routes: Vec<Vec<Vec<usize>>>,
}

/// Cores whose threads share its speed.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Smt {
    /// vCPUs 0 … n-1 are the first core's, and so on.
    pub threads_per_core: usize,
    /// Time of an instruction while another thread of the core runs, in percent of that of a
    /// thread alone.
    pub busy_sibling_percent: u64,
}

impl Default for Smt {
    fn default() -> Self {
        Smt { threads_per_core: 1, busy_sibling_percent: 100 }
    }
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is not the JSON we expect.
    #[error("{} is not a configuration: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// A field has a value that makes no sense.
    #[error("{}: {field} {problem}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// If the file cannot be read or says something impossible.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.into(), source })?;
        let config: Config = serde_json::from_str(&text)
            .map_err(|source| ConfigError::Parse { path: path.into(), source })?;
        config.check().map_err(|(field, problem)| ConfigError::Field {
            path: path.into(),
            field,
            problem,
        })?;
        Ok(config)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let ensure = |good: bool, field, problem: &str| {
            if good { Ok(()) } else { Err((field, problem.to_string())) }
        };
        let nodes = self.node_bytes.len();
        let ratio_ok = self.clock_hz_ratio > 1e-6 && self.clock_hz_ratio <= 1000.0;
        ensure(ratio_ok, "clock_hz_ratio", "must be above 0.000001 and at most 1000")?;
        ensure(
            (1..=MAX_QUANTUM_NS).contains(&self.quantum_ns),
            "quantum_ns",
            "must be 1 ns to 1 s",
        )?;
        ensure(self.instruction_ps <= MAX_INSTRUCTION_PS, "instruction_ps", "is more than 1 ms")?;
        let line_ok = self.line_bytes.is_power_of_two() && (8..=4096).contains(&self.line_bytes);
        ensure(line_ok, "line_bytes", "must be a power of two from 8 to 4096")?;
        ensure((1..=64).contains(&self.cache_ways), "cache_ways", "must be 1 to 64")?;
        let sets = sets_of(self.cache_bytes, self.line_bytes, self.cache_ways);
        ensure(sets.is_some(), "cache_bytes", SETS)?;
        ensure((1..=MAX_NODES).contains(&nodes), "node_bytes", "must name 1 to 1024 nodes")?;
        let sizes_ok = self.node_bytes.iter().all(|&bytes| bytes <= 1 << 44);
        ensure(sizes_ok, "node_bytes", "must be at most 16 TiB each")?;
        let some = self.node_bytes.iter().any(|&bytes| bytes > 0);
        ensure(some, "node_bytes", "must give at least one node memory")?;
        ensure(!self.cpu_node.is_empty(), "cpu_node", "names no CPU")?;
        let cpus_ok = self.cpu_node.iter().all(|&node| node < nodes);
        ensure(cpus_ok, "cpu_node", "names a node that node_bytes does not have")?;
        let square =
            self.latency_ns.len() == nodes && self.latency_ns.iter().all(|r| r.len() == nodes);
        ensure(square, "latency_ns", "must be a square table with a row per node")?;
        let latency_ok = self.latency_ns.iter().flatten().all(|&ns| ns <= MAX_LATENCY_NS);
        ensure(latency_ok, "latency_ns", "has an entry above 1 s")?;
        ensure(self.cpu_node.len() <= directory::MAX_CPUS, "cpu_node", "names over 4095 CPUs")?;
        let overlap = 1..=64;
        let overlap_ok =
            overlap.contains(&self.overlap.loads) && overlap.contains(&self.overlap.stores);
        ensure(overlap_ok, "overlap", "must be 1 to 64")?;
        let percent_ok = (100..=10_000).contains(&self.smt.busy_sibling_percent);
        ensure(percent_ok, "smt", "makes an instruction quicker, or 100 times slower")?;
        let threads = self.smt.threads_per_core;
        let cores_ok = threads > 0 && self.cpu_node.len().is_multiple_of(threads);
        ensure(cores_ok, "smt", "does not divide the CPUs into whole cores")?;
        if let Some(llc) = &self.llc {
            let cpus = llc.cpu_domain.len() == self.cpu_node.len();
            ensure(cpus, "llc", "must name a domain for each CPU")?;
            let near = llc.cpu_domain.iter().all(|&domain| domain < self.cpu_node.len());
            ensure(near, "llc", "must number its domains from 0")?;
            ensure((1..=64).contains(&llc.ways), "llc", "must have 1 to 64 ways")?;
            ensure(sets_of(llc.bytes, self.line_bytes, llc.ways).is_some(), "llc", SETS)?;
            ensure(llc.latency_ns <= MAX_LATENCY_NS, "llc", "has a latency above 1 s")?;
        }
        if let Some(table) = self.coherence.as_ref().and_then(|c| c.transfer_ns.as_ref()) {
            let square = table.len() == nodes && table.iter().all(|row| row.len() == nodes);
            let low = table.iter().flatten().all(|&ns| ns <= MAX_LATENCY_NS);
            ensure(square && low, "coherence", "must be a square table, of at most 1 s")?;
        }
        self.bandwidth.as_ref().map_or(Ok(()), |bandwidth| bandwidth.check(nodes))
    }

    /// Sets of the cache.
    #[must_use]
    pub fn cache_sets(&self) -> usize {
        (self.cache_bytes / (self.line_bytes * self.cache_ways)) as usize
    }

    /// Sets and ways of a last-level cache.
    #[must_use]
    pub fn llc_sets(&self) -> Option<(usize, usize)> {
        let llc = self.llc.as_ref()?;
        Some((sets_of(llc.bytes, self.line_bytes, llc.ways)?, llc.ways as usize))
    }
}

const SETS: &str = "must be ways × line × a power of two, at most 1 GiB";

fn sets_of(bytes: u64, line_bytes: u64, ways: u64) -> Option<usize> {
    let set_bytes = line_bytes * ways;
    let whole = bytes <= 1 << 30 && bytes.is_multiple_of(set_bytes);
    Some((bytes / set_bytes) as usize).filter(|sets| whole && sets.is_power_of_two())
}

impl Bandwidth {
    fn check(&self, nodes: usize) -> Result<(), (&'static str, String)> {
        let rates = [&self.memory_bytes_per_second, &self.link_bytes_per_second];
        let links = self.link_bytes_per_second.len();
        let square = self.routes.len() == nodes && self.routes.iter().all(|r| r.len() == nodes);
        let known = self.routes.iter().flatten().flatten().all(|&link| link < links);
        let problem = if self.memory_bytes_per_second.len() != nodes {
            "must name a rate for each node's memory"
        } else if rates.into_iter().flatten().any(|rate| !RATES.contains(rate)) {
            "must be 16 MB/s to 1 TB/s each"
        } else if !square || !known {
            "must have a route from each node to each, over links that exist"
        } else {
            return Ok(());
        };
        Err(("bandwidth", problem.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"stats": "s", "clock_hz_ratio": 0.25, "quantum_ns": 50000,
        "instruction_ps": 10000, "line_bytes": 64, "cache_bytes": 65536, "cache_ways": 4,
        "cpu_node": [0, 1], "node_bytes": [1024, 1024], "below_4g_bytes": 0,
        "latency_ns": [[100, 300], [300, 100]], "colour": "unknown fields are ignored"}"#;

    fn read(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        Config::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn the_example_is_good_and_has_256_sets() {
        assert_eq!(read(GOOD).unwrap().cache_sets(), 65536 / 64 / 4);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_name_of_its_field() {
        for (from, to, field) in [
            ("0.25", "0", "clock_hz_ratio"),
            ("50000", "0", "quantum_ns"),
            ("10000", "99999999999", "instruction_ps"),
            ("\"line_bytes\": 64", "\"line_bytes\": 48", "line_bytes"),
            ("65536", "65000", "cache_bytes"),
            ("65536", "0", "cache_bytes"),
            ("\"cache_ways\": 4", "\"cache_ways\": 0", "cache_ways"),
            ("[0, 1]", "[0, 2]", "cpu_node"),
            ("[0, 1]", "[]", "cpu_node"),
            ("[300, 100]", "[300]", "latency_ns"),
            ("[1024, 1024]", "[]", "node_bytes"),
            ("[1024, 1024]", "[0, 0]", "node_bytes"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            let error = read(&text).expect_err(&format!("{from} → {to}"));
            assert!(error.contains(field), "{from} → {to}: {error}");
        }
    }

    #[test]
    fn a_missing_file_and_a_missing_field_are_one_line_each() {
        let missing = Config::read(Path::new("/nonexistent/c.json")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /nonexistent/c.json: "), "{missing}");
        let partial = read(r#"{"stats": "s"}"#).unwrap_err();
        assert!(partial.contains("clock_hz_ratio") && !partial.contains('\n'), "{partial}");
    }
}
