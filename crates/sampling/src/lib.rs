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
//! Four parts: `perf` takes samples, `code` gets instructions, `block` says what they access given
//! `registers`. Only of 64-bit programs on x86: elsewhere [`sampler`] answers none.

#[cfg(target_arch = "x86_64")]
mod block;
#[cfg(target_arch = "x86_64")]
mod code;
#[cfg(target_arch = "x86_64")]
mod perf;
#[cfg(target_arch = "x86_64")]
mod registers;

#[cfg(target_arch = "x86_64")]
pub use perf::Sampler;

/// What samples accesses on this architecture; `None` where its instructions are not read.
#[must_use]
pub fn sampler() -> Option<Box<dyn numaherd_model::AccessSource>> {
    #[cfg(target_arch = "x86_64")]
    return Some(Box::new(Sampler::new()));
    #[cfg(not(target_arch = "x86_64"))]
    None
}
