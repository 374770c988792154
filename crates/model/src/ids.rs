//! Ids and units as distinct types, so that a node cannot be passed where a CPU is meant.
//!
//! ```
//! use numaherd_model::{Bytes, Pages};
//! assert_eq!(Pages(3).bytes(Bytes(4096)), Bytes(12288));
//! assert_eq!(Bytes(4097).pages(Bytes(4096)), Pages(2)); // a started page counts whole
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// A memory node, by the kernel's number. Numbers may be sparse and need not start at 0.
    NodeId(u32)
);
id!(
    /// A logical CPU, by the kernel's number.
    CpuId(u32)
);
id!(
    /// A length of time or a point on the machine's monotonic clock, in nanoseconds.
    Nanos(u64)
);
id!(
    /// A number of base pages (a 2 MiB page counts 512).
    Pages(u64)
);
id!(
    /// A number of bytes.
    Bytes(u64)
);

impl Pages {
    /// The bytes these pages hold.
    #[must_use]
    pub fn bytes(self, page_size: Bytes) -> Bytes {
        Bytes(self.0 * page_size.0)
    }
}

impl Bytes {
    /// The pages needed to hold these bytes.
    #[must_use]
    pub fn pages(self, page_size: Bytes) -> Pages {
        Pages(self.0.div_ceil(page_size.0))
    }

    /// Whole mebibytes, rounded down.
    #[must_use]
    pub fn mib(self) -> u64 {
        self.0 >> 20
    }
}

impl Nanos {
    /// Nanoseconds of `seconds`, which must not be negative.
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Self {
        Nanos((seconds * 1e9) as u64)
    }

    /// As seconds, for printing.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time from `earlier` to this point, 0 if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A thread. The kernel reuses thread ids, so the start time belongs to the identity.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TaskId {
    /// Thread id.
    pub tid: u32,
    /// Start time in clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub start: u64,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tid)
    }
}

/// A process (one address space), by its thread group id and the leader's start time.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ProcessId {
    /// Thread group id.
    pub tgid: u32,
    /// Start time of the group's leader in clock ticks since boot.
    pub start: u64,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tgid)
    }
}

/// What several processes may map: a file, or shared memory.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ObjectId {
    /// Its file system's device number, major and minor, as `/proc/PID/maps` has them.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
}

/// A piece of one address space: `[start, start + len)`. Which pieces of several are the same memory
/// is in [`crate::SharedRange`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RegionId {
    /// Whose address space.
    pub process: ProcessId,
    /// First address.
    pub start: u64,
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.process, self.start)
    }
}

/// What a placement wants done with the page of one hinting fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageVerdict {
    /// Leave the page where it is.
    Stay,
    /// Move it to this node.
    MoveTo(NodeId),
}
