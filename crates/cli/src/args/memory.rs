//! The command line of memory policies: `run`, `policy`, `memtoy`, and what documents it all.
//!
//! `run` is numactl with more: its words are read by `numaherd_mempolicy::numactl`, in numactl's
//! own way (options in order, the command without `--`). What stands here is their help, man page
//! and completions; a test holds the two to each other.

use std::path::PathBuf;

use clap::{Args, Parser, ValueHint};

use super::Format;

/// Help of lists, as numactl has them.
const LISTS: &str = "Lists: 0,2-3, all, !0 (all but), +0-1 (counted within the cpuset), same (the nodes before); \
a node can also be netdev:DEV, ip:HOST, file:PATH, block:DEV or pci:[SEG:]BUS:DEV[.FUNC].";

#[derive(Args)]
#[command(after_help = LISTS, disable_help_flag = true)]
pub struct Run {
    /// Lists may name any node and CPU, not only those of the cpuset; before all lists
    #[arg(short, long)]
    pub all: bool,
    /// Bound memory takes part in the kernel's balancing; before --membind
    #[arg(short, long)]
    pub balancing: bool,
    /// Pages in turn over these nodes
    #[arg(short, long, value_name = "NODES")]
    pub interleave: Option<String>,
    /// Pages in turn over these nodes, by their weights (Linux 6.9)
    #[arg(short, long, value_name = "NODES")]
    pub weighted_interleave: Option<String>,
    /// Set weights first, such as 0=3,1=1; they are the whole machine's
    #[arg(long, value_name = "NODE=WEIGHT,...")]
    pub weights: Option<String>,
    /// This node first, others when it is full
    #[arg(short, long, value_name = "NODE")]
    pub preferred: Option<String>,
    /// These nodes first, others when they are full
    #[arg(short = 'P', long, value_name = "NODES")]
    pub preferred_many: Option<String>,
    /// These nodes only
    #[arg(short, long, value_name = "NODES")]
    pub membind: Option<String>,
    /// The node of the CPU that touches first
    #[arg(short, long)]
    pub localalloc: bool,
    /// With --shm or --file: of the bound nodes, the one that is tried first
    #[arg(long, value_name = "NODE")]
    pub home_node: Option<String>,
    /// Run on the CPUs of these nodes
    #[arg(short = 'N', long, value_name = "NODES")]
    pub cpunodebind: Option<String>,
    /// As --cpunodebind
    #[arg(short = 'c', long, value_name = "NODES", hide = true)]
    pub cpubind: Option<String>,
    /// Run on these CPUs
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub physcpubind: Option<String>,
    /// Say what the policy will do here, with the first pages, and run nothing
    #[arg(long)]
    pub explain: bool,
    /// This process's policy and CPUs, and end
    #[arg(short, long)]
    pub show: bool,
    /// The machine's nodes, as numactl prints them, and end
    #[arg(short = 'H', long)]
    pub hardware: bool,
    /// The policy is for System V shared memory with the key of FILE
    #[arg(short = 'S', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub shm: Option<PathBuf>,
    /// The policy is for a file of tmpfs or hugetlbfs
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Begin so far into it: bytes, or with k, m or g
    #[arg(short, long, value_name = "OFFSET")]
    pub offset: Option<String>,
    /// So long; it is made so long if it does not exist
    #[arg(short = 'L', long, value_name = "LENGTH")]
    pub length: Option<String>,
    /// Permissions it is made with, in octal digits
    #[arg(short = 'M', long, value_name = "MODE")]
    pub shmmode: Option<String>,
    /// Number that makes the key different
    #[arg(short = 'I', long, value_name = "ID")]
    pub shmid: Option<String>,
    /// It is made of huge pages
    #[arg(short = 'u', long)]
    pub huge: bool,
    /// Fail if pages lie elsewhere already that --touch, given before the policy, has brought in
    #[arg(short = 't', long)]
    pub strict: bool,
    /// Touch its pages, so that the policy is applied now
    #[arg(short = 'T', long)]
    pub touch: bool,
    /// Print its policies
    #[arg(short, long)]
    pub dump: bool,
    /// Print the nodes of its pages
    #[arg(short = 'D', long)]
    pub dump_nodes: bool,
    /// Touch its pages and check that they lie where the policy says
    #[arg(short = 'V', long)]
    pub verify: bool,
    /// Print help
    #[arg(short, long)]
    pub help: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

#[derive(Args)]
pub struct PolicyArgs {
    /// numactl options (--membind=0-1), a mount's mpol=bind:0, or a line of numa_maps
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub text: String,
    /// On this machine: a name, a .toml file, synthetic text, hwloc's XML, a captured tree, topology's .json or host [default: this one]
    #[arg(long, value_name = "M")]
    pub machine: Option<String>,
    /// In a cpuset with these nodes [default: all of the machine's, or ours]
    #[arg(long, value_name = "NODES")]
    pub cpuset: Option<String>,
    /// Touched by a CPU of this node [default: the cpuset's first]
    #[arg(long, value_name = "NODE")]
    pub on: Option<u32>,
    /// What becomes of it when the cpuset changes to these nodes
    #[arg(long, value_name = "NODES")]
    pub then: Option<String>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// memtoy's commands, as its help and its man page have them.
pub const MEMTOY_COMMANDS: &str = "\
anon NAME SIZE [shared]         anonymous memory, private or shared with children
file NAME PATH [OFFSET SIZE]    a file, whose pages are shared
shm NAME SIZE                   a System V segment
remove NAME                     give it back
bind NAME [OFFSET LEN] POLICY   policy as in mpol=: bind:0-1, interleave=relative:0, local,
                                default; with +move pages there already are moved
home NAME [OFFSET LEN] NODE     the node that is tried first
touch NAME [OFFSET LEN] [read]  touch every page, by writing or reading
lock, unlock NAME [OFFSET LEN]  lock it in memory, or let go of it
where NAME [OFFSET LEN]         nodes of its pages, and its policies
migrate NAME [OFFSET LEN] NODE  move its pages to a node
migrate FROM TO                 move all pages of this process from nodes to nodes
policy [POLICY]                 set this process's own policy; show it
on LIST                         run on these CPUs
show                            segments
mems, cpus, pid, help, quit
SIZE, OFFSET and LEN are bytes, with k, m, g, or p for pages";

#[derive(Args)]
#[command(after_help = format!("Commands:\n{MEMTOY_COMMANDS}"))]
pub struct Memtoy {
    /// Read commands from FILE [default: standard input]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub script: Option<PathBuf>,
    /// End at the first command that fails
    #[arg(short, long)]
    pub strict: bool,
}

#[derive(Args)]
pub struct Manual {
    /// Write the pages, and completions of bash, zsh and fish, to DIR
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// How many page faults a second: one region, shared out to workers that touch every page.
#[derive(Parser)]
#[command(name = "numaherd bench pft", bin_name = "numaherd bench pft", version)]
pub struct PftArgs {
    /// Size of the region: bytes, or with k, m, g or p(ages)
    #[arg(short = 'm', long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    pub memory: usize,
    /// Threads
    #[arg(short, long, value_name = "N", conflicts_with = "processes", value_parser = workers)]
    pub threads: Option<usize>,
    /// Processes instead of threads
    #[arg(short = 'n', long, value_name = "N", value_parser = workers)]
    pub processes: Option<usize>,
    /// Give the region a policy of its own: preferred with no nodes, which is local
    #[arg(short = 'p', long)]
    pub policy: bool,
    /// System V shared memory instead of private memory
    #[arg(short = 'S', long)]
    pub shared: bool,
    /// Cache lines written in each page
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1)]
    pub cache_lines: usize,
    /// Keep each worker on a CPU of its own
    #[arg(short, long)]
    pub affinity: bool,
    /// Lock the memory: the faults happen there
    #[arg(short = 'l', long)]
    pub lock: bool,
    /// Zero each page whole
    #[arg(short, long)]
    pub zero: bool,
    /// Print the columns' names first
    #[arg(short = 'T', long)]
    pub title: bool,
    /// Runs, of which the means are printed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Four tables, private and shared memory with the system's policy and with one of its own, for 1 to N workers
    #[arg(long, value_name = "N", conflicts_with_all = ["policy", "shared", "threads"], value_parser = workers)]
    pub tables: Option<usize>,
    /// With --tables: draw them to FILE
    #[arg(long, value_name = "FILE", requires = "tables", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// With --tables: write a page with tables and plots to FILE
    #[arg(long, value_name = "FILE", requires = "tables", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// How fast memory moves between two nodes, and where the threads that move it wait.
#[derive(Parser)]
#[command(name = "numaherd bench migration", bin_name = "numaherd bench migration", version)]
pub struct MigrationArgs {
    /// Memory of each thread: bytes, or with k, m, g or p(ages)
    #[arg(short = 'm', long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    pub memory: usize,
    /// 1, 2, 4 and so on up to N threads [as many as CPUs]
    #[arg(short, long, value_name = "N", value_parser = workers)]
    pub threads: Option<usize>,
    /// The node that memory leaves [the first]
    #[arg(long, value_name = "NODE")]
    pub from: Option<u32>,
    /// The node that it goes to [the nearest]
    #[arg(long, value_name = "NODE")]
    pub to: Option<u32>,
    /// Pages of which size
    #[arg(long, value_enum, default_value_t)]
    pub pages: PagesArg,
    /// Runs of each row, of which medians are printed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Tell where the moving threads' time goes in the kernel, in a further run of each row
    #[arg(long)]
    pub callgraph: bool,
    /// Draw it to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Write a page with tables and pictures to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Sizes of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PagesArg {
    /// The smallest
    Base,
    /// Transparent huge pages
    Huge,
    /// One after the other; without huge ones where the kernel has none
    #[default]
    Both,
}

pub(super) fn size(text: &str) -> Result<usize, String> {
    crate::commands::memtoy::bytes(text).map_err(|error| error.to_string())
}

/// More workers than this are no measurement any more (chosen).
const MOST_WORKERS: usize = 4096;

pub(super) fn workers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST_WORKERS).contains(number));
    number.ok_or_else(|| format!("1 to {MOST_WORKERS} workers are possible"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use numaherd_mempolicy::numactl::{NUMACTL, OURS};

    #[test]
    fn runs_help_has_exactly_the_options_that_run_reads() {
        let cli = crate::args::Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        let mut told: Vec<_> = run
            .get_arguments()
            .filter_map(|arg| {
                let takes_value = arg.get_action().takes_values();
                Some((arg.get_long()?.to_string(), arg.get_short(), takes_value))
            })
            .collect();
        let read = [NUMACTL, OURS].concat();
        let mut read: Vec<_> =
            read.iter().map(|spec| (spec.long.to_string(), spec.short, spec.takes_value)).collect();
        told.sort();
        read.sort();
        assert_eq!(told, read);
    }
}
