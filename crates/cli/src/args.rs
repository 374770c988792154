//! The command line, as users and scripts see it.

mod interval;
mod look;
mod measure;
mod memory;
mod placement;
mod simulate;
mod topology;
mod workload;

pub use memory::{
    MEMTOY_COMMANDS, Manual, Memtoy, MigrationArgs, PagesArg, PftArgs, PolicyArgs, Run,
};

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use numaherd_placement::mechanisms::PARTS;

pub use interval::LookInterval;
pub use look::{AdviseArgs, DoctorArgs, ExplainArgs, StatusArgs, TopArgs};
pub use measure::Measure;
pub use placement::{Compared, Placement};
pub use simulate::{
    Calibrate, Reproduce, Resize, SimPlacement, Simulate, SimulatePft, TouchPlacement, each_once,
};
pub use topology::{TopologyArgs, TopologyFormat};
pub use workload::{Parameters, StartArg, Subject, TieArg, WorkloadArgs};

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
    /// Start CMD under a memory policy and on CPUs, as numactl does
    Run(Box<Run>),
    /// Explain a memory policy: what the kernel makes of it, and where pages go
    Policy(PolicyArgs),
    /// Try policies on memory of its own, by commands
    Memtoy(Memtoy),
    /// What this kernel and this user may do, what is missing and how to get it
    Doctor(DoctorArgs),
    /// Who runs where, where its memory is, what that costs, what to do
    Status(StatusArgs),
    /// The same again and again, as it changes
    Top(TopArgs),
    /// Run one workload here, once
    #[command(
        after_help = "Also, with options of their own (--help): numaherd bench pft, the page fault test, and numaherd bench migration, how fast memory moves between nodes."
    )]
    Bench(Bench),
    /// A workload side by side under several placements
    Compare(Compare),
    /// A workload on a simulated machine, under placements of today and of 2012
    #[command(
        after_help = "Also: numaherd simulate pft, the page fault test, with options of its own (--help)."
    )]
    Simulate(Simulate),
    /// Published tables beside simulated ones
    Reproduce(Reproduce),
    /// Show which figures of simulated machines follow from published cells, computed anew
    Calibrate(Calibrate),
    /// One run of a comparison
    #[command(hide = true)]
    Cell(CellArgs),
    /// Keep tasks and their memory together until CMD or the processes end, or a signal
    Balance(Balance),
    /// What a move would bring, cost and need, before doing it
    Advise(AdviseArgs),
    /// Why balance moved something, or not
    Explain(ExplainArgs),
    /// Put back whatever an ended or killed balance left
    Restore(Restore),
    /// Watches over a session
    #[command(hide = true)]
    Supervise(Supervise),
    /// An emulated NUMA machine with a real kernel
    #[command(subcommand)]
    Lab(LabCommand),
    /// Write man pages and shell completions
    Manual(Manual),
    /// The lab's other end, inside the guest
    #[command(hide = true)]
    LabAgent,
    /// Tracing, inside the guest
    #[command(hide = true, subcommand)]
    LabTrace(LabTrace),
}

#[derive(Subcommand)]
pub enum LabTrace {
    /// Begin to record
    Begin,
    /// End it, and print what was recorded
    End,
}

#[derive(Subcommand)]
pub enum LabCommand {
    /// Run CMD inside an emulated NUMA machine; ends with CMD's exit code
    Run(LabRun),
    /// A shell, or CMD, on a terminal inside an emulated NUMA machine
    Shell(LabShell),
}

#[derive(Args)]
pub struct LabShell {
    #[command(flatten)]
    pub lab: LabArgs,
    /// Folder the guest may write to (the current one always is, unless it is /)
    #[arg(long, value_name = "DIR")]
    pub share: Vec<PathBuf>,
    /// Nothing on this machine is written: the current folder is read-only too
    #[arg(long)]
    pub read_only: bool,
    /// The command [default: your shell]
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
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
    /// Write who ran on which CPU, and page moves, to FILE, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
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
    /// Machine: a name, a .toml file, hwloc's .xml, topology's .json, a captured folder, or a text
    /// such as "node:2 core:4"; or host, one as this
    #[arg(long, value_name = "M", default_value = "2x4")]
    pub machine: String,
    #[command(flatten)]
    pub tuning: LabTuning,
}

/// How an emulated machine is booted.
#[derive(Args, Clone)]
pub struct LabTuning {
    /// Kernel: a release fetched by scripts/fetch-kernel, or the path of an image
    #[arg(long, value_name = "K")]
    pub kernel: Option<String>,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS")]
    pub append: Option<String>,
    /// Real seconds per guest second; measured at the start when not given
    #[arg(long, value_name = "X", value_parser = parse_dilation)]
    pub dilation: Option<f64>,
    /// All memory equally near: no latency plugin, full speed
    #[arg(long)]
    pub no_distance: bool,
}

impl LabTuning {
    /// Each option, and whether it is given.
    pub fn given(&self) -> [(&'static str, bool); 4] {
        [
            ("--kernel", self.kernel.is_some()),
            ("--append", self.append.is_some()),
            ("--dilation", self.dilation.is_some()),
            ("--no-distance", self.no_distance),
        ]
    }
}

fn parse_dilation(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (1.0..=1000.0).contains(&x) => Ok(x),
        _ => Err("a number from 1 to 1000, such as 4".into()),
    }
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
#[command(
    after_help = "And, with options of their own (--help): `bench pft`, the page fault test, and `bench migration`, how fast memory moves between nodes."
)]
pub struct Bench {
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// How threads and memory are tied to nodes
    #[arg(long, value_enum, default_value_t)]
    pub tie: TieArg,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
    /// In JSON, tell how long operations took for each second apart
    #[arg(long)]
    pub histograms: bool,
    /// One process of a workload that has several
    #[arg(long, hide = true)]
    pub part: Option<usize>,
    /// End when whoever started it has ended
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("whom").required(true).multiple(true).args(["pid", "command", "cgroup", "all"]))]
pub struct Balance {
    /// Look after this process and its descendants (repeatable)
    #[arg(short, long, value_name = "PID", value_parser = look::parse_pid)]
    pub pid: Vec<u32>,
    /// Look after the processes of this control group (version 2) and of those below it: a folder,
    /// or a name such as system.slice/db.service (repeatable). One that empties is waited for, unless --once is given
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
    /// Look after every process that uses a tenth of a CPU, and whom it starts from then on; only says
    /// what it would do, unless --apply is given
    #[arg(long)]
    pub all: bool,
    /// With --all: do it
    #[arg(long, requires = "all")]
    pub apply: bool,
    /// End when everything has converged, or nobody shows which memory it uses
    #[arg(long)]
    pub once: bool,
    /// Leave affinities as they are at the end; settings are put back all the same
    #[arg(long)]
    pub keep: bool,
    /// What decides
    #[arg(long, value_enum, default_value_t)]
    pub placement: BalancePlacement,
    /// Leave out a part of herd, to measure what it is worth (repeatable)
    #[arg(long, value_name = "PART", value_parser = parts_of_herd())]
    pub without: Vec<String>,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Also set the kernel's global knobs (kernel.numa_balancing, scan periods); put back at
    /// the end
    #[arg(long)]
    pub tune_kernel: bool,
    /// Go by the latencies in FILE, what topology --measure --own -o json said of this machine, instead of
    /// firmware's distances, and by what each node's memory carries
    #[arg(long, value_name = "FILE")]
    pub measured: Option<PathBuf>,
    /// How long a thread may be kept waiting for a page on its way
    #[arg(long, value_name = "SECONDS", default_value_t = PAUSE, value_parser = pause)]
    pub pause: f64,
    /// Do without BPF: evidence is where each process's pages lie
    #[arg(long)]
    pub no_bpf: bool,
    /// Write every action with its reason to FILE, one JSON object a line [default: a file that
    /// explain finds by the run's id]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Write what the run came to to FILE, as JSON
    #[arg(long, value_name = "FILE", hide = true)]
    pub summary: Option<PathBuf>,
    /// Tell every action on stderr
    #[arg(short, long)]
    pub verbose: bool,
    /// Start CMD and look after it. Whoever ends balance by a signal (SIGTERM) leaves CMD running;
    /// Ctrl-C in a terminal reaches both
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// How long a task may be kept waiting for a page on its way, in seconds, where nothing else is asked for.
pub const PAUSE: f64 = 0.002;

/// Seconds that a thread may wait: a positive number, no more than one.
fn parts_of_herd() -> PossibleValuesParser {
    let value = |(name, told): (&'static str, &'static str)| PossibleValue::new(name).help(told);
    PossibleValuesParser::new(PARTS.map(value))
}

fn pause(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 1.0);
    seconds.ok_or_else(|| "seconds, above 0 and at most 1".into())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BalancePlacement {
    /// Tasks and pages
    #[default]
    Herd,
    /// Tasks only, pages are left to the kernel
    HerdTasks,
}

#[derive(Args)]
pub struct Restore {
    /// Only say what would be put back
    #[arg(long)]
    pub dry_run: bool,
    /// This run, even if it was kept on purpose
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

#[derive(Args)]
pub struct Supervise {
    #[arg(long)]
    pub journal: PathBuf,
    #[arg(long)]
    pub pid: u32,
}

#[derive(Args)]
#[command(
    after_help = "Simulated (--on sim:MACHINE), nothing boots: --kernel, --append, --dilation, --no-distance, \
                  --force, --seconds, --until, --trace, --logs and --results are refused, and --numad-interval \
                  is passed over. Runs are then of one seed after the other, from --seed on."
)]
pub struct Compare {
    /// The workload; with --on sim:MACHINE also the path of a .toml file or of rt-app's .json
    #[arg(value_parser = Subject::parser(), value_name = "WORKLOAD")]
    pub subject: Subject,
    #[command(flatten)]
    pub given: Parameters,
    /// Where: lab, lab:MACHINE, sim:MACHINE or host
    #[arg(long, value_name = "WHERE", default_value = "lab")]
    pub on: On,
    /// Placements, in the order of the table, each once
    #[arg(
        long,
        value_parser = Compared::parser(),
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "off,kernel,bind,inverse,herd"
    )]
    pub placements: Vec<Compared>,
    /// Runs of each placement; 95 % intervals need 6
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Go on until the 95 % interval of each ratio to bind is narrower than this share of it
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub until: Option<f64>,
    /// With --until: give up after N runs of each placement
    #[arg(long, value_name = "N", default_value_t = 30, requires = "until", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub max_runs: u32,
    /// Also tell how ratios differ from those in FILE, an earlier comparison's -o json
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Seed of the order in which placements are run; simulated, of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
    /// Also write a page with pictures to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the picture alone to FILE
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write every run to FILE as soon as it is there [default: a new file in the cache folder]
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Least and greatest seconds between two looks of numad; its own default is 5:15
    #[arg(long, value_name = "MIN:MAX", default_value_t)]
    pub numad_interval: LookInterval,
    /// Keep herd's and numad's logs in DIR
    #[arg(long, value_name = "DIR")]
    pub logs: Option<PathBuf>,
    /// In the lab: write who ran on which CPU, and page moves, for ui.perfetto.dev; a file for each
    /// run, FILE with the placement and the run before its ending
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// On the host: even if it is busy or short of memory
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub lab: LabTuning,
}

impl Compare {
    /// Whether what is given goes together.
    ///
    /// # Errors
    /// A placement given twice, or parameters and places that the workload is not for.
    pub fn check(&self) -> anyhow::Result<()> {
        Compared::each_once(&self.placements)?;
        match (&self.subject, &self.on) {
            (Subject::Own(path), On::Sim(_)) => self.given.check_own(path),
            _ => self.workload()?.check(),
        }
    }

    /// The workload as kernels that run take it.
    ///
    /// # Errors
    /// A user's own is only simulated.
    pub fn workload(&self) -> anyhow::Result<WorkloadArgs> {
        match &self.subject {
            Subject::Known(name) => Ok(WorkloadArgs { name: *name, given: self.given.clone() }),
            Subject::Own(path) => misuse!(
                "{path} is only simulated: give --on sim:MACHINE, or a workload that comes with numaherd"
            ),
        }
    }

    /// Whether a placement is among those compared.
    pub fn has(&self, placement: Placement) -> bool {
        self.placements.iter().any(|compared| compared.live().is_ok_and(|live| live == placement))
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0001..=1.0).contains(&share) => Ok(share),
        _ => Err("a share from 0.0001 to 1, such as 0.01".into()),
    }
}

/// Where a comparison runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    Lab(String),
    Sim(String),
    Host,
}

impl std::str::FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "lab" => Ok(On::Lab("2x4".into())),
            None if text == "host" => Ok(On::Host),
            Some(("lab", machine)) if !machine.is_empty() => Ok(On::Lab(machine.into())),
            Some(("sim", machine)) if !machine.is_empty() => Ok(On::Sim(machine.into())),
            _ => Err("'lab', 'lab:MACHINE', 'sim:MACHINE' or 'host'".into()),
        }
    }
}

#[derive(Args)]
pub struct CellArgs {
    #[arg(long, value_enum)]
    pub placement: Placement,
    #[arg(long)]
    pub log: Option<PathBuf>,
    #[arg(long, default_value_t)]
    pub numad_interval: LookInterval,
    /// Measure how far nodes are from each other and what their memory carries, for herd
    #[arg(long)]
    pub measure: bool,
    /// Huge pages to reserve on every node
    #[arg(long, default_value_t = 0)]
    pub reserve: u64,
    /// Arguments of bench
    #[arg(last = true)]
    pub bench: Vec<String>,
}
