//! Guest time from the host's monotonic clock, and sleeping by it.
//!
//! QEMU runs under libfaketime, which replaces the C library's clock and sleep functions so
//! that the guest's clock runs slower. This module must see the host's real time, so it makes
//! its system calls itself (libfaketime can replace `syscall()`, too) and applies the dilation
//! by its own arithmetic: `guest = (real − start) × ratio`.
//!
//! Units: guest time in picoseconds since the start, real time in nanoseconds of the host's
//! CLOCK_MONOTONIC. 64 bits of picoseconds last 213 days.

/// Converts between real and guest time.
#[derive(Clone, Copy, Debug)]
pub struct Dilation {
    start_real_ns: u64,
    /// Guest picoseconds per real nanosecond, as a fixed-point number with 32 fractional bits.
    guest_ps_per_real_ns_q32: u64,
}

impl Dilation {
    /// Guest time starts at `start_real_ns` and runs `ratio` times as fast; `ratio` must be
    /// positive and at most 1000.
    #[must_use]
    pub fn new(start_real_ns: u64, ratio: f64) -> Self {
        let guest_ps_per_real_ns_q32 = (ratio * 1000.0 * (1u64 << 32) as f64) as u64;
        Dilation { start_real_ns, guest_ps_per_real_ns_q32: guest_ps_per_real_ns_q32.max(1) }
    }

    /// Guest time at this moment of real time.
    #[must_use]
    pub fn guest_ps(&self, real_ns: u64) -> u64 {
        let elapsed_ns = real_ns.saturating_sub(self.start_real_ns);
        ((u128::from(elapsed_ns) * u128::from(self.guest_ps_per_real_ns_q32)) >> 32) as u64
    }

    /// First nanosecond of real time at which guest time has reached `guest_ps`.
    #[must_use]
    pub fn real_ns(&self, guest_ps: u64) -> u64 {
        let elapsed_ns =
            (u128::from(guest_ps) << 32).div_ceil(u128::from(self.guest_ps_per_real_ns_q32));
        self.start_real_ns + elapsed_ns as u64
    }
}

/// The host's monotonic clock, never libfaketime's, in nanoseconds.
#[must_use]
pub fn real_now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let clock = libc::CLOCK_MONOTONIC as usize;
    // SAFETY: the kernel writes one timespec to the address given, which is ours.
    unsafe { system_call(libc::SYS_clock_gettime as usize, [clock, &raw mut time as usize, 0, 0]) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps to that moment of the host's monotonic clock. A signal may end it early.
pub fn sleep_until(real_ns: u64) {
    let until = libc::timespec {
        tv_sec: (real_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (real_ns % 1_000_000_000) as libc::c_long,
    };
    let arguments = [
        libc::CLOCK_MONOTONIC as usize,
        libc::TIMER_ABSTIME as usize,
        &raw const until as usize,
        0,
    ];
    // SAFETY: the kernel reads one timespec, which lives until the call returns.
    unsafe { system_call(libc::SYS_clock_nanosleep as usize, arguments) };
}

/// Lets this thread's timers fire within a nanosecond instead of the usual 50 µs.
pub fn sharpen_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// # Safety
/// The arguments must be what that call of the kernel expects.
#[cfg(target_arch = "x86_64")]
unsafe fn system_call(number: usize, arguments: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the kernel preserves all registers but rax, rcx and r11; memory is the caller's
    // promise.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// # Safety
/// The arguments must be what that call of the kernel expects.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn system_call(number: usize, arguments: [usize; 4]) -> isize {
    let [a, b, c, d] = arguments;
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(number as libc::c_long, a, b, c, d) as isize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_real_time_passes() {
        let dilation = Dilation::new(1_000, 0.25);
        assert_eq!(dilation.guest_ps(1_000), 0);
        assert_eq!(dilation.guest_ps(1_004), 1_000); // 4 real ns = 1 guest ns
        assert_eq!(dilation.guest_ps(999), 0); // before the start
        assert_eq!(dilation.real_ns(1_000), 1_004);
    }

    #[test]
    fn waking_at_the_real_time_of_a_guest_time_is_never_too_early() {
        for ratio in [1.0, 0.25, 0.125, 1.0 / 3.0, 0.0421] {
            let dilation = Dilation::new(77, ratio);
            for guest_ps in [1, 999, 50_000_000, 3_600_000_000_000_000, 86_400_000_000_000_000] {
                let real_ns = dilation.real_ns(guest_ps);
                assert!(dilation.guest_ps(real_ns) >= guest_ps, "ratio {ratio}, {guest_ps} ps");
                assert!(dilation.guest_ps(real_ns - 1) <= guest_ps, "ratio {ratio}, {guest_ps} ps");
            }
        }
    }

    #[test]
    fn sleeping_reaches_its_time() {
        let until_ns = real_now_ns() + 2_000_000;
        sleep_until(until_ns);
        assert!(real_now_ns() >= until_ns);
    }
}
