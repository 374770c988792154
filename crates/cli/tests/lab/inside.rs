//! A command in the guest runs as if it ran here: folder, environment, input, outputs, code.

use std::io::{BufRead, BufReader, Write as _};
use std::process::Stdio;

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
    let bench = Bench::new();
    let script = "echo first; echo second >&2; read heard; echo $heard";
    let mut command = bench.command(&["lab", "run", "--no-distance"], &["sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line
    };
    let first = line();
    let mut second = String::new();
    err.read_line(&mut second).unwrap();
    // It waits for that.
    child.stdin.take().unwrap().write_all(b"last\n").unwrap();
    assert_eq!([first, second, line()], ["first\n", "second\n", "last\n"], "{command:?}");
    assert!(child.wait().unwrap().success());
    bench.left_nothing();
}
