//! A timeline that ui.perfetto.dev (or chrome://tracing) opens: who ran on which CPU, when pages
//! moved, and what was lost. Made from the kernel's text, as [`crate::tracefs`] writes it.
//!
//! Units: microseconds of the guest's CLOCK_MONOTONIC. Format: JSON trace events ("Trace Event
//! Format"): `X` a slice, `i` an instant, `C` a counter, `M` a name. Three groups of tracks:
//!
//! | group | a track for each | slices |
//! |---|---|---|
//! | `node N` | CPU of the node | the thread that ran, by name |
//! | `threads NAME` | thread of that name | the CPU it ran on, with its node |
//! | `pages moved` | reason | counter, the sum so far |
//!
//! Invariant: slices of one track do not overlap, and none has a negative length. A thread that
//! is still running at the end gets a slice up to the last event.

use std::collections::BTreeMap;

use numaherd_model::counted;
use serde_json::{Value, json};

use crate::tracefs::DROPPED;

/// Groups and tracks need numbers that do not meet: nodes from here, then thread groups.
const NODES_FROM: u64 = 1;
const THREADS_FROM: u64 = 10_000;
const MOVES_GROUP: u64 = 9_999;
/// Added to a thread's id for its track; CPUs have the numbers below.
const THREAD_TRACKS_FROM: u64 = 100_000;

/// What became of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The file's content.
    pub json: Value,
    /// Task switches read.
    pub switches: u64,
    /// Pages moved, by the kernel's reason.
    pub pages: BTreeMap<String, u64>,
    /// Events the kernel dropped because a buffer was full.
    pub dropped: u64,
    /// Lines of a known event that could not be read.
    pub unread: u64,
}

struct Running {
    since_us: f64,
    tid: u64,
    name: String,
}

struct Builder<'a> {
    node_of_cpu: &'a BTreeMap<u32, u32>,
    events: Vec<Value>,
    running: BTreeMap<u32, Running>,
    /// Group of each thread name.
    groups: BTreeMap<String, u64>,
    /// Threads whose track has a name.
    threads: BTreeMap<(u64, u64), ()>,
    last_us: f64,
    switches: u64,
    pages: BTreeMap<String, u64>,
    dropped: u64,
    unread: u64,
}

/// Makes the timeline; CPUs that `node_of_cpu` does not know are left out.
#[must_use]
pub fn timeline(text: &str, node_of_cpu: &BTreeMap<u32, u32>, title: &str) -> Timeline {
    let mut builder = Builder {
        node_of_cpu,
        events: Vec::new(),
        running: BTreeMap::new(),
        groups: BTreeMap::new(),
        threads: BTreeMap::new(),
        last_us: 0.0,
        switches: 0,
        pages: BTreeMap::new(),
        dropped: 0,
        unread: 0,
    };
    builder.name_nodes();
    for line in text.lines() {
        builder.line(line);
    }
    builder.finish(title)
}

impl Builder<'_> {
    fn name_nodes(&mut self) {
        self.name("process_name", MOVES_GROUP, 0, "pages moved");
        let cpus: Vec<(u32, u32)> = self.node_of_cpu.iter().map(|(c, n)| (*c, *n)).collect();
        for (cpu, node) in cpus {
            let group = NODES_FROM + u64::from(node);
            self.name("process_name", group, 0, &format!("node {node}"));
            self.name("thread_name", group, track_of_cpu(cpu), &format!("CPU {cpu}"));
        }
    }

    fn name(&mut self, what: &str, group: u64, track: u64, name: &str) {
        self.events.push(json!({"ph": "M", "name": what, "pid": group, "tid": track,
            "args": {"name": name}}));
    }

    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix(DROPPED) {
            let count =
                rest.split_once(": ").and_then(|(_, count)| count.trim().parse::<u64>().ok());
            self.dropped += count.unwrap_or(0);
            return;
        }
        if line.starts_with('#') {
            return;
        }
        let known = [
            (": sched_switch: ", Builder::switch as fn(&mut Self, f64, u32, &str) -> Option<()>),
            (": mm_migrate_pages: ", Builder::moved),
            (": sched_move_numa: ", Builder::task_moved),
            (": sched_swap_numa: ", Builder::task_moved),
        ];
        for (marker, take) in known {
            let Some((head, fields)) = line.split_once(marker) else { continue };
            let taken = when_and_where(head).and_then(|(us, cpu)| {
                self.last_us = self.last_us.max(us);
                if self.node_of_cpu.contains_key(&cpu) {
                    take(self, us, cpu, fields)
                } else {
                    Some(())
                }
            });
            self.unread += u64::from(taken.is_none());
            return;
        }
    }

    /// `prev_comm=a prev_pid=1 … ==> next_comm=b next_pid=2 next_prio=120`; names may hold
    /// anything, so fields are found from their ends.
    fn switch(&mut self, us: f64, cpu: u32, fields: &str) -> Option<()> {
        let (_, next) = fields.rsplit_once(" ==> next_comm=")?;
        let (name, rest) = next.rsplit_once(" next_pid=")?;
        let tid: u64 = rest.split(' ').next()?.parse().ok()?;
        self.stop(us, cpu);
        self.switches += 1;
        // The idle thread is nobody.
        if tid != 0 {
            self.running.insert(cpu, Running { since_us: us, tid, name: name.to_string() });
        }
        Some(())
    }

    /// Ends what runs on a CPU: a slice on the CPU's track and one on the thread's.
    fn stop(&mut self, us: f64, cpu: u32) {
        let Some(Running { since_us, tid, name }) = self.running.remove(&cpu) else { return };
        let node = self.node_of_cpu.get(&cpu).copied().unwrap_or(0);
        let length = (us - since_us).max(0.0);
        self.events.push(json!({"ph": "X", "ts": since_us, "dur": length, "name": name,
            "pid": NODES_FROM + u64::from(node), "tid": track_of_cpu(cpu), "args": {"tid": tid}}));
        let next = THREADS_FROM + self.groups.len() as u64;
        let group = *self.groups.entry(name.clone()).or_insert(next);
        if group == next {
            self.name("process_name", group, 0, &format!("threads {name}"));
        }
        let track = THREAD_TRACKS_FROM + tid;
        if self.threads.insert((group, track), ()).is_none() {
            self.name("thread_name", group, track, &format!("{name} {tid}"));
        }
        self.events.push(json!({"ph": "X", "ts": since_us, "dur": length,
            "name": format!("CPU {cpu}, node {node}"), "pid": group, "tid": track,
            "args": {"cpu": cpu, "node": node}}));
    }

    /// `nr_succeeded=1 nr_failed=0 … reason=numa_misplaced`.
    fn moved(&mut self, us: f64, cpu: u32, fields: &str) -> Option<()> {
        let number = |name| -> Option<u64> { field(fields, name)?.parse().ok() };
        let (moved, failed) = (number("nr_succeeded=")?, number("nr_failed=")?);
        let reason = field(fields, "reason=")?;
        let sum = self.pages.entry(reason.to_string()).or_default();
        *sum += moved;
        let sum = *sum;
        self.events.push(json!({"ph": "C", "ts": us, "name": reason, "pid": MOVES_GROUP,
            "args": {"pages": sum}}));
        let node = self.node_of_cpu.get(&cpu).copied().unwrap_or(0);
        self.events.push(
            json!({"ph": "i", "s": "t", "ts": us, "name": format!("{} moved: {reason}", counted(moved, "page")),
            "pid": NODES_FROM + u64::from(node), "tid": track_of_cpu(cpu),
            "args": {"moved": moved, "failed": failed}}),
        );
        Some(())
    }

    /// The kernel's balancing sends a task to another node.
    fn task_moved(&mut self, us: f64, cpu: u32, fields: &str) -> Option<()> {
        let node = self.node_of_cpu.get(&cpu).copied().unwrap_or(0);
        self.events.push(json!({"ph": "i", "s": "t", "ts": us, "name": "balancing moves a task",
            "pid": NODES_FROM + u64::from(node), "tid": track_of_cpu(cpu),
            "args": {"kernel": fields.trim()}}));
        Some(())
    }

    fn finish(mut self, title: &str) -> Timeline {
        let cpus: Vec<u32> = self.running.keys().copied().collect();
        for cpu in cpus {
            self.stop(self.last_us, cpu);
        }
        if self.dropped > 0 {
            let name = format!("{} events dropped before here", self.dropped);
            self.events.push(json!({"ph": "i", "s": "g", "ts": self.last_us, "name": name,
                "pid": MOVES_GROUP, "tid": 0, "args": {}}));
        }
        let json = json!({
            "displayTimeUnit": "ms",
            "otherData": {"title": title, "dropped_events": self.dropped, "unread_lines": self.unread},
            "traceEvents": self.events,
        });
        let Builder { switches, pages, dropped, unread, .. } = self;
        Timeline { json, switches, pages, dropped, unread }
    }
}

fn track_of_cpu(cpu: u32) -> u64 {
    1 + u64::from(cpu)
}

/// `  name-123 [004] d..2. 12.345678`: microseconds and CPU.
fn when_and_where(head: &str) -> Option<(f64, u32)> {
    let (before, seconds) = head.trim_end().rsplit_once(' ')?;
    let (_, cpu) = before.rsplit_once('[')?;
    let (cpu, _) = cpu.split_once(']')?;
    let (whole, fraction) = seconds.split_once('.')?;
    // In integers: a double would blur microseconds after some months.
    let us = whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(fraction.get(..6)?.parse().ok()?)?;
    Some((us as f64, cpu.parse().ok()?))
}

fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    fields.split_ascii_whitespace().find_map(|word| word.strip_prefix(name))
}

#[cfg(test)]
#[path = "timeline/tests.rs"]
mod tests;
