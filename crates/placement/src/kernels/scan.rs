//! When whose memory is armed for hinting faults, as `task_tick_numa` and `task_numa_work` have
//! it: a task that has run for its scan period scans its process, unless somebody of the process
//! has done so within that period.
//!
//! Worked example: 8 threads of one process with a period of 1 s. Each has run for a second at
//! about the same time; the first scans, the others find the next scan a second ahead.

use std::collections::BTreeMap;

use numaherd_model::{Bytes, Nanos, ProcessId, ScanPeriods, TaskId, View};

/// Bytes armed in one scan. Published: 256 MB.
pub const SCAN_BYTES: Bytes = Bytes(256 << 20);

/// Linux's defaults. Published.
pub const DEFAULT: ScanPeriods = ScanPeriods {
    delay: Nanos(1_000_000_000),
    min: Nanos(1_000_000_000),
    max: Nanos(60_000_000_000),
};

/// What one task waits for.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    /// CPU time at the last look.
    cpu_time: Nanos,
    /// Before its process's memory is looked at for the first time.
    born: Nanos,
}

/// Who scanned when.
#[derive(Debug, Default)]
pub struct ScanClock {
    tasks: BTreeMap<TaskId, Stamp>,
    next: BTreeMap<ProcessId, Nanos>,
}

impl ScanClock {
    /// Whether this task scans its process now, its period being `period`.
    pub fn is_due(&mut self, task: TaskId, view: &dyn View, delay: Nanos, period: Nanos) -> bool {
        let (now, ran) = (view.now(), view.cpu_time(task));
        let new = Stamp { cpu_time: ran, born: now };
        let stamp = self.tasks.entry(task).or_insert(new);
        if now.since(stamp.born) < delay || ran.since(stamp.cpu_time) < period {
            return false;
        }
        stamp.cpu_time = ran;
        let next = self.next.entry(view.process_of(task)).or_insert(Nanos(0));
        if now < *next {
            return false;
        }
        *next = Nanos(now.0 + period.0);
        true
    }
}

/// The scan period that keeps a pass over a process's memory within the bounds: the more memory,
/// the more often a piece of [`SCAN_BYTES`] is armed.
#[must_use]
pub fn bounds(resident: Bytes, periods: ScanPeriods) -> (Nanos, Nanos) {
    let windows = resident.0.div_ceil(SCAN_BYTES.0).max(1);
    let min = (periods.min.0 / windows).max(100_000_000);
    (Nanos(min), Nanos((periods.max.0 / windows).max(min)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_processes_are_scanned_more_often_but_not_more_than_ten_times_a_second() {
        // 1 GiB = 4 pieces: 250 ms to 15 s. 3 GiB = 12: 83 ms, so 100 ms, to 5 s.
        let ms = |gib: u64| {
            let (min, max) = bounds(Bytes(gib << 30), DEFAULT);
            (min.0 / 1_000_000, max.0 / 1_000_000)
        };
        assert_eq!((ms(1), ms(3)), ((250, 15_000), (100, 5_000)));
    }
}
