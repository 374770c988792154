//! Machine files: what an emulated machine consists of, and where each figure comes from.
//!
//! Latencies are nanoseconds of guest time for one cache miss; `latency_ns[a][b]` is what a CPU
//! of node `a` pays for memory of node `b`. Rows and columns follow the order of the `[[node]]`
//! tables, which is ascending by id.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use numaherd_model::places::{self, Places};
use numaherd_model::{Bytes, NodeId, Topology, printable, stem};
use serde::Deserialize;

use crate::memory::{Coherence, Links, Llc, MemorySpec, Neighbourhood, Prefetch, Routes};
use crate::{LabError, derived, hwloc, synthetic};

mod check;

/// Machines that come with numaherd.
const BUILT_IN: &[(&str, &str)] = &[
    ("2x4", include_str!("../../../machines/2x4.toml")),
    ("2x4-near", include_str!("../../../machines/2x4-near.toml")),
    ("2x4-narrow", include_str!("../../../machines/2x4-narrow.toml")),
    ("4x2", include_str!("../../../machines/4x2.toml")),
    ("8x1", include_str!("../../../machines/8x1.toml")),
    ("autonuma", include_str!("../../../machines/autonuma.toml")),
    ("cpu-only", include_str!("../../../machines/cpu-only.toml")),
    ("cxl", include_str!("../../../machines/cxl.toml")),
    ("nps4", include_str!("../../../machines/nps4.toml")),
    ("snc2", include_str!("../../../machines/snc2.toml")),
    ("sparse", include_str!("../../../machines/sparse.toml")),
    ("two-socket", include_str!("../../../machines/two-socket.toml")),
];

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
    /// Last-level caches.
    pub llc: Option<Llc>,
    /// Whether caches are kept coherent.
    pub coherence: Option<Coherence>,
    /// Whether neighbouring misses overlap.
    pub prefetch: Option<Prefetch>,
    /// Bandwidth of the nodes' memory.
    pub memory: Option<MemorySpec>,
    /// Links between nodes.
    pub links: Option<Links>,
    /// Nodes, ascending by id.
    pub node: Vec<NodeSpec>,
    /// How far they are from each other.
    pub distance: Distance,
    /// What only the simulator needs.
    pub sim: Option<toml::Table>,
    /// Where the figures come from, by their path in the file.
    pub provenance: BTreeMap<String, String>,
}

/// A CPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Speed while it hits its cache, in instructions per guest second.
    pub instructions_per_second: u64,
    /// Threads of a core.
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// What two busy threads of a core do together, in percent of one alone; each thread's
    /// instructions take longer accordingly. 100 to 200.
    pub smt_speedup_percent: Option<u32>,
}

fn one() -> u32 {
    1
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
    /// What a miss costs, in guest nanoseconds. Where it is absent: 100 ns for SLIT 10, and in
    /// proportion.
    #[serde(default)]
    pub latency_ns: Vec<Vec<u64>>,
}

/// Nanoseconds of a local miss where a file gives none. Published: the order of two-socket
/// servers.
const LOCAL_NS: u64 = 100;

/// The narrowest part of the way between CPUs and memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Narrowest {
    /// For reading.
    pub read: Vec<Vec<f64>>,
    /// For writing.
    pub write: Vec<Vec<f64>>,
}

impl Machine {
    /// Finds a machine that can be booted: by name, by the path of its `.toml` or hwloc `.xml`
    /// file, or by a synthetic text.
    ///
    /// # Errors
    /// [`LabError::UnknownMachine`], or [`LabError::Machine`] with the offending place.
    pub fn find(name: &str) -> Result<Machine, LabError> {
        Description::find(name)?.machine(name)
    }

    pub(crate) fn parse(name: &str, path: &str, text: &str) -> Result<Machine, LabError> {
        let fail = |problem: String| LabError::Machine { path: path.into(), problem };
        let wrong = |error: toml::de::Error| {
            let line = Places::of(text).line_at(error.span().map_or(0, |span| span.start));
            let told = error.message().trim().replace('\n', " ");
            // Rust's names of numbers say nothing to whoever writes the file.
            let told = ["u32", "u64"].iter().fold(told, |told, name| {
                told.replace(&format!("expected {name}"), "expected a whole number, 0 or more")
            });
            // What the simulator's files have in its place.
            let hint = match told.contains("`instructions_per_second`") && text.contains("[sim]") {
                true => " (one with [sim] instead is for the simulator alone)",
                false => "",
            };
            fail(format!("line {line}: {told}{hint}"))
        };
        let mut machine: Machine = toml::from_str(text).map_err(wrong)?;
        machine.name = name.to_string();
        if machine.distance.latency_ns.is_empty() {
            let scale = |&slit: &u32| u64::from(slit) * LOCAL_NS / 10;
            let rows = machine.distance.slit.iter().map(|row| row.iter().map(scale).collect());
            machine.distance.latency_ns = rows.collect();
        }
        machine.check().map_err(|wrong| fail(wrong.told(text)))?;
        Ok(machine)
    }

    /// The ways between nodes; none where the file has no `[links]`.
    ///
    /// # Errors
    /// The links do not connect all nodes.
    pub fn routes(&self) -> Result<Routes, String> {
        let nodes = self.node.len();
        let Some(links) = &self.links else {
            return Ok(Routes { directed: Vec::new(), via: vec![vec![Vec::new(); nodes]; nodes] });
        };
        let ids: Vec<u32> = self.node.iter().map(|node| node.id).collect();
        let Distance { slit, latency_ns } = &self.distance;
        links.routes(&Neighbourhood { ids: &ids, slit, latency_ns })
    }

    /// What CPUs get that ask for more, in millions of bytes a second by index of the CPUs' node
    /// and of the memory's; `None` where the file limits nothing. Writing fetches every line and
    /// sends it back.
    #[must_use]
    pub fn narrowest_mb_s(&self) -> Option<Narrowest> {
        if self.memory.is_none() && self.links.is_none() {
            return None;
        }
        let nodes = self.node.len();
        let routes = self.routes().ok()?;
        let memory = self.memory.as_ref().and_then(|memory| memory.rates(nodes).ok());
        let links = self.links.as_ref().and_then(|links| links.rates(&routes).ok()?);
        let mb_s = |bytes_s: u64| bytes_s as f64 / 1e6;
        let way = |from: usize, to: usize| {
            let over = routes.via[from][to].iter().filter_map(|&link| links.as_ref()?.get(link));
            over.map(|&rate| mb_s(rate)).fold(f64::INFINITY, f64::min)
        };
        let at = |node: usize| memory.as_ref().map_or(f64::INFINITY, |rates| mb_s(rates[node]));
        let table = |cell: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
            (0..nodes).map(|cpu| (0..nodes).map(|memory| cell(cpu, memory)).collect()).collect()
        };
        Some(Narrowest {
            read: table(&|cpu, memory| at(memory).min(way(memory, cpu))),
            write: table(&|cpu, memory| {
                (at(memory) / 2.0).min(way(memory, cpu)).min(way(cpu, memory))
            }),
        })
    }

    /// What its kernel will show, before the kernel takes its own share of memory.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let node = |spec: &NodeSpec| (NodeId(spec.id), spec.cpus, Bytes(spec.memory_mib << 20));
        let topology = Topology::numbered(self.node.iter().map(node), self.distance.slit.clone());
        topology.with_cores_of(self.cpu.threads_per_core)
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

    /// Instructions per guest second of all CPUs together, at full speed. Two busy threads of a
    /// core share what the core does.
    #[must_use]
    pub fn instructions_per_second(&self) -> f64 {
        let alone = self.cpu.instructions_per_second as f64 * f64::from(self.cpus());
        alone * self.cpu.smt_speedup_percent.map_or(1.0, |both| f64::from(both) / 200.0)
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
        Description::read_by(name, std::fs::read)
    }

    /// The same, its file read by the caller's own means.
    ///
    /// # Errors
    /// As [`find`](Self::find); [`LabError::WaitInterrupted`] where reading was.
    pub fn read_by<'n>(
        name: &'n str,
        read: impl FnOnce(&'n str) -> io::Result<Vec<u8>>,
    ) -> Result<Description, LabError> {
        let fail = |problem: String| LabError::Machine { path: name.into(), problem };
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Machine::parse(name, name, text).map(Box::new).map(Description::Machine);
        }
        let path = Path::new(name);
        let read = || {
            let bytes = read(name).map_err(|error| match error.kind() {
                io::ErrorKind::Interrupted => LabError::WaitInterrupted { path: name.into() },
                _ => fail(error.to_string()),
            })?;
            places::text(bytes).map_err(|e| fail(format!("line {}: expected {e}", e.line)))
        };
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("toml") => {
                Machine::parse(&stem(name), name, &read()?).map(Box::new).map(Description::Machine)
            }
            Some("xml") => hwloc::parse(&read()?).map(Description::Topology).map_err(fail),
            _ if name.contains(':') || name.contains('[') => synthetic::parse(name)
                .map(Description::Topology)
                .map_err(|problem| LabError::Synthetic { text: name.into(), problem }),
            _ => Err(LabError::UnknownMachine { name: name.into(), known: names().join(", ") }),
        }
    }

    /// A machine that can be booted; one made of nodes alone is called after its `name`.
    ///
    /// # Errors
    /// [`LabError::Machine`] where it cannot be emulated.
    pub fn machine(self, name: &str) -> Result<Machine, LabError> {
        match self {
            Description::Machine(machine) => Ok(*machine),
            Description::Topology(topology) => {
                let called = if name.ends_with(".xml") { stem(name) } else { printable(name) };
                derived::machine(&called, &topology)
            }
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
            let given = |what: bool, figure: &'static str| what.then_some(figure);
            let figures = [
                Some("cpu.instructions_per_second"),
                Some("cache"),
                Some("node.memory_mib"),
                Some("distance.slit"),
                Some("distance.latency_ns"),
                given(machine.cpu.threads_per_core > 1, "cpu.threads_per_core"),
                given(machine.cpu.smt_speedup_percent.is_some(), "cpu.smt_speedup_percent"),
                given(machine.llc.is_some(), "llc"),
                given(machine.coherence.is_some(), "coherence"),
                given(machine.prefetch.is_some(), "prefetch"),
                given(machine.memory.is_some(), "memory.bandwidth_mb_s"),
                given(machine.links.is_some(), "links.bandwidth_mb_s"),
                given(machine.links.as_ref().is_some_and(|l| l.between.is_some()), "links.between"),
            ];
            for figure in figures.into_iter().flatten() {
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
        assert!(
            says(&good.replace("[[10, 21], [21, 10]]", "[[10, 21]]"))
                .contains("line 36: distance.slit: must be 2 rows of 2")
        );
        assert!(says(&good.replace("ways = 4", "ways = 3")).contains("cache: ways"));
        let bare = "cpus = 4\nmemory_mib = 2048";
        let nothing = good.replacen(bare, "cpus = 0\nmemory_mib = 0", 1);
        assert!(says(&nothing).contains("needs cpus or memory_mib"));
        assert!(
            says(&good.replace("id = 1", "id = 999")).contains("line 31: node.id: 999: at most")
        );
        assert!(says(&good.replace("ways = 4", "wys = 4")).contains("wys"));
        let below = says(&good.replace("id = 1", "id = -1"));
        assert!(
            below.ends_with(
                "line 31: invalid value: integer `-1`, expected a whole number, 0 or more"
            ),
            "{below}"
        );
        assert!(says(&good.replace("id = 1", "id = 0")).contains("ascend"));
        assert!(says(&good.replace("cpus = 4", "cpus = 400")).contains("800 CPUs"));
        // Twice that is 0 in 32 bits, and the memory is in 64.
        let many = good.replace("cpus = 4", "cpus = 2_147_483_648");
        assert!(says(&many).contains("4294967296 CPUs"));
        let much = good.replace("memory_mib = 2048", "memory_mib = 8_796_093_022_208");
        assert!(says(&much).contains("memory_mib: in all more bytes"));
        let slow = good.replace("latency_ns = [[100", "latency_ns = [[9_999_999_999");
        assert!(slow != good && says(&slow).contains("a second (1_000_000_000) at the most"));
        let with = |part: &str| says(&good.replace("[coherence]", part));
        assert!(with("[llc]\nbytes = 1000\nways = 4\nlatency_ns = 9").contains("llc: ways"));
        assert!(with("[coherence]\ntransfer_ns = [[1]]").contains("coherence.transfer_ns"));
        assert!(says(&good.replace("= 1400", "= 3")).contains("links.bandwidth_mb_s: 3 is not"));
        assert!(says(&good.replace("= 4000", "= [4000]")).contains("memory.bandwidth_mb_s: must"));
        assert!(
            says(&good.replace("= 4000", "= -1"))
                .ends_with("a whole number of MB/s, or a list of such")
        );
        let smt = "instructions_per_second = 1\nthreads_per_core = 3 #";
        assert!(says(&good.replace("instructions_per_second =", smt)).contains("threads_per_core"));
    }
}
