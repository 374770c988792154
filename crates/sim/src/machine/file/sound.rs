//! Whether a machine file's figures make sense, each and together, and which of them does not.
//!
//! Bounds are far beyond any machine: they catch figures in the wrong unit and slips of the hand, and keep what is
//! computed from them within what can be told.

use super::{Distance, File, Llc, Share, SimTable};
use crate::machine::NodeSpec;
use crate::wrong::Wrong;

/// No memory takes longer, and times of a whole run of such accesses can still be told: a second.
const MOST_LATENCY_NS: f64 = 1e9;

/// Less than a cycle of any CPU.
const LEAST_LATENCY_NS: f64 = 0.1;

/// How much farther one way may be than the way back, which is over the same links: as far apart as firmware's
/// distances can be, 10 to 254.
const MOST_LOPSIDED: f64 = 25.4;

/// Nothing carries less, and times of a piece of memory can still be told.
pub(super) const LEAST_MB_S: f64 = 0.001;

/// A petabyte a second, a thousand times what the fastest memory of today carries.
const MOST_MB_S: f64 = 1e9;

/// Instructions a second of a CPU: a first microprocessor had tens of thousands, a million times a million nobody has.
pub(super) const LEAST_SPEED: f64 = 1e4;
pub(super) const MOST_SPEED: f64 = 1e12;

/// Published: what Linux can be built for at the most (`MAX_NUMNODES`), less one.
pub(crate) const HIGHEST_NODE: u32 = 1023;

/// Whether it is within these.
pub(super) fn within(
    field: &'static str,
    at: &[usize],
    value: f64,
    least: f64,
    most: f64,
) -> Result<(), Wrong> {
    let expected = match value {
        value if (least..=most).contains(&value) => return Ok(()),
        value if value > most => format!("at most {most:e}"),
        value if value > 0.0 => format!("{least} or more"),
        _ => "a number above 0".into(),
    };
    Err(Wrong::new(field, at, expected))
}

pub(super) fn sound_rate(field: &'static str, at: &[usize], mb_s: f64) -> Result<(), Wrong> {
    within(field, at, mb_s, LEAST_MB_S, MOST_MB_S)
}

/// Whether there is a figure from each node to each.
fn square<T>(rows: &[Vec<T>], nodes: usize, field: &'static str) -> Result<(), Wrong> {
    let wrong = |at: &[usize], found: String| {
        Err(Wrong::new(field, at, format!("{nodes} rows of {nodes}, found {found}")))
    };
    if rows.len() != nodes {
        return wrong(&[], rows.len().to_string());
    }
    match rows.iter().position(|row| row.len() != nodes) {
        Some(row) => wrong(&[row], format!("one of {}", rows[row].len())),
        None => Ok(()),
    }
}

/// From each node to each.
fn cells(nodes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..nodes).flat_map(move |from| (0..nodes).map(move |to| (from, to)))
}

impl File {
    /// The lab's bounds.
    pub(super) fn check_prefetch(&self) -> Result<(), Wrong> {
        let Some(prefetch) = &self.prefetch else { return Ok(()) };
        let told = [
            ("prefetch.load_overlap", prefetch.load_overlap),
            ("prefetch.store_overlap", prefetch.store_overlap),
        ];
        match told.iter().find(|(_, told)| told.is_some_and(|told| !(1.0..=64.0).contains(&told))) {
            Some((field, _)) => Err(Wrong::new(field, &[], "1 to 64")),
            None => Ok(()),
        }
    }

    /// The first node that is not as it has to be.
    fn node_that(&self, is_wrong: impl FnMut(&NodeSpec) -> bool) -> Option<usize> {
        self.node.iter().position(is_wrong)
    }

    pub(super) fn check_nodes(&self) -> Result<(), Wrong> {
        let nodes = self.node.len();
        let wrong = |field, node, expected: &str| Err(Wrong::new(field, &[node], expected));
        if nodes == 0 || nodes > 64 {
            let expected = format!("1 to 64 [[node]] tables, found {nodes}");
            return wrong("node", 64, &expected);
        }
        if let Some(node) = self.node_that(|node| node.id > HIGHEST_NODE) {
            return wrong("node.id", node, &format!("0 to {HIGHEST_NODE}"));
        }
        if let Some(before) = self.node.windows(2).position(|two| two[0].id >= two[1].id) {
            return wrong("node.id", before + 1, "ascending ids");
        }
        let mut cpus = 0;
        let crowded = self.node_that(|node| {
            cpus += u64::from(node.cpus);
            cpus > 4096
        });
        if cpus == 0 || crowded.is_some() {
            let all: u64 = self.node.iter().map(|node| u64::from(node.cpus)).sum();
            let expected = format!("1 to 4096 in all, and not {all}");
            return wrong("node.cpus", crowded.unwrap_or(0), &expected);
        }
        if let Some(node) = self.node_that(|node| node.memory_mib > 1 << 30) {
            return wrong("node.memory_mib", node, "at most 2^30");
        }
        if self.node.iter().all(|node| node.memory_mib == 0) {
            return wrong("node.memory_mib", 0, "a node with memory");
        }
        if !self.node.iter().any(NodeSpec::is_home) {
            return wrong("node.cpus", 0, "a node with both CPUs and memory");
        }
        let threads = self.cpu.threads_per_core;
        if threads == 0 || self.node.iter().any(|node| !node.cpus.is_multiple_of(threads)) {
            return Err(Wrong::new("cpu.threads_per_core", &[], "a divisor of every node's cpus"));
        }
        Ok(())
    }

    /// Ten figures of at most a second each never overflow.
    pub(super) fn check_kernel(&self) -> Result<(), Wrong> {
        let Some(SimTable { kernel, .. }) = &self.sim else { return Ok(()) };
        let wrong = |field, expected: &str| Err(Wrong::new(field, &[], expected));
        let whole = [
            ("sim.kernel.fault_ns", kernel.fault_ns),
            ("sim.kernel.arm_ns", kernel.arm_ns),
            ("sim.kernel.flush_ns", kernel.flush_ns),
            ("sim.kernel.move_ns", kernel.move_ns),
            ("sim.kernel.rmap_ns", kernel.rmap_ns),
        ];
        if let Some((field, _)) = whole.into_iter().find(|(_, ns)| *ns > 1_000_000_000) {
            return wrong(field, "at most 1e9");
        }
        if !(0.0..=1e9).contains(&kernel.walk_ns) {
            return wrong("sim.kernel.walk_ns", "0 to 1e9");
        }
        if kernel.rmap_ns > kernel.move_ns {
            return wrong("sim.kernel.rmap_ns", "at most move_ns, of which it is a part");
        }
        Ok(())
    }

    pub(super) fn latencies(&self) -> Result<Vec<Vec<f64>>, Wrong> {
        let nodes = self.node.len();
        let Distance { slit, latency_ns } = &self.distance;
        square(slit, nodes, "distance.slit")?;
        let is_wrong = |&(a, b): &(usize, usize)| {
            if a == b { slit[a][b] != 10 } else { !(11..=254).contains(&slit[a][b]) }
        };
        if let Some((a, b)) = cells(nodes).find(is_wrong) {
            let expected = "10 on the diagonal, 11 to 254 elsewhere";
            return Err(Wrong::new("distance.slit", &[a, b], expected));
        }
        if latency_ns.is_empty() {
            // As on the emulated machine: 100 ns for SLIT 10, and in proportion.
            let row = |row: &Vec<u32>| row.iter().map(|&d| f64::from(d) * 10.0).collect();
            return Ok(slit.iter().map(row).collect());
        }
        let field = "distance.latency_ns";
        square(latency_ns, nodes, field)?;
        // What is of no use at all goes before what is out of order: a node's own, were it so, would have all others of
        // its row out of order.
        let is_beyond = |&(a, b): &(usize, usize)| {
            !(LEAST_LATENCY_NS..=MOST_LATENCY_NS).contains(&latency_ns[a][b])
        };
        let is_nearer = |&(a, b): &(usize, usize)| latency_ns[a][b] < latency_ns[a][a];
        if let Some((a, b)) = cells(nodes).find(is_beyond).or_else(|| cells(nodes).find(is_nearer))
        {
            if latency_ns[a][b] > 0.0 {
                within(field, &[a, b], latency_ns[a][b], LEAST_LATENCY_NS, f64::INFINITY)?;
            }
            let expected =
                "above 0, a second (1e9) at the most, nothing nearer than a node's own memory";
            return Err(Wrong::new(field, &[a, b], expected));
        }
        // Where nobody is or nothing lies nobody ever waits so long.
        let is_home = |node: usize| self.node[node].is_home();
        let is_lopsided = |&(a, b): &(usize, usize)| {
            let back = latency_ns[b][a] * MOST_LOPSIDED;
            is_home(a) && is_home(b) && latency_ns[a][b] > back
        };
        match cells(nodes).find(is_lopsided) {
            Some((a, b)) => {
                let back = latency_ns[b][a];
                let expected =
                    format!("at most {MOST_LOPSIDED} times the way back, which is {back:?}");
                Err(Wrong::new(field, &[a, b], expected))
            }
            None => Ok(latency_ns.clone()),
        }
    }

    pub(super) fn transfers(&self, latency_ns: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, Wrong> {
        let told = self.coherence.as_ref().and_then(|coherence| coherence.transfer_ns.as_ref());
        let Some(told) = told else { return Ok(latency_ns.to_vec()) };
        let (field, nodes) = ("coherence.transfer_ns", self.node.len());
        square(told, nodes, field)?;
        cells(nodes).try_for_each(|(a, b)| {
            within(field, &[a, b], told[a][b], LEAST_LATENCY_NS, MOST_LATENCY_NS)
        })?;
        Ok(told.clone())
    }

    /// The caches, where memory is no nearer than this.
    pub(super) fn llc(&self, nearest_ns: f64) -> Result<Option<Llc>, Wrong> {
        let Some(llc) = &self.llc else { return Ok(None) };
        let memory_mib: u64 = self.node.iter().map(|node| node.memory_mib).sum();
        let memory_bytes = memory_mib as f64 * f64::from(1 << 20);
        if llc.bytes > memory_bytes {
            let expected = format!("at most the {memory_mib} MiB that all nodes have, in bytes");
            return Err(Wrong::new("llc.bytes", &[], expected));
        }
        within("llc.bytes", &[], llc.bytes, 1.0, memory_bytes)?;
        if llc.latency_ns > nearest_ns {
            let expected = format!("at most the {nearest_ns:?} ns of the nearest memory");
            return Err(Wrong::new("llc.latency_ns", &[], expected));
        }
        within("llc.latency_ns", &[], llc.latency_ns, LEAST_LATENCY_NS, nearest_ns)?;
        let is_divisor =
            |&cpus: &u32| cpus > 0 && self.node.iter().all(|node| node.cpus.is_multiple_of(cpus));
        let cpus = match llc.cpus {
            None => Share::Node,
            Some(cpus) if is_divisor(&cpus) => Share::Cpus(cpus),
            Some(_) => return Err(Wrong::new("llc.cpus", &[], "a divisor of every node's cpus")),
        };
        Ok(Some(Llc { bytes: llc.bytes, latency_ns: llc.latency_ns, cpus }))
    }

    /// What is wrong where a thread takes so long to work on a line and to get it that no speed can be told.
    pub(super) fn too_slow(&self, work_ns: f64, nearest_ns: f64) -> Wrong {
        let so = format!("so that a thread writes {LEAST_MB_S} MB/s or more to the nearest memory");
        if work_ns > nearest_ns {
            return Wrong::new("cpu.instructions_per_second", &[], so);
        }
        let own = |&node: &usize| {
            let row = self.distance.latency_ns.get(node).and_then(|row| row.get(node));
            self.node[node].is_home() && row == Some(&nearest_ns)
        };
        let node = (0..self.node.len()).find(own).unwrap_or(0);
        Wrong::new("distance.latency_ns", &[node, node], so)
    }
}
