//! Where each counter lies in the stats file that the launcher reads while the guest runs.
//!
//! The file is an array of little-endian 64-bit words.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | [`MAGIC`]; written last, so that it vouches for words 1 to 4 and 10 |
//! | 1 | [`VERSION`] |
//! | 2 | CPUs |
//! | 3 | nodes |
//! | 4 | snapshots the ring holds, [`SNAPSHOTS`] |
//! | 5 | snapshots taken so far; stored with release order after the snapshot is complete |
//! | 6 | charging: 0 or 1 |
//! | 7 | node map: 0 unknown, 1 learning, 2 found, 3 failed |
//! | 8 | which layout of memory was found (see [`crate::nodemap`]); 0 none |
//! | 9 | misses on RAM that no node's range holds, all CPUs; as of the last snapshot |
//! | 10 | bytes of a line: what each miss, transfer and line that went back stands for |
//! | 11–15 | reserved, 0 |
//! | 16 … | one block per CPU, in order of vCPU index |
//! | then | the ring of snapshots; number `n` (from 0) lies at `n % SNAPSHOTS` |
//!
//! A CPU's block has 12 + nodes words:
//!
//! | word | meaning |
//! |---|---|
//! | 0 | instructions |
//! | 1 | memory accesses |
//! | 2 | misses: lines that came from memory or from another CPU's cache |
//! | 3 | late_ns: lag that was never made good (it went idle, or charging ended, with that lag) |
//! | 4 | slept_ns: time slept because it was ahead |
//! | 5 | idle_ns: time halted |
//! | 6 | lag_ns: how far it is behind now; not in word 3 yet |
//! | 7 | accesses that the last-level cache served |
//! | 8 | transfers: lines, or the right to write them, that came from another CPU |
//! | 9 | dirty lines that went back to memory |
//! | 10 | queued_ns: time waited for bandwidth |
//! | 11 | stalled_ns: time that accesses took beyond a hit in its own cache, queued_ns included |
//! | 12 … | misses by the node whose memory holds the line |
//!
//! All count only while charging is on, and only grow, but for lag_ns. The live blocks are
//! brought up to date about once per quantum; those of a snapshot are exact. A snapshot is two
//! words (the marker's tag, guest time in ns) and a copy of all CPU blocks.

/// Word 0: "NUMAHERD".
pub const MAGIC: u64 = 0x4e55_4d41_4845_5244;
/// Word 1.
pub const VERSION: u64 = 4;
/// Word 4: snapshots the ring holds.
pub const SNAPSHOTS: usize = 256;

/// Indices of the header's words.
pub mod header {
    #![allow(missing_docs)] // the table above
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const CPUS: usize = 2;
    pub const NODES: usize = 3;
    pub const SNAPSHOT_CAPACITY: usize = 4;
    pub const SNAPSHOTS_TAKEN: usize = 5;
    pub const CHARGING: usize = 6;
    pub const MAP_STATE: usize = 7;
    pub const MAP_LAYOUT: usize = 8;
    pub const STRAY_MISSES: usize = 9;
    pub const LINE_BYTES: usize = 10;
    pub const WORDS: usize = 16;
}

/// Words of a CPU's block before the misses by node.
pub const CPU_WORDS: usize = 12;
const SNAPSHOT_HEADER_WORDS: usize = 2;

/// The sizes that fix all offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// vCPUs.
    pub cpus: usize,
    /// Nodes.
    pub nodes: usize,
}

impl Layout {
    /// Words of one CPU's block.
    #[must_use]
    pub fn block_words(self) -> usize {
        CPU_WORDS + self.nodes
    }

    /// First word of a CPU's live block.
    #[must_use]
    pub fn block(self, cpu: usize) -> usize {
        header::WORDS + cpu * self.block_words()
    }

    fn snapshot_words(self) -> usize {
        SNAPSHOT_HEADER_WORDS + self.cpus * self.block_words()
    }

    /// First word of snapshot number `number`: its tag; its time is the next word.
    #[must_use]
    pub fn snapshot(self, number: u64) -> usize {
        self.block(self.cpus) + (number % SNAPSHOTS as u64) as usize * self.snapshot_words()
    }

    /// First word of a CPU's block in that snapshot.
    #[must_use]
    pub fn snapshot_block(self, number: u64, cpu: usize) -> usize {
        self.snapshot(number) + SNAPSHOT_HEADER_WORDS + cpu * self.block_words()
    }

    /// Words of the whole file.
    #[must_use]
    pub fn words(self) -> usize {
        self.block(self.cpus) + SNAPSHOTS * self.snapshot_words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_two_nodes_with_four_cpus_each() {
        let layout = Layout { cpus: 8, nodes: 2 };
        assert_eq!(layout.block_words(), 14);
        assert_eq!(layout.block(0), 16);
        assert_eq!(layout.block(7), 16 + 98);
        assert_eq!(layout.snapshot(0), 16 + 112); // after the eighth block
        assert_eq!(layout.snapshot_block(0, 1), 128 + 2 + 14);
        assert_eq!(layout.snapshot(1), 128 + 114); // tag, time, 8 blocks of 14
        assert_eq!(layout.words(), 128 + 256 * 114);
    }

    #[test]
    fn the_ring_wraps() {
        let layout = Layout { cpus: 1, nodes: 1 };
        assert_eq!(layout.snapshot(256), layout.snapshot(0));
        assert_eq!(layout.snapshot(255) + 2 + 13, layout.words());
    }
}
