//! A machine to boot, made from a topology alone: a synthetic text, hwloc's XML, a captured tree.
//!
//! Nodes, their numbers of CPUs, ids and distances are taken over. The rest is not in a topology:
//! CPUs, caches are those of `2x4`; a miss costs 100 ns × SLIT ÷ 10; CPUs are numbered through in
//! the order of nodes; memory beyond what a host can spare is scaled down to 4 GiB in all, each
//! node keeping its part. The machine's provenance says so.
//!
//! ```text
//! 4 nodes × 64 GiB, SLIT 10/21   →   4 nodes × 1 GiB, 100 ns and 210 ns
//! ```

use numaherd_model::Topology;
use toml::{Table, Value};

use crate::{LabError, Machine};

/// Guessed: what a host that runs a lab can spare.
const MOST_MIB: u64 = 8192;
/// The least that a guest boots with.
const LEAST_MIB: u64 = 1024;
/// What memory is scaled to.
const SCALED_MIB: u64 = 4096;
/// Of a node that has memory: the kernel gives up on much smaller ones.
const LEAST_NODE_MIB: u64 = 32;
/// Of a local miss, as on `2x4`; SLIT's 10 stands for it.
const LOCAL_NS: u64 = 100;

/// Makes a machine that has the topology's nodes.
///
/// # Errors
/// [`LabError::Machine`]: more CPUs than can be emulated, distances no firmware may give.
pub fn machine(name: &str, topology: &Topology) -> Result<Machine, LabError> {
    let ids: Vec<_> = topology.nodes.iter().map(|node| node.id).collect();
    let slit: Vec<Vec<u64>> = ids
        .iter()
        .map(|&a| ids.iter().map(|&b| u64::from(topology.distance(a, b))).collect())
        .collect();
    let latency = slit.iter().map(|row| row.iter().map(|d| d * LOCAL_NS / 10).collect()).collect();
    let (memory, memory_from) = memory_mib(topology);
    let node = |(node, mib): (&numaherd_model::Node, u64)| {
        let fields =
            [("id", u64::from(node.id.0)), ("cpus", node.cpus.len() as u64), ("memory_mib", mib)];
        Value::Table(fields.into_iter().map(|(k, v)| (k.to_string(), integer(v))).collect())
    };
    let nodes = topology.nodes.iter().zip(memory).map(node).collect();

    let mut file: Table = toml::from_str(include_str!("../../../machines/2x4.toml"))
        .map_err(|e| LabError::Machine { path: "2x4".into(), problem: e.to_string() })?;
    // What else 2x4 says, it says of its own nodes.
    file.retain(|name, _| ["cpu", "cache", "provenance"].contains(&name));
    file.insert("title".into(), format!("made from {name}").into());
    file.insert("node".into(), Value::Array(nodes));
    let matrix = |rows: Vec<Vec<u64>>| {
        let row = |row: Vec<u64>| Value::Array(row.into_iter().map(integer).collect());
        Value::Array(rows.into_iter().map(row).collect())
    };
    let distances = [("slit", matrix(slit)), ("latency_ns", matrix(latency))];
    let distances = distances.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    file.insert("distance".into(), Value::Table(distances));
    if let Some(Value::Table(provenance)) = file.get_mut("provenance") {
        provenance.retain(|figure, _| figure.starts_with("cpu") || figure.starts_with("cache"));
        provenance.insert("node.memory_mib".into(), memory_from.into());
        provenance.insert("distance.slit".into(), distances_from(topology).into());
        let latency_from = "guessed: 100 ns × SLIT ÷ 10";
        provenance.insert("distance.latency_ns".into(), latency_from.into());
    }
    let machine = Machine::parse(name, name, &file.to_string())?;
    Ok(Machine { derived: true, ..machine })
}

fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn distances_from(topology: &Topology) -> &'static str {
    if topology.distances.is_empty() {
        "guessed: none given; 10 and 20, as the kernel assumes"
    } else {
        "chosen: as given"
    }
}

/// MiB of each node, and where the figures come from.
fn memory_mib(topology: &Topology) -> (Vec<u64>, String) {
    let given: Vec<u64> = topology.nodes.iter().map(|node| node.memory.0 >> 20).collect();
    let all = given.iter().fold(0, |sum: u64, mib| sum.saturating_add(*mib));
    if (LEAST_MIB..=MOST_MIB).contains(&all) {
        return (given, "chosen: as given".into());
    }
    let scaled = |mib: &u64| {
        let part = u128::from(*mib) * u128::from(SCALED_MIB) / u128::from(all.max(1));
        if *mib == 0 { 0 } else { (part as u64).max(LEAST_NODE_MIB) }
    };
    let scaled = given.iter().map(scaled).collect();
    (scaled, format!("chosen: scaled from {all} to {SCALED_MIB} MiB in all"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn a_synthetic_machine_gets_latencies_from_its_distances() {
        let topology = synthetic::parse("pack:2 node:2(memory=64GiB) pu:2").unwrap();
        let machine = machine("x", &topology).unwrap();
        // 12 → 120 ns, 21 → 210 ns; 256 GiB scaled to 4, a quarter each
        assert_eq!(machine.distance.latency_ns[0], [100, 120, 210, 210]);
        assert_eq!(machine.node.iter().map(|n| n.memory_mib).collect::<Vec<_>>(), [1024; 4]);
        assert!(machine.provenance["node.memory_mib"].contains("262144 to 4096"));
        assert!(machine.provenance["distance.latency_ns"].starts_with("guessed"));
        assert_eq!(machine.node_index_of_cpus(), [0, 0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn a_node_without_memory_stays_without_and_small_ones_stay_usable() {
        let mut topology = synthetic::parse("node:3(memory=100GiB) pu:1").unwrap();
        topology.nodes[1].memory.0 = 0;
        topology.nodes[2].memory.0 = 1 << 20;
        let mib: Vec<_> =
            machine("x", &topology).unwrap().node.iter().map(|n| n.memory_mib).collect();
        // 100 GiB of 100 GiB + 1 MiB: 4095 when rounded down
        assert_eq!(mib, [4095, 0, 32]);
    }

    #[test]
    fn what_cannot_be_emulated_is_refused() {
        let topology = synthetic::parse("node:4 pu:100").unwrap();
        let error = machine("big", &topology).unwrap_err().to_string();
        assert!(error.contains("400 CPUs in all"), "{error}");
    }
}
