//! `simulate pft`: the page fault test on a simulated machine, as `reproduce` simulates its published tables.
//!
//! Placements are where pages lie that threads touch first: on a thread's own node (`off`, by first touch, and
//! `bind`), on its mirror, or interleaved. NUMA balancing has no part in a first touch, so placements that consist
//! of it are none here.
//!
//! What a fault takes alone hangs on the kernel and cannot be told from a machine's file: it is published of one machine,
//! and guessed of others, unless somebody measured it.

use std::process::ExitCode;

use anyhow::{Result, bail};
use numaherd_report::text;
use numaherd_sim::touching::{Touched, least_ns, rates};
use numaherd_sim::{Machine, Tie};
use serde::Serialize;

use crate::args::{Format, SimulatePft, TouchPlacement, each_once};
use crate::output;
use crate::progress::Wait;
use crate::reproduction::alone_on;
use crate::simulation::{find, has_inverse};

const PAGE_BYTES: usize = 4096;

/// What is printed; names are those of `bench pft`.
#[derive(Serialize)]
struct Told {
    workload: &'static str,
    machine: String,
    kernel: &'static str,
    workers: usize,
    size_bytes: usize,
    pages: usize,
    /// Of a fault of one thread alone.
    alone_ns: f64,
    runs: u32,
    seed: u64,
    placements: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    /// All of it in the kernel: writing one line of a page is not told apart.
    cpu_seconds: f64,
    wall_seconds: f64,
    faults_per_cpu_second: f64,
    faults_per_wall_second: f64,
}

/// Simulates and prints.
pub fn run(args: &SimulatePft) -> Result<ExitCode> {
    each_once(&args.placement)?;
    let machine = find::machine(&args.machine)?;
    check(args, &machine)?;
    let SimulatePft { shared, policy, rework, threads, memory, .. } = *args;
    let touched = Touched { shared, policy, rework };
    let alone_ns = alone(args, &machine, touched)?;
    let pages = memory.div_ceil(PAGE_BYTES);
    let row = |placement: &TouchPlacement| {
        let tie = tie(*placement);
        let run = |run: u32| {
            let seed = args.seed.wrapping_add(u64::from(run));
            rates(&machine, touched, tie, threads, alone_ns, seed)
        };
        let all: Vec<_> = (0..args.runs).map(run).collect();
        let (pages, runs) = (pages as f64, all.len() as f64);
        let cpu_seconds = all.iter().map(|run| pages / run.per_cpu_second).sum::<f64>() / runs;
        let wall_seconds = all.iter().map(|run| pages / run.per_second).sum::<f64>() / runs;
        Row {
            name: placement.to_string(),
            cpu_seconds,
            wall_seconds,
            faults_per_cpu_second: pages / cpu_seconds,
            faults_per_wall_second: pages / wall_seconds,
        }
    };
    let wait = Wait::of(format!("pft on {} is simulated", machine.name));
    let told = Told {
        workload: "pft",
        machine: format!("sim:{}", machine.name),
        kernel: match rework {
            true => "simulated, 2.6.25 with the rework of 2008",
            false => "simulated, 2.6.25",
        },
        workers: threads,
        size_bytes: memory,
        pages,
        alone_ns,
        runs: args.runs,
        seed: args.seed,
        placements: args.placement.iter().map(row).collect(),
    };
    drop(wait);
    find::tell_guesses(&machine);
    output::print(&match args.output {
        Format::Table => table(&told),
        Format::Json => output::json(&told)?,
        Format::Csv => csv(&told),
    })
}

/// Where pages lie.
fn tie(placement: TouchPlacement) -> Tie {
    match placement {
        TouchPlacement::Off => Tie::Free,
        TouchPlacement::Bind => Tie::Bind,
        TouchPlacement::Inverse => Tie::Inverse,
        TouchPlacement::Interleave => Tie::Interleave,
    }
}

fn check(args: &SimulatePft, machine: &Machine) -> Result<()> {
    let (name, cpus) = (&machine.name, machine.cpus());
    if args.threads > cpus {
        bail!("{} threads of pft need a CPU each, {name} has {cpus}", args.threads);
    }
    if args.memory / PAGE_BYTES < args.threads {
        misuse!("--memory {}: less than a page for each thread", args.memory);
    }
    if args.placement.contains(&TouchPlacement::Inverse) && !has_inverse(machine) {
        bail!("the inverse placement needs two nodes with CPUs and memory, {name} has one");
    }
    Ok(())
}

/// Of a fault of one thread alone; says so if that is guessed.
fn alone(args: &SimulatePft, machine: &Machine, touched: Touched) -> Result<f64> {
    if let Some(alone_ns) = args.alone {
        let least_ns = least_ns(machine, touched);
        if alone_ns < least_ns {
            misuse!(
                "--alone {alone_ns}: on {} clearing a page and what is done under locks take {least_ns:.0} ns",
                machine.name
            );
        }
        return Ok(alone_ns);
    }
    let (alone_ns, published_of) = alone_on(machine, touched)?;
    if machine.name != published_of {
        say!(
            "numaherd: what a fault takes alone on {} is guessed: {alone_ns:.0} ns, from what was published of \
             {published_of}; --alone NS has it from bench pft there",
            machine.name
        );
    }
    Ok(alone_ns)
}

/// With pft's columns.
fn table(told: &Told) -> String {
    let rows = told.placements.iter().map(|row| {
        [
            row.name.clone(),
            format!("{:.1}", told.size_bytes as f64 / f64::from(1 << 30)),
            told.workers.to_string(),
            format!("{:.2}s", row.cpu_seconds),
            format!("{:.2}s", row.wall_seconds),
            format!("{:.3}", row.faults_per_cpu_second),
            format!("{:.3}", row.faults_per_wall_second),
        ]
    });
    let head = ["placement", "Gb", "Thr", "CPU", "Wall", "flt/cpu/s", "fault/wsec"];
    let Told { machine, kernel, runs, seed, .. } = told;
    let what = if *runs == 1 { "1 run".into() } else { format!("means of {runs} runs") };
    text::grid(head, rows) + &format!("pft on {machine}, kernel {kernel}; {what}, seed {seed}\n")
}

fn csv(told: &Told) -> String {
    let head = "placement,workers,pages,cpu_seconds,wall_seconds,faults_per_cpu_second,faults_per_wall_second\n";
    let line = |row: &Row| {
        let Row { name, cpu_seconds, wall_seconds, faults_per_cpu_second, faults_per_wall_second } =
            row;
        let (workers, pages) = (told.workers, told.pages);
        format!(
            "{name},{workers},{pages},{cpu_seconds},{wall_seconds},{faults_per_cpu_second},{faults_per_wall_second}\n"
        )
    };
    head.to_string() + &told.placements.iter().map(line).collect::<String>()
}
