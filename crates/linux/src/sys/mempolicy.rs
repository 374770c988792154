//! Memory policies of ourselves and of our address ranges, and moving a whole process's memory.
//!
//! Numbers are those of include/uapi/linux/mempolicy.h; libc lacks the newest modes.

use numaherd_model::{NodeId, NodeSet};

use super::SysError;

/// A policy's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    /// What the next outer policy says; for a task, the CPU's own node.
    Default = 0,
    /// One node first, others when it is full.
    Preferred = 1,
    /// These nodes only.
    Bind = 2,
    /// Pages in turn over these nodes.
    Interleave = 3,
    /// The CPU's own node.
    Local = 4,
    /// These nodes first, others when they are full (Linux 5.15).
    PreferredMany = 5,
    /// Pages in turn, by the nodes' weights (Linux 6.9).
    WeightedInterleave = 6,
}

impl Mode {
    fn from_raw(raw: i32) -> Option<Self> {
        let all = [
            Mode::Default,
            Mode::Preferred,
            Mode::Bind,
            Mode::Interleave,
            Mode::Local,
            Mode::PreferredMany,
            Mode::WeightedInterleave,
        ];
        all.into_iter().find(|&mode| mode as i32 == raw)
    }
}

/// Bits that go with a mode: node numbers are absolute ones.
pub const MODE_STATIC_NODES: i32 = 1 << 15;
/// Node numbers count within the cpuset.
pub const MODE_RELATIVE_NODES: i32 = 1 << 14;
/// Memory bound by the policy is armed for hinting faults all the same (Linux 5.12).
pub const MODE_NUMA_BALANCING: i32 = 1 << 13;
const MODE_FLAGS: i32 = MODE_STATIC_NODES | MODE_RELATIVE_NODES | MODE_NUMA_BALANCING;

/// `mbind`: fail if a page is elsewhere.
pub const BIND_STRICT: u32 = 1 << 0;
/// `mbind`: move pages only we map.
pub const BIND_MOVE: u32 = 1 << 1;
/// `mbind`: move pages others map too; needs CAP_SYS_NICE.
pub const BIND_MOVE_ALL: u32 = 1 << 2;

/// The highest number of nodes a kernel can be built for (NODES_SHIFT 10).
const MOST_NODES: usize = 1024;

/// The kernel reads one bit less than it is told of, so it is told of one more.
fn bits(words: &[u64]) -> usize {
    if words.is_empty() { 0 } else { words.len() * 64 + 1 }
}

fn pointer(words: &[u64]) -> *const u64 {
    if words.is_empty() { std::ptr::null() } else { words.as_ptr() }
}

/// Sets this thread's policy; `flags` are the `MODE_` bits.
///
/// # Errors
/// The kernel does not know the mode, or a node has no memory we may use.
pub fn set(mode: Mode, flags: i32, nodes: &NodeSet) -> Result<(), SysError> {
    let words = nodes.words();
    // SAFETY: the kernel reads as many words as `bits` says, which is what `words` has.
    let result = unsafe {
        libc::syscall(libc::SYS_set_mempolicy, mode as i32 | flags, pointer(words), bits(words))
    };
    done(result, "set_mempolicy")
}

/// This thread's policy: mode, flags and nodes. None for a mode newer than this program.
///
/// # Errors
/// The kernel was built without NUMA.
pub fn get() -> Result<Option<(Mode, i32, NodeSet)>, SysError> {
    let mut mode = 0_i32;
    let mut words = [0_u64; MOST_NODES / 64];
    let no_address = 0_usize;
    // SAFETY: the kernel writes an int and at most MOST_NODES bits, for which there is room.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            words.as_mut_ptr(),
            MOST_NODES,
            no_address,
            0,
        )
    };
    done(result, "get_mempolicy")?;
    let known = Mode::from_raw(mode & !MODE_FLAGS);
    Ok(known.map(|known| (known, mode & MODE_FLAGS, NodeSet::from_words(&words))))
}

/// Sets the policy of `len` bytes of our own memory from `start`, a page's first address;
/// `bind_flags` are the `BIND_` bits. Contents stay as they are.
///
/// # Errors
/// The range is not mapped, or pages could not be moved that [`BIND_STRICT`] wants moved.
pub fn bind(
    start: u64,
    len: u64,
    mode: Mode,
    mode_flags: i32,
    nodes: &NodeSet,
    bind_flags: u32,
) -> Result<(), SysError> {
    let words = nodes.words();
    // SAFETY: the kernel reads as many words as `bits` says, which is what `words` has. The range
    // is only a number to us: mbind changes where pages lie and never what they hold.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            len,
            mode as i32 | mode_flags,
            pointer(words),
            bits(words),
            bind_flags,
        )
    };
    done(result, "mbind")
}

/// Moves all of a process's pages that lie on `from` to `to`. Returns how many stayed.
///
/// # Errors
/// The process has ended or belongs to someone else, or it may not use `to`.
pub fn migrate_process(pid: u32, from: &NodeSet, to: &NodeSet) -> Result<u64, SysError> {
    // the call has one length for both
    let mut sets = [from.words().to_vec(), to.words().to_vec()];
    let len = sets[0].len().max(sets[1].len());
    sets.iter_mut().for_each(|words| words.resize(len, 0));
    // SAFETY: the kernel reads as many words as `bits` says, which is what both vectors have.
    let result = unsafe {
        libc::syscall(
            libc::SYS_migrate_pages,
            pid,
            bits(&sets[0]),
            sets[0].as_ptr(),
            sets[1].as_ptr(),
        )
    };
    u64::try_from(result).map_err(|_| SysError::last("migrate_pages", pid))
}

/// The node this thread runs on now.
///
/// # Errors
/// The kernel refused.
pub fn current_node() -> Result<NodeId, SysError> {
    let mut node = 0_u32;
    let nowhere = std::ptr::null_mut::<u32>();
    // SAFETY: the kernel writes one u32; null for the CPU and the unused third argument is allowed.
    let result = unsafe { libc::syscall(libc::SYS_getcpu, nowhere, &raw mut node, nowhere) };
    done(result, "getcpu").map(|()| NodeId(node))
}

fn done(result: libc::c_long, call: &'static str) -> Result<(), SysError> {
    if result == 0 { Ok(()) } else { Err(SysError::last(call, std::process::id())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> NodeSet {
        [current_node().unwrap()].into_iter().collect()
    }

    #[test]
    fn a_policy_reads_as_it_was_set() {
        // policies belong to a thread, and tests have their own
        for mode in [Mode::Bind, Mode::Interleave, Mode::Preferred] {
            set(mode, MODE_STATIC_NODES, &here()).unwrap();
            assert_eq!(get().unwrap(), Some((mode, MODE_STATIC_NODES, here())));
        }
        set(Mode::Default, 0, &NodeSet::new()).unwrap();
        assert_eq!(get().unwrap(), Some((Mode::Default, 0, NodeSet::new())));
    }

    #[test]
    fn a_range_is_bound_and_a_process_moved() {
        let memory = vec![1_u8; 1 << 20];
        let start = (memory.as_ptr() as u64 + 4095) & !4095;
        bind(start, 16 * 4096, Mode::Bind, 0, &here(), BIND_MOVE).unwrap();
        assert_eq!(migrate_process(std::process::id(), &here(), &here()).unwrap(), 0);
    }

    #[test]
    fn refusals_are_named() {
        let nowhere: NodeSet = [NodeId(1023)].into_iter().collect();
        let error = set(Mode::Bind, 0, &nowhere).unwrap_err().to_string();
        assert!(error.starts_with("set_mempolicy: Invalid argument"), "{error}");
        let error = bind(4096, 4096, Mode::Bind, 0, &here(), 0).unwrap_err().to_string();
        assert!(error.starts_with("mbind: "), "{error}");
        assert!(migrate_process(5_000_000, &here(), &here()).unwrap_err().is_gone());
    }
}
