//! Instructions that mean nothing to a CPU and something to the emulated machine.
//!
//! A marker is an eight-byte nop, `0f 1f 84 00 disp32`, whose displacement spells "NH", an
//! operation and an argument. The latency plugin recognises it when it translates; on hardware
//! it costs one nop.

use std::hint::black_box;

use crate::span::Span;
use crate::{Layout, WorkloadError, sys, system};

macro_rules! mark {
    ($op:literal, $arg:literal) => {{
        // SAFETY: a nop reads and writes nothing.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                ".byte 0x0f, 0x1f, 0x84, 0x00",
                ".long {}",
                const 0x4e48_0000 | $op << 8 | $arg,
                options(nomem, nostack, preserves_flags)
            );
        }
    }};
}

/// Charge instructions and misses from here on.
pub fn charge() {
    mark!(1, 0);
}

/// The timed part begins: take a snapshot of the counters.
pub fn begin() {
    mark!(3, 1);
}

/// The timed part is over: take another.
pub fn end() {
    mark!(3, 2);
}

/// Touched per node when the plugin learns where nodes lie: enough to outweigh whatever else
/// the CPU does meanwhile.
const TEACH_BYTES: usize = 16 << 20;

/// Shows the plugin where each node's memory lies, by touching memory bound to it.
///
/// # Errors
/// Memory cannot be had on one of the nodes.
pub fn teach_nodes(layout: &Layout, memory_nodes: &[u32]) -> Result<(), WorkloadError> {
    let cpu = layout.cpus().first().copied().unwrap_or(0);
    sys::set_affinity(&[cpu]).map_err(system("cannot pin the agent"))?;
    let spans = memory_nodes.iter().map(|&node| {
        let span = Span::map(TEACH_BYTES, Some(false))?;
        span.bind(0..TEACH_BYTES, sys::MPOL_BIND, &[node])?;
        span.write(0..TEACH_BYTES, 0);
        Ok(span)
    });
    let spans: Vec<Span> = spans.collect::<Result<_, WorkloadError>>()?;
    for (index, span) in spans.iter().enumerate() {
        if index == 0 {
            mark!(4, 0);
        } else {
            mark!(5, 0);
        }
        black_box(span.read(0..TEACH_BYTES));
    }
    mark!(6, 0);
    sys::set_affinity(&layout.cpus()).map_err(system("cannot unpin the agent"))
}
