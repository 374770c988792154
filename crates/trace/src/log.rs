//! A run's log: every action with its reason and outcome, as it happens.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use numaherd_model::Nanos;

use crate::event::{Event, Line, VERSION};

/// A log being written; lines are flushed one by one.
#[derive(Debug)]
pub struct RunLog {
    file: Option<File>,
    begin: Instant,
}

impl RunLog {
    /// Writes to a new file, or nowhere.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: Option<&Path>) -> io::Result<RunLog> {
        Ok(RunLog { file: path.map(File::create).transpose()?, begin: Instant::now() })
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
        };
        assert!(log.record(Event::End { kept: false }).is_err());
        assert!(log.record(Event::End { kept: false }).is_ok());
    }
}
