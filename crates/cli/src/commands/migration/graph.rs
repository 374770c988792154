//! From stacks of the threads that move pages to a call graph with names.

use std::collections::BTreeMap;
use std::io;

use numaherd_linux::symbols::Symbols;
use numaherd_model::Nanos;
use numaherd_report::CallGraph;
use numaherd_report::callgraph::{Frame, Point};
use numaherd_sampling::{How, Stack, Stacks};

/// A sample each so much CPU time.
pub const EVERY: Nanos = Nanos(1_000_000);
/// Frames of a smaller share of the time are left out.
const LEAST_SHARE: f64 = 0.005;
/// The call whose time is told begins here, whatever leads there on an architecture.
const CALL: &str = "sys_move_pages";

/// Whether the kernel shows its stacks to us.
pub fn can_look() -> io::Result<()> {
    Stacks::of_this_thread(EVERY).map(|_| ())
}

/// The graph of what was seen within `move_pages`.
pub fn graph(title: String, stacks: &[Stack], names: &Symbols) -> CallGraph {
    let mut all = Frame::new("move_pages");
    let mut blocked: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    for stack in stacks {
        let name = |address: &u64| {
            names.name(*address).map_or_else(|| format!("{address:#x}"), String::from)
        };
        let frames: Vec<String> = stack.frames.iter().map(name).collect();
        let Some(call) = frames.iter().position(|frame| frame.ends_with(CALL)) else { continue };
        let mut path: Vec<&str> = frames[call + 1..].iter().map(String::as_str).collect();
        let seconds = stack.time.0 as f64 / 1e9;
        if stack.how != How::Runs {
            while path.last().is_some_and(|frame| is_schedulers(frame)) {
                path.pop();
            }
        }
        match stack.how {
            How::Runs => {}
            How::Waits => {
                let place = path.last().map_or("move_pages", |frame| *frame);
                let (times, waited) = blocked.entry(place.to_string()).or_default();
                *times += stack.times;
                *waited += seconds;
                path.push("(waits)");
            }
            How::Queues => path.push("(waits for a CPU)"),
        }
        all.add(&path, seconds, stack.times);
    }
    all.prune(all.seconds * LEAST_SHARE);
    all.sort();
    let times: u64 = blocked.values().map(|(times, _)| times).sum();
    let share = |of: u64| of as f64 / times.max(1) as f64;
    let point = |(name, (times, seconds))| Point { name, times, share: share(times), seconds };
    let mut blocked: Vec<Point> = blocked.into_iter().map(point).collect();
    blocked.sort_by(|a, b| b.times.cmp(&a.times).then_with(|| a.name.cmp(&b.name)));
    CallGraph { placement: title, run: 1, all, blocked, locks: Vec::new() }
}

/// What every wait has above the function that waits: the scheduler, and what called it to take the CPU away.
fn is_schedulers(frame: &str) -> bool {
    ["schedule", "__schedule", "io_schedule", "preempt_schedule", "__perf", "perf_"]
        .iter()
        .any(|begins| frame.starts_with(begins))
        || frame.contains("cond_resched")
        || frame.starts_with("irqentry_exit")
        || frame.contains("sysvec_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Symbols {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let functions =
            ["entry", "__x64_sys_move_pages", "migrate_pages", "folio_wait_bit", "io_schedule"];
        let line = |(at, name): (usize, &&str)| format!("{:x} t {name}\n", 16 * (at + 1));
        let text: String = functions.iter().enumerate().map(line).collect();
        std::fs::write(folder.path().join("proc/kallsyms"), text).unwrap();
        Symbols::read(folder.path()).unwrap()
    }

    #[test]
    fn waits_are_told_at_the_function_that_waits_and_other_calls_are_left_out() {
        let stack = |how, frames: &[u64], ms: u64| Stack {
            how,
            frames: frames.to_vec(),
            time: Nanos(ms * 1_000_000),
            times: ms,
        };
        let stacks = [
            stack(How::Runs, &[0x10, 0x22, 0x31], 6),
            stack(How::Waits, &[0x10, 0x22, 0x31, 0x44, 0x50], 3),
            stack(How::Queues, &[0x10, 0x22, 0x31, 0x50], 1),
            stack(How::Waits, &[0x10, 0x50], 100),
        ];
        let graph = graph("move_pages, 2 threads".into(), &stacks, &names());
        let text = graph.text();
        assert!((graph.all.seconds - 0.010).abs() < 1e-9, "{text}");
        let lines: Vec<&str> = text.lines().skip(2).take(4).map(|line| &line[35..]).collect();
        assert_eq!(lines[0], "migrate_pages", "{text}");
        assert_eq!(lines[1], "  folio_wait_bit", "{text}");
        assert_eq!(lines[2], "    (waits)", "{text}");
        assert_eq!(lines[3], "  (waits for a CPU)", "{text}");
        assert_eq!(graph.blocked.len(), 1);
        assert_eq!((graph.blocked[0].name.as_str(), graph.blocked[0].times), ("folio_wait_bit", 3));
    }
}
