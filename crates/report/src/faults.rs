//! Tables and plot of the page fault test: faults per second by workers, for private and shared
//! memory, with the system's policy and with one of the range's own.

use std::fmt::Write as _;

use numaherd_model::counted;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use crate::chart::{Area, ChartError, Data, Line, escape, framed, lines};

/// Means of the runs with so many workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultRow {
    /// Workers.
    pub workers: usize,
    /// Faults per second of CPU time.
    pub per_cpu_second: f64,
    /// Faults per second on the clock.
    pub per_wall_second: f64,
    /// Spread of the latter: least and greatest of the runs.
    pub wall_range: [f64; 2],
    /// Pages written in one run, computed from the region.
    pub pages: u64,
    /// Minor faults of one run, as the kernel counted them; the mean.
    pub minor_faults: f64,
}

impl FaultRow {
    /// Minor faults for each page; 1 where the kernel counted what was computed.
    fn faults_per_page(&self) -> f64 {
        self.minor_faults / self.pages as f64
    }
}

/// One kind of memory and policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultTable {
    /// `anon+sys-default` and the like.
    pub name: String,
    /// By workers.
    pub rows: Vec<FaultRow>,
}

/// The four tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Faults {
    /// Where: machine and kernel.
    pub machine: String,
    /// The region's size.
    pub size_bytes: usize,
    /// Runs of each row.
    pub runs: usize,
    /// Tables.
    pub tables: Vec<FaultTable>,
}

/// The tables as text, in the columns of the mempolicy rework of 2008: per CPU second, per wall
/// second; behind them the kernel's minor faults for each page computed.
#[must_use]
pub fn text(faults: &Faults) -> String {
    let mut out = String::new();
    for table in &faults.tables {
        // writing to a String cannot fail
        let _ = writeln!(
            out,
            "\t\t{}\n{:<4}{:>12}{:>12}{:>12}",
            table.name, "N", "flt/cpu/s", "flt/wall/s", "minflt/page"
        );
        for row in &table.rows {
            let (cpu, wall) = (row.per_cpu_second, row.per_wall_second);
            let counted = row.faults_per_page();
            let _ = writeln!(out, "{:<4}{cpu:>12.0}{wall:>12.0}{counted:>12.4}", row.workers);
        }
        out.push('\n');
    }
    let Faults { machine, size_bytes, runs, .. } = faults;
    let runs = counted(runs, "run");
    let _ = writeln!(out, "{} MiB, means of {runs}, {machine}", size_bytes >> 20);
    out
}

/// The tables as CSV.
#[must_use]
pub fn csv(faults: &Faults) -> String {
    let mut out = String::from(
        "table,workers,faults_per_cpu_second,faults_per_wall_second,pages,minor_faults\n",
    );
    for table in &faults.tables {
        for row in &table.rows {
            let FaultRow { workers, per_cpu_second, per_wall_second, pages, minor_faults, .. } =
                row;
            let name = &table.name;
            let _ = writeln!(
                out,
                "{name},{workers},{per_cpu_second},{per_wall_second},{pages},{minor_faults}"
            );
        }
    }
    out
}

/// A page that holds the plots, the tables and the data, and fetches nothing.
///
/// # Errors
/// The drawing library's.
pub fn page(faults: &Faults) -> Result<String, ChartError> {
    let plots = svg(faults)?;
    let title = escape(&format!("Page faults a second on {}", faults.machine));
    let data = Data { kind: "CSV", text: &csv(faults) };
    Ok(framed(&title, 58, &plots, &text(faults), &data))
}

/// Pixels.
const WIDTH: u32 = 860;
const HEIGHT: u32 = 420;
const COLOURS: [RGBColor; 4] = [
    RGBColor(46, 139, 87),
    RGBColor(94, 143, 190),
    RGBColor(210, 150, 100),
    RGBColor(150, 80, 140),
];

/// Two plots side by side, per CPU second and per wall second, a line for each table.
///
/// # Errors
/// The drawing library's.
pub fn svg(faults: &Faults) -> Result<String, ChartError> {
    let mut picture = String::new();
    draw(faults, &mut picture).map_err(|error| ChartError::new(&*error))?;
    Ok(picture)
}

fn draw(faults: &Faults, picture: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(picture, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(WIDTH / 2);
    plot(&left, "faults per CPU second", faults, |row| row.per_cpu_second)?;
    plot(&right, "faults per wall second", faults, |row| row.per_wall_second)?;
    area.present()?;
    Ok(())
}

fn plot(
    area: &Area<'_>,
    title: &str,
    faults: &Faults,
    value: fn(&FaultRow) -> f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let line = |(table, colour): (&FaultTable, RGBColor)| Line {
        name: table.name.clone(),
        points: table.rows.iter().map(|row| (row.workers as f64, value(row))).collect(),
        colour,
    };
    let all: Vec<Line> = faults.tables.iter().zip(COLOURS).map(line).collect();
    lines(area, title, "workers", &all, &|y| format!("{y:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults() -> Faults {
        let row = |workers: usize, wall: f64| FaultRow {
            workers,
            per_cpu_second: 180_000.0,
            per_wall_second: wall,
            wall_range: [wall, wall],
            pages: 1000,
            minor_faults: 1003.0,
        };
        let table = |name: &str| FaultTable {
            name: name.into(),
            rows: vec![row(1, 181_000.0), row(2, 323_742.4)],
        };
        Faults {
            machine: "2x4".into(),
            size_bytes: 64 << 20,
            runs: 10,
            tables: vec![table("anon+sys-default"), table("anon+vma-policy")],
        }
    }

    #[test]
    fn tables_have_the_columns_of_2008() {
        let text = text(&faults());
        let head = "\t\tanon+sys-default\nN      flt/cpu/s  flt/wall/s minflt/page\n";
        assert!(text.starts_with(head), "{text}");
        // 1003 faults for 1000 pages
        assert!(text.contains("2         180000      323742      1.0030\n"), "{text}");
        assert!(text.ends_with("64 MiB, means of 10 runs, 2x4\n"));
        assert_eq!(csv(&faults()).lines().count(), 5);
    }

    #[test]
    fn the_plot_has_a_line_for_each_table_and_fetches_nothing() {
        let picture = svg(&faults()).unwrap();
        // two lines and two legends in each of two plots, and the axes
        assert!(picture.matches("<polyline").count() >= 8, "{picture}");
        assert!(picture.contains("anon+vma-policy") && !picture.contains("href="));
        let page = page(&faults()).unwrap();
        assert!(page.contains(&picture) && page.contains("minflt/page"), "{page}");
        // the only address is the name of SVG's vocabulary, which nobody fetches
        assert_eq!(page.matches("http").count(), page.matches("xmlns=\"http").count());
    }
}
