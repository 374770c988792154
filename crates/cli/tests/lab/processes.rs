//! Processes of this machine by what /proc says of them, and signals to those we know.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Ids of all processes.
pub fn all() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Ids of processes one of whose arguments contains `text`.
pub fn with_argument_containing(text: &str) -> Vec<u32> {
    all().into_iter().filter(|&pid| arguments(pid).contains(text)).collect()
}

/// Its command line, blanks between the words; empty once it has ended.
pub fn arguments(pid: u32) -> String {
    file(pid, "cmdline").replace('\0', " ")
}

/// Whether its environment has exactly this `NAME=value`.
pub fn has_variable(pid: u32, variable: &str) -> bool {
    file(pid, "environ").split('\0').any(|have| have == variable)
}

/// The lists of CPUs its threads may run on.
pub fn cpus_of_threads(pid: u32) -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let cpus = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_string())
    };
    tasks.flatten().filter_map(cpus).collect()
}

/// Whether it is there and no zombie.
pub fn runs(pid: u32) -> bool {
    file(pid, "stat")
        .rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// Sends a signal by name; one that has just ended is no error.
pub fn signal(name: &str, pid: u32) {
    let kill = format!("kill -{name} {pid} 2>/dev/null");
    let _ = Command::new("/bin/sh").args(["-c", &kill]).status();
}

/// Waits until `is` holds; None if it does not within `limit`.
pub fn wait_until(limit: Duration, mut is: impl FnMut() -> bool) -> Option<Duration> {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if is() {
            return Some(begin.elapsed());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

fn file(pid: u32, name: &str) -> String {
    let bytes = std::fs::read(Path::new("/proc").join(pid.to_string()).join(name));
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}
