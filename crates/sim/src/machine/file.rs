//! Machine files. The format is that of the emulated machine, so that one file serves both; what
//! only the emulated machine needs is passed over, and what only the simulator needs stands in the
//! table `[sim]`.
//!
//! Where `[sim]` is missing, a thread's speed follows from the emulated machine's figures: ten
//! instructions for a line of 64 bytes, and one miss with the overlap of `[prefetch]`.

use std::collections::BTreeMap;
use std::fmt;

use numaherd_model::nearest;
use numaherd_model::places::Pair;
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::{Cpu, KernelCosts, LINE_BYTES, Llc, Machine, NodeSpec, Routes, Share};
use crate::SimError;
use crate::wrong::{self, Wrong};
pub(crate) use sound::HIGHEST_NODE;
use sound::{LEAST_MB_S, sound_rate, within};

mod sound;

/// Machines that come with numaherd.
const BUILT_IN: &[(&str, &str)] = &[
    ("2x4", include_str!("../../../../machines/2x4.toml")),
    ("2x4-near", include_str!("../../../../machines/2x4-near.toml")),
    ("2x4-narrow", include_str!("../../../../machines/2x4-narrow.toml")),
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

/// A whole file, as it is written.
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
    bandwidth_mb_s: Option<Rates>,
    between: Option<Vec<Pair<u32>>>,
}

/// One figure for all, or one for each.
enum Rates {
    All(f64),
    Each(Vec<f64>),
}

/// Not left to the reader, which tells what is wrong with one of a list at the list's first line.
impl<'de> Deserialize<'de> for Rates {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Rates, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Rates;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a number or a list of numbers")
            }

            fn visit_f64<E>(self, rate: f64) -> Result<Rates, E> {
                Ok(Rates::All(rate))
            }

            fn visit_i64<E>(self, rate: i64) -> Result<Rates, E> {
                Ok(Rates::All(rate as f64))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, rates: A) -> Result<Rates, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(rates)).map(Rates::Each)
            }
        }
        from.deserialize_any(Either)
    }
}

impl Rates {
    /// As many as wanted.
    fn expand(&self, field: &'static str, count: usize) -> Result<Vec<f64>, Wrong> {
        match self {
            Rates::All(rate) => {
                sound_rate(field, &[], *rate)?;
                Ok(vec![*rate; count])
            }
            Rates::Each(rates) if rates.len() == count => {
                let each = |(nth, &rate)| sound_rate(field, &[nth], rate);
                rates.iter().enumerate().try_for_each(each)?;
                Ok(rates.clone())
            }
            Rates::Each(rates) => {
                let expected = format!("one figure or {count}, found {}", rates.len());
                Err(Wrong::new(field, &[], expected))
            }
        }
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
        file.machine(name).map_err(|wrong| wrong.of_file(path, text))
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
        let llc = self.llc(nearest_ns)?;
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

    fn cpu(&self, nearest_ns: f64) -> Result<Cpu, Wrong> {
        let threads_per_core = self.cpu.threads_per_core;
        let most = 100.0 * f64::from(threads_per_core);
        let smt_speedup_percent = self.cpu.smt_speedup_percent.unwrap_or(most);
        if !(100.0..=most).contains(&smt_speedup_percent) {
            let expected = match threads_per_core {
                1 => "100, or cpu.threads_per_core of 2 or more".into(),
                _ => format!("100 to {most}"),
            };
            return Err(Wrong::new("cpu.smt_speedup_percent", &[], expected));
        }
        let (stream_mb_s, work_ns, read_stall) = match (&self.sim, self.cpu.instructions_per_second)
        {
            (Some(sim), _) => (sim.stream_mb_s, sim.work_ns, 1.0),
            (None, Some(speed)) => {
                let field = "cpu.instructions_per_second";
                within(field, &[], speed, sound::LEAST_SPEED, sound::MOST_SPEED)?;
                let overlap = |told: fn(&Prefetch) -> Option<f64>| {
                    self.prefetch.as_ref().and_then(told).unwrap_or(1.0)
                };
                let (stores, loads) = (overlap(|p| p.store_overlap), overlap(|p| p.load_overlap));
                let slow = most / smt_speedup_percent;
                let work_ns = INSTRUCTIONS_PER_LINE * 1e9 / speed * slow;
                let stream_mb_s = LINE_BYTES * 1000.0 / (work_ns + nearest_ns / stores);
                // Told where it comes from.
                if stream_mb_s < LEAST_MB_S {
                    return Err(self.too_slow(work_ns, nearest_ns));
                }
                (stream_mb_s, work_ns, stores / loads)
            }
            (None, None) => {
                let expected = "sim.stream_mb_s (or cpu.instructions_per_second, as for the lab)";
                return Err(Wrong::told_as("sim", &[], expected.into()));
            }
        };
        sound_rate("sim.stream_mb_s", &[], stream_mb_s)?;
        if !(0.0..LINE_BYTES * 1000.0 / stream_mb_s).contains(&work_ns) {
            let line_ns = LINE_BYTES * 1000.0 / stream_mb_s;
            let expected = format!("0 to the {line_ns:.1} ns of a whole line");
            return Err(Wrong::new("sim.work_ns", &[], expected));
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
                for (nth, &Pair(a, b)) in between.iter().enumerate() {
                    let wrong = |expected| Wrong::new("links.between", &[nth], expected);
                    let known = index(a).zip(index(b)).filter(|(a, b)| a != b);
                    let expected = || format!("pairs of different node ids, found [{a}, {b}]");
                    let (a, b) = known.ok_or_else(|| wrong(expected()))?;
                    if pairs.contains(&(a, b)) || pairs.contains(&(b, a)) {
                        let (a, b) = (self.node[a].id, self.node[b].id);
                        return Err(wrong(format!("each pair once, found [{a}, {b}] again")));
                    }
                    pairs.push((a, b));
                }
            }
            None => pairs.extend(nearest(slit)),
        }
        let field = "links.bandwidth_mb_s";
        let rates = match self.links.as_ref().and_then(|links| links.bandwidth_mb_s.as_ref()) {
            Some(rates) => rates.expand(field, pairs.len())?,
            None => vec![f64::INFINITY; pairs.len()],
        };
        let links: Vec<(usize, usize, f64)> =
            pairs.into_iter().zip(rates).map(|((a, b), rate)| (a, b, rate)).collect();
        if Routes::new(&links, latency_ns).is_some() || nodes == 1 {
            return Ok(links);
        }
        Err(Wrong::new("links.between", &[], "links that connect all nodes"))
    }
}
