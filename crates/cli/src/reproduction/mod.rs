//! Published tables beside simulated ones.
//!
//! A table of `reference/` has columns (placements) and rows (workloads). Cells from which a figure
//! of the machine was calibrated stand in `reference/calibration.toml` and nowhere else; all other
//! simulated cells are predictions. What cannot be simulated yet is shown without a figure of ours.

pub mod calibration;
mod faults;
mod reference;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use numaherd_report::Spread;
use numaherd_sim::account::Account;
use numaherd_sim::{Machine, Run};
use serde::Serialize;

pub use faults::alone_on;
pub use reference::{Figure, Reference, calibrated, tables};

use faults::Known;

use crate::args::Resize;
use crate::simulation::{Job, Kernel, find};

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
    /// How many seeds.
    pub runs: usize,
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
    /// Changes from one kernel to the next that exceed 1 %, and those whose sign is ours too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<[usize; 2]>,
}

/// Published figures closer than this have no order. From the definition of the comparison.
const ORDER: f64 = 1.05;

/// Runs of a cell where nobody says how many: so many to see whether they differ, and so many where they do. Guessed.
const FIRST: u32 = 3;
const MORE: u32 = 9;

/// Runs differ whose slowest takes by more than this longer than the fastest. Guessed: a fifth of what makes an order.
const APART: f64 = 1.01;

/// Simulates a table's cells, each with so many seeds in a row, from this one on. Where nobody says how many that are, it
/// hangs on how much the first few differ.
pub fn reproduce(table: &Reference, seed: u64, runs: Option<u32>) -> Result<Table> {
    let mut cells = Vec::new();
    let machine = table.machine.as_deref().map(find::machine).transpose()?;
    let seeds = |from: u32, to: u32| (from..to).map(|run| seed.wrapping_add(u64::from(run)));
    let mut site = machine.as_ref().map(|machine| Site {
        machine,
        huge_pages: table.huge_pages,
        seeds: seeds(0, runs.unwrap_or(FIRST)).collect(),
        more: runs.is_none().then(|| seeds(FIRST, MORE)).into_iter().flatten().collect(),
        known: BTreeMap::new(),
        touched: Known::default(),
    });
    let fixed = calibrated()?;
    for row in &table.rows {
        if row.published.len() != table.columns.len() {
            bail!("reference table {}: row {} has another number of columns", table.name, row.name);
        }
        for (column, &published) in table.columns.iter().zip(&row.published) {
            let what = || format!("{}: {} under {}", table.name, row.name, column.name);
            let simulated = match (&mut site, &row.workload, &column.placement) {
                (Some(site), Some(workload), Some(placement)) => {
                    site.figure(workload, placement, row.figure).with_context(what)?
                }
                (Some(site), ..) if table.touches.is_some() => {
                    let (machine, seeds) = (site.machine, &site.seeds);
                    faults::rates_of(machine, seeds, table, (row, column), &mut site.touched)
                        .with_context(what)?
                }
                _ => None,
            };
            let range = simulated.as_ref().map(|spread| [spread.min, spread.max]);
            let runs = simulated.as_ref().map_or(0, |spread| spread.all.len());
            let simulated = simulated.map(|spread| spread.median);
            cells.push(Cell {
                row: row.name.clone(),
                column: column.name.clone(),
                unit: table.unit.clone(),
                published,
                simulated,
                simulated_range: range,
                runs,
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
        summary: sum_up(&cells, table.columns.len()).map(|summary| Summary {
            changes: table.touches.map(|_| faults::changes(&cells, table.columns.len())),
            ..summary
        }),
        cells,
    })
}

/// Where a table's runs are made; rows that tell of the same runs share them.
struct Site<'a> {
    machine: &'a Machine,
    huge_pages: bool,
    seeds: Vec<u64>,
    /// And these, where runs with those differ.
    more: Vec<u64>,
    known: BTreeMap<(String, String), Vec<(Run, Account)>>,
    touched: Known,
}

impl Site<'_> {
    /// The figure of each seed's run; nothing where the placement is not known here.
    fn figure(
        &mut self,
        workload: &str,
        placement: &str,
        figure: Figure,
    ) -> Result<Option<Spread>> {
        let key = (workload.to_string(), placement.to_string());
        if !self.known.contains_key(&key) {
            let runs = self.simulate(workload, placement)?;
            self.known.insert(key.clone(), runs);
        }
        let of = |(run, account): &(Run, Account)| match figure {
            Figure::Seconds => run.initial_seconds + run.seconds,
            Figure::Operations => run.operations.iter().sum::<f64>() / run.seconds,
            Figure::BlockedIn(function) => 100.0 * account.share_of_blocks(function.place()),
            Figure::OperationsOf(process) => {
                run.operations.get(process).map_or(0.0, |operations| operations / run.seconds)
            }
        };
        let all: Vec<f64> = self.known[&key].iter().map(of).collect();
        Ok(Spread::of(&all))
    }

    fn simulate(&self, workload: &str, placement: &str) -> Result<Vec<(Run, Account)>> {
        let Ok(placement) = clap::ValueEnum::from_str(placement, false) else {
            return Ok(Vec::new());
        };
        let workload = find::workload(workload, Resize::default())?;
        let run = |&seed: &u64| {
            let (machine, huge_pages) = (self.machine, self.huge_pages);
            let kernel = Kernel::Documents;
            let without = &[];
            let job =
                Job { machine, workload: &workload, placement, huge_pages, seed, kernel, without };
            let finished = job.run(false)?;
            Ok((finished.run, finished.sim.account().clone()))
        };
        let mut runs: Vec<(Run, Account)> = self.seeds.iter().map(run).collect::<Result<_>>()?;
        if differ(&runs) {
            runs.extend(self.more.iter().map(run).collect::<Result<Vec<_>>>()?);
        }
        Ok(runs)
    }
}

/// Whether runs differ, in how long they take or in how much they do.
fn differ(runs: &[(Run, Account)]) -> bool {
    let are_apart = |of: &dyn Fn(&Run) -> f64| {
        let all: Vec<f64> = runs.iter().map(|(run, _)| of(run)).collect();
        Spread::of(&all).is_some_and(|spread| spread.max > spread.min * APART)
    };
    let operations = |run: &Run| run.operations.iter().sum::<f64>() / run.seconds;
    are_apart(&|run| run.initial_seconds + run.seconds) || are_apart(&operations)
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
        changes: None,
    })
}

#[cfg(test)]
mod tests;
