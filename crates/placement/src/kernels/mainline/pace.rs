//! How often a task scans its process's memory, by what came of the last scans.

use numaherd_model::{Nanos, TaskId, View};

use super::super::scan::bounds;
use super::{Mainline, Task};

/// Slots of a scan period by which it changes, and those of 10 faults that keep it. Published.
const SLOTS: u64 = 10;
const THRESHOLD: u64 = 7;

impl Mainline {
    /// The next scan comes later while faults are local or private, sooner while they are not, as
    /// `update_task_scan_period` has it (6.12). Where there was nothing to tell by, or a page that was to come
    /// could not, it comes half as often, and what was counted is kept: so after a failure ever more seldom.
    /// Then nobody scans the process before that, either.
    pub(super) fn pace(&mut self, id: TaskId, shared: u64, private: u64, view: &dyn View) {
        let (min, longest) = bounds(view.resident(view.process_of(id)), self.periods);
        let group = self.tasks.get(&id).and_then(|task| self.group_of(task));
        let for_group = group.map_or(0, |group| group.stretch(longest));
        let max = Nanos(longest.0.max(for_group).max(min.0));
        let task = self.task(id, view);
        let [remote, local, failed] = task.locality;
        let period = task.period.0;
        let put_off = local + shared == 0 || failed > 0;
        let next = if put_off {
            period * 2
        } else {
            task.locality = [0; 3];
            let slot = period.div_ceil(SLOTS);
            let private = private * SLOTS / (private + shared).max(1);
            let local = local * SLOTS / (local + remote).max(1);
            let more = |ratio: u64| (ratio - THRESHOLD).max(1) * slot;
            if private >= THRESHOLD {
                period + more(private)
            } else if local >= THRESHOLD {
                period + more(local)
            } else {
                period.saturating_sub((THRESHOLD - local.max(private)) * slot)
            }
        };
        task.period = Nanos(next.clamp(min.0, max.0));
        if put_off {
            let until = Nanos(view.now().0 + task.period.0);
            self.clock.put_off(view.process_of(id), until);
        }
    }

    /// The scan period of a task that begins anew, as `task_scan_start` has it (6.12): longer by as much as its
    /// group's faults are shared, and by as many as share them.
    pub(super) fn first_period(&self, task: &Task, min: Nanos) -> Nanos {
        let stretched = self.group_of(task).map_or(0, |group| group.stretch(min));
        Nanos(min.0.max(stretched))
    }
}
