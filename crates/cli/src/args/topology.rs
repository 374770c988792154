//! Arguments of `topology`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Format, Measure};

#[derive(Args)]
pub struct TopologyArgs {
    /// In numactl's layout, as `numactl -H` has it
    #[arg(short = 'H', long, conflicts_with = "output")]
    pub hardware: bool,
    /// Of a machine that is described: a name, a .toml file, hwloc's .xml, topology's .json, a captured
    /// folder, or a text such as "node:2 core:4"; or host, this one; with --measure one that can be
    /// emulated, or host
    #[arg(long, value_name = "M", conflicts_with = "root")]
    pub machine: Option<String>,
    /// Read /sys and /proc below DIR: a captured machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub output: TopologyFormat,
    /// With -o toml: take latencies and bandwidths from FILE, what topology --measure -o json said of
    /// this machine, instead of guessing them
    #[arg(long, value_name = "FILE", conflicts_with = "measure")]
    pub measured: Option<PathBuf>,
    /// Measure latency and bandwidth from each node to each
    #[arg(long, conflicts_with_all = ["hardware", "root"])]
    pub measure: bool,
    #[command(flatten)]
    pub measurement: Measure,
}

/// How a topology is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopologyFormat {
    /// For people
    #[default]
    Table,
    /// For programs; --machine takes it, too
    Json,
    /// For spreadsheets
    Csv,
    /// A machine file, for the simulator and to be edited
    Toml,
}

impl TopologyFormat {
    /// As other results are printed, if they are.
    pub fn plain(self) -> Option<Format> {
        match self {
            TopologyFormat::Table => Some(Format::Table),
            TopologyFormat::Json => Some(Format::Json),
            TopologyFormat::Csv => Some(Format::Csv),
            TopologyFormat::Toml => None,
        }
    }
}
