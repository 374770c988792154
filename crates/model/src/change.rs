//! A change to the machine that outlives us unless it is undone, and where it is written down
//! before it is made.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{CpuSet, ProcessId, TaskId};

/// One change, with what was there before and what we put there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    /// The CPUs a task may run on.
    Affinity {
        /// Who.
        task: TaskId,
        /// Its process.
        process: ProcessId,
        /// What its owner allowed.
        before: CpuSet,
        /// What we allow.
        after: CpuSet,
    },
    /// A sysctl, or a knob in debugfs.
    Knob {
        /// Its file.
        path: PathBuf,
        /// Its text before, without the newline.
        before: String,
        /// Our text.
        after: String,
    },
}

/// Where changes are written down before they are made.
pub trait Journal {
    /// Writes a change down. Once this returns, the change may be made.
    ///
    /// # Errors
    /// It could not be written: then the change must not be made.
    fn before(&mut self, change: &Change) -> io::Result<()>;
}
