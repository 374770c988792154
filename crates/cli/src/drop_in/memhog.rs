//! `memhog [-fFILE] [-rNUM] [-H] SIZE [POLICY [NODES]]`: fills memory under a policy.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;

use numaherd_linux::sys::mapping::Mapping;
use numaherd_linux::sys::mempolicy;
use numaherd_mempolicy::{Mode, Request};
use numaherd_model::NodeSet;

use crate::output::one_line;

/// Bytes filled for each dot.
const PIECE: usize = 10 << 20;

/// As it is printed.
pub const USAGE: &str = "memhog [-fFILE] [-rNUM] size[kmg] [policy [nodeset]]
-f mmap is backed by FILE
-rNUM repeat memset NUM times
-H disable transparent hugepages
Policies: preferred-many local interleave membind preferred default weighted-interleave";

fn usage() -> ExitCode {
    putln!("{USAGE}");
    ExitCode::from(1)
}

/// A policy's name, with or without dashes before it; None if it is none or its nodes are missing.
fn mode(name: Option<&str>, has_nodes: bool) -> Option<Mode> {
    let Some(name) = name else { return Some(Mode::Default) };
    let mode = match name.trim_start_matches('-') {
        "membind" => Mode::Bind,
        name => {
            Mode::ALL.into_iter().find(|mode| mode.numactl_word() == name && *mode != Mode::Bind)?
        }
    };
    (has_nodes || matches!(mode, Mode::Local | Mode::Default)).then_some(mode)
}

/// Runs it.
pub fn run(words: &[String]) -> ExitCode {
    let (mut file, mut repeat, mut small) = (None, 1_u64, false);
    let mut rest = words;
    while let [word, behind @ ..] = rest {
        let Some(option) = word.strip_prefix('-') else { break };
        match option.chars().next() {
            Some('f') => {
                let opened = OpenOptions::new().read(true).write(true).open(&option[1..]);
                match opened {
                    Ok(opened) => file = Some(opened),
                    // as in the original, it is told and private memory is taken instead
                    Err(error) => say!("memhog: cannot open '{}': {error}", &option[1..]),
                }
            }
            Some('r') => repeat = option[1..].parse().unwrap_or(0),
            Some('H') => small = true,
            _ => return usage(),
        }
        rest = behind;
    }
    let [size, policy @ ..] = rest else { return usage() };
    let nodes = policy.get(1).map(String::as_str);
    let Some(mode) = mode(policy.first().map(String::as_str), nodes.is_some()) else {
        return usage();
    };
    let request = match (mode, nodes) {
        (Mode::Default | Mode::Local, _) => Request::plain(mode, NodeSet::new()),
        (_, nodes) => {
            let universes = match super::here() {
                Ok((_, universes)) => universes,
                Err(error) => return failed(&one_line(&error)),
            };
            match super::nodes(&universes, nodes.unwrap_or_default()) {
                Some(nodes) => Request::plain(mode, nodes),
                None => return ExitCode::from(1),
            }
        }
    };
    let len = super::size(size) as usize;
    let mapping = match &file {
        Some(file) => Mapping::file(file, 0, len),
        None => Mapping::private(len),
    };
    let mut mapping = match mapping {
        Ok(mapping) => mapping,
        Err(error) => return failed(&error.to_string()),
    };
    // As in the original, a refused policy is told and the memory is filled all the same.
    if let Err(error) = mempolicy::bind(mapping.start(), len as u64, &request, 0) {
        say!("{error}");
    }
    if small {
        mapping.without_huge_pages();
    }
    for _ in 0..repeat {
        fill(&mut mapping, len);
    }
    ExitCode::SUCCESS
}

fn failed(line: &str) -> ExitCode {
    say!("memhog: {line}");
    ExitCode::from(1)
}

fn fill(mapping: &mut Mapping, len: usize) {
    let mut out = std::io::stdout();
    for start in (0..len).step_by(PIECE) {
        // Nobody may be reading.
        let _ = out.write_all(b".").and_then(|()| out.flush());
        mapping.fill(start..(start + PIECE).min(len), 0xff);
    }
    let _ = out.write_all(b"\n").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_named_as_in_numactl() {
        assert_eq!(mode(None, false), Some(Mode::Default));
        assert_eq!(mode(Some("--membind"), true), Some(Mode::Bind));
        assert_eq!(mode(Some("preferred-many"), true), Some(Mode::PreferredMany));
        assert_eq!(mode(Some("local"), false), Some(Mode::Local));
        assert_eq!(mode(Some("interleave"), false), None, "its nodes are missing");
        assert_eq!(mode(Some("bind"), true), None);
    }
}
