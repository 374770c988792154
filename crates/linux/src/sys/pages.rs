//! Where single pages are, and moving them: `move_pages(2)`.
//!
//! Pages are named by their addresses. The answer is one number a page: its node, or the negative
//! errno why it stayed (-ENOENT: never touched; -EBUSY: in use for now; -EACCES: mapped by
//! several processes). [`PageStatus`] reads it.

use numaherd_model::{Bytes, NodeId};

use super::SysError;

const CALL: &str = "move_pages";

/// Move pages that only this process maps.
const MPOL_MF_MOVE: i32 = 1 << 1;
/// Move pages that others map too; needs CAP_SYS_NICE.
const MPOL_MF_MOVE_ALL: i32 = 1 << 2;

/// Where pages are to go.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// All to one node.
    One(NodeId),
    /// Each to its own; as many as there are addresses.
    Each(&'a [NodeId]),
}

/// Size of a base page.
#[must_use]
pub fn size() -> Bytes {
    // SAFETY: sysconf has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Bytes(u64::try_from(bytes).unwrap_or(4096))
}

/// What became of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStatus {
    /// It is on this node now.
    On(NodeId),
    /// Never touched, so there is none.
    Absent,
    /// Busy for now.
    Busy,
    /// Mapped by several processes.
    Shared,
    /// No room on the node.
    Full,
    /// Another errno.
    Error(i32),
    /// The kernel gave up before it came to say: as soon as one page of those it has collected
    /// cannot be moved, it says nothing of these and leaves the rest.
    Untried,
}

/// What a status holds until the kernel fills it in: no errno is so large.
const UNTRIED: i32 = i32::MIN;

impl PageStatus {
    /// Only read so far, so that the kernel gave its shared page of zeroes; or nothing is mapped.
    pub const ZEROES: PageStatus = PageStatus::Error(libc::EFAULT);

    /// Reads one number of the kernel's answer.
    #[must_use]
    pub fn from_raw(status: i32) -> Self {
        match u32::try_from(status) {
            Ok(node) => PageStatus::On(NodeId(node)),
            Err(_) if status == UNTRIED => PageStatus::Untried,
            Err(_) => match status.saturating_neg() {
                libc::ENOENT => PageStatus::Absent,
                libc::EBUSY | libc::EAGAIN => PageStatus::Busy,
                libc::EACCES => PageStatus::Shared,
                libc::ENOMEM => PageStatus::Full,
                errno => PageStatus::Error(errno),
            },
        }
    }
}

/// Where the pages at these addresses are. `status` is refilled, one number an address.
///
/// # Errors
/// The process has ended or belongs to someone else.
pub fn query(pid: u32, addresses: &[u64], status: &mut Vec<i32>) -> Result<(), SysError> {
    call(pid, addresses, None, 0, status)
}

/// Moves the pages at these addresses. `status` is refilled, one number an address; a page that
/// stayed is no error. Pages the kernel said nothing of are untried. `shared` moves pages that
/// other processes map too.
///
/// # Errors
/// The process has ended or belongs to someone else, or a node is none.
pub fn migrate(
    pid: u32,
    addresses: &[u64],
    target: Target<'_>,
    shared: bool,
    status: &mut Vec<i32>,
) -> Result<(), SysError> {
    let nodes: Vec<i32> = match target {
        Target::One(node) => vec![node.0 as i32; addresses.len()],
        Target::Each(nodes) => nodes.iter().map(|node| node.0 as i32).collect(),
    };
    if nodes.len() != addresses.len() {
        let source = std::io::Error::from_raw_os_error(libc::EINVAL);
        return Err(SysError::Refused { call: CALL, source });
    }
    let flags = if shared { MPOL_MF_MOVE_ALL } else { MPOL_MF_MOVE };
    call(pid, addresses, Some(&nodes), flags, status)
}

fn call(
    pid: u32,
    addresses: &[u64],
    nodes: Option<&[i32]>,
    flags: i32,
    status: &mut Vec<i32>,
) -> Result<(), SysError> {
    status.clear();
    status.resize(addresses.len(), UNTRIED);
    if addresses.is_empty() {
        return Ok(());
    }
    let names_nodes = nodes.is_some();
    let nodes = nodes.map_or(std::ptr::null(), <[i32]>::as_ptr);
    // SAFETY: `addresses` and `status` have the count given, and so has `nodes` where it is not
    // null (checked by our callers); the kernel reads the first and last and writes the second.
    // Addresses are those of another process or are not dereferenced by us.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            addresses.len(),
            addresses.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            flags,
        )
    };
    // positive: that many pages were not moved, which their statuses tell one by one
    if result >= 0 {
        Ok(())
    } else {
        Err(failed(pid, std::io::Error::last_os_error(), names_nodes))
    }
}

/// The error of a call. For want of rights to the process the kernel says EPERM; EACCES is for a node that its cpuset
/// leaves out, and ENODEV for one without memory (`do_pages_move`, v6.12). Security modules say EACCES too, to whoever
/// only asks where pages are as well: nodes have nothing to do with that.
fn failed(tid: u32, source: std::io::Error, names_nodes: bool) -> SysError {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::ENODEV) if names_nodes => SysError::Forbidden { call: CALL, tid },
        _ => SysError::from_io(CALL, tid, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four pages' addresses in our own memory, the first two touched.
    fn pages() -> (Vec<u8>, Vec<u64>) {
        let mut memory: Vec<u8> = Vec::with_capacity(16 << 20);
        let first = (memory.as_ptr() as u64 + 4095) & !4095;
        // far enough apart that a huge page does not bring the next one in
        let addresses = vec![first, first + 4096, first + (8 << 20), first + (12 << 20)];
        memory.resize(3 * 4096, 1);
        (memory, addresses)
    }

    #[test]
    fn touched_pages_have_a_node_and_others_are_absent() {
        let (_memory, addresses) = pages();
        let mut status = vec![7; 9];
        query(std::process::id(), &addresses, &mut status).unwrap();
        let read: Vec<_> = status.iter().map(|&s| PageStatus::from_raw(s)).collect();
        assert!(matches!(read[0], PageStatus::On(_)) && matches!(read[1], PageStatus::On(_)));
        assert_eq!(read[2..], [PageStatus::Absent, PageStatus::Absent]);
        let PageStatus::On(node) = read[0] else { unreachable!() };
        migrate(std::process::id(), &addresses[..2], Target::One(node), false, &mut status)
            .unwrap();
        assert_eq!(PageStatus::from_raw(status[0]), PageStatus::On(node));
    }

    #[test]
    fn bad_calls_are_named() {
        let (_memory, addresses) = pages();
        let mut status = Vec::new();
        let me = std::process::id();
        let gone = query(5_000_000, &addresses, &mut status).unwrap_err();
        assert_eq!(gone.to_string(), "move_pages: task 5000000 has ended");
        assert!(migrate(me, &addresses, Target::Each(&[]), false, &mut status).is_err());
        let nowhere = Target::One(NodeId(1023));
        assert!(migrate(me, &addresses, nowhere, false, &mut status).unwrap_err().is_forbidden());
        let of = |errno| failed(7, std::io::Error::from_raw_os_error(errno), true);
        assert!(of(libc::EACCES).is_forbidden() && !of(libc::EPERM).is_forbidden());
        assert!(of(libc::ESRCH).is_gone() && of(libc::ENOMEM).is_full());
        // Who only asks where pages are names no node.
        let asked = failed(7, std::io::Error::from_raw_os_error(libc::EACCES), false);
        assert!(matches!(asked, SysError::NotPermitted { tid: 7, .. }));
        query(me, &[], &mut status).unwrap();
        assert!(status.is_empty());
    }

    #[test]
    fn errnos_fall_into_the_models_classes() {
        for (raw, expected) in [
            (0, PageStatus::On(NodeId(0))),
            (3, PageStatus::On(NodeId(3))),
            (-libc::ENOENT, PageStatus::Absent),
            (-libc::EBUSY, PageStatus::Busy),
            (-libc::EAGAIN, PageStatus::Busy),
            (-libc::EACCES, PageStatus::Shared),
            (-libc::ENOMEM, PageStatus::Full),
            (-libc::EFAULT, PageStatus::Error(libc::EFAULT)),
            (i32::MIN + 1, PageStatus::Error(i32::MAX)),
            (i32::MIN, PageStatus::Untried),
        ] {
            assert_eq!(PageStatus::from_raw(raw), expected);
        }
    }
}
