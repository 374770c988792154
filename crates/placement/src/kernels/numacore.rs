//! numa/core v18 (Ingo Molnar, November 2012): tasks are private or shared, shared ones that work
//! together are buddies, and groups of buddies are spread over idle nodes and compressed onto few.
//!
//! The source of a fault is told by CPU: a fault is private if the page was last touched on the
//! same CPU. A shared task's pages are interleaved over the nodes that hold at least three of its
//! buddies; a private task's come to it. Loads are 1024 for each runnable task. Who runs is looked
//! at as it is now, without locks, by the tick of the task that is to move.
//!
//! Worked example: four buddies on two nodes of two CPUs, with four tasks of another group: the
//! groups are equal, so each of a pair takes the CPU of one of the others (a flip), and after two
//! flips each group has a node.
//!
//! Not modelled: v17, whose placement was statistical.

use std::collections::BTreeMap;

use numaherd_model::{
    Balancing, Bytes, CpuId, Nanos, NodeId, PageHandling, PageVerdict, ProcessId, TaskId, TaskMove,
    Touch, View,
};

use super::scan::ScanClock;
use super::{cpus_of, index_of, load_of};

/// Before the first scan, and the bounds of the period in CPU time. Published.
const DELAY: Nanos = Nanos(1_000_000_000);
const SHORTEST: Nanos = Nanos(100_000_000);
const LONGEST: Nanos = Nanos(1_600_000_000);
/// Armed in a scan of a task without and with full convergence. Published.
const LEAST_BYTES: u64 = 32 << 20;
const MOST_BYTES: u64 = 512 << 20;
/// Placement runs once a second at the least. Published.
const PLACE_WAIT: Nanos = Nanos(1_000_000_000);
/// Of 1024: from here on a task has converged. Published.
const CONVERGED: u64 = 921;
/// Faults from which a buddy counts. Published.
const BUDDY_FAULTS: u64 = 1000;
/// Buddies that make a node one of those that memory is interleaved over. Published.
const NODE_BUDDIES: usize = 3;
/// What one task weighs, and how far loads may differ. Published.
const TASK_LOAD: u64 = 1024;
const OVERLOAD: u64 = 512;
const UNEVEN: u64 = 1536;

/// Which mechanisms are on.
#[derive(Clone, Copy, Debug)]
pub struct Switches {
    /// A task takes the CPU of another, which gets its own.
    pub flips: bool,
    /// Groups of buddies are brought together.
    pub compresses: bool,
    /// One fault handles all small pages of 2 MiB.
    pub one_fault_for_2m: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Switches { flips: true, compresses: true, one_fault_for_2m: true }
    }
}

/// Its state.
#[derive(Debug)]
pub struct Numacore {
    switches: Switches,
    clock: ScanClock,
    passes: BTreeMap<ProcessId, u64>,
    tasks: BTreeMap<TaskId, Task>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Unknown,
    Shared,
    Private,
}

#[derive(Debug)]
struct Task {
    /// Average faults by node: shared, private; and those of this pass.
    faults: Vec<[u64; 2]>,
    new: Vec<[u64; 2]>,
    kind: Kind,
    buddy: Option<TaskId>,
    buddy_faults: u64,
    candidate: Option<TaskId>,
    candidate_faults: u64,
    strength: u64,
    converged_on: Option<usize>,
    period: Nanos,
    pass: u64,
    placed_at: Nanos,
}

impl Task {
    fn new(nodes: usize) -> Task {
        Task {
            faults: vec![[0, 0]; nodes],
            new: vec![[0, 0]; nodes],
            kind: Kind::Unknown,
            buddy: None,
            buddy_faults: 0,
            candidate: None,
            candidate_faults: 0,
            strength: 0,
            converged_on: None,
            period: SHORTEST,
            pass: 0,
            placed_at: Nanos(0),
        }
    }

    /// Takes the faults of a pass into the averages.
    fn average(&mut self) {
        for (old, new) in self.faults.iter_mut().zip(&mut self.new) {
            for kind in 0..2 {
                old[kind] = (15 * old[kind] + new[kind]) / 16;
            }
            *new = [0, 0];
        }
        let total = |kind: usize| self.faults.iter().map(|faults| faults[kind]).sum::<u64>();
        let (shared, private) = (total(0), total(1));
        self.kind = kind_of(self.kind, shared, private);
        let of = |node: usize| self.faults[node][0] + self.faults[node][1];
        let best = (0..self.faults.len()).max_by_key(|&node| (of(node), usize::MAX - node));
        self.strength = best.map_or(0, |best| 1024 * of(best) / (shared + private).max(1));
        self.converged_on = best.filter(|_| self.strength >= CONVERGED);
        if self.candidate_faults > self.buddy_faults {
            (self.buddy, self.buddy_faults) = (self.candidate, self.candidate_faults);
        } else {
            self.buddy_faults = (3 * self.buddy_faults + self.candidate_faults) / 4;
        }
        (self.candidate, self.candidate_faults) = (None, 0);
    }
}

/// Shared or private, with hysteresis.
fn kind_of(before: Kind, shared: u64, private: u64) -> Kind {
    let is_shared = match before {
        Kind::Unknown => shared >= private,
        Kind::Private => shared >= 2 * private,
        Kind::Shared => 2 * shared > private,
    };
    if is_shared { Kind::Shared } else { Kind::Private }
}

impl Numacore {
    /// With the published constants.
    #[must_use]
    pub fn new(switches: Switches) -> Numacore {
        let (passes, tasks) = (BTreeMap::new(), BTreeMap::new());
        Numacore { switches, clock: ScanClock::default(), passes, tasks }
    }

    fn task(&mut self, id: TaskId, view: &dyn View) -> &mut Task {
        self.tasks.entry(id).or_insert_with(|| Task::new(view.topology().nodes.len()))
    }

    fn are_buddies(&self, a: TaskId, b: TaskId, view: &dyn View) -> bool {
        if a == b {
            return true;
        }
        let (Some(first), Some(second)) = (self.tasks.get(&a), self.tasks.get(&b)) else {
            return false;
        };
        let strong = |task: &Task| task.buddy.filter(|_| task.buddy_faults > BUDDY_FAULTS);
        if let (Some(of_first), Some(of_second)) = (strong(first), strong(second))
            && (of_first == b || of_second == a || of_first == of_second)
        {
            return true;
        }
        let shared = first.kind == Kind::Shared && second.kind == Kind::Shared;
        shared && view.process_of(a) == view.process_of(b)
    }

    /// Tasks of a node that run now and are buddies of this one.
    fn buddies_on(&self, id: TaskId, node: usize, view: &dyn View) -> usize {
        let running = cpus_of(view, node).filter_map(|cpu| view.running(cpu));
        running.filter(|&other| self.are_buddies(id, other, view)).count()
    }

    /// A group's size on a node: an idle CPU or a private task is one by itself.
    fn group_size(&self, there: Option<TaskId>, node: usize, view: &dyn View) -> usize {
        let Some(there) = there else { return 1 };
        let shared = self.tasks.get(&there).is_some_and(|task| task.kind == Kind::Shared);
        if shared { self.buddies_on(there, node, view).max(1) } else { 1 }
    }

    /// Records who else works on the page.
    fn note_buddy(&mut self, touch: &Touch, view: &dyn View) {
        let Some((_, last_cpu)) = touch.last else { return };
        if last_cpu == touch.cpu || touch.home != touch.node {
            return;
        }
        let Some(other) = view.running(last_cpu).filter(|other| *other < touch.task) else {
            return;
        };
        let twice = if view.process_of(other) == touch.process { 2 } else { 1 };
        let task = self.task(touch.task, view);
        if task.candidate.is_none_or(|candidate| candidate < other) {
            (task.candidate, task.candidate_faults) = (Some(other), 0);
        }
        if task.candidate == Some(other) {
            task.candidate_faults += twice * touch.pages.0;
        }
    }

    /// Nodes over which a shared task's memory is interleaved.
    fn memory_nodes(&self, id: TaskId, view: &dyn View) -> Vec<usize> {
        let nodes = 0..view.topology().nodes.len();
        nodes.filter(|&node| self.buddies_on(id, node, view) >= NODE_BUDDIES).collect()
    }

    /// Where a shared task goes.
    fn converge(&self, id: TaskId, here: usize, cpu: CpuId, view: &dyn View) -> Option<TaskMove> {
        if let Some(to) = self.spread(id, here, view) {
            return Some(TaskMove::To(to));
        }
        if self.switches.compresses
            && let Some(to) = self.compress(id, here, view)
        {
            return Some(to);
        }
        let nodes = view.topology().nodes.len();
        let capacity = TASK_LOAD * cpus_of(view, here).count() as u64;
        if TASK_LOAD * load_of(view, here) > capacity + OVERLOAD {
            let least = (0..nodes).min_by_key(|&node| (load_of(view, node), node))?;
            let idle = self.idlest(id, least, view)?;
            return (TASK_LOAD * u64::from(view.load(idle)) <= OVERLOAD)
                .then_some(TaskMove::To(idle));
        }
        let idle = self.idlest(id, here, view)?;
        let uneven = u64::from(view.load(cpu).saturating_sub(view.load(idle))) * TASK_LOAD;
        (uneven >= UNEVEN).then_some(TaskMove::To(idle))
    }

    fn idlest(&self, id: TaskId, node: usize, view: &dyn View) -> Option<CpuId> {
        let allowed = cpus_of(view, node).filter(|&cpu| view.allowed(id, cpu));
        allowed.min_by_key(|&cpu| (view.load(cpu), cpu))
    }

    /// The smallest group of a node goes where most CPUs idle, if that evens the loads.
    fn spread(&self, id: TaskId, here: usize, view: &dyn View) -> Option<CpuId> {
        let idle = |node: usize| cpus_of(view, node).filter(|&cpu| view.load(cpu) == 0).count();
        let nodes = (0..view.topology().nodes.len()).filter(|&node| node != here);
        let to = nodes.max_by_key(|&node| (idle(node), usize::MAX - node))?;
        if idle(to) == 0 {
            return None;
        }
        let ours = self.group_size(Some(id), here, view);
        let others = cpus_of(view, here).filter_map(|cpu| view.running(cpu));
        if others.into_iter().any(|other| self.group_size(Some(other), here, view) < ours) {
            return None;
        }
        let load = |node: usize| i128::from(TASK_LOAD * load_of(view, node));
        let group = i128::from(TASK_LOAD) * ours as i128;
        let before = load(here) - load(to);
        let after = (load(here) - group) - (load(to) + group);
        let capacity = i128::from(TASK_LOAD) * cpus_of(view, to).count() as i128;
        let evens = after.abs() + i128::from(TASK_LOAD) <= before.abs();
        if evens && load(to) + group <= capacity { self.idlest(id, to, view) } else { None }
    }

    /// To the node with most buddies, into the CPU of a group no larger than ours.
    fn compress(&self, id: TaskId, here: usize, view: &dyn View) -> Option<TaskMove> {
        let room = |node: &usize| {
            *node == here || self.buddies_on(id, *node, view) < cpus_of(view, *node).count()
        };
        let nodes = (0..view.topology().nodes.len()).filter(room);
        let most = |&node: &usize| (self.buddies_on(id, node, view), node == here);
        let to = nodes.max_by_key(most).filter(|&node| node != here)?;
        let cpus = cpus_of(view, to).filter(|&cpu| view.allowed(id, cpu));
        let free =
            |cpu: CpuId| view.running(cpu).is_none_or(|other| !self.are_buddies(id, other, view));
        let size = |&cpu: &CpuId| (self.group_size(view.running(cpu), to, view), cpu);
        let target = cpus.filter(|&cpu| free(cpu)).min_by_key(size)?;
        let ours = self.group_size(Some(id), here, view);
        if self.group_size(view.running(target), to, view) > ours {
            return None;
        }
        match view.running(target) {
            Some(other) if self.switches.flips => Some(TaskMove::Swap(other)),
            _ => Some(TaskMove::To(target)),
        }
    }

    /// A private task only evens loads.
    fn even_out(&self, id: TaskId, here: usize, view: &dyn View) -> Option<TaskMove> {
        let nodes = 0..view.topology().nodes.len();
        let least = nodes.min_by_key(|&node| (load_of(view, node), node))?;
        let uneven = (load_of(view, here).saturating_sub(load_of(view, least))) * TASK_LOAD;
        let idle = self.idlest(id, least, view).filter(|&cpu| view.load(cpu) == 0);
        idle.filter(|_| uneven >= UNEVEN).map(TaskMove::To)
    }
}

impl Balancing for Numacore {
    fn name(&self) -> &'static str {
        "numacore-v18"
    }

    fn pages(&self) -> PageHandling {
        let one_fault_for_2m = self.switches.one_fault_for_2m;
        PageHandling { one_fault_for_2m, moves_huge_whole: true }
    }

    fn scan(&mut self, id: TaskId, view: &dyn View) -> Option<Bytes> {
        let task = self.task(id, view);
        let (period, strength) = (task.period, task.strength);
        let bytes = LEAST_BYTES + (MOST_BYTES - LEAST_BYTES) * (1024 - strength) / 1024;
        self.clock.is_due(id, view, DELAY, period).then_some(Bytes(bytes))
    }

    fn pass_ended(&mut self, process: ProcessId, _: &dyn View) {
        *self.passes.entry(process).or_default() += 1;
    }

    fn on_fault(&mut self, touch: &Touch, view: &dyn View) -> PageVerdict {
        let private = touch.last.is_none_or(|(_, cpu)| cpu == touch.cpu);
        self.note_buddy(touch, view);
        let kind = self.task(touch.task, view).kind;
        let here = index_of(view, touch.node);
        let mut to = here;
        if kind == Kind::Shared {
            let nodes = self.memory_nodes(touch.task, view);
            if !nodes.is_empty() {
                to = nodes[(touch.page % nodes.len() as u64) as usize];
            }
        }
        self.task(touch.task, view).new[to][usize::from(private)] += touch.pages.0;
        let to = view.topology().nodes[to].id;
        if to == touch.home { PageVerdict::Stay } else { PageVerdict::MoveTo(to) }
    }

    fn place(&mut self, id: TaskId, view: &dyn View) -> Option<TaskMove> {
        let (now, process) = (view.now(), view.process_of(id));
        let pass = self.passes.get(&process).copied().unwrap_or(0);
        let task = self.tasks.get_mut(&id)?;
        let new_pass = task.pass != pass;
        if !new_pass && now.since(task.placed_at) < PLACE_WAIT {
            return None;
        }
        (task.pass, task.placed_at) = (pass, now);
        if new_pass {
            task.average();
        }
        let kind = task.kind;
        let cpu = view.cpu_of(id)?;
        let here = index_of(view, view.node_of(cpu));
        let wanted = match kind {
            Kind::Unknown => None,
            Kind::Shared => self.converge(id, here, cpu, view),
            Kind::Private => self.even_out(id, here, view),
        };
        let task = self.task(id, view);
        let longer = Nanos((task.period.0 * 2).min(LONGEST.0));
        task.period = if wanted.is_some() { SHORTEST } else { longer };
        wanted
    }

    fn may_move(&self, id: TaskId, from: NodeId, to: NodeId, view: &dyn View) -> bool {
        let converged = self.tasks.get(&id).and_then(|task| task.converged_on);
        converged != Some(index_of(view, from)) || converged == Some(index_of(view, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_shared_have_hysteresis() {
        assert_eq!(kind_of(Kind::Unknown, 5, 5), Kind::Shared);
        assert_eq!(kind_of(Kind::Private, 9, 5), Kind::Private);
        assert_eq!(kind_of(Kind::Private, 10, 5), Kind::Shared);
        assert_eq!(kind_of(Kind::Shared, 3, 5), Kind::Shared);
        assert_eq!(kind_of(Kind::Shared, 2, 5), Kind::Private);
    }

    #[test]
    fn averages_follow_and_a_stronger_buddy_takes_over() {
        let mut task = Task::new(2);
        task.new = vec![[0, 1600], [0, 0]];
        let buddy = TaskId { tid: 1, start: 1 };
        (task.candidate, task.candidate_faults) = (Some(buddy), 400);
        task.average();
        // (15 × 0 + 1600) / 16.
        assert_eq!((task.faults[0], task.kind, task.strength), ([0, 100], Kind::Private, 1024));
        assert_eq!((task.converged_on, task.buddy, task.buddy_faults), (Some(0), Some(buddy), 400));
        task.average();
        // (15 × 100 + 0) / 16, and 3 × 400 / 4.
        assert_eq!((task.faults[0][1], task.buddy_faults), (93, 300));
    }
}
