//! `bench`: one workload, here, once.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use numaherd_model::Topology;
use numaherd_workloads::{Elapsed, Layout, LayoutNode, Params, Start, Tie, numa01, numa02};
use serde::Serialize;

use crate::args::{Bench, Format, StartArg, TieArg, Workload, WorkloadArgs};

/// What a bench prints.
#[derive(Debug, Serialize, serde::Deserialize)]
pub struct BenchResult {
    /// Workload.
    pub workload: String,
    /// From the end of initialisation to the last thread.
    pub seconds: f64,
    /// The whole run.
    pub whole_seconds: f64,
    /// End of initialisation on the monotonic clock, in nanoseconds.
    pub start_ns: u64,
    /// From the end of initialisation to each thread's end.
    pub thread_seconds: Vec<f64>,
    /// Bytes written in the timed part.
    pub bytes: u64,
    /// Threads of all processes.
    pub threads: usize,
    /// Memory of one process.
    pub size_bytes: usize,
    /// How often each thread wrote its memory.
    pub loops: usize,
}

/// Runs one workload and prints what it took.
pub fn run(args: &Bench) -> Result<ExitCode> {
    let topology = numaherd_linux::topology::read(Path::new("/"))?;
    let layout = layout(&topology);
    let params = params(&args.workload, args.tie, &layout);
    if let Some(index) = args.part {
        numa01::part(&params, &layout, index)?;
        return Ok(ExitCode::SUCCESS);
    }
    warn_if_cached(&args.workload, &params);
    let elapsed = match args.workload.name {
        Workload::Numa02 => numa02::run(&params, &layout)?,
        Workload::Numa01 => {
            let program = std::env::current_exe().context("cannot find our own program")?;
            let words: Vec<String> = std::env::args().skip(1).collect();
            numa01::run(&params, &layout, |index| {
                let mut command = Command::new(&program);
                command.args(&words).args(["--part", &index.to_string()]);
                command
            })?
        }
    };
    print(args, &params, &elapsed)?;
    Ok(ExitCode::SUCCESS)
}

fn print(args: &Bench, params: &Params, elapsed: &Elapsed) -> Result<()> {
    let result = BenchResult {
        workload: args.workload.name.to_string(),
        seconds: elapsed.seconds,
        whole_seconds: elapsed.whole_seconds,
        start_ns: elapsed.start_ns,
        thread_seconds: elapsed.thread_seconds.clone(),
        bytes: elapsed.bytes,
        threads: params.threads,
        size_bytes: params.size_bytes,
        loops: params.loops,
    };
    match args.output {
        Format::Json => println!("{}", serde_json::to_string(&result)?),
        Format::Csv => {
            println!("workload,threads,size_bytes,loops,seconds,whole_seconds,bytes");
            let BenchResult { workload, threads, size_bytes, loops, .. } = &result;
            let (seconds, whole) = (result.seconds, result.whole_seconds);
            println!(
                "{workload},{threads},{size_bytes},{loops},{seconds},{whole},{}",
                result.bytes
            );
        }
        Format::Table => {
            let rate = result.bytes as f64 / result.seconds / 1e9;
            println!(
                "{}: {:.3} s from the end of initialisation to the last thread ({:.3} s in all), {rate:.2} GB/s written by {} threads",
                result.workload, result.seconds, result.whole_seconds, result.threads
            );
        }
    }
    Ok(())
}

/// The nodes with both CPUs and memory.
pub fn layout(topology: &Topology) -> Layout {
    let usable = topology.cpu_nodes().filter(|node| node.memory.0 > 0);
    let node = |node: &numaherd_model::Node| LayoutNode {
        id: node.id.0,
        cpus: node.cpus.iter().map(|cpu| cpu.0).collect(),
    };
    Layout { nodes: usable.map(node).collect() }
}

/// The workload's parameters, with its defaults where none are given.
fn params(args: &WorkloadArgs, tie: TieArg, layout: &Layout) -> Params {
    let defaults = args.name.defaults(args.quick);
    Params {
        threads: args.threads.unwrap_or(layout.cpus().len()),
        size_bytes: args.size.unwrap_or(defaults.size_bytes),
        loops: args.loops.unwrap_or(defaults.loops),
        huge_pages: args.thp.map(|thp| thp == crate::args::OnOff::On),
        tie: match tie {
            TieArg::Free => Tie::Free,
            TieArg::Bind => Tie::Bind,
            TieArg::Inverse => Tie::Inverse,
            TieArg::Interleave => Tie::Interleave,
        },
        start: match args.start.unwrap_or(defaults.start) {
            StartArg::FirstTouch => Start::FirstTouch,
            StartArg::OneNode => Start::OneNode,
            StartArg::Placed => Start::Placed,
        },
    }
}

/// A slice that fits the last-level cache no longer measures memory.
fn warn_if_cached(args: &WorkloadArgs, params: &Params) {
    let per_thread = match args.name {
        Workload::Numa01 => params.size_bytes,
        Workload::Numa02 => params.size_bytes / params.threads.max(1),
    };
    if let Ok(cache) = last_level_cache_bytes()
        && per_thread as u64 <= cache
    {
        eprintln!(
            "numaherd: each thread's {per_thread} bytes fit this machine's last-level cache of {cache}: \
             this measures the cache, not memory; give a larger --size"
        );
    }
}

/// The largest cache that CPU 0 has.
pub fn last_level_cache_bytes() -> Result<u64> {
    let mut largest = 0;
    for entry in std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache")?.flatten() {
        let text = std::fs::read_to_string(entry.path().join("size")).unwrap_or_default();
        let digits = text.trim().trim_end_matches(['K', 'M']);
        let unit = if text.trim().ends_with('M') { 1 << 20 } else { 1 << 10 };
        largest = largest.max(digits.parse::<u64>().unwrap_or(0) * unit);
    }
    if largest == 0 {
        bail!("no cache is described");
    }
    Ok(largest)
}
