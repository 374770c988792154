//! The published figures are whole, and only the allowed ones went into a machine.

use super::*;

#[test]
fn every_table_is_whole_and_says_where_it_comes_from() {
    let tables = tables().unwrap();
    for table in &tables {
        assert!(!table.source.is_empty() && !table.rows.is_empty(), "{}", table.name);
        for row in &table.rows {
            assert_eq!(row.published.len(), table.columns.len(), "{}: {}", table.name, row.name);
        }
        assert_eq!(table.machine.is_none(), table.not_simulated.is_some(), "{}", table.name);
    }
    // SPECjbb's sums are those of their rows, so that no figure is mistyped.
    for table in tables.iter().filter(|table| table.name.starts_with("numacore-specjbb")) {
        let (sums, rows) = table.rows.split_last().unwrap();
        for (column, sum) in sums.published.iter().enumerate() {
            let added: f64 = rows.iter().map(|row| row.published[column]).sum();
            assert!((added - sum).abs() < 0.02, "{}: {added} instead of {sum}", table.name);
        }
    }
}

#[test]
fn errors_and_orders_are_of_predicted_cells() {
    let cell = |column: &str, published: f64, simulated: Option<f64>, calibrated| Cell {
        row: "r".into(),
        column: column.into(),
        unit: "s".into(),
        published,
        simulated,
        simulated_range: None,
        runs: usize::from(simulated.is_some()),
        error: simulated.map(|simulated| simulated / published - 1.0),
        calibrated,
    };
    let cells = [
        cell("a", 100.0, Some(90.0), true),
        cell("b", 200.0, Some(220.0), false),
        cell("c", 202.0, Some(202.0), false),
        cell("d", 50.0, Some(100.0), false),
        cell("e", 10.0, None, false),
    ];
    let summary = sum_up(&cells, 5).unwrap();
    assert_eq!(summary.predicted_cells, 3);
    // Errors are 10 %, 0 and 100 %.
    assert!((summary.median_error - 0.1).abs() < 1e-9 && summary.worst_error == 1.0);
    // b and c are too close to have an order; a, b and c are slower than d was published to be,
    // of which a (90) is not slower than d (100) here.
    assert_eq!((summary.orders, summary.orders_reproduced), (5, 4));
}

/// Runs under v18 are far apart, a build takes as long with each seed.
#[test]
fn cells_whose_runs_differ_have_more_of_them() {
    let tables = tables().unwrap();
    let runs = |name: &str, runs| {
        let table = tables.iter().find(|table| table.name == name).unwrap();
        let all = reproduce(table, 1, runs).unwrap().cells.into_iter();
        all.filter(|cell| cell.simulated.is_some()).map(|cell| cell.runs).collect::<Vec<_>>()
    };
    assert_eq!(runs("numacore-callgraph", None), [9, 9]);
    assert_eq!(runs("numacore-callgraph", Some(2)), [2, 2]);
    let build = runs("autonuma-kbuild", None);
    assert!(!build.is_empty() && build.iter().all(|runs| *runs == 3), "{build:?}");
}
