//! Reading what `topology --measure -o json` wrote of this machine.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use numaherd_model::{Latencies, NodeId, Topology};
use numaherd_report::Matrices;

/// This machine's topology, told what a file says that was measured of it, which is returned too.
///
/// # Errors
/// The topology cannot be read, or the file is none for it.
pub fn here(path: Option<&Path>) -> Result<(Topology, Option<Latencies>)> {
    let mut topology = numaherd_linux::topology::read(Path::new("/"))?;
    let latencies = path.map(|path| read(path, &topology)).transpose()?;
    latencies.iter().for_each(|latencies| latencies.fill(&mut topology));
    Ok((topology, latencies))
}

/// Reads it, for a machine with these nodes.
///
/// # Errors
/// It cannot be read, is something else, or of another machine.
pub fn read(path: &Path, topology: &Topology) -> Result<Latencies> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("--measured {}", path.display()))?;
    let matrices: Matrices = serde_json::from_str(&text).with_context(|| {
        format!("--measured {} is not what topology --measure -o json writes", path.display())
    })?;
    let ids = |ids: &[u32]| ids.iter().copied().map(NodeId).collect();
    let latencies = Latencies {
        cpu_nodes: ids(&matrices.cpu_nodes),
        memory_nodes: ids(&matrices.memory_nodes),
        ns: matrices
            .latency_ns
            .iter()
            .map(|row| row.iter().map(|figure| figure.median).collect())
            .collect(),
    };
    ensure!(
        latencies.are_of(topology),
        "--measured {} is of a machine with other nodes: measure this one",
        path.display()
    );
    Ok(latencies)
}
