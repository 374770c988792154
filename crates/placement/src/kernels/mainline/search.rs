//! Where a task goes that is not where it would rather be: into a free CPU, or in exchange for a
//! task that loses less, as `task_numa_migrate` has it. Gains are per mille of faults.

use numaherd_model::{Cause, CpuId, TaskId, TaskMove, View};

use super::super::{cpus_of, index_of, load_of};
use super::{Mainline, Task};

/// Gain in per mille below which a task does not move. Published.
const SMALL_GAIN: i64 = 30;
/// Tasks by which a node may be ahead of one that runs hardly anything (NUMA_IMBALANCE_MIN), and the part of a
/// node's CPUs up to which that is so (imb_numa_nr where a node's CPUs share one cache). Published (6.0; before
/// that a quarter).
const PAIR: u64 = 2;
const HARDLY: u64 = 8;

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
            let cpus_from = cpus_of(view, search.from).count() as u64;
            may_move = uneven == 0 || tolerates(uneven, load_to + 1, cpus_from);
            if let Some(cpu) = idle.filter(|_| may_move) {
                search.offer(to, TaskMove::To(cpu), 0);
                return;
            }
        }
        for cpu in cpus_of(view, to) {
            if self.compare(search, to, cpu, (may_move, has_spare), view) {
                return;
            }
        }
    }

    /// Compares what moving to a CPU, or changing places with the task there, would gain, as
    /// `task_numa_compare` has it (6.12). Says whether the search of this node ends.
    ///
    /// A task that would rather be on our node is a better partner than one that would not, whatever either
    /// gains (since 5.7); where only an exchange is possible the first such one will do.
    fn compare(
        &self,
        search: &mut Search,
        to: usize,
        cpu: CpuId,
        (may_move, has_spare): (bool, bool),
        view: &dyn View,
    ) -> bool {
        let Some(task) = self.tasks.get(&search.id) else { return true };
        if !view.allowed(search.id, cpu) {
            return false;
        }
        let (alone, together) = self.gains(task, search.from, to, view);
        let grouped = task.group.is_some();
        let move_gain = if grouped { together } else { alone };
        let best = search.best.as_ref().map_or(0, |best| best.gain);
        let Some(there) = view.running(cpu) else {
            if may_move && move_gain >= best {
                search.offer(to, TaskMove::To(cpu), move_gain);
            }
            return false;
        };
        if !self.switches.swaps || !view.allowed(there, search.cpu) {
            return false;
        }
        let comes_home = |task: TaskId| {
            self.tasks.get(&task).is_some_and(|task| task.preferred == Some(search.from))
        };
        let there_comes_home = comes_home(there);
        let best_comes_home = search.partner().map(comes_home);
        if best_comes_home == Some(true) && !there_comes_home {
            return false;
        }
        let mut gain = move_gain;
        let other = self.tasks.get(&there);
        if let Some(other) = other {
            // What the other one gains by coming here.
            let (other_alone, other_together) = self.gains(other, to, search.from, view);
            if other.group == task.group {
                if has_spare {
                    return false;
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
            return false;
        }
        let preferable = there_comes_home && best_comes_home == Some(false);
        if preferable || gain >= SMALL_GAIN && gain > best + SMALL_GAIN / 2 {
            search.offer(to, TaskMove::Swap(there), gain);
            return !may_move && there_comes_home;
        }
        false
    }
}

/// Whether a node that then runs so many tasks may be ahead by so many: `adjust_numa_imbalance`, by the NUMA
/// domain of the CPU that the task leaves.
fn tolerates(uneven: u64, running: u64, cpus_from: u64) -> bool {
    running <= (cpus_from / HARDLY).max(1) && uneven <= PAIR
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

    /// The task to change places with, if that is the best so far.
    fn partner(&self) -> Option<TaskId> {
        match self.best.as_ref()?.what {
            TaskMove::Swap(other) => Some(other),
            TaskMove::To(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use numaherd_model::{Bytes, NodeId, Topology};

    use super::super::super::world::{World, id};
    use super::super::Switches;
    use super::*;

    /// Task 1 alone on node 0, and on node 1 tasks 2, 3 and 4. Of each: its faults on the two nodes, and
    /// the node that it prefers.
    fn among(tasks: [([u64; 2], Option<usize>); 4]) -> (Mainline, World) {
        let mut world = World::new([1, 2, 3, 4].map(Some));
        let nodes = [(NodeId(0), 1, Bytes(1 << 30)), (NodeId(1), 3, Bytes(1 << 30))];
        let distances = world.topology.distances;
        world.topology = Topology::numbered(nodes, distances);
        let mut mainline = Mainline::new(Switches::default());
        for (tid, (faults, preferred)) in (1..).zip(tasks) {
            let task = mainline.task(id(tid), &world);
            task.mem = faults.map(|faults| [0, faults]).into();
            task.preferred = preferred;
        }
        (mainline, world)
    }

    fn search() -> Search {
        Search { id: id(1), from: 0, cpu: CpuId(0), best: None }
    }

    /// The partner that is found on node 1, and what that gains.
    fn found(mainline: &Mainline, world: &World) -> Option<(TaskId, i64)> {
        let mut search = search();
        mainline.search(&mut search, 1, world);
        search.partner().zip(search.best.map(|best| best.gain))
    }

    const MOVER: ([u64; 2], Option<usize>) = ([0, 100], Some(1));

    #[test]
    fn an_eighth_of_a_nodes_cpus_may_run_a_pair_more() {
        assert!(tolerates(2, 2, 16) && !tolerates(2, 3, 16) && !tolerates(3, 2, 16));
        assert!(tolerates(2, 1, 4) && !tolerates(2, 2, 8), "one task at the least");
    }

    #[test]
    fn a_partner_that_would_rather_be_here_is_better_than_one_that_gains_more() {
        // 1000 of its own for task 1. Task 2 loses 200, task 3 loses 600: an eighth more for it. The node is
        // not searched on, though task 4 would gain most.
        let there = [([40, 60], None), ([20, 80], Some(0)), ([100, 0], Some(0))];
        let (mainline, world) = among([MOVER, there[0], there[1], there[2]]);
        assert_eq!(found(&mainline, &world), Some((id(3), 450)));
        // Nobody would: it is the gain that tells.
        let (mainline, world) = among([MOVER, there[0], (there[1].0, None), (there[2].0, None)]);
        assert_eq!(found(&mainline, &world), Some((id(4), 2000)));
    }

    #[test]
    fn a_partner_that_would_rather_stay_does_not_displace_one_that_comes_home() {
        let (mainline, world) =
            among([MOVER, ([60, 40], Some(0)), ([90, 10], None), ([95, 5], Some(0))]);
        let mut search = search();
        // A move is possible too, so the search goes on: 1000 + 200, and an eighth.
        let compare = |search: &mut Search, cpu| {
            mainline.compare(search, 1, CpuId(cpu), (true, false), &world);
            search.partner().zip(search.best.as_ref().map(|best| best.gain))
        };
        assert_eq!(compare(&mut search, 1), Some((id(2), 1350)));
        assert_eq!(compare(&mut search, 2), Some((id(2), 1350)), "though it is 1800 with task 3");
        // One more that comes home has to gain more, as ever: 1900, and an eighth.
        assert_eq!(compare(&mut search, 3), Some((id(4), 2137)));
    }
}
