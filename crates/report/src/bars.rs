//! What herd is held to, and whether a comparison shows it: the bars that follow from the seconds
//! of one workload under several placements.
//!
//! A figure is a median of the rounds' ratios, as in [`crate::comparison`]; it is within its limit
//! *surely* if all of its 95 % interval is, *unsure* if only the figure is or only a part of the
//! interval. What was not measured has no bar.

use std::collections::BTreeMap;

use crate::interval::{self, Interval};
use crate::{Comparison, PlacementResult, Spread};

/// Workloads in which nothing is to gain, or that do nothing but start processes.
const HARMLESS: [&str; 1] = ["forks"];
/// Those where the best placement is not `bind` alone.
const BEST_OF_ALL: [&str; 2] = ["stream", "hugetlb"];
/// Which that is looked for among.
const ALL: [&str; 4] = ["off", "kernel", "bind", "interleave"];
/// And those that stay as they are.
const STATIC: [&str; 3] = ["bind", "inverse", "interleave"];
/// And the machine whose nodes hardly differ.
const NEARLY_EVEN: &str = "lab:nps4";
/// Those that must come nearest to hard binding.
const NEAREST: [&str; 3] = ["numa01", "numa01_thread_alloc", "numa02"];
const NEAR: [&str; 5] = ["numa02_smt", "overcommit", "jbb-like", "uneven", "shared"];

/// With the kernel's knobs set as herd wants them, and as they are.
const OURS: [&str; 2] = ["herd", "herd-untuned"];

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
    pub figure: f64,
    /// 95 % of it, where there are enough rounds.
    pub interval: Option<Interval>,
    /// Rounds that it is of.
    pub rounds: usize,
    /// In words.
    pub verdict: &'static str,
}

/// The bars of some comparisons, all of the same workload and machine: each of the rounds of those that measured what
/// it takes, those with other parameters apart. What was measured before parameters were written down goes with the others
/// where these are all alike.
#[must_use]
pub fn of(comparisons: &[&Comparison]) -> Vec<Bar> {
    let told = |comparison: &Comparison| comparison.parameters.as_ref().map(ToString::to_string);
    let mut by_parameters: BTreeMap<Option<String>, Vec<&Comparison>> = BTreeMap::new();
    for comparison in comparisons {
        by_parameters.entry(told(comparison)).or_default().push(comparison);
    }
    if by_parameters.keys().flatten().count() < 2 {
        return of_alike(comparisons);
    }
    let mut bars = Vec::new();
    for (parameters, comparisons) in by_parameters {
        let mut some = of_alike(&comparisons);
        if let Some(told) = parameters {
            some.iter_mut().for_each(|bar| bar.of += &format!(" `{told}`"));
        }
        bars.append(&mut some);
    }
    bars
}

fn of_alike(comparisons: &[&Comparison]) -> Vec<Bar> {
    OURS.iter().flat_map(|ours| of_one(comparisons, ours)).collect()
}

/// Those of one of ours.
fn of_one(comparisons: &[&Comparison], ours: &str) -> Vec<Bar> {
    let Some(first) = comparisons.first() else { return Vec::new() };
    let workload = first.workload.as_str();
    let of = format!("{workload} on {}", first.machine);
    let mut bars = Vec::new();
    let mut at_most = |name: &str, ratios: Vec<f64>, limit: f64| {
        let Some(figure) = Spread::of(&ratios).map(|spread| spread.median) else { return };
        let interval = interval::of_median(&ratios);
        bars.push(Bar {
            of: of.clone(),
            claim: format!("{ours} ÷ {name} ≤ {limit:.2}"),
            figure,
            interval,
            rounds: ratios.len(),
            verdict: verdict(figure, interval, limit),
        });
    };
    let against = |name| pooled(comparisons, ours, name, rounds);
    let best_of_all = BEST_OF_ALL.contains(&workload) || first.machine == NEARLY_EVEN;
    let limit = if best_of_all {
        None
    } else if NEAREST.contains(&workload) {
        Some(1.03)
    } else {
        NEAR.contains(&workload).then_some(1.05)
    };
    if let Some(limit) = limit {
        at_most("bind", against("bind"), limit);
    }
    let gain = Spread::of(&pooled(comparisons, "kernel", "bind", rounds));
    let gains = gain.is_some_and(|gain| gain.median >= WORTH);
    at_most("kernel", against("kernel"), if gains { 1.0 / 1.1 } else { 1.02 });
    if best_of_all && let Some((best, told)) = best(comparisons, &ALL) {
        at_most(&format!("the best ({told})"), against(best), 1.02);
    }
    if workload == "phases"
        && let Some((best, told)) = best(comparisons, &STATIC)
    {
        at_most(&format!("the best static ({told})"), against(best), 0.9);
    }
    at_most("numad", against("numad"), 1.0);
    if HARMLESS.contains(&workload) {
        at_most("off", against("off"), 1.01);
    }
    if limit.is_some() {
        let ratios = pooled(comparisons, ours, "bind", last_thirds);
        at_most("bind in the last third", ratios, 1.0 / 0.99);
    }
    bars
}

/// Ratios of one placement to another, of all comparisons that have both.
fn pooled(
    comparisons: &[&Comparison],
    a: &str,
    b: &str,
    ratios: fn(&PlacementResult, &PlacementResult) -> Vec<f64>,
) -> Vec<f64> {
    let both =
        |comparison: &&Comparison| Some(ratios(comparison.placement(a)?, comparison.placement(b)?));
    comparisons.iter().filter_map(both).flatten().collect()
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

/// The same of the last third, of one placement and bind. Of comparisons from before it was kept by rounds only the typical
/// runs' is known.
fn last_thirds(a: &PlacementResult, bind: &PlacementResult) -> Vec<f64> {
    if !a.last_third_ratios_to_bind.is_empty() {
        return a.last_third_ratios_to_bind.clone();
    }
    let typical = |one: &PlacementResult| one.throughput_over_time.as_ref()?.last_third();
    // Less work a second is worse: seconds per work, as everywhere else here.
    typical(bind).zip(typical(a)).map(|(bind, a)| bind / a).into_iter().collect()
}

/// The quickest of some placements, with those that were not measured.
fn best<'a>(comparisons: &[&Comparison], names: &[&'a str]) -> Option<(&'a str, String)> {
    let median = |name: &&'a str| {
        let results = comparisons.iter().filter_map(|comparison| comparison.placement(name));
        let all: Vec<f64> = results.flat_map(|one| &one.seconds.all).copied().collect();
        Spread::of(&all).map(|spread| spread.median)
    };
    let (mut measured, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        match median(name) {
            Some(median) => measured.push((*name, median)),
            None => missing.push(*name),
        }
    }
    let (best, _) = measured.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let told = match missing.is_empty() {
        true => best.to_string(),
        false => format!("{best}; not measured: {}", missing.join(", ")),
    };
    Some((best, told))
}

fn verdict(figure: f64, interval: Option<Interval>, limit: f64) -> &'static str {
    match interval {
        Some([_, to]) if to <= limit => "met, surely",
        Some([from, _]) if from > limit => "unmet, surely",
        _ if figure <= limit => "met, unsure",
        _ => "unmet, unsure",
    }
}

/// All bars of some comparisons, as a table in Markdown.
#[must_use]
pub fn table(comparisons: &[Comparison]) -> String {
    let mut text = String::from(
        "| workload | bar | figure | 95 % interval | rounds | |\n|---|---|---|---|---|---|\n",
    );
    let mut all: Vec<&Comparison> = comparisons.iter().collect();
    let key = |comparison: &&Comparison| (comparison.machine.clone(), comparison.workload.clone());
    all.sort_by_cached_key(key);
    for bar in all.chunk_by(|a, b| key(a) == key(b)).flat_map(of) {
        let Bar { of, claim, figure, interval, rounds, verdict } = bar;
        let interval = interval.map_or("–".into(), |[from, to]| format!("{from:.3}–{to:.3}"));
        text += &format!("| {of} | {claim} | {figure:.3} | {interval} | {rounds} | {verdict} |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cell;
    use crate::comparison::tests::{cell, comparison, parameters};

    fn compared(workload: &str, seconds: &[(&str, f64)], rounds: u32) -> Comparison {
        let names: Vec<String> = seconds.iter().map(|(name, _)| (*name).to_string()).collect();
        let cells: Vec<Cell> = (0..rounds)
            .flat_map(|run| seconds.iter().map(move |(name, s)| cell(name, run, *s)))
            .collect();
        let placements = Comparison::placements(&names, &cells);
        Comparison { workload: workload.into(), runs: rounds, placements, ..comparison() }
    }

    fn verdicts(comparison: &Comparison) -> Vec<(String, &'static str)> {
        of(&[comparison]).into_iter().map(|bar| (bar.claim, bar.verdict)).collect()
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
        let claim = "herd ÷ the best static (bind; not measured: interleave) ≤ 0.90";
        assert_eq!(got, [(claim.into(), "met, surely")]);
        let all = [("bind", 10.0), ("interleave", 9.8), ("herd", 10.1)];
        let even = Comparison { machine: NEARLY_EVEN.into(), ..compared("numa01", &all, 6) };
        assert_eq!(
            verdicts(&even),
            [(
                "herd ÷ the best (interleave; not measured: off, kernel) ≤ 1.02".into(),
                "unmet, surely"
            )]
        );
        let got = verdicts(&compared("forks", &[("off", 10.0), ("herd", 10.05)], 6));
        assert_eq!(got, [("herd ÷ off ≤ 1.01".into(), "met, surely")]);
        let both = [("off", 10.0), ("herd", 10.05), ("herd-untuned", 10.2)];
        let got = verdicts(&compared("forks", &both, 6));
        assert_eq!(got[1], ("herd-untuned ÷ off ≤ 1.01".into(), "unmet, surely"));
    }

    #[test]
    fn rounds_of_several_comparisons_count_together() {
        let few =
            |seconds, rounds| compared("numa02", &[("bind", 10.0), ("herd", seconds)], rounds);
        let mut with_kernel =
            compared("numa02", &[("kernel", 11.0), ("bind", 10.0), ("herd", 12.5)], 4);
        with_kernel.placements[2].last_third_ratios_to_bind = vec![1.0, 1.0, 1.02, 1.02];
        let bars = of(&[&few(10.1, 3), &with_kernel, &compared("numa02", &[("off", 20.0)], 9)]);
        let claims: Vec<(&str, usize, f64)> =
            bars.iter().map(|bar| (&*bar.claim, bar.rounds, bar.figure)).collect();
        assert_eq!(claims[0], ("herd ÷ bind ≤ 1.03", 7, 1.25));
        assert_eq!((claims[1].0, claims[1].1), ("herd ÷ kernel ≤ 1.02", 4));
        assert_eq!(claims[2], ("herd ÷ bind in the last third ≤ 1.01", 4, 1.01));
        let table = table(&[few(10.1, 3), compared("numa01", &[("bind", 10.0)], 1), few(10.3, 3)]);
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(table.contains("| 1.020 | 1.010–1.030 | 6 |"), "{table}");
    }

    #[test]
    fn rounds_with_other_parameters_are_counted_apart() {
        let with = |parameters, herd, rounds| {
            let compared = compared("numa02", &[("bind", 10.0), ("herd", herd)], rounds);
            Comparison { parameters, ..compared }
        };
        let (old, eight) = (with(None, 10.1, 2), with(Some(parameters(8)), 10.2, 3));
        let four = with(Some(parameters(4)), 10.2, 1);
        let bars = of(&[&eight, &old, &four, &with(Some(parameters(8)), 10.2, 1)]);
        assert_eq!(bars.iter().map(|bar| bar.rounds).collect::<Vec<_>>(), [2, 1, 4]);
        assert_eq!(bars[0].of, "numa02 on lab:2x4");
        assert!(bars[2].of.starts_with("numa02 on lab:2x4 `--threads 8 --size"), "{bars:?}");
        assert_eq!(of(&[&eight, &old])[0].rounds, 5);
        // Where all are known to be alike nothing needs to be told apart.
        assert_eq!(of(&[&eight])[0].of, "numa02 on lab:2x4");
    }

    #[test]
    fn without_herd_there_is_no_bar_and_the_table_has_a_line_for_each() {
        assert_eq!(of(&[&compared("numa01", &[("bind", 10.0)], 6)]), []);
        let table = table(&[compared("numa02", &[("bind", 10.0), ("herd", 10.1)], 6)]);
        assert!(table.ends_with("| numa02 on lab:2x4 | herd ÷ bind ≤ 1.03 | 1.010 | 1.010–1.010 | 6 | met, surely |\n"), "{table}");
    }
}
