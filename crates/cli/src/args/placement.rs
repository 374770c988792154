//! The placements of a comparison: those of a kernel that runs, those that only the simulator has, and
//! those of both.

use std::str::FromStr;

use anyhow::Result;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::SimPlacement;
use crate::output::Misuse;

/// A placement that a kernel which runs can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// Kernel balancing off, nothing done
    #[value(aliases = ["default", "upstream"])]
    Off,
    /// The kernel's automatic NUMA balancing
    Kernel,
    /// The natural static placement
    Bind,
    /// Its mirror
    Inverse,
    /// Memory interleaved over all nodes with CPUs
    Interleave,
    /// Debian's numad, beside the kernel's balancing; for processes above 300 MB
    Numad,
    /// Ours
    Herd,
    /// Ours without its page moves
    HerdTasks,
    /// Ours without --tune-kernel: the kernel scans as it does by itself
    HerdUntuned,
}

impl Placement {
    /// Whether the kernel's balancing is on. Beside numad it is: neither its package nor its unit
    /// touches the setting, and the kernels it is used on have it on.
    pub fn wants_faults(self) -> bool {
        matches!(self, Placement::Kernel | Placement::Numad) || self.balance().is_some()
    }

    /// Whether it writes a log.
    pub fn has_log(self) -> bool {
        self == Placement::Numad || self.balance().is_some()
    }

    /// Which of balance's placements it is, if any.
    pub fn balance(self) -> Option<&'static str> {
        match self {
            Placement::Herd | Placement::HerdUntuned => Some("herd"),
            Placement::HerdTasks => Some("herd-tasks"),
            _ => None,
        }
    }

    /// Whether balance sets the kernel's knobs.
    pub fn tunes(self) -> bool {
        self.balance().is_some() && self != Placement::HerdUntuned
    }

    /// How the workload ties itself.
    pub fn tie(self) -> &'static str {
        match self {
            Placement::Bind => "bind",
            Placement::Inverse => "inverse",
            Placement::Interleave => "interleave",
            _ => "free",
        }
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_name(self, f)
    }
}

/// A placement by its name: what that is on a kernel that runs, and what it is in the simulator. One of
/// the two is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    live: Option<Placement>,
    simulated: Option<SimPlacement>,
}

impl Compared {
    /// Takes every name of either.
    pub fn parser() -> impl TypedValueParser<Value = Compared> {
        let live = names::<Placement>();
        let only_simulated =
            |value: &PossibleValue| live.iter().all(|live| live.get_name() != value.get_name());
        let told = |value: PossibleValue| {
            let help = value.get_help().map_or_else(String::new, ToString::to_string);
            value.help(format!("{help} (--on sim:MACHINE only)"))
        };
        let simulated = names::<SimPlacement>().into_iter().filter(only_simulated).map(told);
        let all: Vec<PossibleValue> = live.iter().cloned().chain(simulated).collect();
        PossibleValuesParser::new(all).try_map(|name| name.parse())
    }

    /// What it is on a kernel that runs.
    pub fn live(self) -> Result<Placement> {
        let known = || {
            Misuse(format!(
                "{self} is only simulated: give --on sim:MACHINE, or some of {}",
                list::<Placement>()
            ))
        };
        Ok(self.live.ok_or_else(known)?)
    }

    fn name(self) -> Option<PossibleValue> {
        let simulated = || self.simulated.and_then(|simulated| simulated.to_possible_value());
        self.live.and_then(|live| live.to_possible_value()).or_else(simulated)
    }

    /// Refuses [`twice`].
    pub fn each_once(all: &[Compared]) -> Result<()> {
        twice(all.iter().map(|compared| compared.name()))
    }

    /// What it is in the simulator.
    pub fn simulated(self) -> Result<SimPlacement> {
        let known = || {
            Misuse(format!(
                "{self} is not simulated: leave out --on, or give some of {}",
                list::<SimPlacement>()
            ))
        };
        Ok(self.simulated.ok_or_else(known)?)
    }
}

impl FromStr for Compared {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let live = Placement::from_str(name, false).ok();
        let simulated = SimPlacement::from_str(name, false).ok();
        match (live, simulated) {
            (None, None) => Err(format!("no placement: {name}")),
            _ => Ok(Compared { live, simulated }),
        }
    }
}

impl std::fmt::Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.live, self.simulated) {
            (Some(live), _) => live.fmt(f),
            (None, Some(simulated)) => simulated.fmt(f),
            (None, None) => Ok(()),
        }
    }
}

/// Refuses a placement that is given twice, be it under another of its names: one name stands for one
/// placement in all that is printed, so the runs of both would be told as those of one.
pub(super) fn twice(placements: impl Iterator<Item = Option<PossibleValue>>) -> Result<()> {
    let mut seen: Vec<String> = Vec::new();
    for value in placements.flatten() {
        let name = value.get_name().to_string();
        if seen.contains(&name) {
            let others: Vec<&str> = value.get_name_and_aliases().skip(1).collect();
            let same = match &others[..] {
                [] => String::new(),
                [one] => format!(" ({one} means the same)"),
                others => format!(" ({} mean the same)", others.join(" and ")),
            };
            misuse!(
                "placement {name} is given twice{same}: give it once, and --runs for more runs"
            );
        }
        seen.push(name);
    }
    Ok(())
}

/// Writes a value as the command line has it.
pub fn write_name(value: &impl ValueEnum, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    let value = value.to_possible_value();
    f.write_str(value.as_ref().map_or("", |value| value.get_name()))
}

fn names<T: ValueEnum>() -> Vec<PossibleValue> {
    T::value_variants().iter().filter_map(T::to_possible_value).collect()
}

fn list<T: ValueEnum>() -> String {
    names::<T>().iter().map(PossibleValue::get_name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_of_a_kernel_that_runs_or_of_the_simulator_or_of_both() {
        let of = |name: &str| name.parse::<Compared>().unwrap();
        let told = |name: &str| {
            let found = of(name);
            (found.to_string(), found.live().is_ok(), found.simulated().ok())
        };
        assert_eq!(told("kernel"), ("kernel".into(), true, Some(SimPlacement::Mainline)));
        assert_eq!(told("mainline"), ("mainline".into(), false, Some(SimPlacement::Mainline)));
        assert_eq!(told("default"), ("off".into(), true, Some(SimPlacement::Off)));
        assert_eq!(told("numad"), ("numad".into(), true, None));
        assert!("fastest".parse::<Compared>().is_err());
        for name in names::<Placement>().iter().chain(&names::<SimPlacement>()) {
            for name in name.get_name_and_aliases() {
                let found = of(name);
                assert!(found.live().is_ok() || found.simulated().is_ok(), "{name}");
            }
        }
        let says = of("mainline").live().unwrap_err().to_string();
        assert!(says.contains("--on sim:MACHINE") && says.contains("numad"), "{says}");
    }
}
