//! The table and CSV of a comparison.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use crate::{Comparison, PlacementResult};

/// A table; all columns but the first are aligned to the right.
#[must_use]
pub fn grid<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    wide_grid(&head.map(String::from), rows)
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

/// The table, with a line on how it came about.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let head = [
        "placement",
        "seconds",
        "min-max",
        "x bind",
        "local",
        "pages by kernel",
        "pages by herd",
        "converged s",
        "late",
    ];
    let table = grid(head, comparison.placements.iter().map(row));
    let Comparison { workload, machine, kernel, runs, seed, dilation, .. } = comparison;
    format!(
        "{table}{workload} on {machine}, kernel {kernel}; medians of {runs} run{}, seed {seed}; \
         one second there took {dilation} s here\n",
        if *runs == 1 { "" } else { "s" }
    )
}

fn row(placement: &PlacementResult) -> [String; 9] {
    let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "-".into());
    [
        placement.name.clone(),
        format!("{:.2}", placement.seconds.median),
        format!("{:.2}-{:.2}", placement.seconds.min, placement.seconds.max),
        or_dash(placement.ratio_to_bind.map(|ratio| format!("{ratio:.2}"))),
        or_dash(placement.local_share.map(|share| format!("{:.1} %", share * 100.0))),
        placement.pages_migrated_by_kernel.to_string(),
        placement.pages_migrated_by_us.to_string(),
        or_dash(placement.seconds_to_converge.map(|seconds| format!("{seconds:.1}"))),
        or_dash(placement.late_share.map(|share| format!("{:.2} %", share * 100.0))),
    ]
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
    use crate::comparison::tests::comparison;

    #[test]
    fn the_table_has_a_row_per_placement_and_says_how_it_came_about() {
        let text = table(&comparison());
        assert!(text.contains("| off       |   19.00 | 19.00-19.00 |   1.73 | 50.0 % |"), "{text}");
        assert!(
            text.contains("numa02 on lab:2x4, kernel 6.12; medians of 3 runs, seed 1"),
            "{text}"
        );
    }

    #[test]
    fn absent_figures_are_empty_in_csv() {
        let text = csv(&comparison()).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.contains(
                "numa02,lab:2x4,off,19,19,19,1.7272727272727273,0.5,emulator,10,0,,0.019"
            ),
            "{text}"
        );
    }
}
