//! `reproduce`: published tables beside simulated ones.

use std::process::ExitCode;

use anyhow::Result;
use numaherd_model::counted;
use numaherd_report::{Listing, text};
use serde_json::json;

use crate::args::{Format, Reproduce};
use crate::output;
use crate::reproduction::{Cell, Reference, Reproduction, Table, reproduce, tables};

/// Simulates the tables and prints them.
pub fn run(args: &Reproduce) -> Result<ExitCode> {
    let all = tables()?;
    let wanted: Vec<_> = match &args.table {
        Some(name) => all.iter().filter(|table| table.name == *name).collect(),
        None => all.iter().collect(),
    };
    if wanted.is_empty() {
        let known: Vec<&str> = all.iter().map(|table| table.name.as_str()).collect();
        misuse!(
            "unknown table '{}': give one of {}",
            args.table.as_deref().unwrap_or_default(),
            known.join(", ")
        );
    }
    if args.table.is_none() && !args.all {
        return output::print(&match args.output {
            Format::Table => listing(&all).table(),
            Format::Json => {
                let about = |table: &Reference| {
                    let simulated = table.machine.is_some();
                    json!({"name": table.name, "title": table.title, "machine": table.machine, "simulated": simulated})
                };
                output::json(&json!({"tables": all.iter().map(about).collect::<Vec<_>>()}))?
            }
            Format::Csv => listing(&all).csv()?,
        });
    }
    let mut tables = Vec::new();
    for table in wanted {
        if table.machine.is_some() {
            say!("numaherd: simulating {}", table.name);
        }
        tables.push(reproduce(table, args.seed, args.runs)?);
    }
    let reproduction = Reproduction { tables };
    output::print(&match args.output {
        Format::Table => reproduction.tables.iter().map(told).collect(),
        Format::Json => output::json(&reproduction)?,
        Format::Csv => csv(&reproduction),
    })
}

/// The tables there are.
fn listing(all: &[Reference]) -> Listing {
    let mut listing = Listing::new(["table", "simulated", "what"]);
    for table in all {
        let simulated = if table.machine.is_some() { "yes" } else { "not yet" };
        listing.row([table.name.as_str(), simulated, &table.title]);
    }
    listing
}

fn told(table: &Table) -> String {
    let percent = |share: f64| format!("{:+.1} %", share * 100.0);
    let rows = table.cells.iter().map(|cell| {
        let figure = |figure: Option<String>| figure.unwrap_or_else(|| "-".into());
        [
            cell.row.clone(),
            cell.column.clone(),
            format!("{:.2}", cell.published),
            figure(cell.simulated.map(|simulated| format!("{simulated:.2}"))),
            figure(cell.simulated_range.map(|[from, to]| format!("{from:.2}-{to:.2}"))),
            figure(Some(cell.runs).filter(|runs| *runs > 0).map(|runs| runs.to_string())),
            figure(cell.error.map(percent)),
            match (cell.simulated, cell.calibrated) {
                (None, _) => "not simulated",
                (_, true) => "calibrated",
                _ => "predicted",
            }
            .into(),
        ]
    });
    let head = ["row", "column", "published", "simulated", "min-max", "runs", "error", ""];
    let mut text = format!("{}: {}\n{}", table.name, table.title, text::grid(head, rows));
    text += &format!("published by {}\n", table.source);
    if let Some(why) = &table.not_simulated {
        text += &format!("nothing of it is simulated: {why}\n");
    }
    if let Some(summary) = &table.summary {
        text += &format!(
            "{}: median error {:.1} %, worst {:.1} %",
            counted(summary.predicted_cells, "predicted cell"),
            summary.median_error * 100.0,
            summary.worst_error * 100.0,
        );
        if summary.orders > 0 {
            text += &format!(
                "; of {} of figures that differ by more than 5 %, {} are reproduced",
                counted(summary.orders, "order"),
                summary.orders_reproduced
            );
        }
        text += "\n";
        text += &overhead(table).filter(|_| summary.orders == 0).unwrap_or_default();
        if let Some([all, right]) = summary.changes {
            text += &format!("{all} changes exceed 1 %, the sign of {right} is reproduced\n");
        }
    }
    text + "\n"
}

/// Of a table of two columns, simulated in all rows, what the second has more than the first.
fn overhead(table: &Table) -> Option<String> {
    let (pairs, rest) = table.cells.as_chunks::<2>();
    let [first, second] = pairs.first()?;
    let alike = |[a, b]: &[Cell; 2]| {
        a.row == b.row && (&a.column, &b.column) == (&first.column, &second.column)
    };
    if first.column == second.column || !rest.is_empty() || !pairs.iter().all(alike) {
        return None;
    }
    let mean = |figure: fn(&Cell) -> Option<f64>| {
        let more = pairs.iter().map(|[a, b]| Some(figure(b)? / figure(a)? - 1.0));
        Some(more.sum::<Option<f64>>()? / pairs.len() as f64 * 100.0)
    };
    Some(format!(
        "{} over {}, mean of {}: {:+.2} % published, {:+.2} % simulated\n",
        second.column,
        first.column,
        counted(pairs.len() as u64, "row"),
        mean(|cell| Some(cell.published))?,
        mean(|cell| cell.simulated)?
    ))
}

/// One line per cell, absent figures empty. No field has a comma or a quote.
fn csv(reproduction: &Reproduction) -> String {
    let mut text = "table,row,column,unit,published,simulated,calibrated\n".to_string();
    for table in &reproduction.tables {
        for cell in &table.cells {
            let simulated = cell.simulated.map_or_else(String::new, |figure| figure.to_string());
            let plain = |text: &str| text.replace([',', '"'], "");
            text += &format!(
                "{},{},{},{},{},{simulated},{}\n",
                table.name,
                plain(&cell.row),
                plain(&cell.column),
                cell.unit,
                cell.published,
                cell.calibrated
            );
        }
    }
    text
}
