//! What became of an action. A partial migration is normal, not an error.

use serde::{Deserialize, Serialize};

use crate::Pages;

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
    },
    /// The kernel refused.
    Refused {
        /// Errno's name and meaning.
        error: String,
    },
    /// The process's memory is to stay where it is.
    LeftAlone {
        /// Why.
        why: String,
    },
    /// Only reporting, not acting.
    DryRun,
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
}
