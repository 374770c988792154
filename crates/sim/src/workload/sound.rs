//! What is wrong with a workload file, and at which field.

use numaherd_model::places::Pair;

use super::{MOST_THREADS, Part, PhaseSpec, ProcessSpec, Workload};
use crate::SimError;
use crate::wrong::Wrong;

/// A size that was asked for, in MiB: as little as a file may have, or more.
pub(super) fn mib(bytes: u64) -> Result<u64, SimError> {
    if bytes >= 2 << 20 {
        return Ok(bytes.div_ceil(1 << 20));
    }
    let problem =
        format!("--size {bytes}: simulated memory comes in blocks of 2 MiB: give 2M or more");
    Err(SimError::Unfit { problem })
}

impl Workload {
    /// Kinds of processes that cannot come after each other as it says.
    pub(super) fn out_of_order(&self) -> Option<Wrong> {
        self.process.iter().enumerate().find_map(|(i, process)| {
            let wrong = |field, expected: &str| Some(Wrong::new(field, &[i], expected));
            let named = |other: &&ProcessSpec| other.name.is_some() && other.name == process.name;
            if self.process[..i].iter().any(|other| named(&other)) {
                return wrong("process.name", "a name that no other has");
            }
            let Some(after) = &process.after else {
                return process
                    .each
                    .and_then(|_| wrong("process.each", "with the process's after"));
            };
            let Some(before) = self.comes_after(i) else {
                return wrong("process.after", "the name of a [[process]] further up");
            };
            if process.at_once.is_some() {
                return wrong(
                    "process.at_once",
                    &format!("none: it comes in the places of {after}"),
                );
            }
            let before = self.process[before].copies;
            match process.each {
                Some(each) if !(1..=before).contains(&each) => {
                    wrong("process.each", &format!("1 to {before}, as there are copies of {after}"))
                }
                Some(each) if process.copies > before.div_ceil(each) => {
                    let most = before.div_ceil(each);
                    wrong(
                        "process.copies",
                        &format!("at most {most}, one for each {each} of {after}"),
                    )
                }
                _ => None,
            }
        })
    }
}

impl ProcessSpec {
    pub(super) fn problem(&self, process: usize) -> Option<Wrong> {
        let wrong =
            |field: &'static str, expected: &str| Some(Wrong::new(field, &[process], expected));
        if self.threads.is_some() == self.threads_per_cpu.is_some() {
            let expected = "process.threads or process.threads_per_cpu, one of them".into();
            return Some(Wrong::told_as("process", &[process], expected));
        }
        if self.threads.is_some_and(|threads| !(1..=1_000_000).contains(&threads)) {
            return wrong("process.threads", "1 to 1000000");
        }
        if self.threads_per_cpu.is_some_and(|threads| !(threads > 0.0 && threads <= 100.0)) {
            return wrong("process.threads_per_cpu", "above 0, at most 100");
        }
        if self.copies == 0 || self.copies > 10_000 {
            return wrong("process.copies", "1 to 10000");
        }
        if self.at_once.is_some_and(|copies| !(1..=10_000).contains(&copies)) {
            return wrong("process.at_once", "above 0, at most 10000");
        }
        if self.memory_mib < 2 || self.memory_mib > 1 << 24 {
            return wrong("process.memory_mib", "2 to 16777216");
        }
        if self.lines_per_operation.is_some_and(|lines| !(lines > 0.0 && lines <= 1e12)) {
            return wrong("process.lines_per_operation", "above 0, at most 1e12");
        }
        if let Some(sizes) = &self.groups {
            // Larger than the process is no mistake: threads are put into groups in turn, as far as there are any.
            let nth = sizes.iter().position(|size| !(1..=MOST_THREADS).contains(&u64::from(*size)));
            if sizes.is_empty() || nth.is_some() {
                let at: Vec<usize> = [process].into_iter().chain(nth).collect();
                let expected = format!("sizes above 0, at most {MOST_THREADS}");
                return Some(Wrong::new("process.groups", &at, expected));
            }
        }
        if !(0.0..1.0).contains(&self.shared) {
            return wrong("process.shared", "0 up to, not including, 1");
        }
        if self.rounds == Some(0) {
            return wrong("process.rounds", "above 0");
        }
        if self.phase.is_empty() {
            return wrong("process.phase", "a [[process.phase]] table");
        }
        // What is wrong with one phase alone explains what does not fit another.
        let own = self.phase.iter().map(PhaseSpec::problem);
        let mut all = own.chain(self.phase.iter().map(|phase| self.unfit(phase))).enumerate();
        all.find_map(|(i, problem)| {
            let (field, expected) = problem?;
            Some(Wrong::new(field, &[process, i % self.phase.len()], expected))
        })
    }

    /// The field of a phase that does not go with its process, and what was expected.
    fn unfit(&self, phase: &PhaseSpec) -> Option<(&'static str, &'static str)> {
        if phase.operations.is_some() && self.lines_per_operation.is_none() {
            return Some(("process.phase.operations", "with the process's lines_per_operation"));
        }
        if phase.memory == Part::SharedPart && self.shared == 0.0 {
            return Some(("process.phase.memory", "shared-part with the process's shared above 0"));
        }
        if let Some(problem) = phase.of_file_problem() {
            return Some(problem);
        }
        let parts: f64 = self.phase.iter().filter_map(|phase| phase.loops).sum();
        let each = self.phase.iter().all(|phase| phase.loops.is_some());
        if phase.loops.is_some() && (!each || (parts - 1.0).abs() > 1e-9) {
            return Some(("process.phase.loops", "a part for each phase, 1 together"));
        }
        None
    }
}

impl PhaseSpec {
    /// The field, and what was expected.
    fn problem(&self) -> Option<(&'static str, &'static str)> {
        // A sleep as long as all that is simulated, and a second for each line; more of the machine's work is another's.
        let figures = [
            ("process.phase.work", self.work, 1e3, "0 to 1e3"),
            ("process.phase.compute_ns", self.compute_ns, 1e9, "0 to 1e9"),
            ("process.phase.sleep_ms", self.sleep_ms, 1e8, "0 to 1e8"),
        ];
        if self.seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 1e5)) {
            return Some(("process.phase.seconds", "above 0, at most 100000"));
        }
        let others = [self.seconds.is_some(), self.operations.is_some()];
        let given = usize::from(self.times > 0) + others.into_iter().filter(|given| *given).count();
        if given != 1 {
            return Some((
                "process.phase.times",
                "a whole number above 0 (or seconds or operations, and no times)",
            ));
        }
        if self.operations == Some(0) {
            return Some(("process.phase.operations", "above 0"));
        }
        if self.loops.is_some_and(|part| !(part > 0.0 && part <= 1.0)) {
            return Some(("process.phase.loops", "above 0, at most 1"));
        }
        if self.range.is_some_and(|Pair(from, to)| !(0.0 <= from && from < to && to <= 1.0)) {
            return Some(("process.phase.range", "two parts of it, ascending, 0 to 1"));
        }
        let is_wrong = |&&(_, figure, most, _): &&(_, f64, f64, _)| !(0.0..=most).contains(&figure);
        figures.iter().find(is_wrong).map(|&(field, _, _, expected)| (field, expected))
    }
}
