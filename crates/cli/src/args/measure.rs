//! Arguments of `topology --measure`.

use std::path::PathBuf;

use clap::Args;

use super::LabTuning;
use super::workload::{parse_count, parse_size};

/// What `topology --measure` measures.
#[derive(Args)]
pub struct Measure {
    /// With --measure: memory used on each node [default: four times the last-level cache]
    #[arg(long, value_name = "BYTES", value_parser = parse_size, requires = "measure")]
    pub size: Option<usize>,
    /// With --measure: samples of each cell
    #[arg(long, value_name = "N", default_value = "5", value_parser = parse_count)]
    pub samples: usize,
    /// With --measure: latency alone, which takes one CPU and some seconds
    #[arg(long, requires = "measure")]
    pub latencies: bool,
    /// With --measure: latency, and what each node's CPUs read of its own memory: what balance --measured takes
    #[arg(long, requires = "measure", conflicts_with = "latencies")]
    pub own: bool,
    /// With --measure: write a page with heat maps, tables and data
    #[arg(long, value_name = "FILE", requires = "measure")]
    pub html: Option<PathBuf>,
    /// With --measure: write the heat maps as a picture
    #[arg(long, value_name = "FILE", requires = "measure")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub lab: LabTuning,
}
