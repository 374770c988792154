//! What herd is held to, and whether a comparison shows it: the bars that follow from the seconds
//! of one workload under several placements.
//!
//! A figure is a median of the rounds' ratios, as in [`crate::comparison`]; it is within its limit
//! *surely* if all of its 95 % interval is, *unsure* if only the figure is or only a part of the
//! interval. What was not measured has no figure.

use crate::interval::{self, Interval};
use crate::{Comparison, PlacementResult, Spread};

/// Workloads in which nothing is to gain, or that do nothing but start processes.
const HARMLESS: [&str; 1] = ["forks"];
/// Those where the best placement is not `bind` alone.
const BEST_OF_ALL: [&str; 2] = ["stream", "hugetlb"];
/// And the machine whose nodes hardly differ.
const NEARLY_EVEN: &str = "lab:nps4";
/// Those that must come nearest to hard binding.
const NEAREST: [&str; 3] = ["numa01", "numa01_thread_alloc", "numa02"];
const NEAR: [&str; 5] = ["numa02_smt", "overcommit", "jbb-like", "uneven", "shared"];

/// From this kernel ÷ bind on there is something to gain, and herd must bring a tenth.
const WORTH: f64 = 1.2;

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Workload and machine.
    pub of: String,
    /// What is compared with what, and the limit.
    pub claim: String,
    /// The ratio.
    pub figure: Option<f64>,
    /// 95 % of it, where there are enough rounds.
    pub interval: Option<Interval>,
    /// In words.
    pub verdict: &'static str,
}

/// The bars of one comparison.
#[must_use]
pub fn of(comparison: &Comparison) -> Vec<Bar> {
    let find = |name: &str| comparison.placements.iter().find(|one| one.name == name);
    let Some(herd) = find("herd") else { return Vec::new() };
    let workload = comparison.workload.as_str();
    let of = format!("{workload} on {}", comparison.machine);
    let mut bars = Vec::new();
    let mut at_most = |name: &str, ratios: Vec<f64>, limit: f64| {
        let figure = Spread::of(&ratios).map(|spread| spread.median);
        let interval = interval::of_median(&ratios);
        let claim = format!("herd ÷ {name} ≤ {limit:.2}");
        bars.push(Bar {
            of: of.clone(),
            claim,
            figure,
            interval,
            verdict: verdict(figure, interval, limit),
        });
    };
    let best_of_all = BEST_OF_ALL.contains(&workload) || comparison.machine == NEARLY_EVEN;
    let limit = if best_of_all {
        None
    } else if NEAREST.contains(&workload) {
        Some(1.03)
    } else {
        NEAR.contains(&workload).then_some(1.05)
    };
    if let (Some(limit), Some(bind)) = (limit, find("bind")) {
        at_most("bind", rounds(herd, bind), limit);
    }
    if let Some(kernel) = find("kernel") {
        let gain = kernel.ratio_to_bind.is_some_and(|ratio| ratio >= WORTH);
        at_most("kernel", rounds(herd, kernel), if gain { 1.0 / 1.1 } else { 1.02 });
    }
    if best_of_all && let Some(best) = best(comparison, &["off", "kernel", "bind", "interleave"]) {
        at_most(&format!("the best ({})", best.name), rounds(herd, best), 1.02);
    }
    if workload == "phases"
        && let Some(best) = best(comparison, &["bind", "inverse", "interleave"])
    {
        at_most(&format!("the best static ({})", best.name), rounds(herd, best), 0.9);
    }
    if let Some(numad) = find("numad") {
        at_most("numad", rounds(herd, numad), 1.0);
    }
    if HARMLESS.contains(&workload)
        && let Some(off) = find("off")
    {
        at_most("off", rounds(herd, off), 1.01);
    }
    if limit.is_some()
        && let Some(bind) = find("bind")
        && let Some((herd, bind)) = last_third(herd).zip(last_third(bind))
    {
        // Less work a second is worse: seconds per work, as everywhere else here.
        at_most("bind in the last third", vec![bind / herd], 1.0 / 0.99);
    }
    bars
}

/// Seconds per work of one placement ÷ those of another, by rounds.
fn rounds(a: &PlacementResult, b: &PlacementResult) -> Vec<f64> {
    let (a_to_bind, b_to_bind) = (&a.ratios_to_bind, &b.ratios_to_bind);
    if !a_to_bind.is_empty() && a_to_bind.len() == b_to_bind.len() {
        return a_to_bind.iter().zip(b_to_bind).map(|(a, b)| a / b).collect();
    }
    // Without bind beside them: of the same work.
    let pairs = a.seconds.all.iter().zip(&b.seconds.all);
    pairs.map(|(a, b)| a / b).collect()
}

/// The quickest of some placements.
fn best<'a>(comparison: &'a Comparison, names: &[&str]) -> Option<&'a PlacementResult> {
    let among = comparison.placements.iter().filter(|one| names.contains(&one.name.as_str()));
    among.min_by(|a, b| a.seconds.median.total_cmp(&b.seconds.median))
}

/// Of the median work a second, so much is done at least while all threads work. One of eight that has ended
/// takes an eighth.
const ALL_WORK: f64 = 0.9;

/// Mean work a second in the last third of the typical run. The last interval may be cut short by
/// the end, so it is left out, and so are those at the end in which threads have ended already: each has
/// its share of the work, and who lost time at the beginning ends later, beside idle CPUs.
fn last_third(result: &PlacementResult) -> Option<f64> {
    let values = &result.throughput_over_time.as_ref()?.values;
    let whole = &values[..values.len().saturating_sub(1)];
    let mut last = &whole[whole.len() - whole.len() / 3..];
    let mut sorted = last.to_vec();
    sorted.sort_by(f64::total_cmp);
    let all_work = sorted.get(sorted.len() / 2)? * ALL_WORK;
    while let [rest @ .., end] = last
        && *end < all_work
    {
        last = rest;
    }
    Some(last.iter().sum::<f64>() / last.len() as f64)
}

fn verdict(figure: Option<f64>, interval: Option<Interval>, limit: f64) -> &'static str {
    match (figure, interval) {
        (None, _) => "not measured",
        (_, Some([_, to])) if to <= limit => "met, surely",
        (_, Some([from, _])) if from > limit => "unmet, surely",
        (Some(figure), _) if figure <= limit => "met, unsure",
        _ => "unmet, unsure",
    }
}

/// All bars of some comparisons, as a table in Markdown.
#[must_use]
pub fn table(comparisons: &[Comparison]) -> String {
    let mut text = String::from(
        "| workload | bar | figure | 95 % interval | rounds | |\n|---|---|---|---|---|---|\n",
    );
    for comparison in comparisons {
        for bar in of(comparison) {
            let figure = bar.figure.map_or("–".into(), |figure| format!("{figure:.3}"));
            let interval =
                bar.interval.map_or("–".into(), |[from, to]| format!("{from:.3}–{to:.3}"));
            let Bar { of, claim, verdict, .. } = bar;
            let rounds = comparison.runs;
            text += &format!("| {of} | {claim} | {figure} | {interval} | {rounds} | {verdict} |\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cell;
    use crate::comparison::tests::{cell, comparison};

    fn compared(workload: &str, seconds: &[(&str, f64)], rounds: u32) -> Comparison {
        let names: Vec<String> = seconds.iter().map(|(name, _)| (*name).to_string()).collect();
        let cells: Vec<Cell> = (0..rounds)
            .flat_map(|run| seconds.iter().map(move |(name, s)| cell(name, run, *s)))
            .collect();
        let placements = Comparison::placements(&names, &cells);
        Comparison { workload: workload.into(), runs: rounds, placements, ..comparison() }
    }

    fn verdicts(comparison: &Comparison) -> Vec<(String, &'static str)> {
        of(comparison).into_iter().map(|bar| (bar.claim, bar.verdict)).collect()
    }

    #[test]
    fn a_kernel_that_loses_much_must_be_beaten_by_a_tenth() {
        let all = [("kernel", 13.0), ("bind", 10.0), ("herd", 10.2)];
        let got = verdicts(&compared("numa01", &all, 6));
        assert_eq!(got[0], ("herd ÷ bind ≤ 1.03".into(), "met, surely"));
        assert_eq!(got[1], ("herd ÷ kernel ≤ 0.91".into(), "met, surely"));
        let all = [("kernel", 10.5), ("bind", 10.0), ("herd", 10.6)];
        let got = verdicts(&compared("numa01", &all, 2));
        // 10.6 ÷ 10.5 = 1.0095; two rounds carry no interval.
        assert_eq!(got[0].1, "unmet, unsure");
        assert_eq!(got[1], ("herd ÷ kernel ≤ 1.02".into(), "met, unsure"));
    }

    #[test]
    fn the_best_is_looked_for_where_binding_may_not_be() {
        let all =
            [("off", 9.0), ("kernel", 9.5), ("bind", 10.0), ("interleave", 8.0), ("herd", 9.0)];
        let got = verdicts(&compared("stream", &all, 6));
        assert_eq!(got[1], ("herd ÷ the best (interleave) ≤ 1.02".into(), "unmet, surely"));
        let got =
            verdicts(&compared("phases", &[("bind", 10.0), ("inverse", 11.0), ("herd", 8.0)], 6));
        assert_eq!(got, [("herd ÷ the best static (bind) ≤ 0.90".into(), "met, surely")]);
        let all = [("bind", 10.0), ("interleave", 9.8), ("herd", 10.1)];
        let even = Comparison { machine: NEARLY_EVEN.into(), ..compared("numa01", &all, 6) };
        assert_eq!(
            verdicts(&even),
            [("herd ÷ the best (interleave) ≤ 1.02".into(), "unmet, surely")]
        );
        let got = verdicts(&compared("forks", &[("off", 10.0), ("herd", 10.05)], 6));
        assert_eq!(got, [("herd ÷ off ≤ 1.01".into(), "met, surely")]);
    }

    #[test]
    fn the_last_third_ends_where_the_first_thread_does() {
        let last = |values: &[f64]| {
            let mut comparison = compared("numa01", &[("bind", 10.0), ("herd", 10.0)], 1);
            let (interval_seconds, values) = (1.0, values.to_vec());
            let series = crate::Series { interval_seconds, values };
            comparison.placements[0].throughput_over_time = Some(series);
            last_third(&comparison.placements[0])
        };
        // The tenth is cut short; of the last three of nine, the third is the end of some threads.
        assert_eq!(last(&[1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 0.1]), Some(2.0));
        // Slow to its end, and slow for a while.
        assert_eq!(last(&[1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.1]), Some(1.0));
        assert_eq!(last(&[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.1, 2.0, 0.1]), Some(1.7));
        assert_eq!(last(&[2.0, 0.1]), None);
    }

    #[test]
    fn without_herd_there_is_no_bar_and_the_table_has_a_line_for_each() {
        assert_eq!(of(&compared("numa01", &[("bind", 10.0)], 6)), []);
        let table = table(&[compared("numa02", &[("bind", 10.0), ("herd", 10.1)], 6)]);
        assert!(table.ends_with("| numa02 on lab:2x4 | herd ÷ bind ≤ 1.03 | 1.010 | 1.010–1.010 | 6 | met, surely |\n"), "{table}");
    }
}
