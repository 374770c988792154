//! `numad -w NCPUS[:MB]`: which nodes a process with so many busy CPUs and so much memory should
//! take, from the machine's real state. libvirt asks this for `placement=auto` and reads one list
//! of nodes from stdout.
//!
//! Free CPUs of a node are the idle share of its CPUs over [`SAMPLE`]; free memory is what is
//! free plus the inactive pages of files, which the kernel gives up at once.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use numaherd_model::{Bytes, CpuId, NodeId, NodeSet, Topology};
use numaherd_placement::nodeset::{self, Capacity};

use crate::output::one_line;

/// How long CPUs are watched (chosen: several ticks of every CPU, and libvirt waits).
const SAMPLE: Duration = Duration::from_millis(500);

/// As it is printed.
pub const USAGE: &str = "usage: numad -w NCPUS[:MB]
prints the nodes that suit a process with so many busy CPUs and so much memory;
to keep tasks and memory together there is `numaherd balance`";

/// Runs it.
pub fn run(words: &[String]) -> ExitCode {
    if words == ["-V"] {
        putln!("numad version: {} (numaherd)", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let wanted = match words {
        [option, value] if option == "-w" => Some(value.as_str()),
        [option] => option.strip_prefix("-w").filter(|value| !value.is_empty()),
        _ => None,
    };
    let Some((cpus, memory)) = wanted.and_then(parse) else {
        say!("{USAGE}");
        return ExitCode::from(1);
    };
    match advise(cpus, memory) {
        Ok(nodes) => {
            putln!("{nodes}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            say!("numad: {}", one_line(&error));
            ExitCode::from(1)
        }
    }
}

/// `NCPUS[:MB]`.
fn parse(text: &str) -> Option<(u32, Bytes)> {
    let (cpus, mib) = text.split_once(':').unwrap_or((text, "0"));
    let mib: u64 = mib.parse().ok()?;
    Some((cpus.parse().ok()?, Bytes(mib.checked_mul(1 << 20)?)))
}

fn advise(cpus: u32, memory: Bytes) -> Result<NodeSet> {
    let root = Path::new("/");
    let topology = numaherd_linux::topology::read(root)?;
    let before = cpu_times()?;
    std::thread::sleep(SAMPLE);
    let after = cpu_times()?;
    let capacities = capacities(&topology, &before, &after)?;
    let chosen = nodeset::choose(&topology, &capacities, cpus, memory);
    if !chosen.enough {
        say!(
            "numad: no nodes have {cpus} idle CPUs and {} MB free; these come closest",
            memory.mib()
        );
    }
    Ok(chosen.nodes)
}

/// Idle and all ticks of a CPU.
type Ticks = (CpuId, u64, u64);

fn cpu_times() -> Result<Vec<Ticks>> {
    let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let times: Vec<Ticks> = text.lines().filter_map(cpu_line).collect();
    if times.is_empty() {
        bail!("/proc/stat has no line of a CPU");
    }
    Ok(times)
}

/// `cpu3 USER NICE SYSTEM IDLE IOWAIT …`; guest time is part of user time.
fn cpu_line(line: &str) -> Option<Ticks> {
    let mut words = line.split_ascii_whitespace();
    let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    let ticks: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((CpuId(cpu), idle, ticks.iter().sum()))
}

fn capacities(topology: &Topology, before: &[Ticks], after: &[Ticks]) -> Result<Vec<Capacity>> {
    let idle_permille = |cpu: CpuId| {
        let find = |all: &[Ticks]| all.iter().find(|(id, ..)| *id == cpu).copied();
        let ((_, idle0, all0), (_, idle1, all1)) = find(before).zip(find(after))?;
        let all = all1.saturating_sub(all0);
        // no tick in between: it slept throughout
        Some((idle1.saturating_sub(idle0) * 1000).checked_div(all).unwrap_or(1000))
    };
    topology
        .nodes
        .iter()
        .map(|node| {
            let idle: u64 = node.cpus.iter().filter_map(idle_permille).sum();
            let free = Bytes(node.free.0 + inactive_files(node.id)?.0);
            Ok(Capacity { node: node.id, idle_cpus_permille: idle, free })
        })
        .collect()
}

fn inactive_files(node: NodeId) -> Result<Bytes> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find(|line| line.contains("Inactive(file):"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().nth(3)?.parse::<u64>().ok());
    Ok(Bytes(kib.unwrap_or(0) << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_and_cpu_lines_are_read() {
        assert_eq!(parse("4:2048"), Some((4, Bytes(2 << 30))));
        assert_eq!(parse("4"), Some((4, Bytes(0))));
        for text in ["", "x", "4:", "4:99999999999999999999", "-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
        let line = "cpu2 10 0 5 80 5 0 0 0 3 0";
        // idle 80 + 5 of 100; the guest's 3 are among the 10
        assert_eq!(cpu_line(line), Some((CpuId(2), 85, 100)));
        assert_eq!(cpu_line("cpu  10 0 5 80 5 0 0 0"), None, "the sum of all");
        assert_eq!(cpu_line("intr 1"), None);
    }
}
