//! The schema: one JSON object a line, `{"v":1,"t":…,"event":"…",…}`.
//!
//! `t` is nanoseconds on the monotonic clock of the machine it happened on. Readers skip lines
//! they cannot read (the last one may be torn) and refuse a newer version.

use numaherd_model::{Action, Change, Nanos, Outcome, ProcessId, Waiting};
use serde::{Deserialize, Serialize};

/// Version of the schema.
pub const VERSION: u32 = 1;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A run begins.
    Begin {
        /// Its id.
        run: String,
        /// The boot it belongs to: after a reboot nothing is left to undo.
        boot: String,
        /// Process that makes the changes.
        pid: u32,
        /// Its start time, since pids are reused.
        start: u64,
        /// What it was told to look after.
        about: String,
        /// It sets the kernel's knobs as it goes.
        #[serde(default)]
        tunes: bool,
    },
    /// A change is about to be made.
    Before(Change),
    /// An action was tried.
    Action {
        /// What, and why.
        action: Action,
        /// What became of it.
        outcome: Outcome,
    },
    /// How things stand.
    State {
        /// Per mille of the evidence that is local.
        strength_permille: u32,
        /// Nothing is left to do.
        converged: bool,
        /// Hinting faults since the last line.
        faults: u64,
        /// Accesses to memory that faults which were sampled since then.
        #[serde(default)]
        samples: u64,
        /// Tasks looked after.
        tasks: u64,
        /// Another phase of the program was heard to begin.
        #[serde(default)]
        stirred: bool,
        /// Why nothing is decided yet, if so.
        waiting: Option<Waiting>,
    },
    /// A process is left alone from now on, or for another reason, or no longer. Only a run's log has it.
    Aside {
        /// Which.
        process: ProcessId,
        /// Its threads at that moment, not more than some thousands.
        #[serde(default)]
        tids: Vec<u32>,
        /// Why; none where it is left alone no longer.
        why: Option<String>,
    },
    /// All changes were undone, or are to be kept.
    End {
        /// Left in place on purpose.
        kept: bool,
    },
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// [`VERSION`].
    pub v: u32,
    /// When.
    pub t: Nanos,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

impl Line {
    /// As text, with the newline.
    ///
    /// # Errors
    /// None in practice; serde's.
    pub fn text(&self) -> std::io::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// Reads every line that can be read, and the numbers of those that cannot, or are of a newer version; but for the last
    /// where it has no end: whoever wrote that was killed as it did.
    #[must_use]
    pub fn read(text: &str) -> (Vec<Line>, Vec<usize>) {
        let (mut read, mut unreadable) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            match serde_json::from_str::<Line>(line) {
                Ok(line) if line.v <= VERSION => read.push(line),
                _ if line.ends_with('\n') => unreadable.push(number),
                _ => {}
            }
        }
        (read, unreadable)
    }

    /// Reads every line that can be read.
    #[must_use]
    pub fn read_all(text: &str) -> Vec<Line> {
        Line::read(text).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::TaskId;

    #[test]
    fn lines_come_back_and_a_torn_one_is_skipped() {
        let change = Change::Affinity {
            task: TaskId { tid: 5, start: 6 },
            process: ProcessId { tgid: 4, start: 3 },
            before: "0-7".parse().unwrap(),
            after: "0-3".parse().unwrap(),
        };
        let line = Line { v: VERSION, t: Nanos(12), event: Event::Before(change) };
        let text = line.text().unwrap();
        assert!(text.contains(r#""event":"before","change":"affinity""#), "{text}");
        assert!(text.contains(r#""before":"0-7""#), "{text}");
        let torn = format!("{text}{}", &text[..20]);
        assert_eq!(Line::read_all(&torn), std::slice::from_ref(&line));
        assert!(Line::read(&torn).1.is_empty());
        // In the midst of others, or of a newer version, it is not one that somebody was killed at.
        let newer = Line { v: VERSION + 1, ..line }.text().unwrap();
        let damaged = format!("{text}{}{text}{newer}{torn}", &text[1..]);
        assert_eq!(Line::read(&damaged).1, [2, 4]);
        assert_eq!(Line::read_all(&damaged).len(), 3);
    }

    /// Whoever does not know an event, as those before this one do not know `aside`, reads the lines about it.
    #[test]
    fn an_unknown_event_is_one_line_that_cannot_be_read() {
        let process = ProcessId { tgid: 4, start: 3 };
        let event =
            Event::Aside { process, tids: vec![4, 5], why: Some("its memory is locked".into()) };
        let text = Line { v: VERSION, t: Nanos(1), event: event.clone() }.text().unwrap();
        assert!(text.contains(r#""event":"aside","process":{"tgid":4,"start":3}"#), "{text}");
        assert_eq!(Line::read_all(&text)[0].event, event);
        let end = Line { v: VERSION, t: Nanos(2), event: Event::End { kept: false } };
        let later = text.replace("aside", "of-a-later-version") + &end.text().unwrap();
        assert_eq!(Line::read(&later), (vec![end], vec![1]));
    }
}
