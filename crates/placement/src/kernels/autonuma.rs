//! AutoNUMA (Andrea Arcangeli, v28 of 2012): one scanner for all processes, faults that say where a
//! task's and a process's memory is, and tasks that go where they have more of theirs than whoever
//! runs there.
//!
//! A page comes when the same node asks for it twice; the first fault ever may bring it too. A task
//! that asks for a page of somebody else's node is taken to share falsely, and moves no pages until
//! the next pass. At most 1.28 GB/s come to a node. Weights are per mille.
//!
//! Not modelled: the 24 bytes a page, queues of the versions before v28.

use std::collections::BTreeMap;

use numaherd_model::{
    Balancing, Bytes, Nanos, NodeId, PageHandling, PageVerdict, ProcessId, TaskId, TaskMove, Touch,
    View,
};

use super::limit::Limit;
use super::{cpus_of, index_of};

/// Armed in one step of the scanner. Published.
const STEP: Bytes = Bytes(128 << 20);
/// Between two steps, and between two passes over all processes. Published.
const STEP_WAIT: Nanos = Nanos(100_000_000);
const PASS_WAIT: Nanos = Nanos(10_000_000_000);
/// Between two looks of a task for a better CPU. Published.
const PLACE_WAIT: Nanos = Nanos(100_000_000);
/// A process nobody of which ran for so long is passed over. Guessed.
const GONE: Nanos = Nanos(1_000_000_000);

/// Which mechanisms are on.
#[derive(Clone, Copy, Debug)]
pub struct Switches {
    /// Huge pages move whole (the fix with which numa/core compared it), rather than split.
    pub moves_huge_whole: bool,
    /// At most 1.28 GB/s to a node.
    pub limits_moves: bool,
    /// Tasks move, not only pages.
    pub moves_tasks: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Switches { moves_huge_whole: false, limits_moves: true, moves_tasks: true }
    }
}

/// Its state.
#[derive(Debug)]
pub struct Autonuma {
    switches: Switches,
    scanner: Scanner,
    limit: Limit,
    tasks: BTreeMap<TaskId, Task>,
    processes: BTreeMap<ProcessId, Faults>,
}

#[derive(Debug, Default)]
struct Scanner {
    /// Processes, and when one of each last ran.
    seen: BTreeMap<ProcessId, Nanos>,
    current: Option<ProcessId>,
    next: Nanos,
}

#[derive(Debug, Default)]
struct Task {
    faults: Faults,
    shares_falsely: bool,
    selected: Option<usize>,
    next_look: Nanos,
}

/// Faults by node.
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

    /// Per mille of all faults that are on this node's memory.
    fn weight(&self, node: usize) -> u64 {
        let all: u64 = self.0.iter().sum();
        self.0.get(node).map_or(0, |faults| faults * 1000 / all.max(1))
    }
}

impl Scanner {
    /// Whether the task's process is the one to be armed now.
    fn is_due(&mut self, process: ProcessId, now: Nanos) -> bool {
        self.seen.insert(process, now);
        let gone =
            |current: &ProcessId| self.seen.get(current).is_none_or(|seen| now.since(*seen) > GONE);
        if self.current.as_ref().is_some_and(gone) {
            self.pass_ended(now);
        }
        if now < self.next || *self.current.get_or_insert(process) != process {
            return false;
        }
        self.next = Nanos(now.0 + STEP_WAIT.0);
        true
    }

    /// The next process, or a rest after the last.
    fn pass_ended(&mut self, now: Nanos) {
        let Some(current) = self.current else { return };
        self.seen.retain(|_, seen| now.since(*seen) <= GONE);
        self.current = self.seen.keys().copied().find(|process| *process > current);
        if self.current.is_none() {
            self.current = self.seen.keys().copied().next();
            self.next = Nanos(now.0 + PASS_WAIT.0);
        }
    }
}

impl Autonuma {
    /// With the published constants.
    #[must_use]
    pub fn new(switches: Switches) -> Autonuma {
        Autonuma {
            switches,
            scanner: Scanner::default(),
            limit: Limit::of_2012(),
            tasks: BTreeMap::new(),
            processes: BTreeMap::new(),
        }
    }

    /// The task's weight on a node: among its own process's tasks its own, else its process's.
    fn weight(&self, id: TaskId, process: ProcessId, node: usize, alone: bool) -> u64 {
        if alone {
            self.tasks.get(&id).map_or(0, |task| task.faults.weight(node))
        } else {
            self.processes.get(&process).map_or(0, |faults| faults.weight(node))
        }
    }
}

impl Balancing for Autonuma {
    fn name(&self) -> &'static str {
        "autonuma"
    }

    fn pages(&self) -> PageHandling {
        let moves_huge_whole = self.switches.moves_huge_whole;
        PageHandling { one_fault_for_2m: true, moves_huge_whole }
    }

    fn scan(&mut self, task: TaskId, view: &dyn View) -> Option<Bytes> {
        let now = view.now();
        self.scanner.is_due(view.process_of(task), now).then_some(STEP)
    }

    fn pass_ended(&mut self, process: ProcessId, view: &dyn View) {
        self.scanner.pass_ended(view.now());
        self.processes.entry(process).or_default().halve();
        for (id, task) in &mut self.tasks {
            if view.process_of(*id) == process {
                task.faults.halve();
                task.shares_falsely = false;
            }
        }
    }

    fn on_fault(&mut self, touch: &Touch, view: &dyn View) -> PageVerdict {
        let (node, home) = (index_of(view, touch.node), index_of(view, touch.home));
        let task = self.tasks.entry(touch.task).or_default();
        let last = touch.last.map(|(_, cpu)| index_of(view, view.node_of(cpu)));
        let twice = last.is_none_or(|last| last == node);
        task.shares_falsely |= !twice;
        let wants = node != home && twice && !task.shares_falsely;
        let admitted = !self.switches.limits_moves
            || wants && self.limit.admits(node, touch.pages, view.now());
        let to = if wants && admitted { node } else { home };
        task.faults.add(to, touch.pages.0);
        self.processes.entry(touch.process).or_default().add(to, touch.pages.0);
        if to == home { PageVerdict::Stay } else { PageVerdict::MoveTo(touch.node) }
    }

    fn place(&mut self, id: TaskId, view: &dyn View) -> Option<TaskMove> {
        let now = view.now();
        let task = self.tasks.get_mut(&id)?;
        if now < task.next_look || !self.switches.moves_tasks {
            return None;
        }
        task.next_look = Nanos(now.0 + PLACE_WAIT.0);
        let process = view.process_of(id);
        let here = index_of(view, view.node_of(view.cpu_of(id)?));
        let mut best: Option<(u64, usize, numaherd_model::CpuId)> = None;
        for node in (0..view.topology().nodes.len()).filter(|&node| node != here) {
            for cpu in cpus_of(view, node).filter(|&cpu| view.allowed(id, cpu)) {
                let Some(other) = view.running(cpu) else { continue };
                let others = view.process_of(other);
                let alone = others == process;
                let there = self.weight(id, process, node, alone);
                let of_other = self.weight(other, others, node, alone);
                let here = self.weight(id, process, here, alone);
                if there > of_other && there > here {
                    let score = (there - of_other) + (there - here);
                    if best.is_none_or(|(most, ..)| score > most) {
                        best = Some((score, node, cpu));
                    }
                }
            }
        }
        let selected = best.map_or(here, |(_, node, _)| node);
        self.tasks.entry(id).or_default().selected = Some(selected);
        best.map(|(_, _, cpu)| TaskMove::To(cpu))
    }

    fn may_move(&self, id: TaskId, _: NodeId, to: NodeId, view: &dyn View) -> bool {
        let selected = self.tasks.get(&id).and_then(|task| task.selected);
        selected.is_none_or(|selected| selected == index_of(view, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(tgid: u32) -> ProcessId {
        ProcessId { tgid, start: 1 }
    }

    #[test]
    fn the_scanner_goes_round_the_processes_and_rests_after_the_last() {
        let mut scanner = Scanner::default();
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        assert!(scanner.is_due(process(1), ms(0)));
        assert!(!scanner.is_due(process(1), ms(99)), "a step every 100 ms");
        assert!(!scanner.is_due(process(2), ms(200)), "one process at a time");
        assert!(scanner.is_due(process(1), ms(200)));
        scanner.pass_ended(ms(200));
        assert!(scanner.is_due(process(2), ms(300)));
        scanner.pass_ended(ms(300));
        // Back to the first after a rest of 10 s, in which both go on running.
        for second in 1..=10 {
            assert!(!scanner.is_due(process(1), ms(second * 1000)));
            assert!(!scanner.is_due(process(2), ms(second * 1000)));
        }
        assert!(scanner.is_due(process(1), ms(10_300)));
    }

    #[test]
    fn a_process_that_ended_is_passed_over() {
        let mut scanner = Scanner::default();
        assert!(scanner.is_due(process(1), Nanos(0)));
        assert!(!scanner.is_due(process(2), Nanos(500_000_000)));
        // Process 1 has not run for more than a second: 2 is next.
        assert!(scanner.is_due(process(2), Nanos(1_200_000_000)));
    }

    #[test]
    fn weights_are_per_mille_of_all_faults() {
        let mut faults = Faults::default();
        faults.add(0, 300);
        faults.add(1, 100);
        assert_eq!([0, 1, 2].map(|node| faults.weight(node)), [750, 250, 0]);
        assert_eq!(Faults::default().weight(0), 0);
    }
}
