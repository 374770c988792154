//! The table and CSV of a comparison.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use numaherd_model::counted;

use crate::interval::Interval;
use crate::{Against, Comparison, PlacementResult, Until};

/// A table; all columns but the first are aligned to the right.
#[must_use]
pub fn grid<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let head: Vec<String> = head.into_iter().map(String::from).collect();
    wide_grid(&head, rows)
}

/// The same for a number of columns that only the data knows.
#[must_use]
pub fn wide_grid<R: IntoIterator<Item = String>>(
    head: &[String],
    rows: impl IntoIterator<Item = R>,
) -> String {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header(head);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for cells in rows {
        table.add_row(cells);
    }
    format!("{table}\n")
}

/// A column: its head and its figure; without any figure the column is left out unless it is
/// always there.
struct Column {
    head: &'static str,
    always: bool,
    figure: fn(&PlacementResult) -> Option<String>,
}

const COLUMNS: &[Column] = &[
    Column { head: "placement", always: true, figure: |p| Some(p.name.clone()) },
    Column { head: "seconds", always: true, figure: |p| Some(format!("{:.2}", p.seconds.median)) },
    Column {
        head: "min-max",
        always: true,
        figure: |p| Some(format!("{:.2}-{:.2}", p.seconds.min, p.seconds.max)),
    },
    Column {
        head: "x bind",
        always: true,
        figure: |p| p.ratio_to_bind.map(|ratio| format!("{ratio:.2}")),
    },
    Column {
        head: "95 %",
        always: false,
        figure: |p| {
            let worth_telling = |_: &Interval| p.ratios_to_bind.iter().any(|r| *r != 1.0);
            let [from, to] = p.ratio_to_bind_interval.filter(worth_telling)?;
            Some(format!("{from:.3}-{to:.3}"))
        },
    },
    Column { head: "per second", always: false, figure: operations_per_second },
    Column { head: "p50 us", always: false, figure: |p| Some(micros(p.latency_ns?.p50)) },
    Column { head: "p99 us", always: false, figure: |p| Some(micros(p.latency_ns?.p99)) },
    Column { head: "p99.9 us", always: false, figure: |p| Some(micros(p.latency_ns?.p999)) },
    Column {
        head: "local",
        always: true,
        figure: |p| p.local_share.map(|share| format!("{:.1} %", share * 100.0)),
    },
    Column {
        head: "pages by kernel",
        always: true,
        figure: |p| Some(p.pages_migrated_by_kernel.to_string()),
    },
    Column {
        head: "pages by herd",
        always: true,
        figure: |p| Some(p.pages_migrated_by_us.to_string()),
    },
    Column {
        head: "converged s",
        always: true,
        figure: |p| p.seconds_to_converge.map(|seconds| format!("{seconds:.1}")),
    },
    Column {
        head: "late",
        always: true,
        figure: |p| p.late_share.map(|share| format!("{:.2} %", share * 100.0)),
    },
];

/// Throughput, where it counts operations; bytes per second follow from the seconds.
fn operations_per_second(placement: &PlacementResult) -> Option<String> {
    let throughput = &placement.throughput;
    (throughput.unit != "B/s").then(|| format!("{:.0}", throughput.median))
}

fn micros(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1000.0)
}

/// The table, with a line on how it came about, and another one where it is set beside an
/// earlier comparison.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let placements = &comparison.placements;
    let shown = COLUMNS
        .iter()
        .filter(|column| column.always || placements.iter().any(|p| (column.figure)(p).is_some()));
    let shown: Vec<&Column> = shown.collect();
    let row = |placement: &PlacementResult| {
        let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "-".into());
        shown.iter().map(|column| or_dash((column.figure)(placement))).collect::<Vec<_>>()
    };
    let head: Vec<String> = shown.iter().map(|column| column.head.to_string()).collect();
    let mut text = wide_grid(&head, placements.iter().map(row));
    let Comparison { workload, machine, kernel, runs, seed, dilation, .. } = comparison;
    // Simulated time has none.
    let pace = match *dilation {
        0.0 => String::new(),
        _ => format!("; one second there took {dilation} s here"),
    };
    text += &format!(
        "{workload} on {machine}, kernel {kernel}; medians of {}, seed {seed}{pace}\n",
        counted(runs, "run")
    );
    if let Some([least, greatest]) = comparison.numad_interval_seconds {
        text += &format!("numad looked every {least} to {greatest} s\n");
    }
    text += &comparison.until.map_or_else(String::new, |until| told_of_until(until, *runs));
    text + &comparison.against.as_ref().map_or_else(String::new, differences)
}

/// Whether the intervals became as narrow as wanted.
fn told_of_until(until: Until, runs: u32) -> String {
    let Until { width, widest, reached } = until;
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    match widest {
        Some(widest) if reached => format!(
            "95 % intervals of all ratios are narrower than {} of the ratio: the widest is {}\n",
            percent(width),
            percent(widest)
        ),
        Some(widest) => format!(
            "95 % intervals of the ratios are NOT all narrower than {} of the ratio: after {runs} \
             runs the widest is {}\n",
            percent(width),
            percent(widest)
        ),
        None => format!("95 % intervals take more than {}\n", counted(runs, "run")),
    }
}

fn differences(against: &Against) -> String {
    let head = ["placement", "x bind now", "then", "difference", "95 %"];
    let percent = |share: f64| format!("{:+.1} %", share * 100.0);
    let rows = against.placements.iter().map(|difference| {
        let interval =
            difference.interval.map(|[from, to]| format!("{} to {}", percent(from), percent(to)));
        [
            difference.name.clone(),
            format!("{:.3}", difference.ratio),
            format!("{:.3}", difference.ratio_then),
            percent(difference.difference),
            interval.unwrap_or_else(|| "-".into()),
        ]
    });
    let table = grid(head, rows);
    let Against { file, machine, kernel, .. } = against;
    format!("\n{table}against {file}, measured on {machine}, kernel {kernel}\n")
}

/// One line per placement, absent figures empty.
///
/// # Errors
/// None in practice; the writer's.
pub fn csv(comparison: &Comparison) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "workload",
        "machine",
        "placement",
        "seconds_median",
        "seconds_min",
        "seconds_max",
        "ratio_to_bind",
        "ratio_to_bind_from",
        "ratio_to_bind_to",
        "throughput_median",
        "throughput_unit",
        "latency_p50_ns",
        "latency_p99_ns",
        "latency_p999_ns",
        "local_share",
        "local_share_source",
        "pages_migrated_by_kernel",
        "pages_migrated_by_us",
        "seconds_to_converge",
        "late_share",
    ])?;
    let number = |figure: Option<f64>| figure.map_or_else(String::new, |f| f.to_string());
    for placement in &comparison.placements {
        writer.write_record([
            comparison.workload.clone(),
            comparison.machine.clone(),
            placement.name.clone(),
            number(Some(placement.seconds.median)),
            number(Some(placement.seconds.min)),
            number(Some(placement.seconds.max)),
            number(placement.ratio_to_bind),
            number(placement.ratio_to_bind_interval.map(|[from, _]| from)),
            number(placement.ratio_to_bind_interval.map(|[_, to]| to)),
            number(Some(placement.throughput.median)),
            placement.throughput.unit.clone(),
            number(placement.latency_ns.map(|latency| latency.p50 as f64)),
            number(placement.latency_ns.map(|latency| latency.p99 as f64)),
            number(placement.latency_ns.map(|latency| latency.p999 as f64)),
            number(placement.local_share),
            placement.local_share_source.clone(),
            placement.pages_migrated_by_kernel.to_string(),
            placement.pages_migrated_by_us.to_string(),
            number(placement.seconds_to_converge),
            number(placement.late_share),
        ])?;
    }
    let bytes = writer.into_inner().map_err(|e| e.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::against::Difference;
    use crate::comparison::tests::comparison;
    use crate::{Percentiles, Throughput};

    #[test]
    fn the_table_has_a_row_per_placement_and_says_how_it_came_about() {
        let text = table(&comparison());
        assert!(text.contains("| off       |   19.00 | 19.00-19.00 |   1.90 | 50.0 % |"), "{text}");
        assert!(
            text.contains("numa02 on lab:2x4, kernel 6.12; medians of 3 runs, seed 1"),
            "{text}"
        );
        assert!(!text.contains("p99") && !text.contains("95 %"), "{text}");
    }

    #[test]
    fn columns_without_a_figure_are_left_out_and_others_are_not() {
        let mut comparison = comparison();
        let latency = Percentiles { p50: 41_200, p99: 90_000, p999: 1_500_000, max: 2_000_000 };
        let bind = &mut comparison.placements[1];
        bind.latency_ns = Some(latency);
        bind.throughput = Throughput { median: 1234.4, unit: "transactions/s".into() };
        comparison.placements[0].ratio_to_bind_interval = Some([1.85, 1.95]);
        comparison.until = Some(Until { width: 0.01, widest: Some(0.0526), reached: false });
        let text = table(&comparison);
        let bind = "|   1.00 |           - |       1234 |   41.2 |   90.0 |   1500.0 | 50.0 % |";
        assert!(text.contains(bind), "{text}");
        assert!(text.contains("1.850-1.950"), "{text}");
        assert!(text.contains("NOT all narrower than 1.00 %") && text.contains("5.26 %"), "{text}");
        let csv = csv(&comparison).unwrap();
        assert!(csv.contains(",1.85,1.95,"), "{csv}");
        assert!(csv.contains(",1234.4,transactions/s,41200,90000,1500000,"), "{csv}");
    }

    #[test]
    fn differences_are_told_below() {
        let mut comparison = comparison();
        let placements = vec![Difference {
            name: "off".into(),
            ratio: 1.9,
            ratio_then: 2.0,
            difference: -0.05,
            interval: Some([-0.06, 0.01]),
        }];
        let (file, machine) = ("then.json".to_string(), "lab:2x4".to_string());
        comparison.against = Some(Against { file, machine, kernel: "6.1".into(), placements });
        let text = table(&comparison);
        assert!(text.contains("|      1.900 | 2.000 |     -5.0 % | -6.0 % to +1.0 % |"), "{text}");
        assert!(text.contains("against then.json, measured on lab:2x4, kernel 6.1"), "{text}");
    }

    #[test]
    fn absent_figures_are_empty_in_csv() {
        let text = csv(&comparison()).unwrap();
        assert_eq!(text.lines().count(), 3);
        let off =
            "numa02,lab:2x4,off,19,19,19,1.9,,,52.63157894736842,B/s,,,,0.5,emulator,10,0,,0.019";
        assert!(text.contains(off), "{text}");
    }
}
