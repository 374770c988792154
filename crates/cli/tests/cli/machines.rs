//! Machines in every notation: built-in names, files, captured trees, hwloc's XML and one-line
//! texts are read, and printed in every form.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::transcript::{feed, numaherd, run};
use crate::{repository, written};

fn topology(machine: &str, form: &[&str]) -> String {
    let words = [&["topology", "--machine", machine], form].concat();
    run(&mut numaherd(&words)).ends_with(0).stdout
}

fn folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository("fixtures")).unwrap().flatten();
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.join("root").is_dir()).collect();
    folders.sort();
    folders
}

/// Whatever is known can be printed in each form, and each form shows every node.
#[test]
fn every_machine_prints_in_every_form() {
    let files = [
        "fixtures/hwloc/cxl.xml",
        "fixtures/hwloc/cxl-version-1.xml",
        "machines/cxl.toml",
        // only the simulator takes it
        "machines/documents/numaq.toml",
    ];
    let mut machines: Vec<String> = files.map(|path| repository(path).display().to_string()).into();
    machines.extend(folders().iter().map(|path| path.display().to_string()));
    machines.extend(numaherd_lab::machine::names().iter().map(|name| name.to_string()));
    machines.extend(["node:4 core:8 pu:2", "pack:2 [numa] l3:2 core:64 pu:8"].map(String::from));
    assert!(machines.len() > 38, "only {}", machines.len());
    for machine in &machines {
        let json: serde_json::Value =
            serde_json::from_str(&topology(machine, &["-o", "json"])).unwrap();
        let nodes = json["nodes"].as_array().unwrap().len();
        assert!(nodes > 0, "{machine}");
        assert_eq!(topology(machine, &["-o", "csv"]).lines().count(), nodes + 1, "{machine}");
        assert_eq!(topology(machine, &[]).lines().count(), nodes + 2, "{machine}");
        let hardware = topology(machine, &["-H"]);
        assert_eq!(hardware.matches(" size: ").count(), nodes, "{machine}");
    }
}

/// A captured tree given by its folder is the one that `--root` reads.
#[test]
fn a_captured_folder_is_a_machine() {
    let folder = repository("fixtures/no-node-0");
    let golden = std::fs::read_to_string(folder.join("numactl-H.txt")).unwrap();
    assert_eq!(topology(folder.to_str().unwrap(), &["-H"]), golden);
    let root = folder.join("root");
    assert_eq!(topology(root.to_str().unwrap(), &["-H"]), golden);
}

/// What lstopo wrote on a machine is that machine: both versions of its format agree with the
/// kernel's own files, captured on the same one.
#[test]
fn hwlocs_files_agree_with_the_kernels() {
    let fixture = |path: &str| repository("fixtures").join(path).display().to_string();
    let without_free = |text: String| -> Vec<String> {
        text.lines().filter(|line| !line.contains(" free: ")).map(String::from).collect()
    };
    let kernels = without_free(topology(&fixture("cxl"), &["-H"]));
    for file in ["hwloc/cxl.xml", "hwloc/cxl-version-1.xml"] {
        let theirs = without_free(topology(&fixture(file), &["-H"]));
        assert_eq!(theirs, kernels, "{file}");
    }
}

fn simulate(machine: &str) -> crate::transcript::Transcript {
    let words = [
        "simulate",
        "numa02",
        "--placement",
        "off,bind",
        "--loops",
        "2",
        "--size",
        "64M",
        "-o",
        "json",
    ];
    run(numaherd(&words).args(["--machine", machine])).ends_with(0)
}

/// What came of each placement, without the machine's name.
fn placements(machine: &str) -> serde_json::Value {
    simulate(machine).json()["placements"].take()
}

/// This very machine can be simulated, and so can what topology writes of it in either form, wherever it is read. What
/// is guessed of it is said.
#[test]
fn this_machine_is_one_to_simulate() {
    let dir = tempfile::tempdir().unwrap();
    let told = |words: &[&str]| run(&mut numaherd(words)).ends_with(0).stdout;
    let without_free = |text: String| {
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["nodes"].as_array_mut().unwrap().iter_mut().for_each(|node| drop(node["free"].take()));
        json
    };
    let host = told(&["topology", "--machine", "host", "-o", "json"]);
    assert_eq!(without_free(host.clone()), without_free(told(&["topology", "-o", "json"])));
    let here = simulate("host").tells(&["host", "are guessed", "10 ns × SLIT", "--measured"]);
    assert_eq!(here.json()["machine"], "sim:host");
    for (ending, text) in [("json", host), ("toml", told(&["topology", "-o", "toml"]))] {
        let path = dir.path().join(format!("mine.{ending}"));
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(placements(path), here.json()["placements"], "{ending}");
        assert_eq!(simulate(path).json()["machine"], "sim:mine");
    }
    let words =
        ["compare", "numa02", "--on", "sim:host", "--quick", "--size", "64M", "--runs", "1"];
    run(&mut numaherd(&words)).ends_with(0).tells(&["are guessed"]);
    run(&mut numaherd(&["policy", "mpol=local", "--machine", "host"])).ends_with(0);
}

/// A captured machine is not taken for a built-in one of its folder's name.
#[test]
fn a_folder_of_a_built_in_machines_name_is_what_was_captured_there() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(repository("fixtures/2x4/root"), dir.path().join("cxl")).unwrap();
    let told = |words: &[&str], format: &str| {
        let mut command = numaherd(&[&["topology", "-o", format], words].concat());
        run(command.current_dir(dir.path())).ends_with(0)
    };
    let count = |json: &serde_json::Value| json["nodes"].as_array().map_or(0, Vec::len);
    for words in [["--machine", "cxl"], ["--root", "cxl"]] {
        let nodes = count(&told(&words, "json").json());
        assert_eq!(nodes, 2);
        let file = dir.path().join("written.toml");
        std::fs::write(&file, told(&words, "toml").stdout).unwrap();
        let read = told(&["--machine", "written.toml"], "json").json();
        assert_eq!(count(&read), nodes, "{words:?}");
    }
}

/// And every command takes the same machine for it, but where the folder holds something else.
#[test]
fn a_name_is_the_same_machine_to_every_command() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(repository("fixtures/snc2"), dir.path().join("2x4")).unwrap();
    std::fs::create_dir(dir.path().join("numacore")).unwrap();
    std::fs::write(dir.path().join("numacore/results.json"), "{}").unwrap();
    let there = |words: &[&str]| {
        let mut command = numaherd(words);
        run(command.current_dir(dir.path())).ends_with(0)
    };
    let simulate = |machine: &str| {
        let words = ["simulate", "numa02", "--machine", machine, "--placement", "off,bind"];
        there(&[&words[..], &["--loops", "2", "--size", "64M"]].concat())
    };
    let captured = |machine: &str| {
        let told = there(&["topology", "--machine", machine, "-o", "json"]).json();
        told["nodes"].as_array().unwrap().len()
    };
    assert_eq!(captured("2x4"), 4, "what was captured");
    simulate("2x4").tells(&["2x4 are guessed"]);
    assert_eq!(captured("numacore"), 4, "the built-in one");
    assert_eq!(simulate("numacore").stderr, "");
    let own = there(&["topology", "--machine", "numacore", "-o", "toml"]).stdout;
    assert!(own.contains("[sim]") && !own.contains("made from"), "{own}");
}

/// A machine file says how fast the machine is, whatever it is called: a shell's `<(…)` ends in no `.toml`.
#[test]
fn a_machine_file_of_any_name_is_simulated_as_fast_as_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| written(&dir, name, text);
    let text = std::fs::read_to_string(repository("machines/documents/numacore.toml")).unwrap();
    let (plain, toml) = (file("mine", &text), file("mine.toml", &text));
    assert_eq!(placements(&plain), placements(&toml));
    assert_eq!(simulate(&plain).stderr, "", "nothing is guessed");
    assert_eq!(topology(&plain, &["-o", "toml"]), text);
    let pipe = |path: &str| {
        let script = "\"$0\" simulate numa02 --machine <(cat \"$1\") --placement off --loops 2 --size 64M -o csv";
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_numaherd"), path]);
        let told = run(&mut shell).ends_with(0);
        assert_eq!(told.stderr, "");
        let row = told.stdout.lines().nth(1).unwrap().to_string();
        row.split(',').skip(2).map(String::from).collect::<Vec<_>>()
    };
    let words = ["simulate", "numa02", "--machine", &toml, "--placement", "off", "--loops", "2"];
    let words = [&words[..], &["--size", "64M", "-o", "csv"]].concat();
    let named = run(&mut numaherd(&words)).ends_with(0).stdout;
    let row = named.lines().nth(1).unwrap();
    assert_eq!(pipe(&toml), row.split(',').skip(2).collect::<Vec<_>>());
    let wrong = file("wrong", &text.replace("stream_mb_s", "stream_mb"));
    let words = ["simulate", "numa02", "--machine", &wrong, "--placement", "off"];
    run(&mut numaherd(&words)).refuses(1, &["wrong:", "sim: one of `stream_mb_s`"]);
    // What never ends is no file of either kind.
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("zeros.toml")).unwrap();
    let zeros = dir.path().join("zeros.toml").display().to_string();
    let words = ["simulate", &zeros, "--machine", "2x4", "--placement", "off"];
    run(&mut numaherd(&words)).refuses(1, &["cannot read", "more than 64 MiB"]);
    let words = ["simulate", "numa02", "--machine", "/dev/zero", "--placement", "off"];
    run(&mut numaherd(&words)).refuses(1, &["no machine '/dev/zero'"]);
}

/// What a pipe gives is there once, and all of a command's readers have it: of a machine that only the simulator takes,
/// and of one that the lab takes too.
#[test]
fn a_machine_file_from_a_pipe_is_read_once() {
    for file in ["machines/documents/numaq.toml", "machines/2x4.toml"] {
        let text = std::fs::read_to_string(repository(file)).unwrap();
        let from_pipe = |form: &[&str]| {
            let words = [&["topology", "--machine", "/dev/stdin"], form].concat();
            feed(&mut numaherd(&words), &text).ends_with(0).stdout
        };
        assert_eq!(from_pipe(&["-o", "toml"]), text, "{file}");
        let path = repository(file);
        assert_eq!(from_pipe(&["-o", "csv"]), topology(path.to_str().unwrap(), &["-o", "csv"]));
    }
}

/// A named pipe that nobody writes is waited for, which is told; whoever writes it later is heard, and Ctrl-C ends it.
#[test]
fn a_pipe_that_nobody_writes_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("machine.toml");
    let pipe = pipe.to_str().unwrap();
    run(Command::new("mkfifo").arg(pipe)).ends_with(0);
    let waiting = format!("numaherd: waiting for {pipe}, which nobody");
    let begun = |words: &[&str]| {
        let mut command = numaherd(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert!(line.starts_with(&waiting), "{command:?}: {line}");
        (child, told)
    };
    let text = std::fs::read_to_string(repository("machines/2x4.toml")).unwrap();
    let (child, _told) = begun(&["topology", "--machine", pipe, "-o", "toml"]);
    std::fs::write(pipe, &text).unwrap();
    assert_eq!(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap(), text);
    // One that goes on after a signal until it looks, and one that a signal ends.
    let simulate = ["simulate", "numa02", "--machine", pipe, "--placement", "bind"];
    for words in [&["lab", "run", "--machine", pipe, "--", "true"][..], &simulate] {
        let (mut child, mut told) = begun(words);
        run(Command::new("kill").args(["-TERM", &child.id().to_string()])).ends_with(0);
        let mut rest = String::new();
        told.read_to_string(&mut rest).unwrap();
        assert!(rest.starts_with("numaherd: interrupted") && rest.lines().count() == 1, "{rest}");
        assert_eq!(child.wait().unwrap().code(), Some(143), "{words:?}");
    }
}

/// So can a captured one; a machine file can have what was measured there.
#[test]
fn a_captured_machine_is_one_to_simulate() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| written(&dir, name, text);
    let folder = repository("fixtures/snc2").display().to_string();
    let json = file("m.json", &topology(&folder, &["-o", "json"]));
    let toml = file("m.toml", &topology(&folder, &["-o", "toml"]));
    let there = placements(&folder);
    assert_eq!((placements(&json), placements(&toml)), (there.clone(), there.clone()));
    assert_eq!(simulate(&toml).stderr, "", "a file's figures are its owner's");
    assert_eq!(topology(&json, &["-H"]), topology(&folder, &["-H"]));
    let nodes = [0, 1, 2, 3];
    let figure = |ns: u32| serde_json::json!({"median": 2 * ns, "min": ns, "max": 3 * ns});
    let row = |a: i32| nodes.map(|b: i32| figure(90 + 10 * b.abs_diff(a)));
    let measured = serde_json::json!({
        "machine": "host", "kernel": "6.12", "cpu_nodes": nodes, "memory_nodes": nodes, "size_bytes": 1,
        "samples": 1, "bound": true, "loop_ns": nodes, "read_mb_s": nodes.map(row), "write_mb_s": nodes.map(row),
        "stated": null, "latency_ns": nodes.map(row)
    });
    let measured = file("measured.json", &measured.to_string());
    let with = topology(&folder, &["-o", "toml", "--measured", &measured]);
    assert!(with.contains("[120.0, 110.0, 100.0, 90.0]"), "{with}");
    assert!(with.contains("bandwidth_mb_s = [180.0, 180.0, 180.0, 180.0]"), "{with}");
    assert!(with.contains("\"distance.latency_ns\" = \"measured"), "{with}");
    assert_ne!(placements(&file("with.toml", &with)), there);
    let odd = dir.path().join(OsStr::from_bytes(b"measured\xff.json"));
    std::fs::copy(&measured, &odd).unwrap();
    let words = ["topology", "--machine", &folder, "-o", "toml", "--measured"];
    assert_eq!(run(numaherd(&words).arg(&odd)).ends_with(0).stdout, with);
    // A machine that has a file is told by it.
    let own = std::fs::read_to_string(repository("machines/cxl.toml")).unwrap();
    assert_eq!(topology("cxl", &["-o", "toml"]), own);
    let refuses = |code, words: &[&str], told: &[&str]| {
        run(&mut numaherd(&[&["topology"], words].concat())).refuses(code, told);
    };
    let of = |machine| ["--machine", machine, "--measured", &measured, "-o", "toml"];
    refuses(1, &of("node:2"), &["measured.json", "of all nodes"]);
    refuses(2, &of("cxl"), &["cxl has a file", "leave --measured out"]);
    refuses(2, &["--measured", &measured], &["-o toml"]);
    refuses(2, &["--measure", "-o", "toml"], &["-o json", "--measured"]);
    refuses(1, &["--machine", &measured], &["--measured", "measured.json -o toml"]);
    refuses(1, &["--machine", "/nonexistent.json"], &["cannot read /nonexistent.json"]);
    refuses(
        1,
        &["--machine", &file("x.json", "{}")],
        &["not what topology -o json writes", "nodes"],
    );
    let far = topology(&folder, &["-o", "json"]).replacen("10,", "", 1);
    refuses(1, &["--machine", &file("y.json", &far)], &["as many rows and columns"]);
    refuses(
        1,
        &["--machine", "node:65", "-o", "toml"],
        &["node:65 cannot be written as a machine file: node: 1 to 64"],
    );
    // A wrong file for the simulator is told as the simulator tells it.
    let wrong = file("wrong.toml", &with.replace("[[node]]\nid = 1", "[[node]]\nid = 0"));
    refuses(1, &["--machine", &wrong], &["wrong.toml", "ascending ids"]);
}

/// What is wrong with a machine is one line that names it and the place.
#[test]
fn a_wrong_machine_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| written(&dir, name, text);
    let broken = file("broken.xml", "<topology>\n<object type=\"NUMANode\"/>\n</topology>");
    let other = file("other.xml", "<html></html>");
    let empty = dir.path().display().to_string();
    for (machine, told) in [
        ("node:x", "'node:x': a number"),
        ("nodes:2", "'nodes' is no level"),
        ("3x7", "known are 2x4"),
        ("3x7", "x5-8; or give"),
        (broken.as_str(), "line 2: a NUMANode without os_index"),
        (other.as_str(), "not hwloc's XML"),
        ("/nonexistent.xml", "No such file"),
        (empty.as_str(), "no captured machine in"),
    ] {
        run(&mut numaherd(&["topology", "--machine", machine])).refuses(1, &[told]);
    }
    // what can be described need not fit the emulator
    let words = ["lab", "run", "--machine", "node:8 core:64", "--", "true"];
    run(&mut numaherd(&words)).refuses(1, &["512 CPUs in all", "64"]);
    run(&mut numaherd(&["topology", "--machine", "2x4", "--root", "/"])).refuses(2, &["--root"]);
}

/// A shell needs a terminal, and says what does not.
#[test]
fn a_shell_without_a_terminal_is_one_line() {
    run(&mut numaherd(&["lab", "shell"])).refuses(1, &["needs a terminal", "lab run"]);
}

/// A name that would break a line or move the cursor does neither.
#[test]
fn a_machine_s_name_stays_on_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(repository("machines/2x4.toml")).unwrap();
    let path = written(&dir, "two\nlines\x1b[2J.toml", &text);
    let words = ["simulate", "numa02", "--machine", &path, "--placement", "off", "--loops", "1"];
    let table = run(&mut numaherd(&words)).ends_with(0);
    let last = table.stdout.lines().last().unwrap();
    assert!(last.starts_with(r"numa02 on sim:two\nlines\u{1b}[2J, kernel "), "{table}");
}

/// The machine at `/` is this one, though there is a folder `/root`.
#[test]
fn the_root_folder_is_this_machine() {
    let of = |root: &str| {
        let mut told: serde_json::Value =
            serde_json::from_str(&topology(root, &["-o", "json"])).unwrap();
        // What is free changes from one look to the next.
        for node in told["nodes"].as_array_mut().unwrap() {
            node["free"] = 0.into();
        }
        told
    };
    assert_eq!(of("/"), of("host"));
}
