//! The settings of the user's terminal, and its size.

use std::io;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Rows and columns where a terminal does not tell both: what terminals always were.
const USUAL: (u16, u16) = (24, 80);

/// Rows and columns of a terminal.
pub fn size(terminal: impl AsFd) -> (u16, u16) {
    told(tcgetwinsize(terminal).map_or((0, 0), |size| (size.ws_row, size.ws_col)))
}

/// A serial line tells zeros, and a size that was set by half says nothing of its other half.
fn told((rows, columns): (u16, u16)) -> (u16, u16) {
    if rows == 0 || columns == 0 { USUAL } else { (rows, columns) }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_without_rows_or_columns_is_the_usual_one() {
        assert_eq!(told((50, 132)), (50, 132));
        assert_eq!([(0, 0), (50, 0), (0, 132)].map(told), [USUAL; 3]);
        let (no_terminal, _writer) = io::pipe().unwrap();
        assert_eq!(size(no_terminal), USUAL);
    }
}
