//! Buddies, and the groups they make on a node.

use numaherd_model::{CpuId, TaskId, Touch, View};

use super::super::cpus_of;
use super::{BUDDY_FAULTS, Kind, Numacore, Task};

impl Numacore {
    pub(super) fn are_buddies(&self, a: TaskId, b: TaskId, view: &dyn View) -> bool {
        if a == b {
            return true;
        }
        let (Some(first), Some(second)) = (self.tasks.get(&a), self.tasks.get(&b)) else {
            return false;
        };
        let strong = |task: &Task| {
            task.buddy.filter(|_| task.ideal.is_some() && task.buddy_faults > BUDDY_FAULTS)
        };
        if let (Some(of_first), Some(of_second)) = (strong(first), strong(second))
            && (of_first == b || of_second == a || of_first == of_second)
        {
            return true;
        }
        let shared = first.kind == Kind::Shared && second.kind == Kind::Shared;
        shared && view.process_of(a) == view.process_of(b)
    }

    /// Records who else works on a page of this node.
    pub(super) fn note_buddy(&mut self, touch: &Touch, view: &dyn View) {
        let Some((_, last_cpu)) = touch.last.filter(|(_, cpu)| *cpu != touch.cpu) else { return };
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

    /// The groups of a node, each with the CPU of its first task and its size. An idle CPU and a
    /// task that is not shared are each one by themselves.
    pub(super) fn groups(&self, node: usize, view: &dyn View) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for cpu in cpus_of(view, node) {
            let task = view.running(cpu);
            let shared = task.is_some_and(|task| self.kind(task) == Kind::Shared);
            let ours = |group: &Group| {
                let head = group.head.filter(|_| group.shared && shared);
                head.zip(task).is_some_and(|(head, task)| self.are_buddies(head, task, view))
            };
            match groups.iter().position(ours) {
                Some(known) => groups[known].members.extend(task),
                None => {
                    let members = task.into_iter().collect();
                    groups.push(Group { cpu, head: task, shared, members });
                }
            }
        }
        groups
    }
}

/// Tasks of a node that work together.
pub(super) struct Group {
    /// The CPU of the first.
    pub(super) cpu: CpuId,
    /// The first; nobody on an idle CPU.
    pub(super) head: Option<TaskId>,
    pub(super) shared: bool,
    members: Vec<TaskId>,
}

impl Group {
    /// An idle CPU counts as one.
    pub(super) fn size(&self) -> usize {
        self.members.len().max(1)
    }

    pub(super) fn has(&self, task: TaskId) -> bool {
        self.members.contains(&task)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.members.iter().copied()
    }
}
