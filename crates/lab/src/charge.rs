//! What the latency plugin is told: its configuration for a machine, written as JSON.
//!
//! The fields are the plugin's (`lab-plugin/src/config.rs`); this is the writer's half. Nodes and
//! CPUs go by index here, not by id.

use std::path::Path;

use serde::Serialize;

use crate::firmware;
use crate::machine::Machine;

/// Guest nanoseconds a CPU may run ahead of the clock before it sleeps. Measured: interrupts
/// (the TLB shootdown of a page migration) wait for sleeping CPUs, so shorter is truer, and
/// every sleep costs the host.
const QUANTUM_NS: u64 = 50_000;

/// Bytes a second that no load reaches: the plugin's greatest.
const UNLIMITED: u64 = 1_000_000_000_000;

/// The configuration.
#[derive(Debug, Serialize)]
pub struct PluginConfig {
    stats: String,
    clock_hz_ratio: f64,
    quantum_ns: u64,
    instruction_ps: u64,
    line_bytes: u32,
    cache_bytes: u64,
    cache_ways: u32,
    cpu_node: Vec<usize>,
    node_bytes: Vec<u64>,
    below_4g_bytes: u64,
    latency_ns: Vec<Vec<u64>>,
    llc: Option<LlcConfig>,
    coherence: Option<CoherenceConfig>,
    overlap: OverlapConfig,
    bandwidth: Option<BandwidthConfig>,
    smt: SmtConfig,
}

#[derive(Debug, Serialize)]
struct LlcConfig {
    bytes: u64,
    ways: u32,
    latency_ns: u64,
    cpu_domain: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct CoherenceConfig {
    transfer_ns: Option<Vec<Vec<u64>>>,
}

#[derive(Debug, Serialize)]
struct OverlapConfig {
    loads: u32,
    stores: u32,
    stores_fetch: bool,
}

impl OverlapConfig {
    const NONE: OverlapConfig = OverlapConfig { loads: 1, stores: 1, stores_fetch: true };
}

#[derive(Debug, Serialize)]
struct BandwidthConfig {
    memory_bytes_per_second: Vec<u64>,
    link_bytes_per_second: Vec<u64>,
    routes: Vec<Vec<Vec<usize>>>,
}

#[derive(Debug, Serialize)]
struct SmtConfig {
    threads_per_core: u32,
    busy_sibling_percent: u32,
}

impl PluginConfig {
    /// What the plugin charges on this machine at this dilation. The machine was checked when it
    /// was read.
    pub fn new(machine: &Machine, dilation: f64, stats: &Path) -> PluginConfig {
        PluginConfig {
            stats: stats.to_string_lossy().into_owned(),
            clock_hz_ratio: 1.0 / dilation,
            quantum_ns: QUANTUM_NS,
            instruction_ps: 1_000_000_000_000 / machine.cpu.instructions_per_second,
            line_bytes: machine.cache.line_bytes,
            cache_bytes: machine.cache.bytes,
            cache_ways: machine.cache.ways,
            cpu_node: machine.node_index_of_cpus(),
            node_bytes: machine.node.iter().map(|n| n.memory_mib << 20).collect(),
            below_4g_bytes: firmware::below_hole_bytes(machine),
            latency_ns: machine.distance.latency_ns.clone(),
            llc: llc(machine),
            coherence: machine
                .coherence
                .as_ref()
                .map(|c| CoherenceConfig { transfer_ns: c.transfer_ns.clone() }),
            overlap: machine.prefetch.map_or(OverlapConfig::NONE, |p| OverlapConfig {
                loads: p.load_overlap,
                stores: p.store_overlap,
                stores_fetch: p.stores_fetch,
            }),
            bandwidth: bandwidth(machine),
            smt: smt(machine),
        }
    }

    /// Charges so little that it never sleeps: for measuring what the host can carry, on one CPU
    /// with one node, its caches as the machine has them. The counters are brought up to date
    /// every 16 quanta, here 160,000 instructions.
    pub fn free(machine: &Machine, stats: &Path) -> PluginConfig {
        let mut config = PluginConfig::new(machine, 1.0, stats);
        config.instruction_ps = 10;
        config.quantum_ns = 100;
        config.cpu_node.truncate(1);
        config.node_bytes = vec![64 << 20];
        config.latency_ns = vec![vec![0]];
        config.smt = SmtConfig { threads_per_core: 1, busy_sibling_percent: 100 };
        if let Some(llc) = &mut config.llc {
            llc.cpu_domain.truncate(1);
            llc.latency_ns = 0;
        }
        if let Some(coherence) = &mut config.coherence {
            coherence.transfer_ns = None;
        }
        config.bandwidth = config.bandwidth.map(|_| BandwidthConfig {
            memory_bytes_per_second: vec![UNLIMITED],
            link_bytes_per_second: Vec::new(),
            routes: vec![vec![Vec::new()]],
        });
        config
    }
}

fn llc(machine: &Machine) -> Option<LlcConfig> {
    let llc = machine.llc.as_ref()?;
    let mut cpu_domain = Vec::new();
    let mut next = 0;
    for node in machine.node.iter().filter(|node| node.cpus > 0) {
        let cpus = llc.cpus.unwrap_or(node.cpus);
        cpu_domain.extend((0..node.cpus).map(|cpu| next + (cpu / cpus) as usize));
        next += node.cpus.div_ceil(cpus) as usize;
    }
    Some(LlcConfig { bytes: llc.bytes, ways: llc.ways, latency_ns: llc.latency_ns, cpu_domain })
}

fn bandwidth(machine: &Machine) -> Option<BandwidthConfig> {
    if machine.memory.is_none() && machine.links.is_none() {
        return None;
    }
    let nodes = machine.node.len();
    let routes = machine.routes().unwrap_or_default();
    let memory = machine.memory.as_ref().and_then(|memory| memory.rates(nodes).ok());
    let links = machine.links.as_ref().and_then(|links| links.rates(&routes).ok()?);
    Some(BandwidthConfig {
        memory_bytes_per_second: memory.unwrap_or_else(|| vec![UNLIMITED; nodes]),
        link_bytes_per_second: links.unwrap_or_else(|| vec![UNLIMITED; routes.directed.len()]),
        routes: routes.via,
    })
}

/// Two busy threads that together do 125 % of one alone do 62.5 % each, so that an instruction
/// takes 160 % of its time.
fn smt(machine: &Machine) -> SmtConfig {
    let threads_per_core = machine.cpu.threads_per_core;
    let busy_sibling_percent = machine.cpu.smt_speedup_percent.map_or(100, |both| 20_000 / both);
    SmtConfig { threads_per_core, busy_sibling_percent }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str) -> PluginConfig {
        PluginConfig::new(&Machine::find(name).unwrap(), 4.0, Path::new("/s"))
    }

    #[test]
    fn a_hundred_million_instructions_a_second_are_ten_nanoseconds_each() {
        let config = config("2x4");
        assert_eq!(config.instruction_ps, 10_000);
        assert!((config.clock_hz_ratio - 0.25).abs() < 1e-12);
    }

    #[test]
    fn last_level_domains_are_numbered_through() {
        let mut machine = Machine::find("2x4-near").unwrap();
        assert_eq!(llc(&machine).unwrap().cpu_domain, [0, 0, 0, 0, 1, 1, 1, 1]);
        machine.llc.as_mut().unwrap().cpus = Some(2);
        assert_eq!(llc(&machine).unwrap().cpu_domain, [0, 0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn both_ways_of_a_link_have_a_server_of_their_own() {
        let bandwidth = config("2x4-near").bandwidth.unwrap();
        assert_eq!(bandwidth.link_bytes_per_second.len(), 2);
        assert_eq!(bandwidth.routes, [[vec![], vec![0]], [vec![1], vec![]]]);
    }

    #[test]
    fn a_busy_sibling_slows_down_by_what_two_together_do_not_gain() {
        let mut machine = Machine::find("2x4").unwrap();
        assert_eq!(smt(&machine).busy_sibling_percent, 100);
        machine.cpu.smt_speedup_percent = Some(125);
        assert_eq!(smt(&machine).busy_sibling_percent, 160);
    }
}
