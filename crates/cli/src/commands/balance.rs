//! `balance`: keep tasks and their memory together.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use numaherd_bpf::{Choice, FaultStream, choose, probe};
use numaherd_control::{Calm, Controller, Convergence, Found, Pace, Turn};
use numaherd_linux::live::{LiveMachine, LiveOptions, Sampled};
use numaherd_linux::memory::anonymous::Anonymous;
use numaherd_linux::rotation::Rotation;
use numaherd_linux::sys::perf::set_period;
use numaherd_linux::sys::priority::{go_first, politely};
use numaherd_linux::sys::{clock, pages};
use numaherd_model::{Bytes, FaultSource, Nanos, ProcessId, Waiting, WorldError, counted};
use numaherd_placement::{Herd, Mechanisms, Seen, herd, is_told, lost, mechanisms};
use numaherd_trace::{Event, RunLog};
use serde::{Deserialize, Serialize};

use super::privileges;
use crate::args::{Balance, BalancePlacement};
use crate::living::{beside, kept};
use crate::session::{MARK, Pulse, Session, journals, tell};
use crate::start::{self, NotStarted};
use crate::targets::{self, Targets};
use crate::{interrupt, latencies, runs, traffic};
use misread::Misread;
use scan::Tuner;
use voice::Voice;
use wait::Lives;

mod misread;
mod others;
mod scan;
mod voice;
mod wait;

/// Longest sleep between two looks at signals and at the supervisor.
const NAP: Duration = Duration::from_millis(150);
/// From when on nobody is taken to come back soon: a restart is over sooner. Guessed.
const DESERTED: Duration = Duration::from_secs(5);

/// What a run came to, for `compare`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Pages we moved.
    pub pages_moved: u64,
    /// Tasks placed.
    pub tasks_placed: u64,
    /// Faults seen.
    pub faults: u64,
    /// Faults lost.
    pub faults_lost: u64,
    /// When the last change was made, on the monotonic clock, if the run ended converged.
    pub converged_at_ns: Option<u64>,
    /// Turns of the loop.
    pub turns: u64,
    /// CPU time of the balancer, its start included, in nanoseconds.
    pub cpu_ns: u64,
    /// What it used for evidence.
    pub evidence: String,
    /// The longest that a task can have waited for a page on its way, in nanoseconds, as
    /// estimated.
    #[serde(default)]
    pub longest_pause_ns: u64,
}

/// Runs until CMD or the processes end, or the user stops it.
pub fn run(args: &Balance) -> Result<ExitCode> {
    let interrupted = interrupt::flag()?;
    let topology = numaherd_linux::topology::read(Path::new("/"))?;
    let named: Result<Vec<ProcessId>> = args.pid.iter().map(|&pid| targets::one(pid)).collect();
    let named = named?;
    // Named wrongly, a group ends us before anything is changed.
    let targets = Targets::new(named.clone(), &args.cgroup, args.all)?;
    if topology.cpu_nodes().count() < 2 {
        args.measured.as_deref().map(latencies::read).transpose()?;
        say!("numaherd: this machine has one node with CPUs: there is nothing to balance");
        let Some(mut command) = command(&args.command) else { return Ok(ExitCode::SUCCESS) };
        // In our place: with nothing to put back, its signals and its end are its own.
        let error = command.exec();
        return Err(NotStarted::new(&command, error).into());
    }
    let alone = || others::check(&named, args.all, args.all || !args.cgroup.is_empty());
    let mut session = Session::begin(&about(args), tunes(args), alone)?;
    let started = Runner::start(args, targets, &mut session, interrupted);
    let outcome = started.and_then(|(mut runner, mut child)| {
        let code = runner.run(args, &mut session, child.as_mut())?;
        // Also where it ended before its first turn.
        runner.summary.cpu_ns = clock::cpu_time().0;
        Ok((runner, code))
    });
    // Whatever went wrong, what was changed is put back; and before the fault stream is closed,
    // which takes the kernel a while.
    let run = session.run().to_string();
    // With nobody placed there is nothing to come back to.
    let keep = args.keep && session.has_placed();
    let undone = session.finish(keep)?;
    let (mut runner, code) = outcome?;
    runner.summary.faults_lost = runner.machine.lost_faults();
    runner.summary.longest_pause_ns = runner.machine.longest_pause().0;
    let summary = runner.summary.clone();
    if let Some(file) = &mut runner.summary_file {
        file.write_all(&serde_json::to_vec(&summary)?).context("cannot write the summary")?;
    }
    if keep {
        say!("numaherd: affinities are kept; 'numaherd restore --run {run}' puts them back");
    } else {
        say!("numaherd: put back {}", tell(&undone));
    }
    if summary.faults_lost > 0 {
        say!(
            "numaherd: {} came faster than they were taken in, and are not reckoned with",
            counted(summary.faults_lost, "hinting fault")
        );
    }
    say!(
        "numaherd: placed {}; {} pages stay where they were moved; used {:.2} s of CPU time",
        counted(summary.tasks_placed, "task"),
        summary.pages_moved,
        summary.cpu_ns as f64 / 1e9
    );
    Ok(code)
}

/// Whom a run looks after, in words.
fn about(args: &Balance) -> String {
    let pids = args.pid.iter().map(|pid| format!("process {pid}"));
    let groups = args.cgroup.iter().map(|group| format!("{}{}", others::GROUP, group.display()));
    let all = args.all.then(|| others::EVERY.to_string());
    let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let command = (!words.is_empty()).then(|| words.join(" "));
    pids.chain(groups).chain(all).chain(command).collect::<Vec<_>>().join(", ")
}

/// The parts of herd that are in.
fn parts(args: &Balance) -> Mechanisms {
    let pages = args.placement == BalancePlacement::Herd;
    let parts = mechanisms::leaving_out(&args.without);
    Mechanisms { pages: pages && parts.pages, ..parts }
}

/// Whether it only says what it would do.
pub fn only_says(args: &Balance) -> bool {
    args.dry_run || args.all && !args.apply
}

/// Whether it sets the kernel's knobs.
fn tunes(args: &Balance) -> bool {
    args.tune_kernel && !only_says(args)
}

struct Runner {
    controller: Controller<Herd>,
    machine: LiveMachine,
    targets: Targets,
    log: RunLog,
    summary: Summary,
    summary_file: Option<File>,
    verbose: bool,
    tuner: Option<Tuner>,
    /// What faults tell of memory so far.
    seen: Seen,
    /// Memory of programs' own at the start.
    at_first: Anonymous,
    /// Local share that the log was told of last, while converged.
    told: Option<u32>,
    /// What the last turn came to, in words.
    said: Vec<String>,
    voice: Voice,
    misread: Misread,
    pace: Pace,
    calm: Calm,
    pulse: Pulse,
    interrupted: Arc<AtomicBool>,
}

impl Runner {
    /// Sets the knobs, opens the fault stream, starts the command.
    fn start(
        args: &Balance,
        mut targets: Targets,
        session: &mut Session,
        interrupted: Arc<AtomicBool>,
    ) -> Result<(Runner, Option<Child>)> {
        let parts = parts(args);
        // Where only tasks are placed, the kernel's faults move the pages.
        let rest = parts.samples && (parts.pages || !args.tune_kernel);
        let sampled = Sampled { reserve: parts.accesses, rest, base: !args.tune_kernel };
        let (mut topology, known) = latencies::here(args.measured.as_deref())?;
        let (mut latencies, most) = known.map(|known| (known.latencies, known.most)).unzip();
        latencies = latencies.filter(|_| parts.latencies);
        latencies.iter().for_each(|latencies| latencies.fill(&mut topology));
        let tuner = tunes(args).then(|| Tuner::begin(session)).transpose()?;
        let log = open_log(args.log.as_deref(), session)?;
        let (faults, evidence) = open_faults(args.no_bpf, args.command.is_empty());
        let tuner = tuner.map(|tuner| tuner.seek(session, &topology)).transpose()?;
        let accesses = sampled.is_any().then(|| numaherd_sampling::sampler(set_period)).flatten();
        let beside = match sampled.rest && accesses.is_some() {
            true => "; and samples of accesses",
            false => "",
        };
        say!("numaherd: evidence: {evidence}{beside}");
        let summary_file = args.summary.as_deref().map(create).transpose()?;
        let at_first = Anonymous::read(Path::new("/"));
        let most = most.filter(|_| parts.bandwidth).unwrap_or_default();
        let traffic = traffic::counters(&topology, &most, |story| say!("numaherd: {story}"));
        // Sampling may raise our limit on open files: the command has begun by then, with its user's.
        let child = begin(&args.command, session.run())?;
        // Files are open by now, and the command has what its user has.
        privileges::give_up(tunes(args), sampled)?;
        if let Some(child) = &child {
            targets.add(child.id())?;
        }
        let first = targets.look()?.unwrap_or_default();
        let pulse = session.pulse();
        let mut machine = LiveMachine::new(LiveOptions {
            // Nobody is known to be busy yet.
            targets: first.named,
            faults,
            accesses,
            sampled,
            latencies,
            traffic,
            journal: session.journal(),
            acts: !only_says(args),
            coverage: parts.coverage,
            objects: parts.objects,
            units: parts.units,
            pause: Nanos::from_secs_f64(args.pause),
            beat: Box::new(move || pulse.beat()),
        })?;
        machine.take_over(kept(&journals())?);
        let placement = Herd::with(parts);
        let runner = Runner {
            controller: Controller::new(placement).stirs(parts.stir).tables(parts.tables),
            machine,
            targets,
            log,
            summary: Summary { evidence, ..Summary::default() },
            summary_file,
            verbose: args.verbose || only_says(args),
            tuner,
            seen: Seen::default(),
            at_first,
            told: None,
            said: Vec::new(),
            voice: Voice::default(),
            misread: Misread::default(),
            pace: Pace::new(),
            calm: Calm::default(),
            pulse: session.pulse(),
            interrupted,
        };
        Ok((runner, child))
    }

    fn run(
        &mut self,
        args: &Balance,
        session: &mut Session,
        mut child: Option<&mut Child>,
    ) -> Result<ExitCode> {
        go_first();
        let mut convergence = Convergence::default();
        let (mut idle_since, mut deserted_since) = (None, None);
        let mut rotation = Rotation::new();
        let mut before = clock::cpu_time();
        loop {
            let look = self.targets.look();
            if let Some(whom) = self.misread.looked(look, clock::monotonic())? {
                if args.all {
                    let others = (self.targets.namesakes(), &whom.busy[..]);
                    self.machine.leave_to_others(beside(&journals(), session.run(), others));
                }
                self.machine.retarget(whom.named, whom.busy);
            }
            let lives = Lives::of(&self.machine);
            let turn = match self.controller.turn(&mut self.machine) {
                Ok(turn) => turn,
                Err(WorldError::NoTasks) if self.targets.waits(args.once) => {
                    self.misread.turned();
                    let since = *deserted_since.get_or_insert_with(Instant::now);
                    if let Some(tuner) = self.tuner.as_mut().filter(|_| since.elapsed() > DESERTED)
                    {
                        tuner.rest(session, self.machine.topology())?;
                    }
                    if let Some(code) = self.nap(child.as_deref_mut(), args)? {
                        return Ok(code);
                    }
                    continue;
                }
                Err(WorldError::NoTasks) => match child {
                    Some(child) => return Ok(code_of(child.wait()?)),
                    None => return Ok(ExitCode::SUCCESS),
                },
                Err(error) => {
                    self.misread.failed(error, clock::monotonic())?;
                    if let Some(code) = self.nap(child.as_deref_mut(), args)? {
                        return Ok(code);
                    }
                    continue;
                }
            };
            self.misread.turned();
            deserted_since = None;
            let now = clock::monotonic();
            convergence.turned(now, turn.changed(), turn.plan.converged, lives.exited);
            self.summary.converged_at_ns = convergence.at().map(|at| at.0);
            self.machine.settle(self.calm.turned(&turn, self.pace.is_storm()));
            self.record(&turn);
            for event in self.voice.tell(&self.machine, &turn) {
                self.write(event);
            }
            // For as long as herd waits for anybody, nobody was busy of whom anything could be learned.
            let idle = matches!(turn.plan.waiting, Some(Waiting::Evidence { known: 0, busy: 0 }));
            idle_since = idle.then(|| idle_since.unwrap_or(turn.snapshot.time));
            let given_up =
                idle_since.is_some_and(|since| turn.snapshot.time.since(since) >= herd::PATIENCE);
            if args.once
                && (turn.plan.converged
                    || given_up
                    || only_says(args) && !turn.plan.actions.is_empty())
            {
                if given_up {
                    say!("numaherd: nobody shows which memory it uses: there is nothing to do");
                }
                return Ok(ExitCode::SUCCESS);
            }
            let seen = self.tuner.is_some().then(|| self.seen(&turn));
            if let Some((tuner, seen)) = self.tuner.as_mut().zip(seen) {
                tuner.turned(session, &turn, seen)?;
            }
            let used = clock::cpu_time().since(before);
            self.pace.hurry(lost::permille(&turn.snapshot.topology));
            let wait = self.pace.next(turn.acted(), Found::of(&turn, &self.calm), used);
            rotation.iter_mut().for_each(Rotation::step);
            let child = child.as_deref_mut();
            if let Some(code) = self.wait(&turn, wait, lives, (child, args))? {
                return Ok(code);
            }
            before = clock::cpu_time();
        }
    }

    /// What was seen since the start; how much memory came, until faults tell what that is made of.
    fn seen(&self, turn: &Turn) -> Seen {
        let storm = self.pace.is_storm();
        let told = is_told(&turn.snapshot, |process| self.machine.told_of(process));
        let seen = Seen { new_base: Bytes(0), storm, told, ..self.seen };
        match seen.is_enough() {
            true => seen,
            false => Seen {
                new_base: Anonymous::read(Path::new("/")).base_since(&self.at_first),
                ..seen
            },
        }
    }

    fn record(&mut self, turn: &Turn) {
        self.summary.turns += 1;
        self.summary.faults += turn.faults as u64;
        self.seen.add(turn.faults as u64, turn.fault_pages.0);
        self.summary.pages_moved += turn.moved().0;
        let state = Event::State {
            strength_permille: turn.plan.strength_permille,
            converged: turn.plan.converged,
            faults: turn.faults as u64,
            samples: turn.samples as u64,
            tasks: turn.snapshot.tasks.len() as u64,
            stirred: turn.snapshot.stirred,
            waiting: turn.plan.waiting.clone(),
        };
        // A converged run may go on for months.
        if !turn.plan.converged || self.told != Some(turn.plan.strength_permille) {
            self.write(state);
        }
        self.told = turn.plan.converged.then_some(turn.plan.strength_permille);
        let mut said = Vec::new();
        for (action, outcome) in turn.plan.actions.iter().zip(&turn.outcomes) {
            if voice::is_placed(action, outcome) {
                self.summary.tasks_placed += 1;
            }
            let told = format!("{action} [{outcome}]");
            // A dry run plans the same again and again.
            if self.verbose && !self.said.contains(&told) {
                say!("numaherd: {told}");
            }
            said.push(told);
            self.write(Event::Action { action: action.clone(), outcome: outcome.clone() });
        }
        self.said = said;
    }

    fn write(&mut self, event: Event) {
        if let Err(error) = self.log.record(event) {
            say!("numaherd: the log cannot be written and ends here: {error}");
        }
    }
}

/// How the command ended, if the balance ends with it. Processes and groups that were named besides are looked after
/// until they end too, or for ever: of groups and of all processes there is no end.
fn ended(child: Option<&mut Child>, args: &Balance) -> Result<Option<ExitStatus>> {
    let ends = args.pid.is_empty() && args.cgroup.is_empty();
    Ok(child.filter(|_| ends).map(Child::try_wait).transpose()?.flatten())
}

/// The log: where it is wanted, or where `explain` finds it by the run's id. The latter is a
/// courtesy, and what it lacks does not keep us from balancing.
fn open_log(wanted: Option<&Path>, session: &Session) -> Result<RunLog> {
    match wanted {
        Some(path) => begin_log(path, session.opening())
            .with_context(|| format!("cannot write the log {}", path.display())),
        None => {
            let path = runs::next(&runs::folder(), session.run());
            Ok(courtesy(path.and_then(|path| begin_log(&path, session.opening())))?)
        }
    }
}

fn begin_log(path: &Path, opening: Event) -> io::Result<RunLog> {
    let mut log = RunLog::create(Some(path))?;
    // On a full disk a file can be made, and nothing be written.
    log.record(opening)?;
    Ok(log)
}

/// A log that is not asked for, or none where there is no room for one.
fn courtesy(log: io::Result<RunLog>) -> io::Result<RunLog> {
    log.or_else(|error| {
        say!("numaherd: no log is kept for explain: {error}");
        RunLog::create(None)
    })
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// The best evidence this kernel and this user allow, and what it is called. That takes tens of
/// milliseconds of a CPU, which whoever runs `already` should not wait for.
pub fn open_faults(no_bpf: bool, already: bool) -> (Option<Box<dyn FaultSource>>, String) {
    let (faults, told) = match already {
        true => politely(|| open_stream(no_bpf)),
        false => open_stream(no_bpf),
    };
    (faults.map(|stream| Box::new(stream) as Box<dyn FaultSource>), told)
}

fn open_stream(no_bpf: bool) -> (Option<FaultStream>, String) {
    let fallback = |why: &str| {
        let text = format!("where pages lie (/proc), whole processes only: {why}");
        (None, text)
    };
    if no_bpf {
        return fallback("--no-bpf");
    }
    let choice = choose(&probe(Path::new("/")));
    match &choice {
        Choice::Unavailable { reason } => fallback(reason),
        Choice::WithAddresses { .. } | Choice::WithoutAddresses { .. } => {
            match FaultStream::open(&choice) {
                Ok(mut stream) if stream.with_addresses() => match stream.sample(pages::size()) {
                    Ok(()) => (Some(stream), "hinting faults with addresses (BPF)".into()),
                    Err(error) => fallback(&error.to_string()),
                },
                // Without addresses nobody can tell which memory a fault was on.
                Ok(_) => fallback("this kernel's faults come without addresses"),
                Err(error) => fallback(&error.to_string()),
            }
        }
    }
}

/// The command, if one is given.
fn command(words: &[OsString]) -> Option<Command> {
    let [program, args @ ..] = words else { return None };
    Some(start::command(program, args))
}

fn begin(words: &[OsString], run: &str) -> Result<Option<Child>> {
    let Some(mut command) = command(words) else { return Ok(None) };
    let child = command.env(MARK, run).spawn();
    Ok(Some(child.map_err(|source| NotStarted::new(&command, source))?))
}

fn code_of(status: std::process::ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(255))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn a_full_disk_below_the_cache_keeps_nobody_from_balancing() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let opening = || Event::End { kept: false };
        assert!(begin_log(full, opening()).is_err(), "where a log is asked for, that is told");
        let mut log = courtesy(begin_log(full, opening())).unwrap();
        assert!(log.record(opening()).is_ok());
    }

    #[test]
    fn who_only_says_what_it_would_do_sets_no_knob() {
        let tunes = |words: &[&str]| {
            let words = [&["numaherd", "balance", "--tune-kernel"], words].concat();
            match Cli::try_parse_from(words).map(|cli| cli.command) {
                Ok(crate::args::Command::Balance(args)) => tunes(&args),
                _ => panic!("it is read otherwise"),
            }
        };
        assert!(tunes(&["-p", "1"]) && tunes(&["--all", "--apply"]));
        assert!(!tunes(&["--all"]) && !tunes(&["-p", "1", "--dry-run"]));
        assert!(!tunes(&["--all", "--apply", "--dry-run"]));
    }
}
