//! `explain`: why a task or a page was moved, or not, from what a run of balance wrote down.

mod alone;
mod story;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use numaherd_model::counted;
use numaherd_report::Listing;
use numaherd_trace::event::Line;
use numaherd_trace::read_log;
use serde_json::json;

use crate::args::{ExplainArgs, Format};
use crate::{output, runs};
use alone::Alone;
use story::{About, Told};

/// Reads the log and tells.
pub fn run(args: &ExplainArgs) -> Result<ExitCode> {
    let path = find(&args.run)?;
    let bytes = read_log(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (lines, unreadable) = Line::read(&String::from_utf8_lossy(&bytes));
    ensure!(!lines.is_empty(), "{} is no log of balance: it has no readable line", path.display());
    let about = match (args.task, args.page) {
        (Some(tid), _) => About::Task(tid),
        (_, Some(address)) => About::Page(address),
        _ => About::Everything,
    };
    let (summary, told) = (story::summary(&lines), story::actions(&lines, about));
    let alone = alone::of(&lines, about);
    let why_nothing = || match (about, alone.last().filter(|last| last.until_seconds.is_none())) {
        (About::Task(_), Some(last)) => {
            format!("process {} was left alone: {}", last.process, last.why)
        }
        _ => summary.why_nothing(about),
    };
    output::print(&match args.output {
        Format::Json => {
            let mut json = json!({
                // Its bytes need be no text.
                "log": path.to_string_lossy(),
                "summary": summary,
                "actions": told,
                "left_alone": alone,
                "why_nothing": told.is_empty().then(why_nothing),
            });
            if let Some(first) = unreadable.first() {
                json["unreadable"] = json!({"lines": unreadable.len(), "first": first});
            }
            output::json(&json)?
        }
        Format::Csv => listing(&told).csv()?,
        Format::Table => {
            let skipped = unreadable.first().map(|first| {
                let lines = counted(unreadable.len(), "line");
                format!("{lines} cannot be read, or are a newer numaherd's, the first of them line {first}")
            });
            let alone = alone.iter().map(Alone::line);
            let lines: Vec<_> = summary.lines().into_iter().chain(skipped).chain(alone).collect();
            let mut text = lines.join("\n") + "\n";
            if told.is_empty() {
                text += &format!("no action on {}: {}\n", subject(about), why_nothing());
            } else {
                text += &format!("\n{}", listing(&told).table());
            }
            text
        }
    })
}

fn subject(about: About) -> String {
    match about {
        About::Everything => "anything".into(),
        About::Task(tid) => format!("task {tid}"),
        About::Page(address) => format!("the page at {address:#x}"),
    }
}

fn listing(told: &[Told]) -> Listing {
    let mut listing = Listing::new(["seconds", "action and reason", "outcome", "times"]);
    for Told { seconds, action, outcome, times, of } in told {
        let of = of.as_ref().map(|of| format!(" [{of}]")).unwrap_or_default();
        let action = format!("{action}{of}");
        listing.row([format!("{seconds:.1}"), action, outcome.clone(), times.to_string()]);
    }
    listing
}

/// The log: a file, a run's id, or `last`.
fn find(run: &OsStr) -> Result<PathBuf> {
    // A pipe too: a log that was put away may come out of zcat.
    let kind = std::fs::metadata(run).map(|found| found.file_type());
    if kind.as_ref().is_ok_and(|kind| kind.is_file() || kind.is_fifo()) {
        return Ok(run.into());
    }
    if kind.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        let path = PathBuf::from(run);
        return Err(std::io::Error::from(ErrorKind::PermissionDenied))
            .with_context(|| format!("cannot read {}: be its owner or root", path.display()));
    }
    runs::check(&runs::folder())?;
    let folders = runs::folders();
    let kept = runs::kept(&folders);
    let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let folders = folders.join(" or ");
    if run == "last" {
        let last = kept.last().cloned();
        return last.with_context(|| format!("no run in {folders}: balance has not run"));
    }
    let found = kept.iter().find(|path| path.file_stem().is_some_and(|stem| stem == run)).cloned();
    found.with_context(|| {
        let newest = kept.iter().rev().take(3).filter_map(|path| path.file_stem());
        let newest: Vec<_> = newest.map(|stem| stem.to_string_lossy().into_owned()).collect();
        let have = if newest.is_empty() { "none".into() } else { newest.join(", ") };
        format!("no file and no run '{}' in {folders} (newest: {have})", run.to_string_lossy())
    })
}
