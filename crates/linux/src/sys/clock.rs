//! The kernel's clocks, as the model's nanoseconds.

use numaherd_model::Nanos;

/// The monotonic clock: that of hinting faults.
#[must_use]
pub fn monotonic() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time this process has used, all threads together.
#[must_use]
pub fn cpu_time() -> Nanos {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Time since boot, suspended time included: what a task's start time counts.
#[must_use]
pub fn since_boot() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

/// Length of a clock tick, the unit of CPU and start times in `/proc`.
#[must_use]
pub fn tick() -> Nanos {
    // SAFETY: sysconf has no preconditions.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    // USER_HZ has been 100 on every architecture for decades
    Nanos(1_000_000_000 / u64::try_from(per_second).ok().filter(|&n| n > 0).unwrap_or(100))
}

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write to. The clocks exist since Linux 2.6.39, so the
    // call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_start_lies_in_the_past() {
        let me = std::process::id();
        let mut tasks = crate::process::TaskReader::new("/".as_ref());
        let start = tasks.stat(me, me).unwrap().unwrap().id.start * tick().0;
        let now = since_boot();
        assert!(start <= now.0 && now.0 - start < 3_600_000_000_000, "{start} {now}");
        let first = monotonic();
        assert!(monotonic() >= first);
        let worked = cpu_time();
        assert!((0..1_000_000u64).fold(0, |a, b| std::hint::black_box(a + b)) > 0);
        assert!(worked > Nanos(0) && cpu_time() > worked);
    }
}
