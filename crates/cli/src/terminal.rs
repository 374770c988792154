//! The settings of the user's terminal.

use std::io;

use anyhow::{Context, Result};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Other settings; those of before are back once this is dropped.
pub struct Settings {
    before: Termios,
}

impl Settings {
    /// Of the terminal that is standard input.
    pub fn change(how: impl FnOnce(&mut Termios)) -> Result<Settings> {
        let before = tcgetattr(io::stdin()).context("cannot read the terminal's settings")?;
        let mut changed = before.clone();
        how(&mut changed);
        tcsetattr(io::stdin(), OptionalActions::Now, &changed)
            .context("cannot set the terminal")?;
        Ok(Settings { before })
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // A terminal that is gone needs no settings.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
