//! What is wrong with a workload file, and at which line.

use super::{Part, PhaseSpec, ProcessSpec};
use numaherd_model::places;

/// What is wrong, and where.
pub(super) struct Wrong {
    pub process: usize,
    pub phase: Option<usize>,
    pub key: &'static str,
    pub expected: String,
}

impl Wrong {
    /// The line of the key in its table, or of the table, from 1.
    pub fn line(&self, text: &str) -> usize {
        let (mut process, mut phase) = (0, 0);
        let mut found = 1;
        for (line, number) in text.lines().zip(1..) {
            let header = places::header(line);
            match header {
                Some("process") => (process, phase) = (process + 1, 0),
                Some("process.phase") => phase += 1,
                _ => {}
            }
            let here = process == self.process + 1 && phase == self.phase.map_or(0, |p| p + 1);
            if here && header.is_some() {
                found = number;
            } else if here
                && !self.key.is_empty()
                && line.split('=').next().map(str::trim) == Some(self.key)
            {
                return number;
            }
        }
        found
    }
}

impl ProcessSpec {
    pub(super) fn problem(&self, process: usize) -> Option<Wrong> {
        let wrong = |key: &'static str, expected: &str| {
            let expected = if key.is_empty() {
                expected.to_string()
            } else {
                format!("process.{key}: {expected}")
            };
            Some(Wrong { process, phase: None, key, expected })
        };
        if self.threads.is_some() == self.threads_per_cpu.is_some() {
            return wrong("", "process.threads or process.threads_per_cpu, one of them");
        }
        if self.threads.is_some_and(|threads| !(1..=1_000_000).contains(&threads)) {
            return wrong("threads", "1 to 1000000");
        }
        if self.threads_per_cpu.is_some_and(|threads| !(threads > 0.0 && threads <= 100.0)) {
            return wrong("threads_per_cpu", "above 0, at most 100");
        }
        if self.copies == 0 || self.copies > 10_000 {
            return wrong("copies", "1 to 10000");
        }
        if self.at_once == Some(0) {
            return wrong("at_once", "above 0");
        }
        if self.memory_mib < 2 || self.memory_mib > 1 << 24 {
            return wrong("memory_mib", "2 to 16777216");
        }
        if self.lines_per_operation.is_some_and(|lines| !(lines > 0.0 && lines <= 1e12)) {
            return wrong("lines_per_operation", "above 0");
        }
        if self.groups.as_ref().is_some_and(|sizes| sizes.is_empty() || sizes.contains(&0)) {
            return wrong("groups", "sizes above 0");
        }
        if !(0.0..1.0).contains(&self.shared) {
            return wrong("shared", "0 up to, not including, 1");
        }
        if self.rounds == Some(0) {
            return wrong("rounds", "above 0");
        }
        if self.phase.is_empty() {
            return wrong("", "process.phase: a [[process.phase]] table");
        }
        self.phase.iter().enumerate().find_map(|(i, phase)| {
            let (key, expected) = phase.problem().or_else(|| self.unfit(phase))?;
            let expected = format!("process.phase.{key}: {expected}");
            Some(Wrong { process, phase: Some(i), key, expected })
        })
    }

    /// The key of a phase that does not go with its process, and what was expected.
    fn unfit(&self, phase: &PhaseSpec) -> Option<(&'static str, &'static str)> {
        if phase.operations.is_some() && self.lines_per_operation.is_none() {
            return Some(("operations", "with the process's lines_per_operation"));
        }
        if phase.memory == Part::SharedPart && self.shared == 0.0 {
            return Some(("memory", "shared-part with the process's shared above 0"));
        }
        let parts: f64 = self.phase.iter().filter_map(|phase| phase.loops).sum();
        let each = self.phase.iter().all(|phase| phase.loops.is_some());
        if phase.loops.is_some() && (!each || (parts - 1.0).abs() > 1e-9) {
            return Some(("loops", "a part for each phase, 1 together"));
        }
        None
    }
}

impl PhaseSpec {
    /// The key, and what was expected.
    fn problem(&self) -> Option<(&'static str, &'static str)> {
        let sound = |figure: f64| figure.is_finite() && (0.0..=1e9).contains(&figure);
        if self.seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 1e5)) {
            return Some(("seconds", "above 0, at most 100000"));
        }
        let others = [self.seconds.is_some(), self.operations.is_some()];
        let given = usize::from(self.times > 0) + others.into_iter().filter(|given| *given).count();
        if given != 1 {
            return Some((
                "times",
                "a whole number above 0 (or seconds or operations, and no times)",
            ));
        }
        if self.operations == Some(0) {
            return Some(("operations", "above 0"));
        }
        if self.loops.is_some_and(|part| !(part > 0.0 && part <= 1.0)) {
            return Some(("loops", "above 0, at most 1"));
        }
        if self.range.is_some_and(|places::Pair(from, to)| !(0.0 <= from && from < to && to <= 1.0))
        {
            return Some(("range", "two parts of it, ascending, 0 to 1"));
        }
        if !sound(self.work) {
            return Some(("work", "0 to 1e9"));
        }
        if !sound(self.compute_ns) {
            return Some(("compute_ns", "0 to 1e9"));
        }
        (!sound(self.sleep_ms)).then_some(("sleep_ms", "0 to 1e9"))
    }
}
