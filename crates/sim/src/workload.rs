//! Workload files: processes, their threads and memory, and what each thread does.
//!
//! ```
//! let text = r#"
//! title = "every thread writes its own slice ten times"
//! [[process]]
//! threads_per_cpu = 1.0
//! memory_mib = 1024
//! [[process.phase]]
//! memory = "slice"
//! times = 10
//! "#;
//! let workload = numaherd_sim::Workload::parse("mine", "mine.toml", text).unwrap();
//! assert_eq!(workload.process[0].threads_on(8), 8);
//! ```

mod files;
mod length;
pub mod programs;
mod rtapp;
mod share;
mod sound;
mod steps;

use numaherd_model::places::Pair;
use serde::Deserialize;

use crate::SimError;
use crate::machine::LINE_BYTES;
use crate::wrong::{self, Wrong};
pub(crate) use files::Found;
pub use files::{FilePart, FileSpec, FileStart};
use programs::Programs;
pub(crate) use steps::Pace;

/// Workloads that come with numaherd, under the names of the real ones.
const BUILT_IN: &[(&str, &str)] = &[
    ("numa01", include_str!("../../../workloads/numa01.toml")),
    ("numa01_thread_alloc", include_str!("../../../workloads/numa01_thread_alloc.toml")),
    ("numa02", include_str!("../../../workloads/numa02.toml")),
    ("numa02_smt", include_str!("../../../workloads/numa02_smt.toml")),
    ("overcommit", include_str!("../../../workloads/overcommit.toml")),
    ("jbb_like", include_str!("../../../workloads/jbb_like.toml")),
    ("kbuild", include_str!("../../../workloads/kbuild.toml")),
    ("stream", include_str!("../../../workloads/stream.toml")),
    ("phases", include_str!("../../../workloads/phases.toml")),
    ("uneven", include_str!("../../../workloads/uneven.toml")),
    ("shared", include_str!("../../../workloads/shared.toml")),
    ("hugetlb", include_str!("../../../workloads/hugetlb.toml")),
    ("lab/overcommit", include_str!("../../../workloads/lab/overcommit.toml")),
    ("lab/jbb_like", include_str!("../../../workloads/lab/jbb_like.toml")),
];

/// A workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name: the file's, without the ending.
    #[serde(skip)]
    pub name: String,
    /// One line on what it does.
    pub title: String,
    /// Where its definition comes from.
    #[serde(default)]
    pub source: String,
    /// Files that they read and write, which nobody has in its own memory.
    #[serde(default)]
    pub file: Vec<FileSpec>,
    /// Kinds of processes; all start at once.
    pub process: Vec<ProcessSpec>,
}

/// What [`Workload::resized`] changes; what is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Threads of all processes together.
    pub threads: Option<u32>,
    /// Memory of each process.
    pub size_bytes: Option<u64>,
    /// How often each thread goes over its memory, or its operations.
    pub loops: Option<u32>,
    /// Processes of a workload of one kind, with the same threads in all.
    pub processes: Option<u32>,
    /// Where everything is at the start.
    pub start: Option<Start>,
}

/// Processes of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// How many.
    #[serde(default = "one")]
    pub copies: u32,
    /// At most so many at a time; the next comes when one ends. Without it all start at once.
    pub at_once: Option<u32>,
    /// What others call it that come after it.
    pub name: Option<String>,
    /// A kind further up that has to end first; they come in the places that its processes leave, and before more of those.
    pub after: Option<String>,
    /// One of them for so many that have ended of the kind it comes after. Without it all of those have to.
    pub each: Option<u32>,
    /// Threads of each; or `threads_per_cpu`.
    pub threads: Option<u32>,
    /// Threads of each, per CPU of the machine.
    pub threads_per_cpu: Option<f64>,
    /// Memory of each.
    pub memory_mib: u64,
    /// Where it lies at the start, for placements that tie nothing.
    #[serde(default)]
    pub start: Start,
    /// What a static placement ties to nodes.
    #[serde(default)]
    pub bind: Bind,
    /// Lines of an operation, where operations are counted rather than bytes.
    pub lines_per_operation: Option<f64>,
    /// Sizes of groups of threads, in turn; a group has one slice. Without, each thread has its own.
    pub groups: Option<Vec<u32>>,
    /// Part of memory that all threads use: the first. A static placement interleaves it; slices are
    /// of the rest.
    #[serde(default)]
    pub shared: f64,
    /// Whether its memory ever takes hinting faults; that of the kernel's reserve does not.
    #[serde(default = "yes")]
    pub hinting_faults: bool,
    /// How often all phases are gone through.
    pub rounds: Option<u32>,
    /// What each thread does, one after the other.
    pub phase: Vec<PhaseSpec>,
    /// Instead: what its threads do, each kind something of its own. Threads and memory are then as many.
    #[serde(skip)]
    pub programs: Option<Box<Programs>>,
}

/// Threads of all processes together. Guessed: what a few GiB hold.
const MOST_THREADS: u64 = 1_000_000;

/// Memory of all processes that are there at once: 256 TiB. Likewise guessed.
const MOST_MIB: u64 = 1 << 28;

fn one() -> u32 {
    1
}

/// Where memory lies at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// All on the node where the first thread of the process starts.
    #[default]
    FirstTouch,
    /// All on the machine's first node.
    OneNode,
    /// Each slice on the node where its thread starts.
    OwnThread,
    /// Threads and memory as a static placement has them, and then set free.
    Placed,
    /// As its mirror has them, and then set free.
    Inverse,
}

/// What a static placement ties to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bind {
    /// Each thread with its slice.
    #[default]
    Thread,
    /// Each process whole, on its part of the nodes.
    Process,
}

/// Part of the memory that a phase goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All memory of the process.
    All,
    /// The thread's own slice: an equal part of it.
    Slice,
    /// That of the next thread; the last one's next is the first.
    NextSlice,
    /// A part of what all threads use, as long as a slice of it: another one in each round.
    SharedPart,
    /// A file, or a part of one.
    File,
    /// None: it only computes.
    #[serde(skip)]
    Nothing,
}

/// Passes over memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// Which.
    pub memory: Part,
    /// The name of the file, where it is one's memory.
    pub file: Option<String>,
    /// Which part of that; all without it.
    pub part: Option<FilePart>,
    /// The file, looked up.
    #[serde(skip)]
    pub(crate) found: Option<Found>,
    /// How often; or `seconds`.
    #[serde(default)]
    pub times: u32,
    /// For so long.
    pub seconds: Option<f64>,
    /// For so many operations; in whole passes.
    pub operations: Option<u32>,
    /// Each time is as many passes as go over as much as all memory of the process.
    #[serde(default)]
    pub whole: bool,
    /// Of other loops than the file's, the part that is this phase's.
    pub loops: Option<f64>,
    /// From where to where of that memory, as parts of it.
    pub range: Option<Pair<f64>>,
    /// Here and there, a miss at a time, rather than from end to end.
    #[serde(default)]
    pub scattered: bool,
    /// Writing (or only reading).
    #[serde(default = "yes")]
    pub writes: bool,
    /// Computing between lines of 64 bytes, in nanoseconds.
    #[serde(default)]
    pub compute_ns: f64,
    /// Of what the machine takes for a line wherever that is, so much.
    #[serde(default = "whole")]
    pub work: f64,
    /// Sleep after each pass.
    #[serde(default)]
    pub sleep_ms: f64,
    /// All threads of the process wait for each other at the end of the phase.
    #[serde(default)]
    pub barrier: bool,
    /// One thread of the process at a time: each pass is made under one lock.
    #[serde(default)]
    pub lock: bool,
}

fn yes() -> bool {
    true
}

fn whole() -> f64 {
    1.0
}

impl ProcessSpec {
    /// Threads on a machine of so many CPUs; at least one.
    #[must_use]
    pub fn threads_on(&self, cpus: usize) -> usize {
        let per_cpu = self.threads_per_cpu.map(|per_cpu| (per_cpu * cpus as f64).round() as usize);
        per_cpu.or(self.threads.map(|n| n as usize)).unwrap_or(1).max(1)
    }

    /// Copies of it that are there at once.
    pub(crate) fn copies_at_once(&self) -> u32 {
        self.at_once.map_or(self.copies, |at_once| at_once.min(self.copies))
    }

    /// Their memory.
    fn mib_at_once(&self) -> u64 {
        self.memory_mib.saturating_mul(self.copies_at_once().into())
    }

    /// The slice of each thread: its own, or its group's.
    #[must_use]
    pub fn slices(&self, threads: usize) -> Vec<usize> {
        let Some(groups) = &self.groups else { return (0..threads).collect() };
        let sizes = groups.iter().cycle().enumerate();
        let members = sizes.flat_map(|(group, &size)| (0..size).map(move |_| group));
        members.take(threads).collect()
    }

    /// Of all memory, or of a file, what a phase goes over in one pass, with so many slices.
    #[must_use]
    pub fn part(&self, phase: &PhaseSpec, slices: usize) -> f64 {
        let part = match phase.memory {
            Part::All => 1.0,
            Part::Slice | Part::NextSlice => (1.0 - self.shared) / slices as f64,
            Part::SharedPart => self.shared / slices as f64,
            Part::File => 1.0 / self.file_parts(phase, slices) as f64,
            Part::Nothing => 0.0,
        };
        phase.range.map_or(part, |Pair(from, to)| part * (to - from))
    }

    /// Passes of a phase that does not end after a time.
    #[must_use]
    pub fn passes(&self, phase: &PhaseSpec, slices: usize) -> u32 {
        // What is more than that is refused before it begins.
        self.passes_told(phase, slices) as u32
    }

    /// The same, however many they are.
    fn passes_told(&self, phase: &PhaseSpec, slices: usize) -> f64 {
        let part = self.part(phase, slices);
        match (phase.operations, self.lines_per_operation) {
            (Some(operations), Some(lines)) => {
                let pass = part * self.bytes_of(phase) / LINE_BYTES;
                (f64::from(operations) * lines / pass).round().max(1.0)
            }
            _ if phase.whole => (f64::from(phase.times) / part).round(),
            _ => f64::from(phase.times),
        }
    }

    /// With so many loops instead of the file's: rounds if there are any; else the phases' parts of them,
    /// or the last phase instead of all.
    fn set_loops(&mut self, loops: u32) {
        if let Some(rounds) = &mut self.rounds {
            *rounds = loops;
            return;
        }
        if self.phase.iter().any(|phase| phase.loops.is_none()) {
            self.phase.drain(..self.phase.len() - 1);
            self.phase[0].loops = Some(1.0);
        }
        let (mut part, mut done) = (0.0, 0);
        for phase in &mut self.phase {
            part += phase.loops.unwrap_or(1.0);
            // The parts' sum is rounded.
            let until = ((f64::from(loops) * part + 1e-6).floor() as u32).min(loops);
            (phase.times, phase.seconds) = (until - done, None);
            if let Some(operations) = &mut phase.operations {
                (*operations, phase.times) = (phase.times, 0);
            }
            done = until;
        }
        self.phase.retain(|phase| phase.times > 0 || phase.operations.is_some_and(|n| n > 0));
    }
}

/// The name and file of a workload that comes with numaherd.
fn built_in(name: &str) -> Option<(&'static str, &'static str)> {
    let same = |known: &str| known.eq_ignore_ascii_case(&name.replace('-', "_"));
    BUILT_IN.iter().copied().find(|(known, _)| same(known))
}

impl Workload {
    /// Names of the workloads that come with numaherd.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// One of them; the field's spelling (`numa01_THREAD_ALLOC`) is as good.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Result<Workload, SimError>> {
        let (name, text) = built_in(name)?;
        Some(Workload::parse(name, name, text))
    }

    /// The file of one of them.
    #[must_use]
    pub fn built_in_text(name: &str) -> Option<&'static str> {
        built_in(name).map(|(_, text)| text)
    }

    /// The one that the emulated machine runs under this name, where the document's is another.
    #[must_use]
    pub fn of_lab(name: &str) -> Option<Result<Workload, SimError>> {
        Workload::built_in(&format!("lab/{name}")).or_else(|| Workload::built_in(name))
    }

    /// With other parameters: threads of all processes together, memory of each process, and
    /// instead of all phases the last one, so many times, unless the file says what is repeated.
    ///
    /// # Errors
    /// [`SimError::Unfit`] if they make no sense together.
    pub fn resized(mut self, to: Parameters) -> Result<Workload, SimError> {
        if let (Some(processes), [process]) = (to.processes, &mut self.process[..]) {
            let share = f64::from(process.copies) / f64::from(processes);
            process.threads_per_cpu = process.threads_per_cpu.map(|per_cpu| per_cpu * share);
            process.copies = processes;
        }
        for process in &mut self.process {
            process.resize_programs(to)?;
        }
        let is_shared_out = self.process.iter().all(|process| process.programs.is_none());
        if let Some(threads) = to.threads.filter(|_| is_shared_out) {
            let each = share::out(&self.name, threads, &self.process)
                .map_err(|problem| SimError::Unfit { problem })?;
            for (process, threads) in self.process.iter_mut().zip(each) {
                (process.threads, process.threads_per_cpu) = (Some(threads), None);
            }
        }
        for process in self.process.iter_mut().filter(|process| process.programs.is_none()) {
            if let Some(bytes) = to.size_bytes {
                process.memory_mib = sound::mib(bytes)?;
            }
            if let Some(loops) = to.loops {
                process.set_loops(loops);
            }
            process.start = to.start.unwrap_or(process.start);
        }
        Ok(self)
    }

    /// Reads a workload file's text. `path` is only for messages.
    ///
    /// # Errors
    /// [`SimError::Parse`] with path, line, and what was expected.
    pub fn parse(name: &str, path: &str, text: &str) -> Result<Workload, SimError> {
        let mut workload: Workload =
            toml::from_str(text).map_err(|e| wrong::told(path, text, &e))?;
        workload.name = name.to_string();
        workload.find_files();
        match workload.problem() {
            None => Ok(workload),
            Some(problem) => Err(problem.of_file(path, text)),
        }
    }

    /// The first thing wrong.
    fn problem(&self) -> Option<Wrong> {
        if self.process.is_empty() {
            return Some(Wrong::new("process", &[], "a [[process]] table"));
        }
        let own = self.process.iter().enumerate().find_map(|(i, process)| process.problem(i));
        let own = self.wrong_file().or(own).or_else(|| self.idle_file());
        own.or_else(|| self.out_of_order()).or_else(|| self.crowd()).or_else(|| self.endless())
    }

    /// The kind that a kind comes after, by index.
    pub(crate) fn comes_after(&self, kind: usize) -> Option<usize> {
        let after = self.process[kind].after.as_ref()?;
        self.process[..kind].iter().position(|process| process.name.as_ref() == Some(after))
    }

    /// More threads, or more memory at once, than can be simulated.
    fn crowd(&self) -> Option<Wrong> {
        let (mut threads, mut mib) = (0, 0);
        self.process.iter().enumerate().find_map(|(at, process)| {
            threads += u64::from(process.copies) * u64::from(process.threads.unwrap_or(1));
            mib += process.mib_at_once();
            let wrong = |field, most, what| {
                Some(Wrong::new(
                    field,
                    &[at],
                    format!("with all copies at most {most} in all{what}"),
                ))
            };
            match (threads > MOST_THREADS, mib > MOST_MIB) {
                (true, _) => wrong("process.threads", MOST_THREADS, ""),
                (_, true) => wrong("process.memory_mib", MOST_MIB, " at a time"),
                _ => None,
            }
        })
    }

    /// Whether its threads and memory can be simulated on a machine of so many CPUs, where some are as many as those.
    ///
    /// # Errors
    /// [`SimError::Unfit`] if not.
    pub fn check_threads(&self, cpus: usize) -> Result<(), SimError> {
        let of = |process: &ProcessSpec| {
            u64::from(process.copies).saturating_mul(process.threads_on(cpus) as u64)
        };
        let sum = |of: &dyn Fn(&ProcessSpec) -> u64| {
            self.process.iter().map(of).fold(0, u64::saturating_add)
        };
        let (threads, mib) = (sum(&of), sum(&ProcessSpec::mib_at_once));
        let problem = match (threads > MOST_THREADS, mib > MOST_MIB) {
            (true, _) => {
                format!("{threads} threads on {cpus} CPUs: at most {MOST_THREADS} are simulated")
            }
            (_, true) => format!("{mib} MiB of memory: at most {MOST_MIB} are simulated"),
            _ => return Ok(()),
        };
        Err(SimError::Unfit { problem })
    }

    /// Bytes that all threads go over, on a machine of so many CPUs, if nothing ends them before.
    #[must_use]
    pub fn bytes(&self, cpus: usize) -> f64 {
        let of = |process: &ProcessSpec| {
            if let Some(programs) = &process.programs {
                return programs.bytes();
            }
            let threads = process.threads_on(cpus);
            let slices = process.slices(threads).last().map_or(1, |last| last + 1);
            let pass = |phase: &PhaseSpec| {
                let passes = process.passes_told(phase, slices);
                // As parts of all slices together: without rounding.
                let part = process.part(phase, 1);
                let each = if phase.is_shared_out() { slices } else { 1 };
                passes * process.bytes_of(phase) * part * (threads as f64 / each as f64)
            };
            let rounds = f64::from(process.rounds.unwrap_or(1));
            rounds * f64::from(process.copies) * process.phase.iter().map(pass).sum::<f64>()
        };
        self.process.iter().map(of).sum()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn slices(threads: u32, mib: u64, times: u32) -> Workload {
        let text = format!(
            "title = \"slices\"\n[[process]]\nthreads = {threads}\nmemory_mib = {mib}\n\
             [[process.phase]]\nmemory = \"slice\"\ntimes = {times}\n"
        );
        Workload::parse("slices", "slices.toml", &text).unwrap()
    }

    #[test]
    fn bytes_are_counted_as_the_definitions_have_them() {
        let mut workload = slices(4, 1024, 800);
        assert_eq!(workload.bytes(4), 800.0 * f64::from(1 << 30));
        // numa01: 2 processes × T threads × 3 GiB × 51, T = 12.
        workload.process[0] = ProcessSpec {
            copies: 2,
            threads: None,
            threads_per_cpu: Some(0.5),
            memory_mib: 3072,
            phase: vec![PhaseSpec {
                memory: Part::All,
                times: 51,
                ..workload.process[0].phase[0].clone()
            }],
            ..workload.process[0].clone()
        };
        assert_eq!(workload.bytes(24), 2.0 * 12.0 * 3.0 * 51.0 * f64::from(1 << 30));
    }

    #[test]
    fn workloads_that_come_with_numaherd_write_what_the_originals_do() {
        // On 24 CPUs: 2 × 12 × 3 × 51 GiB; 2 × (3 × 12 + 3000) GiB; 800 GiB; both at once.
        let gib = |name| Workload::built_in(name).unwrap().unwrap().bytes(24) / f64::from(1 << 30);
        let names: Vec<&str> = Workload::names().collect();
        let found: Vec<f64> = names.iter().map(|name| gib(name)).collect();
        assert_eq!(found[..5], [3672.0, 6072.0, 800.0, 800.0, 4472.0], "{names:?}");
        assert_eq!(gib("numa01_THREAD_ALLOC"), 6072.0);
        assert!(Workload::built_in("numa03").is_none());
    }

    #[test]
    fn a_workload_can_be_resized() {
        let numa01 = || Workload::built_in("numa01_thread_alloc").unwrap().unwrap();
        let (threads, loops) = (Some(8), Some(10));
        let to = Parameters { threads, size_bytes: Some(64 << 20), loops, ..Parameters::default() };
        // Two processes of 64 MiB, each byte written ten times by one thread.
        assert_eq!(numa01().resized(to).unwrap().bytes(24), f64::from(128 << 20) * 10.0);
        let odd = Parameters { threads: Some(7), ..Parameters::default() };
        assert!(numa01().resized(odd).unwrap_err().to_string().contains("a multiple of 2"));
        let sized = |bytes| {
            let to = Parameters { size_bytes: Some(bytes), ..Parameters::default() };
            numa01().resized(to).map(|workload| workload.process[0].memory_mib)
        };
        assert_eq!((sized(2 << 20).unwrap(), sized((2 << 20) + 1).unwrap()), (2, 3));
        assert!(sized((2 << 20) - 1).unwrap_err().to_string().contains("2M or more"));
        let many = Parameters { threads: Some(2_000_000), ..Parameters::default() };
        assert!(numa01().resized(many).unwrap_err().to_string().contains("at most 1000000"));
    }

    #[test]
    fn a_wrong_file_says_line_and_what_was_expected() {
        let says = |text: &str| Workload::parse("w", "w.toml", text).unwrap_err().to_string();
        let good = "title = \"t\"\n[[process]]\nthreads = 1\nmemory_mib = 2\n[[process.phase]]\nmemory = \"all\"\ntimes = 1\n";
        Workload::parse("w", "w.toml", good).unwrap();
        assert!(says(&good.replace("\"all\"", "\"some\"")).starts_with("w.toml:6: "));
        let both = good.replace("threads = 1", "threads = 1\nthreads_per_cpu = 1.0");
        assert!(says(&both).starts_with("w.toml:2: expected process.threads or"));
        assert!(
            says(&good.replace("times = 1", "times = 0"))
                .contains("w.toml:7: expected process.phase.times: a whole number above 0")
        );
        assert!(says(&good.replace("times", "tmes")).contains("tmes"));
    }
}
