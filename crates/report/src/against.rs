//! A comparison beside an earlier one of the same workload: do the ratios hold?
//!
//! The two were not measured in the same rounds, so the interval of a difference comes from
//! drawing each one's rounds apart.

use serde::{Deserialize, Serialize};

use crate::interval::{self, Interval};
use crate::{Comparison, Parameters, PlacementResult};

/// Why two comparisons cannot be set beside each other.
#[derive(Debug, thiserror::Error)]
pub enum AgainstError {
    /// They are of different workloads.
    #[error(
        "it is of {then} and this one is of {now}: ratios of different workloads do not compare"
    )]
    Workload {
        /// This one's.
        now: String,
        /// The earlier one's.
        then: String,
    },
    /// They are of the same workload, told something else.
    #[error("it was measured with {then}, and this one is with {now}: they do not compare")]
    Parameters {
        /// This one's.
        now: Box<Parameters>,
        /// The earlier one's.
        then: Box<Parameters>,
    },
    /// Nothing to compare.
    #[error("it has no placement in common with this one that has a ratio to bind")]
    NothingInCommon,
}

/// Differences from an earlier comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// Where the earlier one is.
    pub file: String,
    /// Where it was measured.
    pub machine: String,
    /// On which kernel.
    pub kernel: String,
    /// By placement, in this comparison's order.
    pub placements: Vec<Difference>,
}

/// How one ratio differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Placement.
    pub name: String,
    /// Ratio to bind now.
    pub ratio: f64,
    /// Ratio to bind then.
    pub ratio_then: f64,
    /// Now ÷ then − 1.
    pub difference: f64,
    /// 95 % interval of it, where both have enough rounds.
    pub interval: Option<Interval>,
}

/// Sets `now` beside `then`, which lies in `file`.
///
/// # Errors
/// They have nothing in common.
pub fn set_beside(
    now: &Comparison,
    then: &Comparison,
    file: &str,
) -> Result<Against, AgainstError> {
    same_workload(&now.workload, then)?;
    if let Some(parameters) = &now.parameters {
        same_parameters(parameters, then)?;
    }
    let difference = |now: &PlacementResult| {
        let then = then.placement(&now.name)?;
        let (ratio, ratio_then) = now.ratio_to_bind.zip(then.ratio_to_bind)?;
        let quotient = interval::of_quotient(&now.ratios_to_bind, &then.ratios_to_bind);
        Some(Difference {
            name: now.name.clone(),
            ratio,
            ratio_then,
            difference: ratio / ratio_then - 1.0,
            interval: quotient.map(|quotient| quotient.map(|bound| bound - 1.0)),
        })
    };
    // The ratio of bind to itself is 1 on both sides.
    let others = now.placements.iter().filter(|placement| placement.name != "bind");
    let placements: Vec<Difference> = others.filter_map(difference).collect();
    if placements.is_empty() {
        return Err(AgainstError::NothingInCommon);
    }
    let (machine, kernel) = (then.machine.clone(), then.kernel.clone());
    Ok(Against { file: file.into(), machine, kernel, placements })
}

/// An error if `then` is not of this workload.
///
/// # Errors
/// It is not.
pub fn same_workload(workload: &str, then: &Comparison) -> Result<(), AgainstError> {
    if workload == then.workload {
        return Ok(());
    }
    Err(AgainstError::Workload { now: workload.into(), then: then.workload.clone() })
}

/// An error if `then` is known to be of other parameters.
///
/// # Errors
/// It is.
pub fn same_parameters(now: &Parameters, then: &Comparison) -> Result<(), AgainstError> {
    match &then.parameters {
        Some(then) if then != now => {
            let (now, then) = (Box::new(now.clone()), Box::new(then.clone()));
            Err(AgainstError::Parameters { now, then })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{cell, comparison, parameters};

    #[test]
    fn what_was_measured_with_other_parameters_is_refused() {
        let with = |parameters| Comparison { parameters, ..measured(6, 15.0) };
        let (eight, four) = (with(Some(parameters(8))), with(Some(parameters(4))));
        let error = set_beside(&eight, &four, "f").unwrap_err().to_string();
        assert!(
            error.contains("with --threads 4 --size") && error.contains("with --threads 8"),
            "{error}"
        );
        assert!(set_beside(&eight, &eight, "f").is_ok());
        assert!(set_beside(&eight, &with(None), "f").is_ok(), "nothing is known");
        assert!(set_beside(&with(None), &eight, "f").is_ok());
    }

    fn measured(rounds: u32, off: f64) -> Comparison {
        let cells: Vec<_> =
            (0..rounds).flat_map(|run| [cell("bind", run, 10.0), cell("off", run, off)]).collect();
        let names = ["off", "bind"].map(String::from);
        Comparison { placements: Comparison::placements(&names, &cells), ..comparison() }
    }

    /// 1.9 now and 2.0 then: 5 % less. All rounds are alike, so the interval is that point.
    #[test]
    fn differences_are_of_ratios() {
        let against = set_beside(&measured(6, 19.0), &measured(6, 20.0), "then.json").unwrap();
        assert_eq!(against.placements.len(), 1);
        let off = &against.placements[0];
        assert_eq!((off.ratio, off.ratio_then), (1.9, 2.0));
        assert!((off.difference + 0.05).abs() < 1e-12);
        let [from, to] = off.interval.unwrap();
        assert!((from + 0.05).abs() < 1e-12 && (to + 0.05).abs() < 1e-12);
    }

    #[test]
    fn few_rounds_give_a_difference_without_an_interval() {
        let against = set_beside(&measured(3, 19.0), &measured(6, 20.0), "then.json").unwrap();
        assert_eq!(against.placements[0].interval, None);
    }

    #[test]
    fn what_does_not_compare_is_refused() {
        let (now, mut then) = (measured(1, 19.0), measured(1, 20.0));
        then.workload = "numa01".into();
        let error = set_beside(&now, &then, "f").unwrap_err().to_string();
        assert!(error.contains("numa01") && error.contains("numa02"), "{error}");
        then = measured(1, 20.0);
        then.placements.retain(|placement| placement.name == "bind");
        assert!(matches!(set_beside(&now, &then, "f"), Err(AgainstError::NothingInCommon)));
    }
}
