//! How much is done in the course of a run, in equal intervals from its start, as the real workloads note it.
//!
//! At most [`MOST`] intervals are kept: when there are more, each two become one. What a task does to a block is
//! shared out over the time that its lines take.

use super::{Process, Sim};
use crate::machine::LINE_BYTES;

/// Intervals that are kept, and how long they are at first: as `bench` has them.
const MOST: usize = 100;
const FIRST_NS: u64 = 250_000_000;

/// So far.
#[derive(Debug)]
pub(crate) struct Course {
    every_ns: u64,
    /// Bytes and operations, by interval.
    done: Vec<(f64, f64)>,
}

impl Default for Course {
    fn default() -> Self {
        Course { every_ns: FIRST_NS, done: Vec::new() }
    }
}

impl Course {
    /// So much was done from one time to another.
    #[inline]
    pub(crate) fn add(&mut self, from: u64, to: u64, bytes: f64, operations: f64) {
        // Nearly always; this is done for every block.
        let begins = (self.done.len() as u64).saturating_sub(1) * self.every_ns;
        if let Some(last) = self.done.last_mut()
            && (begins..=to).contains(&from)
            && to < begins + self.every_ns
        {
            last.0 += bytes;
            last.1 += operations;
            return;
        }
        while to / self.every_ns >= MOST as u64 {
            let both = |two: &[(f64, f64)]| {
                two.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
            };
            self.done = self.done.chunks(2).map(both).collect();
            self.every_ns *= 2;
        }
        let last = (to / self.every_ns) as usize;
        if self.done.len() <= last {
            self.done.resize(last + 1, (0.0, 0.0));
        }
        let mut begun = from.min(to);
        for interval in (begun / self.every_ns) as usize..=last {
            let end = to.min((interval as u64 + 1) * self.every_ns);
            let part = if to > from { (end - begun) as f64 / (to - from) as f64 } else { 1.0 };
            self.done[interval].0 += bytes * part;
            self.done[interval].1 += operations * part;
            begun = end;
        }
    }
}

impl Sim {
    /// Operations of each process that says what one is: where its threads have phases of their own, a turn of one.
    pub(super) fn operations(&self) -> Vec<f64> {
        let of = |process: &Process| match &process.script {
            Some(script) => Some(script.turns as f64),
            None => Some(process.lines / process.lines_per_operation?),
        };
        self.processes.iter().filter_map(of).collect()
    }

    /// A process's task went over so many lines since then.
    pub(super) fn note_done(&mut self, process: usize, lines: f64, since: u64) {
        let operations =
            self.processes[process].lines_per_operation.map_or(0.0, |each| lines / each);
        self.course.add(since, self.now, lines * LINE_BYTES, operations);
    }

    /// A thread has come to the end of a turn of a phase.
    #[inline(never)]
    pub(super) fn note_turn(&mut self) {
        self.course.add(self.now, self.now, 0.0, 1.0);
    }

    /// Seconds of an interval, and what was done a second in each from the start: operations, where a process says what
    /// one is, else bytes. The last interval may be shorter.
    #[must_use]
    pub fn course(&self) -> (f64, Vec<f64>) {
        let is_told = self
            .processes
            .iter()
            .any(|process| process.lines_per_operation.is_some() || process.script.is_some());
        let every_ns = self.course.every_ns;
        let end = self.rest.iter().map(|task| task.ended).max().unwrap_or(0).max(self.now);
        let rate = |(interval, &(bytes, operations)): (u64, &(f64, f64))| {
            let covered_ns = end.saturating_sub(interval * every_ns).min(every_ns);
            let done = if is_told { operations } else { bytes };
            (covered_ns > 0).then(|| done * 1e9 / covered_ns as f64)
        };
        let rates = (0..).zip(&self.course.done).filter_map(rate).collect();
        (every_ns as f64 / 1e9, rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::machine::tests::small;
    use crate::workload::tests::slices;

    #[test]
    fn what_is_done_is_in_the_interval_in_which_it_is() {
        let mut course = Course::default();
        // Of 300 ms, 50 are in the first quarter of a second and 250 in the second.
        course.add(200_000_000, 500_000_000 - 1, 600.0, 6.0);
        let [first, second] = course.done[..] else { panic!("{course:?}") };
        assert!((first.0 - 100.0).abs() < 1e-3 && (second.1 - 5.0).abs() < 1e-3, "{course:?}");
        // A hundred intervals of a quarter of a second end at 25 s; fifty of half a second do, too.
        course.add(24_999_999_999, 24_999_999_999, 1.0, 0.0);
        assert_eq!((course.done.len(), course.every_ns), (100, FIRST_NS));
        course.add(25_000_000_000, 25_000_000_000, 1.0, 0.0);
        assert_eq!((course.done.len(), course.every_ns), (51, 2 * FIRST_NS));
        assert!((course.done[0].0 - 600.0).abs() < 1e-9, "{course:?}");
    }

    #[test]
    fn rates_over_all_intervals_are_all_that_was_done() {
        for times in [1, 40, 2000] {
            let mut sim = Sim::new(&small(), &slices(4, 32, times), Options::default()).unwrap();
            let run = sim.finish();
            let (every, rates) = sim.course();
            let last = run.seconds - every * (rates.len() - 1) as f64;
            let seconds = |i: usize| if i + 1 == rates.len() { last } else { every };
            let all: f64 = rates.iter().enumerate().map(|(i, rate)| rate * seconds(i)).sum();
            assert!((all / run.bytes - 1.0).abs() < 1e-9, "{all} of {}", run.bytes);
            assert!(rates.len() <= MOST && last > 0.0 && last <= every, "{rates:?}");
        }
    }
}
