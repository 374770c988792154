//! What the live machine has to be told.

use numaherd_model::{AccessSource, FaultSource, Journal, Latencies, Nanos, ProcessId};

/// Memory of which accesses are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// That of processes most of whose memory is huge pages of the reserve, and takes no faults.
    pub reserve: bool,
    /// Everybody's who is busy, beside its faults, or in their place where there are none.
    pub rest: bool,
    /// Of that, base pages too. Where the kernel scans for us its faults tell more of those: a sample is of a few, and to read
    /// what is mapped where walks all of them, while a look waits.
    pub base: bool,
}

impl Sampled {
    /// Whether there is any.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.reserve || self.rest
    }
}

/// How to set up a [`super::LiveMachine`].
pub struct LiveOptions {
    /// Processes to look after, with their descendants. By their start too: a pid may be another's by
    /// now.
    pub targets: Vec<ProcessId>,
    /// Hinting faults; without them, evidence is samples of accesses, and without those where the pages of each process lie.
    pub faults: Option<Box<dyn FaultSource>>,
    /// Samples of accesses; without them, processes most of whose memory takes no faults are left alone.
    pub accesses: Option<Box<dyn AccessSource>>,
    /// Of which memory.
    pub sampled: Sampled,
    /// How far nodes are from each other, where somebody measured it.
    pub latencies: Option<Latencies>,
    /// Who counts what memory carries; without it, what a node's memory carries is no limit.
    pub traffic: Option<super::TrafficCounters>,
    /// Where changes are written down.
    pub journal: Box<dyn Journal>,
    /// Whether to act, or only to say what would be done.
    pub acts: bool,
    /// Whether tasks are left alone most of whose memory takes no hinting faults.
    pub coverage: bool,
    /// Whether memory that several processes map is taken for one thing.
    pub objects: bool,
    /// Whether virtual machines' nodes are kept whole.
    pub units: bool,
    /// How long a task may be kept waiting for a page on its way.
    pub pause: Nanos,
    /// Called often, so that whoever watches over us sees that we live.
    pub beat: Box<dyn FnMut()>,
}
