//! The house rules as a test: crate edges, licences, file sizes, banned calls, names, headers,
//! and nothing of a developer's machine in a file.
//!
//! Each rule is a function over text, and each has a test here that plants a violation: a rule
//! that cannot fail guards nothing.

mod code;
mod manifest;
mod notices;
mod rules;
mod tree;

use std::collections::BTreeSet;
use std::path::Path;

use tree::File;

fn none(rule: &str, violations: Vec<String>) {
    assert!(violations.is_empty(), "{rule}:\n  {}", violations.join("\n  "));
}

fn over(files: &[File], rule: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
    files.iter().flat_map(|file| rule(&file.path, &file.text)).collect()
}

#[test]
fn crates_depend_only_on_what_the_house_allows() {
    let manifests = tree::files(|path| manifest::crate_of(path).is_some());
    assert!(manifests.len() > 5, "only {} manifests found", manifests.len());
    none("crate edges", over(&manifests, manifest::edges));
}

#[test]
fn only_the_plugin_and_bpf_programs_are_gpl() {
    let manifests = tree::files(|path| path == "Cargo.toml" || manifest::crate_of(path).is_some());
    none("licences of crates", over(&manifests, manifest::licence));
    let sources = tree::files(|path| path.ends_with(".rs") || path.ends_with(".c"));
    none("licences of files", over(&sources, rules::spdx));
}

#[test]
fn files_stay_small() {
    none("file sizes", over(&tree::files(|path| path.ends_with(".rs")), rules::size));
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    none("unsafe", over(&tree::files(|path| path.ends_with(".rs")), rules::unsafe_code));
}

#[test]
fn the_deciding_crates_see_no_clock_file_thread_or_hash_order() {
    let sources = tree::files(|path| path.ends_with(".rs") && path.contains("/src/"));
    none("banned calls", over(&sources, rules::banned_calls));
}

#[test]
fn the_program_prints_without_a_panic() {
    let sources = tree::files(|path| path.ends_with(".rs"));
    none("panicking prints", over(&sources, rules::panicking_prints));
}

#[test]
fn modules_are_named_for_what_they_own() {
    none("names", over(&tree::files(|path| path.ends_with(".rs")), rules::names));
}

#[test]
fn every_file_says_what_it_owns() {
    none("headers", over(&tree::files(|path| path.ends_with(".rs")), rules::header));
}

#[test]
fn nothing_of_a_developers_machine_is_written_down() {
    let text = tree::files(|path| !rules::is_licence(path));
    none("paths of a machine", over(&text, rules::machine_paths));
    none("registries", over(&text, rules::registries));
}

#[test]
fn every_machine_file_is_sound_and_built_in_or_reachable_by_path() {
    let machines = tree::files(|path| path.starts_with("machines/") && path.ends_with(".toml"));
    let (documents, machines): (Vec<_>, Vec<_>) =
        machines.into_iter().partition(|file| file.path.starts_with("machines/documents/"));
    for file in machines.iter().chain(&documents) {
        // The simulator takes all of them.
        let name = Path::new(&file.path).file_stem().and_then(|stem| stem.to_str());
        let machine = name.and_then(numaherd_sim::Machine::built_in);
        assert!(machine.is_some_and(|machine| machine.is_ok()), "{} in the simulator", file.path);
    }
    assert!(!documents.is_empty());
    let found: BTreeSet<&str> =
        machines.iter().filter_map(|file| Path::new(&file.path).file_stem()?.to_str()).collect();
    assert!(found.contains("2x4"), "the demo's machine is gone: {found:?}");
    for file in &machines {
        let path = tree::root().join(&file.path);
        let machine = numaherd_lab::Machine::find(&path.to_string_lossy());
        assert!(machine.is_ok(), "{}: {}", file.path, machine.unwrap_err());
    }
    for name in numaherd_lab::machine::names() {
        assert!(found.contains(name), "machine {name} is built in and has no file");
    }
}
