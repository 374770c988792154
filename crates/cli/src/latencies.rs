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

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    /// What is said of a file with this text, or what it tells.
    fn reading(text: &str) -> Result<Latencies> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path(), &Scene::two_by_four().snapshot().topology)
    }

    fn measured(nodes: &str) -> String {
        let cell = |median| format!(r#"{{"median": {median}, "min": 1, "max": 900}}"#);
        let (near, far) = (cell(100), cell(250));
        format!(
            r#"{{"machine": "host", "kernel": "6.12", "cpu_nodes": {nodes}, "memory_nodes": {nodes},
            "size_bytes": 1, "samples": 1, "bound": true, "loop_ns": [1, 1], "read_mb_s": [[], []],
            "write_mb_s": [[], []], "stated": null, "latency_ns": [[{near}, {far}], [{far}, {near}]]}}"#
        )
    }

    #[test]
    fn what_was_measured_of_this_machine_is_read() {
        let latencies = reading(&measured("[0, 1]")).unwrap();
        assert_eq!(latencies.between(NodeId(0), NodeId(1)), Some(250.0));
    }

    #[test]
    fn another_file_or_another_machine_is_told_in_one_line() {
        let says = |text: &str| format!("{:#}", reading(text).unwrap_err());
        assert!(says("{}").contains("is not what topology --measure -o json writes"));
        assert!(says(&measured("[0, 2]")).ends_with("other nodes: measure this one"));
        let missing = read(Path::new("/no/such"), &Topology::default()).unwrap_err();
        assert!(format!("{missing:#}").starts_with("--measured /no/such: "), "{missing:#}");
    }
}
