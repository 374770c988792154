//! The files of `reference/`: published figures as data, each table with its source.

use anyhow::{Context, Result};
use numaherd_sim::account::Place;
use serde::Deserialize;

/// Name and text of each table.
const TABLES: &[(&str, &str)] = &[
    ("autonuma-slides", include_str!("../../../../reference/autonuma-slides.toml")),
    ("numacore-autonuma-bench", include_str!("../../../../reference/numacore-autonuma-bench.toml")),
    ("numacore-specjbb", include_str!("../../../../reference/numacore-specjbb.toml")),
    ("numacore-specjbb-4k", include_str!("../../../../reference/numacore-specjbb-4k.toml")),
    ("numacore-callgraph", include_str!("../../../../reference/numacore-callgraph.toml")),
    ("autonuma-kbuild", include_str!("../../../../reference/autonuma-kbuild.toml")),
    ("pft-anon-sys-default", include_str!("../../../../reference/pft-anon-sys-default.toml")),
    ("pft-anon-vma-policy", include_str!("../../../../reference/pft-anon-vma-policy.toml")),
    ("pft-shmem-sys-default", include_str!("../../../../reference/pft-shmem-sys-default.toml")),
    ("pft-shmem-vma-policy", include_str!("../../../../reference/pft-shmem-vma-policy.toml")),
    ("steal-hackbench", include_str!("../../../../reference/steal-hackbench.toml")),
    ("steal-schedstat", include_str!("../../../../reference/steal-schedstat.toml")),
    ("numaq-kernel-compile", include_str!("../../../../reference/numaq-kernel-compile.toml")),
];

const CALIBRATION: &str = include_str!("../../../../reference/calibration.toml");

/// A published table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The file's name, without the ending.
    #[serde(skip)]
    pub name: String,
    pub title: String,
    pub source: String,
    /// On which simulated machine.
    pub machine: Option<String>,
    pub unit: String,
    /// Whether memory is in huge pages.
    #[serde(default = "yes")]
    pub huge_pages: bool,
    /// If it is of the page fault test: what is touched. Rows are numbers of threads.
    pub touches: Option<Touches>,
    /// Why nothing of it is simulated.
    pub not_simulated: Option<String>,
    #[serde(rename = "column")]
    pub columns: Vec<Column>,
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// A column and the placement that stands for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    pub placement: Option<String>,
    /// Of the page fault test: which rate, and of which kernel.
    pub rate: Option<Rate>,
    #[serde(default)]
    pub rework: bool,
}

/// What a page fault test touches.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Touches {
    pub shared: bool,
    pub policy: bool,
}

/// Faults per second of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rate {
    CpuTime,
    Time,
}

/// A row, the workload that stands for it, and a figure for each column.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub name: String,
    pub workload: Option<String>,
    #[serde(default)]
    pub figure: Figure,
    pub published: Vec<f64>,
}

/// What a row tells of a run.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Seconds, initialisation included.
    #[default]
    Seconds,
    /// Operations a second, all processes together.
    Operations,
    /// Those of one process, by its number.
    OperationsOf(usize),
    /// Of all times that tasks blocked, per cent in this function.
    BlockedIn(Function),
}

/// Functions in which a document saw tasks block.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    RmapWalk,
    PageLockAnonVma,
}

impl Function {
    /// The simulator's place for it.
    pub fn place(self) -> Place {
        match self {
            Function::RmapWalk => Place::RmapWalk,
            Function::PageLockAnonVma => Place::PageLock,
        }
    }
}

fn yes() -> bool {
    true
}

/// A cell that a figure of a machine follows from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrated {
    pub table: String,
    pub row: String,
    pub column: String,
    /// Which figure.
    #[serde(rename = "sets")]
    pub _sets: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Calibration {
    cell: Vec<Calibrated>,
}

/// All tables.
pub fn tables() -> Result<Vec<Reference>> {
    let read = |&(name, text): &(&str, &str)| {
        let table: Reference =
            toml::from_str(text).with_context(|| format!("reference table {name}"))?;
        Ok(Reference { name: name.into(), ..table })
    };
    TABLES.iter().map(read).collect()
}

/// The cells that were used to calibrate.
pub fn calibrated() -> Result<Vec<Calibrated>> {
    let calibration: Calibration =
        toml::from_str(CALIBRATION).context("reference/calibration.toml")?;
    Ok(calibration.cell)
}
