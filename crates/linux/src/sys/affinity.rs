//! Which CPUs a thread may run on.

use numaherd_model::{CpuId, CpuSet};

use super::SysError;

/// First guess at the kernel's CPU mask: 1024 CPUs.
const FIRST_WORDS: usize = 16;
/// No kernel has more CPUs than this; a larger buffer would not help.
const MOST_WORDS: usize = 1 << 14;

/// The CPUs thread `tid` may run on; those that are offline are not among them. 0 is ourselves.
///
/// # Errors
/// The thread has ended.
pub fn get(tid: u32) -> Result<CpuSet, SysError> {
    const CALL: &str = "sched_getaffinity";
    let mut words = vec![0_u64; FIRST_WORDS];
    loop {
        // SAFETY: the kernel writes at most the length given, which is that of `words`.
        let written = unsafe {
            libc::syscall(libc::SYS_sched_getaffinity, tid, words.len() * 8, words.as_mut_ptr())
        };
        if let Ok(bytes) = usize::try_from(written) {
            words.truncate(bytes.div_ceil(8));
            return Ok(CpuSet::from_words(&words));
        }
        let error = std::io::Error::last_os_error();
        // too short for this kernel's mask
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() >= MOST_WORDS {
            return Err(SysError::from_io(CALL, tid, error));
        }
        words.resize(words.len() * 2, 0);
    }
}

/// Allows thread `tid` these CPUs. The kernel leaves out those that are offline or outside the
/// thread's cpuset; if none remains it refuses (EINVAL).
///
/// # Errors
/// The thread has ended, belongs to someone else, or no CPU remains.
pub fn set(tid: u32, cpus: &CpuSet) -> Result<(), SysError> {
    let words = cpus.words();
    // SAFETY: the kernel reads the length given, which is that of `words`.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, words.len() * 8, words.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(SysError::last("sched_setaffinity", tid)) }
}

/// Whether thread `tid` is one that we may set CPUs for. Nothing is set: even what is there now would become what its
/// owner asked for (since 6.2), and stay when its cpuset is widened or a CPU comes online.
///
/// # Errors
/// The thread has ended or belongs to someone else.
pub fn may_set(tid: u32) -> Result<(), SysError> {
    // No CPU at all is refused, but only once the kernel has found that we may.
    match set(tid, &CpuSet::new()) {
        Err(SysError::Refused { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
            Ok(())
        }
        other => other,
    }
}

/// The CPU that this thread runs on just now; none where the kernel does not say.
#[must_use]
pub fn current_cpu() -> Option<CpuId> {
    // SAFETY: sched_getcpu has no preconditions.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok().map(CpuId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_affinity_is_set_and_put_back() {
        let before = get(0).unwrap();
        let one: CpuSet = before.first().into_iter().collect();
        set(0, &one).unwrap();
        assert_eq!(get(0).unwrap(), one);
        may_set(0).unwrap();
        assert_eq!(get(0).unwrap(), one, "asking sets nothing");
        set(0, &before).unwrap();
        assert_eq!(get(0).unwrap(), before);
    }

    #[test]
    fn no_such_thread_and_no_such_cpu_are_named() {
        // above the highest pid there can be (2^22)
        let tid = 5_000_000;
        assert_eq!(get(tid).unwrap_err().to_string(), "sched_getaffinity: task 5000000 has ended");
        assert!(set(tid, &[CpuId(0)].into_iter().collect()).unwrap_err().is_gone());
        assert!(may_set(tid).unwrap_err().is_gone());
        let nowhere = [CpuId(60_000)].into_iter().collect();
        let error = set(0, &nowhere).unwrap_err();
        assert!(matches!(error, SysError::Refused { .. }), "{error}");
        assert!(set(0, &CpuSet::new()).is_err());
    }
}
