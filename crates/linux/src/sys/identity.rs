//! Who we are and what we may do.

use super::SysError;

/// A capability, by its number in include/uapi/linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    /// Read whatever is there, other users' `environ` and list of open files included.
    DacReadSearch = 2,
    /// Look into other users' processes (`environ`, `numa_maps`).
    SysPtrace = 19,
    /// Most of administration; contains `Bpf` and `Perfmon`.
    SysAdmin = 21,
    /// Set the affinity and move the pages of other users' tasks.
    SysNice = 23,
    /// Performance monitoring (Linux 5.8).
    Perfmon = 38,
    /// BPF (Linux 5.8).
    Bpf = 39,
}

/// Our effective user id.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`: two words of capabilities.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Whether this thread has the capability in effect. A kernel that cannot tell counts as no.
#[must_use]
pub fn has(capability: Capability) -> bool {
    let mut header = CapHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 of the call writes the header and two data structures, which is what it
    // is given.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    let number = capability as u32;
    result == 0 && data[(number / 32) as usize].effective >> (number % 32) & 1 == 1
}

/// Gives up every capability of this thread but these; what it does not have it does not get.
/// Threads and programs that it starts from then on have no more, unless the kernel gives programs
/// of user root all of them anew.
///
/// # Errors
/// The kernel cannot tell or refuses.
pub fn keep_only(capabilities: &[Capability]) -> Result<(), SysError> {
    let mut header = CapHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 of the call writes the header and two data structures, which is what it
    // is given.
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if got != 0 {
        return Err(SysError::last("capget", 0));
    }
    let mut wanted = [0u32; 2];
    for &capability in capabilities {
        let number = capability as u32;
        wanted[(number / 32) as usize] |= 1 << (number % 32);
    }
    for (data, wanted) in data.iter_mut().zip(wanted) {
        data.effective &= wanted;
        data.permitted &= wanted;
        data.inheritable &= wanted;
    }
    // SAFETY: version 3 of the call reads the header and two data structures, which is what it is
    // given.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    if set == 0 { Ok(()) } else { Err(SysError::last("capset", 0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_gone_for_this_thread_alone() {
        let before = has(Capability::SysNice);
        let thread = std::thread::spawn(|| {
            keep_only(&[Capability::SysNice]).unwrap();
            let left = [Capability::SysNice, Capability::SysAdmin].map(has);
            keep_only(&[Capability::SysAdmin]).unwrap();
            (left, [Capability::SysNice, Capability::SysAdmin].map(has))
        });
        // What it gave up it does not get back.
        assert_eq!(thread.join().unwrap(), ([before, false], [false, false]));
        assert_eq!(has(Capability::SysNice), before);
    }

    #[test]
    fn capabilities_agree_with_proc() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let effective = u64::from_str_radix(hex.trim(), 16).unwrap();
        for capability in [
            Capability::DacReadSearch,
            Capability::SysPtrace,
            Capability::SysAdmin,
            Capability::SysNice,
            Capability::Perfmon,
            Capability::Bpf,
        ] {
            let expected = effective >> capability as u32 & 1 == 1;
            assert_eq!(has(capability), expected, "{capability:?}");
        }
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        let euid: u32 = uid.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(effective_user(), euid);
    }
}
