//! AutoNUMA (Andrea Arcangeli, 2012): one scanner for all processes, faults that say where a
//! task's and a process's memory is, and tasks that go where they have more of theirs than whoever
//! runs there.
//!
//! A page comes when the same node asks for it twice; the first fault ever may bring it too. At
//! most 1.28 GB/s come to a node. The scanner rests for ten seconds between two passes, so a
//! program that starts waits for it: half a rest, on average. Load balancing first takes tasks that
//! belong on the destination. Weights are per mille.
//!
//! Two versions. In v28 a process's statistics follow its faults, and a task that asks for a page
//! of somebody else's node is taken to share falsely and moves no pages until the next pass. The
//! version of the slides (March 2012) counts where a process's memory lies, once a pass, knows no
//! false sharing, and leaves a task on its node while somebody runs there who belongs elsewhere.
//!
//! For each page it keeps 24 bytes (published) beyond the kernel's own, which fill a cache line: a
//! fault looks at two lines for a page. Not modelled: the kernel threads that moved pages in March,
//! whose work is done in the faults here; that a task then looked for a better CPU whenever it came
//! to run.

use std::collections::BTreeMap;

use numaherd_model::{
    Balancing, Bytes, Cause, CpuId, Nanos, NodeId, PageHandling, ProcessId, Pull, TaskId, TaskMove,
    Touch, View, Whose,
};

use super::limit::Limit;
use super::{cpus_of, index_of};

mod scanner;

use scanner::{STEP, Scanner};

/// Between two looks of a task for a better CPU. Published.
const PLACE_WAIT: Nanos = Nanos(100_000_000);

/// Which mechanisms are on.
#[derive(Clone, Copy, Debug)]
pub struct Switches {
    /// Huge pages move whole (the fix with which numa/core compared it), rather than split.
    pub moves_huge_whole: bool,
    /// At most 1.28 GB/s to a node.
    pub limits_moves: bool,
    /// Tasks move, not only pages.
    pub moves_tasks: bool,
    /// The version of March 2012, rather than v28.
    pub of_march: bool,
}

impl Default for Switches {
    fn default() -> Self {
        let moves_huge_whole = false;
        Switches { moves_huge_whole, limits_moves: true, moves_tasks: true, of_march: false }
    }
}

/// Its state.
#[derive(Debug)]
pub struct Autonuma {
    switches: Switches,
    scanner: Scanner,
    limit: Limit,
    tasks: BTreeMap<TaskId, Task>,
    processes: BTreeMap<ProcessId, Process>,
}

#[derive(Debug, Default)]
struct Task {
    faults: Faults,
    pass: u64,
    shares_falsely: bool,
    selected: Option<usize>,
    next_look: Nanos,
}

#[derive(Debug, Default)]
struct Process {
    /// Faults in v28, pages in March.
    pages: Faults,
    pass: u64,
}

/// Pages by node.
#[derive(Debug, Default)]
struct Faults(Vec<u64>);

impl Faults {
    fn add(&mut self, node: usize, pages: u64) {
        if self.0.len() <= node {
            self.0.resize(node + 1, 0);
        }
        self.0[node] += pages;
    }

    fn halve(&mut self) {
        self.0.iter_mut().for_each(|faults| *faults /= 2);
    }

    /// Per mille of all that are on this node; nothing while there are none.
    fn weight(&self, node: usize) -> Option<i64> {
        let all: u64 = self.0.iter().sum();
        let here = self.0.get(node).copied().unwrap_or(0);
        (all > 0).then(|| i64::try_from(here * 1000 / all).unwrap_or(1000))
    }
}

impl Autonuma {
    /// With the published constants.
    #[must_use]
    pub fn new(switches: Switches) -> Autonuma {
        Autonuma {
            switches,
            scanner: Scanner::resting(),
            limit: Limit::of_2012(),
            tasks: BTreeMap::new(),
            processes: BTreeMap::new(),
        }
    }

    /// The task's own weight on a node, and its process's.
    fn weights(&self, id: TaskId, process: ProcessId, node: usize) -> Option<(i64, i64)> {
        let own = self.tasks.get(&id)?.faults.weight(node)?;
        Some((own, self.processes.get(&process)?.pages.weight(node)?))
    }

    /// What the task would gain on a CPU: over whoever runs there, and over where it is.
    fn score(&self, id: TaskId, here: usize, node: usize, cpu: CpuId, view: &dyn View) -> i64 {
        let process = view.process_of(id);
        let (Some(there), Some(now)) =
            (self.weights(id, process, node), self.weights(id, process, here))
        else {
            return 0;
        };
        let (there, now, others) = match view.running(cpu) {
            // In March an idle CPU counts less than nothing, where both the task and its process say
            // so; later it is left to load balancing.
            None if !self.switches.of_march => return 0,
            None if there.0 > now.0 && there.1 > now.1 => (there.1, now.1, -1),
            None => return 0,
            Some(other) => {
                let of_other = view.process_of(other);
                let Some(weights) = self.weights(other, of_other, node) else { return 0 };
                // Among a process's own tasks the tasks' weights, else the processes'.
                if of_other == process {
                    (there.0, now.0, weights.0)
                } else {
                    (there.1, now.1, weights.1)
                }
            }
        };
        if there > others && there > now { (there - others) + (there - now) } else { 0 }
    }

    /// Which weights spoke for that CPU, as [`Autonuma::score`] compares them.
    fn cause(
        &self,
        id: TaskId,
        (here, node): (usize, usize),
        cpu: CpuId,
        view: &dyn View,
    ) -> Cause {
        let process = view.process_of(id);
        let of_task = view.running(cpu).is_some_and(|other| view.process_of(other) == process);
        let weight = |node: usize| {
            let (own, all) = self.weights(id, process, node).unwrap_or_default();
            if of_task { own } else { all }
        };
        let whose = match (of_task, self.switches.of_march) {
            (true, _) => Whose::Task,
            (false, true) => Whose::Pages,
            (false, false) => Whose::Process,
        };
        Cause::Weight { whose, there: weight(node), here: weight(here) }
    }

    fn selected(&self, id: TaskId) -> Option<usize> {
        self.tasks.get(&id).and_then(|task| task.selected)
    }

    /// Whether all that run on a node belong there, and no CPU idles.
    fn is_settled(&self, node: usize, view: &dyn View) -> bool {
        cpus_of(view, node)
            .all(|cpu| view.running(cpu).is_some_and(|task| self.selected(task) == Some(node)))
    }
}

impl Balancing for Autonuma {
    fn name(&self) -> &'static str {
        "autonuma"
    }

    fn pages(&self) -> PageHandling {
        let moves_huge_whole = self.switches.moves_huge_whole;
        PageHandling { one_fault_for_2m: true, moves_huge_whole, keeps_beside: true }
    }

    fn scan(&mut self, task: TaskId, view: &dyn View) -> Option<Bytes> {
        let now = view.now();
        self.scanner.is_due(view.process_of(task), now).then_some(STEP)
    }

    fn pass_ended(&mut self, id: ProcessId, view: &dyn View) {
        self.scanner.pass_ended(view.resident(id), view.now());
        let process = self.processes.entry(id).or_default();
        process.pass += 1;
        if self.switches.of_march {
            let on = |node: &numaherd_model::Node| view.resident_on(id, node.id).0;
            process.pages = Faults(view.topology().nodes.iter().map(on).collect());
        } else {
            process.pages.halve();
        }
    }

    fn nothing_to_scan(&mut self, _: ProcessId, view: &dyn View) {
        self.scanner.passed_over(view.now());
    }

    fn process_ended(&mut self, id: ProcessId, view: &dyn View) {
        self.scanner.forget(id, view.now());
        self.processes.remove(&id);
        self.tasks.retain(|task, _| view.process_of(*task) != id);
    }

    fn on_fault(&mut self, touch: &Touch, view: &dyn View) -> Option<(NodeId, Cause)> {
        let (node, home) = (index_of(view, touch.node), index_of(view, touch.home));
        let process = self.processes.entry(touch.process).or_default();
        let task = self.tasks.entry(touch.task).or_default();
        if task.pass != process.pass {
            task.pass = process.pass;
            task.faults.halve();
            task.shares_falsely = false;
        }
        let last = touch.last.map(|(_, cpu)| index_of(view, view.node_of(cpu)));
        let twice = last.is_none_or(|last| last == node);
        task.shares_falsely |= !twice && !self.switches.of_march;
        let wants = node != home && twice && !task.shares_falsely;
        let limited = self.switches.limits_moves;
        let moves = wants && (!limited || self.limit.admits(node, touch.pages, view.now()));
        let to = if moves { node } else { home };
        task.faults.add(to, touch.pages.0);
        if !self.switches.of_march {
            process.pages.add(to, touch.pages.0);
        }
        let why = if last.is_none() { Cause::FirstFault } else { Cause::Twice };
        moves.then_some((touch.node, why))
    }

    fn place(&mut self, id: TaskId, view: &dyn View) -> Option<(TaskMove, Cause)> {
        let now = view.now();
        let task = self.tasks.get_mut(&id)?;
        if now < task.next_look || !self.switches.moves_tasks {
            return None;
        }
        task.next_look = Nanos(now.0 + PLACE_WAIT.0);
        let here = index_of(view, view.node_of(view.cpu_of(id)?));
        self.weights(id, view.process_of(id), here)?;
        let mut best: Option<(i64, usize, CpuId)> = None;
        for node in (0..view.topology().nodes.len()).filter(|&node| node != here) {
            for cpu in cpus_of(view, node).filter(|&cpu| view.allowed(id, cpu)) {
                let score = self.score(id, here, node, cpu, view);
                if score > best.map_or(0, |(most, ..)| most) {
                    best = Some((score, node, cpu));
                }
            }
        }
        let selected = best.map_or(here, |(_, node, _)| node);
        self.tasks.entry(id).or_default().selected = Some(selected);
        let (_, node, cpu) = best?;
        let other = view.running(cpu).filter(|_| !self.switches.of_march);
        let what = other.map_or(TaskMove::To(cpu), TaskMove::Swap);
        Some((what, self.cause(id, (here, node), cpu, view)))
    }

    fn may_move(&self, id: TaskId, _: NodeId, to: NodeId, pull: Pull, view: &dyn View) -> bool {
        let Some(selected) = self.selected(id) else { return true };
        let belongs = selected == index_of(view, to);
        match pull {
            Pull::Wanted | Pull::Busy | Pull::Running => belongs,
            Pull::Idle | Pull::NewIdle => {
                belongs || !self.switches.of_march || self.is_settled(selected, view)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::{World, id};
    use super::*;

    /// Two nodes of two CPUs; 1 and 3 run where the other one's memory is.
    #[test]
    fn v28_exchanges_two_tasks_and_march_moves_one() {
        let mut world = World::new([Some(1), None, Some(3), None]);
        let mut moves = |of_march| {
            world.now = Nanos(0);
            let mut autonuma = Autonuma::new(Switches { of_march, ..Switches::default() });
            for (tid, home) in [(1, 1), (3, 0)] {
                autonuma.on_fault(&world.touch(tid, home, Some((4, 3 - tid))), &world);
            }
            // In March what a process has where counts from the end of a pass.
            autonuma.pass_ended(world.process_of(id(1)), &world);
            world.now = PLACE_WAIT;
            autonuma.place(id(1), &world)
        };
        // One process, so the tasks' own weights count, all of which are there. Of an idle CPU, where it lies.
        let why = Cause::Weight { whose: Whose::Task, there: 1000, here: 0 };
        assert_eq!(moves(false), Some((TaskMove::Swap(id(3)), why)));
        assert_eq!(moves(true), Some((TaskMove::To(CpuId(2)), why)));
    }

    #[test]
    fn the_scanner_does_not_stay_with_a_process_of_which_it_can_arm_nothing() {
        let mut world = World::new([Some(1), None, None, None]);
        let mut autonuma = Autonuma::new(Switches::default());
        let process = world.process_of(id(1));
        let scan = |autonuma: &mut Autonuma, world: &World| autonuma.scan(id(1), world);
        world.now = Nanos(5_000_000_000);
        assert_eq!(scan(&mut autonuma, &world), Some(STEP));
        autonuma.nothing_to_scan(process, &world);
        // It was the only one: a rest, and no pass over its memory that would age what is known of it.
        world.now = Nanos(5_200_000_000);
        assert_eq!(scan(&mut autonuma, &world), None);
        assert!(!autonuma.processes.contains_key(&process));
    }

    #[test]
    fn weights_are_per_mille_of_all_faults() {
        let mut faults = Faults::default();
        faults.add(0, 300);
        faults.add(1, 100);
        assert_eq!([0, 1, 2].map(|node| faults.weight(node)), [Some(750), Some(250), Some(0)]);
        assert_eq!(Faults::default().weight(0), None);
    }
}
