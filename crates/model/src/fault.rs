//! One hinting fault: the kernel saw a task touch a page it had armed.
//!
//! Fields and flag values are those of the kernel's `task_numa_fault` (v6.x).

use serde::{Deserialize, Serialize};

use crate::{CpuId, Nanos, NodeId, Pages};

/// The kernel's `TNF_*` flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FaultFlags(pub u32);

impl FaultFlags {
    /// The kernel moved the page in this fault.
    pub const MIGRATED: u32 = 0x01;
    /// The page does not count for grouping tasks.
    pub const NO_GROUP: u32 = 0x02;
    /// The page is mapped by several processes.
    pub const SHARED: u32 = 0x04;
    /// The page was on the faulting CPU's node.
    pub const FAULT_LOCAL: u32 = 0x08;
    /// The kernel tried to move the page and could not.
    pub const MIGRATE_FAIL: u32 = 0x10;
    /// Ours, and none of the kernel's: an access to memory that faults, found by sampling and not by a fault.
    pub const SAMPLE: u32 = 1 << 31;

    /// Of an access that was sampled: whether its page was on the CPU's node, and whether it is to memory that faults.
    #[must_use]
    pub fn of_access(local: bool, faults: bool) -> FaultFlags {
        let local = if local { FaultFlags::FAULT_LOCAL } else { 0 };
        FaultFlags(local | if faults { FaultFlags::SAMPLE } else { 0 })
    }

    /// Whether all of `bits` are set.
    #[must_use]
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

/// Base pages of which one is told of where their faults are sampled.
pub const SAMPLED: Pages = Pages(8);

/// A hinting fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintingFault {
    /// When, on the machine's monotonic clock.
    pub time: Nanos,
    /// Faulting thread.
    pub tid: u32,
    /// Its thread group.
    pub tgid: u32,
    /// CPU it ran on.
    pub cpu: CpuId,
    /// Node that holds the page after the kernel dealt with the fault.
    pub memory_node: NodeId,
    /// Base pages that it stands for: 1, [`SAMPLED`] where only some of these are told of, or 512 for a huge
    /// page.
    pub pages: Pages,
    /// What the kernel made of it.
    pub flags: FaultFlags,
    /// Faulting address, where the kernel's interfaces give it.
    pub address: Option<u64>,
    /// CPU that touched the page before, if the kernel knew one.
    pub last_cpu: Option<CpuId>,
    /// Low 8 bits of the thread id that touched the page before.
    pub last_pid_low8: Option<u8>,
}

impl HintingFault {
    /// Whether it is none, but an access that was sampled ([`FaultFlags::SAMPLE`]).
    #[must_use]
    pub fn is_sample(&self) -> bool {
        self.flags.has(FaultFlags::SAMPLE)
    }

    /// Whether it was on a base page.
    #[must_use]
    pub fn is_on_base_page(&self) -> bool {
        self.pages <= SAMPLED
    }
}
