//! A machine made from a topology: of a synthetic text, hwloc's XML, a captured tree, this very machine.
//!
//! Nodes, CPUs, cores, memory and distances are taken over. Latencies and bandwidths are in no topology: they are
//! those that somebody measured, or guesses for a server of today, as [`Machine::provenance`] says: a thread streams
//! 5 GB/s, a node carries what all its CPUs ask for twice over and at least 20 GB/s, a link half of that, a local miss
//! takes 100 ns and others 10 ns × SLIT, and each further thread of a core does a quarter of what one does alone.

use numaherd_model::{Latencies, NodeId, Topology, nearest};

use super::{Cpu, KernelCosts, Machine, NodeSpec};

/// Guessed, see above.
const STREAM_MB_S: f64 = 5_000.0;
/// Guessed, see above.
const LEAST_MEMORY_MB_S: f64 = 20_000.0;
/// Guessed, see above.
const FURTHER_THREAD_PERCENT: f64 = 25.0;
/// Guessed, see above.
const NS_OF_SLIT: f64 = 10.0;

/// What somebody measured of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// While nobody waits for memory.
    pub latencies: Latencies,
    /// What all CPUs of a node read of a node's memory, in rows and columns of the latencies; empty where only these
    /// were measured.
    pub read_mb_s: Vec<Vec<f64>>,
}

impl Measured {
    /// What CPUs of `from` read of `to`.
    fn rate(&self, from: NodeId, to: NodeId) -> Option<f64> {
        let (row, column) = self.latencies.cell(from, to)?;
        self.read_mb_s.get(row)?.get(column).copied().filter(|rate| *rate > 0.0)
    }

    /// A node's memory carries what its own CPUs read of it, or without any what others do at the most.
    fn memory_mb_s(&self, node: NodeId) -> Option<f64> {
        let others = self.latencies.cpu_nodes.iter().filter_map(|&from| self.rate(from, node));
        self.rate(node, node).or_else(|| others.reduce(f64::max))
    }

    /// A link carries what is read over it, the way that more is.
    fn link_mb_s(&self, a: NodeId, b: NodeId) -> Option<f64> {
        self.rate(a, b).into_iter().chain(self.rate(b, a)).reduce(f64::max)
    }
}

impl Machine {
    /// See the module.
    #[must_use]
    pub fn derived(name: &str, topology: &Topology, measured: Option<&Measured>) -> Machine {
        let count = topology.nodes.len();
        let row = |a| (0..count).map(|b| topology.distance_at(a, b)).collect::<Vec<u32>>();
        let slit: Vec<Vec<u32>> = (0..count).map(row).collect();
        let node = |node: &numaherd_model::Node| NodeSpec {
            id: node.id.0,
            cpus: node.cpus.len() as u32,
            memory_mib: node.memory.mib(),
        };
        let nodes: Vec<NodeSpec> = topology.nodes.iter().map(node).collect();
        let most = nodes.iter().map(|node| node.cpus).max().unwrap_or(1);
        let memory_mb_s = (2.0 * STREAM_MB_S * f64::from(most)).max(LEAST_MEMORY_MB_S);
        let threads_per_core = threads_per_core(topology);
        let by_slit = || {
            let row = |row: &Vec<u32>| row.iter().map(|&d| f64::from(d) * NS_OF_SLIT).collect();
            slit.iter().map(row).collect()
        };
        let known_ns = measured.and_then(|measured| measured.latencies.filled_ns(topology));
        let rates = measured.filter(|measured| !measured.read_mb_s.is_empty());
        let guessed = "guessed: a server of today; a topology does not say";
        let by_whom =
            |is_measured| if is_measured { "measured: topology --measure" } else { guessed };
        let provenance = [
            ("cpu", guessed),
            ("sim", guessed),
            ("memory", by_whom(rates.is_some())),
            ("links", by_whom(rates.is_some())),
            ("distance.latency_ns", by_whom(known_ns.is_some())),
        ];
        let latency_ns: Vec<Vec<f64>> = known_ns.unwrap_or_else(by_slit);
        let own =
            (0..count).filter(|&node| nodes[node].is_home()).map(|node| latency_ns[node][node]);
        let id = |node: usize| topology.nodes[node].id;
        let carries = |node| rates.and_then(|rates| rates.memory_mb_s(id(node)));
        let link = |(a, b)| {
            let rate = rates.and_then(|rates| rates.link_mb_s(id(a), id(b)));
            (a, b, rate.unwrap_or(memory_mb_s / 2.0))
        };
        Machine {
            name: name.into(),
            title: format!("made from {name}"),
            derived: true,
            cpu: Cpu {
                stream_mb_s: STREAM_MB_S,
                nearest_ns: own.fold(f64::INFINITY, f64::min),
                work_ns: 0.0,
                read_stall: 1.0,
                threads_per_core,
                smt_speedup_percent: 100.0
                    + FURTHER_THREAD_PERCENT * f64::from(threads_per_core - 1),
            },
            memory_mb_s: (0..count).map(|node| carries(node).unwrap_or(memory_mb_s)).collect(),
            links: nearest(&slit).into_iter().map(link).collect(),
            stores_fetch: true,
            transfer_ns: latency_ns.clone(),
            latency_ns,
            llc: None,
            coherent: true,
            slit,
            node: nodes,
            kernel: KernelCosts::default(),
            provenance: provenance
                .into_iter()
                .filter(|(figure, _)| *figure != "links" || count > 1)
                .map(|(figure, from)| (figure.to_string(), from.to_string()))
                .collect(),
        }
    }

    /// What is guessed of it, in words: nothing of a machine that a file describes.
    #[must_use]
    pub fn guesses(&self) -> Option<String> {
        let link = self.links.first().map(|&(.., mb_s)| format!(", a link {mb_s} MB/s"));
        let memory = self.memory_mb_s.first().copied().unwrap_or_default();
        self.derived.then(|| {
            format!(
                "a thread writes {} MB/s, a node's memory carries {memory} MB/s{}, a line takes {NS_OF_SLIT} ns × SLIT",
                self.cpu.stream_mb_s,
                link.unwrap_or_default(),
            )
        })
    }
}

/// Of each core, if all are alike and on one node each.
fn threads_per_core(topology: &Topology) -> u32 {
    let Some(threads) = topology.siblings.first().map(|core| core.len() as u32) else { return 1 };
    let is_alike = topology.siblings.iter().all(|core| core.len() as u32 == threads)
        && topology.siblings.len() * threads as usize == topology.cpus().len()
        && topology.nodes.iter().all(|node| (node.cpus.len() as u32).is_multiple_of(threads));
    if is_alike { threads } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::Bytes;

    /// Two nodes of two cores of two threads, and a memory without CPUs.
    fn topology() -> Topology {
        let node = |id, cpus| (NodeId(id), cpus, Bytes(1 << 30));
        let slit = vec![vec![10, 21, 28], vec![21, 10, 31], vec![28, 31, 10]];
        Topology::numbered([node(0, 4), node(1, 4), node(4, 0)], slit).with_cores_of(2)
    }

    fn measured() -> Measured {
        Measured {
            latencies: Latencies {
                cpu_nodes: [0, 1].map(NodeId).to_vec(),
                memory_nodes: [0, 1, 4].map(NodeId).to_vec(),
                ns: vec![vec![80.5, 140.0, 250.0], vec![141.0, 90.0, 300.0]],
            },
            read_mb_s: vec![vec![50e3, 20e3, 9e3], vec![22e3, 48e3, 8e3]],
        }
    }

    #[test]
    fn what_is_not_measured_is_guessed_and_told() {
        let machine = Machine::derived("x", &topology(), None);
        assert_eq!(machine.latency_ns[0], [100.0, 210.0, 280.0]);
        assert_eq!((machine.cpu.threads_per_core, machine.cpu.smt_speedup_percent), (2, 125.0));
        // Four CPUs of 5 GB/s, twice over.
        assert_eq!(machine.memory_mb_s, [40e3; 3]);
        assert!(machine.guesses().unwrap().contains("10 ns × SLIT"));
        assert!(machine.provenance.values().all(|from| from.starts_with("guessed")));
    }

    #[test]
    fn what_is_measured_is_taken() {
        let machine = Machine::derived("x", &topology(), Some(&measured()));
        assert_eq!(machine.latency_ns[0], [80.5, 140.0, 250.0]);
        assert_eq!(machine.cpu.nearest_ns, 80.5);
        // Of the memory without CPUs what node 0 reads, which is more than what node 1 does.
        assert_eq!(machine.memory_mb_s, [50e3, 48e3, 9e3]);
        // Each is linked with its nearest.
        assert_eq!(machine.links, [(0, 1, 22e3), (0, 2, 9e3)]);
        let from = |figure: &str| machine.provenance[figure].split(':').next().unwrap().to_string();
        assert_eq!(
            ["sim", "memory", "distance.latency_ns"].map(from),
            ["guessed", "measured", "measured"]
        );
        let only = Measured { read_mb_s: Vec::new(), ..measured() };
        let machine = Machine::derived("x", &topology(), Some(&only));
        assert_eq!((machine.latency_ns[1][2], machine.memory_mb_s[2]), (300.0, 40e3));
        assert!(machine.provenance["links"].starts_with("guessed"));
    }

    #[test]
    fn cores_that_are_not_alike_count_as_cpus() {
        let mut topology = topology();
        topology.siblings.pop();
        assert_eq!(Machine::derived("x", &topology, None).cpu.threads_per_core, 1);
    }
}
