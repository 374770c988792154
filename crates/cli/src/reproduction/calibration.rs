//! Figures of simulated machines that follow from published cells: computed anew from the cells of
//! `reference/calibration.toml`, and from nothing else, and set beside what stands in the files.

use anyhow::{Context, Result};
use numaherd_sim::{Machine, Tie, Workload, initial};
use serde::Serialize;

use super::{calibrated, tables};
use crate::args::Resize;
use crate::simulation::find;

/// A figure, and the cells it follows from.
#[derive(Serialize)]
pub struct Derived {
    /// File and figure.
    pub figure: &'static str,
    /// Table, row and column of each.
    pub cells: Vec<[&'static str; 3]>,
    /// What follows.
    pub follows: f64,
    /// What the file has.
    pub stands: f64,
}

impl Derived {
    /// How far the file is off, as a share.
    pub fn off(&self) -> f64 {
        (self.stands / self.follows - 1.0).abs()
    }
}

const GIB: f64 = (1u64 << 30) as f64;

/// All of them.
pub fn derive() -> Result<Vec<Derived>> {
    let slides = find::machine("autonuma-slides")?;
    let numacore = find::machine("numacore")?;
    let numa01 = find::workload("numa01", Resize::default())?;
    let numa02 = find::workload("numa02", Resize::default())?;
    let jbb = find::workload("jbb_like", Resize::default())?;
    Ok(vec![
        stream(&slides, &numa01)?,
        link(&slides, &numa01)?,
        memory(&numacore, &numa02)?,
        operation(&numacore, &jbb)?,
    ])
}

/// Every thread of the bound run writes its part of the bytes to local memory.
fn stream(machine: &Machine, workload: &Workload) -> Result<Derived> {
    let cell = ["autonuma-slides", "numa01", "bind"];
    let cpus = machine.cpus();
    Ok(Derived {
        figure: "autonuma-slides: sim.stream_mb_s",
        follows: workload.bytes(cpus) / 1e6 / published(cell)? / cpus as f64,
        stands: machine.cpu.stream_mb_s,
        cells: vec![cell],
    })
}

/// In the reverse run each direction of the link carries the reads of one node and the writes of
/// the other: all bytes once.
fn link(machine: &Machine, workload: &Workload) -> Result<Derived> {
    let cell = ["autonuma-slides", "numa01", "reverse bind"];
    Ok(Derived {
        figure: "autonuma-slides: links.bandwidth_mb_s",
        follows: workload.bytes(machine.cpus()) / 1e6 / published(cell)?,
        stands: machine.links[0].2,
        cells: vec![cell],
    })
}

/// One node reads and writes all bytes, after one thread has touched them first.
fn memory(machine: &Machine, workload: &Workload) -> Result<Derived> {
    let cell = ["numacore-autonuma-bench", "numa02", "v3.6 vanilla"];
    let initial = initial::seconds(machine, &workload.process[0], Tie::Free, true);
    let bytes = 800.0 * GIB;
    Ok(Derived {
        figure: "numacore: memory.bandwidth_mb_s",
        follows: 2.0 * bytes / 1e6 / (published(cell)? - initial),
        stands: machine.memory_mb_s[0],
        cells: vec![cell],
    })
}

/// Hard binding does 1/0.99 of v18's sum: every CPU a thread, all its misses local.
fn operation(machine: &Machine, workload: &Workload) -> Result<Derived> {
    let cell = ["numacore-specjbb", "SUM", "numa/core v18"];
    let process = &workload.process[0];
    let line_ns = machine.miss_ns(0, 0, true) + process.phase[0].compute_ns;
    Ok(Derived {
        figure: "jbb_like: lines_per_operation",
        follows: machine.cpus() as f64 / (line_ns / 1e9) / (published(cell)? / 0.99),
        stands: process.lines_per_operation.unwrap_or(0.0),
        cells: vec![cell],
    })
}

/// A cell, if it may be used.
pub(super) fn published([table, row, column]: [&str; 3]) -> Result<f64> {
    let allowed = calibrated()?;
    let is = |cell: &&super::reference::Calibrated| {
        cell.table == table && cell.row == row && cell.column == column
    };
    let what = || format!("{table}: {row} under {column}");
    allowed.iter().find(is).with_context(|| format!("{} may not be used", what()))?;
    let tables = tables()?;
    let table = tables.iter().find(|known| known.name == table).with_context(what)?;
    let at = table.columns.iter().position(|known| known.name == column).with_context(what)?;
    let row = table.rows.iter().find(|known| known.name == row).with_context(what)?;
    row.published.get(at).copied().with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_in_files_follow_from_the_allowed_cells() {
        let derived = derive().unwrap();
        for figure in &derived {
            let (stands, follows) = (figure.stands, figure.follows);
            assert!(figure.off() < 1e-3, "{}: {stands}, but {follows} follows", figure.figure);
        }
        // Whatever a machine's file calls calibrated is one of them.
        let machines: Vec<Machine> =
            Machine::names().map(|name| find::machine(name).unwrap()).collect();
        let says = machines.iter().flat_map(|machine| machine.provenance.values());
        let calibrated = says.filter(|from| from.starts_with("calibrated")).count();
        let of_workloads = derived.iter().filter(|d| d.figure.starts_with("jbb_like")).count();
        assert_eq!(calibrated, derived.len() - of_workloads);
    }

    #[test]
    fn other_cells_may_not_be_used() {
        let error = published(["autonuma-slides", "numa01", "autonuma"]).unwrap_err();
        assert!(error.to_string().contains("may not be used"), "{error}");
    }
}
