//! The text `numactl --hardware` (2.0.16) prints, byte for byte.
//!
//! Units: MB are mebibytes, rounded down. Observed on captured machines: CPU-less and
//! memory-less nodes keep their three lines, numbers of the distance block have a space before them,
//! are two wide and have a space behind them, and the list of nodes has runs (`0-1,8`).
//!
//! ```text
//! available: 2 nodes (0-1)
//! node 0 cpus: 0 1 2 3
//! node 0 size: 1912 MB
//! node 0 free: 1856 MB
//! …
//! node distances:
//! node   0   1
//!   0:  10  21
//! ```

use std::fmt::Write as _;

use numaherd_model::{NodeSet, Topology};

/// What numactl prints where the kernel gives no distances.
const NO_DISTANCES: &str = "No distance information available.\n";

/// The machine as `numactl -H` prints it.
#[must_use]
pub fn hardware(topology: &Topology) -> String {
    let mut text = String::new();
    let ids: NodeSet = topology.nodes.iter().map(|node| node.id).collect();
    // writing to a String cannot fail
    let _ = writeln!(text, "available: {} nodes ({ids})", topology.nodes.len());
    for node in &topology.nodes {
        let id = node.id;
        let _ = write!(text, "node {id} cpus:");
        for cpu in node.cpus.iter() {
            let _ = write!(text, " {cpu}");
        }
        let (size, free) = (node.memory.mib(), node.free.mib());
        let _ = write!(text, "\nnode {id} size: {size} MB\nnode {id} free: {free} MB\n");
    }
    if topology.distances.is_empty() {
        text.push_str(NO_DISTANCES);
        return text;
    }
    text.push_str("node distances:\nnode ");
    for node in &topology.nodes {
        let _ = write!(text, " {:2} ", node.id.0);
    }
    text.push('\n');
    for (node, row) in topology.nodes.iter().zip(&topology.distances) {
        let _ = write!(text, " {:2}: ", node.id.0);
        for distance in row {
            let _ = write!(text, " {distance:2} ");
        }
        text.push('\n');
    }
    text
}
