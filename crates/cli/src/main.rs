//! The binary `numaherd`: arguments in, results on stdout, the story on stderr.
//!
//! Exit codes: 0 done; 1 could not be done, with one line that says what, why and what to do;
//! 2 the command line is wrong; `lab run` and `balance -- CMD` end with the child's code.

#[macro_use]
mod output;

mod args;
mod awaited;
mod commands;
mod drop_in;
mod estimate;
mod interrupt;
mod latencies;
mod living;
mod progress;
mod reproduction;
mod runs;
mod session;
mod simulation;
mod stalls;
mod start;
mod strangers;
mod targets;
mod terminal;
mod traffic;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};
use numaherd_lab::LabError;
use numaherd_linux::sys::signal;

use args::{Cli, Command, LabCommand, MigrationArgs, PftArgs, SimulatePft};
use output::one_line;

fn main() -> ExitCode {
    if let Some(code) = drop_in::called_as().or_else(run_as_numactl_reads) {
        return code;
    }
    let result = match parse() {
        Ok(Parsed::Pft(args)) => {
            signal::end_with_the_pipe();
            signal::end_with_a_word();
            commands::pft::run(&args)
        }
        Ok(Parsed::Migration(args)) => {
            signal::end_with_a_word();
            commands::migration::run(&args)
        }
        Ok(Parsed::SimulatedPft(args)) => {
            signal::end_with_a_word();
            commands::simulate::pft::run(&args)
        }
        Ok(Parsed::Command(command)) => dispatch(*command),
        Err(error) => return told_by_clap(&error),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            say!("numaherd: {}", one_line(&error));
            if let Some(LabError::Interrupted | LabError::WaitInterrupted { .. }) =
                error.downcast_ref()
            {
                return interrupt::code();
            }
            if let Some(not_started) = error.downcast_ref::<start::NotStarted>() {
                return ExitCode::from(not_started.code());
            }
            ExitCode::from(if error.is::<output::Misuse>() { 2 } else { 1 })
        }
    }
}

/// What the command line asks for.
enum Parsed {
    Command(Box<Command>),
    /// `bench pft`: its options are those of a test with a history, and of no other workload.
    Pft(PftArgs),
    /// The same, simulated.
    SimulatedPft(SimulatePft),
    /// `bench migration`, likewise.
    Migration(MigrationArgs),
}

fn parse() -> Result<Parsed, clap::Error> {
    let words: Vec<_> = std::env::args_os().collect();
    if let [_, command, name, ..] = words.as_slice() {
        let rest = &words[2..];
        match (command.to_str(), name.to_str()) {
            (Some("bench"), Some("pft")) => return PftArgs::try_parse_from(rest).map(Parsed::Pft),
            (Some("bench"), Some("migration")) => {
                return MigrationArgs::try_parse_from(rest).map(Parsed::Migration);
            }
            (Some("simulate"), Some("pft")) => {
                return SimulatePft::try_parse_from(rest).map(Parsed::SimulatedPft);
            }
            _ => {}
        }
    }
    let matches = with_negatives(Cli::command()).try_get_matches_from(words)?;
    Cli::from_arg_matches(&matches).map(|cli| Parsed::Command(Box::new(cli.command)))
}

/// `-1` behind an option is its value: whoever reads the value says what is wrong with it.
fn with_negatives(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let takes = arg.get_action().takes_values() && !arg.is_positional();
        if takes { arg.allow_negative_numbers(true) } else { arg }
    });
    command.mut_subcommands(with_negatives)
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    // these only print, and have nothing to put back
    if matches!(command, Command::Policy(_) | Command::Memtoy(_) | Command::Manual(_)) {
        signal::end_with_the_pipe();
    }
    // These take long, and have nothing to put back either. A bench of several processes speaks once, and of a
    // comparison nobody but it.
    if matches!(command, Command::Simulate(_) | Command::Reproduce(_) | Command::Calibrate(_))
        || matches!(&command, Command::Bench(args) if args.part.is_none() && !args.with_parent)
    {
        signal::end_with_a_word();
    }
    match command {
        Command::Topology(args) => commands::topology::run(&args),
        // only clap's own words come here: `run` was read before
        Command::Run(_) => Ok(ExitCode::from(2)),
        Command::Memtoy(args) => commands::memtoy::run(&args),
        Command::Manual(args) => commands::manual::run(&args),
        Command::Policy(args) => commands::policy::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Reproduce(args) => commands::reproduce::run(&args),
        Command::Calibrate(args) => commands::calibrate::run(&args),
        Command::Simulate(args) => commands::simulate::run(&args),
        Command::Cell(args) => commands::cell::run(&args),
        Command::Balance(args) => commands::balance::run(&args),
        Command::Advise(args) => commands::advise::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Restore(args) => commands::restore::run(&args),
        Command::Supervise(args) => commands::restore::supervise(&args),
        Command::Lab(LabCommand::Run(args)) => commands::lab::run(&args),
        Command::Lab(LabCommand::Shell(args)) => commands::shell::run(&args),
        Command::LabTrace(args) => commands::tracing::in_guest(&args),
        Command::LabAgent => commands::lab::agent(),
    }
}

/// `run`'s words are numactl's, which clap does not read: options in order, the first other word
/// begins the command.
fn run_as_numactl_reads() -> Option<ExitCode> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let (command, words) = words.split_first()?;
    if command != "run" {
        return None;
    }
    signal::end_with_the_pipe();
    Some(commands::run::ours(words))
}

/// Help and version as they are; an error of the command line on one line.
fn told_by_clap(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match output::printed(error.print()) {
            Ok(code) => code,
            Err(error) => {
                say!("numaherd: {}", one_line(&error));
                ExitCode::from(1)
            }
        };
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Nobody is left to tell if this cannot be printed.
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.render().to_string();
    // That an option of no such name could be a value: nobody means one.
    let is_misleading = |line: &str| line.starts_with("tip: to pass '");
    let wanted =
        |line: &&str| !line.is_empty() && !line.starts_with("Usage:") && !is_misleading(line);
    let before_usage = text.lines().map(str::trim).take_while(|line| !line.starts_with("For more"));
    let words: Vec<&str> = before_usage.filter(wanted).collect();
    let mut text = words.join(" ");
    if error.kind() == ErrorKind::InvalidUtf8
        && let Some(word) = std::env::args_os().find(|word| word.to_str().is_none())
    {
        text = format!("'{}' is not UTF-8", word.to_string_lossy());
    }
    if let Some(meant) = meant(error) {
        text = format!("{text}: {meant}");
    }
    let text = range_in_words(&text).unwrap_or(text);
    // What Rust says of a number that is none.
    let text = text
        .replace("invalid digit found in string", "a whole number is wanted")
        .replace("number too large to fit in target type", "the number is too large");
    say!("numaherd: {} (--help says more)", text.strip_prefix("error: ").unwrap_or(&text));
    ExitCode::from(2)
}

/// What clap says of a number outside its range (`0 is not in 1..=1000`), as others are told what is wanted.
fn range_in_words(text: &str) -> Option<String> {
    let (told, range) = text.rsplit_once(" is not in ")?;
    let (before, _) = told.rsplit_once(' ')?;
    let (least, most) = range.split_once("..")?;
    let most: u64 = most.trim_start_matches('=').parse().ok()?;
    let least: u64 = least.parse().ok()?;
    Some(match most {
        u64::MAX => format!("{before} a whole number, {least} or more"),
        _ => format!("{before} a whole number from {least} to {most}"),
    })
}

/// What a word is likely meant for that has no place where it stands.
fn meant(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let words: Vec<_> = std::env::args_os().skip(1).take(2).collect();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    if word.starts_with('-') {
        return match (words.first()?.as_ref(), word.as_str()) {
            ("compare", "--machine") => {
                Some("a machine is given as --on sim:MACHINE or --on lab:MACHINE".into())
            }
            ("simulate", "--start" | "--quick") => {
                Some("it is one of compare, which simulates with --on sim:MACHINE".into())
            }
            _ => None,
        };
    }
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    match words.first().map(AsRef::as_ref)? {
        "status" | "top" | "advise" | "balance" if is_number => {
            Some(format!("a process is given as -p {word}"))
        }
        "balance" => Some("a command follows '--'".into()),
        "lab" if words.get(1).is_some_and(|name| name == "run" || name == "shell") => {
            Some("a command follows '--'".into())
        }
        _ => None,
    }
}
