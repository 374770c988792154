//! Who we are and what we may do.

/// A capability, by its number in include/uapi/linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_agree_with_proc() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let effective = u64::from_str_radix(hex.trim(), 16).unwrap();
        for capability in [
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
