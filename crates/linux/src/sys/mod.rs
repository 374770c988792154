//! System calls, safe and with named errors. Thin: what to do with an answer is for others.
//!
//! Sets of nodes and CPUs may have any size the kernel allows; buffers grow to the kernel's.

use std::io;

pub mod affinity;
pub mod clock;
pub mod identity;
pub mod mapping;
pub mod mempolicy;
pub mod pages;
pub mod perf;
pub mod priority;
pub mod signal;

/// A system call failed.
#[derive(Debug, thiserror::Error)]
pub enum SysError {
    /// The task or process has ended.
    #[error("{call}: task {tid} has ended")]
    Gone {
        /// The call.
        call: &'static str,
        /// The task it was about.
        tid: u32,
    },
    /// The task belongs to someone else, and we lack CAP_SYS_NICE or CAP_SYS_PTRACE.
    #[error("{call}: not permitted on task {tid} (run as root or with CAP_SYS_NICE)")]
    NotPermitted {
        /// The call.
        call: &'static str,
        /// The task it was about.
        tid: u32,
    },
    /// A process's memory may not be on the node that it was to go to: its cpuset leaves that out, or it has no memory.
    #[error("{call}: memory of task {tid} may not be there (cpuset.mems)")]
    Forbidden {
        /// The call.
        call: &'static str,
        /// The task it was about.
        tid: u32,
    },
    /// Any other refusal.
    #[error("{call}: {source}")]
    Refused {
        /// The call.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl SysError {
    /// The error of a call about task `tid` that has just failed.
    pub(crate) fn last(call: &'static str, tid: u32) -> Self {
        Self::from_io(call, tid, io::Error::last_os_error())
    }

    pub(crate) fn from_io(call: &'static str, tid: u32, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ESRCH) => SysError::Gone { call, tid },
            Some(libc::EPERM | libc::EACCES) => SysError::NotPermitted { call, tid },
            _ => SysError::Refused { call, source },
        }
    }

    /// The system's error number, where it is one of those without a name of their own.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            SysError::Refused { source, .. } => source.raw_os_error(),
            SysError::Gone { .. } => Some(libc::ESRCH),
            SysError::NotPermitted { .. } => Some(libc::EPERM),
            SysError::Forbidden { .. } => Some(libc::EACCES),
        }
    }

    /// Whether there was no room: on a node, for pages that were to come to it.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.errno() == Some(libc::ENOMEM)
    }

    /// Whether that is so of a node, and not of this moment or these pages.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, SysError::Forbidden { .. })
    }

    /// Whether the task has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, SysError::Gone { .. })
    }
}
