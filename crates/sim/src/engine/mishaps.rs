//! What goes wrong on a machine, as ordinary events: tasks that vanish, CPUs that go away, nodes
//! that others fill, moves that are refused, faults that nobody hears of.

use numaherd_model::Cause;

use super::{Event, Sim, State};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The task with this index ends before its work does.
    Vanishes(usize),
    /// The CPU goes; whoever was there goes elsewhere. A task that was tied to it alone may then run
    /// anywhere, as in Linux.
    CpuGoes(usize),
    /// Somebody else takes all that is free on the node with this index.
    NodeFills(usize),
    /// No page moves until then.
    NoMovesUntil(u64),
    /// Hinting faults are not shown until then: what is known grows old.
    NoFaultsUntil(u64),
}

impl Sim {
    pub(super) fn plan_mishaps(&mut self) {
        for number in 0..self.options.mishaps.len() {
            let at_ns = self.options.mishaps[number].0;
            self.schedule(at_ns, Event::Mishap(number as u32));
        }
    }

    pub(super) fn suffer(&mut self, mishap: Mishap) {
        match mishap {
            Mishap::Vanishes(t) if t < self.tasks.len() => self.vanish(t),
            Mishap::CpuGoes(cpu) if cpu < self.running.len() => self.lose_cpu(cpu),
            Mishap::NodeFills(node) if node < self.free.len() => {
                self.taken += std::mem::take(&mut self.free[node]);
            }
            Mishap::NoMovesUntil(ns) => self.no_moves_until = ns,
            Mishap::NoFaultsUntil(ns) => self.no_faults_until = ns,
            Mishap::Vanishes(_) | Mishap::CpuGoes(_) | Mishap::NodeFills(_) => {}
        }
    }

    /// A running task ends with its block, any other at once.
    pub(super) fn vanish(&mut self, t: usize) {
        match self.tasks[t].state {
            State::Done => return,
            State::Running => {
                self.tasks[t].doomed = true;
                return;
            }
            State::Waiting => {
                self.unqueue(t);
                self.moving.remove(&t);
            }
            // Not yet begun: its CPU counts it already.
            State::Asleep if !self.tasks[t].begun => self.load[self.tasks[t].cpu] -= 1,
            State::Asleep => {
                let p = self.tasks[t].process;
                self.processes[p].waiting_at_barrier.retain(|waiting| *waiting != t);
                self.processes[p].locks.iter_mut().for_each(|lock| lock.forget(t));
                self.processes[p].script.iter_mut().for_each(|script| script.forget(t));
            }
        }
        self.end_idle_task(t);
    }

    fn lose_cpu(&mut self, cpu: usize) {
        let last = (0..self.gone.len()).filter(|&c| !self.gone[c]).count() == 1;
        if self.gone[cpu] || last {
            return;
        }
        self.gone[cpu] = true;
        for t in 0..self.tasks.len() {
            let allowed = std::mem::take(&mut self.rest[t].allowed);
            self.rest[t].allowed = self.or_anywhere(allowed);
            self.tasks[t].unsettled = true;
        }
        for node in &mut self.topology.nodes {
            node.cpus = node.cpus.iter().filter(|c| !self.gone[c.0 as usize]).collect();
        }
        let waiting: Vec<usize> = self.queues[cpu].iter().map(|(t, _)| t).collect();
        for t in waiting {
            let to = self.pick_allowed(t);
            self.send(t, to, Some(Cause::Affinity));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::small;
    use crate::workload::tests::slices;
    use crate::{Options, Tie};

    fn run(mishaps: Vec<(u64, Mishap)>) -> Sim {
        let options = Options { tie: Tie::Bind, mishaps, ..Options::default() };
        let mut sim = Sim::new(&small(), &slices(4, 32, 100), options).unwrap();
        sim.finish();
        sim
    }

    #[test]
    fn a_task_that_vanishes_leaves_the_others_to_their_work() {
        let sim = run(vec![(500_000_000, Mishap::Vanishes(3)), (600_000_000, Mishap::Vanishes(9))]);
        let run = sim.result();
        assert!(!run.unfinished && run.thread_seconds[3] < 0.6 && run.thread_seconds[0] > 0.8);
    }

    #[test]
    fn whoever_was_tied_to_a_cpu_that_goes_runs_elsewhere() {
        // Both CPUs of node 1 go: its two threads run on node 0, or wait there.
        let sim = run(vec![(500_000_000, Mishap::CpuGoes(2)), (500_000_000, Mishap::CpuGoes(3))]);
        assert!(!sim.result().unfinished);
        assert!(sim.tasks.iter().all(|task| sim.node_of[task.cpu] == 0));
        assert!(sim.topology.nodes[1].cpus.is_empty());
        // The last CPU stays.
        let all = (0..4).map(|cpu| (1_000, Mishap::CpuGoes(cpu))).collect();
        assert_eq!(run(all).gone, [true, true, true, false]);
    }
}
