//! What `simulate` and `reproduce` are told, and the placements that the simulator knows.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command, Error, Parser, ValueEnum};

use super::memory::{size, workers};
use super::placement::{twice, write_name};
use super::workload::{parse_count, parse_size};
use super::{Format, OnOff};
use crate::simulation::parts;

#[derive(Args)]
pub struct Simulate {
    /// The workload: a name, or the path of a .toml file or of rt-app's .json
    #[arg(value_name = "WORKLOAD")]
    pub workload: String,
    /// Machine: a name, a .toml file, hwloc's .xml, topology's .json, a captured folder, or a text
    /// such as "node:2 core:4"; or host, this one
    #[arg(long, value_name = "M")]
    pub machine: String,
    /// Placements, in the order of the table, each once
    #[arg(long, value_enum, value_delimiter = ',', value_name = "P", required = true)]
    pub placement: Vec<SimPlacement>,
    #[command(flatten)]
    pub resize: Resize,
    /// Huge pages, or small ones
    #[arg(long, value_enum, default_value = "on")]
    pub thp: OnOff,
    /// Runs of each placement; each has a seed of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Seed: the same seed gives the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Leave out a mechanism of the placements that have it, to measure what it is worth (repeatable); beside herd
    /// the kernel's stay in
    #[arg(long, value_name = "PART", value_parser = PartParser)]
    pub without: Vec<String>,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
    /// Tell where tasks spent their time and where they blocked, for each run; table or json
    #[arg(long)]
    pub callgraph: bool,
    /// Write who ran on which CPU, and page moves, for ui.perfetto.dev; one run of one placement
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write a page of nodes over time, where time went, and moves with their reasons; one run of one placement
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// How many page faults a second on a simulated machine: one region, shared out to threads that touch every
/// page, which has 4 KiB
#[derive(Parser)]
#[command(name = "numaherd simulate pft", bin_name = "numaherd simulate pft", version)]
pub struct SimulatePft {
    /// Machine, as for other workloads
    #[arg(long, value_name = "M")]
    pub machine: String,
    /// Placements, in the order of the table, each once; those that are NUMA balancing have no part in first touches
    #[arg(long, value_enum, value_delimiter = ',', value_name = "P", default_value = "off")]
    pub placement: Vec<TouchPlacement>,
    /// Size of the region: bytes, or with k, m, g or p(ages)
    #[arg(short = 'm', long, alias = "size", value_name = "SIZE", default_value = "64m", value_parser = size)]
    pub memory: usize,
    /// Threads
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = workers)]
    pub threads: usize,
    /// Give the region a policy of its own
    #[arg(short = 'p', long)]
    pub policy: bool,
    /// System V shared memory instead of private memory
    #[arg(short = 'S', long)]
    pub shared: bool,
    /// Under the kernel after the rework of 2008, which takes fewer references, instead of 2.6.25
    #[arg(long)]
    pub rework: bool,
    /// Nanoseconds that a fault takes one thread alone [default: as published of proliant-585, carried over]
    #[arg(long, value_name = "NS", value_parser = nanoseconds)]
    pub alone: Option<f64>,
    /// Runs, of which the means are printed; each has a seed of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

fn nanoseconds(text: &str) -> Result<f64, String> {
    let ns = text.parse::<f64>().ok().filter(|ns| (1.0..=1e9).contains(ns));
    ns.ok_or_else(|| "nanoseconds, from 1 to 1000000000".into())
}

#[derive(Args)]
pub struct Reproduce {
    /// The table; without one, the tables there are
    #[arg(value_name = "TABLE", conflicts_with = "all")]
    pub table: Option<String>,
    /// All tables
    #[arg(long)]
    pub all: bool,
    /// Runs of each cell, of which the median is told; each has a seed of its own [default: 3, and 9 where those are more
    /// than 1 % apart]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

#[derive(Args)]
pub struct Calibrate {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Any text: which mechanisms there are, hangs on the placements. Shows those of all.
#[derive(Clone)]
struct PartParser;

impl TypedValueParser for PartParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        text: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, text)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(parts::all_names().into_iter().map(PossibleValue::new)))
    }
}

/// Other parameters than the workload's own.
#[derive(Args, Clone, Copy, Default)]
pub struct Resize {
    /// Threads of all processes together
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub threads: Option<usize>,
    /// Memory of one process: bytes, or with K, M or G
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub size: Option<usize>,
    /// Rounds of each thread, instead of the workload's phases
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub loops: Option<usize>,
}

/// A placement that the simulator knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimPlacement {
    /// No NUMA balancing: what the scheduler and first touch make of it
    #[value(aliases = ["default", "upstream"])]
    Off,
    /// The natural static placement
    Bind,
    /// Its mirror
    Inverse,
    /// Memory interleaved over all nodes with CPUs
    Interleave,
    /// Linux 6.x: automatic NUMA balancing
    #[value(alias = "kernel")]
    Mainline,
    /// AutoNUMA v28 (October 2012), which splits huge pages to move them
    Autonuma,
    /// AutoNUMA as the slides of March 2012 had it
    AutonumaMarch,
    /// AutoNUMA v28 with the fix of numa/core's comparison: huge pages move whole
    AutonumaThp,
    /// numa/core v17 (2012): an ideal CPU for each task
    NumacoreV17,
    /// numa/core v18 (2012): directed convergence of groups
    NumacoreV18,
    /// balancenuma (2012): pages only
    Balancenuma,
    /// Ours, as it runs live, beside mainline with the scan periods that it sets
    Herd,
    /// Ours without its page moves
    HerdTasks,
    /// Ours beside mainline with scan periods as it has them by itself
    HerdUntuned,
}

/// Where pages lie that threads touch first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TouchPlacement {
    /// On the thread's own node
    #[value(aliases = ["default", "upstream"])]
    Off,
    /// Likewise, by a static placement
    Bind,
    /// On its mirror
    Inverse,
    /// On all nodes with CPUs in turn
    Interleave,
}

/// Refuses [`twice`].
pub fn each_once(all: &[impl ValueEnum]) -> anyhow::Result<()> {
    twice(all.iter().map(ValueEnum::to_possible_value))
}

impl std::fmt::Display for TouchPlacement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_name(self, f)
    }
}

impl std::fmt::Display for SimPlacement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_name(self, f)
    }
}
