//! How long a process takes before its threads begin.
//!
//! Where its main thread touches all memory first, the kernel clears each page in a fault and the
//! thread then writes it: two passes by one thread that has its core to itself. Where a static
//! placement ties threads each to a node, each thread touches its own slice; and memory that
//! starts on one node is touched in the timed part. Both take nothing here.
//!
//! Worked example: 1 GiB at 1 GB/s is touched in 2 × 1.074 s, and 512 faults of 1 µs.

use crate::engine::{BLOCK_BYTES, BLOCK_PAGES};
use crate::layout::Tie;
use crate::machine::{LINE_BYTES, Machine, NodeSpec};
use crate::workload::{Bind, ProcessSpec, Start};

/// Seconds until the process's threads begin.
#[must_use]
pub fn seconds(machine: &Machine, spec: &ProcessSpec, tie: Tie, huge_pages: bool) -> f64 {
    let tied = matches!(tie, Tie::Bind | Tie::Inverse) && spec.bind == Bind::Thread;
    if spec.start != Start::FirstTouch || tied {
        return 0.0;
    }
    let bytes = match &spec.programs {
        Some(programs) => programs.bytes_touched_first(),
        None => (spec.memory_mib << 20) as f64,
    };
    let node = machine.node.iter().position(NodeSpec::is_home);
    let node = node.unwrap_or(0);
    let faults = bytes / BLOCK_BYTES as f64 * if huge_pages { 1.0 } else { BLOCK_PAGES as f64 };
    let lines_ns = 2.0 * bytes / LINE_BYTES * machine.line_ns(node, node, 1);
    (lines_ns + faults * machine.kernel.fault_ns as f64) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::small;
    use crate::workload::tests::slices;

    #[test]
    fn one_thread_touches_all_twice() {
        let workload = slices(4, 1024, 1);
        let of = |tie| seconds(&small(), &workload.process[0], tie, true);
        assert!((of(Tie::Free) - (2.0 * 1.073_741_824 + 512e-6)).abs() < 1e-9);
        assert_eq!(of(Tie::Bind), 0.0, "each thread its own");
    }
}
