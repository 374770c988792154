//! v18: where a task goes so that groups converge, in few and large steps.

use numaherd_model::{Cause, CpuId, TaskId, TaskMove, View};

use super::super::{cpus_of, index_of, load_of};
use super::{Kind, Numacore};

/// What one task weighs, and how far loads may differ. Published.
const TASK_LOAD: u64 = 1024;
const OVERLOAD: u64 = 512;
const UNEVEN: u64 = 1536;

impl Numacore {
    /// Where the task goes; nothing if it stays.
    pub(super) fn directed(
        &mut self,
        id: TaskId,
        kind: Kind,
        cpu: CpuId,
        view: &dyn View,
    ) -> Option<(TaskMove, Cause)> {
        let here = index_of(view, view.node_of(cpu));
        match kind {
            Kind::Unknown => None,
            Kind::Private => self.even_out(id, here, cpu, view),
            Kind::Shared => self.converge(id, here, cpu, view),
        }
    }

    fn converge(
        &self,
        id: TaskId,
        here: usize,
        cpu: CpuId,
        view: &dyn View,
    ) -> Option<(TaskMove, Cause)> {
        if let Some(node) = self.spread(id, here, view) {
            let capacity = TASK_LOAD * cpus_of(view, node).count() as u64;
            if TASK_LOAD * (load_of(view, node) + 1) <= capacity {
                return self.idlest(id, node, view).map(|to| (TaskMove::To(to), Cause::Spread));
            }
        } else if self.switches.compresses
            && let Some(to) = self.compress(id, here, view)
        {
            return Some((to, Cause::Compress));
        }
        let fled = self.flee(id, here, view).map(|to| (to, Cause::Overload));
        let evened = || self.even_node(id, here, cpu, view).map(|to| (to, Cause::Uneven));
        fled.or_else(evened).map(|(to, why)| (TaskMove::To(to), why))
    }

    /// Away from a node with more tasks than CPUs.
    fn flee(&self, id: TaskId, here: usize, view: &dyn View) -> Option<CpuId> {
        let capacity = TASK_LOAD * cpus_of(view, here).count() as u64;
        if TASK_LOAD * load_of(view, here) <= capacity + OVERLOAD {
            return None;
        }
        let nodes = 0..view.topology().nodes.len();
        let least = nodes.min_by_key(|&node| (load_of(view, node), node))?;
        let idle = |cpu: &CpuId| TASK_LOAD * u64::from(view.load(*cpu)) <= OVERLOAD;
        self.idlest(id, least, view).filter(idle).filter(|_| least != here)
    }

    /// To a CPU of the same node that is much less loaded.
    fn even_node(&self, id: TaskId, here: usize, cpu: CpuId, view: &dyn View) -> Option<CpuId> {
        let idle = self.idlest(id, here, view)?;
        let uneven = u64::from(view.load(cpu).saturating_sub(view.load(idle))) * TASK_LOAD;
        (uneven >= UNEVEN).then_some(idle)
    }

    fn idlest(&self, id: TaskId, node: usize, view: &dyn View) -> Option<CpuId> {
        let allowed = cpus_of(view, node).filter(|&cpu| view.allowed(id, cpu));
        allowed.min_by_key(|&cpu| (view.load(cpu), cpu))
    }

    /// The smallest group of a node goes where most CPUs idle, if that evens the shared loads.
    fn spread(&self, id: TaskId, here: usize, view: &dyn View) -> Option<usize> {
        let groups = self.groups(here, view);
        let shared = || groups.iter().filter(|group| group.shared);
        let ours = shared().find(|group| group.has(id))?.size();
        if shared().any(|group| group.size() < ours) {
            return None;
        }
        let idle = |node: usize| cpus_of(view, node).filter(|&cpu| view.load(cpu) == 0).count();
        let nodes = 0..view.topology().nodes.len();
        let to = nodes.max_by_key(|&node| (idle(node), usize::MAX - node))?;
        if idle(to) == 0 || to == here {
            return None;
        }
        let load = |node: usize| {
            let running = cpus_of(view, node).filter_map(|cpu| view.running(cpu));
            let shared = running.filter(|task| self.kind(*task) == Kind::Shared).count();
            i128::from(TASK_LOAD) * shared as i128
        };
        let group = i128::from(TASK_LOAD) * ours as i128;
        let before = load(here) - load(to);
        let after = (load(here) - group) - (load(to) + group);
        (after.abs() + i128::from(TASK_LOAD) <= before.abs()).then_some(to)
    }

    /// To the node with most buddies that is not full of them, into the CPU of a group no larger.
    fn compress(&self, id: TaskId, here: usize, view: &dyn View) -> Option<TaskMove> {
        let mut most: Option<(usize, usize)> = None;
        for node in 0..view.topology().nodes.len() {
            let groups = self.groups(node, view);
            let ours = |task: TaskId| self.are_buddies(task, id, view);
            let size =
                groups.iter().find(|group| group.members().any(ours)).map_or(0, |g| g.size());
            let full = size == cpus_of(view, node).count();
            if !full && most.is_none_or(|(best, _)| size > best) {
                most = Some((size, node));
            }
        }
        let (most, to) = most.filter(|&(size, node)| size > 0 && node != here)?;
        let groups = self.groups(to, view);
        let least = groups.iter().map(|group| group.size()).min()?;
        // Of the smallest: an idle CPU, else the last that is not shared, else the first.
        let ease = |(index, group): &(usize, &super::groups::Group)| {
            let order = if group.shared { usize::MAX - index } else { *index };
            (group.head.is_none(), !group.shared, order)
        };
        let smallest = groups.iter().enumerate().filter(|(_, group)| group.size() == least);
        let (_, target) = smallest.max_by_key(ease).filter(|_| least <= most)?;
        if !view.allowed(id, target.cpu) {
            return None;
        }
        match target.head {
            Some(other) if self.switches.flips => Some(TaskMove::Swap(other)),
            _ => Some(TaskMove::To(target.cpu)),
        }
    }

    /// A private task only evens loads.
    fn even_out(
        &self,
        id: TaskId,
        here: usize,
        cpu: CpuId,
        view: &dyn View,
    ) -> Option<(TaskMove, Cause)> {
        let nodes = 0..view.topology().nodes.len();
        let least = nodes.min_by_key(|&node| (load_of(view, node), node))?;
        let uneven = (load_of(view, here).saturating_sub(load_of(view, least))) * TASK_LOAD;
        let to = if least == here || uneven < UNEVEN {
            self.even_node(id, here, cpu, view)
        } else {
            self.idlest(id, least, view).filter(|&cpu| view.load(cpu) == 0)
        };
        to.map(|to| (TaskMove::To(to), Cause::Uneven))
    }
}
