//! What a kernel did in a watched run, its NUMA balancing and its scheduler, as the page of nodes lists it: tasks
//! that went to another node, and pages, each with its cause.
//!
//! There are too many for a line each, so a run is cut into equal intervals, and what the same mechanism did in one
//! of them to one process, in the direction of one node, is told as one, at the first of it: "2.57 s: 3 tasks of process 1
//! to node 1, until 2.93 s: preferred node". Which they were, when, and on what account, stands in its parts. A page's cause has no figures:
//! blocks are only counted. (`--trace` has each.)

use std::mem::{Discriminant, discriminant};

use numaherd_model::{Cause, counted};
use numaherd_report::nodes::Move;
use numaherd_sim::Sim;
use numaherd_sim::engine::{BLOCK_PAGES, TraceEvent};

/// Intervals of a run, and the shortest. Chosen: what two mechanisms do on two nodes to two processes fits
/// the page's list.
const INTERVALS: u64 = 40;
const SHORTEST_NS: u64 = 100_000_000;

/// What is told as one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    interval: u64,
    process: u32,
    /// The node's number.
    to: u32,
    /// Tasks rather than pages.
    tasks: bool,
    why: (&'static str, Discriminant<Cause>),
}

struct Group {
    kind: Kind,
    why: Cause,
    /// When the first and the last of it were.
    first_ns: u64,
    last_ns: u64,
    count: u64,
    /// Each with its time.
    parts: Vec<(u64, String)>,
}

/// All of them, in the order of time. Nothing where nobody watched.
pub fn told(sim: &Sim) -> Vec<Move> {
    let every_ns = (sim.time().0 / INTERVALS).max(SHORTEST_NS);
    let node = |cpu: u32| sim.machine().node[sim.node_of_cpus()[cpu as usize]].id;
    let mut groups: Vec<Group> = Vec::new();
    for event in sim.trace() {
        let (ns, process, to, why, part) = match event {
            TraceEvent::Moved { ns, process, to, why: Some(why), .. } => {
                (*ns, *process, *to, *why, None)
            }
            TraceEvent::Sent { ns, task, process, from, to, other, why } => {
                let exchange =
                    other.map_or_else(String::new, |o| format!(" in exchange for task {o}"));
                let way =
                    format!("node {} (CPU {from}) to node {} (CPU {to})", node(*from), node(*to));
                let part = format!("task {task} of process {process} from {way}{exchange}: {why}");
                (*ns, *process, node(*to), *why, Some(part))
            }
            _ => continue,
        };
        let (interval, tasks) = (ns / every_ns, part.is_some());
        let kind = Kind { interval, process, to, tasks, why: (why.name(), discriminant(&why)) };
        // What is of this interval is at the end.
        let now = groups.iter().rposition(|group| group.kind.interval != interval);
        let now = now.map_or(0, |before| before + 1);
        let known = groups[now..].iter().position(|group| group.kind == kind);
        let at = known.map_or(groups.len(), |known| now + known);
        if known.is_none() {
            let (first_ns, last_ns, parts) = (ns, ns, Vec::new());
            groups.push(Group { kind, why, first_ns, last_ns, count: 0, parts });
        }
        groups[at].count += 1;
        groups[at].last_ns = ns;
        groups[at].parts.extend(part.map(|part| (ns, part)));
    }
    groups.into_iter().map(Group::told).collect()
}

impl Group {
    /// Told at the first of it.
    fn told(mut self) -> Move {
        let Kind { process, to, tasks, .. } = self.kind;
        let (count, why) = (self.count, self.why);
        let pages = count * BLOCK_PAGES;
        let seconds = |ns: u64| format!("{:.2} s", ns as f64 / 1e9);
        let (first, last) = (seconds(self.first_ns), seconds(self.last_ns));
        let until = if last == first { String::new() } else { format!(", until {last}") };
        let (what, parts) = match (tasks, count) {
            (true, 1) => (self.parts.swap_remove(0).1, Vec::new()),
            (true, _) => {
                let what = format!(
                    "{count} tasks of process {process} to node {to}{until}: {}",
                    why.name()
                );
                let parts = self.parts.into_iter();
                (what, parts.map(|(ns, part)| format!("{}: {part}", seconds(ns))).collect())
            }
            (false, _) => {
                let blocks = counted(count, "block");
                let of = format!("{pages} pages in {blocks} of process {process}");
                (format!("{of} to node {to}{until}: {why}"), Vec::new())
            }
        };
        Move { when: first, what, outcome: "done".into(), parts }
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Resize, SimPlacement};
    use crate::simulation::{Job, Kernel, find};

    /// Moves that a line tells of: a task, the one in exchange for it, or pages.
    fn counted(line: &str) -> (u64, u64) {
        let first: Option<u64> = line.split(' ').next().and_then(|word| word.parse().ok());
        match (line.contains(" pages in "), line.contains(" in exchange for ")) {
            (true, _) => (0, first.unwrap()),
            (false, exchange) => (1 + u64::from(exchange), 0),
        }
    }

    #[test]
    fn every_move_of_a_kernel_is_told_with_its_mechanism() {
        let machine = find::machine("numacore").unwrap();
        let resize = Resize { size: Some(512 << 20), loops: Some(100), threads: None };
        let workload = &find::workload("numa01", resize).unwrap();
        for (placement, mechanisms) in [
            (SimPlacement::Off, &["active balancing"][..]),
            (
                SimPlacement::Mainline,
                &["preferred node: ", "group follows", "in exchange for", "private page"],
            ),
            (
                SimPlacement::Autonuma,
                &["of its process's faults are there", "first fault", "two references"],
            ),
            (SimPlacement::AutonumaMarch, &["of its process's pages are there", "idle pull"]),
            (SimPlacement::Balancenuma, &["two references"]),
            (SimPlacement::NumacoreV17, &["ideal CPU"]),
            (SimPlacement::NumacoreV18, &["compression", "in exchange for", "spread"]),
        ] {
            let (machine, kernel, without) = (&machine, Kernel::Documents, &[][..]);
            let job =
                Job { machine, workload, placement, huge_pages: true, seed: 1, kernel, without };
            let finished = job.run(true).unwrap();
            let lines = finished.moves.iter().flat_map(|told| match &told.parts[..] {
                [] => std::slice::from_ref(&told.what),
                parts => parts,
            });
            let lines: Vec<&str> = lines.map(String::as_str).collect();
            let sums = lines.iter().map(|line| counted(line));
            let sums = sums.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            let run = &finished.run;
            assert_eq!(sums, (run.task_moves, run.pages_moved_by_kernel), "{placement}");
            for mechanism in mechanisms {
                let is_told = lines.iter().any(|line| line.contains(mechanism));
                assert!(is_told, "{placement} tells nothing of {mechanism}: {lines:#?}");
            }
            let order = finished.moves.iter().map(|told| told.when.trim_end_matches(" s"));
            let seconds: Vec<f64> = order.map(|when| when.parse().unwrap()).collect();
            assert!(seconds.is_sorted(), "{placement}: {seconds:?}");
            // Each is told at the first of its parts, and one that is alone without its time again.
            for told in &finished.moves {
                let first = told.parts.first().map(|part| part.split(": ").next().unwrap());
                assert!(first.is_none_or(|first| first == told.when), "{placement}: {told:?}");
                assert!(!told.what.starts_with(&told.when), "{placement}: {told:?}");
            }
            // Nobody watched, and nothing else has changed by that.
            let unwatched = job.run(false).unwrap();
            let figures = |run: &numaherd_sim::Run| (run.seconds, run.task_moves, run.faults);
            assert!(unwatched.moves.is_empty(), "{placement}");
            assert_eq!(figures(&unwatched.run), figures(run), "{placement}");
        }
    }
}
