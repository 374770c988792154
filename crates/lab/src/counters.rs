//! What the latency plugin counted: a file of little-endian `u64` words that it keeps up to
//! date while the guest runs.
//!
//! The layout is the plugin's (`lab-plugin/src/layout.rs`); this is the reader's half of it.
//! Words 0–15 are the header, then one block per CPU, then the ring of snapshots. Programs in the
//! guest may read it too, as those on hardware ask a PMU.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The file, as programs in the guest see it: a mount of its own below /run.
pub const IN_GUEST: &str = "/run/numaherd-lab/stats";

const MAGIC: u64 = 0x4e55_4d41_4845_5244;
const VERSION: u64 = 4;
const HEADER_WORDS: u64 = 16;
const CPU_FIXED_WORDS: u64 = 12;

/// Counters of one CPU since charging began (or between two snapshots).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCounters {
    /// Instructions executed.
    pub instructions: u64,
    /// Memory accesses.
    pub accesses: u64,
    /// Lines that came from memory or from another CPU's cache.
    pub misses: u64,
    /// Guest time the CPU was behind and never made good, in nanoseconds.
    pub late_ns: u64,
    /// Guest time it slept because it was ahead.
    pub slept_ns: u64,
    /// Guest time it was idle.
    pub idle_ns: u64,
    /// Guest time it is behind now.
    pub lag_ns: u64,
    /// Accesses that the last-level cache served.
    pub llc_hits: u64,
    /// Lines, or the right to write them, that came from another CPU.
    pub transfers: u64,
    /// Dirty lines that went back to memory.
    pub write_backs: u64,
    /// Guest time it waited for bandwidth.
    pub queued_ns: u64,
    /// Guest time that accesses took, beyond a hit in its own cache.
    #[serde(default)]
    pub stalled_ns: u64,
    /// Misses by the node whose memory holds the line, in the machine's order.
    pub misses_by_node: Vec<u64>,
}

/// All CPUs at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// What the guest's marker said, for snapshots.
    pub tag: u64,
    /// Guest time, in nanoseconds.
    pub guest_ns: u64,
    /// In order of CPU number.
    pub cpus: Vec<CpuCounters>,
}

impl Counters {
    /// What was counted since `earlier`. Lag is a state, not a count: its growth is kept.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        let cpus = self.cpus.iter().zip(&earlier.cpus).map(|(now, then)| CpuCounters {
            instructions: now.instructions.saturating_sub(then.instructions),
            accesses: now.accesses.saturating_sub(then.accesses),
            misses: now.misses.saturating_sub(then.misses),
            late_ns: now.late_ns.saturating_sub(then.late_ns),
            slept_ns: now.slept_ns.saturating_sub(then.slept_ns),
            idle_ns: now.idle_ns.saturating_sub(then.idle_ns),
            lag_ns: now.lag_ns.saturating_sub(then.lag_ns),
            llc_hits: now.llc_hits.saturating_sub(then.llc_hits),
            transfers: now.transfers.saturating_sub(then.transfers),
            write_backs: now.write_backs.saturating_sub(then.write_backs),
            queued_ns: now.queued_ns.saturating_sub(then.queued_ns),
            stalled_ns: now.stalled_ns.saturating_sub(then.stalled_ns),
            misses_by_node: now
                .misses_by_node
                .iter()
                .zip(&then.misses_by_node)
                .map(|(a, b)| a.saturating_sub(*b))
                .collect(),
        });
        Counters {
            tag: self.tag,
            guest_ns: self.guest_ns.saturating_sub(earlier.guest_ns),
            cpus: cpus.collect(),
        }
    }

    /// Misses served by the CPU's own node ÷ all misses; `None` without misses.
    #[must_use]
    pub fn local_share(&self, node_of_cpu: &[usize]) -> Option<f64> {
        let local = |(cpu, counters): (usize, &CpuCounters)| {
            node_of_cpu.get(cpu).and_then(|&n| counters.misses_by_node.get(n)).copied().unwrap_or(0)
        };
        let local: u64 = self.cpus.iter().enumerate().map(local).sum();
        let all: u64 = self.cpus.iter().flat_map(|c| &c.misses_by_node).sum();
        (all > 0).then(|| local as f64 / all as f64)
    }

    /// Growth of the CPUs' lag ÷ (CPUs × elapsed): 0 where the host kept up.
    #[must_use]
    pub fn late_share(&self) -> f64 {
        let late: u64 = self.cpus.iter().map(|c| c.late_ns + c.lag_ns).sum();
        let whole = self.guest_ns as f64 * self.cpus.len() as f64;
        if whole > 0.0 { late as f64 / whole } else { 0.0 }
    }

    /// Instructions of all CPUs.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        self.cpus.iter().map(|c| c.instructions).sum()
    }
}

/// What the plugin knows of where nodes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMap {
    /// Not asked yet.
    Unknown,
    /// The agent is touching memory of each node.
    Learning,
    /// Found.
    Found,
    /// Nothing it knows fits what it saw.
    Failed,
}

/// A reader of the plugin's file.
#[derive(Debug)]
pub struct CounterFile {
    file: File,
    cpus: u64,
    nodes: u64,
    capacity: u64,
    line_bytes: u64,
}

impl CounterFile {
    /// Opens the file once the plugin has laid it out.
    ///
    /// # Errors
    /// Those of the file, and `InvalidData` where it is not (yet) what we expect.
    pub fn open(path: &Path) -> io::Result<CounterFile> {
        let file = File::open(path)?;
        let mut reader = CounterFile { file, cpus: 0, nodes: 0, capacity: 0, line_bytes: 0 };
        let head = reader.words(0, 11)?;
        if head[0] != MAGIC || head[1] != VERSION {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not the plugin's counters"));
        }
        (reader.cpus, reader.nodes, reader.capacity) = (head[2], head[3], head[4]);
        reader.line_bytes = head[10];
        Ok(reader)
    }

    /// Bytes of a line of the machine's caches: what is fetched by a miss.
    #[must_use]
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Whether instructions and misses are charged.
    ///
    /// # Errors
    /// Those of the file.
    pub fn charging(&self) -> io::Result<bool> {
        Ok(self.words(6, 1)?[0] == 1)
    }

    /// What the plugin knows of where nodes lie.
    ///
    /// # Errors
    /// Those of the file.
    pub fn node_map(&self) -> io::Result<NodeMap> {
        Ok(match self.words(7, 1)?[0] {
            0 => NodeMap::Unknown,
            1 => NodeMap::Learning,
            2 => NodeMap::Found,
            _ => NodeMap::Failed,
        })
    }

    /// Number of snapshots taken so far.
    ///
    /// # Errors
    /// Those of the file.
    pub fn snapshots_taken(&self) -> io::Result<u64> {
        Ok(self.words(5, 1)?[0])
    }

    /// Misses on memory that lies in no node's range, as of the last snapshot: next to none,
    /// unless the plugin's idea of where nodes lie is wrong.
    ///
    /// # Errors
    /// Those of the file.
    pub fn stray_misses(&self) -> io::Result<u64> {
        Ok(self.words(9, 1)?[0])
    }

    /// The snapshot with this number, counted from 0 since boot; the ring keeps the newest.
    ///
    /// # Errors
    /// Those of the file.
    pub fn snapshot(&self, number: u64) -> io::Result<Counters> {
        let first = HEADER_WORDS + self.cpus * self.cpu_words();
        let size = 2 + self.cpus * self.cpu_words();
        let words = self.words(first + number % self.capacity * size, size)?;
        Ok(Counters { tag: words[0], guest_ns: words[1], cpus: self.parse_cpus(&words[2..]) })
    }

    /// The counters now. Guest time is not part of them.
    ///
    /// # Errors
    /// Those of the file.
    pub fn now(&self) -> io::Result<Counters> {
        let words = self.words(HEADER_WORDS, self.cpus * self.cpu_words())?;
        Ok(Counters { tag: 0, guest_ns: 0, cpus: self.parse_cpus(&words) })
    }

    fn cpu_words(&self) -> u64 {
        CPU_FIXED_WORDS + self.nodes
    }

    fn parse_cpus(&self, words: &[u64]) -> Vec<CpuCounters> {
        let parse = |block: &[u64]| CpuCounters {
            instructions: block[0],
            accesses: block[1],
            misses: block[2],
            late_ns: block[3],
            slept_ns: block[4],
            idle_ns: block[5],
            lag_ns: block[6],
            llc_hits: block[7],
            transfers: block[8],
            write_backs: block[9],
            queued_ns: block[10],
            stalled_ns: block[11],
            misses_by_node: block[CPU_FIXED_WORDS as usize..].to_vec(),
        };
        words.chunks_exact(self.cpu_words() as usize).map(parse).collect()
    }

    fn words(&self, first: u64, count: u64) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; count as usize * 8];
        self.file.read_exact_at(&mut bytes, first * 8)?;
        let word = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
        Ok(bytes.chunks_exact(8).map(word).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(late_ns: u64, lag_ns: u64, misses_by_node: [u64; 2]) -> CpuCounters {
        CpuCounters {
            late_ns,
            lag_ns,
            misses_by_node: misses_by_node.to_vec(),
            ..CpuCounters::default()
        }
    }

    #[test]
    fn shares_follow_from_the_difference_of_two_snapshots() {
        let begin =
            Counters { tag: 1, guest_ns: 1000, cpus: vec![cpu(0, 5, [10, 0]), cpu(0, 0, [0, 0])] };
        let end = Counters {
            tag: 2,
            guest_ns: 2000,
            cpus: vec![cpu(10, 0, [40, 10]), cpu(0, 30, [0, 60])],
        };
        let run = end.since(&begin);
        // CPU 0 (node 0): 30 local, 10 remote; CPU 1 (node 1): 60 local. 90 of 100.
        assert_eq!(run.local_share(&[0, 1]), Some(0.9));
        // 10 late + 30 more lag over 2 CPUs x 1000 ns.
        assert!((run.late_share() - 0.02).abs() < 1e-12);
    }

    #[test]
    fn a_file_of_words_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        let mut words = vec![MAGIC, VERSION, 1, 2, 4, 1, 1, 2, 0, 0, 128];
        words.resize(16, 0);
        words.extend([7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 31, 8, 11, 12]); // CPU 0 now
        words.extend([9, 99, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0, 8, 9]); // snapshot 0
        words.resize(16 + 14 + 4 * 16, 0);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        std::fs::write(&path, bytes).unwrap();
        let file = CounterFile::open(&path).unwrap();
        assert!(file.charging().unwrap());
        assert_eq!(file.line_bytes(), 128);
        assert_eq!(file.node_map().unwrap(), NodeMap::Found);
        let cpu = &file.now().unwrap().cpus[0];
        assert_eq!((cpu.queued_ns, cpu.stalled_ns), (31, 8));
        assert_eq!(cpu.misses_by_node, [11, 12]);
        let snapshot = file.snapshot(4).unwrap(); // wraps to 0
        assert_eq!((snapshot.tag, snapshot.guest_ns, snapshot.cpus[0].instructions), (9, 99, 1));
        std::fs::write(&path, [0; 256]).unwrap();
        assert!(CounterFile::open(&path).is_err());
    }
}
