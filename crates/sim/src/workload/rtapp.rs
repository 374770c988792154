//! rt-app's files: <https://github.com/scheduler-tools/rt-app>, `doc/tutorial.txt` for the grammar, its reader
//! (`src/rt-app_parse_config.c`) where that says more. All its tasks are threads of one process.
//!
//! What is taken, passed over and refused: docs/simulator.md. Added is memory that threads go over: a resource of the
//! type `memory` and an event `touch`, whose fields are those of our own files.
//!
//! ```
//! let text = r#"{
//!     "global": { "duration": 2 },
//!     "tasks": { "half": { "run": 5000, "timer": { "ref": "unique", "period": 10000 } } },
//! }"#;
//! let workload = numaherd_sim::Workload::parse_rt_app("half", "half.json", text).unwrap();
//! assert_eq!(workload.process[0].threads_on(8), 1);
//! ```

mod events;
mod fields;
mod json;
mod locks;

use numaherd_model::Nanos;

use super::programs::{EventPhase, MemorySpec, Programs, TaskSpec};
use super::{Bind, MOST_MIB, MOST_THREADS, ProcessSpec, Start, Workload};
use crate::SimError;
use fields::{
    INT, cpus, fields, find, integer, loops, microseconds, missing, once, only, policy, text,
    unknown, wrong, yes_or_no,
};
use json::{Fault, Key, Node, Value};

/// As long as is simulated at the most.
const MOST_SECONDS: i64 = 100_000;

/// Memory of one resource, as a process's.
const MOST_MEMORY_MIB: i64 = 1 << 24;

/// What rt-app keeps a thread's memory for its `mem` events in, unless `mem_buffer_size` says it: 4 MiB.
const MEM_BUFFER_BYTES: i64 = 4 << 20;

/// What rt-app calls its resources.
const RESOURCES: [&str; 8] =
    ["mutex", "wait", "timer", "signal", "broadcast", "sync", "sleep", "run"];

/// Properties of a thread or a phase that change nothing where all tasks weigh the same and no clock changes.
const WEIGHTS: [&str; 9] = [
    "priority",
    "util_min",
    "util_max",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "period",
    "deadline",
    "taskgroup",
];

impl Workload {
    /// Reads the text of a file as rt-app has them. `path` is only for messages.
    ///
    /// # Errors
    /// [`SimError::Parse`] with path, line, and what was expected.
    pub fn parse_rt_app(name: &str, path: &str, text: &str) -> Result<Workload, SimError> {
        let programs = json::read(text).and_then(|root| Reader::default().file(&root));
        let programs = programs.map_err(|fault| SimError::Parse {
            path: path.into(),
            line: fault.line,
            expected: fault.expected,
        })?;
        Ok(Workload {
            name: name.into(),
            title: "as rt-app has it".into(),
            source: String::new(),
            file: Vec::new(),
            process: vec![ProcessSpec::of_programs(programs)],
        })
    }
}

impl ProcessSpec {
    /// One whose threads each do something of their own.
    pub(super) fn of_programs(programs: Programs) -> ProcessSpec {
        let mut process = ProcessSpec {
            copies: 1,
            at_once: None,
            name: None,
            after: None,
            each: None,
            threads: None,
            threads_per_cpu: None,
            memory_mib: 0,
            start: Start::FirstTouch,
            bind: Bind::Thread,
            lines_per_operation: None,
            groups: None,
            shared: 0.0,
            hinting_faults: true,
            rounds: None,
            phase: Vec::new(),
            programs: Some(Box::new(programs)),
        };
        process.count_programs();
        process
    }

    /// Threads and memory, as its programs have them.
    pub(super) fn count_programs(&mut self) {
        if let Some(programs) = &self.programs {
            self.threads = Some(u32::try_from(programs.threads()).unwrap_or(u32::MAX));
            self.memory_mib = programs.memory_mib();
        }
    }
}

/// What has been read so far.
struct Reader {
    programs: Programs,
    mem_buffer_bytes: u64,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            programs: Programs {
                duration: None,
                tasks: Vec::new(),
                work: Vec::new(),
                memory: Vec::new(),
                locks: Vec::new(),
                conditions: Vec::new(),
                barriers: Vec::new(),
                timers: Vec::new(),
                passed_over: Vec::new(),
            },
            mem_buffer_bytes: MEM_BUFFER_BYTES as u64,
        }
    }
}

impl Reader {
    fn file(mut self, root: &Node<'_>) -> Result<Programs, Fault> {
        let all = fields(root, "the file")?;
        only(all, "in the file", &["global", "resources", "tasks"])?;
        if let Some(global) = find(all, "global") {
            self.global(global)?;
        }
        if let Some(resources) = find(all, "resources") {
            self.resources(resources)?;
        }
        let Some(tasks) = find(all, "tasks") else { return missing(root, "tasks") };
        self.tasks(tasks)?;
        self.check_end(tasks)?;
        self.check_use(find(all, "resources"))?;
        Ok(self.programs)
    }

    fn global(&mut self, node: &Node<'_>) -> Result<(), Fault> {
        let known = [
            "duration",
            "mem_buffer_size",
            "default_policy",
            "calibration",
            "pi_enabled",
            "lock_pages",
            "logdir",
            "log_basename",
            "log_size",
            "ftrace",
            "gnuplot",
            "io_device",
            "cumulative_slack",
            "frag",
        ];
        let all = fields(node, "global")?;
        only(all, "global", &known)?;
        for (key, value) in all {
            let field = format!("global.{}", key.name);
            match key.name.as_str() {
                "duration" if matches!(value.value, Value::Number("-1")) => {}
                "duration" => {
                    let seconds = integer(value, &field, 1..=MOST_SECONDS).or_else(|_| {
                        wrong(value, &field, format!("seconds, 1 to {MOST_SECONDS}, or -1"))
                    })?;
                    self.programs.duration = Some(Nanos(u64::from(seconds) * 1_000_000_000));
                }
                "mem_buffer_size" => {
                    self.mem_buffer_bytes = integer(value, &field, 64..=*INT.end())?.into();
                }
                "default_policy" => policy(value, &field)?,
                "pi_enabled" | "lock_pages" | "gnuplot" | "cumulative_slack" => {
                    yes_or_no(value, &field)?;
                }
                "logdir" | "log_basename" | "io_device" => {
                    text(value, &field)?;
                }
                // Text, a figure, or, of ftrace, what it was in older files.
                _ => match value.value {
                    Value::Text(_) | Value::Number(_) | Value::Bool(_) => {}
                    _ => return wrong(value, &field, "text or a number"),
                },
            }
        }
        Ok(())
    }

    fn resources(&mut self, node: &Node<'_>) -> Result<(), Fault> {
        // So it was in its first version.
        if matches!(node.value, Value::Number(_)) {
            return Ok(());
        }
        let all = fields(node, "resources")?;
        for (i, (key, value)) in all.iter().enumerate() {
            once(&all[..i], key, "resources")?;
            let field = format!("resources.{}", key.name);
            let own = fields(value, &field)?;
            match find(own, "type").map(|kind| text(kind, &format!("{field}.type"))).transpose()? {
                None => {}
                Some("memory") => self.memory(&key.name, value, &field)?,
                Some(kind) if RESOURCES.contains(&kind) => {}
                Some(_) => {
                    let kind = find(own, "type").unwrap_or(value);
                    let expected = format!("memory or one of {}", RESOURCES.join(", "));
                    return wrong(kind, &format!("{field}.type"), expected);
                }
            }
        }
        Ok(())
    }

    fn memory(&mut self, name: &str, node: &Node<'_>, field: &str) -> Result<(), Fault> {
        let all = fields(node, field)?;
        only(all, field, &["type", "memory_mib", "start"])?;
        let mib = format!("{field}.memory_mib");
        let Some(size) = find(all, "memory_mib") else { return missing(node, &mib) };
        let size = integer(size, &mib, 2..=MOST_MEMORY_MIB)?;
        let field = format!("{field}.start");
        let told = find(all, "start").map(|start| (start, text(start, &field)));
        let start = match told {
            None => Start::FirstTouch,
            Some((node, start)) => match start? {
                "first-touch" => Start::FirstTouch,
                "one-node" => Start::OneNode,
                "own-thread" => Start::OwnThread,
                _ => return wrong(node, &field, "first-touch, one-node or own-thread"),
            },
        };
        let bytes = u64::from(size) << 20;
        self.programs.memory.push(MemorySpec { name: name.into(), bytes, own: false, start });
        Ok(())
    }

    fn tasks(&mut self, node: &Node<'_>) -> Result<(), Fault> {
        let all = fields(node, "tasks")?;
        for (i, (key, task)) in all.iter().enumerate() {
            once(&all[..i], key, "tasks")?;
            self.task(&key.name, task)?;
            if self.programs.threads() > MOST_THREADS {
                let field = format!("tasks.{}.instance", key.name);
                let at = fields(task, "").ok().and_then(|all| find(all, "instance"));
                let most = format!("at most {MOST_THREADS} threads with those of the others");
                return wrong(at.unwrap_or(task), &field, most);
            }
        }
        if self.programs.threads() == 0 {
            return wrong(node, "tasks", "a task, of one instance at least");
        }
        if self.programs.memory_mib() > MOST_MIB {
            return wrong(node, "tasks", format!("tasks that use at most {MOST_MIB} MiB in all"));
        }
        Ok(())
    }

    fn task(&mut self, name: &str, node: &Node<'_>) -> Result<(), Fault> {
        let field = format!("tasks.{name}");
        let all = fields(node, &field)?;
        let phases = find(all, "phases");
        let mut task = TaskSpec {
            name: name.into(),
            threads: 1,
            delay: Nanos(0),
            cpus: None,
            loops: None,
            phases: Vec::new(),
        };
        for (i, (key, value)) in all.iter().enumerate() {
            let own = format!("{field}.{}", key.name);
            match key.name.as_str() {
                "instance" => task.threads = integer(value, &own, INT)?,
                "delay" => task.delay = microseconds(value, &own)?,
                "loop" => task.loops = loops(value, &own)?,
                "cpus" => task.cpus = Some(cpus(value, &own)?),
                "phases" => {}
                _ if self.is_property(key, value, &own)? => {}
                _ if events::kind(&key.name).is_some() => {
                    if phases.is_some() {
                        let expected =
                            format!("{own}: none beside phases, which it would be one of");
                        return Err(Fault { line: key.line, expected });
                    }
                    continue;
                }
                _ => {
                    let more = ["instance", "delay", "phases"];
                    return Err(unknown(key, &field, &[&more[..], &events::known()].concat()));
                }
            }
            once(&all[..i], key, &field)?;
        }
        self.programs.tasks.push(task);
        let mut told = Vec::new();
        let mut written = Vec::new();
        match phases {
            None => {
                told.push(EventPhase {
                    name: String::new(),
                    loops: Some(1),
                    cpus: None,
                    events: self.events(all, node, &field, name)?,
                });
                written.push((all, field));
            }
            Some(phases) => {
                let field = format!("{field}.phases");
                let all = fields(phases, &field)?;
                for (i, (key, phase)) in all.iter().enumerate() {
                    once(&all[..i], key, &field)?;
                    told.push(self.phase(&key.name, phase, &field, name)?);
                    let own = format!("{field}.{}", key.name);
                    written.push((fields(phase, &own)?, own));
                }
                if told.is_empty() {
                    return wrong(phases, &field, "a phase");
                }
            }
        }
        locks::check(&told, &written)?;
        if let Some(task) = self.programs.tasks.last_mut() {
            task.phases = told;
        }
        Ok(())
    }

    fn phase(
        &mut self,
        name: &str,
        node: &Node<'_>,
        phases: &str,
        task: &str,
    ) -> Result<EventPhase, Fault> {
        let field = format!("{phases}.{name}");
        let all = fields(node, &field)?;
        let (mut times, mut where_to) = (Some(1), None);
        for (i, (key, value)) in all.iter().enumerate() {
            let own = format!("{field}.{}", key.name);
            match key.name.as_str() {
                "loop" => times = loops(value, &own)?,
                "cpus" => where_to = Some(cpus(value, &own)?),
                _ if self.is_property(key, value, &own)? => {}
                _ if events::kind(&key.name).is_some() => continue,
                _ => return Err(unknown(key, &field, &events::known())),
            }
            once(&all[..i], key, &field)?;
        }
        let events = self.events(all, node, &field, task)?;
        Ok(EventPhase { name: name.into(), loops: times, cpus: where_to, events })
    }

    /// Whether it is a property of a thread or a phase that is passed over.
    fn is_property(&mut self, key: &Key, node: &Node<'_>, field: &str) -> Result<bool, Fault> {
        match key.name.as_str() {
            "policy" => policy(node, field)?,
            "nodes_membind" | "membind_nodes" => {
                let instead =
                    "none: say where memory lies by a memory's start, or by the placement";
                return wrong(node, field, instead);
            }
            "taskgroup" => {
                text(node, field)?;
            }
            name if WEIGHTS.contains(&name) => {
                integer(node, field, INT).or_else(|fault| match node.value {
                    Value::Number(number) if number.parse::<i32>().is_ok() => Ok(0),
                    _ => Err(fault),
                })?;
            }
            _ => return Ok(false),
        }
        if key.name != "policy" && !self.programs.passed_over.contains(&key.name) {
            self.programs.passed_over.push(key.name.clone());
        }
        Ok(true)
    }

    /// Somebody goes over each memory: one of no use is a slip, as a file of our own files is.
    fn check_use(&self, resources: Option<&Node<'_>>) -> Result<(), Fault> {
        // It may be a number, which has no memory.
        let Some(Value::Object(all)) = resources.map(|node| &node.value) else { return Ok(()) };
        for (number, memory) in self.programs.memory.iter().enumerate() {
            let is_used = self.programs.work.iter().any(|work| work.memory == Some(number));
            let key = all.iter().map(|(key, _)| key).find(|key| key.name == memory.name);
            // What `mem` writes is of no resource.
            if let Some(key) = key.filter(|_| !memory.own && !is_used) {
                let expected = format!("resources.{}: memory that a touch goes over", key.name);
                return Err(Fault { line: key.line, expected });
            }
        }
        Ok(())
    }

    /// Somebody ends, or all do.
    fn check_end(&self, tasks: &Node<'_>) -> Result<(), Fault> {
        if self.programs.duration.is_some() {
            return Ok(());
        }
        for ((key, node), task) in fields(tasks, "tasks")?.iter().zip(&self.programs.tasks) {
            let for_ever = task.phases.iter().find(|phase| phase.loops.is_none());
            let field = format!("tasks.{}", key.name);
            let (at, field) = match for_ever {
                _ if task.threads == 0 => continue,
                Some(phase) => (node, format!("{field}.phases.{}.loop", phase.name)),
                None if task.loops.is_none() => (node, format!("{field}.loop")),
                None => continue,
            };
            let own = fields(at, &field)?;
            let (line, found) = find(own, "loop")
                .map_or((key.line, "-1, as it is where nothing is told".into()), |told| {
                    (told.line, told.found())
                });
            let expected = format!(
                "{field}: how often, without global.duration, which ends what goes on for ever; found {found}"
            );
            return Err(Fault { line, expected });
        }
        Ok(())
    }
}
