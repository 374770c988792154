//! What every other crate shares: ids, units, sets, topology, the snapshot a placement decides
//! on, the plan it answers with, and the outcome of applying that plan.
//!
//! Owns no behaviour that touches the world: no clock, no file, no thread. Everything here is
//! plain data that can be stored, replayed and compared, and the two traits ([`Observe`],
//! [`Actuate`]) through which the world is reached.

mod access;
mod balancing;
mod cause;
mod change;
mod count;
mod fault;
mod ids;
mod latencies;
mod machine;
mod outcome;
#[cfg(feature = "places")]
pub mod places;
mod plan;
#[cfg(feature = "scene")]
pub mod scene;
mod set;
mod snapshot;
mod spent;
mod stem;
mod topology;
mod traffic;
mod ways;

pub use access::{Access, AccessSource, Missed};
pub use balancing::{Balancing, PageHandling, Pull, ScanPeriods, TaskMove, Touch, View};
pub use cause::{Cause, Whose};
pub use change::{Change, Journal};
pub use count::counted;
pub use fault::{FaultFlags, HintingFault, SAMPLED};
pub use ids::{
    Bytes, CpuId, Nanos, NodeId, ObjectId, PageVerdict, Pages, ProcessId, RegionId, TaskId,
};
pub use latencies::Latencies;
pub use machine::{Actuate, Birth, FaultSource, Observe, Placement, WorldError};
pub use outcome::{Outcome, Refusal, SkipReason};
pub use plan::{Action, Plan, Reason, Waiting};
pub use set::{CpuSet, IdSet, Member, NodeSet, SetError};
pub use snapshot::{
    CLAIMS_A_CPU, CONVERGED_PERMILLE, Costs, EvidenceGrade, IDLES, KEEPS_A_CPU, MIN_FAULTS,
    MemsAllowed, NodeFaults, NodeState, Region, RegionUse, Resident, SharedRange, Sharing,
    Snapshot, Task, TaskState,
};
pub use spent::{Counters, Spent};
pub use stem::{printable, stem};
pub use topology::{Distances, Node, Topology};
pub use traffic::{Counted, Traffic, TrafficSource};
pub use ways::{nearest, ways};
