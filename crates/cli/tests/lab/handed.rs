//! A program that goes to the background while its parent is placed: it is born with the CPUs of one node, and by the time
//! anybody looks, its parent has ended and it is nobody's child. It is to be free soon, and to stay so.
//!
//! It runs in the guest, by this very test program, as in `killed`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Bench;
use crate::processes::{self, cpus_of_threads, signal, wait_until};
use crate::transcript::{program, run};

/// Set in the guest: the guest's side is wanted.
const GUEST: &str = "NUMAHERD_TEST_ORPHANS_GUEST";
/// Set for the process that starts them.
const BEARER: &str = "NUMAHERD_TEST_BEARER";
/// While this is there, it does; and each parent writes there with which CPUs it began.
const GO: &str = "/run/bearer-goes";
const TOLD: &str = "/run/bearer-told";
/// What those that are left alone do, by which they are known.
const SLEEP: &str = "sleep 987";
/// Until somebody is placed, and until all are free, on a loaded host.
const SOON: Duration = Duration::from_secs(40);
const ALL: &str = "0-7";

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn who_is_born_of_a_placed_process_and_loses_its_parent_at_once_is_set_free() {
    let bench = Bench::new();
    let myself = std::env::current_exe().unwrap().display().to_string();
    let inside = [&myself, "--ignored", "--exact", "handed::in_the_guest", "--nocapture"];
    let words = ["lab", "run", "--no-distance", "--dilation", "2"];
    let mut command = bench.command(&words, &inside);
    let transcript = run(command.env(GUEST, "1")).ends_with(0);
    assert!(transcript.stdout.contains("all are free"), "{transcript}");
    eprintln!("{}", transcript.stdout);
    bench.left_nothing();
}

#[test]
#[ignore = "the guest's side of who_is_born_of_a_placed_process_and_loses_its_parent_at_once_is_set_free"]
fn in_the_guest() {
    if std::env::var_os(GUEST).is_none() {
        return;
    }
    let mut bearer = Command::new(std::env::current_exe().unwrap());
    bearer.args(["--ignored", "--exact", "handed::bearer", "--nocapture"]);
    bearer.env(BEARER, "1").stdin(Stdio::null()).stdout(Stdio::null());
    let mut bearer = bearer.spawn().unwrap();
    let mut balancer = Command::new(program());
    balancer.args(["balance", "-v", "-p"]).arg(bearer.id().to_string());
    let mut balancer = balancer.stdin(Stdio::null()).spawn().unwrap();
    let placed = wait_until(SOON, || cpus_of_threads(bearer.id()).iter().any(|cpus| cpus != ALL));
    assert!(placed.is_some(), "nobody was placed");
    // While it looks often, and later when there is nothing to do for seconds.
    for _ in 0..2 {
        let before = confined();
        std::fs::write(GO, "").unwrap();
        let born = wait_until(SOON, || confined() >= before + 2);
        std::fs::remove_file(GO).unwrap();
        assert!(born.is_some(), "not two were born with CPUs of ours: {:?}", told());
        let free = wait_until(SOON, || bound().is_empty());
        assert!(free.is_some(), "of {} are bound: {:?}", orphans().len(), bound());
        println!("{} of {} born with CPUs of ours, free after {free:?}", confined(), told().len());
        std::thread::sleep(Duration::from_secs(8));
    }
    signal("INT", balancer.id());
    balancer.wait().unwrap();
    assert_eq!(bound(), [], "after it ended");
    signal("KILL", bearer.id());
    bearer.wait().unwrap();
    orphans().into_iter().for_each(|pid| signal("KILL", pid));
    println!("all are free");
}

/// Three threads that are busy with the same memory, so that they belong on one node; while [`GO`] is there it starts programs that go to the background.
#[test]
#[ignore = "a part of the load of who_is_born_of_a_placed_process_and_loses_its_parent_at_once_is_set_free"]
fn bearer() {
    if std::env::var_os(BEARER).is_none() {
        return;
    }
    let memory: Vec<AtomicU64> = (0..4 << 20).map(AtomicU64::new).collect();
    let memory: &'static [AtomicU64] = memory.leak();
    let pass = || {
        for word in memory.iter().step_by(8) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    };
    for _ in 0..2 {
        std::thread::spawn(move || {
            loop {
                pass();
            }
        });
    }
    let mut parents: Vec<Child> = Vec::new();
    let mut last = Instant::now();
    loop {
        pass();
        parents.retain_mut(|parent| matches!(parent.try_wait(), Ok(None)));
        if last.elapsed() > Duration::from_millis(500) && Path::new(GO).exists() {
            last = Instant::now();
            let script = format!("grep Cpus_allowed_list /proc/self/status >> {TOLD}; {SLEEP} &");
            parents.push(Command::new("sh").args(["-c", &script]).spawn().unwrap());
        }
    }
}

/// With which CPUs each began.
fn told() -> Vec<String> {
    let told = std::fs::read_to_string(TOLD).unwrap_or_default();
    told.lines().filter_map(|line| line.split_once('\t')).map(|(_, cpus)| cpus.into()).collect()
}

fn confined() -> usize {
    told().iter().filter(|cpus| *cpus != ALL).count()
}

fn orphans() -> Vec<u32> {
    processes::with_argument_containing(SLEEP)
        .into_iter()
        .filter(|pid| processes::arguments(*pid).starts_with(SLEEP))
        .collect()
}

/// Those that may not run everywhere, and where they may.
fn bound() -> Vec<(u32, Vec<String>)> {
    let all = orphans().into_iter().map(|pid| (pid, cpus_of_threads(pid)));
    all.filter(|(_, cpus)| cpus.iter().any(|cpus| cpus != ALL)).collect()
}
