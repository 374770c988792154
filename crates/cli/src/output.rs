//! Results on standard output, in the form asked for.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};

/// Prints a result.
pub fn print(text: &str) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has seen enough is no error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot print the result")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// A result as JSON, with the newline.
pub fn json(value: &impl serde::Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
