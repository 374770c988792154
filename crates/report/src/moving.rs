//! How fast memory moves between two nodes, by how many threads move it: table, CSV, and a page with a
//! plot for each size of pages and with the threads' call graphs.

use plotters::prelude::*;
use serde::Serialize;

use crate::chart::{ChartError, Data, Line, escape, framed, lines};
use crate::text::grid;
use crate::{CallGraph, Listing, Spread};

/// Bytes in a GB.
const GB: f64 = 1e9;

/// Pages of one size, moved by so many threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `base` or `huge`.
    pub pages: &'static str,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Threads.
    pub threads: usize,
    /// Bytes a second by `move_pages`, each thread its own memory, all at once.
    pub move_pages: Spread,
    /// As much memory, by one call of `migrate_pages`.
    pub migrate_pages: Spread,
    /// As much memory, copied from node to node by as many threads.
    pub copying: Spread,
}

/// A run of the benchmark.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moving {
    /// Where: CPUs and kernel.
    pub machine: String,
    /// The node that is left.
    pub from: u32,
    /// The node that is gone to.
    pub to: u32,
    /// Memory of each thread.
    pub bytes_per_thread: u64,
    /// Runs of each row.
    pub runs: u32,
    /// By pages and threads.
    pub rows: Vec<Row>,
    /// Of the threads that called `move_pages`, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callgraphs: Vec<CallGraph>,
}

impl Moving {
    /// A table, and the call graphs below it.
    #[must_use]
    pub fn text(&self) -> String {
        let Moving { machine, from, to, bytes_per_thread, runs, .. } = self;
        let head = ["pages", "threads", "move_pages", "migrate_pages", "copying", "x copying"];
        let rows = self.rows.iter().map(|row| {
            let told = |spread: &Spread| {
                let [median, min, max] = [spread.median, spread.min, spread.max].map(|b| b / GB);
                format!("{median:.3} ({min:.3}-{max:.3})")
            };
            let share = row.move_pages.median / row.copying.median;
            let [moved, whole, copied] =
                [&row.move_pages, &row.migrate_pages, &row.copying].map(told);
            [row.pages.into(), row.threads.to_string(), moved, whole, copied, format!("{share:.2}")]
        });
        let mut text = grid(head, rows);
        text += &format!(
            "GB/s, medians of {runs} (least-greatest), {} MiB a thread from node {from} to {to}; {machine}\n",
            bytes_per_thread >> 20
        );
        for graph in &self.callgraphs {
            text += "\n";
            text += &graph.text();
        }
        text
    }

    /// The rows.
    ///
    /// # Errors
    /// None that is known.
    pub fn csv(&self) -> Result<String, csv::Error> {
        let mut listing = Listing::new([
            "pages",
            "threads",
            "move_pages_bytes_per_second",
            "migrate_pages_bytes_per_second",
            "copying_bytes_per_second",
        ]);
        for row in &self.rows {
            let [moved, whole, copied] =
                [&row.move_pages, &row.migrate_pages, &row.copying].map(|s| s.median.to_string());
            listing.row([row.pages.to_string(), row.threads.to_string(), moved, whole, copied]);
        }
        listing.csv()
    }

    /// A page that holds plots, call graphs, the table and the data, and fetches nothing.
    ///
    /// # Errors
    /// The drawing library's.
    pub fn page(&self) -> Result<String, ChartError> {
        let mut pictures = self.svg()?;
        for graph in &self.callgraphs {
            let CallGraph { placement, all, .. } = graph;
            let title = format!("{placement}: where {:.2} s of threads went", all.seconds);
            pictures += &format!("<h2>{}</h2>\n{}\n", escape(&title), graph.svg());
        }
        let title = escape(&format!("Moving memory between nodes on {}", self.machine));
        let json = serde_json::to_string_pretty(self).map_err(|error| ChartError::new(&error))?;
        let data = Data { kind: "JSON", text: &json };
        Ok(framed(&title, 58, &pictures, &self.text(), &data))
    }

    /// A plot of GB/s by threads for each size of pages, side by side.
    ///
    /// # Errors
    /// The drawing library's.
    pub fn svg(&self) -> Result<String, ChartError> {
        let mut picture = String::new();
        self.draw(&mut picture).map_err(|error| ChartError::new(&*error))?;
        Ok(picture)
    }

    fn draw(&self, picture: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let mut kinds: Vec<&str> = self.rows.iter().map(|row| row.pages).collect();
        kinds.dedup();
        let area = SVGBackend::with_string(picture, (WIDTH, HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        for (plot, kind) in area.split_evenly((1, kinds.len().max(1))).iter().zip(kinds) {
            let rows = || self.rows.iter().filter(|row| row.pages == kind);
            let line = |name: &str, value: fn(&Row) -> &Spread, colour| Line {
                name: name.into(),
                points: rows().map(|row| (row.threads as f64, value(row).median / GB)).collect(),
                colour,
            };
            let title = format!("{kind} pages, GB/s");
            let all = [
                line("copying", |row| &row.copying, RGBColor(170, 170, 170)),
                line("migrate_pages", |row| &row.migrate_pages, RGBColor(94, 143, 190)),
                line("move_pages", |row| &row.move_pages, RGBColor(46, 139, 87)),
            ];
            lines(plot, &title, "threads", &all, &|y| format!("{y:.2}"))?;
        }
        area.present()?;
        Ok(())
    }
}

/// Pixels.
const WIDTH: u32 = 860;
const HEIGHT: u32 = 420;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callgraph::Frame;

    fn moving() -> Moving {
        let spread = |gb: f64| Spread::of(&[gb * GB, gb * GB * 2.0, gb * GB * 1.5]).unwrap();
        let row = |pages, threads| Row {
            pages,
            page_bytes: 4096,
            threads,
            move_pages: spread(1.0),
            migrate_pages: spread(0.5),
            copying: spread(4.0),
        };
        let mut all = Frame::new("all");
        all.add(&["move_pages", "<waits>"], 1.0, 2);
        let graph = CallGraph {
            placement: "move_pages, 2 threads".into(),
            run: 1,
            all,
            blocked: Vec::new(),
            locks: Vec::new(),
        };
        Moving {
            machine: "8 CPUs".into(),
            from: 0,
            to: 1,
            bytes_per_thread: 8 << 20,
            runs: 3,
            rows: vec![row("base", 1), row("base", 2), row("huge", 1)],
            callgraphs: vec![graph],
        }
    }

    #[test]
    fn the_table_tells_gigabytes_a_second_and_what_copying_would_bring() {
        let text = moving().text();
        let row = "| base  |       1 | 1.500 (1.000-2.000) | 0.750 (0.500-1.000) | 6.000 (4.000-8.000) |      0.25 |\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("medians of 3 (least-greatest), 8 MiB a thread from node 0 to 1"));
        assert!(text.contains("\nmove_pages, 2 threads, run 1: where 1.00 task seconds went\n"));
        let csv = moving().csv().unwrap();
        assert_eq!(csv.lines().nth(1), Some("base,1,1500000000,750000000,6000000000"));
    }

    #[test]
    fn the_page_has_a_plot_for_each_size_of_pages_and_fetches_nothing() {
        let page = moving().page().unwrap();
        assert!(page.contains("base pages, GB/s") && page.contains("huge pages, GB/s"), "{page}");
        // a line and its legend, three times in each of two plots
        assert!(page.matches("<polyline").count() >= 12, "{page}");
        assert!(page.contains("&lt;waits>") && page.contains("\"callgraphs\""), "{page}");
        assert_eq!(page.matches("http").count(), page.matches("xmlns=\"http").count());
    }
}
