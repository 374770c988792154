//! The stats file, mapped shared: how the launcher sees the counters while the guest runs.
//!
//! Owns the mapping, which stays until QEMU exits. Where things lie is [`crate::layout`]'s.
//! Invariant: every word is accessed atomically, so that a reader never sees half a number;
//! each live block has one writer, the header and the ring are written under the machine's
//! lock.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{self, Layout, header};

/// What one CPU has counted, as it stands in its block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// Instructions executed.
    pub instructions: u64,
    /// Memory accesses.
    pub accesses: u64,
    /// Cache misses.
    pub misses: u64,
    /// Lag that was never made good.
    pub late_ns: u64,
    /// Time slept because it was ahead.
    pub slept_ns: u64,
    /// Time halted.
    pub idle_ns: u64,
    /// How far it is behind now.
    pub lag_ns: u64,
    /// Accesses that the last-level cache served.
    pub llc_hits: u64,
    /// Lines, or the right to write them, that came from another CPU.
    pub transfers: u64,
    /// Dirty lines that went back to memory.
    pub write_backs: u64,
    /// Time waited for bandwidth.
    pub queued_ns: u64,
    /// Time that accesses took, beyond a hit in its own cache.
    pub stalled_ns: u64,
}

impl CpuCounts {
    fn words(&self) -> [u64; layout::CPU_WORDS] {
        [
            self.instructions,
            self.accesses,
            self.misses,
            self.late_ns,
            self.slept_ns,
            self.idle_ns,
            self.lag_ns,
            self.llc_hits,
            self.transfers,
            self.write_backs,
            self.queued_ns,
            self.stalled_ns,
        ]
    }
}

/// The mapped file.
pub struct Stats {
    layout: Layout,
    words: &'static [AtomicU64],
}

impl Stats {
    /// Creates the file, or takes one that exists, sizes it and writes the header, with the bytes of a line.
    ///
    /// # Errors
    /// If the file cannot be opened, sized or mapped.
    pub fn create(path: &Path, layout: Layout, line_bytes: u64) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let bytes = layout.words() * size_of::<u64>();
        file.set_len(bytes as u64)?;
        // SAFETY: a new shared mapping of a file we hold open; no other memory is touched.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is page-aligned, `words` u64 long and never unmapped. Another
        // process may write to it; all our accesses are atomic.
        let words =
            unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), layout.words()) };
        let stats = Stats { layout, words };
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        stats.set(header::VERSION, layout::VERSION);
        stats.set(header::CPUS, layout.cpus as u64);
        stats.set(header::NODES, layout.nodes as u64);
        stats.set(header::SNAPSHOT_CAPACITY, layout::SNAPSHOTS as u64);
        stats.set(header::LINE_BYTES, line_bytes);
        words[header::MAGIC].store(layout::MAGIC, Ordering::Release);
        Ok(stats)
    }

    /// Sets one word.
    pub fn set(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Relaxed);
    }

    /// Brings a CPU's live block up to date.
    pub fn publish(&self, cpu: usize, counts: &CpuCounts, served: impl Iterator<Item = u64>) {
        self.write_block(self.layout.block(cpu), counts, served);
    }

    fn write_block(&self, first: usize, counts: &CpuCounts, served: impl Iterator<Item = u64>) {
        let served = served.take(self.layout.nodes);
        for (offset, value) in counts.words().into_iter().chain(served).enumerate() {
            self.set(first + offset, value);
        }
    }

    /// Appends a snapshot. `block` gives each CPU's counts and the misses each node served.
    /// Callers take turns.
    pub fn append_snapshot(
        &self,
        tag: u8,
        guest_ns: u64,
        mut block: impl FnMut(usize) -> (CpuCounts, Vec<u64>),
    ) {
        let number = self.words[header::SNAPSHOTS_TAKEN].load(Ordering::Relaxed);
        let first = self.layout.snapshot(number);
        self.set(first, u64::from(tag));
        self.set(first + 1, guest_ns);
        for cpu in 0..self.layout.cpus {
            let (counts, served) = block(cpu);
            self.write_block(self.layout.snapshot_block(number, cpu), &counts, served.into_iter());
        }
        self.words[header::SNAPSHOTS_TAKEN].store(number + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Vec<u64> {
        let bytes = std::fs::read(path).unwrap();
        bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn another_reader_of_the_file_sees_header_blocks_and_snapshots() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats");
        std::fs::write(&path, [0xff; 4096]).unwrap(); // an old file is wiped
        let layout = Layout { cpus: 2, nodes: 2 };
        let stats = Stats::create(&path, layout, 128).unwrap();
        let counts = CpuCounts {
            instructions: 1,
            accesses: 2,
            misses: 3,
            late_ns: 4,
            slept_ns: 5,
            idle_ns: 6,
            lag_ns: 7,
            llc_hits: 8,
            transfers: 9,
            write_backs: 10,
            queued_ns: 11,
            stalled_ns: 12,
        };
        stats.publish(1, &counts, [30, 31].into_iter());
        stats.append_snapshot(9, 1234, |cpu| {
            (CpuCounts { misses: cpu as u64, ..counts.clone() }, vec![40, 41])
        });

        let words = read(&path);
        assert_eq!(words.len(), layout.words());
        assert_eq!(
            words[..16],
            [layout::MAGIC, layout::VERSION, 2, 2, 256, 1, 0, 0, 0, 0, 128, 0, 0, 0, 0, 0]
        );
        assert_eq!(words[16..30], [0; 14]);
        assert_eq!(words[30..44], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 30, 31]);
        assert_eq!(words[44..46], [9, 1234]);
        assert_eq!(words[46..60], [1, 2, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 40, 41]);
        assert_eq!(words[60..74], [1, 2, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 40, 41]);
    }

    #[test]
    fn a_folder_that_does_not_exist_is_an_error() {
        let layout = Layout { cpus: 1, nodes: 1 };
        assert!(Stats::create(Path::new("/nonexistent/stats"), layout, 64).is_err());
    }
}
