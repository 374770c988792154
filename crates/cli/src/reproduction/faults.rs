//! Tables of the page fault test: rows are numbers of threads, columns rates of two kernels. What a
//! fault takes alone is calibrated with the row of one thread.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use numaherd_report::Spread;
use numaherd_sim::touching::{Rates, Touched, carried_over, rates};
use numaherd_sim::{Machine, Tie};

use super::Cell;
use super::calibration::published;
use super::reference::{Column, Rate, Reference, Row, tables};
use crate::simulation::find;

/// Rates that are known, by the number of threads and whether the kernel is reworked, once per seed: two columns tell of
/// the same faults.
pub type Known = BTreeMap<(usize, bool), Vec<Rates>>;

/// A cell, once per seed.
pub fn rates_of(
    machine: &Machine,
    seeds: &[u64],
    table: &Reference,
    (row, column): (&Row, &Column),
    known: &mut Known,
) -> Result<Option<Spread>> {
    let (Some(touches), Some(rate)) = (table.touches, column.rate) else { return Ok(None) };
    let threads: usize = row.name.parse().context("a row is a number of threads")?;
    let alone_ns = alone_ns(table, column.rework)?;
    let touched = Touched { shared: touches.shared, policy: touches.policy, rework: column.rework };
    let simulated = known.entry((threads, column.rework)).or_insert_with(|| {
        let run = |&seed: &u64| rates(machine, touched, Tie::Free, threads, alone_ns, seed);
        seeds.iter().map(run).collect()
    });
    let figure = |rates: &Rates| {
        if rate == Rate::CpuTime { rates.per_cpu_second } else { rates.per_second }
    };
    let all: Vec<f64> = simulated.iter().map(figure).collect();
    Ok(Spread::of(&all))
}

/// What a fault takes one thread alone, as a table has it.
fn alone_ns(table: &Reference, rework: bool) -> Result<f64> {
    let of_kernel = |other: &&Column| other.rework == rework && other.rate == Some(Rate::CpuTime);
    let alone = table.columns.iter().find(of_kernel).context("a column per CPU second")?;
    Ok(1e9 / published([&table.name, "1", &alone.name])?)
}

/// The same on another machine: published of that of the tables, and carried over from it otherwise, which is
/// guessed. Says which machine that is.
pub fn alone_on(machine: &Machine, touched: Touched) -> Result<(f64, String)> {
    let of_these = |table: &&Reference| {
        table.touches.is_some_and(|touches| {
            (touches.shared, touches.policy) == (touched.shared, touched.policy)
        })
    };
    let tables = tables()?;
    let table = tables.iter().find(of_these).context("no table of such page faults")?;
    let name = table.machine.as_deref().context("a table's machine")?;
    let there = find::machine(name)?;
    let alone_ns = alone_ns(table, touched.rework)?;
    Ok((carried_over(alone_ns, &there, machine), name.into()))
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
