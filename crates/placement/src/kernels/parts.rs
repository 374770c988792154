//! Mechanisms of a kernel's balancing by name, so that each can be left out to measure what it is worth.
//!
//! A name stands for the same in all that have it: `tasks` is that tasks move, `limit` that at most so much
//! memory comes to a node. What a version never had is none of its mechanisms.

use super::{autonuma, balancenuma, mainline, numacore};

/// The switches of a balancing.
pub trait Parts: Copy {
    /// Every switch that is a mechanism, by its name.
    fn all(&mut self) -> Vec<(&'static str, &mut bool)>;

    /// Names of the mechanisms that are on.
    fn names(mut self) -> Vec<&'static str> {
        self.all().into_iter().filter(|(_, on)| **on).map(|(name, _)| name).collect()
    }

    /// Leaves one out, where it is on.
    fn leave_out(&mut self, name: &str) {
        self.all().into_iter().filter(|(own, _)| *own == name).for_each(|(_, on)| *on = false);
    }
}

impl Parts for mainline::Switches {
    fn all(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![
            ("groups", &mut self.groups),
            ("swaps", &mut self.swaps),
            ("tasks", &mut self.moves_tasks),
            ("mappings", &mut self.skips_mappings),
        ]
    }
}

impl Parts for autonuma::Switches {
    /// Which version it is, is none.
    fn all(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![
            ("whole", &mut self.moves_huge_whole),
            ("limit", &mut self.limits_moves),
            ("tasks", &mut self.moves_tasks),
        ]
    }
}

impl Parts for numacore::Switches {
    fn all(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![
            ("directed", &mut self.directed),
            ("flips", &mut self.flips),
            ("compression", &mut self.compresses),
            ("one-fault", &mut self.one_fault_for_2m),
            ("convergence", &mut self.tracks_convergence),
            ("limit", &mut self.limits_moves),
        ]
    }
}

impl Parts for balancenuma::Switches {
    fn all(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![("limit", &mut self.limits_moves)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each_is_left_out_alone(switches: impl Parts, names: &[&str]) {
        assert_eq!(switches.names(), names);
        for name in names {
            let mut one = switches;
            one.leave_out(name);
            let left: Vec<&str> = names.iter().filter(|other| *other != name).copied().collect();
            assert_eq!(one.names(), left, "without {name}");
        }
    }

    #[test]
    fn every_name_leaves_one_mechanism_out_and_no_other() {
        each_is_left_out_alone(
            mainline::Switches::default(),
            &["groups", "swaps", "tasks", "mappings"],
        );
        let whole = autonuma::Switches { moves_huge_whole: true, ..Default::default() };
        each_is_left_out_alone(whole, &["whole", "limit", "tasks"]);
        each_is_left_out_alone(autonuma::Switches::default(), &["limit", "tasks"]);
        let v18 = ["directed", "flips", "compression", "one-fault", "convergence"];
        each_is_left_out_alone(numacore::Switches::v18(), &v18);
        each_is_left_out_alone(balancenuma::Switches { limits_moves: true }, &["limit"]);
        // v17 has none of what v18 has, and the limit is of neither.
        each_is_left_out_alone(numacore::Switches::v17(), &[]);
    }
}
