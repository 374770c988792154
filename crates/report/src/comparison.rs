//! A workload side by side under several placements.
//!
//! Field names are part of the command line's contract. Seconds are of the machine the
//! workload ran on, shares are 0 to 1.

use serde::{Deserialize, Serialize};

use crate::interval::{self, Interval};
use crate::{Against, Parameters, Series, Spread};

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
    /// Work done in the timed part.
    pub amount: u64,
    /// What is counted: `B`, `transactions`, `processes`.
    pub unit: String,
    /// How long its operations took, where it has any.
    pub latency_ns: Option<Percentiles>,
    /// Work per second in the course of it.
    pub throughput_over_time: Option<Series>,
    /// Local ÷ all.
    pub local_share: Option<f64>,
    /// Where that comes from.
    pub local_share_source: String,
    /// Pages that the kernel's balancing moved.
    pub pages_migrated_by_kernel: u64,
    /// Pages that numaherd moved.
    pub pages_migrated_by_us: u64,
    /// From the end of initialisation until the last change by numaherd after which it found nothing left to do.
    pub seconds_to_converge: Option<f64>,
    /// Growth of the emulated CPUs' lag ÷ (CPUs × elapsed).
    pub late_share: Option<f64>,
    /// Instructions in the timed part, where they are counted.
    pub instructions: Option<u64>,
    /// What each CPU did in the timed part, where it is counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuCounts>,
    /// What the workload was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Parameters>,
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

/// How long operations took, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half of them took no longer.
    pub p50: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1000.
    pub p999: u64,
    /// The longest.
    pub max: u64,
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
    /// 95 % interval of the median, where there are enough runs.
    pub seconds_interval: Option<Interval>,
    /// Work per second.
    pub throughput: Throughput,
    /// Of the run nearest the median.
    pub throughput_over_time: Option<Series>,
    /// Median of each percentile.
    pub latency_ns: Option<Percentiles>,
    /// Median of `ratios_to_bind`; `None` where `bind` was not measured beside it.
    pub ratio_to_bind: Option<f64>,
    /// 95 % interval of it, where there are enough rounds.
    pub ratio_to_bind_interval: Option<Interval>,
    /// Seconds per work ÷ those of `bind` in the same round, by rounds.
    #[serde(default)]
    pub ratios_to_bind: Vec<f64>,
    /// The same of the last third of the time in which all threads work, for each round in which it is known of both.
    #[serde(default)]
    pub last_third_ratios_to_bind: Vec<f64>,
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
    /// Runs per placement: those asked for, or those it took.
    pub runs: u32,
    /// Seed of the order.
    pub seed: u64,
    /// Real seconds per second of the machine; 1 on a host, 0 in the simulator.
    pub dilation: f64,
    /// What the workload was told, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Parameters>,
    /// How narrow the intervals were to be, and whether they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// In the order asked for.
    pub placements: Vec<PlacementResult>,
    /// Least and greatest seconds between two looks of numad, where it was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numad_interval_seconds: Option<[u32; 2]>,
    /// Differences from an earlier comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
}

/// How narrow the intervals of all ratios were to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Until {
    /// Width wanted, as a share of the ratio.
    pub width: f64,
    /// The widest there is; `None` where there are too few rounds to tell.
    pub widest: Option<f64>,
    /// Whether it is narrower than wanted.
    pub reached: bool,
}

impl Until {
    /// Of these results: the widest interval of a ratio other than that of `bind` to itself.
    #[must_use]
    pub fn of(width: f64, placements: &[PlacementResult]) -> Until {
        let others = placements.iter().filter(|placement| placement.name != "bind");
        let widths = others.map(|placement| {
            let (interval, ratio) =
                placement.ratio_to_bind_interval.zip(placement.ratio_to_bind)?;
            Some(interval::relative_width(interval, ratio))
        });
        let widest: Option<f64> = widths.reduce(|a, b| Some(a?.max(b?))).flatten();
        Until { width, widest, reached: widest.is_some_and(|widest| widest < width) }
    }
}

impl Comparison {
    /// The result of a placement, if it was measured.
    #[must_use]
    pub fn placement(&self, name: &str) -> Option<&PlacementResult> {
        self.placements.iter().find(|one| one.name == name)
    }

    /// Sums up cells, one result per placement that has any, in the order of `names`.
    #[must_use]
    pub fn placements(names: &[String], cells: &[Cell]) -> Vec<PlacementResult> {
        let of = |name: &String| -> Vec<&Cell> {
            cells.iter().filter(|cell| cell.placement == *name).collect()
        };
        let sum_up = |name: &String| {
            let cells = of(name);
            let seconds = seconds(&cells)?;
            let median = |of: fn(&Cell) -> Option<f64>| median(&cells, of);
            let pages = |of: fn(&Cell) -> Option<f64>| median(of).map_or(0, |p| p.round() as u64);
            let late = cells.iter().filter_map(|cell| cell.late_share).reduce(f64::max);
            let bind = of(&"bind".to_string());
            let ratios = by_rounds(&cells, &bind, seconds_per_work);
            let last_thirds = by_rounds(&cells, &bind, |cell| {
                Some(1.0 / cell.throughput_over_time.as_ref()?.last_third()?)
            });
            Some(PlacementResult {
                name: name.clone(),
                throughput: Throughput {
                    median: median(|cell| Some(cell.amount as f64 / cell.seconds)).unwrap_or(0.0),
                    unit: format!("{}/s", cells[0].unit),
                },
                throughput_over_time: typical(&cells, seconds.median).throughput_over_time.clone(),
                latency_ns: latency(&cells),
                ratio_to_bind: Spread::of(&ratios).map(|spread| spread.median),
                ratio_to_bind_interval: interval::of_median(&ratios),
                ratios_to_bind: ratios,
                last_third_ratios_to_bind: last_thirds,
                local_share: median(|cell| cell.local_share),
                local_share_source: cells[0].local_share_source.clone(),
                pages_migrated_by_kernel: pages(|cell| Some(cell.pages_migrated_by_kernel as f64)),
                pages_migrated_by_us: pages(|cell| Some(cell.pages_migrated_by_us as f64)),
                seconds_to_converge: median(|cell| cell.seconds_to_converge),
                late_share: late,
                seconds_interval: interval::of_median(&seconds.all),
                seconds,
            })
        };
        names.iter().filter_map(sum_up).collect()
    }
}

/// Where the work is the same, the ratio of these is that of seconds.
fn seconds_per_work(cell: &Cell) -> Option<f64> {
    Some(cell.seconds / cell.amount as f64)
}

/// A figure ÷ that of `bind` in the same round, for each round that has both.
fn by_rounds(cells: &[&Cell], bind: &[&Cell], figure: impl Fn(&Cell) -> Option<f64>) -> Vec<f64> {
    let ratio = |cell: &&Cell| {
        let bind = bind.iter().find(|bind| bind.run == cell.run)?;
        Some(figure(cell)? / figure(bind)?)
    };
    // Of what takes no time there is none.
    cells.iter().filter_map(ratio).filter(|ratio| ratio.is_finite()).collect()
}

/// The run nearest the median, the first of equals.
fn typical<'a>(cells: &[&'a Cell], median: f64) -> &'a Cell {
    let distance = |cell: &Cell| (cell.seconds - median).abs();
    let nearer = |a: &'a Cell, b: &'a Cell| if distance(b) < distance(a) { b } else { a };
    cells[1..].iter().fold(cells[0], |a, b| nearer(a, b))
}

/// Of those cells that have the figure.
fn median(cells: &[&Cell], figure: impl Fn(&Cell) -> Option<f64>) -> Option<f64> {
    let figures: Vec<f64> = cells.iter().filter_map(|cell| figure(cell)).collect();
    Spread::of(&figures).map(|spread| spread.median)
}

fn latency(cells: &[&Cell]) -> Option<Percentiles> {
    let of = |figure: fn(&Percentiles) -> u64| {
        let ns = median(cells, |cell| cell.latency_ns.as_ref().map(|l| figure(l) as f64));
        ns.map(|ns| ns.round() as u64)
    };
    Some(Percentiles {
        p50: of(|l| l.p50)?,
        p99: of(|l| l.p99)?,
        p999: of(|l| l.p999)?,
        max: of(|l| l.max)?,
    })
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
            amount: 1000,
            unit: "B".into(),
            latency_ns: None,
            throughput_over_time: None,
            local_share: Some(0.5),
            local_share_source: "emulator".into(),
            pages_migrated_by_kernel: 10,
            pages_migrated_by_us: 0,
            seconds_to_converge: None,
            late_share: Some(seconds / 1000.0),
            instructions: None,
            cpus: Vec::new(),
            parameters: None,
        }
    }

    pub fn parameters(threads: usize) -> Parameters {
        Parameters {
            threads,
            processes: None,
            size_bytes: Some(64 << 20),
            loops: Some(160),
            seconds: None,
            thp: None,
            start: Some("first-touch".into()),
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
            parameters: None,
            until: None,
            placements: Comparison::placements(&names, &cells),
            numad_interval_seconds: None,
            against: None,
        }
    }

    /// Of a machine twice as slow in the second round: seconds 10, 20, 10 and 15, 30, 16. By
    /// rounds 1.5, 1.5 and 1.6.
    #[test]
    fn ratios_are_of_the_same_round() {
        let cells = [
            cell("bind", 0, 10.0),
            cell("off", 0, 15.0),
            cell("off", 1, 30.0),
            cell("bind", 1, 20.0),
            cell("bind", 2, 10.0),
            cell("off", 2, 16.0),
            cell("off", 3, 99.0),
        ];
        let results = Comparison::placements(&["off".into(), "bind".into()], &cells);
        assert_eq!(results[0].ratios_to_bind, [1.5, 1.5, 1.6]);
        assert_eq!(results[0].ratio_to_bind, Some(1.5));
        assert_eq!(results[0].ratio_to_bind_interval, None);
        assert_eq!(results[1].ratios_to_bind, [1.0; 3]);
        assert_eq!(Until::of(0.01, &results).widest, None);
    }

    /// In a fixed time of 10 s, twice the work is half the cost.
    #[test]
    fn ratios_of_a_fixed_time_are_of_its_work() {
        let mut cells = [cell("bind", 0, 10.0), cell("off", 0, 10.0)];
        cells[0].amount = 2000;
        let results = Comparison::placements(&["off".into(), "bind".into()], &cells);
        assert_eq!(results[0].ratio_to_bind, Some(2.0));
        assert_eq!((results[0].throughput.median, results[1].throughput.median), (100.0, 200.0));
    }

    #[test]
    fn what_takes_no_time_has_no_ratio() {
        let cells = [cell("bind", 0, 0.0), cell("off", 0, 0.0), cell("herd", 0, 1.0)];
        let names = ["off", "bind", "herd"].map(String::from);
        let results = Comparison::placements(&names, &cells);
        assert!(results.iter().all(|result| result.ratio_to_bind.is_none()), "{results:?}");
    }

    /// Seven rounds at 1.5 but for one at 1.6: the interval is that of a median of seven.
    #[test]
    fn it_goes_on_until_the_widest_interval_is_narrow() {
        let mut cells = Vec::new();
        for run in 0..7 {
            cells.push(cell("bind", run, 10.0));
            cells.push(cell("off", run, if run == 3 { 16.0 } else { 15.0 }));
            cells.push(cell("herd", run, 10.0 + f64::from(run) / 10.0));
        }
        let names = ["bind", "off", "herd"].map(String::from);
        let until = |placements: &[PlacementResult], width| Until::of(width, placements);
        let both = Comparison::placements(&names[..2], &cells);
        assert!(until(&both, 0.01).reached, "{:?}", until(&both, 0.01));
        // Herd's ratios are 1.0 to 1.6 in steps of 0.1: median 1.03 x 10 s and wide.
        let all = Comparison::placements(&names, &cells);
        assert!(!until(&all, 0.01).reached && until(&all, 0.01).widest > Some(0.01));
        assert!(until(&all, 0.1).reached, "{:?}", until(&all, 0.1));
    }

    #[test]
    fn what_was_written_before_parameters_were_is_read_and_written_as_it_was() {
        let old = serde_json::to_string(&comparison()).unwrap();
        assert!(!old.contains("parameters"), "{old}");
        assert_eq!(serde_json::from_str::<Comparison>(&old).unwrap(), comparison());
        let new = Comparison { parameters: Some(parameters(8)), ..comparison() };
        let text = serde_json::to_string(&new).unwrap();
        assert!(
            text.contains(r#""parameters":{"threads":8,"size_bytes":67108864,"loops":160,"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), new);
    }

    #[test]
    fn percentiles_and_the_course_of_the_run_nearest_the_median_are_kept() {
        let with = |run, seconds: f64, p50| {
            let mut cell = cell("bind", run, seconds);
            cell.latency_ns = Some(Percentiles { p50, p99: 2 * p50, p999: 3 * p50, max: 4 * p50 });
            let values = vec![seconds];
            cell.throughput_over_time = Some(Series { interval_seconds: 1.0, values });
            cell
        };
        let cells = [with(0, 10.0, 70), with(1, 12.0, 50), with(2, 11.0, 60)];
        let result = &Comparison::placements(&["bind".into()], &cells)[0];
        let expected = Percentiles { p50: 60, p99: 120, p999: 180, max: 240 };
        assert_eq!(result.latency_ns, Some(expected));
        assert_eq!(result.throughput_over_time.as_ref().unwrap().values, [11.0]);
    }

    #[test]
    fn a_placement_without_runs_is_left_out() {
        let comparison = comparison();
        let names: Vec<&str> = comparison.placements.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["off", "bind"]);
        let off = &comparison.placements[0];
        assert_eq!(off.ratio_to_bind, Some(1.9));
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
