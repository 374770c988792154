//! Where a task goes that is not where it would rather be: into a free CPU, or in exchange for a
//! task that loses less, as `task_numa_migrate` has it. Gains are per mille of faults.

use numaherd_model::{Cause, CpuId, TaskId, TaskMove, View};

use super::super::{cpus_of, index_of, load_of};
use super::{Mainline, Task};

/// Gain in per mille below which a task does not move. Published.
const SMALL_GAIN: i64 = 30;

impl Mainline {
    /// Where the task goes that is not where it would rather be.
    pub(super) fn migrate(&mut self, id: TaskId, view: &dyn View) -> Option<(TaskMove, Cause)> {
        let task = self.tasks.get(&id)?;
        let preferred = task.preferred?;
        let cpu = view.cpu_of(id)?;
        let from = index_of(view, view.node_of(cpu));
        let active = self
            .group_of(task)
            .map_or(1, |group| group.active().iter().filter(|active| **active).count());
        let mut search = Search { id, from, cpu, best: None };
        self.search(&mut search, preferred, view);
        if search.best.is_none() || active > 1 {
            for node in 0..view.topology().nodes.len() {
                let (alone, together) = self.gains(task, from, node, view);
                if node != from && node != preferred && (alone >= 0 || together >= 0) {
                    self.search(&mut search, node, view);
                }
            }
        }
        let grouped = task.group.is_some();
        let to = search.best.as_ref().map_or(from, |best| best.node);
        let why = search.best.as_ref().map(|best| self.cause(task, from, preferred, best, view));
        if grouped && to != preferred {
            self.task(id, view).preferred = Some(to);
        }
        search.best.map(|best| best.what).zip(why)
    }

    /// Whose faults spoke for it: the group's, but among a group's own tasks each one's.
    fn cause(
        &self,
        task: &Task,
        from: usize,
        preferred: usize,
        best: &Best,
        view: &dyn View,
    ) -> Cause {
        let among_own = match best.what {
            TaskMove::Swap(other) => {
                self.tasks.get(&other).is_some_and(|other| other.group == task.group)
            }
            TaskMove::To(_) => false,
        };
        let of_group = task.group.is_some() && !among_own;
        let (alone, together) = self.gains(task, from, best.node, view);
        let more = if of_group { together } else { alone };
        if best.node == preferred {
            Cause::Preferred { more, of_group }
        } else {
            Cause::Better { more, of_group }
        }
    }

    /// Looks for a better CPU on a node.
    fn search(&self, search: &mut Search, to: usize, view: &dyn View) {
        let cpus = cpus_of(view, to).count() as u64;
        let (load_from, load_to) = (load_of(view, search.from), load_of(view, to));
        let has_spare = load_to < cpus;
        let idle =
            cpus_of(view, to).find(|&cpu| view.load(cpu) == 0 && view.allowed(search.id, cpu));
        let mut may_move = load_to + 1 < load_from || load_to < load_from;
        if has_spare {
            let uneven = (load_to + 1).saturating_sub(load_from.saturating_sub(1));
            // Few tasks may be uneven: a quarter of the node's CPUs. Published.
            let few = load_to < (cpus / 4).max(1);
            may_move = uneven == 0 || few && uneven <= 2;
            if let Some(cpu) = idle.filter(|_| may_move) {
                search.offer(to, TaskMove::To(cpu), 0);
                return;
            }
        }
        for cpu in cpus_of(view, to) {
            self.compare(search, to, cpu, (may_move, has_spare), view);
        }
    }

    /// Compares what moving to a CPU, or changing places with the task there, would gain.
    fn compare(
        &self,
        search: &mut Search,
        to: usize,
        cpu: CpuId,
        (may_move, has_spare): (bool, bool),
        view: &dyn View,
    ) {
        let Some(task) = self.tasks.get(&search.id) else { return };
        if !view.allowed(search.id, cpu) {
            return;
        }
        let (alone, together) = self.gains(task, search.from, to, view);
        let grouped = task.group.is_some();
        let move_gain = if grouped { together } else { alone };
        let best = search.best.as_ref().map_or(0, |best| best.gain);
        let Some(there) = view.running(cpu) else {
            if may_move && move_gain >= best {
                search.offer(to, TaskMove::To(cpu), move_gain);
            }
            return;
        };
        if !self.switches.swaps || !view.allowed(there, search.cpu) {
            return;
        }
        let mut gain = move_gain;
        let other = self.tasks.get(&there);
        if let Some(other) = other {
            // What the other one gains by coming here.
            let (other_alone, other_together) = self.gains(other, to, search.from, view);
            if other.group == task.group {
                if has_spare {
                    return;
                }
                gain = alone + other_alone;
                gain -= if grouped { gain / 16 } else { 0 };
            } else if grouped && other.group.is_some() {
                gain += other_together;
            } else {
                gain += other_alone;
            }
            gain -= if other.preferred == Some(to) { gain / 16 } else { 0 };
            gain += if other.preferred == Some(search.from) { gain / 8 } else { 0 };
        }
        if may_move && move_gain > gain && move_gain > best {
            search.offer(to, TaskMove::To(cpu), move_gain);
        } else if gain >= SMALL_GAIN && gain > best + SMALL_GAIN / 2 {
            search.offer(to, TaskMove::Swap(there), gain);
        }
    }
}

/// A search for a better CPU.
struct Search {
    id: TaskId,
    from: usize,
    cpu: CpuId,
    best: Option<Best>,
}

struct Best {
    node: usize,
    what: TaskMove,
    gain: i64,
}

impl Search {
    fn offer(&mut self, node: usize, what: TaskMove, gain: i64) {
        self.best = Some(Best { node, what, gain });
    }
}
