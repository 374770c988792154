//! v17: a shared task looks for a CPU on the node where most of its process's shared tasks run, a
//! private one for a node with idle CPUs. It goes once the same CPU was found twice running.

use numaherd_model::{Cause, CpuId, TaskId, TaskMove, View};

use super::super::{cpus_of, index_of};
use super::{Kind, Numacore};

impl Numacore {
    /// Where the task goes; nothing if it stays.
    pub(super) fn ideal(
        &mut self,
        id: TaskId,
        kind: Kind,
        cpu: CpuId,
        view: &dyn View,
    ) -> Option<(TaskMove, Cause)> {
        let here = index_of(view, view.node_of(cpu));
        let (found, why) = match kind {
            Kind::Unknown => return None,
            Kind::Shared => (self.among_buddies(id, view), Cause::Buddies),
            Kind::Private => (self.among_idle(id, here, view), Cause::IdleNode),
        };
        let found = found.filter(|&to| index_of(view, view.node_of(to)) != here).unwrap_or(cpu);
        let before = self.task(id, view).ideal_candidate.replace(found);
        (before == Some(found) && found != cpu).then_some((TaskMove::To(found), why))
    }

    /// A CPU on the node with most of its process's shared tasks that has one to give.
    fn among_buddies(&self, id: TaskId, view: &dyn View) -> Option<CpuId> {
        let mut best = None;
        for node in 0..view.topology().nodes.len() {
            let (mut buddies, mut target, mut cpus) = (0, None, 0);
            for cpu in cpus_of(view, node) {
                cpus += 1;
                let give = match view.running(cpu) {
                    None => true,
                    Some(other) => match self.kind(other) {
                        _ if other == id => {
                            buddies += 1;
                            false
                        }
                        Kind::Unknown => false,
                        Kind::Private => true,
                        Kind::Shared if view.process_of(other) == view.process_of(id) => {
                            buddies += 1;
                            false
                        }
                        Kind::Shared => self.tasks[&other].ideal_node != Some(node),
                    },
                };
                if give && view.allowed(id, cpu) {
                    target = Some(cpu);
                }
            }
            let more = best.is_none_or(|(most, _)| buddies > most);
            if let Some(target) = target.filter(|_| buddies > 0 && buddies < cpus && more) {
                best = Some((buddies, target));
            }
        }
        best.map(|(_, cpu)| cpu)
    }

    /// An idle CPU of the node with most of them, if it has two more than this one.
    fn among_idle(&self, id: TaskId, here: usize, view: &dyn View) -> Option<CpuId> {
        let idle = |node: usize| {
            cpus_of(view, node)
                .filter(move |&cpu| view.running(cpu).is_none() && view.allowed(id, cpu))
        };
        let nodes = 0..view.topology().nodes.len();
        let most = nodes.max_by_key(|&node| (idle(node).count(), usize::MAX - node))?;
        let enough = idle(most).count() > idle(here).count() + 1;
        if enough { idle(most).last() } else { None }
    }
}
