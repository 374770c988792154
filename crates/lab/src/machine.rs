//! Machine files: what an emulated machine consists of, and where each figure comes from.
//!
//! Latencies are nanoseconds of guest time for one cache miss; `latency_ns[a][b]` is what a CPU
//! of node `a` pays for memory of node `b`. Rows and columns follow the order of the `[[node]]`
//! tables, which is ascending by id.

use std::collections::BTreeMap;
use std::path::Path;

use numaherd_model::{Bytes, CpuId, Node, NodeId, Topology};
use serde::Deserialize;

use crate::{LabError, derived, firmware, hwloc, synthetic};

/// Machines that come with numaherd.
const BUILT_IN: &[(&str, &str)] = &[
    ("2x4", include_str!("../../../machines/2x4.toml")),
    ("cpu-only", include_str!("../../../machines/cpu-only.toml")),
    ("cxl", include_str!("../../../machines/cxl.toml")),
    ("nps4", include_str!("../../../machines/nps4.toml")),
    ("snc2", include_str!("../../../machines/snc2.toml")),
    ("sparse", include_str!("../../../machines/sparse.toml")),
    ("two-socket", include_str!("../../../machines/two-socket.toml")),
];

/// QEMU's TCG runs one host thread per CPU; beyond this no dilation makes sense.
const MOST_CPUS: u32 = 64;

/// One emulated machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name: the file's, without the ending.
    #[serde(skip)]
    pub name: String,
    /// Whether it was made from a topology, not read from a machine file.
    #[serde(skip)]
    pub derived: bool,
    /// One line on what it stands for.
    pub title: String,
    /// Every CPU.
    pub cpu: Cpu,
    /// Every CPU's own cache.
    pub cache: Cache,
    /// Nodes, ascending by id.
    pub node: Vec<NodeSpec>,
    /// How far they are from each other.
    pub distance: Distance,
    /// Where the figures come from, by their path in the file.
    pub provenance: BTreeMap<String, String>,
}

/// A CPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Speed while it hits its cache, in instructions per guest second.
    pub instructions_per_second: u64,
}

/// A CPU's own cache.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Size.
    pub bytes: u64,
    /// Associativity.
    pub ways: u32,
    /// Line size.
    pub line_bytes: u32,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// The kernel's number for it.
    pub id: u32,
    /// Number of CPUs; CPUs are numbered through in the order of nodes.
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
    /// What a miss costs, in guest nanoseconds.
    pub latency_ns: Vec<Vec<u64>>,
}

impl Machine {
    /// Finds a machine that can be booted: by name, by the path of its `.toml` or hwloc `.xml`
    /// file, or by a synthetic text.
    ///
    /// # Errors
    /// [`LabError::UnknownMachine`], or [`LabError::Machine`] with the offending place.
    pub fn find(name: &str) -> Result<Machine, LabError> {
        match Description::find(name)? {
            Description::Machine(machine) => Ok(*machine),
            Description::Topology(topology) => {
                let stem = Path::new(name).file_stem().filter(|_| name.ends_with(".xml"));
                let stem = stem.map_or_else(|| name.into(), |stem| stem.to_string_lossy());
                derived::machine(&stem, &topology)
            }
        }
    }

    pub(crate) fn parse(name: &str, path: &str, text: &str) -> Result<Machine, LabError> {
        let fail = |problem: String| LabError::Machine { path: path.into(), problem };
        let mut machine: Machine =
            toml::from_str(text).map_err(|e| fail(e.to_string().trim().replace('\n', " ")))?;
        machine.name = name.to_string();
        machine.check().map_err(fail)?;
        Ok(machine)
    }

    fn check(&self) -> Result<(), String> {
        let nodes = self.node.len();
        if nodes == 0 {
            return Err("there is no [[node]]".into());
        }
        if !self.node.is_sorted_by(|a, b| a.id < b.id) {
            return Err("node ids must ascend".into());
        }
        let Distance { slit, latency_ns } = &self.distance;
        if !is_square(slit, nodes) {
            return Err(format!("distance.slit must be {nodes} rows of {nodes}"));
        }
        if !is_square(latency_ns, nodes) {
            return Err(format!("distance.latency_ns must be {nodes} rows of {nodes}"));
        }
        for (i, row) in self.distance.slit.iter().enumerate() {
            let wrong = |(j, &d): (usize, &u32)| {
                if i == j { d != 10 } else { !(11..=254).contains(&d) }
            };
            if row.iter().enumerate().any(wrong) {
                return Err("distance.slit: 10 on the diagonal, 11 to 254 elsewhere".into());
            }
        }
        if self.cpus() == 0 || self.cpus() > MOST_CPUS {
            return Err(format!("{} CPUs in all: 1 to {MOST_CPUS} can be emulated", self.cpus()));
        }
        if self.memory_mib() < 1024 {
            return Err("less than 1024 MiB in all: the kernel and its files need that".into());
        }
        if let Some(node) = self.node.iter().find(|node| node.id > firmware::HIGHEST_NODE) {
            return Err(format!("node id {}: at most {}", node.id, firmware::HIGHEST_NODE));
        }
        if self.node.iter().any(|node| node.memory_mib == 0 && node.cpus == 0) {
            return Err("a node needs cpus or memory_mib".into());
        }
        if self.cpu.instructions_per_second == 0 {
            return Err("cpu.instructions_per_second must not be 0".into());
        }
        let lines = self.cache.bytes / u64::from(self.cache.line_bytes.max(1));
        let sets = lines / u64::from(self.cache.ways.max(1));
        if !sets.is_power_of_two() || !self.cache.line_bytes.is_power_of_two() {
            return Err(
                "cache: bytes / line_bytes / ways and line_bytes must be powers of two".into()
            );
        }
        Ok(())
    }

    /// What its kernel will show, before the kernel takes its own share of memory.
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

    /// Figures that were derived from a topology, and how; none of a machine file.
    pub fn derived_figures(&self) -> impl Iterator<Item = (&str, &str)> {
        let derived = self.derived;
        let all = self.provenance.iter().filter(move |_| derived);
        all.map(|(figure, from)| (figure.as_str(), from.as_str()))
    }

    /// CPUs in all.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.node.iter().map(|n| n.cpus).sum()
    }

    /// Memory in all.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        self.node.iter().map(|n| n.memory_mib).sum()
    }

    /// For each CPU, the index of its node.
    #[must_use]
    pub fn node_index_of_cpus(&self) -> Vec<usize> {
        let cpus_of = |(index, node): (usize, &NodeSpec)| vec![index; node.cpus as usize];
        self.node.iter().enumerate().flat_map(cpus_of).collect()
    }

    /// Instructions per guest second of all CPUs together, at full speed.
    #[must_use]
    pub fn instructions_per_second(&self) -> f64 {
        self.cpu.instructions_per_second as f64 * f64::from(self.cpus())
    }
}

/// What a machine's name leads to.
pub enum Description {
    /// A machine file: nodes and what they cost.
    Machine(Box<Machine>),
    /// Nodes alone, of a synthetic text or hwloc's XML; perhaps more than can be emulated.
    Topology(Topology),
}

impl Description {
    /// Finds it: a built-in name, the path of a `.toml` or `.xml` file, or a synthetic text.
    ///
    /// # Errors
    /// [`LabError::UnknownMachine`], or [`LabError::Machine`] with the offending place.
    pub fn find(name: &str) -> Result<Description, LabError> {
        let fail = |problem: String| LabError::Machine { path: name.into(), problem };
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Machine::parse(name, name, text).map(Box::new).map(Description::Machine);
        }
        let path = Path::new(name);
        let read = || std::fs::read_to_string(path).map_err(|e| fail(e.to_string()));
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("toml") => {
                let stem = path.file_stem().map_or_else(|| name.into(), |s| s.to_string_lossy());
                Machine::parse(&stem, name, &read()?).map(Box::new).map(Description::Machine)
            }
            Some("xml") => hwloc::parse(&read()?).map(Description::Topology).map_err(fail),
            _ if name.contains(':') || name.contains('[') => synthetic::parse(name)
                .map(Description::Topology)
                .map_err(|problem| LabError::Synthetic { text: name.into(), problem }),
            _ => Err(LabError::UnknownMachine { name: name.into(), known: names().join(", ") }),
        }
    }

    /// Nodes, CPUs, memory and distances.
    #[must_use]
    pub fn topology(self) -> Topology {
        match self {
            Description::Machine(machine) => machine.topology(),
            Description::Topology(topology) => topology,
        }
    }
}

fn is_square<T>(rows: &[Vec<T>], side: usize) -> bool {
    rows.len() == side && rows.iter().all(|row| row.len() == side)
}

/// Names of the machines that come with numaherd.
#[must_use]
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_machine_is_sound_and_says_where_its_figures_come_from() {
        for name in names() {
            let machine = Machine::find(name).unwrap();
            let figures = [
                "cpu.instructions_per_second",
                "cache",
                "node.memory_mib",
                "distance.slit",
                "distance.latency_ns",
            ];
            for figure in figures {
                let from = &machine.provenance[figure];
                let kind = from.split(':').next().unwrap();
                assert!(
                    ["measured", "published", "guessed", "chosen"].contains(&kind),
                    "{name}: {figure}"
                );
            }
        }
    }

    #[test]
    fn the_2x4_numbers_cpus_by_node() {
        let machine = Machine::find("2x4").unwrap();
        assert_eq!(machine.node_index_of_cpus(), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(machine.instructions_per_second(), 8e8);
    }

    #[test]
    fn an_unknown_machine_lists_the_known_ones() {
        let text = Machine::find("3x7").unwrap_err().to_string();
        assert!(text.contains("'3x7'") && text.contains("2x4"), "{text}");
    }

    #[test]
    fn a_bad_file_says_where() {
        let good = BUILT_IN[0].1;
        let says = |text: &str| Machine::parse("x", "x.toml", text).unwrap_err().to_string();
        assert!(says(&good.replace("[[10, 21], [21, 10]]", "[[10, 21]]")).contains("2 rows of 2"));
        assert!(says(&good.replace("ways = 4", "ways = 3")).contains("powers of two"));
        let bare = "cpus = 4\nmemory_mib = 2048";
        let nothing = good.replacen(bare, "cpus = 0\nmemory_mib = 0", 1);
        assert!(says(&nothing).contains("needs cpus or memory_mib"));
        assert!(says(&good.replace("id = 1", "id = 999")).contains("node id 999"));
        assert!(says(&good.replace("ways = 4", "wys = 4")).contains("wys"));
        assert!(says(&good.replace("id = 1", "id = 0")).contains("ascend"));
        assert!(says(&good.replace("cpus = 4", "cpus = 400")).contains("800 CPUs"));
    }
}
