//! The command line, as users and scripts see it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// See where threads and their memory are on NUMA machines, bring them together, prove it.
#[derive(Parser)]
#[command(name = "numaherd", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Nodes, CPUs, memory and distances
    Topology(TopologyArgs),
    /// Run one workload here, once
    Bench(Bench),
    /// An emulated NUMA machine with a real kernel
    #[command(subcommand)]
    Lab(LabCommand),
    /// The lab's other end, inside the guest
    #[command(hide = true)]
    LabAgent,
}

#[derive(Subcommand)]
pub enum LabCommand {
    /// Run CMD inside an emulated NUMA machine; ends with CMD's exit code
    Run(LabRun),
}

#[derive(Args)]
pub struct LabRun {
    #[command(flatten)]
    pub lab: LabArgs,
    /// End it after S seconds of this machine's clock
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// Write what the latency plugin counted to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    pub counters: Option<PathBuf>,
    /// Folder the guest may write to (the current one always is, unless it is /)
    #[arg(long, value_name = "DIR")]
    pub share: Vec<PathBuf>,
    /// Nothing on this machine is written: the current folder is read-only too
    #[arg(long)]
    pub read_only: bool,
    /// Say on stderr what is going on
    #[arg(short, long)]
    pub verbose: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Args, Clone)]
pub struct LabArgs {
    /// Machine: a name, or the path of its .toml file
    #[arg(long, value_name = "M", default_value = "2x4")]
    pub machine: String,
    /// Kernel: a release fetched by scripts/fetch-kernel, or the path of an image
    #[arg(long, value_name = "K")]
    pub kernel: Option<String>,
    /// Real seconds per guest second; measured at the start when not given
    #[arg(long, value_name = "X", value_parser = parse_dilation)]
    pub dilation: Option<f64>,
    /// All memory equally near: no latency plugin, full speed
    #[arg(long)]
    pub no_distance: bool,
}

fn parse_dilation(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (1.0..=1000.0).contains(&x) => Ok(x),
        _ => Err("a number from 1 to 1000, such as 4".into()),
    }
}

#[derive(Args)]
pub struct TopologyArgs {
    /// In numactl's layout, as `numactl -H` has it
    #[arg(short = 'H', long)]
    pub hardware: bool,
    /// Read /sys and /proc below DIR: a captured machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// For spreadsheets
    Csv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    On,
    Off,
}

#[derive(Args)]
pub struct Bench {
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// How threads and memory are tied to nodes
    #[arg(long, value_enum, default_value_t)]
    pub tie: TieArg,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
    /// One process of a workload that has several
    #[arg(long, hide = true)]
    pub part: Option<usize>,
}

/// A workload and its parameters.
#[derive(Args, Clone)]
pub struct WorkloadArgs {
    /// The workload
    #[arg(value_enum, value_name = "WORKLOAD")]
    pub name: Workload,
    /// Threads of all processes together [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub threads: Option<usize>,
    /// Memory of one process: bytes, or with K, M or G
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub size: Option<usize>,
    /// How often each thread writes its memory
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub loops: Option<usize>,
    /// Huge pages: ask for them or refuse them [default: as the system has it]
    #[arg(long, value_enum)]
    pub thp: Option<OnOff>,
    /// Where threads and memory are when the timed part begins, for placements that tie nothing
    #[arg(long, value_enum)]
    pub start: Option<StartArg>,
    /// A quarter of the loops
    #[arg(long)]
    pub quick: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Two processes, each one's memory shared by all its threads
    Numa01,
    /// One process, a slice of memory for each thread
    Numa02,
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Workload::Numa01 => "numa01",
            Workload::Numa02 => "numa02",
        })
    }
}

/// A workload's parameters where none are given.
pub struct Defaults {
    pub size_bytes: usize,
    pub loops: usize,
    pub start: StartArg,
}

impl Workload {
    /// Sized for the emulated 2x4: with `bind` at least 15 seconds there, about 4 if quick.
    pub fn defaults(self, quick: bool) -> Defaults {
        let (loops, start) = match self {
            Workload::Numa01 => (80, StartArg::OneNode),
            Workload::Numa02 => (640, StartArg::FirstTouch),
        };
        Defaults { size_bytes: 64 << 20, loops: if quick { loops / 4 } else { loops }, start }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StartArg {
    /// The main thread touches everything first, wherever it runs
    FirstTouch,
    /// All memory on the first node
    OneNode,
    /// Every thread together with its memory, and then set free
    Placed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TieArg {
    /// Not at all
    #[default]
    Free,
    /// The natural static placement
    Bind,
    /// Its mirror: memory on the other node
    Inverse,
    /// Memory interleaved over all nodes
    Interleave,
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (1..=1_000_000_000).contains(&n) => Ok(n),
        _ => Err("a whole number from 1".into()),
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1usize << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit));
    bytes.filter(|n| *n > 0).ok_or_else(|| "bytes, such as 67108864 or 64M".into())
}
