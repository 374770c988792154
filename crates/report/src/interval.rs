//! How sure a median of a few runs is: 95 % intervals by bootstrap.
//!
//! Runs are paired by rounds: in each round every placement runs once, so that whatever slows the
//! machine down for a while slows all of them. The ratio of a round is one figure; the ratio told
//! is the median of the rounds', and the interval comes from drawing rounds with replacement
//! (Efron's percentile bootstrap). The draws are seeded: the same runs give the same interval.
//!
//! Fewer than [`LEAST`] runs carry no interval: of n runs the chance that all lie on the same side
//! of the true median is 2 × ½ⁿ, more than 5 % up to n = 5, so that not even the widest interval
//! the runs could give would hold in 95 of 100 cases.

use crate::Spread;

/// Runs that carry an interval at least: 2 × ½⁶ = 3 %.
pub const LEAST: usize = 6;
/// Draws. Chosen: their own noise is then far below the interval's width.
const DRAWS: usize = 4000;
/// Seed of the draws.
const SEED: u64 = 95;

/// From, to.
pub type Interval = [f64; 2];

/// The 95 % interval of the median; `None` of fewer than [`LEAST`] figures.
///
/// Worked example: of 1, 2, … 9 it is about 3 to 7.
#[must_use]
pub fn of_median(all: &[f64]) -> Option<Interval> {
    let mut random = fastrand::Rng::with_seed(SEED);
    interval(all.len(), DRAWS, || draw_median(&mut random, all))
}

/// The 95 % interval of `median(a) ÷ median(b)`, drawn apart: the two were not measured in the
/// same rounds.
#[must_use]
pub fn of_quotient(a: &[f64], b: &[f64]) -> Option<Interval> {
    let mut random = fastrand::Rng::with_seed(SEED);
    interval(a.len().min(b.len()), DRAWS, || {
        Some(draw_median(&mut random, a)? / draw_median(&mut random, b)?)
    })
}

/// Its width as a share of the figure it is about.
#[must_use]
pub fn relative_width([from, to]: Interval, figure: f64) -> f64 {
    (to - from) / figure
}

/// The median of as many figures as there are, drawn with replacement.
fn draw_median(random: &mut fastrand::Rng, all: &[f64]) -> Option<f64> {
    let draw: Vec<f64> = (0..all.len()).map(|_| all[random.usize(0..all.len())]).collect();
    Spread::of(&draw).map(|spread| spread.median)
}

fn interval(runs: usize, draws: usize, mut draw: impl FnMut() -> Option<f64>) -> Option<Interval> {
    if runs < LEAST {
        return None;
    }
    let mut draws: Vec<f64> = (0..draws).filter_map(|_| draw()).collect();
    draws.sort_by(f64::total_cmp);
    // 2.5 % of the draws lie below, and as many above.
    let outside = draws.len() / 40;
    Some([*draws.get(outside)?, *draws.get(draws.len() - 1 - outside)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_within_the_figures_and_around_the_median() {
        let all: Vec<f64> = (1..=9).map(f64::from).collect();
        let [from, to] = of_median(&all).unwrap();
        assert!((2.0..=4.0).contains(&from) && (6.0..=8.0).contains(&to), "{from} to {to}");
        assert_eq!(of_median(&all), of_median(&all));
        assert_eq!(of_median(&[4.0; 6]), Some([4.0, 4.0]));
    }

    #[test]
    fn five_runs_carry_none() {
        assert_eq!(of_median(&[1.0, 2.0, 3.0, 4.0, 5.0]), None);
        assert_eq!(of_quotient(&[1.0; 6], &[1.0; 5]), None);
        assert_eq!(of_quotient(&[3.0; 6], &[2.0; 6]), Some([1.5, 1.5]));
    }

    /// Of how many of 300 samples the interval holds the true median (with fewer draws, to be
    /// quick).
    fn coverage(runs: usize, figure: impl Fn(&mut fastrand::Rng) -> f64, median: f64) -> f64 {
        let mut random = fastrand::Rng::with_seed(7);
        let holds = |_: &usize| {
            let sample: Vec<f64> = (0..runs).map(|_| figure(&mut random)).collect();
            let mut draws = fastrand::Rng::with_seed(SEED);
            let found = interval(runs, 400, || draw_median(&mut draws, &sample));
            let [from, to] = found.unwrap();
            from <= median && median <= to
        };
        (0..300).filter(holds).count() as f64 / 300.0
    }

    /// Known answers: a uniform distribution (median ½) and a skewed one, exponential (median
    /// ln 2). With 300 samples the share of a true 95 % varies by 1.3 points; the percentile
    /// bootstrap of a median is known to be a little off for few runs.
    #[test]
    fn about_95_of_100_intervals_hold_the_true_median() {
        let uniform = |random: &mut fastrand::Rng| random.f64();
        let exponential = |random: &mut fastrand::Rng| -(1.0 - random.f64()).ln();
        for runs in [6, 11] {
            let found = coverage(runs, uniform, 0.5);
            assert!((0.91..=0.99).contains(&found), "uniform, {runs} runs: {found}");
            let found = coverage(runs, exponential, std::f64::consts::LN_2);
            assert!((0.91..=0.99).contains(&found), "exponential, {runs} runs: {found}");
        }
    }

    /// A drift that slows both placements of a round alike, by up to half: paired, the ratio of
    /// 1.5 is as sharp as without it.
    #[test]
    fn what_slows_a_whole_round_does_not_blur_the_ratio() {
        let mut random = fastrand::Rng::with_seed(3);
        let round = |_| {
            let slowed = 1.0 + random.f64() / 2.0;
            let mut noisy = |seconds: f64| seconds * slowed * (1.0 + 0.01 * random.f64());
            (noisy(15.0), noisy(10.0))
        };
        let rounds: Vec<(f64, f64)> = (0..9).map(round).collect();
        let paired: Vec<f64> = rounds.iter().map(|(a, b)| a / b).collect();
        let [from, to] = of_median(&paired).unwrap();
        assert!(from > 1.48 && to < 1.52, "{from} to {to}");
        let (a, b): (Vec<f64>, Vec<f64>) = rounds.into_iter().unzip();
        let [from, to] = of_quotient(&a, &b).unwrap();
        assert!(to - from > 0.1, "unpaired {from} to {to}");
    }
}
