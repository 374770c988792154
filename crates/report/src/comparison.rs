//! A workload side by side under several placements.
//!
//! Field names are part of the command line's contract. Seconds are of the machine the
//! workload ran on, shares are 0 to 1.

use serde::{Deserialize, Serialize};

use crate::Spread;

/// One run under one placement: a line of the results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Placement.
    pub placement: String,
    /// Number of the run, from 0.
    pub run: u32,
    /// From the end of initialisation to the last thread.
    pub seconds: f64,
    /// The whole run, initialisation included.
    pub whole_seconds: f64,
    /// Bytes written in the timed part.
    pub bytes: u64,
    /// Local ÷ all.
    pub local_share: Option<f64>,
    /// Where that comes from.
    pub local_share_source: String,
    /// Pages that the kernel's balancing moved.
    pub pages_migrated_by_kernel: u64,
    /// Pages that numaherd moved.
    pub pages_migrated_by_us: u64,
    /// From the end of initialisation until numaherd found nothing left to do.
    pub seconds_to_converge: Option<f64>,
    /// Growth of the emulated CPUs' lag ÷ (CPUs × elapsed).
    pub late_share: Option<f64>,
    /// Instructions in the timed part, where they are counted.
    pub instructions: Option<u64>,
    /// What each CPU did in the timed part, where it is counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuCounts>,
}

/// What one emulated CPU did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCounts {
    /// Instructions executed.
    pub instructions: u64,
    /// Memory accesses.
    pub accesses: u64,
    /// Accesses that missed its cache.
    pub misses: u64,
    /// Misses served by its own node.
    pub local: u64,
    /// Misses served by others.
    pub remote: u64,
    /// Time it was behind and never made good, in nanoseconds of the machine.
    pub late_ns: u64,
    /// Misses by the node that served them, in the machine's order.
    pub misses_by_node: Vec<u64>,
}

/// Work done per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Median of the runs.
    pub median: f64,
    /// What is counted.
    pub unit: String,
}

/// All runs under one placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacementResult {
    /// Placement.
    pub name: String,
    /// From the end of initialisation to the last thread.
    pub seconds: Spread,
    /// Bytes written per second.
    pub throughput: Throughput,
    /// Median ÷ the median of `bind`; `None` where `bind` was not measured.
    pub ratio_to_bind: Option<f64>,
    /// Local ÷ all, median.
    pub local_share: Option<f64>,
    /// Where that comes from.
    pub local_share_source: String,
    /// Median.
    pub pages_migrated_by_kernel: u64,
    /// Median.
    pub pages_migrated_by_us: u64,
    /// Median of the runs that converged.
    pub seconds_to_converge: Option<f64>,
    /// Greatest of all runs.
    pub late_share: Option<f64>,
}

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Workload.
    pub workload: String,
    /// `lab:NAME` or `host`.
    pub machine: String,
    /// The kernel's release.
    pub kernel: String,
    /// Runs per placement that were asked for.
    pub runs: u32,
    /// Seed of the order.
    pub seed: u64,
    /// Real seconds per second of the machine; 1 on a host.
    pub dilation: f64,
    /// In the order asked for.
    pub placements: Vec<PlacementResult>,
}

impl Comparison {
    /// Sums up cells, one result per placement that has any, in the order of `names`.
    #[must_use]
    pub fn placements(names: &[String], cells: &[Cell]) -> Vec<PlacementResult> {
        let of = |name: &String| -> Vec<&Cell> {
            cells.iter().filter(|cell| cell.placement == *name).collect()
        };
        let bind = names.iter().find(|name| *name == "bind").and_then(|name| seconds(&of(name)));
        let sum_up = |name: &String| {
            let cells = of(name);
            let seconds = seconds(&cells)?;
            let bytes = cells.first().map_or(0, |cell| cell.bytes);
            let median = |of: &dyn Fn(&Cell) -> Option<f64>| {
                let figures: Vec<f64> = cells.iter().filter_map(|cell| of(cell)).collect();
                Spread::of(&figures).map(|spread| spread.median)
            };
            let pages = |of: &dyn Fn(&Cell) -> u64| {
                median(&|cell: &Cell| Some(of(cell) as f64)).map_or(0, |pages| pages.round() as u64)
            };
            let late = cells.iter().filter_map(|cell| cell.late_share).reduce(f64::max);
            Some(PlacementResult {
                name: name.clone(),
                throughput: Throughput {
                    median: bytes as f64 / seconds.median,
                    unit: "B/s".into(),
                },
                ratio_to_bind: bind.as_ref().map(|bind| seconds.median / bind.median),
                local_share: median(&|cell| cell.local_share),
                local_share_source: cells[0].local_share_source.clone(),
                pages_migrated_by_kernel: pages(&|cell| cell.pages_migrated_by_kernel),
                pages_migrated_by_us: pages(&|cell| cell.pages_migrated_by_us),
                seconds_to_converge: median(&|cell| cell.seconds_to_converge),
                late_share: late,
                seconds,
            })
        };
        names.iter().filter_map(sum_up).collect()
    }
}

fn seconds(cells: &[&Cell]) -> Option<Spread> {
    let all: Vec<f64> = cells.iter().map(|cell| cell.seconds).collect();
    Spread::of(&all)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn cell(placement: &str, run: u32, seconds: f64) -> Cell {
        Cell {
            placement: placement.into(),
            run,
            seconds,
            whole_seconds: seconds + 1.0,
            bytes: 1000,
            local_share: Some(0.5),
            local_share_source: "emulator".into(),
            pages_migrated_by_kernel: 10,
            pages_migrated_by_us: 0,
            seconds_to_converge: None,
            late_share: Some(seconds / 1000.0),
            instructions: None,
            cpus: Vec::new(),
        }
    }

    pub fn comparison() -> Comparison {
        let names = ["off", "bind", "herd"].map(String::from);
        let cells = [
            cell("bind", 0, 10.0),
            cell("off", 0, 19.0),
            cell("bind", 1, 12.0),
            cell("bind", 2, 11.0),
        ];
        Comparison {
            workload: "numa02".into(),
            machine: "lab:2x4".into(),
            kernel: "6.12".into(),
            runs: 3,
            seed: 1,
            dilation: 4.0,
            placements: Comparison::placements(&names, &cells),
        }
    }

    #[test]
    fn ratios_are_of_medians_and_a_placement_without_runs_is_left_out() {
        let comparison = comparison();
        let names: Vec<&str> = comparison.placements.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["off", "bind"]);
        let off = &comparison.placements[0];
        assert_eq!(off.ratio_to_bind, Some(19.0 / 11.0));
        assert_eq!(comparison.placements[1].late_share, Some(0.012));
    }

    #[test]
    fn the_json_has_the_contracts_names() {
        let json = serde_json::to_value(comparison()).unwrap();
        let off = &json["placements"][0];
        assert_eq!(off["seconds"]["median"], 19.0);
        assert_eq!(off["throughput"]["unit"], "B/s");
        assert!(off["seconds_to_converge"].is_null());
        for name in ["ratio_to_bind", "local_share", "local_share_source", "late_share"] {
            assert!(!off[name].is_null(), "{name}");
        }
        for name in ["workload", "machine", "kernel", "runs", "seed", "dilation"] {
            assert!(!json[name].is_null(), "{name}");
        }
    }
}
