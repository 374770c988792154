//! `restore`, and the supervisor that does the same at once when a session dies.

use std::io::Read;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use numaherd_linux::process::TaskReader;
use numaherd_linux::sys::signal;
use numaherd_model::Nanos;
use numaherd_trace::LeftBehind;

use crate::args::{Restore, Supervise};
use crate::interrupt;
use crate::session::{BEATS, CLOSING, DONE, journals, restore_dead, tell, undo_left};

/// A stopped session is taken to hang when it has been silent this long.
const STOPPED_SILENCE: Duration = Duration::from_millis(650);
/// Any other, not counting time in which it waited for a CPU. Guessed: nothing it does between two
/// signs of life takes a tenth of it, but a virtual machine's CPU may stand still unseen.
const SILENCE: Duration = Duration::from_secs(5);
/// The same while the session puts things back itself.
const CLOSING_SILENCE: Duration = Duration::from_secs(10);
/// How often silence is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Puts back whatever ended or killed sessions left.
pub fn run(args: &Restore) -> Result<ExitCode> {
    let dir = journals();
    if let Some(run) = &args.run {
        let found = LeftBehind::find(&dir)?.into_iter().find(|left| left.run == *run);
        let left = found.with_context(|| format!("no run '{run}' in {}", dir.display()))?;
        let undone = undo_left(&left, args.dry_run);
        println!("{}{}", would(args.dry_run), tell(&undone));
        if !args.dry_run && undone.failed.is_empty() {
            std::fs::remove_file(&left.path).context("cannot remove the journal")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let restored = restore_dead(&dir, args.dry_run)?;
    if restored.is_empty() {
        println!("nothing to put back");
    }
    let mut failed = false;
    for (left, undone) in restored {
        println!("run {} ({}): {}{}", left.run, left.about, would(args.dry_run), tell(&undone));
        failed |= !undone.failed.is_empty();
    }
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn would(dry_run: bool) -> &'static str {
    if dry_run { "would put back " } else { "put back " }
}

/// How long a process's main thread has waited for a CPU.
fn waited(reader: &mut TaskReader, pid: u32) -> Duration {
    let stat = reader.schedstat(pid, pid).ok().flatten();
    Duration::from_nanos(stat.map_or(Nanos(0), |stat| stat.wait_time).0)
}

fn is_stopped(reader: &mut TaskReader, pid: u32) -> bool {
    reader.stat(pid, pid).ok().flatten().is_some_and(|stat| stat.is_stopped())
}

/// Watches over a session through our standard input.
pub fn supervise(args: &Supervise) -> Result<ExitCode> {
    // Whatever ends the session must not end us before we have put things back.
    let _ignored = interrupt::flag()?;
    let (sender, beats) = channel();
    thread::spawn(move || {
        let mut byte = [0];
        while matches!(std::io::stdin().read(&mut byte), Ok(1)) {
            if sender.send(byte[0]).is_err() {
                return;
            }
        }
    });
    println!("ready");
    let mut reader = TaskReader::new("/".as_ref());
    let mut last: Option<(Instant, Duration)> = None;
    let mut silence = SILENCE;
    let why = loop {
        match beats.recv_timeout(LOOK) {
            Ok(DONE) => return Ok(ExitCode::SUCCESS),
            Ok(BEATS) => last = Some((Instant::now(), waited(&mut reader, args.pid))),
            Ok(CLOSING) => {
                last = last.map(|_| (Instant::now(), waited(&mut reader, args.pid)));
                silence = CLOSING_SILENCE;
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => break "was killed",
            Err(RecvTimeoutError::Timeout) => {
                let Some((at, before)) = last else { continue };
                let starved = waited(&mut reader, args.pid).saturating_sub(before);
                let silent = at.elapsed().saturating_sub(starved);
                if silent > silence || silent > STOPPED_SILENCE && is_stopped(&mut reader, args.pid)
                {
                    // If it ended this very moment there is nobody to kill.
                    let _ = signal::kill(args.pid);
                    break "hung and was ended";
                }
            }
        }
    };
    let left = LeftBehind::read(&args.journal)?;
    let Some(left) = left else { return Ok(ExitCode::SUCCESS) };
    let undone = undo_left(&left, false);
    eprintln!("numaherd: run {} {why}; put back {}", left.run, tell(&undone));
    if undone.failed.is_empty() {
        // A new start may have been quicker.
        let _ = std::fs::remove_file(&args.journal);
    }
    Ok(ExitCode::SUCCESS)
}
