//! One access to memory, as a sampler found it: what a task was about to touch when its CPU was looked at.
//!
//! Unlike a [`crate::HintingFault`] nothing is armed for it and the kernel does not know of it, so it
//! says nothing of where the page is.

use std::io;

use crate::{CpuId, CpuSet, Nanos};

/// An access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When, on the machine's monotonic clock.
    pub time: Nanos,
    /// The thread.
    pub tid: u32,
    /// Its thread group.
    pub tgid: u32,
    /// CPU it ran on.
    pub cpu: CpuId,
    /// What it was about to access.
    pub address: u64,
}

/// CPUs that are not sampled for want of something, and are tried again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Which.
    pub cpus: CpuSet,
    /// Why, of the first of them.
    pub why: String,
}

/// Where samples of accesses come from.
pub trait AccessSource {
    /// Samples these thread groups on these CPUs from now on, each CPU about once in so long; nobody,
    /// and nothing is sampled and nothing held open. The same again changes nothing, but that CPUs are tried again that
    /// could not be sampled.
    ///
    /// # Errors
    /// The kernel's, if it refuses for good; nothing is sampled then.
    fn watch(&mut self, tgids: &[u32], cpus: &CpuSet, every: Nanos) -> io::Result<()>;

    /// CPUs that should be sampled now, and are not.
    fn missed(&self) -> Option<Missed> {
        None
    }

    /// Appends the accesses since the last call, of each CPU the oldest first.
    fn drain(&mut self, accesses: &mut Vec<Access>);
}
