//! Which node holds an address. Found out, not assumed.
//!
//! The key that QEMU gives for an access is the offset of the RAM block plus the address of the
//! block's region, which need not be the guest's physical address and differs between machine
//! types. So the guest touches memory bound to node 0, then to node 1 …, the keys are counted
//! by node ([`Touches`]), and the first candidate layout that explains them is taken ([`find`]).
//!
//! Units: bytes of key space. Invariant: the ranges of a [`NodeMap`] do not overlap.
//!
//! ```text
//! 2 nodes × 2 GiB        node 0        node 1
//! cumulative             0–2 GiB       2–4 GiB
//! doubled                0–2 GiB       4–6 GiB        a block's offset = its region's address
//! with hole at 3 GiB     0–2 GiB       2–3 and 4–5    guest-physical, QEMU's PC
//! ```

use std::collections::BTreeMap;

/// Keys are counted by blocks of this size, in bytes.
const BUCKET_BYTES: u64 = 16 << 20;
const FOUR_GIB: u64 = 4 << 30;
/// Of each node's touches, the share that must lie in its range; the rest are the agent's stack
/// and the like.
const NEEDED_PERMILLE: u64 = 900;
/// Touches of a node below which nothing is concluded. Guessed: one page's lines.
const NEEDED_TOUCHES: u64 = 64;

/// A way in which nodes may lie in key space. The number goes to the stats file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum MemoryLayout {
    /// One after the other: all nodes are slices of one RAM block.
    Cumulative = 1,
    /// One after the other, each start doubled: a memory backend per node, whose block offset
    /// and region address are equal. QEMU 7.2 and 10.0 with `-numa node,memdev=`.
    Doubled = 2,
    /// Guest-physical addresses of a PC: what does not fit below the hole follows from 4 GiB.
    PcHole = 3,
}

/// In order of preference. The memory touched often cannot tell two of them apart (of 2 × 2 GiB,
/// both `Doubled` and `PcHole` have node 1 at 4–5 GiB), so among those that explain it the first
/// is taken, what is seen in practice first. A wrong choice shows in the misses that no node's
/// range holds, which the stats file counts.
const CANDIDATES: [MemoryLayout; 3] =
    [MemoryLayout::Doubled, MemoryLayout::Cumulative, MemoryLayout::PcHole];

/// Key ranges of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMap {
    /// (first key, key after the last, node index), ascending.
    ranges: Vec<(u64, u64, usize)>,
}

impl NodeMap {
    /// The map that `layout` gives for nodes of these sizes.
    #[must_use]
    pub fn new(layout: MemoryLayout, node_bytes: &[u64], below_4g_bytes: u64) -> Self {
        let mut ranges = Vec::new();
        let mut end = 0;
        for (node, &bytes) in node_bytes.iter().enumerate() {
            let start = end;
            end = start + bytes;
            match layout {
                MemoryLayout::Cumulative => ranges.push((start, end, node)),
                MemoryLayout::Doubled => ranges.push((2 * start, 2 * start + bytes, node)),
                MemoryLayout::PcHole => {
                    let hole_bytes = FOUR_GIB.saturating_sub(below_4g_bytes);
                    let split = below_4g_bytes.clamp(start, end);
                    ranges.push((start, split, node));
                    ranges.push((split + hole_bytes, end + hole_bytes, node));
                }
            }
        }
        ranges.retain(|(start, end, _)| start < end);
        ranges.sort_unstable();
        NodeMap { ranges }
    }

    /// One node that holds everything.
    #[must_use]
    pub fn whole() -> Self {
        NodeMap { ranges: vec![(0, u64::MAX, 0)] }
    }

    /// Index of the node that holds `key`; none for ROM, devices and what was never RAM.
    #[must_use]
    pub fn node(&self, key: u64) -> Option<usize> {
        let after = self.ranges.partition_point(|(start, _, _)| *start <= key);
        let (_, end, node) = *self.ranges.get(after.checked_sub(1)?)?;
        (key < end).then_some(node)
    }
}

/// The key after the highest that any layout gives.
#[must_use]
pub fn highest_key(node_bytes: &[u64], below_4g_bytes: u64) -> u64 {
    let maps = CANDIDATES.map(|layout| NodeMap::new(layout, node_bytes, below_4g_bytes));
    maps.iter().flat_map(|map| map.ranges.iter().map(|(_, end, _)| *end)).max().unwrap_or(0)
}

/// Keys that were touched while memory of each node was being used.
#[derive(Debug)]
pub struct Touches {
    /// Per node index: touches by number of the 16 MiB block.
    by_node: Vec<BTreeMap<u64, u64>>,
}

impl Default for Touches {
    fn default() -> Self {
        Touches { by_node: vec![BTreeMap::new()] }
    }
}

impl Touches {
    /// Counts one touch of the present node.
    pub fn count(&mut self, key: u64) {
        if let Some(buckets) = self.by_node.last_mut() {
            *buckets.entry(key / BUCKET_BYTES).or_default() += 1;
        }
    }

    /// The touches from here on are of the next node.
    pub fn next_node(&mut self) {
        self.by_node.push(BTreeMap::new());
    }

    /// The smallest share, over the nodes touched, of touches that `map` explains.
    fn explained_permille(&self, map: &NodeMap, nodes: &[usize]) -> u64 {
        let permille = |(&node, buckets): (&usize, &BTreeMap<u64, u64>)| {
            let all: u64 = buckets.values().sum();
            let right: u64 = buckets
                .iter()
                .filter(|(bucket, _)| map.node(*bucket * BUCKET_BYTES) == Some(node))
                .map(|(_, count)| count)
                .sum();
            (right * 1000).checked_div(all).unwrap_or(0)
        };
        nodes.iter().zip(&self.by_node).map(permille).min().unwrap_or(0)
    }

    /// The blocks most touched, for a message: `node 0: 0x0 (512) …`.
    fn summary(&self) -> String {
        let node = |(node, buckets): (usize, &BTreeMap<u64, u64>)| {
            let mut most: Vec<_> =
                buckets.iter().map(|(bucket, count)| (*count, *bucket)).collect();
            most.sort_unstable_by(|a, b| b.cmp(a));
            most.truncate(4);
            let list: Vec<String> = most
                .iter()
                .map(|(count, bucket)| format!("{:#x} ({count})", bucket * BUCKET_BYTES))
                .collect();
            format!("node {node}: {}", list.join(" "))
        };
        self.by_node.iter().enumerate().map(node).collect::<Vec<_>>().join(", ")
    }
}

/// Why no layout was taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The guest's agent did not touch every node, or touched too many.
    #[error("memory of {touched} nodes was touched, {nodes} of the machine have some")]
    Nodes {
        /// Nodes touched.
        touched: usize,
        /// Nodes that have memory.
        nodes: usize,
    },
    /// Too little to conclude from.
    #[error("too few touches to tell the nodes apart; the keys seen are {seen}")]
    TooFew {
        /// The keys most touched.
        seen: String,
    },
    /// No candidate explains enough.
    #[error("no known layout of memory explains the keys seen: {seen}")]
    NoneFits {
        /// The keys most touched.
        seen: String,
    },
}

/// The layout that explains the touches, which are of the nodes that have memory, in their order.
///
/// # Errors
/// If none does, or too little was touched.
pub fn find(
    touches: &Touches,
    node_bytes: &[u64],
    below_4g_bytes: u64,
) -> Result<(MemoryLayout, NodeMap), MapError> {
    let with_memory: Vec<usize> = (0..node_bytes.len()).filter(|&i| node_bytes[i] > 0).collect();
    let (touched, nodes) = (touches.by_node.len(), with_memory.len());
    if touched != nodes {
        return Err(MapError::Nodes { touched, nodes });
    }
    if touches.by_node.iter().any(|buckets| buckets.values().sum::<u64>() < NEEDED_TOUCHES) {
        return Err(MapError::TooFew { seen: touches.summary() });
    }
    CANDIDATES
        .into_iter()
        .map(|layout| (layout, NodeMap::new(layout, node_bytes, below_4g_bytes)))
        .find(|(_, map)| touches.explained_permille(map, &with_memory) >= NEEDED_PERMILLE)
        .ok_or_else(|| MapError::NoneFits { seen: touches.summary() })
}

#[cfg(test)]
#[path = "nodemap/tests.rs"]
mod tests;
