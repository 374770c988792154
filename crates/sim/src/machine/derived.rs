//! A machine made from a topology alone: a synthetic text, hwloc's XML, a captured tree.
//!
//! Nodes, CPUs, memory and distances are taken over; speeds are guesses for a server of today: a
//! thread streams 5 GB/s, a node carries what all its CPUs ask for twice over and at least
//! 20 GB/s, a link half of that, a local miss takes 100 ns and others 10 ns × SLIT.

use numaherd_model::Topology;

use super::file::nearest;
use super::{Cpu, KernelCosts, Machine, NodeSpec};

/// Guessed, see above.
const STREAM_MB_S: f64 = 5_000.0;
/// Guessed, see above.
const LEAST_MEMORY_MB_S: f64 = 20_000.0;

impl Machine {
    /// See the module.
    #[must_use]
    pub fn derived(name: &str, topology: &Topology) -> Machine {
        let ids: Vec<_> = topology.nodes.iter().map(|node| node.id).collect();
        let row = |&a: &_| ids.iter().map(|&b| topology.distance(a, b)).collect::<Vec<u32>>();
        let slit: Vec<Vec<u32>> = ids.iter().map(row).collect();
        let node = |node: &numaherd_model::Node| NodeSpec {
            id: node.id.0,
            cpus: node.cpus.len() as u32,
            memory_mib: node.memory.mib(),
        };
        let nodes: Vec<NodeSpec> = topology.nodes.iter().map(node).collect();
        let most = nodes.iter().map(|node| node.cpus).max().unwrap_or(1);
        let memory_mb_s = (2.0 * STREAM_MB_S * f64::from(most)).max(LEAST_MEMORY_MB_S);
        let guessed = "guessed: a server of today; a topology does not say";
        let figures = ["cpu", "memory", "links", "distance.latency_ns"];
        let latency_ns: Vec<Vec<f64>> =
            slit.iter().map(|row| row.iter().map(|&d| f64::from(d) * 10.0).collect()).collect();
        Machine {
            name: name.into(),
            title: format!("made from {name}"),
            cpu: Cpu {
                stream_mb_s: STREAM_MB_S,
                nearest_ns: 100.0,
                work_ns: 0.0,
                read_stall: 1.0,
                threads_per_core: 1,
                smt_speedup_percent: 100.0,
            },
            memory_mb_s: vec![memory_mb_s; nodes.len()],
            links: nearest(&slit).into_iter().map(|(a, b)| (a, b, memory_mb_s / 2.0)).collect(),
            stores_fetch: true,
            transfer_ns: latency_ns.clone(),
            latency_ns,
            llc: None,
            coherent: true,
            slit,
            node: nodes,
            kernel: KernelCosts::default(),
            provenance: figures.map(|f| (f.to_string(), guessed.to_string())).into(),
        }
    }
}
