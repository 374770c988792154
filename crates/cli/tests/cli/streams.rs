//! Where results go: a full disk, a folder that is not there, a reader that has gone, and an end in
//! the middle. Never a panic, never half a file.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::transcript::{Transcript, numaherd, program, run};
use crate::{repository, skip};

/// Quick commands that print a result, under our name and others'.
const PRINTING: &[(&str, &[&str])] = &[
    ("numaherd", &["--help"]),
    ("numaherd", &["--version"]),
    ("numaherd", &["balance", "-h"]),
    ("numaherd", &["help", "top"]),
    ("numaherd", &["bench", "pft", "--help"]),
    ("numaherd", &["run", "--help"]),
    ("numaherd", &["topology"]),
    ("numaherd", &["topology", "-H"]),
    ("numaherd", &["topology", "--measure", "--size", "1M", "--samples", "1"]),
    ("numaherd", &["doctor"]),
    ("numaherd", &["status", "-o", "json"]),
    ("numaherd", &["restore"]),
    ("numaherd", &["policy", "-m 0", "--machine", "2x4"]),
    ("numaherd", &["run", "--explain", "-m", "0", "true"]),
    ("numaherd", &["run", "-H"]),
    ("numaherd", &["run", "--show"]),
    ("numaherd", &["reproduce"]),
    ("numaherd", &["calibrate"]),
    ("numaherd", &["bench", "forks", "--loops", "1", "--threads", "1"]),
    ("numaherd", &["bench", "pft", "-m", "64k"]),
    (
        "numaherd",
        &["simulate", "numa02", "--machine", "2x4", "--placement", "bind", "--loops", "2"],
    ),
    (
        "numaherd",
        &[
            "compare",
            "numa02",
            "--on",
            "sim:2x4",
            "--placements",
            "bind",
            "--loops",
            "2",
            "--runs",
            "1",
        ],
    ),
    ("numastat", &[]),
    ("numastat", &["-m"]),
    ("numactl", &["-H"]),
    ("numad", &["-w", "1"]),
];

/// The program under one of its names, with its output going there.
fn printing_to(name: &str, words: &[&str], to: File) -> Transcript {
    use std::os::unix::process::CommandExt;
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new(program());
    command.arg0(name).args(words).env("NUMAHERD_STATE", state.path());
    command.stdin(Stdio::null()).stdout(to).stderr(Stdio::piped());
    Transcript::of(format!("{name}: {command:?}"), &command.output().unwrap())
}

/// A full disk is said in one line, whoever prints.
#[test]
fn a_full_disk_is_told_and_is_no_panic() {
    for (name, words) in PRINTING {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let transcript = printing_to(name, words, full).tells(&["No space left on device"]);
        assert!(!transcript.stderr.contains("panicked"), "{transcript}");
        assert_eq!(transcript.code, 1, "{transcript}");
    }
}

/// A reader that has gone is no error worth a word.
#[test]
fn a_reader_that_has_gone_is_not_complained_about() {
    for (name, words) in PRINTING {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let transcript = printing_to(name, words, File::from(std::os::fd::OwnedFd::from(writer)));
        let complains = ["panicked", "pipe"].iter().any(|word| transcript.stderr.contains(word));
        assert!(!complains && [0, 141].contains(&transcript.code), "{transcript}");
    }
}

/// A page or a timeline that can never be written is told before the work is done.
#[test]
fn files_that_cannot_be_written_are_told_first() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let forever =
        ["simulate", "numa02", "--machine", "2x4", "--placement", "bind", "--loops", "99999999"];
    let compared = ["compare", "numa02", "--on", "sim:2x4", "--loops", "99999999"];
    for place in ["/no/such/page", folder] {
        for (words, option) in [
            (&forever[..], "--html"),
            (&forever, "--trace"),
            (&compared, "--html"),
            (&compared, "--svg"),
        ] {
            let words = [words, &[option, place]].concat();
            run(&mut numaherd(&words)).refuses(1, &["cannot write", place]);
        }
    }
    let pft = ["bench", "pft", "--tables", "1", "--svg", "/no/such/plot"];
    run(&mut numaherd(&pft))
        .refuses(1, &["cannot write /no/such/plot: No such file or directory (os error 2)"]);
}

/// Ctrl-C in the middle leaves the file that was there, and nothing beside it that counts.
#[test]
fn an_interrupt_leaves_a_file_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    std::fs::write(&page, "of yesterday").unwrap();
    let path = page.to_str().unwrap();
    let words = [
        "simulate",
        "numa02",
        "--machine",
        "2x4",
        "--placement",
        "bind",
        "--loops",
        "100000",
        "--html",
        path,
    ];
    let (signal, code) = interrupt();
    interrupted(&words, signal).refuses(code, &["interrupted"]);
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "of yesterday");
}

/// Ctrl-C; where that is ignored, as by what a shell's script leaves in the background, its kin. And the code that
/// it asks for.
fn interrupt() -> (&'static str, i32) {
    let ignored = signals(std::process::id(), "SigIgn:").unwrap();
    if ignored & 2 == 0 { ("-INT", 130) } else { ("-TERM", 143) }
}

/// A set of a process's signals, by its name in the status.
fn signals(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let set = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

/// Whether a process has a handler for a signal.
fn heeds(pid: u32, signal: &str) -> bool {
    let caught = signals(pid, "SigCgt:");
    let bit = if signal == "-INT" { 2 } else { 15 } - 1;
    caught.is_some_and(|caught| caught >> bit & 1 == 1)
}

/// Runs it until it gets a signal in its midst.
fn interrupted(words: &[&str], signal: &str) -> Transcript {
    let mut command = numaherd(words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = std::time::Instant::now();
    // On a busy machine it takes a while until it heeds signals.
    while !heeds(child.id(), signal) && begin.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "{command:?} ended by itself");
    let pid = child.id().to_string();
    run(Command::new("kill").args([signal, &pid])).ends_with(0);
    Transcript::of(format!("{command:?}"), &child.wait_with_output().unwrap())
}

/// What takes long says that it was interrupted, in one line, and ends with 128 and the signal.
#[test]
fn an_interrupt_is_told() {
    let long = "99999999";
    // Half of what is simulated at the most.
    let sim = ["compare", "numa02", "--on", "sim:2x4", "--loops", "400000"];
    let bench = ["bench", "numa02", "--threads", "1", "--size", "1M", "--seconds", "60"];
    let forks = ["bench", "forks", "--threads", "1", "--size", "1M", "--loops", long];
    let pft = ["bench", "pft", "-m", "256m", "--runs", "1000"];
    for words in [&sim[..], &bench, &forks, &pft, &["reproduce", "--all", "--runs", "9"]] {
        let (signal, code) = interrupt();
        let told = interrupted(words, signal).ends_with(code).tells(&["numaherd: interrupted\n"]);
        assert_eq!(told.stdout, "", "{told}");
    }
    interrupted(&bench, "-TERM").refuses(143, &["interrupted"]);
}

/// A look that was to last longer tells what it has seen, and ends with that code all the same.
#[test]
fn an_interrupted_look_tells_what_it_has_seen() {
    let pid = std::process::id();
    let words = ["status", "--sample", "60", "-o", "json", "-p", &pid.to_string()];
    let (signal, code) = interrupt();
    let json = interrupted(&words, signal).ends_with(code).json();
    // Its descendants come with it.
    let mut processes = json["processes"].as_array().unwrap().iter();
    assert!(processes.any(|process| process["pid"] == pid), "{json}");
    assert!(json["seconds"].as_f64().unwrap() < 60.0, "{json}");
}

/// What the contract calls a result has all three forms.
#[test]
fn lists_of_figures_have_every_form() {
    let calibrated = run(&mut numaherd(&["calibrate", "-o", "json"])).ends_with(0).json();
    for name in ["figure", "cells", "follows", "stands"] {
        assert!(!calibrated["figures"][0][name].is_null(), "{name} in {calibrated}");
    }
    let csv = run(&mut numaherd(&["calibrate", "-o", "csv"])).ends_with(0);
    assert!(csv.stdout.starts_with("figure,follows_from,is_then,file\n"), "{csv}");
    let tables = run(&mut numaherd(&["reproduce", "-o", "json"])).ends_with(0).json();
    assert_eq!(tables["tables"][0]["name"], "autonuma-slides", "{tables}");
    let csv = run(&mut numaherd(&["reproduce", "-o", "csv"])).ends_with(0);
    assert!(csv.stdout.starts_with("table,simulated,what\n"), "{csv}");
    // numactl's layout is one of its own.
    run(&mut numaherd(&["topology", "-H", "-o", "json"])).refuses(2, &["--hardware", "--output"]);
}

/// A number that is none, or is below 0, is told as such, with what would be right.
#[test]
fn numbers_are_told_in_words() {
    let wrong = |words: &[&str], told: &[&str]| {
        run(&mut numaherd(words)).refuses(2, told);
    };
    for pid in ["abc", "-5", "0", "4294967296", "1.5", ""] {
        for command in ["status", "advise", "balance"] {
            wrong(&[command, "--pid", pid], &["--pid", "the id of a process, such as 4711"]);
        }
    }
    let simulate = ["simulate", "numa02", "--machine", "2x4", "--placement", "bind"];
    wrong(&[&simulate[..], &["--seed", "-1"]].concat(), &["'-1'", "--seed", "a whole number"]);
    wrong(&[&simulate[..], &["--runs", "x"]].concat(), &["'x'", "--runs", "a whole number"]);
    wrong(&["status", "--sample", "-1"], &["'-1'", "--sample", "from 0.1 to 3600"]);
    wrong(&["top", "--times", "0"], &["'0'", "--times", ": a whole number, 1 or more ("]);
    wrong(&[&simulate[..], &["--runs", "0"]].concat(), &[": a whole number from 1 to 1000 ("]);
    wrong(&["explain", "last", "--task", "-1"], &["a whole number from 0 to 4294967295 ("]);
    let many = [&simulate[..], &["--threads", "1000000000"]].concat();
    run(&mut numaherd(&many)).refuses(1, &["1000000000 threads", "at most"]);
    // Seeds go round: the greatest has a next one.
    let last = u64::MAX.to_string();
    let more = ["--loops", "2", "--runs", "2", "--seed", last.as_str()];
    run(&mut numaherd(&[&simulate[..], &more].concat())).ends_with(0);
}

/// A word that is no UTF-8 is passed on to a command, and named where it cannot be meant.
#[test]
fn words_that_are_no_text_are_passed_on_or_named() {
    let odd = OsStr::from_bytes(b"a\xffb");
    run(numaherd(&["topology", "--machine"]).arg(odd)).refuses(2, &["'a\u{fffd}b' is not UTF-8"]);
    let one = run(&mut numaherd(&["topology", "-o", "json"])).json();
    if one["nodes"].as_array().unwrap().len() > 1 {
        return skip("balance would act on a machine with several nodes");
    }
    let mut command = numaherd(&["balance", "--", "sh", "-c", "printf '%s' \"$1\" | wc -c", "sh"]);
    let transcript = run(command.arg(odd)).ends_with(0);
    assert_eq!(transcript.stdout.trim(), "3", "{transcript}");
}

/// Our own path may be no text either.
#[test]
fn a_path_that_is_no_text_runs_a_workload() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join(OsStr::from_bytes(b"a\xffb"));
    assert!(Command::new("cp").arg(program()).arg(&copy).status().unwrap().success());
    let mut command = Command::new(&copy);
    command.args(["bench", "jbb-like", "--processes", "2", "--threads", "2", "--size", "1M"]);
    run(command.args(["--loops", "10", "-o", "json"])).ends_with(0).json();
}

/// A machine's file that is wrong is told on a line, with its own.
#[test]
fn a_wrong_machine_file_is_told_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd.toml");
    let good = std::fs::read_to_string(repository("machines/2x4.toml")).unwrap();
    std::fs::write(&path, format!("odd = 1\n{good}")).unwrap();
    let transcript = run(&mut numaherd(&["topology", "--machine", path.to_str().unwrap()]))
        .refuses(1, &["odd.toml", "line 1", "unknown field `odd`"]);
    assert!(!transcript.stderr.contains('|'), "{transcript}");
}

/// What has something to put back goes on where nobody can be told of it.
#[test]
fn balance_ends_as_its_command_does_where_nobody_can_be_told() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new(program());
    command.args(["balance", "--no-bpf", "-v", "--", "sh", "-c", "exit 7"]);
    command.env("NUMAHERD_STATE", state.path()).stdin(Stdio::null()).stderr(full);
    assert_eq!(command.status().unwrap().code(), Some(7));
    let mut left = std::fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().path());
    assert!(left.all(|path| path.extension() != Some(OsStr::new("journal"))));
}

/// Whoever waits for a simulation is told what for.
#[test]
fn a_long_simulation_says_where_it_is() {
    use std::io::{BufRead, BufReader};
    // Hours, if nobody ended it.
    let long = ["--runs", "1000", "--loops", "1000000"];
    let words = ["compare", "numa02", "--on", "sim:2x4", "--placements", "off"];
    let mut command = numaherd(&[&words[..], &long].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = told.next().unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let is_where = first.starts_with("numaherd: run ") && first.contains(" of 1000: off");
    assert!(is_where, "{first}");
}
