//! Tables of the page fault test: rows are numbers of threads, columns rates of two kernels. What a
//! fault takes alone is calibrated with the row of one thread.

use anyhow::{Context, Result};
use numaherd_report::Spread;
use numaherd_sim::Machine;
use numaherd_sim::touching::{Touched, rates};

use super::Cell;
use super::calibration::published;
use super::reference::{Column, Rate, Reference, Row};

/// A cell, once per seed.
pub fn rates_of(
    machine: &Machine,
    seeds: &[u64],
    table: &Reference,
    row: &Row,
    column: &Column,
) -> Result<Option<Spread>> {
    let (Some(touches), Some(rate)) = (table.touches, column.rate) else { return Ok(None) };
    let threads: usize = row.name.parse().context("a row is a number of threads")?;
    let of_kernel =
        |other: &&Column| other.rework == column.rework && other.rate == Some(Rate::CpuTime);
    let alone = table.columns.iter().find(of_kernel).context("a column per CPU second")?;
    let alone_ns = 1e9 / published([&table.name, "1", &alone.name])?;
    let touched = Touched { shared: touches.shared, policy: touches.policy, rework: column.rework };
    let figure = |&seed: &u64| {
        let rates = rates(machine, touched, threads, alone_ns, seed);
        if rate == Rate::CpuTime { rates.per_cpu_second } else { rates.per_second }
    };
    let all: Vec<f64> = seeds.iter().map(figure).collect();
    Ok(Spread::of(&all))
}

/// Published changes by more than this have a sign. From the definition of the comparison.
const CHANGE: f64 = 0.01;

/// From the first half of each row's columns to the second: how many changes have a sign, and how
/// many of these are ours too.
pub fn changes(cells: &[Cell], columns: usize) -> [usize; 2] {
    let (mut all, mut right) = (0, 0);
    for row in cells.chunks(columns) {
        let (before, after) = row.split_at(columns / 2);
        for (before, after) in before.iter().zip(after) {
            let published = after.published / before.published - 1.0;
            let (Some(was), Some(is)) = (before.simulated, after.simulated) else { continue };
            if published.abs() > CHANGE && !before.calibrated {
                all += 1;
                right += usize::from((is > was) == (published > 0.0));
            }
        }
    }
    [all, right]
}
