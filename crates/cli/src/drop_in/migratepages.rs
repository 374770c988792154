//! `migratepages PID FROM TO`: moves all of a process's pages that lie on FROM to TO.

use std::process::ExitCode;

use numaherd_linux::sys::mempolicy;
use numaherd_mempolicy::lists::c_number;

use crate::output::one_line;

/// As it is printed.
pub const USAGE: &str = "usage: migratepages pid from-nodes to-nodes

nodes is a comma delimited list of node numbers or A-B ranges or all.
";

fn usage() -> ExitCode {
    say!("{USAGE}");
    ExitCode::from(1)
}

/// Runs it.
pub fn run(words: &[String]) -> ExitCode {
    let words = words.strip_prefix(&["--".to_string()]).unwrap_or(words);
    let [pid, from, to] = words else { return usage() };
    if words.iter().any(|word| word.starts_with('-')) {
        return usage();
    }
    let pid = match c_number(pid) {
        Some((pid, "")) => u32::try_from(pid).ok(),
        _ => return usage(),
    };
    let universes = match super::here() {
        Ok((_, universes)) => universes,
        Err(error) => return failed(&one_line(&error)),
    };
    let Some(from) = super::nodes(&universes, from) else { return ExitCode::from(1) };
    let Some(to) = super::nodes(&universes, to) else { return ExitCode::from(1) };
    match pid.map(|pid| mempolicy::migrate_process(pid, &from, &to)) {
        // Pages that stay are no error of the original's either.
        Some(Ok(_)) => ExitCode::SUCCESS,
        Some(Err(error)) => failed(&error.to_string()),
        None => failed("there is no such process"),
    }
}

fn failed(line: &str) -> ExitCode {
    say!("migratepages: {line}");
    ExitCode::from(1)
}
