//! Where a comparison's cells run: an emulated machine, or this host.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use numaherd_lab::counters::CpuCounters;
use numaherd_lab::guest::Output;
use numaherd_lab::{Exec, Guest, LabError, Machine};
use numaherd_report::CpuCounts;

use super::cell::{self, CellResult};
use super::compare::{Counted, parse_cell};
use super::{lab, tracing};
use crate::args::{Compare, LabArgs, Placement, TieArg};
use crate::awaited;
use crate::output::{self, NewFile};

/// Markers of the workloads: the timed part begins, and is over.
const BEGIN: u64 = 1;
const END: u64 = 2;

/// Misses outside all nodes that are no cause for doubt, whatever the run.
const MOST_STRAY_MISSES: u64 = 10_000;

/// How often a comparison boots anew with more time. Measured: a storm of forks, the worst of our
/// workloads, needs one.
const MOST_SLOWER: u32 = 3;
/// Late share from which twice the time will not do. Guessed.
const VERY_LATE: f64 = 0.1;

/// Busy share of this host's CPUs above which it is not used unless forced.
const MOST_BUSY: f64 = 0.10;

/// A place where cells run.
pub trait Site {
    /// Runs one cell: the arguments of our own program.
    fn cell(&mut self, words: &[String]) -> Result<(CellResult, Option<Counted>)>;
    /// `lab:NAME` or `host`.
    fn machine(&self) -> String;
    /// The kernel's release.
    fn kernel(&self) -> String;
    /// Real seconds per second there.
    fn dilation(&self) -> f64;
    /// Has more time for each second from now on, after a run that it could not follow: by how
    /// much its CPUs were late. Whether it has: not if somebody set the dilation, nor for ever.
    fn slow_down(&mut self, late_share: f64) -> Result<bool>;
    /// No more cells will come.
    fn end(self: Box<Self>);
}

/// An emulated machine, booted once for all cells.
pub struct LabSite {
    booted: Option<lab::Booted>,
    /// Boots with this dilation, or one to be measured.
    again: Box<dyn Fn(Option<f64>) -> Result<lab::Booted>>,
    /// How often it may still be slowed down.
    patience: u32,
    machine: Machine,
    /// Where the timelines go, and how many there are.
    trace: Option<(PathBuf, u32)>,
}

impl LabSite {
    /// Boots it.
    pub fn boot(args: &Compare, machine: &str, interrupted: &Arc<AtomicBool>) -> Result<LabSite> {
        let story = |line: &str| say!("numaherd: {line}");
        let lab = LabArgs { machine: machine.into(), tuning: args.lab.clone() };
        let mut shares = Vec::new();
        if let Some(dir) = &args.logs {
            std::fs::create_dir_all(dir).with_context(|| format!("--logs {}", dir.display()))?;
            shares.push(dir.canonicalize()?);
        }
        let interrupted = Arc::clone(interrupted);
        let again = move |dilation: Option<f64>| {
            let mut lab = lab.clone();
            lab.tuning.dilation = dilation.or(lab.tuning.dilation);
            lab::boot(&lab, shares.clone(), None, &interrupted, &story)
        };
        // Told before a machine boots.
        args.trace.as_deref().map(NewFile::at).transpose()?;
        let booted = again(None)?;
        let free = args.lab.dilation.is_none() && !args.lab.no_distance;
        let machine = booted.machine.clone();
        let trace = args.trace.clone().map(|path| (path, 0));
        let patience = if free { MOST_SLOWER } else { 0 };
        Ok(LabSite { booted: Some(booted), again: Box::new(again), patience, machine, trace })
    }

    /// Writes the timeline of the run that has just ended, in a file of its own.
    fn end_trace(&mut self, words: &[String]) -> Result<()> {
        let Some((path, number)) = self.trace.clone() else { return Ok(()) };
        let after = |name: &str| words.iter().skip_while(|word| *word != name).nth(1);
        let placement = after("--placement").map_or("run", String::as_str);
        let ending = path.extension().unwrap_or("json".as_ref()).to_string_lossy();
        let path = path.with_extension(format!("{placement}-{number}.{ending}"));
        let machine = self.machine.clone();
        let told = tracing::end(self.guest()?, &machine, &words.join(" "), &path)?;
        say!("numaherd: {told}");
        self.trace = self.trace.take().map(|(path, number)| (path, number + 1));
        Ok(())
    }

    fn boot_again(&mut self, dilation: f64) -> Result<()> {
        // The lock is ours only once the old machine is gone.
        self.booted = None;
        self.booted = Some((self.again)(Some(dilation))?);
        Ok(())
    }

    fn guest(&mut self) -> Result<&mut Guest> {
        let booted = self.booted.as_mut().context("the emulated machine is gone")?;
        Ok(&mut booted.guest)
    }

    /// Runs one cell, on the machine as it is.
    fn try_cell(&mut self, words: &[String]) -> Result<(CellResult, Option<Counted>)> {
        let first = self.guest()?.counters().map_or(Ok(0), |c| c.snapshots_taken())?;
        let program = std::env::current_exe().context("cannot find our own program")?;
        let mut argv = vec![program.display().to_string()];
        argv.extend_from_slice(words);
        let env = [("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root")];
        let env = env.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let exec = Exec { argv, env, cwd: "/".into(), terminal: None };
        if self.trace.is_some() {
            tracing::begin(self.guest()?)?;
        }
        let exit = self.guest()?.exec(&exec, &mut |output, bytes| match output {
            Output::Stdout => stdout.extend_from_slice(bytes),
            Output::Stderr => stderr.extend_from_slice(bytes),
        })?;
        self.end_trace(words)?;
        if exit.code != 0 {
            let said = String::from_utf8_lossy(&stderr);
            // The last line is the outermost program's; the one before it says why.
            let lines: Vec<&str> = said.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
            let said = lines[lines.len().saturating_sub(2)..].join("; ");
            let said = if said.is_empty() { "it said nothing" } else { &said };
            bail!("a run in the emulated machine ended with {}: {said}", exit.code);
        }
        Ok((parse_cell(&stdout)?, self.counted(first)?))
    }

    /// What was counted between the markers of the run that has just ended.
    fn counted(&mut self, first: u64) -> Result<Option<Counted>> {
        let nodes = self.machine.node_index_of_cpus();
        let Some(counters) = self.guest()?.counters() else { return Ok(None) };
        let taken = counters.snapshots_taken()?;
        let snapshots: Vec<_> =
            (first..taken).map(|number| counters.snapshot(number)).collect::<Result<_, _>>()?;
        let begin = snapshots.iter().find(|s| s.tag == BEGIN);
        let end = snapshots.iter().rev().find(|s| s.tag == END);
        let (Some(begin), Some(end)) = (begin, end) else {
            bail!("the emulated machine did not see the run begin and end");
        };
        let run = end.since(begin);
        let misses: u64 = run.cpus.iter().map(|cpu| cpu.misses).sum();
        let stray = counters.stray_misses()?;
        ensure!(
            stray < MOST_STRAY_MISSES.max(misses / 100),
            "{stray} misses fell outside all nodes: the plugin is wrong about where nodes lie"
        );
        Ok(Some(Counted {
            local_share: run.local_share(&nodes),
            late_share: run.late_share(),
            instructions: run.instructions(),
            cpus: run.cpus.into_iter().zip(nodes).map(|(cpu, node)| counts(cpu, node)).collect(),
        }))
    }
}

impl Site for LabSite {
    fn cell(&mut self, words: &[String]) -> Result<(CellResult, Option<Counted>)> {
        match self.try_cell(words) {
            Err(error) if matches!(error.downcast_ref(), Some(LabError::GuestDied { .. })) => {
                say!("numaherd: {error}; booting again and repeating this run");
                self.boot_again(self.dilation())?;
                self.try_cell(words)
            }
            other => other,
        }
    }

    fn machine(&self) -> String {
        format!("lab:{}", self.machine.name)
    }

    fn kernel(&self) -> String {
        let release = |booted: &lab::Booted| booted.guest.release().to_string();
        self.booted.as_ref().map_or_else(String::new, release)
    }

    fn dilation(&self) -> f64 {
        self.booted.as_ref().map_or(1.0, |booted| booted.dilation)
    }

    fn slow_down(&mut self, late_share: f64) -> Result<bool> {
        if self.patience == 0 {
            return Ok(false);
        }
        self.patience -= 1;
        let dilation = self.dilation() * if late_share > VERY_LATE { 4.0 } else { 2.0 };
        say!(
            "numaherd: the host was behind by {:.1} %: booting again, one guest second takes \
             {dilation} s",
            late_share * 100.0
        );
        self.boot_again(dilation)?;
        Ok(true)
    }

    fn end(self: Box<Self>) {
        let story = |line: &str| say!("numaherd: {line}");
        let ended = self.booted.map(|booted| booted.guest.shutdown(&story));
        // All is measured: of a guest that does not go by itself only logs may lack something.
        if let Some(Err(error @ LabError::Unwritten { .. })) = ended {
            say!("numaherd: {error}");
        }
    }
}

fn counts(cpu: CpuCounters, node: usize) -> CpuCounts {
    let all: u64 = cpu.misses_by_node.iter().sum();
    let local = cpu.misses_by_node.get(node).copied().unwrap_or(0);
    CpuCounts {
        instructions: cpu.instructions,
        accesses: cpu.accesses,
        misses: cpu.misses,
        local,
        remote: all - local,
        late_ns: cpu.late_ns + cpu.lag_ns,
        misses_by_node: cpu.misses_by_node,
    }
}

/// This very machine.
pub struct HostSite {
    interrupted: Arc<AtomicBool>,
}

impl HostSite {
    /// Says what it will use and change, and refuses a machine that is in use.
    pub fn new(args: &Compare, interrupted: &Arc<AtomicBool>) -> Result<HostSite> {
        output::without("host", &args.lab.given())?;
        output::without("host", &[("--trace", args.trace.is_some())])?;
        let workload = args.workload()?;
        let topology = numaherd_linux::topology::read(Path::new("/"))?;
        let layout = super::bench::layout(&topology);
        let params = workload.params(TieArg::Free, &layout);
        let memory_bytes = workload.name.memory_bytes(&params, &layout) as u64;
        let cpus = topology.cpus().len();
        say!(
            "numaherd: on this host: uses {} and {} MiB of memory for each run; sets \
             kernel.numa_balancing and the kernel's scan periods, drops the page cache and compacts \
             memory between runs{}{}; settings are put back",
            match params.threads {
                few if few < cpus => format!("up to {few} of {cpus} CPUs"),
                _ => format!("all {cpus} CPUs"),
            },
            memory_bytes >> 20,
            match workload.name.reserved_pages_per_node(workload.size_bytes()) {
                0 => String::new(),
                pages => format!(", reserves {pages} huge pages on each node"),
            },
            match args.has(Placement::Numad) {
                false => "",
                true => ", runs numad, which may bind any large and busy process and leaves it so",
            }
        );
        ensure!(
            topology.cpu_nodes().count() > 1,
            "this host has one node: a comparison of placements needs two (--on lab has them)"
        );
        let host = HostSite { interrupted: Arc::clone(interrupted) };
        if args.force {
            return Ok(host);
        }
        let busy = busy_share()?;
        ensure!(
            busy <= MOST_BUSY,
            "this host's CPUs are {:.0} % busy: wait, or give --force",
            busy * 100.0
        );
        let free: u64 = topology.nodes.iter().map(|node| node.free.0).sum();
        let need = memory_bytes.saturating_mul(4);
        ensure!(
            free >= need,
            "{} MiB are free and {} are wanted: make room, or give --force",
            free >> 20,
            need >> 20
        );
        Ok(host)
    }
}

/// Share of all CPUs' time that was not idle, over a second.
fn busy_share() -> Result<f64> {
    let read = || -> Result<(u64, u64)> {
        let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
        let idle = ticks.iter().skip(3).take(2).sum();
        Ok((ticks.iter().sum(), idle))
    };
    let (all, idle) = read()?;
    std::thread::sleep(Duration::from_secs(1));
    let (all_later, idle_later) = read()?;
    let elapsed = all_later.saturating_sub(all).max(1) as f64;
    Ok(1.0 - idle_later.saturating_sub(idle) as f64 / elapsed)
}

impl Site for HostSite {
    fn cell(&mut self, words: &[String]) -> Result<(CellResult, Option<Counted>)> {
        let program = std::env::current_exe().context("cannot find our own program")?;
        let mut command = Command::new(program);
        let output = awaited::output(command.args(words), &self.interrupted, cell::PATIENCE)?;
        ensure!(output.status.success(), "a run ended with {}", output.status);
        Ok((parse_cell(&output.stdout)?, None))
    }

    fn machine(&self) -> String {
        "host".into()
    }

    fn kernel(&self) -> String {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        release.trim().to_string()
    }

    fn slow_down(&mut self, _late_share: f64) -> Result<bool> {
        Ok(false)
    }

    fn dilation(&self) -> f64 {
        1.0
    }

    fn end(self: Box<Self>) {}
}
