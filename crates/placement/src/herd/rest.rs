//! When a region may be moved again.
//!
//! Not within [`SETTLE`]. And the parts of what was shared out among several nodes do not stay equal: whoever comes
//! first to a page has the kernel bring it there. Made equal again and again, memory would move to and fro for
//! ever, each time for no longer than until the next pass of the kernel's scan. So a region is shared out again no
//! sooner than when its process has lived twice as long: as often as not it will not be needed any more (Lindy),
//! and it is done a few times in all.
//!
//! Example: shared out 4 s after its process began, again after 8 s at the soonest, and then after 16.

use std::collections::BTreeMap;

use numaherd_model::{Action, Nanos, ProcessId, RegionId, Snapshot};

use super::SETTLE;
use crate::horizon::process_ages;

/// Regions that were moved, or shared out, each with when it may be again.
#[derive(Debug, Default)]
pub struct Rest {
    moved: BTreeMap<RegionId, Nanos>,
    shared: BTreeMap<RegionId, Nanos>,
}

fn may(rest: &BTreeMap<RegionId, Nanos>, action: &Action, now: Nanos) -> bool {
    let Action::MovePages { region, .. } = action else { return true };
    rest.get(region).is_none_or(|&until| now >= until)
}

impl Rest {
    /// Whether the region was left in peace for long enough.
    pub fn may_move(&self, action: &Action, now: Nanos) -> bool {
        may(&self.moved, action, now)
    }

    /// And to be shared out again.
    pub fn may_share(&self, action: &Action, now: Nanos) -> bool {
        self.may_move(action, now) && may(&self.shared, action, now)
    }

    /// This one is moved now.
    pub fn moved(&mut self, region: RegionId, now: Nanos) {
        self.moved.insert(region, Nanos(now.0 + SETTLE.0));
    }

    /// Forgets what has rested.
    pub fn forget_old(&mut self, now: Nanos) {
        self.moved.retain(|_, until| now < *until);
        self.shared.retain(|_, until| now < *until);
    }

    /// These are shared out.
    pub fn shared(&mut self, actions: &[Action], snapshot: &Snapshot) {
        if actions.is_empty() {
            return;
        }
        let processes = snapshot.tasks.iter().map(|task| task.process);
        let ages: BTreeMap<ProcessId, Nanos> = processes.zip(process_ages(snapshot)).collect();
        for action in actions {
            if let Action::MovePages { region, .. } = action {
                let age = ages.get(&region.process).copied().unwrap_or_default();
                self.shared.insert(*region, Nanos(snapshot.time.0 + age.0));
            }
        }
    }

    /// The program does something else now: other parts are equal.
    pub fn forget_shares(&mut self) {
        self.shared.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::{PROCESS, Scene};
    use numaherd_model::{Bytes, NodeId, Pages, Reason};

    #[test]
    fn a_region_is_shared_out_again_when_its_process_has_lived_twice_as_long() {
        let mut scene = Scene::two_by_four();
        scene.busy(2);
        scene.edit().tasks.iter_mut().for_each(|task| task.age = Nanos(3));
        scene.edit().tasks[1].age = Nanos(4);
        scene.edit().time = Nanos(100);
        let share = |start| Action::MovePages {
            region: RegionId { process: PROCESS, start },
            len: Bytes(2 << 20),
            to: NodeId(1),
            pages: Pages(512),
            reason: Reason::UsersOnAll { nodes: 2 },
        };
        let mut rest = Rest::default();
        rest.shared(&[share(0)], &scene.snapshot());
        assert!(!rest.may_share(&share(0), Nanos(103)) && rest.may_share(&share(0), Nanos(104)));
        assert!(rest.may_share(&share(1 << 21), Nanos(100)));
        rest.forget_shares();
        assert!(rest.may_share(&share(0), Nanos(100)));
    }
}
