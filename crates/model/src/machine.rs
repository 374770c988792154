//! The two ways to reach a machine, live or simulated, and the policy between them.
//!
//! A replay implements [`Observe`] and not [`Actuate`]: acting on it does not compile.

use std::ops::Range;

use crate::{
    Action, HintingFault, Nanos, NodeId, Outcome, PageVerdict, Pages, Plan, ProcessId, Snapshot,
};

/// The machine could not be read or acted upon at all.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// What we were to look after has ended.
    #[error("no task is left to look after")]
    NoTasks,
    /// Reading failed.
    #[error("cannot read {what}: {source}")]
    Read {
        /// Path or call.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// What was to be changed could not be written down first, so it is not changed.
    #[error("cannot write down what is about to change, so nothing is changed: {source}")]
    Journal {
        /// The system's error.
        source: std::io::Error,
    },
}

/// A process was born.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// When, by the monotonic clock, to a tick.
    pub time: Nanos,
    /// Its thread group.
    pub child: u32,
    /// That of the process which created it.
    pub parent: u32,
}

/// Where hinting faults come from.
pub trait FaultSource {
    /// Appends the faults since the last call, oldest first.
    ///
    /// # Errors
    /// Whatever reading the kernel's stream gives.
    fn drain(&mut self, faults: &mut Vec<HintingFault>) -> std::io::Result<()>;

    /// Restricts the stream to these thread groups, to spare the kernel the rest.
    ///
    /// # Errors
    /// Whatever updating the kernel's filter gives.
    fn watch(&mut self, tgids: &[u32]) -> std::io::Result<()>;

    /// Faults lost since the start because nobody drained in time.
    fn lost(&self) -> u64;

    /// How many tasks of these thread groups have ended that had faulted; 0 where that is not counted.
    fn exited(&self) -> u64 {
        0
    }

    /// How many tasks were born of these thread groups; None where that is not counted.
    fn born(&self) -> Option<u64> {
        None
    }

    /// Processes born of these thread groups, or of others that were, oldest first, of which [`FaultSource::drain`] was
    /// told since the last call; none where that is not known.
    fn births(&mut self) -> Vec<Birth> {
        Vec::new()
    }
}

/// A machine that can be looked at.
pub trait Observe {
    /// Looks at the machine now. Tasks, nodes and page counts are filled in; evidence from
    /// faults is left empty, the caller adds it. Appends the faults since the last call.
    ///
    /// # Errors
    /// [`WorldError::NoTasks`] when nothing is left to look after.
    fn observe(&mut self, faults: &mut Vec<HintingFault>) -> Result<Snapshot, WorldError>;

    /// About how many of a process's pages lie on each node, ascending, by its page tables; none where that
    /// cannot be told, or may not be. A few pages are looked up, however large it is.
    fn pages_lie(&mut self, _process: ProcessId) -> Vec<(NodeId, Pages)> {
        Vec::new()
    }

    /// The addresses that a process maps, ascending; `None` where that cannot be told. What has ended maps none.
    fn mapped(&mut self, _process: ProcessId) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Whoever looks is at work: said between two parts of a turn that may be long where much is known, for whoever
    /// watches it.
    fn is_at_work(&mut self) {}
}

/// A machine that can be acted upon.
pub trait Actuate {
    /// Does these things; answers what became of each, in their order. What concerns tasks is
    /// done in order and before pages are moved; moves to one node may be done as one.
    ///
    /// # Errors
    /// Only if something could not be written down first; everything else is an [`Outcome`].
    fn apply(&mut self, actions: &[&Action]) -> Result<Vec<Outcome>, WorldError>;
}

/// Which task and which pages belong on which node. Pure: the same snapshots give the same
/// plans.
pub trait Placement {
    /// Plans for this snapshot.
    fn decide(&mut self, snapshot: &Snapshot) -> Plan;

    /// What to do with the page of one fault, for placements that act in the fault.
    fn on_fault(&mut self, _fault: &HintingFault) -> PageVerdict {
        PageVerdict::Stay
    }
}
