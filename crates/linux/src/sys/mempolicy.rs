//! Memory policies of ourselves and of our address ranges, and moving a whole process's memory.
//!
//! What the kernel lacks shows as an error: ENOSYS for a call, EINVAL for a mode or flag it does
//! not know. [`lacks`] tells the one from the other refusals. Numbers are those of
//! include/uapi/linux/mempolicy.h; libc lacks the newest modes.

use numaherd_mempolicy::{Flags, Mode, Request};
use numaherd_model::{NodeId, NodeSet};

use super::SysError;

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

/// Sets this thread's policy.
///
/// # Errors
/// The kernel does not know the mode, or none of the nodes has memory we may use.
pub fn set(request: &Request) -> Result<(), SysError> {
    set_raw(raw_mode(request), &request.nodes)
}

/// Sets this thread's policy by the kernel's number for mode and flags.
///
/// # Errors
/// As [`set`].
pub fn set_raw(mode: i32, nodes: &NodeSet) -> Result<(), SysError> {
    let words = nodes.words();
    // SAFETY: the kernel reads as many words as `bits` says, which is what `words` has.
    let result =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer(words), bits(words)) };
    done(result, "set_mempolicy")
}

fn raw_mode(request: &Request) -> i32 {
    request.mode.raw() | request.flags.raw()
}

/// A policy as get_mempolicy tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Mode and flags in one number, as the kernel has it.
    pub raw: i32,
    /// Its nodes: with flags those asked for, else those in force.
    pub nodes: NodeSet,
}

impl Told {
    /// The mode; None for one newer than this program.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        Mode::from_raw(Flags::split(self.raw).0)
    }

    /// The flags.
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags::split(self.raw).1
    }
}

/// `get_mempolicy`: tell the node instead of the policy.
const TELL_NODE: usize = 1 << 0;
/// `get_mempolicy`: of an address.
const OF_ADDRESS: usize = 1 << 1;
/// `get_mempolicy`: the nodes this thread's cpuset allows.
const TELL_ALLOWED: usize = 1 << 2;

fn get_raw(address: u64, flags: usize, want_nodes: bool) -> Result<Told, SysError> {
    let mut raw = 0_i32;
    let mut words = [0_u64; MOST_NODES / 64];
    let (nodes, len) =
        if want_nodes { (words.as_mut_ptr(), MOST_NODES) } else { (std::ptr::null_mut(), 0) };
    // the kernel refuses a place for the mode where it has none to tell
    let mode = if flags == TELL_ALLOWED { std::ptr::null_mut() } else { &raw mut raw };
    // SAFETY: the kernel writes an int where `mode` is not null, and at most MOST_NODES bits, for
    // which there is room. The address is one of ours or refused.
    let result =
        unsafe { libc::syscall(libc::SYS_get_mempolicy, mode, nodes, len, address, flags) };
    done(result, "get_mempolicy")?;
    Ok(Told { raw, nodes: NodeSet::from_words(&words) })
}

/// This thread's policy.
///
/// # Errors
/// The kernel was built without NUMA.
pub fn get() -> Result<Told, SysError> {
    get_raw(0, 0, true)
}

/// The policy in force at an address of ours: the range's, or the thread's if it has none.
///
/// # Errors
/// Nothing is mapped there.
pub fn get_at(address: u64) -> Result<Told, SysError> {
    get_raw(address, OF_ADDRESS, true)
}

/// The node of the page at an address of ours. A page never touched is brought in.
///
/// # Errors
/// Nothing is mapped there.
pub fn node_at(address: u64) -> Result<NodeId, SysError> {
    let told = get_raw(address, OF_ADDRESS | TELL_NODE, false)?;
    Ok(NodeId(u32::try_from(told.raw).unwrap_or(0)))
}

/// The node the next page goes to that is interleaved by this thread's policy.
///
/// # Errors
/// The thread's policy is another.
pub fn next_interleaved() -> Result<NodeId, SysError> {
    let told = get_raw(0, TELL_NODE, false)?;
    Ok(NodeId(u32::try_from(told.raw).unwrap_or(0)))
}

/// The nodes this thread's cpuset allows.
///
/// # Errors
/// The kernel was built without NUMA.
pub fn allowed() -> Result<NodeSet, SysError> {
    get_raw(0, TELL_ALLOWED, true).map(|told| told.nodes)
}

/// Sets the policy of `len` bytes of our own memory from `start`, a page's first address;
/// `bind_flags` are the `BIND_` bits. Contents stay as they are.
///
/// # Errors
/// The range is not mapped, or pages could not be moved that [`BIND_STRICT`] wants moved.
pub fn bind(start: u64, len: u64, request: &Request, bind_flags: u32) -> Result<(), SysError> {
    let words = request.nodes.words();
    // SAFETY: the kernel reads as many words as `bits` says, which is what `words` has. The range
    // is only a number to us: mbind changes where pages lie and never what they hold.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            len,
            raw_mode(request),
            pointer(words),
            bits(words),
            bind_flags,
        )
    };
    done(result, "mbind")
}

/// Number of the call on x86-64, aarch64 and riscv64; libc has it for some targets only.
const SYS_SET_MEMPOLICY_HOME_NODE: libc::c_long = 450;

/// Gives a home node to the policies (bind or preferred-many) of a range of our memory
/// (Linux 5.17).
///
/// # Errors
/// ENOSYS before that; EOPNOTSUPP for policies of other modes; EINVAL for a node that is not
/// online.
pub fn set_home(start: u64, len: u64, home: NodeId) -> Result<(), SysError> {
    // SAFETY: numbers only; the call changes policies, not memory.
    let result = unsafe { libc::syscall(SYS_SET_MEMPOLICY_HOME_NODE, start, len, home.0, 0) };
    done(result, "set_mempolicy_home_node")
}

/// What a kernel may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Any policy: CONFIG_NUMA.
    Policies,
    /// This mode.
    Mode(Mode),
    /// The balancing flag with bind (Linux 5.12).
    BalancingBind,
    /// Home nodes (Linux 5.17).
    HomeNode,
}

/// Tries, on a thread of its own so that nothing of ours changes, whether the kernel lacks it.
#[must_use]
pub fn lacks(feature: Feature) -> bool {
    let tried = std::thread::spawn(move || try_out(feature)).join();
    tried.unwrap_or(true)
}

fn try_out(feature: Feature) -> bool {
    let Ok(nodes) = allowed() else { return true };
    let request = |mode, flags| {
        let none = matches!(mode, Mode::Default | Mode::Local);
        Request { mode, flags, nodes: if none { NodeSet::new() } else { nodes.clone() } }
    };
    let refused = match feature {
        Feature::Policies => return false,
        Feature::Mode(mode) => set(&request(mode, Flags::NONE)),
        Feature::BalancingBind => set(&request(Mode::Bind, Flags::BALANCING)),
        // an empty range: nothing to do, unless the call is not there
        Feature::HomeNode => set_home(0, 0, nodes.first().unwrap_or_default()),
    };
    refused.is_err_and(|error| matches!(error.errno(), Some(libc::ENOSYS | libc::EINVAL)))
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

    fn request(mode: Mode, flags: Flags, nodes: NodeSet) -> Request {
        Request { mode, flags, nodes }
    }

    #[test]
    fn a_policy_reads_as_it_was_set() {
        // policies belong to a thread, and tests have their own
        for mode in [Mode::Bind, Mode::Interleave, Mode::Preferred] {
            set(&request(mode, Flags::STATIC, here())).unwrap();
            let told = get().unwrap();
            assert_eq!(
                (told.mode(), told.flags(), &told.nodes),
                (Some(mode), Flags::STATIC, &here())
            );
        }
        set(&request(Mode::Default, Flags::NONE, NodeSet::new())).unwrap();
        assert_eq!(get().unwrap(), Told { raw: 0, nodes: NodeSet::new() });
        assert!(here().is_subset(&allowed().unwrap()));
    }

    #[test]
    fn a_range_is_bound_and_a_process_moved() {
        let memory = vec![1_u8; 1 << 20];
        let start = (memory.as_ptr() as u64 + 4095) & !4095;
        let bound = request(Mode::Bind, Flags::NONE, here());
        bind(start, 16 * 4096, &bound, BIND_MOVE).unwrap();
        assert_eq!(get_at(start).unwrap().mode(), Some(Mode::Bind));
        assert_eq!(get_at(start + 16 * 4096).unwrap().mode(), Some(Mode::Default));
        assert!(here().contains(node_at(start).unwrap()));
        assert_eq!(migrate_process(std::process::id(), &here(), &here()).unwrap(), 0);
    }

    #[test]
    fn what_is_lacking_is_told_without_a_change_here() {
        let before = get().unwrap();
        assert!(!lacks(Feature::Policies) && !lacks(Feature::Mode(Mode::Interleave)));
        assert_eq!(get().unwrap(), before);
    }

    #[test]
    fn refusals_are_named() {
        let nowhere = request(Mode::Bind, Flags::NONE, [NodeId(1023)].into_iter().collect());
        let error = set(&nowhere).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
        assert!(error.to_string().starts_with("set_mempolicy: Invalid argument"), "{error}");
        let bound = request(Mode::Bind, Flags::NONE, here());
        let error = bind(4096, 4096, &bound, 0).unwrap_err().to_string();
        assert!(error.starts_with("mbind: "), "{error}");
        assert!(migrate_process(5_000_000, &here(), &here()).unwrap_err().is_gone());
    }
}
