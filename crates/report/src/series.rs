//! The course of a run.

use serde::{Deserialize, Serialize};

/// Work per second in equal intervals from the start; the last may be shorter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Length of an interval.
    pub interval_seconds: f64,
    /// Work per second in each.
    pub values: Vec<f64>,
}

/// Of the median work a second, so much is done at least while all threads work. One of eight that has ended
/// takes an eighth.
const ALL_WORK: f64 = 0.9;

impl Series {
    /// Mean work a second in the last third; `None` of fewer than three whole intervals. The last interval may be cut
    /// short by the end, so it is left out, and so are those at the end in which threads have ended already: each has
    /// its share of the work, and who lost time at the beginning ends later, beside idle CPUs.
    #[must_use]
    pub fn last_third(&self) -> Option<f64> {
        let whole = &self.values[..self.values.len().saturating_sub(1)];
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_third_ends_where_the_first_thread_does() {
        let last =
            |values: &[f64]| Series { interval_seconds: 1.0, values: values.to_vec() }.last_third();
        // The tenth is cut short; of the last three of nine, the third is the end of some threads.
        assert_eq!(last(&[1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 0.1]), Some(2.0));
        // Slow to its end, and slow for a while.
        assert_eq!(last(&[1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.1]), Some(1.0));
        assert_eq!(last(&[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.1, 2.0, 0.1]), Some(1.7));
        assert_eq!(last(&[2.0, 0.1]), None);
    }
}
