//! `bench pft`: the page fault test, once, or in the four tables of the mempolicy rework of 2008.

use std::process::ExitCode;

use anyhow::Result;
use numaherd_linux::sys::affinity;
use numaherd_model::counted;
use numaherd_report::faults::{self, FaultRow, FaultTable, Faults};
use numaherd_workloads::pft::{self, Faulted, Pft};

use crate::args::{Format, PftArgs};
use crate::output::{self, Pages};

/// Minor faults may differ from the pages so much, in thousandths, before it is said.
const TOLERATED_PERMILLE: u64 = 10;

/// Runs it.
pub fn run(args: &PftArgs) -> Result<ExitCode> {
    let workers = args.threads.or(args.processes).unwrap_or(1);
    let pft = Pft {
        size_bytes: args.memory,
        workers,
        processes: args.processes.is_some(),
        range_policy: args.policy,
        shared: args.shared,
        lines: args.cache_lines,
        pin: args.affinity,
        lock: args.lock,
        zero: args.zero,
    };
    let cpus: Vec<u32> = affinity::get(0)?.iter().map(|cpu| cpu.0).collect();
    match args.tables {
        Some(most) => tables(args, &pft, most, &cpus)?,
        None => once(args, &pft, &cpus)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The means of so many runs.
fn measure(pft: &Pft, runs: u32, cpus: &[u32]) -> Result<(Faulted, Vec<Faulted>)> {
    let all: Result<Vec<Faulted>, _> = (0..runs).map(|_| pft::run(pft, cpus)).collect();
    let all = all?;
    let count = all.len() as f64;
    let mean = |field: fn(&Faulted) -> f64| all.iter().map(field).sum::<f64>() / count;
    let mean = Faulted {
        pages: all.first().map_or(0, |run| run.pages),
        user_seconds: mean(|run| run.user_seconds),
        system_seconds: mean(|run| run.system_seconds),
        wall_seconds: mean(|run| run.wall_seconds),
        minor_faults: mean(|run| run.minor_faults as f64).round() as u64,
    };
    let off = mean.minor_faults.abs_diff(mean.pages) * 1000;
    if off > mean.pages * TOLERATED_PERMILLE {
        say!(
            "numaherd: the kernel counted {} for {}: something else faulted too, or pages came without",
            counted(mean.minor_faults, "minor fault"),
            counted(mean.pages, "page")
        );
    }
    Ok((mean, all))
}

fn once(args: &PftArgs, pft: &Pft, cpus: &[u32]) -> Result<()> {
    let (mean, _) = measure(pft, args.runs, cpus)?;
    output::print(&match args.output {
        Format::Json => {
            let json = serde_json::json!({
                "workers": pft.workers, "size_bytes": pft.size_bytes, "cache_lines": pft.lines,
                "pages": mean.pages, "minor_faults": mean.minor_faults,
                "user_seconds": mean.user_seconds, "system_seconds": mean.system_seconds,
                "wall_seconds": mean.wall_seconds,
                "faults_per_cpu_second": mean.per_cpu_second(),
                "faults_per_wall_second": mean.per_wall_second(), "runs": args.runs,
            });
            format!("{json}\n")
        }
        Format::Csv => {
            let Faulted { pages, user_seconds, system_seconds, wall_seconds, minor_faults } = mean;
            format!(
                "workers,cache_lines,pages,minor_faults,user_seconds,system_seconds,wall_seconds\n\
                 {},{},{pages},{minor_faults},{user_seconds},{system_seconds},{wall_seconds}\n",
                pft.workers, pft.lines
            )
        }
        Format::Table => columns(args.title, pft, &mean),
    })?;
    Ok(())
}

/// pft's own columns.
fn columns(title: bool, pft: &Pft, mean: &Faulted) -> String {
    let mut text = String::new();
    if title {
        text += "  Gb Thr CLine     User   System     Wall    flt/cpu/s   fault/wsec\n";
    }
    let gib = pft.size_bytes as f64 / f64::from(1 << 30);
    text += &format!(
        "{gib:>4.1} {:>3} {:>5} {:>7.2}s {:>7.2}s {:>7.2}s {:>12.3} {:>12.3}\n",
        pft.workers,
        pft.lines,
        mean.user_seconds,
        mean.system_seconds,
        mean.wall_seconds,
        mean.per_cpu_second(),
        mean.per_wall_second()
    );
    text
}

fn tables(args: &PftArgs, pft: &Pft, most: usize, cpus: &[u32]) -> Result<()> {
    // told before minutes of work
    let pages = Pages::at(args.html.as_deref(), args.svg.as_deref())?;
    let kinds = [
        ("anon+sys-default", false, false),
        ("anon+vma-policy", false, true),
        ("shmem+sys-default", true, false),
        ("shmem+vma-policy", true, true),
    ];
    let mut tables = Vec::new();
    for (name, shared, range_policy) in kinds {
        let mut rows = Vec::new();
        for workers in 1..=most {
            say!("pft: {name}, {}", counted(workers, "worker"));
            let pft = Pft { shared, range_policy, workers, ..*pft };
            let (mean, all) = measure(&pft, args.runs, cpus)?;
            let wall = || all.iter().map(Faulted::per_wall_second);
            rows.push(FaultRow {
                workers,
                per_cpu_second: mean.per_cpu_second(),
                per_wall_second: mean.per_wall_second(),
                wall_range: [wall().fold(f64::INFINITY, f64::min), wall().fold(0.0, f64::max)],
                pages: mean.pages,
                minor_faults: mean.minor_faults as f64,
            });
        }
        tables.push(FaultTable { name: name.to_string(), rows });
    }
    let faults = Faults {
        machine: machine(cpus.len()),
        size_bytes: pft.size_bytes,
        runs: args.runs as usize,
        tables,
    };
    output::print(&match args.output {
        Format::Json => output::json(&faults)?,
        Format::Csv => faults::csv(&faults),
        Format::Table => faults::text(&faults),
    })?;
    pages.write(|| faults::page(&faults), || faults::svg(&faults))
}

/// What was measured on.
pub fn machine(cpus: usize) -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, kernel {}", counted(cpus, "CPU"), release.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_pfts() {
        let pft = Pft {
            size_bytes: 4 << 30,
            workers: 2,
            processes: false,
            range_policy: false,
            shared: false,
            lines: 1,
            pin: false,
            lock: false,
            zero: false,
        };
        let mean = Faulted {
            pages: 1000,
            user_seconds: 0.5,
            system_seconds: 1.5,
            wall_seconds: 1.25,
            minor_faults: 1000,
        };
        // 1000 / (0.5 + 1.5) and 1000 / 1.25
        let line = " 4.0   2     1    0.50s    1.50s    1.25s      500.000      800.000\n";
        assert_eq!(columns(false, &pft, &mean), line);
        assert_eq!(columns(true, &pft, &mean).lines().count(), 2);
    }
}
