//! A measured machine: latency and bandwidth from each node's CPUs to each node's memory, beside
//! what the machine's file states, if there is one. The data, its JSON, table and CSV; the
//! picture is [`crate::heat`]'s.
//!
//! Rows are nodes with CPUs, columns nodes with memory. Latencies are ns, rates millions of bytes
//! a second. What is stated for a cell is what the CPUs would get if they asked for more: for
//! reading, the narrowest of the node's memory and the links on the way; for writing, where every
//! line is fetched and sent back, half of that memory if it is narrower.

use std::fmt::Write as _;

use numaherd_model::counted;
use serde::{Deserialize, Serialize};

use crate::text::wide_grid;

/// One cell: samples condensed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The middle one.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
}

impl Figure {
    /// Of samples; all zero of none.
    #[must_use]
    pub fn of(samples: &[f64]) -> Figure {
        crate::Spread::of(samples).map_or_else(Figure::default, |spread| Figure {
            median: spread.median,
            min: spread.min,
            max: spread.max,
        })
    }

    /// Less a constant, but not less than zero.
    #[must_use]
    pub fn minus(self, ns: f64) -> Figure {
        let less = |figure: f64| (figure - ns).max(0.0);
        Figure { median: less(self.median), min: less(self.min), max: less(self.max) }
    }

    fn text(&self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$}-{:.digits$})", self.median, self.min, self.max)
    }

    /// In another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Figure {
        let Figure { median, min, max } = self;
        Figure { median: median * factor, min: min * factor, max: max * factor }
    }
}

/// What a machine's file states, cell by cell; absent where it states nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stated {
    /// Latency of a miss.
    pub latency_ns: Vec<Vec<f64>>,
    /// Reading.
    pub read_mb_s: Option<Vec<Vec<f64>>>,
    /// Writing.
    pub write_mb_s: Option<Vec<Vec<f64>>>,
}

/// The measured machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matrices {
    /// `lab:NAME` or `host`.
    pub machine: String,
    /// Its kernel.
    pub kernel: String,
    /// Ids of the rows.
    pub cpu_nodes: Vec<u32>,
    /// Ids of the columns.
    pub memory_nodes: Vec<u32>,
    /// Memory used on each node.
    pub size_bytes: u64,
    /// Samples of each cell.
    pub samples: usize,
    /// Whether memory was bound to its node.
    pub bound: bool,
    /// The chasing loop's own time, by row; taken off already.
    pub loop_ns: Vec<f64>,
    /// One dependent load.
    pub latency_ns: Vec<Vec<Figure>>,
    /// All CPUs of a node reading.
    pub read_mb_s: Vec<Vec<Figure>>,
    /// All CPUs of a node writing.
    pub write_mb_s: Vec<Vec<Figure>>,
    /// All CPUs of a node reading its own memory, by row, where no more than that was measured; zero of a node without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_read_mb_s: Vec<Figure>,
    /// What the machine's file states.
    pub stated: Option<Stated>,
    /// How far the host was behind, on an emulated machine; above 0.02 measure again.
    #[serde(default)]
    pub late_share: Option<f64>,
}

/// One of the matrices, with what it should be.
pub struct Panel<'a> {
    /// What it is of.
    pub name: &'static str,
    /// For CSV.
    pub key: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Measured.
    pub cells: &'a [Vec<Figure>],
    /// Stated.
    pub stated: Option<&'a Vec<Vec<f64>>>,
}

impl Panel<'_> {
    /// What the file states for a cell.
    #[must_use]
    pub fn stated_at(&self, row: usize, column: usize) -> Option<f64> {
        self.stated?.get(row)?.get(column).copied()
    }

    /// The greatest deviation of a median from what is stated, as a share.
    #[must_use]
    pub fn greatest_deviation(&self) -> Option<f64> {
        let cell = |(row, column): (usize, usize)| {
            let stated = self.stated_at(row, column)?;
            Some((self.cells[row][column].median / stated - 1.0).abs())
        };
        let places =
            (0..self.cells.len()).flat_map(|r| (0..self.cells[r].len()).map(move |c| (r, c)));
        places.filter_map(cell).reduce(f64::max)
    }
}

impl Matrices {
    /// Latency, reading, writing, as far as they were measured.
    #[must_use]
    pub fn panels(&self) -> Vec<Panel<'_>> {
        let stated = self.stated.as_ref();
        let (latency, read, write) = (&self.latency_ns, &self.read_mb_s, &self.write_mb_s);
        let panels = [
            Panel {
                name: "latency",
                key: "latency_ns",
                unit: "ns",
                cells: latency,
                stated: stated.map(|s| &s.latency_ns),
            },
            Panel {
                name: "read bandwidth",
                key: "read_mb_s",
                unit: "MB/s",
                cells: read,
                stated: stated.and_then(|s| s.read_mb_s.as_ref()),
            },
            Panel {
                name: "write bandwidth",
                key: "write_mb_s",
                unit: "MB/s",
                cells: write,
                stated: stated.and_then(|s| s.write_mb_s.as_ref()),
            },
        ];
        let is_measured = |panel: &Panel<'_>| panel.cells.iter().any(|row| !row.is_empty());
        panels.into_iter().filter(is_measured).collect()
    }

    /// What all CPUs of each node read of its own memory, as far as that was measured.
    #[must_use]
    pub fn of_own_memory(&self) -> Vec<(u32, Figure)> {
        let of = |(row, &node): (usize, &u32)| {
            let column = self.memory_nodes.iter().position(|memory| *memory == node)?;
            let cell = || self.read_mb_s.get(row)?.get(column);
            let figure = *self.own_read_mb_s.get(row).or_else(cell)?;
            (figure.median > 0.0).then_some((node, figure))
        };
        self.cpu_nodes.iter().enumerate().filter_map(of).collect()
    }

    /// A table each, and a line on how they came about.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        for panel in self.panels() {
            let digits = usize::from(panel.unit == "ns");
            let _ = writeln!(text, "{}, {} (least-greatest)", panel.name, panel.unit);
            let mut head = vec!["CPUs of".to_string()];
            head.extend(self.memory_nodes.iter().map(|node| format!("memory {node}")));
            let rows = panel.cells.iter().enumerate().map(|(row, cells)| {
                let cell = |f: &Figure| f.text(digits);
                let name = format!("node {}", self.cpu_nodes[row]);
                std::iter::once(name).chain(cells.iter().map(cell)).collect::<Vec<_>>()
            });
            text += &wide_grid(&head, rows);
            if let Some(deviation) = panel.greatest_deviation() {
                let percent = deviation * 100.0;
                let _ = writeln!(text, "within {percent:.1} % of what the machine's file states");
            }
            text.push('\n');
        }
        if !self.own_read_mb_s.is_empty() {
            let _ = writeln!(text, "read bandwidth of its own memory, MB/s (least-greatest)");
            let own = self.of_own_memory().into_iter();
            let rows = own.map(|(node, figure)| vec![format!("node {node}"), figure.text(0)]);
            text += &wide_grid(&["CPUs of".to_string(), "its memory".to_string()], rows);
            text.push('\n');
        }
        let bound = if self.bound { "" } else { "; memory could not be bound to its node" };
        let late = self.late_share.map(|late| format!("; late {:.2} %", late * 100.0));
        let late = late.unwrap_or_default();
        let mib = self.size_bytes >> 20;
        let lines = match self.panels().len() {
            0 | 1 => "",
            _ => "; written lines count once, that they are fetched and sent back does not",
        };
        let _ = writeln!(
            text,
            "{}, kernel {}; medians of {}, {mib} MiB a node; the loop's own time is taken \
             off{lines}{bound}{late}",
            self.machine,
            self.kernel,
            counted(self.samples, "sample")
        );
        text
    }

    /// One line a cell.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = String::from("quantity,cpu_node,memory_node,median,min,max,stated\n");
        for panel in self.panels() {
            for (row, cells) in panel.cells.iter().enumerate() {
                for (column, figure) in cells.iter().enumerate() {
                    let stated =
                        panel.stated_at(row, column).map_or_else(String::new, |s| s.to_string());
                    let (from, to) = (self.cpu_nodes[row], self.memory_nodes[column]);
                    let Figure { median, min, max } = figure;
                    let _ =
                        writeln!(text, "{},{from},{to},{median},{min},{max},{stated}", panel.key);
                }
            }
        }
        for (node, Figure { median, min, max }) in
            self.of_own_memory().into_iter().filter(|_| !self.own_read_mb_s.is_empty())
        {
            let _ = writeln!(text, "own_read_mb_s,{node},{node},{median},{min},{max},");
        }
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn matrices() -> Matrices {
        let figure = |median| Figure { median, min: median - 1.0, max: median + 2.0 };
        let square =
            |near, far| vec![vec![figure(near), figure(far)], vec![figure(far), figure(near)]];
        Matrices {
            machine: "lab:2x4".into(),
            kernel: "6.12".into(),
            cpu_nodes: vec![0, 2],
            memory_nodes: vec![0, 2],
            size_bytes: 8 << 20,
            samples: 5,
            bound: true,
            loop_ns: vec![10.0; 2],
            latency_ns: square(101.0, 306.0),
            read_mb_s: square(4000.0, 750.0),
            write_mb_s: square(1900.0, 750.0),
            own_read_mb_s: Vec::new(),
            stated: Some(Stated {
                latency_ns: vec![vec![100.0, 300.0], vec![300.0, 100.0]],
                read_mb_s: None,
                write_mb_s: Some(vec![vec![2000.0, 750.0], vec![750.0, 2000.0]]),
            }),
            late_share: Some(0.0012),
        }
    }

    #[test]
    fn the_greatest_deviation_is_of_medians_from_what_is_stated() {
        let matrices = matrices();
        let deviations =
            matrices.panels().iter().map(Panel::greatest_deviation).collect::<Vec<_>>();
        let [latency, read, write] = deviations[..] else { panic!("{deviations:?}") };
        assert!((latency.unwrap() - 0.02).abs() < 1e-9); // 306 for 300; 101 for 100 is less
        assert_eq!(read, None);
        assert!((write.unwrap() - 0.05).abs() < 1e-9); // 1900 for 2000
    }

    #[test]
    fn the_table_has_a_row_a_node_and_says_how_near_it_is() {
        let text = matrices().table();
        assert!(text.contains("| node 2  | 306.0 (305.0-308.0) | 101.0 (100.0-103.0) |"), "{text}");
        assert!(text.contains("within 2.0 % of what the machine's file states"), "{text}");
        assert!(text.ends_with("; late 0.12 %\n"), "{text}");
        assert!(
            text.contains("lab:2x4, kernel 6.12; medians of 5 samples, 8 MiB a node"),
            "{text}"
        );
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let none = vec![Vec::new(); 2];
        let alone = Matrices { read_mb_s: none.clone(), write_mb_s: none, ..matrices() };
        let text = alone.table();
        assert!(text.contains("latency, ns") && !text.contains("bandwidth"), "{text}");
        assert!(!text.contains("written"), "{text}");
        assert_eq!(alone.csv().lines().count(), 1 + 4);
    }

    #[test]
    fn of_its_own_memory_is_what_was_measured_of_that_alone_or_of_all() {
        let of = |matrices: &Matrices| -> Vec<(u32, f64)> {
            matrices.of_own_memory().iter().map(|(node, figure)| (*node, figure.median)).collect()
        };
        assert_eq!(of(&matrices()), [(0, 4000.0), (2, 4000.0)]);
        let (none, zero) = (vec![Vec::new(); 2], Figure::default());
        let figure = Figure { median: 3900.0, min: 3800.4, max: 4000.0 };
        let own = Matrices {
            read_mb_s: none.clone(),
            write_mb_s: none,
            own_read_mb_s: vec![zero, figure],
            ..matrices()
        };
        assert_eq!(of(&own), [(2, 3900.0)]);
        assert!(own.table().contains("| node 2  | 3900 (3800-4000) |"), "{}", own.table());
        assert!(own.csv().ends_with("own_read_mb_s,2,2,3900,3800.4,4000,\n"), "{}", own.csv());
        assert!(!matrices().csv().contains("own"));
    }

    #[test]
    fn csv_has_a_line_a_cell() {
        let text = matrices().csv();
        assert_eq!(text.lines().count(), 1 + 3 * 4);
        assert!(text.contains("latency_ns,2,0,306,305,308,300\n"), "{text}");
        assert!(text.contains("read_mb_s,0,0,4000,3999,4002,\n"), "{text}");
    }

    #[test]
    fn what_was_taken_off_never_makes_a_latency_negative() {
        let near = Figure { median: 10.4, min: 10.0, max: 12.0 }.minus(10.2);
        assert!(near.min == 0.0 && (near.median - 0.2).abs() < 1e-9);
    }
}
