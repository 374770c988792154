//! A terminal's other screen, on which each picture replaces the last; what was there before comes back.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use rustix::termios::{LocalModes, SpecialCodeIndex, Termios};

use crate::output;
use crate::terminal::{self, Settings};

/// The other screen without its cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The screen, while we have it.
pub struct Screen {
    /// Keys that come one by one, if there is a keyboard.
    _keys: Option<Settings>,
    quits: Arc<AtomicBool>,
}

impl Screen {
    /// Where results go to a terminal. `stop` is set when the user presses `q`.
    pub fn open(stop: &Arc<AtomicBool>) -> Result<Option<Screen>> {
        if !io::stdout().is_terminal() {
            return Ok(None);
        }
        let has_keys = io::stdin().is_terminal();
        let _keys = has_keys.then(|| Settings::change(key_by_key)).transpose()?;
        let screen = Screen { _keys, quits: Arc::default() };
        if has_keys {
            let (stop, quits) = (Arc::clone(stop), Arc::clone(&screen.quits));
            std::thread::spawn(move || listen(&stop, &quits));
        }
        output::print(ENTER)?;
        Ok(Some(screen))
    }

    /// Whether the user is the one who ends it.
    pub fn quits(&self) -> bool {
        self.quits.load(Ordering::Relaxed)
    }

    /// What fits of a text.
    pub fn draw(&self, text: &str) -> Result<ExitCode> {
        output::print(&picture(text, terminal::size(io::stdout())))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that has gone.
        let _ = output::print(LEAVE);
    }
}

/// Without echo, each read over within a tenth of a second.
fn key_by_key(settings: &mut Termios) {
    settings.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
    // Whoever is stopped by Ctrl-Z would leave this screen to the shell.
    settings.special_codes[SpecialCodeIndex::VSUSP] = 0;
    settings.special_codes[SpecialCodeIndex::VMIN] = 0;
    settings.special_codes[SpecialCodeIndex::VTIME] = 1;
}

/// Waits for the key.
fn listen(stop: &AtomicBool, quits: &AtomicBool) {
    let mut key = [0];
    while !stop.load(Ordering::Relaxed) {
        match rustix::io::read(io::stdin(), &mut key) {
            Ok(1) if key == *b"q" => {
                quits.store(true, Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// From the upper left on, each line cut and the rest of it empty, nothing scrolled.
fn picture(text: &str, (rows, columns): (u16, u16)) -> String {
    let lines = text.lines().take(rows.into());
    let cut = lines.map(|line| line.chars().take(columns.into()).collect::<String>() + "\x1b[K");
    format!("\x1b[H{}\x1b[J", cut.collect::<Vec<_>>().join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_no_larger_than_the_screen() {
        assert_eq!(picture("abc\ndef\nghi\n", (2, 2)), "\x1b[Hab\x1b[K\r\nde\x1b[K\x1b[J");
        assert_eq!(picture("abc\n", (9, 9)), "\x1b[Habc\x1b[K\x1b[J");
    }
}
