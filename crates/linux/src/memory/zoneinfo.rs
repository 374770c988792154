//! How much a node has free and where its reclaim begins: `/proc/zoneinfo`, summed over zones.
//!
//! What others take of its CPUs is not known here. Units: base pages. A node's high watermark is the sum over its zones: while more than that is
//! free, the kernel reclaims nothing there.

use std::path::Path;

use numaherd_model::{NodeId, NodeState, Pages};

use crate::file::{self, ReadError};

const EXPECTED: &str = "'Node N, zone NAME', 'pages free N' or 'high N'";

/// The state of every node that has zones, ascending by node.
///
/// # Errors
/// The file cannot be read, or is not the kernel's.
pub fn read(root: &Path) -> Result<Vec<NodeState>, ReadError> {
    let path = root.join("proc/zoneinfo");
    let text = file::text(&path)?;
    parse(&text).map_err(|(line, found)| ReadError::parse(&path, line, EXPECTED, &found))
}

fn parse(text: &str) -> Result<Vec<NodeState>, (usize, String)> {
    let mut nodes: Vec<NodeState> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = || (index + 1, line.to_string());
        if let Some(rest) = line.strip_prefix("Node ") {
            let (id, _) = rest.split_once(',').ok_or_else(wrong)?;
            let id = NodeId(id.parse().map_err(|_| wrong())?);
            // zones come grouped by node
            if nodes.last().is_none_or(|node| node.id != id) {
                nodes.push(NodeState {
                    id,
                    free: Pages(0),
                    high_watermark: Pages(0),
                    others_permille: 0,
                });
            }
            continue;
        }
        let Some(node) = nodes.last_mut() else {
            continue;
        };
        let mut words = line.split_ascii_whitespace();
        // 'high:' with a colon belongs to the per-CPU lists
        let total = match words.next() {
            Some("pages") if words.next() == Some("free") => &mut node.free.0,
            Some("high") => &mut node.high_watermark.0,
            _ => continue,
        };
        let pages: u64 = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
        *total = total.saturating_add(pages);
    }
    nodes.sort_unstable_by_key(|node| node.id);
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_summed_per_node() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/2x4/root");
        let nodes = read(root.as_ref()).unwrap();
        // node 0: DMA 3712 + DMA32 471622 free, 96 + 12225 + Movable 32 high
        // node 1: Normal 508380 free, 13020 + Movable 32 high
        let expected = [(0, 475_334, 12_353), (1, 508_380, 13_052)];
        let got: Vec<_> = nodes.iter().map(|n| (n.id.0, n.free.0, n.high_watermark.0)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn per_cpu_lists_do_not_count_and_nonsense_is_refused() {
        let text = "Node 3, zone Normal\n  pages free 5\n high 2\n cpu: 0\n high: 99\n";
        assert_eq!(
            parse(text).unwrap(),
            [NodeState {
                id: NodeId(3),
                free: Pages(5),
                high_watermark: Pages(2),
                others_permille: 0
            }]
        );
        assert_eq!(parse("Node x, zone Normal\n").unwrap_err().0, 1);
        assert_eq!(parse("Node 0, zone Normal\n  pages free\n").unwrap_err().0, 2);
        assert_eq!(parse("").unwrap(), []);
    }
}
