//! Reading what `topology --measure -o json` wrote of this machine.

use std::path::Path;

use anyhow::{Context, Result, bail};
use numaherd_model::{Latencies, NodeId, Topology};
use numaherd_report::{Figure, Matrices};
use numaherd_sim::machine::Measured;

use crate::commands::machine::source;

/// What was measured of a machine.
#[derive(Clone, Debug)]
pub struct Known {
    /// How far its nodes are from each other.
    pub latencies: Latencies,
    /// What each node's memory carries at most, in bytes a second, as far as that was measured.
    pub most: Vec<(NodeId, u64)>,
}

/// This machine's topology, and what a file says that was measured of it.
///
/// # Errors
/// The topology or the file cannot be read, or that is something else.
pub fn here(path: Option<&Path>) -> Result<(Topology, Option<Known>)> {
    let topology = numaherd_linux::topology::read(Path::new("/"))?;
    let mut known = path.map(read).transpose()?;
    let is_of_another = |known: &mut Known| !known.latencies.are_of(&topology);
    if let (Some(path), Some(_)) = (path, known.take_if(is_of_another)) {
        say!("numaherd: {}; firmware's distances have to do", of_another(path));
    }
    Ok((topology, known))
}

/// Reads it.
///
/// # Errors
/// It cannot be read, or is something else.
pub fn read(path: &Path) -> Result<Known> {
    let matrices = matrices(path)?;
    let own = matrices.of_own_memory().into_iter();
    let most = own.map(|(node, figure)| (NodeId(node), (figure.median * 1e6) as u64)).collect();
    Ok(Known { latencies: latencies(&matrices), most })
}

/// Latencies, and bandwidths from each node to each, where they were measured.
///
/// # Errors
/// It cannot be read, or is something else.
pub fn measured(path: &Path) -> Result<Measured> {
    let matrices = matrices(path)?;
    let rates = |row: &Vec<Figure>| row.iter().map(|figure| figure.median).collect();
    let has_rates = matrices.read_mb_s.iter().any(|row| !row.is_empty());
    let read_mb_s = matrices.read_mb_s.iter().filter(|_| has_rates).map(rates).collect();
    Ok(Measured { latencies: latencies(&matrices), read_mb_s })
}

fn matrices(path: &Path) -> Result<Matrices> {
    let file = path.display();
    // A pipe may give it (`<(…)`), and be waited for.
    let bytes = source::bytes(path).with_context(|| format!("--measured {file}"))?;
    let matrices: Matrices = serde_json::from_slice(&bytes).with_context(|| {
        format!("--measured {file} is not what topology --measure -o json writes")
    })?;
    let all = [("latency_ns", &matrices.latency_ns), ("read_mb_s", &matrices.read_mb_s)];
    for (of, rows) in all {
        for (from, row) in rows.iter().enumerate() {
            if let Some((to, figure)) = (0..).zip(row).find(|(_, figure)| figure.min <= 0.0) {
                let least = figure.min;
                bail!(
                    "--measured {file}: {of}[{from}][{to}].min is {least}, expected more than 0: measure it again"
                );
            }
        }
    }
    Ok(matrices)
}

fn latencies(matrices: &Matrices) -> Latencies {
    let ids = |ids: &[u32]| ids.iter().copied().map(NodeId).collect();
    // Whatever disturbs a sample makes it longer.
    let row = |row: &Vec<Figure>| row.iter().map(|figure| figure.min).collect();
    Latencies {
        cpu_nodes: ids(&matrices.cpu_nodes),
        memory_nodes: ids(&matrices.memory_nodes),
        ns: matrices.latency_ns.iter().map(row).collect(),
    }
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
    fn reading(text: &str) -> Result<Known> {
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
        let Known { latencies, most } = reading(&measured("[0, 1]")).unwrap();
        assert_eq!(latencies.between(NodeId(0), NodeId(1)), Some(250.0));
        let here = |nodes| {
            latencies.are_of(&numaherd_model::scene::Scene::even(nodes, 2).snapshot().topology)
        };
        assert!(here(2) && !here(3));
        assert_eq!(most, []);
        let cell = |mb| format!(r#"{{"median": {mb}, "min": 1, "max": 9000}}"#);
        let rates = format!("[[{}, {}], [{}, {}]]", cell(4000), cell(700), cell(600), cell(3500));
        let known = reading(&measured("[0, 1]").replacen("[[], []]", &rates, 1)).unwrap();
        assert_eq!(known.most, [(NodeId(0), 4_000_000_000), (NodeId(1), 3_500_000_000)]);
    }

    #[test]
    fn another_file_is_told_in_one_line() {
        let says = |text: &str| format!("{:#}", reading(text).unwrap_err());
        assert!(says("{}").contains("is not what topology --measure -o json writes"));
        let wrong = measured("[0, 1]").replacen("\"min\": 250", "\"min\": -5", 1);
        let told = says(&wrong);
        assert!(told.contains("latency_ns[0][1].min is -5, expected more than 0"), "{told}");
        let missing = read(Path::new("/no/such")).unwrap_err();
        assert!(format!("{missing:#}").starts_with("--measured /no/such: "), "{missing:#}");
    }
}
