//! The kernel's own trace of who ran where and of page moves, inside the guest.
//!
//! A tracefs instance of our own, so that others who trace are not disturbed. Each CPU has a
//! buffer of [`BUFFER_KIB`]; when it is full the kernel drops what comes and counts it, so what is
//! missing is the end, and it is known how much. The clock is CLOCK_MONOTONIC, in microseconds.
//!
//! Tracing itself costs the guest's CPUs time; reading happens after the traced command has ended.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Where tracefs is.
pub const ROOT: &str = "/sys/kernel/tracing";
const NAME: &str = "numaherd";
/// Guessed: at some 70 bytes an event, 60,000 task switches of a CPU.
const BUFFER_KIB: u32 = 4096;

/// What is recorded; `sched_*_numa` where the kernel has NUMA balancing.
const EVENTS: &[(&str, bool)] = &[
    ("sched/sched_switch", true),
    ("migrate/mm_migrate_pages", true),
    ("sched/sched_move_numa", false),
    ("sched/sched_swap_numa", false),
];

/// Before each CPU's number of dropped events in what [`end`] writes.
pub const DROPPED: &str = "# dropped on cpu";

/// Begins to record, in tracefs at `root`.
///
/// # Errors
/// No tracefs, no right to it, or a kernel without the events.
pub fn begin(root: &Path) -> io::Result<()> {
    let instance = root.join("instances").join(NAME);
    if instance.is_dir() {
        fs::remove_dir(&instance)?;
    }
    fs::create_dir(&instance)?;
    let set = |file: &str, value: &str| write_file(&instance.join(file), value);
    set("tracing_on", "0")?;
    set("buffer_size_kb", &BUFFER_KIB.to_string())?;
    set("trace_clock", "mono")?;
    set("options/overwrite", "0")?;
    for (event, needed) in EVENTS {
        match set(&format!("events/{event}/enable"), "1") {
            Err(error) if *needed => return Err(error),
            _ => {}
        }
    }
    set("tracing_on", "1")
}

/// Ends it, and writes what was recorded: the kernel's text, then a line for each CPU that
/// dropped events.
///
/// # Errors
/// It was never begun, or the output breaks.
pub fn end(root: &Path, to: &mut impl Write) -> io::Result<()> {
    let instance = root.join("instances").join(NAME);
    write_file(&instance.join("tracing_on"), "0")?;
    let mut text = BufReader::with_capacity(1 << 16, fs::File::open(instance.join("trace"))?);
    io::copy(&mut text, to)?;
    drop(text);
    for (cpu, folder) in cpus(&instance)? {
        let stats = fs::File::open(folder.join("stats"))?;
        let lines = BufReader::new(stats).lines().collect::<io::Result<Vec<String>>>()?;
        let dropped = dropped(&lines);
        if dropped > 0 {
            writeln!(to, "{DROPPED} {cpu}: {dropped}")?;
        }
    }
    fs::remove_dir(&instance)
}

fn write_file(path: &Path, value: &str) -> io::Result<()> {
    let told = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(told)
}

fn cpus(instance: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(instance.join("per_cpu"))? {
        let entry = entry?;
        let name = entry.file_name();
        let cpu = name.to_str().and_then(|name| name.strip_prefix("cpu"));
        found.extend(cpu.and_then(|cpu| cpu.parse().ok()).map(|cpu| (cpu, entry.path())));
    }
    found.sort();
    Ok(found)
}

/// Events that found the buffer full, of a CPU's `stats`.
fn dropped(stats: &[String]) -> u64 {
    let lost = ["overrun:", "commit overrun:", "dropped events:"];
    let value = |line: &String| {
        let rest = lost.iter().find_map(|name| line.strip_prefix(name))?;
        rest.trim().parse::<u64>().ok()
    };
    stats.iter().filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_lose_an_event_count() {
        let stats = "entries: 10\noverrun: 1\ncommit overrun: 2\nbytes: 99\ndropped events: 40\nread events: 3\n";
        let lines: Vec<String> = stats.lines().map(str::to_string).collect();
        assert_eq!(dropped(&lines), 43);
    }

    #[test]
    fn a_machine_without_tracefs_says_which_file() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("instances")).unwrap();
        let error = begin(root.path()).unwrap_err().to_string();
        assert!(error.contains("tracing_on") && error.contains("No such file"), "{error}");
    }
}
