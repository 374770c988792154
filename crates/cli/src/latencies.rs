//! Reading what `topology --measure -o json` wrote of this machine.

use std::path::Path;

use anyhow::{Context, Result};
use numaherd_model::{Latencies, NodeId, Topology};
use numaherd_report::{Figure, Matrices};
use numaherd_sim::machine::Measured;

/// This machine's topology, told what a file says that was measured of it, which is returned too.
///
/// # Errors
/// The topology or the file cannot be read, or that is something else.
pub fn here(path: Option<&Path>) -> Result<(Topology, Option<Latencies>)> {
    let mut topology = numaherd_linux::topology::read(Path::new("/"))?;
    let mut latencies = path.map(read).transpose()?;
    if let (Some(path), Some(_)) = (path, latencies.take_if(|known| !known.are_of(&topology))) {
        say!("numaherd: {}; firmware's distances have to do", of_another(path));
    }
    latencies.iter().for_each(|latencies| latencies.fill(&mut topology));
    Ok((topology, latencies))
}

/// Reads it.
///
/// # Errors
/// It cannot be read, or is something else.
pub fn read(path: &Path) -> Result<Latencies> {
    Ok(measured(path)?.latencies)
}

/// The same with bandwidths, where they were measured.
///
/// # Errors
/// It cannot be read, or is something else.
pub fn measured(path: &Path) -> Result<Measured> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("--measured {}", path.display()))?;
    let matrices: Matrices = serde_json::from_str(&text).with_context(|| {
        format!("--measured {} is not what topology --measure -o json writes", path.display())
    })?;
    let ids = |ids: &[u32]| ids.iter().copied().map(NodeId).collect();
    // Whatever disturbs a sample makes it longer.
    let row = |row: &Vec<Figure>| row.iter().map(|figure| figure.min).collect();
    let latencies = Latencies {
        cpu_nodes: ids(&matrices.cpu_nodes),
        memory_nodes: ids(&matrices.memory_nodes),
        ns: matrices.latency_ns.iter().map(row).collect(),
    };
    let rates = |row: &Vec<Figure>| row.iter().map(|figure| figure.median).collect();
    let has_rates = matrices.read_mb_s.iter().any(|row| !row.is_empty());
    let read_mb_s = matrices.read_mb_s.iter().filter(|_| has_rates).map(rates).collect();
    Ok(Measured { latencies, read_mb_s })
}

/// What is wrong with latencies of other nodes than this machine has.
pub fn of_another(path: &Path) -> String {
    let path = path.display();
    format!(
        "--measured {path} is not of all nodes that this machine has, and of no others: measure it with all CPUs allowed"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    /// What is said of a file with this text, or what it tells.
    fn reading(text: &str) -> Result<Latencies> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    fn measured(nodes: &str) -> String {
        let cell = |least| format!(r#"{{"median": 500, "min": {least}, "max": 900}}"#);
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
        let here = |nodes| {
            latencies.are_of(&numaherd_model::scene::Scene::even(nodes, 2).snapshot().topology)
        };
        assert!(here(2) && !here(3));
    }

    #[test]
    fn another_file_is_told_in_one_line() {
        let says = |text: &str| format!("{:#}", reading(text).unwrap_err());
        assert!(says("{}").contains("is not what topology --measure -o json writes"));
        let missing = read(Path::new("/no/such")).unwrap_err();
        assert!(format!("{missing:#}").starts_with("--measured /no/such: "), "{missing:#}");
    }
}
