//! What `balance` says on its own account of the processes in its care: each thing once.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_control::Turn;
use numaherd_linux::live::LiveMachine;
use numaherd_model::{Action, Nanos, NodeId, Outcome, ProcessId, SkipReason, Task};
use numaherd_trace::Event;

/// How often it is told of a node that it is short of memory. Guessed.
const SHORT_AGE: Nanos = Nanos(3_600_000_000_000);

/// So many of a process's threads are named in the log. Guessed: 30 KiB of it.
const MOST_TIDS: usize = 4096;

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
    /// process may have miscounted, or may yet; and which nodes take no pages. Answers what the log is to be told of it.
    pub fn tell(&mut self, machine: &LiveMachine, turn: &Turn) -> Vec<Event> {
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
        let events = set_aside(&self.aside, &aside, &snapshot.tasks);
        for event in &events {
            if let Event::Aside { process, why: None, .. } = event {
                say!("numaherd: process {process} is no longer left alone");
            }
        }
        (self.aside, self.sampled) = (aside, sampled);
        events
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

/// Who is left alone that was not before, or for another reason; and who no longer, though there.
fn set_aside(
    before: &BTreeMap<ProcessId, String>,
    now: &BTreeMap<ProcessId, String>,
    tasks: &[Task],
) -> Vec<Event> {
    let aside = |process: &ProcessId, why: Option<&String>| {
        let threads = tasks.iter().filter(|task| task.process == *process);
        let tids: Vec<u32> = threads.map(|task| task.id.tid).take(MOST_TIDS).collect();
        Event::Aside { process: *process, tids, why: why.cloned() }
    };
    let is_same = |process: &ProcessId, why: &String| {
        before.get(process).is_some_and(|before| wordings(before).eq(wordings(why)))
    };
    let gone = now.iter().filter(|(process, why)| !is_same(process, why));
    let gone = gone.map(|(process, why)| aside(process, Some(why)));
    let is_there = |process: &ProcessId| tasks.iter().any(|task| task.process == *process);
    let is_back = |process: &&ProcessId| !now.contains_key(process) && is_there(process);
    gone.chain(before.keys().filter(is_back).map(|process| aside(process, None))).collect()
}

/// A reason without its figures, which may be others at every look.
fn wordings(why: &str) -> impl Iterator<Item = char> + '_ {
    why.chars().filter(|c| !c.is_ascii_digit())
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
    use numaherd_model::scene::{PROCESS, Scene, task_id};
    use numaherd_model::{Pages, Reason};

    use super::*;

    #[test]
    fn the_log_is_told_of_each_change_of_who_is_left_alone() {
        let mut scene = Scene::two_by_four();
        (1..=2).for_each(|tid| scene.task(tid, tid - 1, 1000));
        let tasks = scene.snapshot().tasks;
        let left = |why: &str| BTreeMap::from([(PROCESS, why.to_string())]);
        let aside = |why: Option<&str>| {
            let why = why.map(str::to_string);
            vec![Event::Aside { process: PROCESS, tids: vec![1, 2], why }]
        };
        let nobody = BTreeMap::new();
        let (first, second) = (left("it has 7 of 9"), left("it is locked"));
        assert_eq!(set_aside(&nobody, &first, &tasks), aside(Some("it has 7 of 9")));
        assert_eq!(set_aside(&first, &left("it has 8 of 9"), &tasks), []);
        assert_eq!(set_aside(&first, &second, &tasks), aside(Some("it is locked")));
        assert_eq!(set_aside(&second, &nobody, &tasks), aside(None));
        assert_eq!(set_aside(&second, &nobody, &[]), [], "it has ended");
    }

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
