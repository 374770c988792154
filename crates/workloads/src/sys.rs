//! The few system calls the workloads need, on plain numbers.

use std::io;
use std::ops::Range;

/// `MPOL_DEFAULT`.
pub const MPOL_DEFAULT: i32 = 0;
/// `MPOL_PREFERRED`.
pub const MPOL_PREFERRED: i32 = 1;
/// `MPOL_BIND`.
pub const MPOL_BIND: i32 = 2;
/// `MPOL_INTERLEAVE`.
pub const MPOL_INTERLEAVE: i32 = 3;

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn bits(ids: &[u32]) -> Vec<u64> {
    let words = ids.iter().max().map_or(1, |&highest| highest as usize / 64 + 1);
    let mut mask = vec![0u64; words];
    for &id in ids {
        mask[id as usize / 64] |= 1 << (id % 64);
    }
    mask
}

/// Allows the calling thread these CPUs.
pub fn set_affinity(cpus: &[u32]) -> io::Result<()> {
    set_affinity_of(0, cpus)
}

/// Allows a thread these CPUs; 0 is the calling one.
pub fn set_affinity_of(tid: i32, cpus: &[u32]) -> io::Result<()> {
    let mask = bits(cpus);
    // SAFETY: the mask outlives the call and its length is given in bytes.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, mask.len() * 8, mask.as_ptr()) })
}

/// The policy of a range of memory, for pages not touched yet.
pub fn bind_range(range: Range<usize>, mode: i32, nodes: &[u32]) -> io::Result<()> {
    let mask = bits(nodes);
    let (pointer, length) =
        if nodes.is_empty() { (std::ptr::null(), 0) } else { (mask.as_ptr(), mask.len() * 64 + 1) };
    // SAFETY: mbind changes where pages come from, not what they hold.
    check(unsafe {
        libc::syscall(libc::SYS_mbind, range.start, range.len(), mode, pointer, length, 0)
    })
}

/// The policy of the calling thread, for pages it touches first from now on.
pub fn set_thread_policy(mode: i32, nodes: &[u32]) -> io::Result<()> {
    let mask = bits(nodes);
    let (pointer, length) =
        if nodes.is_empty() { (std::ptr::null(), 0) } else { (mask.as_ptr(), mask.len() * 64 + 1) };
    // SAFETY: set_mempolicy changes where pages come from, not what they hold.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, length) })
}

/// The calling process is killed when the thread that started it ends.
pub fn end_with_parent() -> io::Result<()> {
    // SAFETY: it reads no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }.into())
}

/// Nanoseconds on the monotonic clock, comparable between processes.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The same clock as of its last tick, some milliseconds ago at most: never a system call and
/// never a look at a device, which the clock itself is where it is not the CPU's own (in the
/// emulated machine it is the HPET, and eight CPUs that look at it often do nothing else).
pub fn coarse_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC_COARSE)
}

/// CPU time of the calling thread in nanoseconds, up to now; getrusage's is as of the last tick.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct outlives the call, which fills it.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Ticks of the CPU's own counter, of a fixed but unknown length; nanoseconds where there is none
/// that we can read.
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 CPU has the instruction, and it changes nothing.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    monotonic_ns()
}
