//! What `balance` says on its own account of the processes in its care: each thing once.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_control::Turn;
use numaherd_linux::live::LiveMachine;
use numaherd_model::{Action, Nanos, NodeId, Outcome, ProcessId, SkipReason};

/// How often it is told of a node that it is short of memory. Guessed.
const SHORT_AGE: Nanos = Nanos(3_600_000_000_000);

/// What was said so far.
#[derive(Debug, Default)]
pub struct Voice {
    /// Processes that were told to be left alone.
    aside: BTreeMap<ProcessId, String>,
    /// Processes whose accesses were told to be sampled.
    sampled: BTreeMap<ProcessId, String>,
    born_confined: u64,
    /// Whether it was told what threads that are placed see.
    placed: bool,
    /// When it was told last of nodes that they are short of memory.
    short: BTreeMap<NodeId, Nanos>,
    /// Whether it was told that traffic is counted no more, and that accesses cannot be sampled, at all or on some CPUs.
    uncounted: bool,
    unsampled: bool,
    missed: bool,
}

impl Voice {
    /// Says whose tasks are not placed, and why, and when that is over; whose accesses are sampled; that a
    /// process may have miscounted, or may yet; and which nodes take no pages.
    pub fn tell(&mut self, machine: &LiveMachine, turn: &Turn) {
        let snapshot = &turn.snapshot;
        if self.places_first(&turn.plan.actions, &turn.outcomes) {
            say!(
                "numaherd: threads that are placed see their node's CPUs when they ask how many there are \
                 (a JVM: -XX:ActiveProcessorCount=N keeps the original)"
            );
        }
        for node in self.newly_short(&turn.outcomes, snapshot.time) {
            say!(
                "numaherd: node {node} has too little free memory for pages to move there (page cache \
                 counts as used)"
            );
        }
        if self.born_confined == 0 && machine.born_confined() > 0 {
            say!(
                "numaherd: a process was started by a placed thread and had the CPUs of one node \
                 for a moment: if it counted them then (JVM, Go, OpenMP), it counted too few"
            );
        }
        self.born_confined = machine.born_confined();
        if let Some(why) = machine.uncounted().filter(|_| !self.uncounted) {
            say!(
                "numaherd: what memory carries is no limit any more, as it cannot be counted: {why}"
            );
            self.uncounted = true;
        }
        if let Some(why) = machine.unsampled().filter(|_| !self.unsampled) {
            say!("numaherd: accesses cannot be sampled ({why}): faults alone tell who uses what");
            self.unsampled = true;
        }
        if let Some(missed) = machine.unsampled_cpus().filter(|_| !self.missed) {
            say!(
                "numaherd: accesses on CPUs {} are not sampled for now: {}",
                missed.cpus,
                missed.why
            );
            self.missed = true;
        }
        let sampled = machine.sampled();
        for (process, why) in new(&sampled, &self.sampled) {
            say!("numaherd: process {process}: {why}; its accesses are sampled");
        }
        let aside = machine.left_alone();
        for (process, why) in new(&aside, &self.aside) {
            say!(
                "numaherd: process {process} is left alone: {why}; see 'numaherd advise -p {process}'"
            );
        }
        let is_there = |process| snapshot.tasks.iter().any(|task| task.process == process);
        let is_back = |process: &&ProcessId| !aside.contains_key(*process) && is_there(**process);
        for process in self.aside.keys().filter(is_back) {
            say!("numaherd: process {process} is no longer left alone");
        }
        (self.aside, self.sampled) = (aside, sampled);
    }

    /// Whether the first task of all was placed.
    fn places_first(&mut self, actions: &[Action], outcomes: &[Outcome]) -> bool {
        let placed = |(action, outcome)| is_placed(action, outcome);
        let first = !self.placed && actions.iter().zip(outcomes).any(placed);
        self.placed |= first;
        first
    }

    /// Nodes that turned out to be short of memory, of which that was not told of late.
    fn newly_short(&mut self, outcomes: &[Outcome], now: Nanos) -> BTreeSet<NodeId> {
        let short = |outcome: &Outcome| match outcome {
            Outcome::Skipped(SkipReason::Checked { short, .. }) => *short,
            _ => None,
        };
        self.short.retain(|_, told| now.since(*told) < SHORT_AGE);
        let mut found: BTreeSet<NodeId> = outcomes.iter().filter_map(short).collect();
        found.retain(|node| !self.short.contains_key(node));
        self.short.extend(found.iter().map(|node| (*node, now)));
        found
    }
}

/// Whether a task was placed.
pub fn is_placed(action: &Action, outcome: &Outcome) -> bool {
    matches!((action, outcome), (Action::PlaceTask { .. }, Outcome::Done { .. }))
}

/// Those that were not there before.
fn new<'a>(
    now: &'a BTreeMap<ProcessId, String>,
    before: &'a BTreeMap<ProcessId, String>,
) -> impl Iterator<Item = (&'a ProcessId, &'a String)> {
    now.iter().filter(|(process, _)| !before.contains_key(*process))
}

#[cfg(test)]
mod tests {
    use numaherd_model::scene::task_id;
    use numaherd_model::{Pages, Reason};

    use super::*;

    #[test]
    fn what_placed_threads_see_is_told_with_the_first_that_is_placed() {
        let reason = Reason::Balance;
        let cpus = "0-1".parse().unwrap();
        let place = Action::PlaceTask { task: task_id(1), node: NodeId(0), cpus, reason };
        let (done, dry) = (Outcome::Done { moved: Pages(0) }, SkipReason::DryRun);
        let mut voice = Voice::default();
        let mut first = |outcome| voice.places_first(std::slice::from_ref(&place), &[outcome]);
        assert!(!first(Outcome::Skipped(dry)));
        assert!(first(done.clone()) && !first(done));
    }

    #[test]
    fn of_a_node_short_of_memory_it_is_told_once_an_hour() {
        let checked = |short: Option<u32>| {
            let (problem, short) = (String::new(), short.map(NodeId));
            Outcome::Skipped(SkipReason::Checked { problem, short })
        };
        let mut voice = Voice::default();
        let mut told = |nodes: &[Option<u32>], now| {
            let outcomes: Vec<_> = nodes.iter().map(|node| checked(*node)).collect();
            let found = voice.newly_short(&outcomes, Nanos(now));
            found.iter().map(|node| node.0).collect::<Vec<_>>()
        };
        assert_eq!(told(&[None, Some(1), Some(1)], 5), [1]);
        assert_eq!(told(&[Some(1), Some(0)], 6), [0]);
        assert_eq!(told(&[Some(1)], SHORT_AGE.0 + 4), [0; 0]);
        assert_eq!(told(&[Some(1)], SHORT_AGE.0 + 5), [1]);
    }
}
