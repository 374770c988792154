//! `top`: what [`status`](super::status) tells, again and again, and how local each process was lately. On a
//! terminal one look replaces the last, until `q` or a signal; elsewhere one follows the other. Changes nothing.

mod screen;
mod trend;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use numaherd_linux::process::TaskReader;
use numaherd_model::ProcessId;
use serde_json::json;

use super::status::{self, findings, look};
use crate::args::{Format, TopArgs};
use crate::{interrupt, targets};
use screen::Screen;
use trend::Trend;

/// Looks until it is ended, or those that were named have.
pub fn run(args: &TopArgs) -> Result<ExitCode> {
    let stop = interrupt::flag()?;
    let mut named = Named::new(&args.pid)?;
    let screen = match args.output {
        Format::Table => Screen::open(&stop)?,
        _ => None,
    };
    let time = Duration::from_secs_f64(args.interval);
    let mut trend = Trend::default();
    let begin = Instant::now();
    let mut looks = 0;
    while args.times.is_none_or(|times| looks < times) {
        let seen = look::watch(&named.pids(), time, &stop);
        if let Some(code) = interrupt::ended(&stop) {
            let quits = screen.as_ref().is_some_and(Screen::quits);
            return Ok(if quits { ExitCode::SUCCESS } else { code });
        }
        let has_ended = named.forget_ended()?;
        if named.nobody_is_left() {
            drop(screen);
            say!("numaherd: no process that was named is left");
            break;
        }
        let seen = match seen {
            // The look went by one who is no more.
            Err(_) if has_ended => continue,
            seen => seen?,
        };
        looks += 1;
        let at = begin.elapsed().as_secs_f64();
        let rows = findings::rows(&seen);
        let found = findings::findings(&seen, &rows, &status::machine(None, &seen.topology)?);
        trend.see(&rows);
        let text = match args.output {
            Format::Table => {
                let mut listed = status::processes(&rows);
                // Far to the left: a terminal may be narrow.
                listed.column(2, "local lately", trend.columns(&rows));
                status::table(&seen, &listed, &rows, &found)
            }
            Format::Json => {
                let mut told = status::as_json(&seen, &rows, &found);
                told["at_seconds"] = json!(at);
                format!("{told}\n")
            }
            Format::Csv => {
                let mut listed = status::spreadsheet(&rows);
                listed.column(0, "at_seconds", rows.iter().map(|_| format!("{at:.2}")));
                let text = listed.csv()?;
                let head = text.find('\n').map_or(0, |end| end + 1);
                if looks == 1 { text } else { text[head..].to_string() }
            }
        };
        match &screen {
            Some(screen) => {
                screen.draw(&format!("numaherd top, after {at:.0} s; q ends\n\n{text}"))?;
            }
            None if args.output == Format::Table => put!("after {at:.1} s\n{text}\n"),
            None => put!("{text}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The processes of the command line. One that ends is looked for no more: its id may become another's.
struct Named {
    reader: TaskReader,
    left: Option<Vec<ProcessId>>,
}

impl Named {
    fn new(pids: &[u32]) -> Result<Named> {
        let mut reader = TaskReader::new("/".as_ref());
        let left = (!pids.is_empty())
            .then(|| pids.iter().map(|&pid| targets::named(&mut reader, pid)).collect());
        Ok(Named { left: left.transpose()?, reader })
    }

    fn pids(&self) -> Vec<u32> {
        self.left.iter().flatten().map(|process| process.tgid).collect()
    }

    /// Whether somebody has ended since.
    fn forget_ended(&mut self) -> Result<bool> {
        let Some(left) = &mut self.left else { return Ok(false) };
        let before = left.len();
        for process in std::mem::take(left) {
            if self.reader.identify(process.tgid)? == Some(process) {
                left.push(process);
            }
        }
        Ok(left.len() < before)
    }

    fn nobody_is_left(&self) -> bool {
        self.left.as_ref().is_some_and(Vec::is_empty)
    }
}
