//! What tasks are about to access, sampled.
//!
//! Hinting faults tell who uses which memory, but some memory takes none: huge pages of the kernel's
//! reserve (hugetlb). Hardware that samples addresses (PEBS, IBS) tells it of all memory, and is in few
//! virtual machines. What every kernel has is a clock that interrupts a CPU now and then and notes the
//! registers of the task it found there. A task that waits for memory is found at the instruction that
//! waits, so that instruction, read from the task's memory and given those registers, says which address
//! it is about to access (`block`); and since a CPU is found where it spends its time, accesses come
//! weighed by what they cost.
//!
//! Nothing is done to the task's memory, and the tasks lose what one interrupt takes.
//!
//! Five parts: `perf` takes samples, from the events of each CPU that `rings` keeps, `code` gets instructions, `block` says what they access given
//! `registers`. Only of 64-bit programs on x86: elsewhere [`sampler`] answers none.
//!
//! `stacks` is another thing made with the same clock: where a thread of ours is in the kernel, running and waiting.
//! `traffic` reads the counters of CPUs and memory controllers (`controllers`): what memory carries.

#[cfg(target_arch = "x86_64")]
mod block;
#[cfg(target_arch = "x86_64")]
mod code;
#[cfg(target_arch = "x86_64")]
mod controllers;
#[cfg(target_arch = "x86_64")]
mod files;
#[cfg(target_arch = "x86_64")]
mod perf;
#[cfg(target_arch = "x86_64")]
mod registers;
#[cfg(target_arch = "x86_64")]
mod rings;
#[cfg(target_arch = "x86_64")]
mod stacks;
#[cfg(target_arch = "x86_64")]
mod traffic;

#[cfg(target_arch = "x86_64")]
pub use perf::Sampler;
#[cfg(target_arch = "x86_64")]
pub use stacks::Stacks;

/// What a thread was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// It ran.
    Runs,
    /// It waited for something.
    Waits,
    /// It waited for a CPU, having been taken off one.
    Queues,
}

/// A stack of the kernel's, and the time spent at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Doing what.
    pub how: How,
    /// Addresses of the kernel's, outermost first.
    pub frames: Vec<u64>,
    /// How long, all together.
    pub time: numaherd_model::Nanos,
    /// How often it was found there; for what waits, how often it began to.
    pub times: u64,
}

/// What looks at kernel stacks, on an architecture without it: nothing.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug)]
pub struct Stacks(());

#[cfg(not(target_arch = "x86_64"))]
impl Stacks {
    /// Not on this architecture.
    ///
    /// # Errors
    /// Always.
    pub fn of_this_thread(_every: numaherd_model::Nanos) -> std::io::Result<Stacks> {
        Err(std::io::Error::other("not on this architecture"))
    }

    /// Not on this architecture.
    ///
    /// # Errors
    /// Always.
    pub fn start(&mut self) -> std::io::Result<()> {
        Err(std::io::Error::other("not on this architecture"))
    }

    /// Nothing.
    pub fn stop(&mut self) {}

    /// Nothing.
    #[must_use]
    pub fn finish(self) -> (Vec<Stack>, u64) {
        (Vec::new(), 0)
    }
}

/// Has perf's open event, whose file this is, interrupt once in so long from now on: a system call that is not here.
pub type SetPeriod = fn(std::os::fd::RawFd, numaherd_model::Nanos) -> std::io::Result<()>;

/// What samples accesses on this architecture; `None` where its instructions are not read.
#[must_use]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub fn sampler(set_period: SetPeriod) -> Option<Box<dyn numaherd_model::AccessSource>> {
    #[cfg(target_arch = "x86_64")]
    return Some(Box::new(Sampler::new(set_period)));
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// What counts memory traffic here, and whether it counts what each node's memory carries, or only what CPUs ask for.
///
/// # Errors
/// In words, why nothing does.
pub fn count_traffic(
    root: &std::path::Path,
    topology: &numaherd_model::Topology,
) -> Result<(Box<dyn numaherd_model::TrafficSource>, bool), String> {
    #[cfg(target_arch = "x86_64")]
    return traffic::Traffic::begin(root, topology).map(|traffic| {
        let memories = traffic.has_controllers();
        (Box::new(traffic) as Box<dyn numaherd_model::TrafficSource>, memories)
    });
    #[cfg(not(target_arch = "x86_64"))]
    Err("not on this architecture".into())
}
