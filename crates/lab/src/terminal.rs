//! A pseudo-terminal in the guest: what `lab shell` runs its command on.
//!
//! The agent keeps the master's side, the command gets the other as input and outputs. Reading
//! from the master fails once nobody has the other side open; that is the end of the output.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::wire::TerminalSize;

/// One pseudo-terminal.
pub struct Terminal {
    master: File,
    path: PathBuf,
}

impl Terminal {
    /// A new one of this size.
    ///
    /// # Errors
    /// The kernel has no more, or devpts is not mounted.
    pub fn open(size: TerminalSize) -> io::Result<Terminal> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let terminal = Terminal { master: File::from(master), path };
        terminal.resize(size)?;
        Ok(terminal)
    }

    /// The command's side, three times: input, output, errors.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn command_side(&self) -> io::Result<[File; 3]> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOCTTY.bits().cast_signed();
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(&self.path)?;
        Ok([file.try_clone()?, file.try_clone()?, file])
    }

    /// What the command writes.
    ///
    /// # Errors
    /// Too many open files.
    pub fn reader(&self) -> io::Result<File> {
        self.master.try_clone()
    }

    /// Tells the command's side its size.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&self.master, size)?)
    }

    /// What the user types.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.master.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_is_typed_arrives_and_what_is_written_comes_back() {
        let mut terminal = Terminal::open(TerminalSize { rows: 33, columns: 99 }).unwrap();
        let [mut input, mut output, _] = terminal.command_side().unwrap();
        let size = rustix::termios::tcgetwinsize(&input).unwrap();
        assert_eq!((size.ws_row, size.ws_col), (33, 99));
        terminal.write_all(b"typed\n").unwrap();
        let mut buffer = [0; 64];
        let length = input.read(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"typed\n");
        output.write_all(b"answer\n").unwrap();
        let mut reader = terminal.reader().unwrap();
        let mut back = Vec::new();
        while !back.ends_with(b"answer\r\n") {
            let length = reader.read(&mut buffer).unwrap();
            back.extend_from_slice(&buffer[..length]);
        }
        // the terminal echoes what is typed
        assert!(back.starts_with(b"typed\r\n"), "{back:?}");
    }
}
