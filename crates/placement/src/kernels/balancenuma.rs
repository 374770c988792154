//! balancenuma (Mel Gorman, 2012): the foundation without a placement of tasks. A page comes when
//! the same node asks for it twice running; at most 1.28 GB/s come to a node, and a node that has
//! reached that arms no pages until a second later.

use std::collections::BTreeMap;

use numaherd_model::{
    Balancing, Bytes, Cause, Nanos, NodeId, PageHandling, ScanPeriods, TaskId, Touch, View,
};

use super::index_of;
use super::limit::Limit;
use super::scan::{SCAN_BYTES, ScanClock};

/// Its knobs. Published.
const PERIODS: ScanPeriods = ScanPeriods {
    delay: Nanos(1_000_000_000),
    min: Nanos(100_000_000),
    max: Nanos(5_000_000_000),
    size: SCAN_BYTES,
};
/// After this long everybody scans quickly again. Published.
const RESET: Nanos = Nanos(60_000_000_000);
/// By which a period grows with each fault whose page stays. Published: 10 ms.
const SLOWER: u64 = 10_000_000;
/// How long a node over its limit arms nothing, after the window. Published.
const GRACE: Nanos = Nanos(1_000_000_000);

/// Which mechanisms are on.
#[derive(Clone, Copy, Debug)]
pub struct Switches {
    /// The limit of 1.28 GB/s.
    pub limits_moves: bool,
}

/// Its state.
#[derive(Debug)]
pub struct Balancenuma {
    switches: Switches,
    clock: ScanClock,
    limit: Limit,
    periods: BTreeMap<TaskId, Nanos>,
    reset_at: Nanos,
}

impl Balancenuma {
    /// With the published constants.
    #[must_use]
    pub fn new(switches: Switches) -> Balancenuma {
        Balancenuma {
            switches,
            clock: ScanClock::default(),
            limit: Limit::of_2012(),
            periods: BTreeMap::new(),
            reset_at: RESET,
        }
    }
}

impl Balancing for Balancenuma {
    fn name(&self) -> &'static str {
        "balancenuma"
    }

    fn pages(&self) -> PageHandling {
        PageHandling { one_fault_for_2m: true, moves_huge_whole: true, keeps_beside: false }
    }

    fn scan(&mut self, task: TaskId, view: &dyn View) -> Option<Bytes> {
        let now = view.now();
        if now >= self.reset_at {
            self.reset_at = Nanos(now.0 + RESET.0);
            self.periods.clear();
        }
        let node = view.cpu_of(task).map(|cpu| index_of(view, view.node_of(cpu)))?;
        if self.switches.limits_moves && self.limit.is_reached(node, now, GRACE) {
            return None;
        }
        let period = self.periods.get(&task).copied().unwrap_or(PERIODS.min);
        (self.clock.due(task, view, PERIODS.delay, period) > 0).then_some(PERIODS.size)
    }

    fn on_fault(&mut self, touch: &Touch, view: &dyn View) -> Option<(NodeId, Cause)> {
        let (node, home) = (index_of(view, touch.node), index_of(view, touch.home));
        let last = touch.last.map(|(_, cpu)| index_of(view, view.node_of(cpu)));
        let wants = node != home && last == Some(node);
        let limited = self.switches.limits_moves;
        if wants && (!limited || self.limit.admits(node, touch.pages, view.now())) {
            return Some((touch.node, Cause::Twice));
        }
        let period = self.periods.entry(touch.task).or_insert(PERIODS.min);
        *period = Nanos((period.0 + SLOWER).min(PERIODS.max.0));
        None
    }
}
