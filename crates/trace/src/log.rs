//! A run's log: every action with its reason and outcome, as it happens.
//!
//! A run may go on for months. A log that has grown long is put aside, in place of what was put aside before, and begun
//! anew with what it began with: so the newest is there, and no more than [`MOST_BYTES`] of it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use numaherd_model::Nanos;

use crate::event::{Event, Line, VERSION};

/// A log being written; lines are flushed one by one.
#[derive(Debug)]
pub struct RunLog {
    file: Option<File>,
    /// Where it is, if it can be put aside: a pipe cannot.
    path: Option<PathBuf>,
    begin: Instant,
    /// What it began with.
    opening: Option<Event>,
    bytes: u64,
}

/// What a log takes, with what was put aside of it. Guessed.
const MOST_BYTES: u64 = 64 << 20;

/// Where what was put aside of a log is.
#[must_use]
pub fn put_aside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".old");
    name.into()
}

/// All that there is of a log, the oldest first: of a regular file also what was put aside.
///
/// # Errors
/// It cannot be read.
pub fn read_log(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let there = file.metadata()?;
    let mut all = Vec::new();
    if there.is_file()
        && let Ok(mut old) = File::open(put_aside(path))
    {
        // Put aside since it was opened, it would be read twice.
        let aside = old.metadata()?;
        if aside.is_file() && (aside.dev(), aside.ino()) != (there.dev(), there.ino()) {
            old.read_to_end(&mut all)?;
        }
    }
    file.read_to_end(&mut all)?;
    Ok(all)
}

/// A new file, or an emptied one, that only its owner may read.
///
/// # Errors
/// It cannot be created.
pub fn create_private(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    // One that was there keeps its mode; of a pipe or a terminal that is nobody's business.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.set_len(0)?;
    }
    Ok(file)
}

impl RunLog {
    /// Writes to a new file that only its owner may read, or nowhere.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: Option<&Path>) -> io::Result<RunLog> {
        let file = path.map(create_private).transpose()?;
        let regular =
            file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|it| it.is_file()));
        let path = path.filter(|_| regular).map(Path::to_path_buf);
        Ok(RunLog { file, path, begin: Instant::now(), opening: None, bytes: 0 })
    }

    /// Appends an event. The first is what each part of it begins with.
    ///
    /// # Errors
    /// The file cannot be written, or put aside; the log is closed then, what is in it stays.
    pub fn record(&mut self, event: Event) -> io::Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        let written = self.append(event);
        if written.is_err() {
            self.file = None;
        }
        written
    }

    fn append(&mut self, event: Event) -> io::Result<()> {
        if self.opening.is_none() {
            self.opening = Some(event.clone());
        }
        let line = self.line(event)?;
        let is_long = self.bytes + line.len() as u64 > MOST_BYTES / 2;
        if let Some(path) = self.path.as_ref().filter(|_| is_long) {
            match std::fs::rename(path, put_aside(path)) {
                // Somebody else put it away.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                renamed => renamed?,
            }
            self.file = Some(create_private(path)?);
            self.bytes = 0;
            if let Some(opening) = self.opening.clone() {
                let opening = self.line(opening)?;
                self.write(&opening)?;
            }
        }
        self.write(&line)
    }

    fn line(&self, event: Event) -> io::Result<String> {
        let t = Nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Line { v: VERSION, t, event }.text()
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        self.bytes += line.len() as u64;
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(line.as_bytes()))
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
        let mut log = RunLog::create(Some(full)).unwrap();
        assert!(log.record(Event::End { kept: false }).is_err());
        assert!(log.record(Event::End { kept: false }).is_ok());
    }

    fn begin() -> Event {
        let [run, boot, about] = ["9-9", "b", "sleep 9"].map(String::from);
        Event::Begin { run, boot, pid: 9, start: 9, about, tunes: false }
    }

    fn read(path: &Path) -> Vec<Event> {
        let text = String::from_utf8(read_log(path).unwrap()).unwrap();
        Line::read_all(&text).into_iter().map(|line| line.event).collect()
    }

    #[test]
    fn a_log_is_its_owners_only_and_keeps_the_newest_of_what_is_too_long() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.jsonl");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let mut log = RunLog::create(Some(&path)).unwrap();
        log.record(begin()).unwrap();
        assert_eq!((mode(), put_aside(&path).exists()), (0o600, false));
        // A line each in three parts: the first is gone.
        for version in 1..=3 {
            log.bytes = if version == 1 { log.bytes } else { MOST_BYTES / 2 };
            log.record(Event::End { kept: version > 1 }).unwrap();
        }
        log.record(Event::End { kept: false }).unwrap();
        let end = |kept| Event::End { kept };
        assert_eq!(read(&path), [begin(), end(true), begin(), end(true), end(false)]);
        assert_eq!(mode(), 0o600);
        // One that somebody takes away goes on as well.
        std::fs::remove_file(&path).unwrap();
        log.bytes = MOST_BYTES / 2;
        log.record(end(true)).unwrap();
        assert_eq!(read(&path), [begin(), end(true), begin(), end(true)]);
        // Where there is no folder any more it ends, and that is told once.
        drop(dir);
        log.bytes = MOST_BYTES / 2;
        assert!(log.record(end(true)).is_err() && log.record(end(true)).is_ok());
    }

    #[test]
    fn what_cannot_be_put_aside_has_no_end() {
        let mut log = RunLog::create(Some(Path::new("/dev/null"))).unwrap();
        log.bytes = MOST_BYTES;
        log.record(begin()).unwrap();
        assert!(log.file.is_some() && !put_aside(Path::new("/dev/null")).exists());
    }
}
