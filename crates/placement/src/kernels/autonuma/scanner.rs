//! AutoNUMA's one scanner: process after process in steps, and a rest after the last.

use std::collections::BTreeMap;

use numaherd_model::{Bytes, Nanos, ProcessId};

/// Armed in one step of the scanner. Published.
pub(super) const STEP: Bytes = Bytes(128 << 20);
/// Between two steps, and between two passes over all processes. Published.
const STEP_WAIT: Nanos = Nanos(100_000_000);
const PASS_WAIT: Nanos = Nanos(10_000_000_000);
/// A process nobody of which ran for so long is passed over. Guessed.
const GONE: Nanos = Nanos(1_000_000_000);

/// Where it is, and when it goes on.
#[derive(Debug)]
pub(super) struct Scanner {
    /// Processes, and when one of each last ran.
    seen: BTreeMap<ProcessId, Nanos>,
    current: Option<ProcessId>,
    /// When the step that was made last was due, and when the next one is.
    due: Nanos,
    next: Nanos,
}

impl Scanner {
    /// As a program finds it that starts on an idle machine: in the middle of a rest.
    pub(super) fn resting() -> Scanner {
        let (due, next) = (Nanos(0), Nanos(PASS_WAIT.0 / 2));
        Scanner { seen: BTreeMap::new(), current: None, due, next }
    }

    /// Whether the task's process is the one to be armed now. The kernel has a thread for it, which waits
    /// for nobody's tick: one that comes late here, by no more than a step, does not put off the next.
    pub(super) fn is_due(&mut self, process: ProcessId, now: Nanos) -> bool {
        self.seen.insert(process, now);
        let gone =
            |current: &ProcessId| self.seen.get(current).is_none_or(|seen| now.since(*seen) > GONE);
        if self.current.as_ref().is_some_and(gone) {
            self.go_on(now);
        }
        if now < self.next || *self.current.get_or_insert(process) != process {
            return false;
        }
        self.due = self.next.max(Nanos(now.0.saturating_sub(STEP_WAIT.0)));
        self.next = Nanos(self.due.0 + STEP_WAIT.0);
        true
    }

    /// A process of this size was armed to its end. What is left of the step goes to the next.
    pub(super) fn pass_ended(&mut self, size: Bytes, now: Nanos) {
        let used = match size.0 % STEP.0 {
            0 => STEP.0,
            used => used,
        };
        self.next = Nanos(self.due.0 + STEP_WAIT.0 * used / STEP.0);
        self.go_on(now);
    }

    /// Nothing of a process can be armed, and the scanner walks past it: the whole step goes to the next.
    pub(super) fn passed_over(&mut self, now: Nanos) {
        self.next = self.due;
        self.go_on(now);
    }

    /// A process is no more.
    pub(super) fn forget(&mut self, process: ProcessId, now: Nanos) {
        if self.current == Some(process) {
            self.go_on(now);
        }
        self.seen.remove(&process);
        self.current = self.current.filter(|current| *current != process);
    }

    /// The next process, or a rest after the last.
    fn go_on(&mut self, now: Nanos) {
        let Some(current) = self.current else { return };
        self.seen.retain(|_, seen| now.since(*seen) <= GONE);
        self.current = self.seen.keys().copied().find(|process| *process > current);
        if self.current.is_none() {
            self.current = self.seen.keys().copied().next();
            self.next = Nanos(now.0 + PASS_WAIT.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(tgid: u32) -> ProcessId {
        ProcessId { tgid, start: 1 }
    }

    fn ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    #[test]
    fn the_scanner_goes_round_the_processes_and_rests_after_the_last() {
        let mut scanner = Scanner::resting();
        assert!(!scanner.is_due(process(1), ms(4999)), "half a rest is left");
        assert!(scanner.is_due(process(1), ms(5000)));
        assert!(!scanner.is_due(process(1), ms(5099)), "a step every 100 ms");
        assert!(!scanner.is_due(process(2), ms(5200)), "one process at a time");
        assert!(scanner.is_due(process(1), ms(5200)));
        scanner.pass_ended(Bytes(3 << 30), ms(5200));
        assert!(scanner.is_due(process(2), ms(5300)));
        scanner.pass_ended(Bytes(3 << 30), ms(5300));
        // Back to the first after a rest of 10 s, in which both go on running.
        for second in 6..=15 {
            assert!(!scanner.is_due(process(1), ms(second * 1000)));
            assert!(!scanner.is_due(process(2), ms(second * 1000)));
        }
        assert!(scanner.is_due(process(1), ms(15_300)));
    }

    #[test]
    fn what_is_left_of_a_step_goes_to_the_next_process() {
        let mut scanner = Scanner::resting();
        assert!(scanner.is_due(process(1), ms(5000)) && !scanner.is_due(process(2), ms(5000)));
        // 32 of 128 MiB were armed: a quarter of 100 ms.
        scanner.pass_ended(Bytes(32 << 20), ms(5000));
        assert!(!scanner.is_due(process(2), ms(5024)) && scanner.is_due(process(2), ms(5025)));
        scanner.forget(process(2), ms(5030));
        assert!(!scanner.is_due(process(1), ms(5200)), "it was the last: a rest");
    }

    #[test]
    fn a_step_made_late_does_not_put_off_the_next() {
        let mut scanner = Scanner::resting();
        assert!(scanner.is_due(process(1), ms(5019)), "due at 5000, and nobody of it ran before");
        assert!(!scanner.is_due(process(1), ms(5099)) && scanner.is_due(process(1), ms(5100)));
        // Four were due since: two are made.
        let at_once = (0..5).filter(|_| scanner.is_due(process(1), ms(5560))).count();
        assert_eq!(at_once, 2);
        assert!(!scanner.is_due(process(1), ms(5659)) && scanner.is_due(process(1), ms(5660)));
    }

    #[test]
    fn a_process_of_which_nothing_can_be_armed_takes_no_step() {
        let mut scanner = Scanner::resting();
        assert!(scanner.is_due(process(1), ms(5000)) && !scanner.is_due(process(2), ms(5000)));
        scanner.passed_over(ms(5000));
        assert!(scanner.is_due(process(2), ms(5000)), "the same step");
        scanner.passed_over(ms(5000));
        assert!(!scanner.is_due(process(1), ms(5900)), "both were looked at: a rest");
    }

    #[test]
    fn a_process_that_ended_is_passed_over() {
        let mut scanner = Scanner::resting();
        assert!(scanner.is_due(process(1), ms(5000)));
        assert!(!scanner.is_due(process(2), ms(5500)));
        // Process 1 has not run for more than a second: 2 is next.
        assert!(scanner.is_due(process(2), ms(6200)));
    }
}
