//! Whom a run left alone, from when until when, and why, as its log tells. Pure.
//!
//! A thread is known by its process's id, or by having been there when its process was left alone; memory is not known by
//! whose it is, so that of a page all are told.

use std::collections::BTreeMap;

use numaherd_model::ProcessId;
use numaherd_trace::Event;
use numaherd_trace::event::Line;
use serde::Serialize;

use super::story::{About, seconds};

/// A process that was left alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alone {
    pub process: u32,
    pub from_seconds: f64,
    /// None where it was so to its end, or to that of the log.
    pub until_seconds: Option<f64>,
    pub why: String,
}

/// Those that it is about, oldest first.
pub fn of(lines: &[Line], about: About) -> Vec<Alone> {
    let mut all: Vec<(bool, Alone)> = Vec::new();
    let mut open: BTreeMap<ProcessId, usize> = BTreeMap::new();
    for line in lines {
        let Event::Aside { process, tids, why } = &line.event else { continue };
        if let Some(before) = open.remove(process) {
            all[before].1.until_seconds = Some(seconds(line));
        }
        let Some(why) = why else { continue };
        let concerns = match about {
            About::Task(tid) => process.tgid == tid || tids.contains(&tid),
            About::Everything | About::Page(_) => true,
        };
        open.insert(*process, all.len());
        // Somebody else may have written that file.
        let why = why.replace(char::is_control, "\u{fffd}");
        let (process, from_seconds) = (process.tgid, seconds(line));
        all.push((concerns, Alone { process, from_seconds, until_seconds: None, why }));
    }
    all.into_iter().filter(|(concerns, _)| *concerns).map(|(_, alone)| alone).collect()
}

impl Alone {
    /// In a line.
    pub fn line(&self) -> String {
        let Alone { process, from_seconds: from, until_seconds, why } = self;
        let when = match until_seconds {
            None => format!("from {from:.1} s on"),
            Some(until) => format!("from {from:.1} s to {until:.1} s"),
        };
        format!("process {process} was left alone {when}: {why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::Nanos;
    use numaherd_trace::VERSION;

    #[test]
    fn whoever_is_asked_about_is_told_with_from_when_and_until_when() {
        let aside = |t: u64, tgid: u32, why: Option<&str>| {
            let process = ProcessId { tgid, start: 3 };
            let event =
                Event::Aside { process, tids: vec![tgid, tgid + 1], why: why.map(str::to_string) };
            Line { v: VERSION, t: Nanos(t * 500_000_000), event }
        };
        let lines = [
            aside(1, 7, Some("it is locked")),
            aside(2, 20, Some("a\u{1b}b")),
            aside(4, 7, Some("it is small")),
            aside(6, 7, None),
        ];
        let told = |about| of(&lines, about).iter().map(Alone::line).collect::<Vec<_>>();
        let seven = [
            "process 7 was left alone from 0.5 s to 2.0 s: it is locked",
            "process 7 was left alone from 2.0 s to 3.0 s: it is small",
        ];
        assert_eq!(told(About::Task(7)), seven);
        assert_eq!(told(About::Task(8)), seven);
        assert_eq!(told(About::Task(9)), [""; 0]);
        assert_eq!(told(About::Task(20)), ["process 20 was left alone from 1.0 s on: a\u{fffd}b"]);
        assert_eq!(told(About::Everything).len(), 3);
        assert_eq!(told(About::Page(1)).len(), 3);
    }
}
