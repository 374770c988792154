//! `lab shell` and `--trace`.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::Bench;
use crate::transcript::{feed, program, run};

/// On a terminal: the shell has one too, what is typed reaches it, and its code comes back.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_shell_runs_on_a_terminal_of_its_own_and_ends_with_its_code() {
    let bench = Bench::new();
    let line = format!("{} lab shell --no-distance -- sh", program());
    // util-linux's script is a terminal with our pipe as its keyboard.
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "typescript"]);
    command.current_dir(bench.shared.path()).env("TMPDIR", bench.lab.path());
    let typed = "tty > seen; test -t 0 && test -t 1 && echo typed >> seen\nexit 6\n";
    let transcript = feed(&mut command, typed);
    assert_eq!(transcript.code, 6, "{transcript}");
    assert_eq!(bench.shared("seen"), "/dev/pts/0\ntyped\n", "{transcript}");
    bench.left_nothing();
}

/// What is typed is not for CMD, which sees the end of its input instead of waiting for ever.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_command_run_from_a_terminal_has_no_input() {
    let bench = Bench::new();
    let line = format!("{} lab run --no-distance --timeout {} -- cat", program(), crate::HANGS);
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "typescript"]);
    command.current_dir(bench.shared.path()).env("TMPDIR", bench.lab.path());
    run(&mut command).ends_with(0);
    bench.left_nothing();
}

/// The timeline is JSON in Perfetto's form: the traced threads run on CPUs of both nodes, to which they are tied
/// (the scheduler alone may leave one node without), slices of a CPU do not overlap, and what was lost is told.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_trace_shows_who_ran_where() {
    let bench = Bench::new();
    let load = [program(), "bench", "numa02", "--size", "8M", "--loops", "100", "--tie", "bind"];
    let words = ["lab", "run", "--no-distance", "--trace", "trace.json"];
    let transcript = run(&mut bench.command(&words, &load)).ends_with(0);
    let transcript = transcript.tells(&["task switches", "moved pages are in trace.json"]);
    let trace: Value = serde_json::from_str(&bench.shared("trace.json")).unwrap();
    assert_eq!(trace["otherData"]["unread_lines"], 0, "{transcript}");
    assert_eq!(trace["otherData"]["dropped_events"], 0, "{transcript}");
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str| {
        let name = Value::from(name);
        let found = events.iter().find(|e| e["ph"] == "M" && e["args"]["name"] == name);
        found.unwrap_or_else(|| panic!("no track {name}"))["pid"].clone()
    };
    for node in ["node 0", "node 1"] {
        let group = named(node);
        let mut slices: Vec<(u64, f64, f64)> = Vec::new();
        let mut busy: BTreeSet<u64> = BTreeSet::new();
        for slice in events.iter().filter(|e| e["ph"] == "X" && e["pid"] == group) {
            let number = |name: &str| slice[name].as_f64().unwrap();
            let cpu = slice["tid"].as_u64().unwrap();
            slices.push((cpu, number("ts"), number("dur")));
            // a workload thread for 10 ms at least
            if slice["name"].as_str().unwrap().starts_with("numa") && number("dur") > 1e4 {
                busy.insert(cpu);
            }
        }
        assert!(!busy.is_empty(), "{node}: none of the workload's threads ran there");
        slices.sort_by(|a, b| a.partial_cmp(b).unwrap());
        for pair in slices.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            assert!(pair[0].1 + pair[0].2 <= pair[1].1 + 0.001, "{node}: {pair:?} overlap");
        }
    }
    bench.left_nothing();
}
