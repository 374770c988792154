//! Linux 6.x: automatic NUMA balancing with groups of tasks that share pages.
//!
//! A fault tells a task where its memory is, and whether another task touched the page before
//! (shared) or not (private). Averages of these faults say where a task, or its group, would
//! rather be; a task goes there into a free CPU or in exchange for one that loses less, pages come
//! when the same node asks for them twice. Shares are per mille, faults in pages.
//!
//! Since 6.7 a thread's scan skips mappings that this thread did not touch lately; once nothing
//! else is left it is made to do one of these, one in each scan, and only when all are done does
//! the process's memory come round again. Two passes are made before that begins. So the third
//! pass over a process's data is followed by some thirty scans of stacks and libraries.
//!
//! | module | owns |
//! |---|---|
//! | [`group`] | faults of tasks that share pages |
//! | [`pace`] | how often a task scans |
//! | [`search`] | where a task goes |
//!
//! Not modelled: the limit of a scan's own CPU time, which threads touch which mapping, tiering,
//! weights (nice levels). Behind a backplane the search goes to the preferred node alone
//! and then to each other one, and not first to the group of nodes that holds most.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use numaherd_model::{
    Balancing, Bytes, Cause, CpuId, Nanos, NodeId, PageHandling, ProcessId, Pull, ScanPeriods,
    TaskId, TaskMove, Touch, View,
};

use super::index_of;
use super::scan::{DEFAULT, ScanClock, bounds};

mod group;
mod pace;
mod search;

use group::{Faults, Group, Links, add, both, preferred, weight};

/// Passes in which every mapping is scanned, touched or not. Published (6.4).
const WHOLE_PASSES: u64 = 2;
/// Mappings of a process, and of each of its threads, that another thread does not touch: libraries'
/// data, stacks, heaps. Measured with the kernel's `sched_skip_vma_numa` on `numaherd bench` of four
/// threads, kernel 6.12: 25.
const OTHER_MAPPINGS: u64 = 19;
const THREAD_MAPPINGS: u64 = 2;

/// Which mechanisms are on.
#[derive(Clone, Copy, Debug)]
pub struct Switches {
    /// Tasks that share pages are one group.
    pub groups: bool,
    /// Two tasks may change places.
    pub swaps: bool,
    /// Only pages move.
    pub moves_tasks: bool,
    /// Mappings that a thread did not touch are scanned one at a time (6.7), not with the others.
    pub skips_mappings: bool,
}

/// Its state.
#[derive(Debug)]
pub struct Mainline {
    switches: Switches,
    periods: ScanPeriods,
    /// Whether anything is armed (`kernel.numa_balancing`).
    on: bool,
    clock: ScanClock,
    processes: BTreeMap<ProcessId, Process>,
    tasks: BTreeMap<TaskId, Task>,
    groups: BTreeMap<u32, Group>,
    /// How the nodes are linked.
    links: OnceCell<Links>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Process {
    threads: u64,
    /// Passes over all its mappings.
    passes: u64,
    /// Mappings of the current one that are left.
    left: u64,
}

#[derive(Debug)]
struct Task {
    pass: u64,
    period: Nanos,
    mem: Faults,
    cpu: Faults,
    mem_new: Faults,
    cpu_new: Faults,
    /// Remote, local, failed.
    locality: [u64; 3],
    preferred: Option<usize>,
    group: Option<u32>,
    retry: Nanos,
    /// It faulted since it was last placed: the kernel places it in a fault, and at no other time.
    faulted: bool,
    /// CPU time and time at the last placement.
    placed: (Nanos, Nanos),
}

impl Default for Switches {
    fn default() -> Self {
        Switches { groups: true, swaps: true, moves_tasks: true, skips_mappings: true }
    }
}

impl Mainline {
    /// With Linux's defaults.
    #[must_use]
    pub fn new(switches: Switches) -> Mainline {
        Mainline {
            switches,
            periods: DEFAULT,
            on: true,
            clock: ScanClock::default(),
            processes: BTreeMap::new(),
            tasks: BTreeMap::new(),
            groups: BTreeMap::new(),
            links: OnceCell::new(),
        }
    }

    fn task(&mut self, id: TaskId, view: &dyn View) -> &mut Task {
        let (periods, processes) = (self.periods, &mut self.processes);
        self.tasks.entry(id).or_insert_with(|| {
            processes.entry(view.process_of(id)).or_default().threads += 1;
            let none = vec![[0, 0]; view.topology().nodes.len()];
            let (min, _) = bounds(view.resident(view.process_of(id)), periods);
            Task {
                pass: 0,
                period: min,
                mem: none.clone(),
                cpu: none.clone(),
                mem_new: none.clone(),
                cpu_new: none,
                locality: [0; 3],
                preferred: None,
                group: None,
                retry: Nanos(0),
                faulted: false,
                placed: (Nanos(0), Nanos(0)),
            }
        })
    }

    fn passes(&self, process: ProcessId) -> u64 {
        self.processes.get(&process).map_or(0, |process| process.passes)
    }

    /// The task's group, or nothing where it is alone or groups are off.
    fn group_of(&self, task: &Task) -> Option<&Group> {
        task.group.and_then(|group| self.groups.get(&group))
    }

    /// The group becomes one with that of the task now on the page's last CPU, if that is the task
    /// that touched it last and its group is no smaller.
    fn join(&mut self, touch: &Touch, view: &dyn View) {
        let Some((last, cpu)) = touch.last else { return };
        let own = self.own_group(touch.task, view);
        if view.running(cpu) != Some(last) || view.process_of(last) != touch.process {
            return;
        }
        let Some(other) = self.tasks.get(&last).and_then(|task| task.group) else { return };
        let (mine, theirs) = (&self.groups[&own], &self.groups[&other]);
        let smaller =
            theirs.members < mine.members || theirs.members == mine.members && own < other;
        if own == other || smaller {
            return;
        }
        let task = &self.tasks[&touch.task];
        let (mem, cpu) = (task.mem.clone(), task.cpu.clone());
        self.leave(own, &mem, &cpu);
        if let Some(to) = self.groups.get_mut(&other) {
            to.members += 1;
            add(&mut to.mem, &mem);
            add(&mut to.cpu, &cpu);
        }
        self.task(touch.task, view).group = Some(other);
    }

    /// A member leaves the group with its faults; without any there is none.
    fn leave(&mut self, group: u32, mem: &Faults, cpu: &Faults) {
        self.groups.get_mut(&group).into_iter().for_each(|group| group.take(mem, cpu));
        self.groups.retain(|_, group| group.members > 0);
    }

    /// A group of one's own, until one joins another.
    fn own_group(&mut self, id: TaskId, view: &dyn View) -> u32 {
        let task = self.task(id, view);
        if let Some(group) = task.group {
            return group;
        }
        task.group = Some(id.tid);
        let (mem, cpu) = (task.mem.clone(), task.cpu.clone());
        self.groups.insert(id.tid, Group { members: 1, mem, cpu });
        id.tid
    }

    /// Why the page of a fault comes to the node that asks for it, if it does.
    fn wants_page(
        &self,
        touch: &Touch,
        node: usize,
        home: usize,
        view: &dyn View,
    ) -> Option<Cause> {
        let Some(task) = self.tasks.get(&touch.task) else { return Some(Cause::Private) };
        let private = is_private(touch);
        let pass = self.passes(touch.process);
        if private && (pass <= 4 || task.preferred.is_none()) {
            return Some(Cause::Private);
        }
        if touch.last.is_some_and(|(_, cpu)| index_of(view, view.node_of(cpu)) != node) {
            return None;
        }
        let Some(group) = self.group_of(task).filter(|_| !private) else {
            return Some(Cause::Twice);
        };
        let (cpu_to, cpu_from) = (both(&group.cpu, node), both(&group.cpu, home));
        let (mem_to, mem_from) = (both(&group.mem, node), both(&group.mem, home));
        if cpu_to > 3 * cpu_from {
            return Some(Cause::GroupAsks);
        }
        (cpu_to * mem_from * 3 > cpu_from * mem_to * 4).then_some(Cause::GroupShare)
    }

    /// Whether a fault on a page that came from `home` and is now on `to` counts as local: what was so
    /// before, and a shared one between active nodes of a group is as good.
    fn is_local(&self, touch: &Touch, node: usize, (home, to): (usize, usize)) -> bool {
        let private = is_private(touch);
        let group = self.tasks.get(&touch.task).and_then(|task| self.group_of(task));
        let among_active = |group: &Group| {
            let active = group.active();
            active.iter().filter(|active| **active).count() > 1 && active[node] && active[to]
        };
        node == home || !private && group.is_some_and(among_active)
    }

    /// Counts a fault on a page that came from `home` and is now on `to`.
    fn count(&mut self, touch: &Touch, node: usize, (home, to): (usize, usize), view: &dyn View) {
        let private = is_private(touch);
        if !private && self.switches.groups {
            self.join(touch, view);
        }
        let local = self.is_local(touch, node, (home, to));
        let task = self.task(touch.task, view);
        task.faulted = true;
        task.mem_new[to][usize::from(private)] += touch.pages.0;
        task.cpu_new[node][usize::from(private)] += touch.pages.0;
        task.locality[usize::from(local)] += touch.pages.0;
    }

    /// Averages the faults of the last pass and says where the task would rather be.
    fn place_by_faults(&mut self, id: TaskId, view: &dyn View) {
        let pass = self.passes(view.process_of(id));
        let (ran, now) = (view.cpu_time(id), view.now());
        let task = self.task(id, view);
        if task.pass == pass {
            return;
        }
        task.pass = pass;
        let elapsed = now.since(task.placed.1).0.max(1);
        let busy = (u128::from(ran.since(task.placed.0).0) << 16) / u128::from(elapsed);
        task.placed = (ran, now);
        let shared: u64 = task.mem_new.iter().map(|faults| faults[0]).sum();
        let private: u64 = task.mem_new.iter().map(|faults| faults[1]).sum();
        // All that are counted by locality: those of earlier passes too, while these are kept.
        let all = u128::from(task.locality[0] + task.locality[1] + 1);
        let before = (task.mem.clone(), task.cpu.clone());
        for node in 0..task.mem.len() {
            for kind in 0..2 {
                let mem = std::mem::take(&mut task.mem_new[node][kind]);
                task.mem[node][kind] -= task.mem[node][kind] / 2;
                task.mem[node][kind] += mem;
                let cpu = u128::from(std::mem::take(&mut task.cpu_new[node][kind]));
                task.cpu[node][kind] -= task.cpu[node][kind] / 2;
                task.cpu[node][kind] += u64::try_from(busy * cpu / all).unwrap_or(u64::MAX);
            }
        }
        let after = (task.mem.clone(), task.cpu.clone());
        let group = task.group.and_then(|group| self.groups.get_mut(&group));
        let is_group = group.is_some();
        let faults = match group {
            Some(group) => {
                group.take(&before.0, &before.1);
                group.members += 1;
                add(&mut group.mem, &after.0);
                add(&mut group.cpu, &after.1);
                group.mem.clone()
            }
            None => after.0,
        };
        let topology = view.topology();
        let links = *self.links.get_or_init(|| Links::of(topology));
        let best = preferred(&faults, is_group, links, topology);
        self.tasks.entry(id).and_modify(|task| task.preferred = best.or(task.preferred));
        self.pace(id, shared, private, view);
    }

    /// Tasks of the CPU that are on the node they prefer.
    fn preferring(&self, cpu: CpuId, view: &dyn View) -> usize {
        let node = index_of(view, view.node_of(cpu));
        let tasks = view.runnable(cpu).into_iter();
        tasks
            .filter(|id| self.tasks.get(id).is_some_and(|task| task.preferred == Some(node)))
            .count()
    }

    /// What the task, and its group, gain from a move: shares of their faults, per mille; near nodes count in part.
    fn gains(&self, task: &Task, from: usize, to: usize, view: &dyn View) -> (i64, i64) {
        let topology = view.topology();
        let links = *self.links.get_or_init(|| Links::of(topology));
        let hops = topology.distance(topology.nodes[from].id, topology.nodes[to].id);
        let gain = |faults: &Faults| {
            let on = |node| weight(faults, node, (links, hops), topology);
            on(to) - on(from)
        };
        (gain(&task.mem), self.group_of(task).map_or(0, |group| gain(&group.mem)))
    }
}

/// Whether nobody else touched the page since the task did itself, as far as the kernel knows.
fn is_private(touch: &Touch) -> bool {
    touch.last.is_none_or(|(last, _)| last == touch.task)
}

impl Balancing for Mainline {
    fn name(&self) -> &'static str {
        "mainline"
    }

    fn pages(&self) -> PageHandling {
        PageHandling { one_fault_for_2m: false, moves_huge_whole: true, keeps_beside: false }
    }

    fn set_scan(&mut self, periods: Option<ScanPeriods>) {
        self.on = periods.is_some();
        self.periods = periods.unwrap_or(self.periods);
    }

    fn scan(&mut self, task: TaskId, view: &dyn View) -> Option<Bytes> {
        if !self.on {
            return None;
        }
        let (min, _) = bounds(view.resident(view.process_of(task)), self.periods);
        let delay = self.periods.delay;
        let knobs_max = bounds(view.resident(view.process_of(task)), self.periods).1;
        let state = self.task(task, view);
        // Knobs may have been turned since.
        let period = state.period.max(min);
        let period = if knobs_max == min { min } else { period };
        let pieces = self.clock.due(task, view, delay, period);
        if pieces == 0 {
            return None;
        }
        let process = self.processes.entry(view.process_of(task)).or_default();
        if process.left == 0 {
            return Some(Bytes(self.periods.size.0 * pieces));
        }
        process.left -= pieces.min(process.left);
        process.passes += u64::from(process.left == 0);
        None
    }

    fn pass_ended(&mut self, process: ProcessId, _: &dyn View) {
        let process = self.processes.entry(process).or_default();
        if self.switches.skips_mappings && process.passes >= WHOLE_PASSES {
            process.left = OTHER_MAPPINGS + THREAD_MAPPINGS * process.threads.saturating_sub(1);
        } else {
            process.passes += 1;
        }
    }

    fn on_fault(&mut self, touch: &Touch, view: &dyn View) -> Option<(NodeId, Cause)> {
        let (node, home) = (index_of(view, touch.node), index_of(view, touch.home));
        let why = if node == home { None } else { self.wants_page(touch, node, home, view) };
        self.count(touch, node, (home, if why.is_some() { node } else { home }), view);
        why.map(|why| (touch.node, why))
    }

    fn stayed(&mut self, touch: &Touch, view: &dyn View) {
        let private = usize::from(is_private(touch));
        let (node, home) = (index_of(view, touch.node), index_of(view, touch.home));
        // It was counted where it was to go, and as local if it had gone there.
        let was = usize::from(self.is_local(touch, node, (home, node)));
        let is = usize::from(self.is_local(touch, node, (home, home)));
        let task = self.task(touch.task, view);
        task.locality[was] = task.locality[was].saturating_sub(touch.pages.0);
        task.locality[is] += touch.pages.0;
        task.mem_new[node][private] = task.mem_new[node][private].saturating_sub(touch.pages.0);
        task.mem_new[home][private] += touch.pages.0;
        task.locality[2] += touch.pages.0;
    }

    fn place(&mut self, id: TaskId, view: &dyn View) -> Option<(TaskMove, Cause)> {
        let now = view.now();
        let task = self.tasks.get(&id)?;
        if now < task.retry || !task.faulted {
            return None;
        }
        self.place_by_faults(id, view);
        let task = self.task(id, view);
        task.faulted = false;
        let preferred = task.preferred?;
        // Again in a second at the latest. Published.
        task.retry = Nanos(now.0 + (task.period.0 / 16).min(1_000_000_000));
        let here = index_of(view, view.node_of(view.cpu_of(id)?));
        if here == preferred || !self.switches.moves_tasks {
            return None;
        }
        self.migrate(id, view)
    }

    fn moved(&mut self, id: TaskId, from: NodeId, view: &dyn View) {
        let Some(task) = self.tasks.get(&id).filter(|_| self.on) else { return };
        let from = index_of(view, from);
        // Before it was placed once it begins anew wherever it goes.
        if task.pass == 0 || task.preferred.is_none_or(|preferred| preferred == from) {
            let (min, _) = bounds(view.resident(view.process_of(id)), self.periods);
            let period = self.first_period(task, min);
            self.task(id, view).period = period;
        }
    }

    fn task_ended(&mut self, id: TaskId) {
        let Some(task) = self.tasks.remove(&id) else { return };
        if let Some(group) = task.group {
            self.leave(group, &task.mem, &task.cpu);
        }
    }

    /// As `can_migrate_task` and `migrate_degrades_locality` have it (6.12).
    fn may_move(&self, id: TaskId, from: NodeId, to: NodeId, pull: Pull, view: &dyn View) -> bool {
        let Some(task) = self.tasks.get(&id).filter(|_| self.on) else { return true };
        let (from, to) = (index_of(view, from), index_of(view, to));
        let [leaves, comes] = [from, to].map(|node| task.preferred == Some(node));
        // It goes through a queue once, and does not look for those first that would rather be there.
        if pull == Pull::Wanted {
            return false;
        }
        if leaves {
            // Where all that wait and run there prefer that node somebody has to go, but not who runs.
            let all_prefer = |cpu| view.load(cpu) as usize <= self.preferring(cpu, view);
            return pull != Pull::Running && view.cpu_of(id).is_some_and(all_prefer);
        }
        // A CPU that idles is worse than a task that is farther from its memory.
        if comes || pull == Pull::Idle {
            return true;
        }
        let (alone, together) = self.gains(task, from, to, view);
        let gain = if task.group.is_some() { together } else { alone };
        gain >= 0
    }
}

#[cfg(test)]
mod tests;
