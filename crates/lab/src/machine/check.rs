//! Whether a machine file's figures fit together.

use numaherd_model::places::Places;

use super::{Distance, Machine, NodeSpec};
use crate::firmware;

/// What is wrong with which field.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Its table and key.
    field: &'static str,
    /// Which of the tables of that name, from 0, where there may be several.
    table: Option<usize>,
    /// What is wrong.
    problem: String,
}

fn wrong(field: &'static str, problem: impl Into<String>) -> Wrong {
    Wrong { field, table: None, problem: problem.into() }
}

impl Wrong {
    fn of_table(self, table: usize) -> Wrong {
        Wrong { table: Some(table), ..self }
    }

    /// With its line in the file.
    pub(super) fn told(&self, text: &str) -> String {
        let Wrong { field, table, problem } = self;
        format!("line {}: {field}: {problem}", Places::of(text).line(field, table.as_slice()))
    }
}

/// QEMU's TCG runs one host thread per CPU; beyond this no dilation makes sense.
const MOST_CPUS: u32 = 64;

/// No memory takes longer: a second.
const MOST_LATENCY_NS: u64 = 1_000_000_000;

impl Machine {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        self.check_nodes()?;
        self.check_distances()?;
        if self.cpu.instructions_per_second == 0 {
            return Err(wrong("cpu.instructions_per_second", "must not be 0"));
        }
        if !self.cache.line_bytes.is_power_of_two() {
            return Err(wrong("cache.line_bytes", "must be a power of two"));
        }
        self.check_sets("cache", self.cache.bytes, self.cache.ways)?;
        self.check_cores()?;
        self.check_memory()
    }

    /// A node that is not as it has to be, with its place.
    fn node_that(&self, is_wrong: impl Fn(&NodeSpec) -> bool) -> Option<(usize, &NodeSpec)> {
        self.node.iter().enumerate().find(|(_, node)| is_wrong(node))
    }

    fn check_nodes(&self) -> Result<(), Wrong> {
        if self.node.is_empty() {
            return Err(wrong("node", "there is none"));
        }
        let bytes = |node: &NodeSpec| node.memory_mib.checked_mul(1 << 20);
        let all = self.node.iter().try_fold(0_u64, |sum, node| sum.checked_add(bytes(node)?));
        if all.is_none() {
            return Err(wrong("node.memory_mib", "in all more bytes than 64 bits tell"));
        }
        let descends = self.node.windows(2).position(|two| two[0].id >= two[1].id);
        if let Some(before) = descends {
            return Err(wrong("node.id", "ids must ascend").of_table(before + 1));
        }
        let cpus: u64 = self.node.iter().map(|node| u64::from(node.cpus)).sum();
        if !(1..=u64::from(MOST_CPUS)).contains(&cpus) {
            let problem = format!("{cpus} CPUs in all: 1 to {MOST_CPUS} can be emulated");
            return Err(wrong("node.cpus", problem));
        }
        if self.memory_mib() < 1024 {
            let problem = "less than 1024 MiB in all: the kernel and its files need that";
            return Err(wrong("node.memory_mib", problem));
        }
        if let Some((at, node)) = self.node_that(|node| node.id > firmware::HIGHEST_NODE) {
            let problem = format!("{}: at most {}", node.id, firmware::HIGHEST_NODE);
            return Err(wrong("node.id", problem).of_table(at));
        }
        if let Some((at, _)) = self.node_that(|node| node.memory_mib == 0 && node.cpus == 0) {
            return Err(wrong("node.cpus", "a node needs cpus or memory_mib").of_table(at));
        }
        Ok(())
    }

    fn check_distances(&self) -> Result<(), Wrong> {
        let nodes = self.node.len();
        let Distance { slit, latency_ns } = &self.distance;
        is_square("distance.slit", slit, nodes)?;
        is_square("distance.latency_ns", latency_ns, nodes)?;
        if let Some(ns) = latency_ns.iter().flatten().find(|&&ns| ns > MOST_LATENCY_NS) {
            let problem = format!("{ns}: a second (1_000_000_000) at the most");
            return Err(wrong("distance.latency_ns", problem));
        }
        let is_wrong = |i: usize, j: usize, distance: u32| match i == j {
            true => distance != 10,
            false => !(11..=254).contains(&distance),
        };
        let mut cells = (0..nodes).flat_map(|i| (0..nodes).map(move |j| (i, j)));
        match cells.find(|&(i, j)| is_wrong(i, j, slit[i][j])) {
            Some(_) => Err(wrong("distance.slit", "10 on the diagonal, 11 to 254 elsewhere")),
            None => Ok(()),
        }
    }

    fn check_sets(&self, table: &'static str, bytes: u64, ways: u32) -> Result<(), Wrong> {
        let set_bytes = u64::from(self.cache.line_bytes) * u64::from(ways);
        let whole = (1..=64).contains(&ways) && bytes.is_multiple_of(set_bytes);
        if whole && (bytes / set_bytes).is_power_of_two() {
            return Ok(());
        }
        let problem = "ways must be 1 to 64, and bytes / line_bytes / ways a power of two";
        Err(wrong(table, problem))
    }

    fn check_cores(&self) -> Result<(), Wrong> {
        let threads = self.cpu.threads_per_core;
        if threads == 0 || self.node.iter().any(|node| !node.cpus.is_multiple_of(threads)) {
            return Err(wrong("cpu.threads_per_core", "must divide the CPUs of every node"));
        }
        let field = "cpu.smt_speedup_percent";
        match self.cpu.smt_speedup_percent {
            Some(_) if threads != 2 => Err(wrong(field, "needs cpu.threads_per_core = 2")),
            Some(percent) if !(100..=200).contains(&percent) => {
                Err(wrong(field, format!("{percent} is not from 100 to 200")))
            }
            _ => Ok(()),
        }
    }

    fn check_memory(&self) -> Result<(), Wrong> {
        let nodes = self.node.len();
        if let Some(llc) = &self.llc {
            self.check_sets("llc", llc.bytes, llc.ways)?;
            let cpus = llc.cpus.unwrap_or(1);
            if cpus == 0 || self.node.iter().any(|node| !node.cpus.is_multiple_of(cpus)) {
                return Err(wrong("llc.cpus", "must divide the CPUs of every node"));
            }
        }
        if let Some(transfer_ns) = self.coherence.as_ref().and_then(|c| c.transfer_ns.as_ref()) {
            is_square("coherence.transfer_ns", transfer_ns, nodes)?;
        }
        if let Some(prefetch) = &self.prefetch {
            let overlaps = [
                ("prefetch.load_overlap", prefetch.load_overlap),
                ("prefetch.store_overlap", prefetch.store_overlap),
            ];
            if let Some((field, _)) = overlaps.iter().find(|(_, n)| !(1..=64).contains(n)) {
                return Err(wrong(field, "must be 1 to 64"));
            }
        }
        if let Some(memory) = &self.memory {
            memory.rates(nodes).map_err(|problem| wrong("memory.bandwidth_mb_s", problem))?;
        }
        if let Some(links) = &self.links {
            let routes = self.routes().map_err(|problem| wrong("links.between", problem))?;
            links.rates(&routes).map_err(|problem| wrong("links.bandwidth_mb_s", problem))?;
        }
        Ok(())
    }
}

fn is_square<T>(field: &'static str, rows: &[Vec<T>], side: usize) -> Result<(), Wrong> {
    if rows.len() == side && rows.iter().all(|row| row.len() == side) {
        return Ok(());
    }
    Err(wrong(field, format!("must be {side} rows of {side}")))
}
