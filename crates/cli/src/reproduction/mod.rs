//! Published tables beside simulated ones.
//!
//! A table of `reference/` has columns (placements) and rows (workloads). Cells from which a figure
//! of the machine was calibrated stand in `reference/calibration.toml` and nowhere else; all other
//! simulated cells are predictions. What cannot be simulated yet is shown without a figure of ours.

mod reference;

use anyhow::{Context, Result, bail};
use numaherd_report::Spread;
use numaherd_sim::Machine;
use serde::Serialize;

pub use reference::{Reference, calibrated, tables};

use crate::args::Resize;
use crate::simulation::{Job, find};

/// All tables, as the command line's contract has them.
#[derive(Serialize)]
pub struct Reproduction {
    pub tables: Vec<Table>,
}

/// A table.
#[derive(Serialize)]
pub struct Table {
    pub name: String,
    pub title: String,
    pub source: String,
    pub machine: Option<String>,
    /// Why nothing of it is simulated, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_simulated: Option<String>,
    pub cells: Vec<Cell>,
    pub summary: Option<Summary>,
}

/// A cell.
#[derive(Clone, Serialize)]
pub struct Cell {
    pub row: String,
    pub column: String,
    pub unit: String,
    pub published: f64,
    /// Median of the seeds.
    pub simulated: Option<f64>,
    /// Least and greatest of the seeds.
    pub simulated_range: Option<[f64; 2]>,
    /// Simulated ÷ published − 1.
    pub error: Option<f64>,
    pub calibrated: bool,
}

/// How the predicted cells came out; errors are shares.
#[derive(Serialize)]
pub struct Summary {
    pub predicted_cells: usize,
    pub median_error: f64,
    pub worst_error: f64,
    /// Pairs of figures of one row of which one is predicted and whose published values differ by
    /// more than 5 %; and those whose order is ours too.
    pub orders: usize,
    pub orders_reproduced: usize,
}

/// Published figures closer than this have no order. From the definition of the comparison.
const ORDER: f64 = 1.05;

/// Simulates a table's cells, each with so many seeds in a row.
pub fn reproduce(table: &Reference, seed: u64, runs: u32) -> Result<Table> {
    let mut cells = Vec::new();
    let machine = table.machine.as_deref().map(find::machine).transpose()?;
    let fixed = calibrated()?;
    for row in &table.rows {
        if row.published.len() != table.columns.len() {
            bail!("reference table {}: row {} has another number of columns", table.name, row.name);
        }
        for (column, &published) in table.columns.iter().zip(&row.published) {
            let what = || format!("{}: {} under {}", table.name, row.name, column.name);
            let placement = column.placement.as_deref();
            let simulated = match (&machine, &row.workload, placement) {
                (Some(machine), Some(workload), Some(placement)) => {
                    simulate(machine, workload, placement, seed, runs).with_context(what)?
                }
                _ => None,
            };
            let range = simulated.as_ref().map(|spread| [spread.min, spread.max]);
            let simulated = simulated.map(|spread| spread.median);
            cells.push(Cell {
                row: row.name.clone(),
                column: column.name.clone(),
                unit: table.unit.clone(),
                published,
                simulated,
                simulated_range: range,
                error: simulated.map(|simulated| simulated / published - 1.0),
                calibrated: fixed.iter().any(|cell| {
                    cell.table == table.name && cell.row == row.name && cell.column == column.name
                }),
            });
        }
    }
    Ok(Table {
        name: table.name.clone(),
        title: table.title.clone(),
        source: table.source.clone(),
        machine: table.machine.clone(),
        not_simulated: table.not_simulated.clone(),
        summary: sum_up(&cells, table.columns.len()),
        cells,
    })
}

/// Seconds; nothing where the placement is not known here.
fn simulate(
    machine: &Machine,
    workload: &str,
    placement: &str,
    seed: u64,
    runs: u32,
) -> Result<Option<Spread>> {
    let Ok(placement) = clap::ValueEnum::from_str(placement, false) else { return Ok(None) };
    let workload = find::workload(workload, Resize::default())?;
    let seconds = |run: u32| {
        let seed = seed + u64::from(run);
        let job = Job { machine, workload: &workload, placement, huge_pages: true, seed };
        Ok(job.run(false)?.run.seconds)
    };
    let all: Vec<f64> = (0..runs).map(seconds).collect::<Result<_>>()?;
    Ok(Spread::of(&all))
}

fn sum_up(cells: &[Cell], columns: usize) -> Option<Summary> {
    let predicted = |cell: &&Cell| cell.simulated.is_some() && !cell.calibrated;
    let mut errors: Vec<f64> =
        cells.iter().filter(predicted).filter_map(|cell| cell.error.map(f64::abs)).collect();
    errors.sort_by(f64::total_cmp);
    let (worst, middle) = (*errors.last()?, errors.len() / 2);
    let median = if errors.len() % 2 == 1 {
        errors[middle]
    } else {
        f64::midpoint(errors[middle - 1], errors[middle])
    };
    let (mut orders, mut orders_reproduced) = (0, 0);
    for row in cells.chunks(columns) {
        for (i, a) in row.iter().enumerate() {
            for b in &row[i + 1..] {
                let (Some(ours_a), Some(ours_b)) = (a.simulated, b.simulated) else { continue };
                let apart = a.published.max(b.published) / a.published.min(b.published) > ORDER;
                if apart && !(a.calibrated && b.calibrated) {
                    orders += 1;
                    let same = (a.published < b.published) == (ours_a < ours_b);
                    orders_reproduced += usize::from(same);
                }
            }
        }
    }
    Some(Summary {
        predicted_cells: errors.len(),
        median_error: median,
        worst_error: worst,
        orders,
        orders_reproduced,
    })
}

#[cfg(test)]
mod tests;
