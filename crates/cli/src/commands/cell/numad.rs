//! numad as a placement: the daemon is started before the workload and ended after it, as it comes,
//! but for how often it looks.
//!
//! It takes notice of processes above 300 MB and half a CPU (numad(8)), at its second look at the
//! earliest, and binds whole processes: sched_setaffinity and migrate_pages. Of the machine's
//! settings it changes one, khugepaged's rest, which the journal puts back. Processes that it bound
//! stay bound; those of a workload are over by then.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use numaherd_linux::host;
use numaherd_linux::sys::signal;

use crate::args::LookInterval;
use crate::session::Session;

/// Where distributions have it; a link of ours may stand earlier in the search path.
const PLACES: [&str; 3] = ["/usr/bin/numad", "/usr/sbin/numad", "/usr/local/bin/numad"];
/// Published: numad(8), "300MB and half of a CPU". It reckons in MiB.
const LEAST_BYTES: usize = 300 << 20;
const LOG: &str = "/var/log/numad.log";
const PID: &str = "/var/run/numad.pid";
/// What it changes, and to what: its default for -H.
const REST: (&str, &str) =
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "1000");
/// It leaves a process alone for five minutes after binding it, and takes one that it never bound
/// for bound when the machine came up (measured with Debian's 0.5+20150602: nothing is evaluated in
/// a machine's first 300 s). So on a machine that is younger it is told another age: a day.
const YOUNG_SECONDS: f64 = 300.0;
const DAY_SECONDS: &str = "86400";
/// How long it may take to come or to go; it sleeps no longer when told to end. Guessed.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// What its log says of a process that it has moved.
const MOVED: &str = "moved to node(s)";

/// Whether it can be compared here, and with a workload of this size at all.
pub fn check(size_bytes: usize) -> Result<()> {
    find()?;
    if size_bytes <= LEAST_BYTES {
        say!(
            "numaherd: numad leaves processes of less than {} MiB alone, and these have {}: give \
             a larger --size",
            LEAST_BYTES >> 20,
            size_bytes >> 20
        );
    }
    Ok(())
}

fn find() -> Result<PathBuf> {
    let ours = fs::metadata("/proc/self/exe").map(|our| (our.dev(), our.ino())).ok();
    let theirs = |place: &&PathBuf| {
        fs::metadata(place).is_ok_and(|found| Some((found.dev(), found.ino())) != ours)
    };
    let places = PLACES.map(PathBuf::from);
    let found = places.iter().find(theirs).cloned();
    found.context("numad is not installed: apt-get install numad, or leave it out of --placements")
}

/// A running numad, ended when dropped.
pub struct Daemon {
    program: PathBuf,
    pid: u32,
    /// Length of its log before.
    said: u64,
    is_over: bool,
}

impl Daemon {
    /// Starts it, and waits until it is there.
    pub fn start(interval: LookInterval, session: &mut Session) -> Result<Daemon> {
        let program = find()?;
        if let Some((_, pid)) = running()? {
            bail!("numad runs here already, as process {pid}: end it (numad -i 0) first");
        }
        let (path, value) = REST;
        session.will_be_set(Path::new(path), value)?;
        let said = fs::metadata(LOG).map_or(0, |log| log.len());
        let uptime = fs::read_to_string("/proc/uptime").context("cannot read /proc/uptime")?;
        run(aged(&program, &uptime).args(["-i", &interval.to_string()]))?;
        let begin = Instant::now();
        loop {
            let pid = fs::read_to_string(PID).ok().and_then(|text| text.trim().parse().ok());
            if let Some((_, found)) = running()?
                && pid == Some(found)
            {
                return Ok(Daemon { program, pid: found, said, is_over: false });
            }
            ensure!(
                begin.elapsed() < PATIENCE,
                "numad was started and is not there; it said: {}",
                last_line(&since(said))
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it, keeps what it logged, and answers how often it moved a process.
    pub fn end(mut self, log: Option<&Path>) -> Result<u64> {
        self.stop();
        let text = since(self.said);
        if let Some(path) = log {
            fs::write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(moves(&text))
    }

    fn stop(&mut self) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        // If it does not hear it is killed.
        let _ = run(Command::new(&self.program).args(["-i", "0"]));
        let begin = Instant::now();
        while is_there(self.pid) && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        if is_there(self.pid) {
            // It may have gone in between.
            let _ = signal::kill(self.pid);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The program, on a machine that seems to have been up for long.
fn aged(program: &Path, uptime: &str) -> Command {
    let up: f64 = uptime.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    if up > YOUNG_SECONDS {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--time", "--fork", "--monotonic", DAY_SECONDS, "--boottime", DAY_SECONDS]);
    command.arg(program);
    command
}

/// It goes into the background by itself.
fn run(command: &mut Command) -> Result<()> {
    let told = format!("{command:?}");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start {told}"))?;
    ensure!(status.success(), "{told} ended with {status}");
    Ok(())
}

fn running() -> Result<Option<(String, u32)>> {
    let rivals = host::read(Path::new("/"))?.rivals;
    Ok(rivals.into_iter().find(|(name, _)| name == "numad"))
}

fn is_there(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// What its log has beyond this length.
fn since(length: u64) -> String {
    let log = fs::read(LOG).unwrap_or_default();
    // A log that was begun anew is all of this run.
    let from = usize::try_from(length).ok().filter(|from| *from <= log.len()).unwrap_or(0);
    String::from_utf8_lossy(&log[from..]).into_owned()
}

fn last_line(text: &str) -> &str {
    text.lines().next_back().unwrap_or("nothing")
}

fn moves(log: &str) -> u64 {
    log.lines().filter(|line| line.contains(MOVED)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_young_machine_seems_a_day_old() {
        let words = |uptime: &str| {
            let command = aged(Path::new("/usr/bin/numad"), uptime);
            (command.get_program().to_os_string(), command.get_args().count())
        };
        assert_eq!(words("12.34 80.1\n"), ("unshare".into(), 7));
        assert_eq!(words("301.0 80.1\n"), ("/usr/bin/numad".into(), 0));
    }

    /// As numad 0.5 of 2015 writes it.
    #[test]
    fn moves_are_counted_in_its_log() {
        let log = "Sun Nov 22 04:00:00 2026: Registering numad version 20150602 PID 71\n\
                   Sun Nov 22 04:00:20 2026: Advising pid 80 (numaherd) move from nodes (0-1) to nodes (1)\n\
                   Sun Nov 22 04:00:21 2026: PID 80 moved to node(s) 1 in 0.93 seconds\n\
                   Sun Nov 22 04:00:40 2026: Shutting down numad\n";
        assert_eq!(moves(log), 1);
        assert_eq!(moves(""), 0);
        assert!(last_line(log).ends_with("Shutting down numad"));
        assert_eq!(last_line(""), "nothing");
    }
}
