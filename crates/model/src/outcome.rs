//! What became of an action, as data and in words. A partial migration is normal, not an error.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{NodeId, Pages, counted};

/// Why pages stayed: the classes of `move_pages`' per-page errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Busy for now (EBUSY, EAGAIN).
    pub busy: u64,
    /// Mapped by several processes, and we may not move those (EACCES).
    pub shared: u64,
    /// No room on the destination (ENOMEM).
    pub full: u64,
    /// Never touched (ENOENT): nothing to move.
    pub absent: u64,
    /// Anything else.
    pub other: u64,
}

/// A move counts as done when less than one page in this many stayed. Guessed.
const FEW: u64 = 20;

impl Refusal {
    /// Pages that are there and stayed.
    #[must_use]
    pub fn stayed(&self) -> u64 {
        self.busy + self.shared + self.full + self.other
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { busy, shared, full, absent, other } = *self;
        let each = [
            (busy, "in use at that moment"),
            (shared, "mapped by several processes"),
            (full, "for want of room there"),
            (absent, "never touched"),
            (other, "for another reason"),
        ];
        let mut told = each.iter().filter(|(pages, _)| *pages > 0);
        match told.next() {
            Some((pages, why)) => write!(f, "{pages} {why}")?,
            None => return write!(f, "none"),
        }
        told.try_for_each(|(pages, why)| write!(f, ", {pages} {why}"))
    }
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "skipped", rename_all = "kebab-case")]
pub enum SkipReason {
    /// The task or process ended meanwhile.
    Gone,
    /// Its owner changed the affinity meanwhile.
    OwnerChanged,
    /// Refused by a check that runs just before acting.
    Checked {
        /// What the check found.
        problem: String,
        /// The node that is short of memory, where that is why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        short: Option<NodeId>,
    },
    /// The kernel refused.
    Refused {
        /// Errno's name and meaning.
        error: String,
    },
    /// The process's memory may not be on that node, whenever it is tried.
    Forbidden {
        /// Which.
        node: NodeId,
    },
    /// The process's memory is to stay where it is.
    LeftAlone {
        /// Why.
        why: String,
    },
    /// This part of the process's memory is to stay where it is for now.
    Held {
        /// Why.
        why: String,
    },
    /// Only reporting, not acting.
    DryRun,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SkipReason::Gone => write!(f, "it had ended"),
            SkipReason::OwnerChanged => {
                write!(f, "its owner had changed its CPUs, so it is the owner's")
            }
            SkipReason::Checked { problem, .. } => write!(f, "the check refused: {problem}"),
            SkipReason::Refused { error } => write!(f, "the kernel refused: {error}"),
            SkipReason::Forbidden { node } => write!(
                f,
                "its memory may not be on node {node} (cpuset.mems of its control group), and is not sent there again"
            ),
            SkipReason::LeftAlone { why } => write!(f, "its memory is left alone: {why}"),
            SkipReason::Held { why } => write!(f, "it stays where it is for now: {why}"),
            SkipReason::DryRun => write!(f, "this was a dry run"),
        }
    }
}

/// What became of one action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// All of it.
    Done {
        /// Pages moved; 0 for tasks.
        moved: Pages,
    },
    /// A part.
    Partial {
        /// Pages moved.
        moved: Pages,
        /// Pages that stayed.
        refused: Refusal,
    },
    /// Nothing.
    Skipped(SkipReason),
}

impl Outcome {
    /// Pages this action moved.
    #[must_use]
    pub fn moved(&self) -> Pages {
        match self {
            Outcome::Done { moved } | Outcome::Partial { moved, .. } => *moved,
            Outcome::Skipped(_) => Pages(0),
        }
    }

    /// Whether it was done but for a few pages: less than one in twenty stayed.
    #[must_use]
    pub fn is_as_good_as_done(&self) -> bool {
        match self {
            Outcome::Done { .. } => true,
            Outcome::Partial { moved, refused } => moved.0 > FEW * refused.stayed(),
            Outcome::Skipped(_) => false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done { moved } if moved.0 > 0 => {
                write!(f, "done, {} moved", counted(moved, "page"))
            }
            Outcome::Done { .. } => write!(f, "done"),
            Outcome::Partial { moved, refused } => {
                write!(f, "{} moved; stayed: {refused}", counted(moved, "page"))
            }
            Outcome::Skipped(reason) => write!(f, "not done: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_words() {
        let some = Refusal { busy: 12, absent: 1, ..Refusal::default() };
        let skipped = |reason| Outcome::Skipped(reason).to_string();
        for (told, words) in [
            (Outcome::Done { moved: Pages(0) }.to_string(), "done"),
            (Outcome::Done { moved: Pages(3) }.to_string(), "done, 3 pages moved"),
            (Outcome::Done { moved: Pages(1) }.to_string(), "done, 1 page moved"),
            (
                Outcome::Partial { moved: Pages(500), refused: some }.to_string(),
                "500 pages moved; stayed: 12 in use at that moment, 1 never touched",
            ),
            (skipped(SkipReason::Gone), "not done: it had ended"),
            (skipped(SkipReason::DryRun), "not done: this was a dry run"),
            (
                skipped(SkipReason::Forbidden { node: NodeId(3) }),
                "not done: its memory may not be on node 3 (cpuset.mems of its control group), and is not \
                 sent there again",
            ),
            (
                skipped(SkipReason::Refused { error: "no room on the node".into() }),
                "not done: the kernel refused: no room on the node",
            ),
        ] {
            assert_eq!(told, words);
        }
        assert_eq!((Refusal::default().to_string(), some.stayed()), ("none".into(), 12));
    }
}
