//! Why a kernel moved a task or a page: which of its mechanisms did, and what it went by.
//!
//! Told as "name: what it went by", as in "preferred node: 31.2 % more of its faults are there". Shares are per mille.
//! Which kernel has which: the modules of `placement::kernels`; load balancing is the scheduler's.

use std::fmt;

use serde::Serialize;

/// Which mechanism moved a task or a page, on what account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A task goes where most of its faults, or its group's, are (mainline).
    Preferred {
        /// Of the faults, more are there than where it was.
        more: i64,
        /// They are those of its group.
        of_group: bool,
    },
    /// A task goes to another node than that, since that has no room, or its group is active on several (mainline).
    Better {
        /// As above.
        more: i64,
        /// As above.
        of_group: bool,
    },
    /// A task has more of its memory there than whoever runs there, and than where it was (AutoNUMA).
    Weight {
        /// Whose memory it went by.
        whose: Whose,
        /// Share that is there.
        there: i64,
        /// And where it was.
        here: i64,
    },
    /// Most of its process's shared tasks run there (numa/core v17).
    Buddies,
    /// A private task, and more CPUs idle there (numa/core v17).
    IdleNode,
    /// A small group leaves for CPUs that idle (numa/core v18).
    Spread,
    /// A task goes where most of its buddies are (numa/core v18).
    Compress,
    /// A task leaves a node with more tasks than CPUs (numa/core v18).
    Overload,
    /// A private task, and fewer tasks there; or a CPU with fewer, of the same node (numa/core v18).
    Uneven,
    /// A CPU that has nothing to run takes a task that waits.
    IdlePull,
    /// Load balancing evens queues.
    Queues {
        /// NUMA balancing was asked in vain in several rounds, and was no longer.
        forced: bool,
    },
    /// Load balancing sends a task that runs to a CPU that idles.
    Active,
    /// Load is no more even than before, but others wait.
    Rotation,
    /// A task may no longer run where it was.
    Affinity,
    /// A page that no other task used before, while its task is new or has no preferred node (mainline).
    Private,
    /// A page that nobody was seen at before (AutoNUMA).
    FirstFault,
    /// A page that the same node asked for twice running.
    Twice,
    /// A page of which the group asks far more often from there (mainline).
    GroupAsks,
    /// A page of which the group asks more from there, for the memory that it has there (mainline).
    GroupShare,
}

/// Whose memory a weight is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whose {
    /// The task's own, by its faults.
    Task,
    /// Its process's, by the faults of all its tasks.
    Process,
    /// Its process's, by where its pages lie.
    Pages,
}

impl Cause {
    /// The mechanism.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.words().0
    }

    /// The mechanism and, where no figure tells that, what it went by.
    fn words(&self) -> (&'static str, &'static str) {
        match self {
            Cause::Preferred { of_group: false, .. } => ("preferred node", ""),
            Cause::Preferred { of_group: true, .. } => ("group follows, to its preferred node", ""),
            Cause::Better { of_group: false, .. } => ("better node", ""),
            Cause::Better { of_group: true, .. } => ("group follows, to a better node", ""),
            Cause::Weight { .. } => ("weight", ""),
            Cause::Buddies => ("ideal CPU", "most of its process's shared tasks run there"),
            Cause::IdleNode => ("ideal CPU", "it is private, and more CPUs idle there"),
            Cause::Spread => {
                ("spread", "no group where it was is smaller than its own, and CPUs idle there")
            }
            Cause::Compress => ("compression", "most of its buddies are there"),
            Cause::Overload => ("overload", "there were more tasks than CPUs where it was"),
            Cause::Uneven => ("uneven loads", "fewer tasks there"),
            Cause::IdlePull => ("idle pull", "a CPU there had nothing to run"),
            Cause::Queues { forced: false } => ("load balancing", "fewer tasks there"),
            Cause::Queues { forced: true } => (
                "load balancing",
                "fewer tasks there, and NUMA balancing had forbidden it for rounds",
            ),
            Cause::Active => ("active balancing", "a CPU there idled"),
            Cause::Rotation => ("rotation", "others wait, and take turns"),
            Cause::Affinity => ("affinity", "it may not run where it was"),
            Cause::Private => ("private page", "no other task was seen at it, and its task is new"),
            Cause::FirstFault => ("first fault", "nobody was seen at it before"),
            Cause::Twice => ("two references", "asked for twice running from there"),
            Cause::GroupAsks => {
                ("group's page", "its group asks from there more than three times as often")
            }
            Cause::GroupShare => {
                ("group's page", "its group asks more from there, for what memory it has there")
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |permille: i64| format!("{}.{} %", permille.abs() / 10, permille.abs() % 10);
        let (name, words) = self.words();
        match *self {
            Cause::Preferred { more, of_group } | Cause::Better { more, of_group } => {
                let than = if more < 0 { "fewer" } else { "more" };
                let whose = if of_group { "the group's" } else { "its" };
                write!(f, "{name}: {} {than} of {whose} faults are there", percent(more))
            }
            Cause::Weight { whose, there, here } => {
                let of = match whose {
                    Whose::Task => "its faults",
                    Whose::Process => "its process's faults",
                    Whose::Pages => "its process's pages",
                };
                write!(f, "{name}: {} of {of} are there, {} here", percent(there), percent(here))
            }
            _ => write!(f, "{name}: {words}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_with_what_it_went_by() {
        let more = Cause::Preferred { more: 312, of_group: false };
        assert_eq!(more.to_string(), "preferred node: 31.2 % more of its faults are there");
        let fewer = Cause::Better { more: -5, of_group: true };
        assert_eq!(
            fewer.to_string(),
            "group follows, to a better node: 0.5 % fewer of the group's faults are there"
        );
        let weight = Cause::Weight { whose: Whose::Pages, there: 747, here: 253 };
        assert_eq!(
            weight.to_string(),
            "weight: 74.7 % of its process's pages are there, 25.3 % here"
        );
        assert_eq!(Cause::Twice.to_string(), "two references: asked for twice running from there");
    }
}
