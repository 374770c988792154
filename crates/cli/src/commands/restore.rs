//! `restore`, and the supervisor that does the same at once when a session dies.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use numaherd_linux::process::TaskReader;
use numaherd_linux::sys::priority::go_first;
use numaherd_linux::sys::{identity, signal};
use numaherd_linux::undo::Undone;
use numaherd_report::Listing;
use numaherd_trace::{LeftBehind, open_own};
use serde_json::{Value, json};

use super::silence::{Doing, LOOK, Silence};
use crate::args::{Format, Restore, Supervise};
use crate::session::{
    BEATS, CLOSING, DONE, is_alive, journals, left_behind, readable, remove_of, restore_dead, tell,
    undo_left,
};
use crate::{interrupt, output};

/// Puts back whatever ended or killed sessions left.
pub fn run(args: &Restore) -> Result<ExitCode> {
    let dir = journals();
    let restored = match &args.run {
        Some(run) => vec![restore_one(&dir, run, args.dry_run)?],
        None => restore_dead(&dir, args.dry_run)?,
    };
    let (kept, unreadable) = kept(&dir)?;
    let failed =
        !unreadable.is_empty() || restored.iter().any(|(_, undone)| !undone.failed.is_empty());
    output::print(&match args.output {
        Format::Table => table(&restored, &kept, &unreadable, args.dry_run),
        Format::Json => output::json(&json!({
            "dry_run": args.dry_run,
            "kept": kept.iter().map(|left| &left.run).collect::<Vec<_>>(),
            "unreadable": unreadable.iter().map(not_read_as_json).collect::<Vec<_>>(),
            "runs": restored.iter().map(|(left, undone)| as_json(left, undone)).collect::<Vec<_>>(),
        }))?,
        Format::Csv => listing(&restored).csv()?,
    })?;
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// This run, even if it was kept on purpose; not while it goes on.
fn restore_one(dir: &Path, run: &str, dry_run: bool) -> Result<(LeftBehind, Undone)> {
    let mut found = readable(dir)?;
    let Some(at) = found.iter().position(|left| left.run == run) else {
        let runs: Vec<&str> = found.iter().map(|left| left.run.as_str()).collect();
        let runs = if runs.is_empty() { "none".into() } else { runs.join(", ") };
        bail!("no run '{run}' in {} (there are: {runs})", dir.display());
    };
    let left = found.swap_remove(at);
    let mut reader = TaskReader::new("/".as_ref());
    if left.boot != reader.boot_id()? {
        bail!("run {run} was before the last boot: nothing of it is left");
    }
    if is_alive(&left, &mut reader)? {
        bail!("run {run} goes on: end its process {}, which puts everything back", left.pid);
    }
    let undone = undo_left(&left, dry_run);
    if !dry_run && undone.failed.is_empty() {
        remove_of(&left)?;
    }
    Ok((left, undone))
}

/// A journal that cannot be read, and why.
type NotRead = (PathBuf, std::io::Error);

/// What was left in place on purpose and still is; and the journals that cannot be read.
fn kept(dir: &Path) -> Result<(Vec<LeftBehind>, Vec<NotRead>)> {
    let boot = TaskReader::new("/".as_ref()).boot_id()?;
    let is_kept = |left: &LeftBehind| left.kept && left.boot == boot;
    let found = left_behind(dir)?;
    Ok((found.journals.into_iter().filter(is_kept).collect(), found.unreadable))
}

fn table(
    restored: &[(LeftBehind, Undone)],
    kept: &[LeftBehind],
    unreadable: &[NotRead],
    dry_run: bool,
) -> String {
    let left = |left: &LeftBehind| {
        let LeftBehind { run, about, .. } = left;
        format!("run {run} ({about}) was kept: 'numaherd restore --run {run}' puts it back\n")
    };
    let not_read = |(path, error): &NotRead| {
        format!("{}: not put back, as it cannot be read: {error}\n", path.display())
    };
    let rest: String = kept.iter().map(left).chain(unreadable.iter().map(not_read)).collect();
    if restored.is_empty() {
        let nothing = if unreadable.is_empty() { "nothing to put back\n" } else { "" };
        return format!("{nothing}{rest}");
    }
    let would = if dry_run { "would put back" } else { "put back" };
    let line = |(left, undone): &(LeftBehind, Undone)| {
        format!("run {} ({}): {would} {}\n", left.run, left.about, tell(undone))
    };
    restored.iter().map(line).chain([rest]).collect()
}

fn not_read_as_json((path, error): &NotRead) -> Value {
    json!({"journal": path.display().to_string(), "error": error.to_string()})
}

fn as_json(left: &LeftBehind, undone: &Undone) -> Value {
    json!({
        "run": left.run,
        "about": left.about,
        "affinities": undone.affinities,
        "settings": undone.knobs,
        "widened": undone.widened,
        "changed_since": undone.changed_since,
        "failed": undone.failed,
    })
}

fn listing(restored: &[(LeftBehind, Undone)]) -> Listing {
    let mut listing = Listing::new(["run", "affinities", "settings", "changed since", "failed"]);
    for (left, undone) in restored {
        let Undone { affinities, knobs, changed_since, failed, .. } = undone;
        let counts = [*affinities, *knobs, *changed_since, failed.len()].map(|n| n.to_string());
        let [affinities, knobs, changed_since, failed] = counts;
        listing.row([left.run.clone(), affinities, knobs, changed_since, failed]);
    }
    listing
}

/// Watches over a session through our standard input.
pub fn supervise(args: &Supervise) -> Result<ExitCode> {
    // Whatever ends the session must not end us before we have put things back.
    let _ignored = interrupt::flag()?;
    // Whoever is held where it was put waits for this.
    go_first();
    // By the link that we were started from it is "exe"; only what lists of processes show hangs on it.
    let _ = std::fs::write("/proc/self/comm", "numaherd");
    let (sender, beats) = channel();
    thread::spawn(move || {
        let mut byte = [0];
        while matches!(std::io::stdin().read(&mut byte), Ok(1)) {
            if sender.send(byte[0]).is_err() {
                return;
            }
        }
    });
    // Its name may be gone when it is needed: that of a user's folder goes when the user logs out.
    let mut open = File::open(&args.journal)?;
    let own = || open_own(&args.journal, identity::effective_user());
    putln!("ready");
    let mut reader = TaskReader::new("/".as_ref());
    let mut silence: Option<Silence> = None;
    let why = loop {
        match beats.recv_timeout(LOOK) {
            Ok(DONE) => return Ok(ExitCode::SUCCESS),
            Ok(BEATS) => {
                // A journal that has become long is written anew, under its name.
                if let Ok(anew) = own() {
                    open = anew;
                }
                let now = Instant::now();
                silence.get_or_insert_with(|| Silence::since(now)).ends(now);
            }
            Ok(CLOSING) => silence.iter_mut().for_each(|silence| silence.closes(Instant::now())),
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => break "was killed",
            Err(RecvTimeoutError::Timeout) => {
                let Some(silence) = &mut silence else { continue };
                if silence.is_hang(Instant::now(), || Doing::of(&mut reader, args.pid)) {
                    // If it ended this very moment there is nobody to kill.
                    let _ = signal::kill(args.pid);
                    break "hung and was ended";
                }
            }
        }
    };
    let found = own().and_then(|file| LeftBehind::of(&args.journal, &file));
    let (left, gone) = match found {
        // Or else a new start was quicker and has put everything back: then nothing is as we left it.
        Err(error) => {
            let gone = error.kind() == std::io::ErrorKind::NotFound;
            (LeftBehind::of(&args.journal, &open)?, gone)
        }
        Ok(left) => (left, false),
    };
    // What was kept on purpose stays, also of a session that was killed after it had said so.
    let Some(left) = left.filter(|left| !left.kept) else { return Ok(ExitCode::SUCCESS) };
    let undone = undo_left(&left, false);
    if !gone || undone.affinities + undone.knobs + undone.failed.len() > 0 {
        say!("numaherd: run {} {why}; put back {}", left.run, tell(&undone));
    }
    if undone.failed.is_empty() {
        remove_of(&left)?;
    }
    Ok(ExitCode::SUCCESS)
}
