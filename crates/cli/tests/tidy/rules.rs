//! Rules over one file: its size, what it calls, its name, its header, what it gives away.

use super::code;

/// Lines of a file, its module of tests apart: ask above the first, split at the second.
const ASK_LINES: usize = 500;
const SPLIT_LINES: usize = 800;

/// Files that may be longer than [`ASK_LINES`], each with its reason.
const LONG_FOR_A_REASON: &[&str] = &[];

/// Crates that talk to the kernel or to QEMU, or drive the machine hard.
const UNSAFE: &[&str] = &["linux", "bpf", "lab-plugin", "workloads"];

/// Crates that decide: the same input must give the same plan, everywhere and in any order.
const DECIDING: &[&str] =
    &["model", "mempolicy", "placement", "scheduling", "check", "control", "sim"];

/// What a deciding crate must not touch.
const BANNED: &[&str] = &[
    "Instant",
    "SystemTime",
    "fs::",
    "std::fs",
    "thread::",
    "std::thread",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
    "HashMap",
    "HashSet",
    "RandomState",
];

/// What panics where nothing can be printed.
const PANICKING: &[&str] =
    &["print!", "println!", "eprint!", "eprintln!", "env::args()", "env::vars()"];

/// Names that say nothing of what a module owns.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "manager", "managers", "helper", "helpers", "misc"];

/// Homes on developers' machines, cut in two so that this file passes.
const HOMES: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Files in which such a path is another machine's.
const PATHS_OF_THE_GUEST: &[(&str, &str)] =
    &[("crates/lab/src/initramfs.rs", "the guest's new root is mounted there")];

/// What the host names of package registries and of their mirrors contain.
const REGISTRIES: &[&str] = &[
    "crates.io",
    "registry",
    "pypi",
    "pythonhosted",
    "npmjs",
    "rubygems",
    "artifact",
    "mirror",
    "proxy",
    "nexus",
    "deb.debian",
    "ports.ubuntu",
    "archive.ubuntu",
    "localhost",
    "127.0.0.1",
];

/// How Cargo writes "the public index" in a lock file, wherever packages really come from.
const PUBLIC_INDEX: &str = concat!("github.com/rust-lang/", "crates.io-index");

fn crate_of(path: &str) -> &str {
    path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or_default()
}

/// A licence's text is its authors'.
pub fn is_licence(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("LICENSE") || name.starts_with("COPYING")
}

/// A file that is too long.
pub fn size(path: &str, text: &str) -> Vec<String> {
    let lines = code::before_tests(text).lines().count();
    let only_tests = path.ends_with("/tests.rs") || path.contains("/tests/");
    let limit =
        if only_tests || LONG_FOR_A_REASON.contains(&path) { SPLIT_LINES } else { ASK_LINES };
    if lines <= limit {
        return Vec::new();
    }
    vec![format!("{path}: {lines} lines, at most {limit}")]
}

/// Unsafe code outside the rooms that need it.
pub fn unsafe_code(path: &str, text: &str) -> Vec<String> {
    if UNSAFE.contains(&crate_of(path)) {
        return Vec::new();
    }
    let bare = code::bare(text);
    let found = code::lines_with(&bare, "unsafe");
    found.map(|line| format!("{path}:{line}: unsafe, which only {UNSAFE:?} may")).collect()
}

/// A clock, file, thread, logger or hash order where decisions are made; tests may.
pub fn banned_calls(path: &str, text: &str) -> Vec<String> {
    if !DECIDING.contains(&crate_of(path)) || path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let bare = code::bare(code::before_tests(text));
    let mut found: Vec<(usize, &str)> = Vec::new();
    for word in BANNED {
        found.extend(code::lines_with(&bare, word).map(|line| (line, *word)));
    }
    found.sort_unstable();
    found.dedup_by_key(|(line, _)| *line);
    found
        .into_iter()
        .map(|(line, word)| format!("{path}:{line}: {word} in a crate that decides"))
        .collect()
}

/// What panics where nothing can be printed, a full disk for one; the program's own `output` does
/// not.
pub fn panicking_prints(path: &str, text: &str) -> Vec<String> {
    if !path.starts_with("crates/cli/src/") || path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let bare = code::bare(code::before_tests(text));
    let found = PANICKING.iter().flat_map(|word| code::lines_with(&bare, word));
    found
        .map(|line| format!("{path}:{line}: print with crate::output, which never panics"))
        .collect()
}

/// A module named for nothing.
pub fn names(path: &str, _text: &str) -> Vec<String> {
    let parts = path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let empty = parts.filter(|part| EMPTY_NAMES.contains(part));
    empty.map(|part| format!("{path}: '{part}' does not say what it owns")).collect()
}

/// A file without a header.
pub fn header(path: &str, text: &str) -> Vec<String> {
    let first = text.lines().next().unwrap_or_default();
    if first.strip_prefix("//! ").is_some_and(|says| says.len() > 10) {
        return Vec::new();
    }
    vec![format!("{path}: does not begin with a //! header that says what it owns")]
}

/// A licence tag that is not the house's; BPF programs must have theirs.
pub fn spdx(path: &str, text: &str) -> Vec<String> {
    let tag = text.lines().take(5).find_map(|line| line.split_once("SPDX-License-Identifier:"));
    let gpl = tag.is_some_and(|(_, licence)| licence.contains("GPL"));
    if path.ends_with(".bpf.c") {
        // The kernel refuses GPL-only helpers to a program that is not.
        let problem = (!gpl).then(|| format!("{path}: a BPF program without a GPL SPDX line"));
        return problem.into_iter().collect();
    }
    let problem = (gpl && crate_of(path) != "lab-plugin").then(|| format!("{path}: GPL"));
    problem.into_iter().collect()
}

/// A path that exists on its author's machine only.
pub fn machine_paths(path: &str, text: &str) -> Vec<String> {
    if PATHS_OF_THE_GUEST.iter().any(|(guest, _)| *guest == path) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for home in HOMES {
            // "network/", "$DIR/root/" or "*/root/" is no absolute path.
            let absolute = line.match_indices(home).any(|(at, _)| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.}*".contains(c))
            });
            if absolute {
                found.push(format!("{path}:{number}: {home} is a folder of one machine"));
            }
        }
    }
    found
}

/// The address of a package registry: a clone gets packages from wherever it is set up to.
pub fn registries(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for (at, _) in line.match_indices("://") {
            let rest = &line[at + 3..];
            let address = rest.split(['"', ' ', ')', '>', '\'']).next().unwrap_or_default();
            let host = address.split('/').next().unwrap_or_default();
            let named = host.strip_prefix("docs.").is_none()
                && (REGISTRIES.iter().any(|sign| host.contains(sign))
                    || address.contains("crates.io-index"));
            if named && address != PUBLIC_INDEX {
                found.push(format!("{path}:{number}: the registry {address}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod planted {
    use super::*;

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let lines = |n: usize| "x\n".repeat(n);
        assert_eq!(size("crates/lab/src/a.rs", &lines(501)).len(), 1);
        assert!(size("crates/lab/src/a.rs", &lines(500)).is_empty());
        let with_tests = format!("{}#[cfg(test)]\nmod tests {{\n{}", lines(400), lines(400));
        assert!(size("crates/lab/src/a.rs", &with_tests).is_empty());
        assert!(size("crates/lab/src/a/tests.rs", &lines(700)).is_empty());
        assert_eq!(size("crates/lab/src/a/tests.rs", &lines(801)).len(), 1);
    }

    #[test]
    fn unsafe_code_is_found_and_talk_of_it_is_not() {
        let block = "fn f() {\n    unsafe { g() }\n}";
        let found = unsafe_code("crates/check/src/lib.rs", block);
        assert!(found.len() == 1 && found[0].contains("lib.rs:2:"), "{found:?}");
        assert!(unsafe_code("crates/linux/src/lib.rs", block).is_empty());
        assert!(
            unsafe_code("crates/check/src/lib.rs", "// unsafe\nlet s = \"unsafe\";").is_empty()
        );
    }

    #[test]
    fn every_banned_call_is_found_in_every_deciding_crate() {
        let calls = [
            "use std::time::{Duration, Instant};",
            "let t = std::time::SystemTime::now();",
            "std::fs::read(path)",
            "use std::{fs, io}; fs::read(path)",
            "std::thread::spawn(f)",
            "println!(\"{x}\")",
            "dbg!(x)",
            "let m: HashMap<u32, u32> = x;",
            "use std::collections::HashSet;",
        ];
        for call in calls {
            for room in DECIDING {
                let path = format!("crates/{room}/src/x.rs");
                assert_eq!(banned_calls(&path, call).len(), 1, "{room}: {call}");
            }
            assert!(banned_calls("crates/linux/src/x.rs", call).is_empty(), "{call}");
            let in_tests = format!("#[cfg(test)]\nmod tests {{\n{call}\n}}");
            assert!(banned_calls("crates/check/src/x.rs", &in_tests).is_empty(), "{call}");
        }
        assert!(banned_calls("crates/check/src/x.rs", "BTreeMap::new() // no Instant").is_empty());
    }

    #[test]
    fn a_print_that_panics_is_found_in_the_program_only() {
        let panicking =
            ["println!(\"{x}\")", "print!(\"x\")", "eprintln!(\"x\")", "std::env::args().skip(1)"];
        for call in panicking {
            assert_eq!(panicking_prints("crates/cli/src/a.rs", call).len(), 1, "{call}");
            assert!(panicking_prints("crates/workloads/src/parts.rs", call).is_empty());
        }
        let fine = "say!(\"x\"); putln!(\"{x}\"); std::env::args_os() // println!";
        assert!(panicking_prints("crates/cli/src/a.rs", fine).is_empty());
    }

    #[test]
    fn empty_names_missing_headers_and_wrong_tags_are_found() {
        assert_eq!(names("crates/lab/src/utils.rs", "").len(), 1);
        assert_eq!(names("crates/lab/src/common/mod.rs", "").len(), 1);
        assert!(names("crates/lab/src/commons.rs", "").is_empty());
        assert_eq!(header("a.rs", "use x;\n//! Owns nothing.\n").len(), 1);
        assert_eq!(header("a.rs", "//! x\n").len(), 1);
        assert!(header("a.rs", "//! What this file owns.\n").is_empty());
        let gpl = "// SPDX-License-Identifier: GPL-2.0\n";
        assert_eq!(spdx("crates/lab/src/a.rs", gpl).len(), 1);
        assert!(spdx("crates/lab-plugin/src/a.rs", gpl).is_empty());
        assert!(spdx("crates/bpf/src/bpf/a.bpf.c", gpl).is_empty());
        assert_eq!(spdx("crates/bpf/src/bpf/a.bpf.c", "int x;\n").len(), 1);
    }

    #[test]
    fn paths_of_a_machine_and_registries_are_found() {
        for home in HOMES {
            assert_eq!(machine_paths("docs/a.md", &format!("see {home}x/y")).len(), 1, "{home}");
            assert!(
                machine_paths("docs/a.md", &format!("see $DIR{home}x, {{dir}}{home}")).is_empty()
            );
            assert!(machine_paths("docs/a.md", &format!("a net{}", &home[1..])).is_empty());
        }
        let address = |host: &str| format!("source = \"registry+https:{}{host}\"", "//");
        assert_eq!(registries("Cargo.lock", &address("pypi.example/simple")).len(), 1);
        assert_eq!(registries("Cargo.lock", &address("index.crates.io/")).len(), 1);
        assert_eq!(registries("Cargo.lock", &address("host.example/crates.io-index")).len(), 1);
        assert!(registries("Cargo.lock", &address(PUBLIC_INDEX)).is_empty());
        assert!(registries("README.md", &address("github.com/numaherd/numaherd")).is_empty());
    }
}
