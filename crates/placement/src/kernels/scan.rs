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

/// Bytes of a process armed in a second, at the most. Published: 2560 MB.
const MOST_BYTES: u128 = 2560 << 20;

/// A kernel's ticks in one of the simulator's. From the latter: five of 4 ms.
const TICKS: u64 = 5;

/// Linux's defaults. Published.
pub const DEFAULT: ScanPeriods = ScanPeriods {
    delay: Nanos(1_000_000_000),
    min: Nanos(1_000_000_000),
    max: Nanos(60_000_000_000),
    size: SCAN_BYTES,
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
    /// How many pieces of its process this task scans now, its period being `period`: none, one, or
    /// all that a kernel's ticks would have had scanned since the last one here.
    pub fn due(&mut self, task: TaskId, view: &dyn View, delay: Nanos, period: Nanos) -> u64 {
        let (now, ran) = (view.now(), view.cpu_time(task));
        let new = Stamp { cpu_time: ran, born: now };
        let stamp = self.tasks.entry(task).or_insert(new);
        if now.since(stamp.born) < delay || ran.since(stamp.cpu_time) < period {
            return 0;
        }
        stamp.cpu_time = ran;
        let next = self.next.entry(view.process_of(task)).or_insert(Nanos(0));
        if now < *next {
            return 0;
        }
        let pieces = (view.tick().0 / period.0.max(1)).clamp(1, TICKS);
        *next = Nanos(now.0 + pieces * period.0);
        pieces
    }

    /// Nobody scans the process before then.
    pub fn put_off(&mut self, process: ProcessId, until: Nanos) {
        self.next.insert(process, until);
    }
}

/// The scan period that keeps a pass over a process's memory within the bounds: the more memory,
/// the more often a piece of it is armed, as far as [`MOST_BYTES`] allow.
#[must_use]
pub fn bounds(resident: Bytes, periods: ScanPeriods) -> (Nanos, Nanos) {
    let windows = resident.0.div_ceil(periods.size.0).max(1);
    let least = u128::from(periods.size.0) * 1_000_000_000 / MOST_BYTES;
    let min = (periods.min.0 / windows).max(u64::try_from(least).unwrap_or(u64::MAX));
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
        // In pieces of an eighth, eight times as often: 3 GiB are 96, each at 12.5 ms at the least.
        let small = ScanPeriods { size: Bytes(32 << 20), ..DEFAULT };
        assert_eq!(bounds(Bytes(3 << 30), small), (Nanos(12_500_000), Nanos(625_000_000)));
    }

    #[test]
    fn where_a_kernel_would_have_ticked_more_often_a_tick_scans_more_pieces() {
        use super::super::world::{World, id};
        let mut world = World::new([Some(1), Some(3), None, None]);
        let mut clock = ScanClock::default();
        let mut due = |tid: u32, ms: u64, period_ms: u64| {
            world.now = Nanos(ms * 1_000_000);
            clock.due(id(tid), &world, Nanos(0), Nanos(period_ms * 1_000_000))
        };
        assert_eq!([due(1, 0, 8), due(3, 0, 8)], [0, 0], "their clocks start");
        // 20 ms are two of 8 ms: whoever asks within these 16 ms finds them done.
        assert_eq!([due(1, 20, 8), due(3, 35, 8), due(3, 36, 8)], [2, 0, 0]);
        // A task does not ask again before it has run for a period; then the next two.
        assert_eq!([due(1, 40, 8), due(1, 60, 1)], [2, 5], "no more than five");
        assert_eq!([due(3, 100, 30), due(1, 100, 30)], [1, 0]);
    }
}
