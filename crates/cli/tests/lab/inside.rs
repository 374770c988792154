//! A command in the guest runs as if it ran here: folder, environment, input, outputs, code.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::Bench;
use crate::transcript::{feed, program, run, same_hardware};

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_command_sees_its_folder_environment_and_input_and_ends_with_its_code() {
    let bench = Bench::new();
    let script = format!(
        "read line; echo \"$line,$COLOUR,$PWD\"; echo trouble >&2; echo text > made
         numactl -H > theirs; {} topology -H > ours; exit 7",
        program()
    );
    let mut command = bench.command(&["lab", "run", "--no-distance"], &["sh", "-c", &script]);
    let transcript = feed(command.env("COLOUR", "blue"), "typed\n").ends_with(7);
    let folder = bench.shared.path().display();
    assert_eq!(transcript.stdout, format!("typed,blue,{folder}\n"), "{transcript}");
    assert_eq!(transcript.stderr, "trouble\n", "{transcript}");
    assert_eq!(bench.shared("made"), "text\n", "{transcript}");
    // numactl on the real thing: two nodes of four CPUs.
    let theirs = bench.shared("theirs");
    assert!(theirs.starts_with("available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2 3\n"), "{theirs}");
    same_hardware(&bench.shared("ours"), &theirs);
    bench.left_nothing();
}

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_missing_command_gives_127_and_one_line() {
    let bench = Bench::new();
    let mut command = bench.command(&["lab", "run", "--no-distance"], &["/no/such/command"]);
    run(&mut command).refuses(127, &["/no/such/command", "No such file"]);
    bench.left_nothing();
}

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn output_arrives_while_the_command_runs() {
    const PAUSE: Duration = Duration::from_secs(3);
    let bench = Bench::new();
    let script = "echo first; echo second >&2; sleep 3; echo last";
    let mut command = bench.command(&["lab", "run", "--no-distance"], &["sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        (line, Instant::now())
    };
    let (first, first_at) = line();
    let mut second = String::new();
    err.read_line(&mut second).unwrap();
    let second_at = Instant::now();
    let (last, last_at) = line();
    assert_eq!([first, second, last], ["first\n", "second\n", "last\n"], "{command:?}");
    // The guest's clock may tick a little slower than ours, not faster.
    let (after_out, after_err) = (last_at - first_at, last_at - second_at);
    assert!(after_out.min(after_err) > PAUSE * 8 / 10, "{after_out:?}, {after_err:?}");
    assert!(child.wait().unwrap().success());
    bench.left_nothing();
}
