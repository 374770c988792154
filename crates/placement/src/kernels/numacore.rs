//! numa/core (Ingo Molnar, November 2012), v17 and v18: tasks are private or shared, and shared
//! ones that work together are buddies.
//!
//! The source of a fault is told by CPU: a fault is private if the page was last touched on the
//! same CPU; a page that never faulted counts as shared. Until a task was placed for the first time,
//! its pages stay; one without faults is then taken for shared (v18 places it within a second, before
//! anything is scanned). While a task is placed it is still taken for what it was, by itself too; what
//! it has turned into counts from then on. A pass over memory ends when the next one begins, so that
//! the faults of its last scan belong to it.
//!
//! A page comes when the same node asks for it twice. Interleaving over the nodes where a shared
//! task's buddies run is for pages that it allocates later: as posted, a fault works that node out and
//! then takes the one of the two samples (patches 15 and 28 of v17; found by its author on 7 December,
//! "Fix NUMA affinity tracking logic"). Loads are 1024 for each runnable task. Who runs is looked at
//! as it is now, without locks, by the tick of the task that is to move; v18's placement is smeared
//! over CPUs, one after the other in their order.
//!
//! | module | owns |
//! |---|---|
//! | [`groups`] | who is whose buddy, and how large a group is on a node |
//! | [`directed`] | v18: groups are spread over idle nodes and compressed onto few, by flips |
//! | [`ideal`] | v17: each task looks for a CPU among its buddies |
//!
//! Worked example (v18): four buddies on two nodes of two CPUs, with four tasks of another group:
//! the groups are equal, so each of a pair takes the CPU of one of the others (a flip), and after
//! two flips each group has a node.
//!
//! Not modelled: v17's statistics of running tasks in the load balancer; only that it does not take
//! a task from its ideal node. Flips always come off here; in v18 not where the task that flips had
//! gone to sleep before the stopper ran (its author, 7 December, "Implement wake-cpu migration
//! support").

use std::collections::BTreeMap;

use numaherd_model::{
    Balancing, Bytes, Cause, CpuId, Nanos, NodeId, PageHandling, ProcessId, Pull, TaskId, TaskMove,
    Touch, View,
};

use super::index_of;
use super::limit::Limit;

mod directed;
mod groups;
mod ideal;
#[cfg(test)]
mod tests;

/// Before the first scan, and the bounds of the period in CPU time. Published.
const DELAY: Nanos = Nanos(1_000_000_000);
const SHORTEST: Nanos = Nanos(100_000_000);
const LONGEST: Nanos = Nanos(1_600_000_000);
/// A process's memory is scanned no more often. Published: twice the shortest period.
const APART: Nanos = Nanos(200_000_000);
/// Armed in a scan: v17, and v18 of a task with and without full convergence. Published.
const FIXED_BYTES: u64 = 256 << 20;
const LEAST_BYTES: u64 = 32 << 20;
const MOST_BYTES: u64 = 512 << 20;
/// v18's placement runs in every second at the least, for all tasks in the same order. Published.
const PLACE_WAIT: Nanos = Nanos(1_000_000_000);
/// Of 1024: from here on a task has converged. Published.
const CONVERGED: u64 = 921;
/// Faults from which a buddy counts. Published.
const BUDDY_FAULTS: u64 = 1000;
/// Weight of the past in the averages of faults. Published.
const PAST_V17: u64 = 7;
const PAST_V18: u64 = 15;

/// Which mechanisms are on.
#[derive(Clone, Copy, Debug)]
pub struct Switches {
    /// Groups are led to where they converge (v18), rather than tasks to an ideal CPU (v17).
    pub directed: bool,
    /// A task takes the CPU of another, which gets its own.
    pub flips: bool,
    /// Groups of buddies are brought together.
    pub compresses: bool,
    /// One fault handles all small pages of 2 MiB.
    pub one_fault_for_2m: bool,
    /// The better a task has converged, the less is scanned, and it stays on its node.
    pub tracks_convergence: bool,
    /// At most 1.28 GB/s to a node, as balancenuma has it. Neither version had it.
    pub limits_moves: bool,
}

impl Switches {
    /// v18.
    #[must_use]
    pub fn v18() -> Switches {
        Switches {
            directed: true,
            flips: true,
            compresses: true,
            one_fault_for_2m: true,
            tracks_convergence: true,
            limits_moves: false,
        }
    }

    /// v17.
    #[must_use]
    pub fn v17() -> Switches {
        Switches {
            directed: false,
            flips: false,
            compresses: false,
            one_fault_for_2m: false,
            tracks_convergence: false,
            limits_moves: false,
        }
    }
}

/// Its state.
#[derive(Debug)]
pub struct Numacore {
    switches: Switches,
    limit: Limit,
    processes: BTreeMap<ProcessId, Process>,
    tasks: BTreeMap<TaskId, Task>,
}

#[derive(Debug, Default)]
struct Process {
    pass: u64,
    next_scan: Nanos,
    /// The last scan came to the end of memory: the next one begins a new pass.
    at_end: bool,
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
    /// The CPU and the node where it would rather be, and the CPU that v17 wants to see twice.
    ideal: Option<CpuId>,
    ideal_node: Option<usize>,
    ideal_candidate: Option<CpuId>,
    period: Nanos,
    /// CPU time at the last scan.
    scanned: Nanos,
    pass: u64,
    /// The second of its last placement. Seconds are the clock's: a program starts amid one.
    placed_in: u64,
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
            ideal: None,
            ideal_node: None,
            ideal_candidate: None,
            period: DELAY,
            scanned: Nanos(0),
            pass: 0,
            placed_in: 0,
        }
    }

    /// Takes the faults of a pass into the averages.
    fn average(&mut self, past: u64) {
        for (old, new) in self.faults.iter_mut().zip(&mut self.new) {
            for kind in 0..2 {
                old[kind] = (past * old[kind] + new[kind]) / (past + 1);
            }
            *new = [0, 0];
        }
        let all: u64 = self.faults.iter().flatten().sum();
        let of = |node: usize| self.faults[node][0] + self.faults[node][1];
        let best = (0..self.faults.len()).max_by_key(|&node| (of(node), usize::MAX - node));
        if let Some(best) = best.filter(|_| all > 0) {
            self.strength = 1024 * of(best) / all;
            self.converged_on = (self.strength >= CONVERGED).then_some(best);
        }
        if self.candidate_faults > self.buddy_faults {
            (self.buddy, self.buddy_faults) = (self.candidate, self.candidate_faults);
        } else {
            self.buddy_faults = (3 * self.buddy_faults + self.candidate_faults) / 4;
        }
        (self.candidate, self.candidate_faults) = (None, 0);
    }
}

/// Shared or private, with hysteresis.
fn kind_of(before: Kind, faults: &[[u64; 2]]) -> Kind {
    let total = |kind: usize| faults.iter().map(|faults| faults[kind]).sum::<u64>();
    let (shared, private) = (total(0), total(1));
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
        let (processes, tasks) = (BTreeMap::new(), BTreeMap::new());
        Numacore { switches, limit: Limit::of_2012(), processes, tasks }
    }

    fn task(&mut self, id: TaskId, view: &dyn View) -> &mut Task {
        self.tasks.entry(id).or_insert_with(|| Task::new(view.topology().nodes.len()))
    }

    fn kind(&self, id: TaskId) -> Kind {
        self.tasks.get(&id).map_or(Kind::Unknown, |task| task.kind)
    }

    /// The node where the page of a fault belongs.
    fn target(&self, touch: &Touch, here: usize, home: usize, view: &dyn View) -> usize {
        let Some(task) = self.tasks.get(&touch.task) else { return home };
        let last = touch.last.map(|(_, cpu)| index_of(view, view.node_of(cpu)));
        if task.kind != Kind::Unknown && last == Some(here) { here } else { home }
    }
}

impl Balancing for Numacore {
    fn name(&self) -> &'static str {
        if self.switches.directed { "numacore-v18" } else { "numacore-v17" }
    }

    fn pages(&self) -> PageHandling {
        let one_fault_for_2m = self.switches.one_fault_for_2m;
        PageHandling { one_fault_for_2m, moves_huge_whole: true, keeps_beside: false }
    }

    fn ticks_in_order(&self) -> bool {
        self.switches.directed
    }

    fn scan(&mut self, id: TaskId, view: &dyn View) -> Option<Bytes> {
        let (now, ran) = (view.now(), view.cpu_time(id));
        let tracks = self.switches.tracks_convergence;
        let task = self.task(id, view);
        if ran.since(task.scanned) < task.period {
            return None;
        }
        // A scan that is due, made or not, makes the next one due soon.
        (task.scanned, task.period) = (ran, SHORTEST);
        let adapted = LEAST_BYTES + (MOST_BYTES - LEAST_BYTES) * (1024 - task.strength) / 1024;
        let process = self.processes.entry(view.process_of(id)).or_default();
        if now < process.next_scan {
            return None;
        }
        process.next_scan = Nanos(now.0 + APART.0);
        process.pass += u64::from(std::mem::take(&mut process.at_end));
        Some(Bytes(if tracks { adapted } else { FIXED_BYTES }))
    }

    fn pass_ended(&mut self, process: ProcessId, _: &dyn View) {
        self.processes.entry(process).or_default().at_end = true;
    }

    fn on_fault(&mut self, touch: &Touch, view: &dyn View) -> Option<(NodeId, Cause)> {
        let (here, home) = (index_of(view, touch.node), index_of(view, touch.home));
        let private = touch.last.is_some_and(|(_, cpu)| cpu == touch.cpu);
        let mut to = self.target(touch, here, home, view);
        let limited = self.switches.limits_moves && to != home;
        if limited && !self.limit.admits(to, touch.pages, view.now()) {
            to = home;
        }
        self.task(touch.task, view).new[to][usize::from(private)] += touch.pages.0;
        if to == here {
            self.note_buddy(touch, view);
        }
        (to != home).then(|| (view.topology().nodes[to].id, Cause::Twice))
    }

    fn place(&mut self, id: TaskId, view: &dyn View) -> Option<(TaskMove, Cause)> {
        let now = view.now();
        let pass = self.processes.get(&view.process_of(id)).map_or(0, |process| process.pass);
        let directed = self.switches.directed;
        let task = self.tasks.get_mut(&id)?;
        let second = (now.0 + PLACE_WAIT.0 / 2) / PLACE_WAIT.0;
        if task.pass == pass && (!directed || task.placed_in == second) {
            return None;
        }
        (task.pass, task.placed_in) = (pass, second);
        let before = task.kind;
        task.average(if directed { PAST_V18 } else { PAST_V17 });
        let kind = kind_of(before, &task.faults);
        let cpu = view.cpu_of(id)?;
        let wanted = if directed {
            self.directed(id, kind, cpu, view)
        } else {
            self.ideal(id, kind, cpu, view)
        };
        let to = match wanted {
            Some((TaskMove::To(to), _)) => to,
            Some((TaskMove::Swap(other), _)) => view.cpu_of(other).unwrap_or(cpu),
            // v17 wants a CPU before it goes there.
            None => self.task(id, view).ideal_candidate.unwrap_or(cpu),
        };
        let node = index_of(view, view.node_of(to));
        let task = self.task(id, view);
        // Until now the others, and it itself, took it for what it was.
        task.kind = kind;
        let changed = kind != before || task.ideal_node != Some(node);
        (task.ideal, task.ideal_node) = (Some(to), Some(node));
        let longer = Nanos((task.period.0 * 2).min(LONGEST.0));
        task.period = if changed { SHORTEST } else { longer };
        wanted
    }

    fn may_move(&self, id: TaskId, _: NodeId, to: NodeId, _: Pull, view: &dyn View) -> bool {
        let Some(task) = self.tasks.get(&id) else { return true };
        let stays_on =
            if self.switches.tracks_convergence { task.converged_on } else { task.ideal_node };
        stays_on.is_none_or(|node| node == index_of(view, to))
    }
}
