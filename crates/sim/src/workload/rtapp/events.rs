//! Events of rt-app's tasks. A key is an event by how it begins, as in rt-app: `run0` and `run_long` are `run`.

use numaherd_model::Nanos;
use numaherd_model::places::Pair;

use super::Reader;
use super::fields::{
    Fields, INT, fields, find, integer, list, microseconds, missing, number, only, text, wrong,
    yes_or_no,
};
use super::json::{Fault, Key, Node, Value};
use crate::workload::programs::{
    MemorySpec, Programs, TaskEvent, TimerSpec, Work, computing, going_over,
};
use crate::workload::{Part, PhaseSpec, Start};

/// In rt-app's order: the first that a key begins with is meant. Ours is the last.
const KINDS: [&str; 18] = [
    "runtime", "run", "sleep", "mem", "iorun", "lock", "unlock", "signal", "broad", "wait", "sync",
    "barrier", "timer", "resume", "suspend", "yield", "fork", "touch",
];

/// Those of rt-app that are not simulated.
const REFUSED: [&str; 2] = ["iorun", "fork"];

/// What takes no time.
const NOTHING: TaskEvent = TaskEvent::Sleep(Nanos(0));

/// Computing between lines, at the most, as in our own files.
const MOST_COMPUTE_NS: f64 = 1e9;

/// Which event a key names.
pub(super) fn kind(key: &str) -> Option<&'static str> {
    KINDS.into_iter().find(|kind| key.starts_with(kind))
}

/// What a phase may have, for who gave something else.
pub(super) fn known() -> Vec<&'static str> {
    let mut known = vec!["loop", "cpus", "policy"];
    known.extend(simulated());
    known
}

fn simulated() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().filter(|kind| !REFUSED.contains(kind))
}

impl Reader {
    /// Those of a phase, in their order.
    pub(super) fn events(
        &mut self,
        all: Fields<'_, '_>,
        node: &Node<'_>,
        field: &str,
        task: &str,
    ) -> Result<Vec<TaskEvent>, Fault> {
        let mut events = Vec::new();
        for (key, value) in all {
            if let Some(kind) = kind(&key.name).filter(|_| !is_property(&key.name)) {
                let field = format!("{field}.{}", key.name);
                self.event(kind, key, value, &field, task, &mut events)?;
            }
        }
        if events.is_empty() {
            return wrong(node, field, format!("an event: {}", list_of(simulated())));
        }
        Ok(events)
    }

    fn event(
        &mut self,
        kind: &str,
        key: &Key,
        node: &Node<'_>,
        field: &str,
        task: &str,
        events: &mut Vec<TaskEvent>,
    ) -> Result<(), Fault> {
        let programs = &mut self.programs;
        let event = match kind {
            "run" | "runtime" => match microseconds(node, field)? {
                Nanos(0) => NOTHING,
                time => {
                    let phase = computing(time, kind == "runtime");
                    work(programs, Work { memory: None, phase })
                }
            },
            "sleep" => TaskEvent::Sleep(microseconds(node, field)?),
            "timer" => self.timer(node, field, task)?,
            "mem" => return self.mem(node, field, task, events),
            "touch" => self.touch(node, field)?,
            "lock" => TaskEvent::Lock(name(&mut programs.locks, node, field)?),
            "unlock" => TaskEvent::Unlock(name(&mut programs.locks, node, field)?),
            "signal" => TaskEvent::Signal(name(&mut programs.conditions, node, field)?),
            "broad" => TaskEvent::Broadcast(name(&mut programs.conditions, node, field)?),
            "wait" => {
                let (condition, lock) = self.condition(node, field)?;
                TaskEvent::Wait { condition, lock }
            }
            "sync" => {
                let (condition, lock) = self.condition(node, field)?;
                TaskEvent::Sync { condition, lock }
            }
            "barrier" => TaskEvent::Barrier(name(&mut programs.barriers, node, field)?),
            "yield" => match node.value {
                Value::Missing | Value::Text(_) => TaskEvent::Yield,
                _ => return wrong(node, field, "text in quotes, which may be empty"),
            },
            "suspend" => TaskEvent::Suspend(self.suspended(node, field, task)?),
            "resume" => TaskEvent::Broadcast(self.suspended(node, field, task)?),
            _ => {
                let expected =
                    format!("{field}: {kind} is not simulated, but {}", list_of(simulated()));
                return Err(Fault { line: key.line, expected });
            }
        };
        events.push(event);
        Ok(())
    }

    /// Whom a thread waits for: with no name, or an empty one, its own.
    fn suspended(&mut self, node: &Node<'_>, field: &str, task: &str) -> Result<usize, Fault> {
        let name = match &node.value {
            Value::Missing => task,
            Value::Text(name) if name.is_empty() => task,
            _ => text(node, field)?,
        };
        Ok(Programs::place_in(&mut self.programs.conditions, name))
    }

    fn condition(&mut self, node: &Node<'_>, field: &str) -> Result<(usize, usize), Fault> {
        let all = fields(node, field)?;
        only(all, field, &["ref", "mutex"])?;
        let of = |name: &str, list: &mut Vec<String>| {
            let field = format!("{field}.{name}");
            let told = find(all, name).map_or_else(|| missing(node, &field), Ok)?;
            self::name(list, told, &field)
        };
        let condition = of("ref", &mut self.programs.conditions)?;
        Ok((condition, of("mutex", &mut self.programs.locks)?))
    }

    fn timer(&mut self, node: &Node<'_>, field: &str, task: &str) -> Result<TaskEvent, Fault> {
        let all = fields(node, field)?;
        only(all, field, &["ref", "period", "mode"])?;
        let own = format!("{field}.ref");
        let told = find(all, "ref").map(|told| text(told, &own)).transpose()?;
        // So rt-app calls one that has no name.
        let name = told.unwrap_or("unknown");
        let own = name.starts_with("unique");
        // Those of different tasks are different ones.
        let name = if own { format!("{name} of {task}") } else { name.into() };
        let timers = &mut self.programs.timers;
        let known = timers.iter().position(|timer| timer.name == name);
        let timer = known.unwrap_or_else(|| {
            timers.push(TimerSpec { name, own, absolute: false });
            timers.len() - 1
        });
        let mode = format!("{field}.mode");
        match find(all, "mode").map(|node| Ok((node, text(node, &mode)?))).transpose()? {
            None | Some((_, "relative")) => {}
            Some((_, "absolute")) => timers[timer].absolute = true,
            Some((node, _)) => return wrong(node, &mode, "relative or absolute"),
        }
        let field = format!("{field}.period");
        let Some(period) = find(all, "period") else { return missing(node, &field) };
        Ok(TaskEvent::Timer(timer, microseconds(period, &field)?))
    }

    /// Writes so many bytes into the thread's buffer, from its beginning on and over again.
    ///
    /// Example: 10 MiB into a buffer of 4 are two passes, and one over its first half.
    fn mem(
        &mut self,
        node: &Node<'_>,
        field: &str,
        task: &str,
        events: &mut Vec<TaskEvent>,
    ) -> Result<(), Fault> {
        let bytes = u64::from(integer(node, field, INT)?);
        let buffer = self.mem_buffer_bytes;
        let name = format!("mem of {task}");
        let memory = self.programs.memory.iter().position(|known| known.own && known.name == name);
        let memory = memory.unwrap_or_else(|| {
            let start = Start::OwnThread;
            self.programs.memory.push(MemorySpec { name, bytes: buffer, own: true, start });
            self.programs.memory.len() - 1
        });
        let mut write = |phase: PhaseSpec| {
            events.push(work(&mut self.programs, Work { memory: Some(memory), phase }));
        };
        let slice = |times| going_over(Part::Slice, times);
        if bytes >= buffer {
            // At most what fits in 32 bits, as the bytes do.
            write(slice((bytes / buffer) as u32));
        }
        if bytes % buffer > 0 {
            let range = Some(Pair(0.0, (bytes % buffer) as f64 / buffer as f64));
            write(PhaseSpec { range, ..slice(1) });
        }
        if bytes == 0 {
            events.push(NOTHING);
        }
        Ok(())
    }

    /// Goes over memory, as a phase of our own files does.
    fn touch(&mut self, node: &Node<'_>, field: &str) -> Result<TaskEvent, Fault> {
        let all = fields(node, field)?;
        let known = ["ref", "memory", "times", "range", "scattered", "writes", "compute_ns"];
        only(all, field, &known)?;
        let of = |name: &str| format!("{field}.{name}");
        let Some(told) = find(all, "ref") else { return missing(node, &of("ref")) };
        let name = text(told, &of("ref"))?;
        let known = self.programs.memory.iter().position(|known| !known.own && known.name == name);
        let Some(memory) = known else {
            return wrong(told, &of("ref"), "the name of one of resources, of the type memory");
        };
        let Some(part) = find(all, "memory") else { return missing(node, &of("memory")) };
        let part = match text(part, &of("memory"))? {
            "all" => Part::All,
            "slice" => Part::Slice,
            "next-slice" => Part::NextSlice,
            _ => return wrong(part, &of("memory"), "all, slice or next-slice"),
        };
        let mut phase = going_over(part, 1);
        for (key, value) in all {
            let field = of(&key.name);
            match key.name.as_str() {
                "times" => phase.times = integer(value, &field, 1..=*INT.end())?,
                "scattered" => phase.scattered = yes_or_no(value, &field)?,
                "writes" => phase.writes = yes_or_no(value, &field)?,
                "compute_ns" => phase.compute_ns = number(value, &field, 0.0..=MOST_COMPUTE_NS)?,
                "range" => phase.range = Some(range(value, &field)?),
                _ => {}
            }
        }
        Ok(work(&mut self.programs, Work { memory: Some(memory), phase }))
    }
}

fn range(node: &Node<'_>, field: &str) -> Result<Pair<f64>, Fault> {
    let expected = "two parts of it, ascending, 0 to 1";
    let [from, to] = list(node, field)? else { return wrong(node, field, expected) };
    let [from, to] = [number(from, field, 0.0..=1.0)?, number(to, field, 0.0..=1.0)?];
    if from < to { Ok(Pair(from, to)) } else { wrong(node, field, expected) }
}

/// What a key names otherwise, though an event's name begins so.
fn is_property(key: &str) -> bool {
    key == "membind_nodes"
}

/// The place of what a node names, among those that are known.
fn name(list: &mut Vec<String>, node: &Node<'_>, field: &str) -> Result<usize, Fault> {
    Ok(Programs::place_in(list, text(node, field)?))
}

fn work(programs: &mut Programs, work: Work) -> TaskEvent {
    programs.work.push(work);
    TaskEvent::Work(programs.work.len() - 1)
}

fn list_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
