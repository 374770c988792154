//! `bench`: one workload, here, once.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use numaherd_linux::sys::signal;
use numaherd_model::{Topology, counted};
use numaherd_report::{Percentiles, Series, Throughput};
use numaherd_workloads::{Kind, Layout, LayoutNode, Measured, Params, Setting, Unit};
use serde::Serialize;

use crate::args::{Bench, Format};
use crate::output;

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
    /// Bytes written or moved in the timed part; 0 where operations are counted.
    pub bytes: u64,
    /// Operations done in the timed part, where it has any.
    pub operations: Option<u64>,
    /// Work per second, of the whole timed part.
    pub throughput: Throughput,
    /// Work per second in the course of it.
    pub throughput_over_time: Series,
    /// How long operations took, where it has any.
    pub latency_ns: Option<Percentiles>,
    /// How long operations took by the second in which they ended, with `--histograms`: pairs of
    /// nanoseconds and how many took about so long, and one list for each second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_histograms: Option<Vec<Vec<(u64, u64)>>>,
    /// Threads of all processes.
    pub threads: usize,
    /// Memory of one process.
    pub size_bytes: usize,
    /// Rounds of each thread; `None` where the time was fixed.
    pub loops: Option<usize>,
}

/// Runs one workload and prints what it took.
pub fn run(args: &Bench) -> Result<ExitCode> {
    args.workload.check()?;
    if args.with_parent {
        signal::end_with_parent().context("cannot end with whoever started this")?;
    }
    let topology = numaherd_linux::topology::read(Path::new("/"))?;
    let layout = layout(&topology);
    let params = args.workload.params(args.tie, &layout);
    let kind = args.workload.name;
    let program = std::env::current_exe().context("cannot find our own program")?;
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command = |index: usize| {
        let mut command = Command::new(&program);
        command.args(&words).args(["--part", &index.to_string()]);
        command
    };
    let setting = Setting { params, layout, command: &command };
    if let Some(index) = args.part {
        kind.part(&setting, index)?;
        return Ok(ExitCode::SUCCESS);
    }
    let measured = kind.run(&setting)?;
    warn_if_cached(kind, &setting);
    let histograms = args
        .histograms
        .then(|| measured.latencies.iter().map(|second| second.cells().collect()).collect());
    let told = result(kind, &setting.params, measured);
    output::print(&text(args.output, &BenchResult { latency_histograms: histograms, ..told })?)
}

fn result(kind: Kind, params: &Params, measured: Measured) -> BenchResult {
    let (unit, operations) = match measured.unit {
        Unit::Bytes => ("B/s", None),
        Unit::Transactions => ("transactions/s", Some(measured.amount)),
        Unit::Processes => ("processes/s", Some(measured.amount)),
    };
    let median = measured.amount as f64 / measured.seconds;
    BenchResult {
        workload: kind.name().into(),
        seconds: measured.seconds,
        whole_seconds: measured.whole_seconds,
        start_ns: measured.start_ns,
        thread_seconds: measured.thread_seconds,
        bytes: if operations.is_none() { measured.amount } else { 0 },
        operations,
        throughput: Throughput { median, unit: unit.into() },
        throughput_over_time: Series {
            interval_seconds: measured.over_time.interval_seconds,
            values: measured.over_time.values,
        },
        latency_ns: measured.latency_ns.map(|l| Percentiles {
            p50: l.p50,
            p99: l.p99,
            p999: l.p999,
            max: l.max,
        }),
        latency_histograms: None,
        threads: params.threads,
        size_bytes: params.size_bytes,
        loops: params.limit_ns.is_none().then_some(params.loops),
    }
}

fn text(format: Format, result: &BenchResult) -> Result<String> {
    let BenchResult { workload, seconds, whole_seconds, bytes, threads, .. } = result;
    Ok(match format {
        Format::Json => serde_json::to_string(result)? + "\n",
        Format::Csv => {
            let loops = result.loops.map_or_else(String::new, |loops| loops.to_string());
            let operations = result.operations.map_or_else(String::new, |n| n.to_string());
            let latency = result.latency_ns.map_or_else(
                || ",,".into(),
                |latency| format!("{},{},{}", latency.p50, latency.p99, latency.p999),
            );
            format!(
                "workload,threads,size_bytes,loops,seconds,whole_seconds,bytes,operations,\
                 latency_p50_ns,latency_p99_ns,latency_p999_ns\n\
                 {workload},{threads},{},{loops},{seconds},{whole_seconds},{bytes},{operations},{latency}\n",
                result.size_bytes
            )
        }
        Format::Table => {
            let rate = result.throughput.median;
            let done = match result.operations {
                None => format!("{:.2} GB/s moved", rate / 1e9),
                Some(_) => format!("{rate:.0} {}", result.throughput.unit),
            };
            let mut text = format!(
                "{workload}: {seconds:.3} s from the end of initialisation to the last thread \
                 ({whole_seconds:.3} s in all), {done} by {}\n",
                counted(threads, "thread")
            );
            if let Some(Percentiles { p50, p99, p999, max }) = result.latency_ns {
                let us = |ns: u64| ns as f64 / 1000.0;
                text += &format!(
                    "{workload}: one took {:.1} us in the median, 99 % at most {:.1}, 99.9 % {:.1}, \
                     the longest {:.1}\n",
                    us(p50),
                    us(p99),
                    us(p999),
                    us(max)
                );
            }
            text
        }
    })
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

/// What fits the last-level cache no longer measures memory. Short processes are not for memory.
fn warn_if_cached(kind: Kind, setting: &Setting) {
    let per_thread = kind.bytes_per_thread(&setting.params, &setting.layout);
    if kind != Kind::Forks
        && let Ok(cache) = last_level_cache_bytes()
        && per_thread as u64 <= cache
    {
        say!(
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
