//! When a region that was shared out among several nodes may be shared out again.
//!
//! Parts do not stay equal: whoever comes first to a page has the kernel bring it there. Made equal again and
//! again, memory would move to and fro for ever, each time for no longer than until the next pass of the kernel's
//! scan. So a region is shared out again no sooner than when its process has lived twice as long: as often as not
//! it will not be needed any more (Lindy), and it is done a few times in all.
//!
//! Example: shared out 4 s after its process began, again after 8 s at the soonest, and then after 16.

use std::collections::BTreeMap;

use numaherd_model::{Action, Nanos, ProcessId, RegionId, Snapshot};

/// Regions that were shared out, each with when it may be again.
#[derive(Debug, Default)]
pub struct Shares(BTreeMap<RegionId, Nanos>);

impl Shares {
    /// Whether the action's region may be.
    pub fn may(&self, action: &Action, now: Nanos) -> bool {
        let Action::MovePages { region, .. } = action else { return true };
        self.0.get(region).is_none_or(|&until| now >= until)
    }

    /// These are.
    pub fn remember(&mut self, actions: &[Action], snapshot: &Snapshot) {
        let now = snapshot.time;
        self.0.retain(|_, until| now < *until);
        if actions.is_empty() {
            return;
        }
        let mut ages: BTreeMap<ProcessId, Nanos> = BTreeMap::new();
        for task in &snapshot.tasks {
            let age = ages.entry(task.process).or_default();
            *age = task.age.max(*age);
        }
        for action in actions {
            if let Action::MovePages { region, .. } = action {
                let age = ages.get(&region.process).copied().unwrap_or_default();
                self.0.insert(*region, Nanos(now.0 + age.0));
            }
        }
    }

    /// The program does something else now.
    pub fn forget(&mut self) {
        self.0.clear();
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
        let mut shares = Shares::default();
        shares.remember(&[share(0)], &scene.snapshot());
        assert!(!shares.may(&share(0), Nanos(103)) && shares.may(&share(0), Nanos(104)));
        assert!(shares.may(&share(1 << 21), Nanos(100)));
        shares.forget();
        assert!(shares.may(&share(0), Nanos(100)));
    }
}
