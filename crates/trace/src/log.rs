//! A run's log: every action with its reason and outcome, as it happens.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use numaherd_model::Nanos;

use crate::event::{Event, Line, VERSION};

/// A log being written; lines are flushed one by one.
#[derive(Debug)]
pub struct RunLog {
    file: Option<File>,
    begin: Instant,
    bytes: u64,
}

/// A log ends here: a run may go on for months. Guessed.
const MOST_BYTES: u64 = 64 << 20;

/// A new file, or an emptied one, that only its owner may read.
///
/// # Errors
/// It cannot be created.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

impl RunLog {
    /// Writes to a new file that only its owner may read, or nowhere.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: Option<&Path>) -> io::Result<RunLog> {
        let file = path.map(create_private).transpose()?;
        Ok(RunLog { file, begin: Instant::now(), bytes: 0 })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// The file cannot be written; the log is closed then, what is in it stays.
    pub fn record(&mut self, event: Event) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let t = Nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let text = Line { v: VERSION, t, event }.text()?;
        self.bytes += text.len() as u64;
        if self.bytes > MOST_BYTES {
            self.file = None;
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is 64 MiB long"));
        }
        let written = file.write_all(text.as_bytes());
        if written.is_err() {
            self.file = None;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_once_and_then_the_run_goes_on() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let mut log = RunLog {
            file: Some(File::options().write(true).open(full).unwrap()),
            begin: Instant::now(),
            bytes: 0,
        };
        assert!(log.record(Event::End { kept: false }).is_err());
        assert!(log.record(Event::End { kept: false }).is_ok());
    }

    #[test]
    fn a_log_is_its_owners_only_and_ends_before_it_fills_the_disk() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.jsonl");
        let mut log = RunLog::create(Some(&path)).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        log.record(Event::End { kept: true }).unwrap();
        log.bytes = MOST_BYTES;
        assert!(log.record(Event::End { kept: true }).is_err());
        log.record(Event::End { kept: true }).unwrap();
        assert_eq!(Line::read_all(&std::fs::read_to_string(&path).unwrap()).len(), 1);
    }
}
