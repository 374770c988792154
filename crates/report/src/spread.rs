//! Median, least and greatest of a few runs.

use serde::{Deserialize, Serialize};

/// Figures of repeated runs, in the order they were taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one; the mean of the two middle ones where their number is even.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
    /// All.
    pub all: Vec<f64>,
}

impl Spread {
    /// Of at least one figure; `None` of none.
    #[must_use]
    pub fn of(all: &[f64]) -> Option<Spread> {
        let mut sorted = all.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Spread { median, min, max, all: all.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert_eq!(Spread::of(&[3.0, 9.0, 1.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of(&[]), None);
    }
}
