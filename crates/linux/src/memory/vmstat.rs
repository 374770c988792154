//! The kernel's own counters of page moves and hinting faults, from `/proc/vmstat`.
//!
//! They count since boot, over the whole machine, in base pages or faults; the difference of two
//! readings tells what the kernel did in between. A counter this kernel lacks is None.

use std::path::Path;

use crate::file::{Buffer, ReadError, text_if_present};

/// The counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmCounters {
    /// Pages the kernel's balancing moved.
    pub numa_pages_migrated: Option<u64>,
    /// Hinting faults.
    pub numa_hint_faults: Option<u64>,
    /// Hinting faults on the CPU's own node.
    pub numa_hint_faults_local: Option<u64>,
    /// Page table entries armed.
    pub numa_pte_updates: Option<u64>,
    /// Pages moved by anyone, `move_pages` included.
    pub pgmigrate_success: Option<u64>,
    /// Pages that could not be moved.
    pub pgmigrate_fail: Option<u64>,
}

impl VmCounters {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &VmCounters) -> VmCounters {
        let minus = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        VmCounters {
            numa_pages_migrated: minus(self.numa_pages_migrated, earlier.numa_pages_migrated),
            numa_hint_faults: minus(self.numa_hint_faults, earlier.numa_hint_faults),
            numa_hint_faults_local: minus(
                self.numa_hint_faults_local,
                earlier.numa_hint_faults_local,
            ),
            numa_pte_updates: minus(self.numa_pte_updates, earlier.numa_pte_updates),
            pgmigrate_success: minus(self.pgmigrate_success, earlier.pgmigrate_success),
            pgmigrate_fail: minus(self.pgmigrate_fail, earlier.pgmigrate_fail),
        }
    }
}

/// Huge pages that were split since there was no free one where they were moved to (5.9); None where the kernel does not
/// say.
pub(crate) fn huge_splits(root: &Path) -> Option<u64> {
    let text = text_if_present(&root.join("proc/vmstat")).ok()??;
    let count = text.lines().find_map(|line| line.strip_prefix("thp_migration_split "));
    count?.trim().parse().ok()
}

/// Reads the counters.
///
/// # Errors
/// The file cannot be read, or a counter is no number.
pub fn read(root: &Path) -> Result<VmCounters, ReadError> {
    let path = root.join("proc/vmstat");
    let mut buffer = Buffer::default();
    let mut counters = VmCounters::default();
    let Some(bytes) = buffer.read(&path)? else {
        return Ok(counters);
    };
    let text = String::from_utf8_lossy(bytes);
    for (index, line) in text.lines().enumerate() {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let slot = match name {
            "numa_pages_migrated" => &mut counters.numa_pages_migrated,
            "numa_hint_faults" => &mut counters.numa_hint_faults,
            "numa_hint_faults_local" => &mut counters.numa_hint_faults_local,
            "numa_pte_updates" => &mut counters.numa_pte_updates,
            "pgmigrate_success" => &mut counters.pgmigrate_success,
            "pgmigrate_fail" => &mut counters.pgmigrate_fail,
            _ => continue,
        };
        let wrong = |_| ReadError::parse(&path, index + 1, "'NAME NUMBER'", line);
        *slot = Some(value.parse().map_err(wrong)?);
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_whole_name() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let put = |text| std::fs::write(root.path().join("proc/vmstat"), text).unwrap();
        put("nr_free_pages 9\nnuma_hint_faults 7\nnuma_hint_faults_local 3\npgmigrate_success 2\n");
        let first = read(root.path()).unwrap();
        assert_eq!(first.numa_hint_faults, Some(7));
        assert_eq!(first.numa_hint_faults_local, Some(3));
        assert_eq!(first.numa_pages_migrated, None);
        put("numa_hint_faults 17\nnuma_hint_faults_local 3\npgmigrate_success 1\n");
        let since = read(root.path()).unwrap().since(&first);
        assert_eq!((since.numa_hint_faults, since.numa_hint_faults_local), (Some(10), Some(0)));
        assert_eq!(since.pgmigrate_success, Some(0), "a counter never runs backwards for us");
        assert_eq!(since.numa_pages_migrated, None);
        put("numa_hint_faults x\n");
        assert!(read(root.path()).is_err());
    }
}
