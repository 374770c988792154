//! The undo bar: a balancer is ended at random moments in every way there is, and a second later
//! every affinity, of children too, and every setting of the kernel is what it was before.
//!
//! The rounds run in one guest, by this very test program: `in_the_guest` is the guest's side and
//! does nothing elsewhere. `ROUNDS` says how many (`make undo-test`: 50), `SEED` which moments.
//!
//! QEMU 7.2 may run translated code that is out of date while the kernel patches itself, as it does
//! when BPF is attached or taken away; the guest then dies of a breakpoint (int3) that is no longer
//! there. That is the emulator's, not ours: the rounds go on in another guest, and it is said.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Bench;
use crate::processes::{self, signal, wait_until};
use crate::transcript::{program, run};

/// Set in the guest: the guest's side is wanted.
const GUEST: &str = "NUMAHERD_TEST_GUEST";
/// The first round of this guest.
const FIRST: &str = "NUMAHERD_TEST_FIRST";
/// Set for the part of the load that starts children.
const FORKER: &str = "NUMAHERD_TEST_FORKER";
/// Carried by every process of a round's load, with what its CPUs must be in the end.
const CPUS: &str = "NUMAHERD_TEST_CPUS";

/// Everything must be back within this; the emulated CPUs, and our own look at every process
/// there, are slow and get as much again.
const BACK_WITHIN: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_secs(1);
/// Until the first placement of a task, on a loaded host.
const FIRST_PLACEMENT: Duration = Duration::from_secs(40);

/// In turn: a user's two ways, the out-of-memory killer's, and a hang.
const ENDS: [&str; 4] = ["INT", "TERM", "KILL", "STOP"];

const SETTINGS: [&str; 5] = [
    "/proc/sys/kernel/numa_balancing",
    "/sys/kernel/debug/sched/numa_balancing/scan_delay_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_size_mb",
];

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_killed_balancer_leaves_nothing_changed() {
    let bench = Bench::new();
    let myself = std::env::current_exe().unwrap().display().to_string();
    let inside = [&myself, "--ignored", "--exact", "killed::in_the_guest", "--nocapture"];
    let mut first = 0;
    let transcript = loop {
        // Twice as slow as it could be, so that this host's cores carry the guest's, and a second
        // there is one of a machine that is busy and not starved.
        let words = ["lab", "run", "--no-distance", "--dilation", "2"];
        let mut command = bench.command(&words, &inside);
        let transcript = run(command.env(GUEST, "1").env(FIRST, first.to_string()));
        let rounds = transcript.stdout.lines().filter(|line| line.starts_with("round "));
        let through = rounds.inspect(|line| eprintln!("{line}")).count();
        // A guest that gets nowhere is not the emulator's fault.
        if through == 0 || !transcript.stderr.contains("Oops: int3") {
            break transcript;
        }
        first += through;
        eprintln!("{}\nanother guest, from round {first}", transcript.stderr.trim());
    };
    let transcript = transcript.ends_with(0);
    assert!(transcript.stdout.contains("all rounds are through"), "{transcript}");
    bench.left_nothing();
}

#[test]
#[ignore = "the guest's side of a_killed_balancer_leaves_nothing_changed"]
fn in_the_guest() {
    if std::env::var_os(GUEST).is_none() {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (rounds, seed): (u64, u64) = (number("ROUNDS").unwrap_or(6), number("SEED").unwrap_or(1));
    let first = number(FIRST).unwrap_or(0);
    let mut random = Random(seed);
    for _ in 0..first {
        random.below(1);
    }
    // Off, so that the balancer has something to switch on.
    std::fs::write(SETTINGS[0], "0").unwrap();
    for round in first..rounds {
        let how = ENDS[(round % 4) as usize];
        let again = format!("round {round} ({how}): ROUNDS={rounds} SEED={seed}");
        let mut session = Session::start(round, &again);
        // Every other four rounds strike anywhere, even before anything was changed.
        if round / 4 % 2 == 0 {
            session.wait_for_a_placement();
        }
        std::thread::sleep(Duration::from_millis(random.below(2500)));
        let placed = session.placements();
        // Struck before it started anything, it leaves nobody to look at.
        session.begun = !session.load().is_empty();
        signal(how, session.balancer.id());
        let took = session.assert_back(BACK_WITHIN + SLACK);
        println!("round {round}: {how} after {placed} placements, back after {took:?}");
        session.end();
    }
    both_killed(rounds);
    println!("all rounds are through");
}

/// A busy process with memory of its own that keeps starting children: once it is placed, they
/// are born with its mask. Part of the load.
#[test]
#[ignore = "a part of the load of a_killed_balancer_leaves_nothing_changed"]
fn forker() {
    if std::env::var_os(FORKER).is_none() {
        return;
    }
    let mut memory = vec![0u64; 4 << 20];
    let mut children: Vec<Child> = Vec::new();
    let mut last = Instant::now();
    loop {
        for word in memory.iter_mut().step_by(8) {
            *word = std::hint::black_box(*word + 1);
        }
        if last.elapsed() > Duration::from_millis(100) {
            last = Instant::now();
            children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            children.push(Command::new("sleep").arg("2").spawn().unwrap());
        }
    }
}

/// With nobody left to put things back, `restore` does.
fn both_killed(round: u64) {
    let mut session = Session::start(round, "balancer and supervisor killed");
    session.wait_for_a_placement();
    session.begun = true;
    // Stopped first, or it would start another supervisor.
    signal("STOP", session.balancer.id());
    for supervisor in session.supervisors() {
        signal("KILL", supervisor);
    }
    signal("KILL", session.balancer.id());
    session.balancer.wait().unwrap();
    assert!(session.changed().is_some(), "nothing was left changed, so nothing is shown");
    let mut restore = Command::new(program());
    let transcript = run(restore.arg("restore").env("NUMAHERD_STATE", &session.state)).ends_with(0);
    let took = session.assert_back(BACK_WITHIN);
    println!("round {round}: restore, back after {took:?}: {}", transcript.stdout.trim());
    session.end();
}

/// A balancer and its load.
struct Session {
    balancer: Child,
    state: PathBuf,
    log: PathBuf,
    settings: Vec<String>,
    about: String,
    /// Whether the load was seen to run.
    begun: bool,
}

impl Session {
    /// Threads over memory on both nodes, short-lived children of a busy parent, and the same
    /// again under a mask of the owner's own: node 0 and a CPU of node 1.
    fn start(round: u64, about: &str) -> Session {
        let fork = "while :; do sleep 0.05; i=0; while [ $i -lt 500 ]; do i=$((i+1)); done; done";
        let load = format!(
            "{} bench numa02 --threads 4 --size 64M --loops 1000000 & \
             {FORKER}=1 {} --ignored --exact killed::forker --nocapture & \
             {CPUS}=0-4 taskset -c 0-4 sh -c '{fork}' & wait",
            program(),
            std::env::current_exe().unwrap().display(),
        );
        let state = PathBuf::from(format!("/run/rounds/{round}"));
        let log = PathBuf::from(format!("/run/round-{round}.jsonl"));
        let settings = settings();
        let mut command = Command::new(program());
        command.args(["balance", "--tune-kernel", "--log"]).arg(&log);
        command.args(["--", "sh", "-c", &load]);
        command.env("NUMAHERD_STATE", &state).env(CPUS, "0-7");
        let told = File::create(log.with_extension("told")).unwrap();
        command.stdin(Stdio::null()).stdout(told.try_clone().unwrap()).stderr(told);
        let about = format!("{about}: {command:?}");
        Session { balancer: command.spawn().unwrap(), state, log, settings, about, begun: false }
    }

    /// Affinities that the journal says are changed.
    fn placements(&self) -> usize {
        let entries = std::fs::read_dir(&self.state).into_iter().flatten().flatten();
        let journals = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        journals.map(|text| text.matches(r#""change":"affinity""#).count()).sum()
    }

    fn wait_for_a_placement(&self) {
        let placed = wait_until(FIRST_PLACEMENT, || self.placements() > 0);
        assert!(placed.is_some(), "no task was placed: {}\n{}", self.about, self.seen());
    }

    /// What the balancer said and saw of late, who runs, and how the kernel is set.
    fn seen(&self) -> String {
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let log = text(&self.log);
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n");
        let load = self.load().into_iter().map(|(pid, cpus)| {
            let stat = text(Path::new(&format!("/proc/{pid}/stat")));
            format!("{stat}  of {cpus}: {}", processes::arguments(pid))
        });
        let load: Vec<String> = load.collect();
        let told = text(&self.log.with_extension("told"));
        let settings = settings().join(" ");
        format!("{told}\n{} events, the last:\n{last}\n{load:#?}\n{settings}", lines.len())
    }

    fn supervisors(&self) -> Vec<u32> {
        let of = format!("supervise --journal {}", self.state.display());
        processes::with_argument_containing(&of)
    }

    /// Processes of the load, each with what its CPUs must be.
    fn load(&self) -> Vec<(u32, &'static str)> {
        let watchers = self.supervisors();
        let cpus = |pid: u32| {
            let marked = |cpus: &str| processes::has_variable(pid, &format!("{CPUS}={cpus}"));
            ["0-7", "0-4"].into_iter().find(|cpus| marked(cpus))
        };
        // Only newer processes can be its descendants: ids do not wrap in so short a life.
        let others = |pid: &u32| *pid > self.balancer.id() && !watchers.contains(pid);
        let all = processes::all().into_iter().filter(others);
        all.filter_map(|pid| Some((pid, cpus(pid)?))).collect()
    }

    /// What is not as it was before; None if everything is.
    fn changed(&self) -> Option<String> {
        for (path, before) in SETTINGS.iter().zip(&self.settings) {
            let now = setting(path);
            if now != *before {
                return Some(format!("{path} is {now:?} and was {before:?}"));
            }
        }
        for (pid, expected) in self.load() {
            // Between its fork and taskset's call, the second shell still has all CPUs.
            let of_taskset = processes::arguments(pid).starts_with("taskset");
            for cpus in processes::cpus_of_threads(pid) {
                if cpus != expected && !of_taskset {
                    let what = processes::arguments(pid);
                    return Some(format!("{pid} ({what}) may run on {cpus} and not {expected}"));
                }
            }
        }
        None
    }

    /// Asserts that everything is back within `limit` and stays so; says how long it took.
    fn assert_back(&mut self, limit: Duration) -> Duration {
        let begin = Instant::now();
        let mut last = None;
        let back = wait_until(limit, || {
            last = self.changed();
            last.is_none()
        });
        let now = begin.elapsed();
        assert!(back.is_some(), "after {now:?}: {}: {}", last.unwrap_or_default(), self.about);
        assert!(!self.begun || !self.load().is_empty(), "the load is gone: {}", self.about);
        std::thread::sleep(Duration::from_millis(300));
        let later = self.changed();
        assert!(later.is_none(), "changed again: {}: {}", later.unwrap_or_default(), self.about);
        back.unwrap_or_default()
    }

    /// Ends the load, and sees that the balancer, its supervisor and its journal are gone.
    fn end(mut self) {
        let gone = wait_until(Duration::from_secs(20), || {
            for (pid, _) in self.load() {
                signal("KILL", pid);
            }
            self.load().is_empty() && self.balancer.try_wait().unwrap().is_some()
        });
        assert!(gone.is_some(), "does not end: {}", self.about);
        let journals = || std::fs::read_dir(&self.state).map_or(0, Iterator::count);
        let clean =
            wait_until(Duration::from_secs(5), || self.supervisors().is_empty() && journals() == 0);
        assert!(clean.is_some(), "a supervisor or a journal is left: {}", self.about);
    }
}

fn setting(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn settings() -> Vec<String> {
    SETTINGS.iter().map(setting).collect()
}

/// Xorshift64* (Vigna 2016): moments need no better.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % limit
    }
}
