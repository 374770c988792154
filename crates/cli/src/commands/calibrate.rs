//! `calibrate`: which figures of simulated machines follow from published cells, and whether the
//! files have them.

use std::process::ExitCode;

use anyhow::{Result, bail};
use numaherd_report::Listing;
use serde_json::json;

use crate::args::{Calibrate, Format};
use crate::output;
use crate::reproduction::calibration::{Derived, derive};

/// A file's figure may be rounded by as much.
const ROUNDED: f64 = 1e-3;

/// Computes them anew and prints them beside those in the files.
pub fn run(args: &Calibrate) -> Result<ExitCode> {
    let derived = derive()?;
    output::print(&match args.output {
        Format::Table => listing(&derived, |figure| format!("{figure:.2}")).table(),
        Format::Json => output::json(&json!({"figures": derived}))?,
        Format::Csv => listing(&derived, |figure| figure.to_string()).csv()?,
    })?;
    let wrong: Vec<&Derived> = derived.iter().filter(|figure| figure.off() > ROUNDED).collect();
    if let Some(figure) = wrong.first() {
        bail!("{} is {:.2}: put {:.2}", figure.figure, figure.stands, figure.follows)
    }
    Ok(ExitCode::SUCCESS)
}

fn listing(derived: &[Derived], told: fn(f64) -> String) -> Listing {
    let mut listing = Listing::new(["figure", "follows from", "is then", "file"]);
    for figure in derived {
        let cells: Vec<String> = figure.cells.iter().map(|cell| cell.join(" / ")).collect();
        listing.row([
            figure.figure.into(),
            cells.join(", "),
            told(figure.follows),
            told(figure.stands),
        ]);
    }
    listing
}
