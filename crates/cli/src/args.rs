//! The command line, as users and scripts see it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// See where threads and their memory are on NUMA machines, bring them together, prove it.
#[derive(Parser)]
#[command(name = "numaherd", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
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
