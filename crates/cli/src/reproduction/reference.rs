//! The files of `reference/`: published figures as data, each table with its source.

use anyhow::{Context, Result};
use serde::Deserialize;

/// Name and text of each table.
const TABLES: &[(&str, &str)] = &[
    ("autonuma-slides", include_str!("../../../../reference/autonuma-slides.toml")),
    ("numacore-autonuma-bench", include_str!("../../../../reference/numacore-autonuma-bench.toml")),
    ("numacore-specjbb", include_str!("../../../../reference/numacore-specjbb.toml")),
    ("numacore-specjbb-4k", include_str!("../../../../reference/numacore-specjbb-4k.toml")),
    ("autonuma-kbuild", include_str!("../../../../reference/autonuma-kbuild.toml")),
    ("pft-anon-sys-default", include_str!("../../../../reference/pft-anon-sys-default.toml")),
    ("pft-anon-vma-policy", include_str!("../../../../reference/pft-anon-vma-policy.toml")),
    ("pft-shmem-sys-default", include_str!("../../../../reference/pft-shmem-sys-default.toml")),
    ("pft-shmem-vma-policy", include_str!("../../../../reference/pft-shmem-vma-policy.toml")),
    ("steal-hackbench", include_str!("../../../../reference/steal-hackbench.toml")),
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
}

/// A row, the workload that stands for it, and a figure for each column.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub name: String,
    pub workload: Option<String>,
    pub published: Vec<f64>,
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
