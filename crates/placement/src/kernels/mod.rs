//! The NUMA balancing of kernels, for the simulator: what they decide in a fault and at a tick.
//!
//! | module | whose |
//! |---|---|
//! | [`mainline`] | Linux 6.x |
//! | [`autonuma`] | AutoNUMA of March 2012 and v28 |
//! | [`numacore`] | numa/core v17 and v18, 2012 |
//! | [`balancenuma`] | balancenuma, 2012 |
//! | [`limit`] | of the latter two: how many pages may come to a node |
//! | [`scan`] | of all of them: when whose memory is armed for hinting faults |
//! | [`parts`] | of all of them: mechanisms by name, to leave them out |
//!
//! Written from descriptions of the algorithms and their published constants; each switch turns
//! one mechanism off, so that its worth can be told. Nodes are indices into the topology's nodes.

pub mod autonuma;
pub mod balancenuma;
pub mod limit;
pub mod mainline;
pub mod numacore;
pub mod parts;
pub mod scan;
#[cfg(test)]
mod world;

pub use autonuma::Autonuma;
pub use balancenuma::Balancenuma;
pub use mainline::Mainline;
pub use numacore::Numacore;
pub use parts::Parts;

use numaherd_model::{CpuId, NodeId, View};

/// A node's index.
fn index_of(view: &dyn View, node: NodeId) -> usize {
    view.topology().nodes.iter().position(|known| known.id == node).unwrap_or(0)
}

/// The CPUs of the node with this index.
fn cpus_of(view: &dyn View, node: usize) -> impl Iterator<Item = CpuId> {
    view.topology().nodes[node].cpus.iter().collect::<Vec<_>>().into_iter()
}

/// Runnable tasks of a node.
fn load_of(view: &dyn View, node: usize) -> u64 {
    cpus_of(view, node).map(|cpu| u64::from(view.load(cpu))).sum()
}
