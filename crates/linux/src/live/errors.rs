//! What went wrong, as the loop is told.

use numaherd_model::{Outcome, SkipReason, WorldError};

use crate::ReadError;
use crate::sys::SysError;

/// Why something was not done to a task.
pub fn skipped(error: &SysError) -> Outcome {
    let gone = error.is_gone();
    Outcome::Skipped(if gone {
        SkipReason::Gone
    } else {
        SkipReason::Refused { error: error.to_string() }
    })
}

/// Faults cannot be read.
pub fn unheard(source: std::io::Error) -> WorldError {
    WorldError::Read { what: "hinting faults".into(), source }
}

/// A file of the kernel's cannot be read.
pub fn read_error(error: ReadError) -> WorldError {
    match error {
        ReadError::Read { path, source } => {
            WorldError::Read { what: path.display().to_string(), source }
        }
        ReadError::Parse { ref path, .. } => {
            let what = path.display().to_string();
            WorldError::Read { what, source: std::io::Error::other(error) }
        }
    }
}
