//! The kernel's knobs below a root: sysctls and debugfs files, as text.
//!
//! Text and not numbers, so that a journal can put back exactly what was there. A knob that this
//! kernel does not have reads as None; writing never creates a file.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::file::{self, ReadError};

/// A file that changes how the kernel behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Knob {
    /// Whether pages are armed for hinting faults: bit 0 balancing, bit 1 tiering.
    NumaBalancing,
    /// Age at which a task's memory is first scanned, in ms.
    ScanDelay,
    /// Shortest time between two scans of a task's memory, in ms.
    ScanPeriodMin,
    /// Longest time between two scans, in ms.
    ScanPeriodMax,
    /// Memory armed in one scan, in MiB.
    ScanSize,
    /// Tiering: pages touched within this many ms count as hot.
    HotThreshold,
    /// Writing 3 drops the page cache and the slab caches; it has no value to read.
    DropCaches,
    /// Writing 1 compacts memory; it has no value to read.
    CompactMemory,
}

impl Knob {
    /// Those with a value that can be read and put back.
    pub const SETTINGS: [Knob; 6] = [
        Knob::NumaBalancing,
        Knob::ScanDelay,
        Knob::ScanPeriodMin,
        Knob::ScanPeriodMax,
        Knob::ScanSize,
        Knob::HotThreshold,
    ];

    /// Where it may be, newest kernel first. The scan knobs were sysctls before Linux 5.13.
    #[must_use]
    pub fn paths(self) -> &'static [&'static str] {
        match self {
            Knob::NumaBalancing => &["proc/sys/kernel/numa_balancing"],
            Knob::ScanDelay => &[
                "sys/kernel/debug/sched/numa_balancing/scan_delay_ms",
                "proc/sys/kernel/numa_balancing_scan_delay_ms",
            ],
            Knob::ScanPeriodMin => &[
                "sys/kernel/debug/sched/numa_balancing/scan_period_min_ms",
                "proc/sys/kernel/numa_balancing_scan_period_min_ms",
            ],
            Knob::ScanPeriodMax => &[
                "sys/kernel/debug/sched/numa_balancing/scan_period_max_ms",
                "proc/sys/kernel/numa_balancing_scan_period_max_ms",
            ],
            Knob::ScanSize => &[
                "sys/kernel/debug/sched/numa_balancing/scan_size_mb",
                "proc/sys/kernel/numa_balancing_scan_size_mb",
            ],
            Knob::HotThreshold => &["sys/kernel/debug/sched/numa_balancing/hot_threshold_ms"],
            Knob::DropCaches => &["proc/sys/vm/drop_caches"],
            Knob::CompactMemory => &["proc/sys/vm/compact_memory"],
        }
    }
}

/// A knob could not be written.
#[derive(Debug, thiserror::Error)]
pub enum KnobError {
    /// This kernel, or this mount of it, does not have it.
    #[error("this kernel has no {path} (is debugfs mounted?)")]
    Absent {
        /// Where the newest kernels have it.
        path: &'static str,
    },
    /// The kernel refused.
    #[error("cannot write '{value}' to {}: {source}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// The system's error.
        source: io::Error,
    },
}

/// The knob's value without the line end; None where this kernel does not have it.
///
/// # Errors
/// It is there but cannot be read.
pub fn read(root: &Path, knob: Knob) -> Result<Option<String>, ReadError> {
    for path in knob.paths() {
        if let Some(text) = file::text_if_present(&root.join(path))? {
            return Ok(Some(text.trim_end().to_string()));
        }
    }
    Ok(None)
}

/// The knob's value as a number.
///
/// # Errors
/// It is there but cannot be read, or is no number.
pub fn read_number(root: &Path, knob: Knob) -> Result<Option<u64>, ReadError> {
    let Some(text) = read(root, knob)? else {
        return Ok(None);
    };
    let path = || root.join(knob.paths()[0]);
    text.parse().map(Some).map_err(|_| ReadError::parse_file(&path(), "a number", &text))
}

/// Writes the knob.
///
/// # Errors
/// [`KnobError::Absent`], or what the kernel refused.
pub fn write(root: &Path, knob: Knob, value: &str) -> Result<(), KnobError> {
    for path in knob.paths().iter().map(|path| root.join(path)) {
        let mut options = OpenOptions::new();
        // truncated so that captured trees behave as the kernel does; never created
        let written = options.write(true).truncate(true).open(&path);
        match written.and_then(|mut file| file.write_all(value.as_bytes())) {
            Ok(()) => return Ok(()),
            Err(error) if file::is_absent(&error) => {}
            Err(source) => {
                return Err(KnobError::Refused { path, value: value.to_string(), source });
            }
        }
    }
    Err(KnobError::Absent { path: knob.paths()[0] })
}

/// Whether debugfs is mounted where the knobs of the scheduler are looked for.
#[must_use]
pub fn has_debugfs(root: &Path) -> bool {
    root.join("sys/kernel/debug/sched").is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    #[test]
    fn a_knob_is_read_and_put_back() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/sys/kernel/numa_balancing", "1\n");
        let before = read(root.path(), Knob::NumaBalancing).unwrap().unwrap();
        write(root.path(), Knob::NumaBalancing, "0").unwrap();
        assert_eq!(read_number(root.path(), Knob::NumaBalancing).unwrap(), Some(0));
        write(root.path(), Knob::NumaBalancing, &before).unwrap();
        assert_eq!(read_number(root.path(), Knob::NumaBalancing).unwrap(), Some(1));
    }

    #[test]
    fn an_old_kernels_sysctl_stands_in_for_debugfs() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/sys/kernel/numa_balancing_scan_size_mb", "256\n");
        assert_eq!(read_number(root.path(), Knob::ScanSize).unwrap(), Some(256));
        put(root.path(), "sys/kernel/debug/sched/numa_balancing/scan_size_mb", "64\n");
        assert_eq!(read_number(root.path(), Knob::ScanSize).unwrap(), Some(64));
        assert!(has_debugfs(root.path()));
    }

    #[test]
    fn what_is_absent_is_none_and_is_not_created() {
        let root = tempfile::tempdir().unwrap();
        for knob in Knob::SETTINGS {
            assert_eq!(read(root.path(), knob).unwrap(), None);
        }
        put(root.path(), "sys/kernel/debug/sched/numa_balancing/scan_size_mb", "x\n");
        let error = write(root.path(), Knob::ScanDelay, "1").unwrap_err().to_string();
        assert_eq!(
            error,
            "this kernel has no sys/kernel/debug/sched/numa_balancing/scan_delay_ms (is debugfs \
             mounted?)"
        );
        assert!(!root.path().join(Knob::ScanDelay.paths()[0]).exists());
        let error = read_number(root.path(), Knob::ScanSize).unwrap_err().to_string();
        assert!(error.ends_with("scan_size_mb line 1: expected a number, found 'x'"), "{error}");
    }
}
