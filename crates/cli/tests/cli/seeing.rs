//! `doctor`, `status`, `advise` and `explain` on this host: what they say on any machine, with and
//! without nodes, and to whoever asks for something that is not there.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use serde_json::Value;

use crate::transcript::{feed, numaherd, program, run};
use crate::{as_nobody, is_root, skip};

/// A run's log, as balance writes it: its lines are a format that outlives a version.
const LOG: &str = r#"{"v":1,"t":0,"event":"begin","run":"9-8","boot":"b","pid":9,"start":8,"about":"process 7"}
{"v":1,"t":100000000,"event":"state","strength_permille":20,"converged":false,"faults":9,"tasks":2,"waiting":null}
{"v":1,"t":100000000,"event":"action","action":{"do":"place-task","task":{"tid":71,"start":5},"node":1,"cpus":"4-7","why":"memory-there","permille":950},"outcome":{"outcome":"done","moved":0}}
{"v":1,"t":100000000,"event":"action","action":{"do":"move-pages","region":{"process":{"tgid":7,"start":5},"start":4194304},"len":2097152,"to":1,"pages":512,"why":"users-there","permille":990},"outcome":{"outcome":"partial","moved":500,"refused":{"busy":12,"shared":0,"full":0,"absent":0,"other":0}}}
{"v":1,"t":2500000000,"event":"state","strength_permille":990,"converged":true,"faults":9,"tasks":2,"waiting":null}
{"v":1,"t":26000000"#;

/// Every finding has a state, and whatever is not as it could be says what to do.
#[test]
fn doctor_says_what_to_do_wherever_something_is_missing() {
    let json = run(&mut numaherd(&["doctor", "-o", "json"])).ends_with(0).json();
    let findings = json["findings"].as_array().unwrap();
    for topic in ["kernel", "nodes", "kernel balancing", "hinting faults", "undo", "lab"] {
        assert!(findings.iter().any(|finding| finding["topic"] == topic), "{topic} in {json}");
    }
    for finding in findings {
        let ok = finding["state"] == "ok";
        assert_eq!(ok, finding["remedy"].is_null(), "{finding}");
    }
    assert_eq!(json["privileges"].as_array().unwrap().len(), 6, "{json}");
    assert_eq!(json["commands"].as_array().unwrap().len(), 4, "{json}");
    let table = run(&mut numaherd(&["doctor"])).ends_with(0);
    assert!(table.stdout.contains("capability") && table.stderr.is_empty(), "{table}");
    let csv = run(&mut numaherd(&["doctor", "-o", "csv"])).ends_with(0);
    assert!(csv.stdout.starts_with("what,state,found,to_do\n"), "{csv}");
    // Capabilities and commands are in it, too.
    assert_eq!(csv.stdout.lines().count(), 1 + findings.len() + 6 + 4, "{csv}");
    assert!(csv.stdout.contains("\nCAP_SYS_NICE,"), "{csv}");
}

/// One look after the other: JSON by line, CSV below one head; it ends when those have that it was told of.
#[test]
fn top_looks_again_and_again() {
    let top = |more: &[&str]| run(&mut numaherd(&[&["top", "--interval", "0.1"], more].concat()));
    let ours = std::process::id();
    let pid = ours.to_string();
    let json = top(&["-n", "3", "-p", &pid, "-o", "json"]).ends_with(0);
    let looks: Vec<Value> =
        json.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(looks.len(), 3, "{json}");
    let at = |look: &Value| look["at_seconds"].as_f64().unwrap();
    assert!(looks.windows(2).all(|pair| at(&pair[0]) < at(&pair[1])), "{json}");
    // With what other tests have it start meanwhile.
    let is_it = |process: &Value| process["pid"] == ours;
    let sees = |look: &Value| look["processes"].as_array().unwrap().iter().any(is_it);
    assert!(looks.iter().all(sees), "{json}");
    let csv = top(&["-n", "2", "-p", &pid, "-o", "csv"]).ends_with(0);
    let heads = csv.stdout.lines().filter(|line| line.starts_with("at_seconds,pid,")).count();
    assert!(heads == 1 && csv.stdout.lines().count() >= 3, "{csv}");

    let mut sleeper = Command::new("sleep").arg("3").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let waits = std::thread::spawn(move || sleeper.wait());
    let table = top(&["-p", &pid]).ends_with(0);
    waits.join().unwrap().unwrap();
    assert!(table.stdout.contains("local lately"), "{table}");
    let table = table.tells(&["no process that was named is left"]);
    assert!(table.stdout.starts_with("after 0."), "{table}");
    top(&["-p", &pid]).refuses(1, &["no process", &pid]);
    top(&["-n", "0"]).refuses(2, &["--times"]);
}

/// On a terminal it has a screen of its own until q is pressed, and gives back what was there.
#[test]
fn top_has_a_screen_of_its_own_on_a_terminal() {
    let line = format!("{} top --interval 0.1", program());
    // util-linux's script is a terminal with our pipe as its keyboard.
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let transcript = feed(&mut command, "q");
    assert_eq!(transcript.code, 0, "{transcript}");
    let (_, shown) = transcript.stdout.split_once("\x1b[?1049h").unwrap();
    assert!(shown.ends_with("\x1b[?25h\x1b[?1049l"), "{transcript}");
}

/// Doctor looks and leaves nothing: not even the folder that journals would be in.
#[test]
fn doctor_makes_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("run/numaherd");
    let mut command = numaherd(&["doctor", "-o", "json"]);
    let json = run(command.env("NUMAHERD_STATE", &state)).ends_with(0).json();
    let undo = |json: &serde_json::Value| {
        let findings = json["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["topic"] == "undo").unwrap()["state"].clone()
    };
    assert_eq!(undo(&json), "ok", "{json}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let json = run(command.env("NUMAHERD_STATE", file.join("state"))).ends_with(0).json();
    assert_eq!(undo(&json), "missing", "{json}");
}

/// A busy process is found and named; where there is one node, that is all there is to say.
#[test]
fn status_names_who_runs_and_keeps_its_names() {
    let words = ["bench", "numa02", "--threads", "1", "--size", "1M", "--seconds", "30"];
    let mut load = numaherd(&words).stdout(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let pid = load.id().to_string();
    let one = run(&mut numaherd(&["status", "-p", &pid, "-o", "json"]));
    let table = run(&mut numaherd(&["status", "-p", &pid]));
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let of = sleeper.id().to_string();
    let idle = run(&mut numaherd(&["status", "-p", &of, "-o", "json"]));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let csv = run(&mut numaherd(&["status", "-p", &pid, "-o", "csv"]));
    load.kill().unwrap();
    load.wait().unwrap();
    let json = one.ends_with(0).json();
    let process = &json["processes"][0];
    assert_eq!((&process["pid"], &process["command"]), (&load.id().into(), &"numaherd".into()));
    for name in ["threads", "cpus_used", "local_share", "local_share_source", "coverage"] {
        assert!(!process[name].is_null(), "{name} in {process}");
    }
    assert!(process["cpus_used"].as_f64().unwrap() > 0.0, "{process}");
    // An idle process is on a node that this one keeps busy.
    let used = |json: &Value| -> f64 {
        let nodes = json["nodes"].as_array().unwrap().iter();
        nodes.map(|node| node["cpus_used"].as_f64().unwrap()).sum()
    };
    assert!(used(&idle.ends_with(0).json()) > 0.1);
    let csv = csv.ends_with(0);
    let mut lines = csv.stdout.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let (names, cells) = (lines.next().unwrap(), lines.next().unwrap());
    for name in ["threads", "cpus_used", "memory_bytes", "local_share", "coverage"] {
        let at = names.iter().position(|of| *of == name).unwrap();
        assert!(cells[at].parse::<f64>().is_ok(), "{name} in {csv}");
    }
    let nodes = json["nodes"].as_array().unwrap().len();
    let table = table.ends_with(0);
    if nodes == 1 {
        assert_eq!(process["local_share"], 1.0, "{process}");
        assert!(table.stdout.contains("one memory node: nothing is remote"), "{table}");
    }
}

/// An ordinary user sees processes, and is told of those whose memory is not theirs to see.
#[test]
fn status_works_for_an_ordinary_user() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = as_nobody(&dir);
    let pid = std::process::id().to_string();
    command.args(["status", "-p", &pid, "--sample", "0.3", "-o", "json"]);
    let json = run(&mut command).ends_with(0).json();
    // With what other tests started from this process.
    let processes = json["processes"].as_array().unwrap();
    assert!(processes.iter().any(|p| p["pid"] == std::process::id()), "{json}");
}

/// A list of threads (`ps -L`, `top -H`) has their ids in place of a process's, and the kernel answers to those.
#[test]
fn a_thread_is_not_taken_for_a_process() {
    let told = || {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        let tid = link.file_name().unwrap().to_str().unwrap();
        let of = format!("{tid} is a thread of process {}", std::process::id());
        for command in ["status", "advise", "balance"] {
            run(&mut numaherd(&[command, "-p", tid])).refuses(1, &[&of]);
        }
    };
    std::thread::spawn(told).join().unwrap();
}

/// Nobody waits for a process that has ended and is not buried.
#[test]
fn a_process_that_has_ended_is_told_as_such() {
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    let pid = ended.id().to_string();
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ") {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for command in ["advise", "balance"] {
        run(&mut numaherd(&[command, "-p", &pid])).refuses(1, &["has ended", &pid]);
    }
    ended.wait().unwrap();
}

/// A run is told by task, by page, and as a whole, though its last line is torn.
#[test]
fn a_run_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    std::fs::write(&path, LOG).unwrap();
    let log = path.to_str().unwrap();
    let explain =
        |more: &[&str]| run(&mut numaherd(&[&["explain", log], more].concat())).ends_with(0);
    let all = explain(&[]);
    for word in ["process 7", "1 task placed", "500 pages moved", "from 2.5 s on; 99.0 % local"] {
        assert!(all.stdout.contains(word), "'{word}' in {all}");
    }
    let task = explain(&["--task", "71", "-o", "json"]).json();
    assert_eq!(task["actions"].as_array().unwrap().len(), 1, "{task}");
    let action = task["actions"][0]["action"].as_str().unwrap();
    assert!(action.contains("95.0 % of what it uses lies there"), "{action}");
    let page = explain(&["--page", "0x5fffff", "-o", "csv"]);
    assert!(page.stdout.contains("12 in use at that moment"), "{page}");
    // Without 0x it is decimal, as in the log itself.
    let decimal = explain(&["--page", &0x5f_ffff.to_string(), "-o", "csv"]);
    assert_eq!(decimal.stdout, page.stdout);
    let unpacked = feed(&mut numaherd(&["explain", "/dev/stdin"]), LOG).ends_with(0);
    assert!(unpacked.stdout.contains("1 task placed"), "{unpacked}");
    let odd = dir.path().join(OsStr::from_bytes(b"run\xff.jsonl"));
    std::fs::write(&odd, LOG).unwrap();
    let json = run(numaherd(&["explain", "-o", "json"]).arg(&odd)).ends_with(0).json();
    assert_eq!(json["summary"]["tasks_placed"], 1, "{json}");
    let never = explain(&["--task", "72"]);
    assert!(never.stdout.contains("no action on task 72: herd saw nothing to gain"), "{never}");
    assert!(never.stdout.contains("the log does not name it"), "{never}");
    assert!(!never.stdout.contains("cannot be read"), "{never}");
    // In the midst of others: one of nobody's, and two of somebody who was left alone.
    let process = r#""process":{"tgid":70,"start":5},"tids":[70,73]"#;
    let more = format!(
        "{{\"v\":1,\"t\":1,\"event\":\"later\"}}\n{{\"v\":1,\"t\":0,\"event\":\"aside\",{process},\"why\":\"it is locked\"}}\n"
    );
    let (begin, rest) = LOG.split_once('\n').unwrap();
    std::fs::write(&path, format!("{begin}\n{more}{rest}")).unwrap();
    let alone = explain(&["--task", "73"]);
    for told in [
        "no action on task 73: process 70 was left alone: it is locked",
        "1 line cannot be read",
        "line 2",
    ] {
        assert!(alone.stdout.contains(told), "'{told}' in {alone}");
    }
    let json = explain(&["--task", "73", "-o", "json"]).json();
    assert_eq!(json["unreadable"], serde_json::json!({"lines": 1, "first": 2}), "{json}");
    assert_eq!(json["left_alone"][0]["process"], 70, "{json}");
}

/// Another user's runs are not taken for none.
#[test]
fn runs_that_may_not_be_looked_for_are_told_as_such() {
    if !is_root() {
        return skip("only root can become another user");
    }
    use std::os::unix::fs::PermissionsExt;
    let (dir, closed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(closed.path().join("runs")).unwrap();
    std::fs::write(closed.path().join("runs/9-8.jsonl"), LOG).unwrap();
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = as_nobody(&dir);
    command.env("NUMAHERD_CACHE", closed.path()).args(["explain", "last"]);
    run(&mut command).refuses(1, &["Permission denied", "user of balance", "root"]);
    let mut command = as_nobody(&dir);
    command.arg("explain").arg(closed.path().join("runs/9-8.jsonl"));
    run(&mut command).refuses(1, &["cannot read", "9-8.jsonl", "ermission denied"]);
}

/// That there is nothing to place is an answer, in every form.
#[test]
fn advise_answers_where_there_is_one_node() {
    let json = run(&mut numaherd(&["topology", "-o", "json"])).ends_with(0).json();
    if json["nodes"].as_array().unwrap().len() > 1 {
        return;
    }
    let pid = std::process::id().to_string();
    let advise = |format| run(&mut numaherd(&["advise", "-p", &pid, "-o", format])).ends_with(0);
    let json = advise("json").json();
    assert_eq!((&json["worth_it"], &json["local_share"]), (&false.into(), &1.0.into()), "{json}");
    assert!(json["finding"]["text"].as_str().unwrap().contains("one node"), "{json}");
    assert!(advise("table").stdout.contains("one node"));
    let csv = advise("csv").stdout;
    assert!(csv.contains("worth_it") && csv.contains("false"), "{csv}");
    // What goes with it is read all the same.
    let words = ["advise", "-p", &pid, "--measured", "/no/such"];
    run(&mut numaherd(&words)).refuses(1, &["--measured /no/such", "No such file"]);
}

/// Whatever is not there is named in one line.
#[test]
fn what_is_not_there_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let refuses = |words: &[&str], told: &[&str]| {
        run(numaherd(words).env("NUMAHERD_CACHE", empty.path())).refuses(1, told);
    };
    refuses(&["status", "-p", "999999999"], &["no process 999999999"]);
    refuses(&["advise", "-p", "999999999"], &["no process 999999999"]);
    refuses(&["explain", "9-9"], &["no run '9-9'", "none"]);
    refuses(&["explain", "last"], &["balance has not run"]);
    refuses(&["explain", "/dev/null"], &["no file and no run"]);
    let wrong = |words: &[&str], told: &[&str]| {
        run(&mut numaherd(words)).refuses(2, told);
    };
    wrong(&["status", "--sample", "0"], &["'0'", "--sample", "10"]);
    wrong(&["explain", "x", "--page", "zz"], &["'zz'", "--page", "0x7f00a0000000"]);
    wrong(
        &["explain", "x", "--page", "7f00a0000000"],
        &["'7f00a0000000'", "in decimal without 0x"],
    );
    wrong(&["explain", "x", "--page", "0", "--task", "1"], &["--page", "--task"]);
    wrong(&["balance", "-p", "1", "--apply"], &["--all"]);
}
