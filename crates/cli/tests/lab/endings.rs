//! However a lab ends, its exit code and one line say how, and nothing of it is left.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::Bench;
use crate::processes::{self, signal, wait_until};
use crate::transcript::{Transcript, run};

/// Long enough for a boot on a loaded host.
const BOOT: Duration = Duration::from_secs(240);

/// A lab whose guest sleeps, under a dilated clock, and the id of its QEMU.
fn sleeping(bench: &Bench) -> (Child, u32) {
    let words = ["lab", "run", "--no-distance", "--dilation", "1.5"];
    let script = "touch up; sleep 600";
    let mut command = bench.command(&words, &["sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let up = bench.shared.path().join("up");
    if wait_until(BOOT, || up.exists()).is_none() {
        // Else those that come after it wait for the lab.
        child.kill().unwrap();
        panic!("not up: {command:?}");
    }
    let qemu = processes::with_argument_containing(bench.lab.path().to_str().unwrap());
    assert_eq!(qemu.len(), 1, "{qemu:?}");
    (child, qemu[0])
}

fn ended(child: Child) -> Transcript {
    Transcript::of("lab run -- sleep".into(), &child.wait_with_output().unwrap())
}

/// The dilated clock's shared memory, named for its process.
fn clocks(qemu: u32) -> Vec<PathBuf> {
    let ending = format!("_{qemu}");
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains("faketime") && name.ends_with(&ending)
    };
    let shared = std::fs::read_dir("/dev/shm").unwrap().flatten();
    shared.map(|entry| entry.path()).filter(ours).collect()
}

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_timeout_ends_with_124_and_leaves_nothing() {
    let bench = Bench::new();
    let words = ["lab", "run", "--no-distance", "--timeout", "8"];
    run(&mut bench.command(&words, &["sleep", "600"])).refuses(124, &["8 s", "--timeout"]);
    bench.left_nothing();
}

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn ctrl_c_ends_with_130_and_leaves_nothing() {
    let bench = Bench::new();
    let (child, qemu) = sleeping(&bench);
    signal("INT", child.id());
    ended(child).refuses(130, &["interrupted"]);
    bench.left_nothing();
    assert_eq!(clocks(qemu), Vec::<PathBuf>::new(), "left in /dev/shm");
}

/// As `yes | head -1` ends here.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_reader_that_has_seen_enough_ends_it_with_141() {
    let bench = Bench::new();
    let words = ["lab", "run", "--no-distance", "--timeout", crate::HANGS];
    let mut command = bench.command(&words, &["yes"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "y\n");
    assert_eq!(ended(child).code, 141);
    bench.left_nothing();
}

/// Its files cannot be removed by the dead, but the machine must not run on.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_killed_lab_leaves_no_machine_running() {
    let bench = Bench::new();
    let (mut child, qemu) = sleeping(&bench);
    signal("KILL", child.id());
    child.wait().unwrap();
    let gone = wait_until(Duration::from_secs(3), || !processes::runs(qemu));
    assert!(gone.is_some(), "QEMU {qemu} runs on");
    for left in clocks(qemu) {
        std::fs::remove_file(left).unwrap();
    }
}

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_panic_is_one_line_and_the_console_is_kept() {
    let bench = Bench::new();
    // What is on its way when the kernel dies may be lost with it.
    let panic = "echo before; read heard; echo c > /proc/sysrq-trigger; sleep 600";
    let words = ["lab", "run", "--no-distance", "--timeout", crate::HANGS];
    let mut command = bench.command(&words, &["sh", "-c", panic]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    shown.read_line(&mut line).unwrap();
    assert_eq!(line, "before\n", "what came before is shown");
    child.stdin.take().unwrap().write_all(b"heard\n").unwrap();
    let transcript = ended(child).ends_with(1);
    shown.read_line(&mut line).unwrap();
    assert_eq!(line, "before\n", "and nothing else: {transcript}");
    assert_eq!(transcript.stderr.lines().count(), 1, "{transcript}");
    let transcript = transcript.tells(&["Kernel panic", "console log: "]);
    let log = transcript.stderr.split("console log: ").nth(1).unwrap().trim().trim_end_matches(')');
    let console = std::fs::read_to_string(Path::new(log)).unwrap();
    assert!(console.contains("Kernel panic") && console.contains("sysrq"), "{console}");
    std::fs::remove_file(log).unwrap();
    bench.left_nothing();
}
