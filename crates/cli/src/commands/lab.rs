//! `lab run`, and the agent inside the guest.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use numaherd_lab::capacity::Capacity;
use numaherd_lab::guest::Output;
use numaherd_lab::kernel::cache_dir;
use numaherd_lab::tools::Tools;
use numaherd_lab::{BootOptions, Exec, Guest, Kernel, LabError, Machine, Share};

use super::tracing;
use crate::args::{LabArgs, LabRun};
use crate::interrupt;
use crate::output::{NewFile, one_line};

/// Exit code of a command that ran out of time, as `timeout` has it.
const TIMED_OUT: u8 = 124;
/// Exit code of a command whose reader has gone, as a shell tells SIGPIPE.
const UNREAD: u8 = 141;
/// Between two looks at whether it is our turn: seldom, for somebody is being timed.
const NAP: Duration = Duration::from_millis(250);

/// Runs a command inside an emulated machine.
pub fn run(args: &LabRun) -> Result<ExitCode> {
    let talk = args.verbose || std::io::stderr().is_terminal();
    let story = |line: &str| {
        if talk {
            say!("lab: {line}")
        }
    };
    // Told before a machine boots.
    let counters = args.counters.as_deref().map(NewFile::at).transpose()?;
    args.trace.as_deref().map(NewFile::at).transpose()?;
    let (here, shares) = shares(&args.share, args.read_only)?;
    let interrupted = interrupt::flag()?;
    let timeout = args.timeout.map(Duration::from_secs);
    let mut unread = false;
    let booted = boot(&args.lab, shares, timeout, &interrupted, &story);
    let ended = booted.and_then(|mut booted| {
        let guest = &mut booted.guest;
        let (argv, cwd) = (args.command.clone(), here.display().to_string());
        let exec = Exec { argv, env: environment(), cwd, terminal: None };
        if args.trace.is_some() {
            tracing::begin(guest)?;
        }
        match std::io::stdin().is_terminal() {
            false => guest.feed(std::io::stdin()),
            // Nobody types to it: it would wait for the end of its input for ever.
            true => guest.feed(std::io::empty()),
        }
        let exit = guest.exec(&exec, &mut |output, bytes| {
            // As the signal would end a command here.
            if !copy_output(output, bytes) {
                unread = true;
                interrupted.store(true, Ordering::Relaxed);
            }
        })?;
        if let Some(path) = &args.trace {
            let told = tracing::end(guest, &booted.machine, &args.command.join(" "), path)?;
            say!("numaherd: {told}");
        }
        Ok((booted, exit))
    });
    let (booted, exit) = match ended {
        Ok(ended) => ended,
        Err(_) if unread => return Ok(ExitCode::from(UNREAD)),
        Err(error) => return code_of(error),
    };
    if let Some(problem) = exit.not_started {
        say!("numaherd: {problem}");
    }
    if let Some(now) = booted.guest.counted()? {
        story(&format!(
            "{} million instructions, local share {}, late share {:.4}",
            now.instructions() / 1_000_000,
            now.local_share(&booted.machine.node_index_of_cpus())
                .map_or("-".into(), |share| format!("{share:.3}")),
            now.late_share(),
        ));
        if let Some(file) = counters {
            file.write(&serde_json::to_vec_pretty(&now)?)?;
        }
    }
    match booted.guest.shutdown(&|line| say!("numaherd: {line}")) {
        Ok(()) => Ok(ExitCode::from(u8::try_from(exit.code).unwrap_or(255))),
        Err(_) if unread => Ok(ExitCode::from(UNREAD)),
        Err(error) => code_of(error.into()),
    }
}

/// The current folder, and the folders the guest may write to.
pub fn shares(more: &[PathBuf], read_only: bool) -> Result<(PathBuf, Vec<PathBuf>)> {
    let here = std::env::current_dir().context("cannot tell the current folder")?;
    let mut shares: Vec<PathBuf> = Vec::new();
    if !read_only && here != Path::new("/") {
        shares.push(here.clone());
    }
    for dir in more {
        shares.push(dir.canonicalize().with_context(|| format!("--share {}", dir.display()))?);
    }
    Ok((here, shares))
}

/// What a command in the guest gets of our environment.
pub fn environment() -> Vec<(String, String)> {
    // What is no UTF-8 stays behind.
    let ours = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    ours.filter(|(name, _)| name != "LD_PRELOAD").collect()
}

/// An interrupt and a timeout have exit codes of their own.
pub fn code_of(error: anyhow::Error) -> Result<ExitCode> {
    let code = match error.downcast_ref::<LabError>() {
        Some(LabError::Interrupted | LabError::WaitInterrupted { .. }) => interrupt::code(),
        Some(LabError::Timeout { .. } | LabError::WaitTimeout { .. }) => ExitCode::from(TIMED_OUT),
        _ => return Err(error),
    };
    say!("numaherd: {error}");
    Ok(code)
}

/// What the guest's command prints is printed here. `false` where its reader has gone (a closed
/// pipe); what else cannot be written is dropped.
pub fn copy_output(output: Output, bytes: &[u8]) -> bool {
    let written = match output {
        Output::Stdout => {
            std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush())
        }
        Output::Stderr => std::io::stderr().write_all(bytes),
    };
    !written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Finds what a lab needs, measures this host, and boots.
pub fn boot(
    args: &LabArgs,
    shares: Vec<PathBuf>,
    timeout: Option<Duration>,
    interrupted: &Arc<AtomicBool>,
    story: &dyn Fn(&str),
) -> Result<Booted> {
    let machine = super::machine::find(&args.machine)?;
    let tools = Tools::find()?;
    let kernel = Kernel::find(args.tuning.kernel.as_deref(), &cache_dir())?;
    let program = std::env::current_exe().context("cannot find our own program")?;
    let distance = !args.tuning.no_distance;
    let path = plugin_beside(&program);
    let plugin = path.is_file().then(|| path.clone());
    if distance && plugin.is_none() {
        return Err(LabError::MissingPlugin { path }.into());
    }
    let turn =
        distance.then(|| take_turn(&cache_dir(), timeout, interrupted, story)).transpose()?;
    let dilation = match args.tuning.dilation {
        Some(given) => given,
        None if !distance => 1.0,
        None => {
            let capacity = Capacity::measure(&machine, &tools, &path)?;
            let dilation = capacity.dilation(&machine);
            story(&format!(
                "this host carries {:.0} million emulated instructions a second; one guest second takes {dilation} s",
                capacity.instructions_per_second / 1e6
            ));
            dilation
        }
    };
    story(&format!("booting {} with kernel {}", machine.name, kernel.name));
    for (figure, from) in machine.derived_figures() {
        story(&format!("{figure}: {from}"));
    }
    let options = BootOptions {
        machine: machine.clone(),
        kernel,
        plugin,
        distance,
        dilation,
        append: args.tuning.append.clone(),
        shares: shares.into_iter().map(Share).collect(),
        agent: vec![program.display().to_string(), "lab-agent".into()],
        timeout,
        interrupted: Arc::clone(interrupted),
        log_dir: cache_dir().join("logs"),
    };
    let guest = Guest::boot(&options, &tools)?;
    story(&format!("up, kernel {}", guest.release()));
    Ok(Booted { guest, machine, dilation, _turn: turn })
}

/// An emulated machine, and what comes with it.
pub struct Booted {
    pub guest: Guest,
    /// What it is.
    pub machine: Machine,
    /// Real seconds per guest second.
    pub dilation: f64,
    /// Held as long as the machine runs.
    _turn: Option<File>,
}

/// Machines whose timing matters take turns on this host; waits until it is ours.
fn take_turn(
    cache: &Path,
    timeout: Option<Duration>,
    interrupted: &AtomicBool,
    story: &dyn Fn(&str),
) -> Result<File> {
    let path = cache.join("lab.lock");
    std::fs::create_dir_all(cache).context("cannot make the cache folder")?;
    let failed = || format!("cannot lock {}", path.display());
    let lock = File::create(&path).with_context(failed)?;
    let begin = Instant::now();
    let mut told = false;
    // A lock that is waited for would go on waiting after a signal, and know no timeout.
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err(LabError::WaitInterrupted { path: path.display().to_string() }.into());
        }
        if let Some(timeout) = timeout.filter(|timeout| begin.elapsed() > *timeout) {
            return Err(LabError::WaitTimeout { seconds: timeout.as_secs() }.into());
        }
        if !told {
            story("another emulated machine is being timed on this host; waiting for it to end");
            told = true;
        }
        sleep(NAP);
    }
}

/// The plugin is built beside the program.
pub fn plugin_beside(program: &Path) -> PathBuf {
    program.with_file_name("libnumaherd_latency.so")
}

/// Serves the host, inside the guest.
pub fn agent() -> Result<ExitCode> {
    numaherd_lab::agent::serve(|| match teach() {
        Ok(()) => numaherd_workloads::marker::charge(),
        Err(error) => say!("numaherd: {}", one_line(&error)),
    })
    .context("the lab's agent")?;
    Ok(ExitCode::SUCCESS)
}

fn teach() -> Result<()> {
    let topology = numaherd_linux::topology::read(Path::new("/"))?;
    let layout = super::bench::layout(&topology);
    let memory: Vec<u32> = topology.memory_nodes().map(|node| node.id.0).collect();
    numaherd_workloads::marker::teach_nodes(&layout, &memory)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_waited_for_until_an_interrupt_or_the_timeout() {
        let cache = tempfile::tempdir().unwrap();
        let (no, yes) = (AtomicBool::new(false), AtomicBool::new(true));
        let turn = |timeout, interrupted| take_turn(cache.path(), timeout, interrupted, &|_| {});
        let first = turn(None, &yes).unwrap();
        let told = |error: anyhow::Error| error.downcast::<LabError>().unwrap();
        let error = told(turn(None, &yes).unwrap_err());
        assert!(matches!(error, LabError::WaitInterrupted { .. }), "{error}");
        let error = told(turn(Some(Duration::ZERO), &no).unwrap_err());
        assert!(matches!(error, LabError::WaitTimeout { seconds: 0 }), "{error}");
        drop(first);
        turn(Some(Duration::ZERO), &no).unwrap();
    }
}
