//! The undo journal: every change, written down before it is made.
//!
//! One file a run, `NAME.journal`, in a state folder that does not survive a reboot. A line is
//! written with one `write`, so a process that is killed leaves at most a torn last line, of a
//! change that was not made. Undoing is done by whoever can reach the machine; this module
//! finds the files and says what they hold.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use numaherd_model::{Change, Journal, Nanos};

use crate::event::{Event, Line, VERSION};

/// A journal being written.
#[derive(Debug)]
pub struct FileJournal {
    path: PathBuf,
    file: File,
    begin: Instant,
}

/// Ending of journals' names.
const ENDING: &str = "journal";

/// The folder for journals: `$NUMAHERD_STATE`, else `/run/numaherd` for root, else
/// `$XDG_RUNTIME_DIR/numaherd`, else one below the temporary folder.
#[must_use]
pub fn state_dir(is_root: bool) -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("NUMAHERD_STATE").unwrap_or_else(|| {
        if is_root {
            return PathBuf::from("/run/numaherd");
        }
        from("XDG_RUNTIME_DIR").unwrap_or_else(std::env::temp_dir).join("numaherd")
    })
}

impl FileJournal {
    /// Begins a journal; `begin` is its first line.
    ///
    /// # Errors
    /// The folder or the file cannot be written, or a journal of this run exists.
    pub fn create(dir: &Path, run: &str, begin: Event) -> io::Result<FileJournal> {
        std::fs::create_dir_all(dir)?;
        let path = dir.join(run).with_extension(ENDING);
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        let mut journal = FileJournal { path, file, begin: Instant::now() };
        journal.append(begin)?;
        Ok(journal)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its changes are to stay: only asked for by name are they undone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&mut self) -> io::Result<()> {
        self.append(Event::End { kept: true })
    }

    fn append(&mut self, event: Event) -> io::Result<()> {
        let t = Nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let text = Line { v: VERSION, t, event }.text()?;
        self.file.write_all(text.as_bytes())
    }
}

impl Journal for FileJournal {
    fn before(&mut self, change: &Change) -> io::Result<()> {
        self.append(Event::Before(change.clone()))
    }
}

/// A journal that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// Its file.
    pub path: PathBuf,
    /// The run's id.
    pub run: String,
    /// The boot it belongs to.
    pub boot: String,
    /// Process that made the changes.
    pub pid: u32,
    /// Its start time.
    pub start: u64,
    /// What it looked after.
    pub about: String,
    /// Left in place on purpose.
    pub kept: bool,
    /// Changes, oldest first.
    pub changes: Vec<Change>,
}

impl LeftBehind {
    /// Reads a journal; `None` where it has no readable first line (then nothing was changed).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(path: &Path) -> io::Result<Option<LeftBehind>> {
        let text = String::from_utf8_lossy(&std::fs::read(path)?).into_owned();
        let mut lines = Line::read_all(&text).into_iter();
        let Some(Event::Begin { run, boot, pid, start, about }) = lines.next().map(|l| l.event)
        else {
            return Ok(None);
        };
        let (mut kept, mut changes) = (false, Vec::new());
        for line in lines {
            match line.event {
                Event::Before(change) => changes.push(change),
                Event::End { kept: on_purpose } => kept = on_purpose,
                _ => {}
            }
        }
        Ok(Some(LeftBehind { path: path.into(), run, boot, pid, start, about, kept, changes }))
    }

    /// All journals in the folder, by name.
    ///
    /// # Errors
    /// The folder exists and cannot be read.
    pub fn find(dir: &Path) -> io::Result<Vec<LeftBehind>> {
        let entries = match std::fs::read_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|e| e == ENDING)).collect();
        paths.sort();
        let mut found = Vec::new();
        for path in paths {
            found.extend(LeftBehind::read(&path)?);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin() -> Event {
        Event::Begin { run: "r1".into(), boot: "b".into(), pid: 7, start: 8, about: "sleep".into() }
    }

    fn knob(after: &str) -> Change {
        Change::Knob { path: "/proc/sys/x".into(), before: "0".into(), after: after.into() }
    }

    #[test]
    fn what_was_written_before_a_kill_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = FileJournal::create(dir.path(), "r1", begin()).unwrap();
        journal.before(&knob("1")).unwrap();
        journal.before(&knob("2")).unwrap();
        assert!(!LeftBehind::find(dir.path()).unwrap()[0].kept);
        journal.keep().unwrap();
        assert!(LeftBehind::find(dir.path()).unwrap()[0].kept);
        let mut torn = OpenOptions::new().append(true).open(journal.path()).unwrap();
        torn.write_all(b"{\"v\":1,\"t\":3,\"ev").unwrap();
        let found = LeftBehind::find(dir.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].pid, found[0].changes.clone()), (7, vec![knob("1"), knob("2")]));
        assert!(FileJournal::create(dir.path(), "r1", begin()).is_err());
    }

    #[test]
    fn no_folder_means_nothing_left_and_an_empty_journal_changed_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(LeftBehind::find(&dir.path().join("none")).unwrap(), []);
        std::fs::write(dir.path().join("x.journal"), "").unwrap();
        assert_eq!(LeftBehind::find(dir.path()).unwrap(), []);
    }
}
