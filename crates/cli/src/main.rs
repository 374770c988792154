//! The binary `numaherd`: arguments in, results on stdout, the story on stderr.
//!
//! Exit codes: 0 done; 1 could not be done, with one line that says what, why and what to do;
//! 2 the command line is wrong; `lab run` and `balance -- CMD` end with the child's code.

mod args;
mod commands;
mod interrupt;
mod session;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, LabCommand};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Topology(args) => commands::topology::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Cell(args) => commands::cell::run(&args),
        Command::Balance(args) => commands::balance::run(&args),
        Command::Restore(args) => commands::restore::run(&args),
        Command::Supervise(args) => commands::restore::supervise(&args),
        Command::Lab(LabCommand::Run(args)) => commands::lab::run(&args),
        Command::LabAgent => commands::lab::agent(),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("numaherd: {}", one_line(&error));
            ExitCode::from(1)
        }
    }
}

/// What was being done, and why it failed, on one line.
fn one_line(error: &anyhow::Error) -> String {
    let parts: Vec<String> = error.chain().map(ToString::to_string).collect();
    parts.join(": ").split('\n').map(str::trim).collect::<Vec<_>>().join(" ")
}
