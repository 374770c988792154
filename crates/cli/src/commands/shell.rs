//! `lab shell`: a terminal in the emulated machine.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use numaherd_lab::{Exec, Guest, TerminalSize};
use rustix::termios::Termios;
use signal_hook::consts::SIGWINCH;
use signal_hook::iterator::Signals;

use super::lab;
use crate::args::LabShell;
use crate::interrupt;
use crate::terminal::{self, Settings};

/// Runs the user's shell, or a command, on a terminal in the guest.
pub fn run(args: &LabShell) -> Result<ExitCode> {
    ensure!(
        std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
        "lab shell needs a terminal: for a script, use 'lab run -- COMMAND'"
    );
    let story = |line: &str| say!("lab: {line}");
    let (here, shares) = lab::shares(&args.share, args.read_only)?;
    let interrupted = interrupt::flag()?;
    let ended = lab::boot(&args.lab, shares, None, &interrupted, &story).and_then(|mut booted| {
        let argv = if args.command.is_empty() { vec![shell()] } else { args.command.clone() };
        let exec = Exec {
            argv,
            env: lab::environment(),
            cwd: here.display().to_string(),
            terminal: Some(size()),
        };
        let code = on_terminal(&mut booted.guest, &exec)?;
        booted.guest.shutdown(&|line| say!("numaherd: {line}"))?;
        Ok(code)
    });
    ended.or_else(lab::code_of)
}

/// The user's own, if the host's files have it.
fn shell() -> String {
    std::env::var("SHELL").ok().filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh".into())
}

fn on_terminal(guest: &mut Guest, exec: &Exec) -> Result<ExitCode> {
    let resize = guest.resizer();
    let mut signals = Signals::new([SIGWINCH]).context("cannot watch the terminal's size")?;
    let handle = signals.handle();
    let watcher = std::thread::spawn(move || signals.forever().for_each(|_| resize(size())));
    let exit = {
        // Every key goes to the guest as it is.
        let _raw = Settings::change(Termios::make_raw)?;
        guest.feed(std::io::stdin());
        // A terminal that is gone hangs us up.
        guest.exec(exec, &mut |output, bytes| {
            let _ = lab::copy_output(output, bytes);
        })
    };
    handle.close();
    // It ends once its signals are closed.
    let _ = watcher.join();
    let exit = exit?;
    if let Some(problem) = exit.not_started {
        say!("numaherd: {problem}");
    }
    Ok(ExitCode::from(u8::try_from(exit.code).unwrap_or(255)))
}

fn size() -> TerminalSize {
    let (rows, columns) = terminal::size(std::io::stdin());
    TerminalSize { rows, columns }
}
