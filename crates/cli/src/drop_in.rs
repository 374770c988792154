//! The names of other tools: called by one of them (a link), the program behaves as that tool,
//! output layouts and exit codes included.
//!
//! | name | what it is |
//! |---|---|
//! | `numactl` | `numaherd run`, with numactl's own errors |
//! | `numastat` | the kernel's counters and memory per node |
//! | `migratepages` | moves a process's pages |
//! | `memhog` | fills memory under a policy |
//! | `numad -w NCPUS[:MB]` | which nodes to take, as libvirt asks for placement=auto |

pub mod memhog;
pub mod migratepages;
pub mod numad;
pub mod numastat;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use numaherd_linux::sys::signal;
use numaherd_linux::universe;
use numaherd_mempolicy::intent::{Lists, Universes};
use numaherd_mempolicy::lists::Resolved;
use numaherd_model::Topology;

use crate::commands::run;

/// The tools, as the table above has them.
const NAMES: [&str; 5] = ["numactl", "numastat", "migratepages", "memhog", "numad"];

/// How each of them is called that has no definition `run`'s page is made from: usage as it prints it.
pub const USAGES: [(&str, &str); 4] = [
    ("numastat", numastat::USAGE),
    ("migratepages", migratepages::USAGE),
    ("memhog", memhog::USAGE),
    ("numad", numad::USAGE),
];

/// Behaves as the tool whose name we were called by; None if it is our own.
pub fn called_as() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    let name = Path::new(&program).file_name()?.to_str()?.to_string();
    if !NAMES.contains(&name.as_str()) {
        return None;
    }
    signal::end_with_the_pipe();
    let words: Vec<OsString> = words.collect();
    let texts = || words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    match name.as_str() {
        "numactl" => Some(run::numactl(&words)),
        "numastat" => Some(numastat::run(&texts())),
        "migratepages" => Some(migratepages::run(&texts())),
        "memhog" => Some(memhog::run(&texts())),
        "numad" => Some(numad::run(&texts())),
        _ => None,
    }
}

/// This machine, and what this process may name in lists.
pub fn here() -> anyhow::Result<(Topology, Universes)> {
    let root = Path::new("/");
    let topology = numaherd_linux::topology::read(root)?;
    let universes = universe::read(root, "proc/self/status", &topology)?;
    Ok((topology, universes))
}

/// The nodes of a device of this machine. What is wrong is told as libnuma tells it.
pub fn device(text: &str) -> Resolved {
    numaherd_linux::devices::resolve(Path::new("/"), text)
}

/// Reads a list of nodes of this process, or tells that it is invalid, as numactl's tools do.
pub fn nodes(universes: &Universes, text: &str) -> Option<numaherd_model::NodeSet> {
    match Lists::new(universes, device).nodes(text) {
        Ok(nodes) => Some(nodes),
        Err(error) => {
            let text_of = |error: &dyn std::error::Error| error.source().map(ToString::to_string);
            say!("libnuma: Warning: {}", text_of(&error).unwrap_or(error.to_string()));
            putln!("<{text}> is invalid");
            None
        }
    }
}

/// A size as numactl's tools read it: C's numbers, then k, m or g; what follows is not looked at,
/// and what is no number is 0. More than 64 bits hold is the most that they do, and not what is left of it.
pub fn size(text: &str) -> u64 {
    let Some((number, rest)) = numaherd_mempolicy::lists::c_number(text) else { return 0 };
    let shift = match rest.as_bytes().first().map(u8::to_ascii_uppercase) {
        Some(b'G') => 30,
        Some(b'M') => 20,
        Some(b'K') => 10,
        _ => 0,
    };
    number.saturating_mul(1 << shift)
}

/// The same, but of what is a size and nothing else.
pub fn strict_size(text: &str) -> Option<u64> {
    let (_, rest) = numaherd_mempolicy::lists::c_number(text)?;
    matches!(rest.to_ascii_lowercase().as_str(), "" | "k" | "m" | "g").then(|| size(text))
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_read_as_numactl_reads_them() {
        let sizes =
            [("15728640", 15 << 20), ("10M", 10 << 20), ("0x10k", 16 << 10), ("2gx", 2 << 30)];
        for (text, expected) in sizes {
            assert_eq!(super::size(text), expected, "{text}");
        }
        assert_eq!(super::size("x"), 0);
        let strict = ["4k", "2G", "7", "x", "4x", "1T", "2gx", ""].map(super::strict_size);
        let sizes = [Some(4 << 10), Some(2 << 30), Some(7)];
        assert_eq!(strict, [sizes[0], sizes[1], sizes[2], None, None, None, None, None]);
        assert_eq!(super::size("99999999999999g"), u64::MAX);
    }
}
