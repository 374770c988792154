//! Starting the command that a user gave.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::process::Command;

use numaherd_linux::sys::signal;

/// A command with these arguments, which begins as it would without us.
pub fn command(program: impl AsRef<OsStr>, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    signal::inherit_pipes(&mut command);
    command
}

/// It could not be started: whoever gave it is told so with the code that shells have for that.
#[derive(Debug, thiserror::Error)]
#[error("cannot start '{program}'")]
pub struct NotStarted {
    program: String,
    source: io::Error,
}

impl NotStarted {
    /// This command, for this.
    pub fn new(command: &Command, source: io::Error) -> NotStarted {
        NotStarted { program: command.get_program().to_string_lossy().into_owned(), source }
    }

    /// See [`code`].
    pub fn code(&self) -> u8 {
        code(&self.source)
    }
}

/// 127 where there is no such program, and 126 where there is, but it is none.
pub fn code(error: &io::Error) -> u8 {
    if error.kind() == ErrorKind::NotFound { 127 } else { 126 }
}

/// The system's words without Rust's "(os error N)".
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}
