//! What a simulated placement is made of, and what of it is left out: the kernel's balancing with its
//! mechanisms, and herd with its parts beside it.
//!
//! A name that is left out is so of every placement that has it. The kernel beside herd stays whole: what herd is
//! worth is measured against the same.

use anyhow::Result;
use clap::ValueEnum;
use numaherd_linux::live::Sampled;
use numaherd_model::Balancing;
use numaherd_placement::kernels::{
    Autonuma, Balancenuma, Mainline, Numacore, Parts, autonuma, balancenuma, mainline, numacore,
};
use numaherd_placement::{Herd, Mechanisms, mechanisms};

use crate::args::SimPlacement;

/// A kernel's own balancing, and its mechanisms.
enum Switches {
    Mainline(mainline::Switches),
    Autonuma(autonuma::Switches),
    Numacore(numacore::Switches),
    Balancenuma(balancenuma::Switches),
}

impl Switches {
    fn of(placement: SimPlacement) -> Option<Switches> {
        Some(match placement {
            SimPlacement::Off
            | SimPlacement::Bind
            | SimPlacement::Inverse
            | SimPlacement::Interleave => return None,
            SimPlacement::Mainline
            | SimPlacement::Herd
            | SimPlacement::HerdTasks
            | SimPlacement::HerdUntuned => Switches::Mainline(mainline::Switches::default()),
            SimPlacement::Autonuma => Switches::Autonuma(autonuma::Switches::default()),
            SimPlacement::AutonumaThp => {
                let moves_huge_whole = true;
                Switches::Autonuma(autonuma::Switches { moves_huge_whole, ..Default::default() })
            }
            SimPlacement::AutonumaMarch => {
                Switches::Autonuma(autonuma::Switches { of_march: true, ..Default::default() })
            }
            SimPlacement::NumacoreV17 => Switches::Numacore(numacore::Switches::v17()),
            SimPlacement::NumacoreV18 => Switches::Numacore(numacore::Switches::v18()),
            SimPlacement::Balancenuma => {
                Switches::Balancenuma(balancenuma::Switches { limits_moves: true })
            }
        })
    }

    fn names(&self) -> Vec<&'static str> {
        match self {
            Switches::Mainline(switches) => switches.names(),
            Switches::Autonuma(switches) => switches.names(),
            Switches::Numacore(switches) => switches.names(),
            Switches::Balancenuma(switches) => switches.names(),
        }
    }

    fn leave_out(&mut self, name: &str) {
        match self {
            Switches::Mainline(switches) => switches.leave_out(name),
            Switches::Autonuma(switches) => switches.leave_out(name),
            Switches::Numacore(switches) => switches.leave_out(name),
            Switches::Balancenuma(switches) => switches.leave_out(name),
        }
    }

    fn balancing(self) -> Box<dyn Balancing> {
        match self {
            Switches::Mainline(switches) => Box::new(Mainline::new(switches)),
            Switches::Autonuma(switches) => Box::new(Autonuma::new(switches)),
            Switches::Numacore(switches) => Box::new(Numacore::new(switches)),
            Switches::Balancenuma(switches) => Box::new(Balancenuma::new(switches)),
        }
    }
}

/// Ours, as far as it is in the placement.
fn ours(placement: SimPlacement) -> Option<Mechanisms> {
    match placement {
        SimPlacement::Herd | SimPlacement::HerdUntuned => Some(Mechanisms::default()),
        SimPlacement::HerdTasks => Some(Mechanisms { pages: false, ..Mechanisms::default() }),
        _ => None,
    }
}

/// The kernel's own balancing, if it is on.
pub fn balancing(placement: SimPlacement, without: &[String]) -> Option<Box<dyn Balancing>> {
    let mut switches = Switches::of(placement)?;
    if ours(placement).is_none() {
        without.iter().for_each(|name| switches.leave_out(name));
    }
    Some(switches.balancing())
}

/// Ours, beside it.
pub fn herd(placement: SimPlacement, without: &[String]) -> Option<Herd> {
    Some(Herd::with(what_is_left(placement, without)?))
}

/// Memory of which it has accesses sampled.
pub fn sampled(placement: SimPlacement, without: &[String]) -> Sampled {
    let parts = what_is_left(placement, without);
    parts.map_or_else(Sampled::default, |parts| Sampled {
        reserve: parts.accesses,
        rest: parts.samples && (parts.pages || placement == SimPlacement::HerdUntuned),
        base: placement == SimPlacement::HerdUntuned,
    })
}

fn what_is_left(placement: SimPlacement, without: &[String]) -> Option<Mechanisms> {
    let mut parts = ours(placement)?;
    without.iter().for_each(|name| _ = parts.leave_out(name));
    Some(parts)
}

/// What can be left out of a placement.
fn names(placement: SimPlacement) -> Vec<&'static str> {
    match ours(placement) {
        Some(Mechanisms { pages, .. }) => {
            mechanisms::NAMES.into_iter().filter(|name| pages || *name != "pages").collect()
        }
        None => Switches::of(placement).map_or_else(Vec::new, |switches| switches.names()),
    }
}

/// What can be left out of any placement.
pub fn all_names() -> Vec<&'static str> {
    let mut all: Vec<&str> =
        SimPlacement::value_variants().iter().flat_map(|&placement| names(placement)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Refuses what none of the placements has: it would be left out of nothing.
pub fn check(placements: &[SimPlacement], without: &[String]) -> Result<()> {
    let has = |name: &str| placements.iter().any(|&placement| names(placement).contains(&name));
    let Some(wrong) = without.iter().find(|name| !has(name)) else { return Ok(()) };
    let told = |&placement: &SimPlacement| match &names(placement)[..] {
        [] => format!("{placement} has none"),
        names => format!("{placement} has {}", names.join(", ")),
    };
    let told: Vec<String> = placements.iter().map(told).collect();
    misuse!("--without {wrong}: no such mechanism here; {}", told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(placements: &[SimPlacement], without: &str) -> String {
        check(placements, &[without.into()]).map_or_else(|e| e.to_string(), |()| String::new())
    }

    #[test]
    fn a_name_is_of_one_of_the_placements_at_least() {
        use SimPlacement::{Autonuma, Balancenuma, Bind, Herd, HerdTasks, Mainline, Off};
        assert_eq!(says(&[Off, Mainline], "swaps"), "");
        assert_eq!(says(&[Bind, Herd], "early"), "");
        assert_eq!(
            says(&[Off, Mainline, Balancenuma], "luck"),
            "--without luck: no such mechanism here; off has none; mainline has groups, swaps, tasks, mappings; \
             balancenuma has limit"
        );
        assert!(says(&[Autonuma], "whole").ends_with("autonuma has limit, tasks"));
        // Not the kernel's that runs beside it, and not what it never had.
        assert!(says(&[Herd], "swaps").contains("herd has pages, interleave, coverage"));
        assert!(says(&[HerdTasks], "pages").contains("herd-tasks has interleave, coverage"));
    }

    #[test]
    fn every_name_can_be_left_out_of_some_placement() {
        let all = all_names();
        assert!(mechanisms::NAMES.iter().chain(&["flips", "mappings"]).all(|n| all.contains(n)));
        for placement in SimPlacement::value_variants() {
            assert!(names(*placement).iter().all(|name| says(&[*placement], name).is_empty()));
        }
    }
}
