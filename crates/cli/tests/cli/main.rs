//! Short transcripts on this host, without a lab: what a wrong or impossible request is told,
//! and what the commands that need no emulated machine print.
//!
//! An error is one line on stderr, says what to do, and exits 1 (could not be done) or 2 (the
//! command line is wrong). Tests that need root, or a program that is not there, say so and
//! pass.

#[path = "../transcript/mod.rs"]
mod transcript;

mod balancing;
mod bench;
mod machines;
mod policies;
mod restore;
mod seeing;
mod simulate;
mod streams;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use transcript::{is_same_hardware, numaherd, program, run, same_hardware};

fn is_root() -> bool {
    numaherd_linux::sys::identity::effective_user() == 0
}

/// A file below the repository's root.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A file with this text in a folder: its path.
fn written(dir: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Why a test does not apply here.
fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// Copies `numaherd`, by a process of its own: a child that another test starts meanwhile would hold our copy open
/// for writing, and what is open so cannot be executed.
fn copy_program(to: &Path) {
    assert!(Command::new("cp").arg(program()).arg(to).status().unwrap().success());
}

/// `numaherd` of an ordinary user, copied to that folder: the build's may be closed to others.
fn as_nobody(dir: &tempfile::TempDir) -> Command {
    let copy = dir.path().join("numaherd");
    copy_program(&copy);
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&copy);
    command.current_dir("/");
    command
}

/// What cannot be done is one line and exit code 1.
#[test]
fn what_cannot_be_done_is_one_line() {
    let refuses = |words: &[&str], told: &[&str]| {
        run(&mut numaherd(words)).refuses(1, told);
    };
    refuses(&["lab", "run", "--machine", "3x7", "--", "true"], &["'3x7'", "2x4", ".toml"]);
    refuses(&["lab", "run", "--machine", "no.toml", "--", "true"], &["no.toml", "No such file"]);
    refuses(&["compare", "numa02", "--on", "lab:3x7", "--results", "/dev/null"], &["'3x7'"]);
    let until = ["compare", "numa02", "--until", "0.1", "--placements", "off,kernel"];
    refuses(&until, &["--until", "bind"]);
    refuses(&["compare", "numa02", "--against", "/no/such"], &["--against", "No such file"]);
    refuses(&["compare", "numa02", "--against", "/dev/null"], &["no result of compare"]);
    let dir = tempfile::tempdir().unwrap();
    let earlier = r#"{"workload":"numa02","machine":"host","kernel":"6","runs":1,"seed":1,"dilation":1.0,
        "parameters":{"threads":8,"size_bytes":67108864,"loops":960,"start":"first-touch"},"placements":[]}"#;
    let earlier = written(&dir, "earlier.json", earlier);
    let against = ["compare", "numa02", "--on", "host", "--against", &earlier, "--size", "32M"];
    refuses(&against, &["--size 67108864", "--size 33554432", "do not compare"]);
    refuses(&["balance", "-p", "999999999"], &["no process 999999999"]);
    // A shell that becomes us.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" balance -p $$", program()]);
    run(&mut shell).refuses(1, &["this very run"]);
    refuses(&["topology", "--root", "/nonexistent"], &["/nonexistent", "No such file"]);
    refuses(&["restore", "--run", "no-such-run"], &["no run 'no-such-run'"]);
    let text = repository("README.md").display().to_string();
    refuses(&["topology", "--machine", &text], &["README.md': it is there", ".toml"]);
    refuses(&["lab", "run", "--machine", &text, "--", "true"], &["README.md': it is there"]);
}

/// A word in the wrong place is told with the right one, and what would do nothing is refused.
#[test]
fn what_was_likely_meant_is_told() {
    let refuses = |words: &[&str], told: &str| {
        run(&mut numaherd(words)).refuses(2, &[told]);
    };
    for command in ["status", "top", "advise", "balance"] {
        refuses(
            &[command, "4711"],
            "unexpected argument '4711' found: a process is given as -p 4711",
        );
    }
    for words in [&["balance", "make"][..], &["lab", "run", "make"], &["lab", "shell", "make"]] {
        refuses(words, "unexpected argument 'make' found: a command follows '--' (--help");
    }
    refuses(&["doctor", "4711"], "unexpected argument '4711' found (--help");
    // An option that others have, and no tip to pass it as a value.
    refuses(
        &["compare", "numa02", "--machine", "2x4"],
        "unexpected argument '--machine' found: a machine is given as --on sim:MACHINE or --on lab:MACHINE (--help",
    );
    for option in [&["--start", "one-node"][..], &["--quick"]] {
        let words = ["simulate", "numa02", "--machine", "2x4", "--placement", "off"];
        refuses(
            &[&words, option].concat(),
            &format!("unexpected argument '{}' found: it is one of compare", option[0]),
        );
    }
    for on in ["lab:", "sim:", "host:", "host:2x4", "here"] {
        refuses(
            &["compare", "numa02", "--on", on],
            "'lab', 'lab:MACHINE', 'sim:MACHINE' or 'host'",
        );
    }
    let host = ["compare", "numa02", "--on", "host"];
    for option in
        [&["--dilation", "3"][..], &["--kernel", "6"], &["--no-distance"], &["--trace", "t"]]
    {
        let told = format!("{} does not go with --on host", option[0]);
        refuses(&[&host, option].concat(), &told);
    }
}

/// A cause is told once, however many layers it passed.
#[test]
fn a_cause_is_told_once() {
    let transcript = run(&mut numaherd(&["topology", "--root", "/nonexistent"])).ends_with(1);
    assert_eq!(transcript.stderr.matches("No such file").count(), 1, "{transcript}");
}

/// A machine file that makes no sense is named, with the place.
#[test]
fn a_broken_machine_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd.toml");
    let good = std::fs::read_to_string(repository("machines/2x4.toml")).unwrap();
    std::fs::write(&path, good.replace("ways = 4", "ways = 3")).unwrap();
    let path = path.to_str().unwrap();
    let told = ["odd.toml", "a power of two"];
    run(&mut numaherd(&["lab", "run", "--machine", path, "--", "true"])).refuses(1, &told);
    std::fs::write(path, good.replace("ways = 4", "ways = ")).unwrap();
    run(&mut numaherd(&["lab", "run", "--machine", path, "--", "true"]))
        .refuses(1, &["odd.toml", "line"]);
}

/// A wrong command line exits 2, names the word and what would be right, and has done nothing.
#[test]
fn a_wrong_command_line_names_the_word_and_what_would_be_right() {
    for (words, told) in WRONG {
        let transcript = run(&mut numaherd(words)).ends_with(2).tells(told);
        assert_eq!(transcript.stdout, "", "{transcript}");
    }
}

/// And says so in one line.
#[test]
fn a_wrong_command_line_is_one_line() {
    for (words, told) in WRONG {
        run(&mut numaherd(words)).refuses(2, told);
    }
}

const WRONG: &[(&[&str], &[&str])] = &[
    (&["lab", "run", "--dilation", "0", "--", "true"], &["'0'", "--dilation", "from 1 to 1000"]),
    (&["lab", "run", "--dilation", "x", "--", "true"], &["'x'", "--dilation", "from 1 to 1000"]),
    (&["lab", "run", "--timeout", "0", "--", "true"], &["'0'", "--timeout"]),
    (&["lab", "run"], &["<CMD>"]),
    (&["compare", "numa02", "--placements", "bind,best"], &["'best'", "bind, inverse"]),
    (&["compare", "numa02", "--on", "moon"], &["'moon'", "lab:MACHINE"]),
    (&["compare", "numa02", "--runs", "0"], &["'0'", "--runs"]),
    (&["compare", "numa07"], &["'numa07'", "numa02"]),
    (&["bench", "numa02", "--size", "4X"], &["'4X'", "64M"]),
    (&["bench", "numa02", "--threads", "0"], &["'0'", "from 1"]),
    (&["bench", "numa02", "--seconds", "0"], &["'0'", "--seconds", "30"]),
    (&["bench", "numa02", "--seconds", "1", "--loops", "1"], &["--seconds", "--loops"]),
    (&["compare", "numa02", "--until", "2"], &["'2'", "--until", "0.01"]),
    (&["compare", "numa02", "--on", "sim:2x4", "--trace", "x"], &["--trace", "leave it out"]),
    (&["compare", "numa02", "--on", "sim:2x4", "--processes", "2"], &["--processes", "jbb-like"]),
    (
        &["simulate", "numa03", "--machine", "2x4", "--placement", "off"],
        &["'numa03'", "numa02_smt", ".toml"],
    ),
    (&["reproduce", "no-such-table"], &["'no-such-table'", "autonuma-slides"]),
    (&["topology", "--dilation", "2"], &["--dilation", "--measure"]),
    (&["balance"], &["--pid", "CMD"]),
    (&["balance", "-p", "0"], &["'0'", "--pid"]),
];

/// Without privilege, somebody else's process is left alone, and what is missing is named.
#[test]
fn balancing_a_process_of_somebody_else_names_the_privilege() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = as_nobody(&dir);
    command.args(["balance", "-p", &std::process::id().to_string()]);
    run(&mut command).refuses(1, &["not permitted", "root", "CAP_SYS_NICE"]);
}

/// Captured machines print as numactl prints them there.
#[test]
fn captured_machines_print_in_numactls_layout() {
    for name in ["2x4", "4x2", "mixed", "sparse", "host-1x2"] {
        let fixture = repository("fixtures").join(name);
        let golden = std::fs::read_to_string(fixture.join("numactl-H.txt")).unwrap();
        let root = fixture.join("root").display().to_string();
        let transcript = run(&mut numaherd(&["topology", "-H", "--root", &root])).ends_with(0);
        assert_eq!(transcript.stdout, golden, "{transcript}");
    }
}

/// The names in JSON and CSV are part of the contract. In `mixed`, node 1 has no memory and
/// node 2 no CPU.
#[test]
fn a_topology_for_programs_keeps_its_names() {
    let root = repository("fixtures/mixed/root").display().to_string();
    let json = run(&mut numaherd(&["topology", "--root", &root, "-o", "json"])).ends_with(0).json();
    assert_eq!(
        json,
        serde_json::json!({
            "nodes": [
                {"id": 0, "cpus": "0-1", "memory": 1016045568_u64, "free": 986783744_u64},
                {"id": 1, "cpus": "2", "memory": 0, "free": 0},
                {"id": 2, "cpus": "", "memory": 1053822976_u64, "free": 1022365696_u64},
            ],
            "distances": [[10, 20, 20], [20, 10, 20], [20, 20, 10]],
        })
    );
    let csv = run(&mut numaherd(&["topology", "--root", &root, "-o", "csv"])).ends_with(0);
    assert_eq!(
        csv.stdout,
        "node,cpus,memory_bytes,free_bytes,distances\n\
         0,\"0-1\",1016045568,986783744,10 20 20\n\
         1,\"2\",0,0,20 10 20\n\
         2,\"\",1053822976,1022365696,20 20 10\n"
    );
}

/// Here, `topology -H` is `numactl -H`.
#[test]
fn this_host_prints_as_numactl_prints_it() {
    if !Path::new("/usr/bin/numactl").exists() {
        return skip("numactl is not installed");
    }
    let (mut ours, mut theirs) = (String::new(), String::new());
    // Other tests take and free memory meanwhile.
    for _ in 0..20 {
        let transcript = run(Command::new("/usr/bin/numactl").arg("-H"));
        if transcript.code != 0 {
            return skip("numactl finds no NUMA here");
        }
        theirs = transcript.stdout;
        ours = run(&mut numaherd(&["topology", "-H"])).ends_with(0).stdout;
        if is_same_hardware(&ours, &theirs) {
            return;
        }
    }
    same_hardware(&ours, &theirs);
}

/// A workload's result has the names that `compare` and scripts read, and its sums are right:
/// two loops over 4 MiB write 8 MiB, and the last thread's time is the whole's.
#[test]
fn a_workload_prints_what_it_took() {
    let words = ["bench", "numa02", "--size", "4M", "--loops", "2", "--threads", "2", "-o", "json"];
    let json = run(&mut numaherd(&words)).ends_with(0).json();
    for (name, value) in [("threads", 2), ("size_bytes", 4 << 20), ("loops", 2), ("bytes", 8 << 20)]
    {
        assert_eq!(json[name], value, "{name} in {json}");
    }
    assert_eq!(json["workload"], "numa02");
    let seconds = json["seconds"].as_f64().unwrap();
    let each: Vec<f64> =
        json["thread_seconds"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
    assert_eq!((each.len(), each.iter().copied().fold(0.0, f64::max)), (2, seconds), "{json}");
    assert!(seconds > 0.0 && json["whole_seconds"].as_f64().unwrap() >= seconds, "{json}");
    assert!(json["start_ns"].as_u64().unwrap() > 0, "{json}");
}

/// Results that can never be written are told before anything is measured.
#[test]
fn results_that_cannot_be_written_are_told_before_a_machine_boots() {
    // Without a kernel in the cache folder there is none to boot, which would be told instead.
    let empty = tempfile::tempdir().unwrap();
    for place in ["/proc/nowhere/results", "/proc/version/results", "/"] {
        let mut command = numaherd(&["compare", "numa02", "--results", place]);
        run(command.env("NUMAHERD_CACHE", empty.path()))
            .refuses(1, &["cannot write results to", place]);
    }
}

/// What the lab needs and does not find is named with the package or script that brings it.
#[test]
fn what_the_lab_lacks_is_named_with_what_brings_it() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = numaherd(&["lab", "run", "--no-distance", "--", "true"]);
    command.env("NUMAHERD_CACHE", empty.path());
    run(&mut command).refuses(1, &["no kernel in", "scripts/fetch-kernel"]);

    let alone = empty.path().join("numaherd");
    copy_program(&alone);
    let mut command = Command::new(&alone);
    run(command.args(["lab", "run", "--", "true"]))
        .refuses(1, &["libnumaherd_latency.so", "cargo build --release"]);

    if !is_root() {
        return skip("only root can hide installed programs from a command");
    }
    for (file, package) in [
        ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
        ("/usr/bin/busybox", "busybox-static"),
        ("/usr/bin/setpriv", "util-linux"),
        ("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1", "faketime"),
    ] {
        if !Path::new(file).exists() {
            continue;
        }
        // A device in its place, in a name space of the command's own, is no program.
        let hide = format!("mount --bind /dev/null {file} && exec \"$0\" lab run -- true");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &hide, program()]);
        run(&mut command).refuses(1, &["missing", &format!("install the package {package}")]);
    }
}

/// With one node there is nothing to balance: it says so, and the command runs all the same.
#[test]
fn one_node_needs_no_balancing() {
    let json = run(&mut numaherd(&["topology", "-o", "json"])).ends_with(0).json();
    if json["nodes"].as_array().unwrap().len() > 1 {
        return skip("this machine has several nodes");
    }
    for code in [0, 7] {
        let exit = format!("echo out; exit {code}");
        let transcript = run(&mut numaherd(&["balance", "--", "sh", "-c", &exit])).ends_with(code);
        assert_eq!(transcript.stdout, "out\n", "{transcript}");
        assert_eq!(transcript.stderr.lines().count(), 1, "{transcript}");
        transcript.tells(&["one node", "nothing to balance"]);
    }
    let folder = tempfile::tempdir().unwrap();
    let (new, old) = (folder.path().join("new"), folder.path().join("old"));
    std::fs::write(&old, "of yesterday").unwrap();
    for results in [Path::new("/dev/null"), &new, &old] {
        run(numaherd(&["compare", "numa02", "--on", "host", "--results"]).arg(results))
            .ends_with(1)
            .tells(&["one node", "--on lab"]);
    }
    assert!(!new.exists(), "a file without results is left");
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "of yesterday");
}

/// A measurement of this host has a cell for each pair of nodes, and its options ask for it.
#[test]
fn a_host_is_measured_without_root() {
    let words = ["topology", "--measure", "--size", "1M", "--samples", "1", "-o", "json"];
    let json = run(&mut transcript::numaherd(&words)).ends_with(0).json();
    assert_eq!(json["machine"], "host", "{json}");
    let (rows, columns) = (&json["cpu_nodes"], &json["memory_nodes"]);
    for key in ["latency_ns", "read_mb_s", "write_mb_s"] {
        let cells = json[key].as_array().unwrap();
        assert_eq!(cells.len(), rows.as_array().unwrap().len(), "{key}: {json}");
        assert_eq!(cells[0].as_array().unwrap().len(), columns.as_array().unwrap().len(), "{key}");
        assert!(cells[0][0]["median"].as_f64().unwrap() >= 0.0, "{key}: {json}");
    }
    assert!(json["stated"].is_null(), "{json}");
    let transcript = run(&mut transcript::numaherd(&["topology", "--size", "1M"]));
    transcript.ends_with(2).tells(&["--measure"]);
    let small = run(&mut transcript::numaherd(&["topology", "--measure", "--size", "4K"]));
    small.ends_with(1).tells(&["4096 bytes fit into caches", "at least 1M"]);
}
