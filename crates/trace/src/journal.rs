//! The undo journal: every change, written down before it is made.
//!
//! One file a run, `NAME.journal`, in a state folder that does not survive a reboot. A line is
//! written with one `write`, so a process that is killed leaves at most a torn last line, of a
//! change that was not made. Undoing is done by whoever can reach the machine; this module
//! finds the files and says what they hold.
//!
//! A journal says what to write where, so one that somebody else put there is not read: the folder
//! is its user's alone, and so are the files.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
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
/// `$XDG_RUNTIME_DIR/numaherd`, else one below the temporary folder that has the user's number in
/// its name: others have theirs there too.
#[must_use]
pub fn state_dir(user: u32) -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("NUMAHERD_STATE").unwrap_or_else(|| {
        if user == 0 {
            return PathBuf::from("/run/numaherd");
        }
        match from("XDG_RUNTIME_DIR") {
            Some(dir) => dir.join("numaherd"),
            None => std::env::temp_dir().join(format!("numaherd-{user}")),
        }
    })
}

impl FileJournal {
    /// Begins a journal of this user; `begin` is its first line.
    ///
    /// # Errors
    /// The folder or the file cannot be written, the folder is somebody else's, or a journal of
    /// this run exists.
    pub fn create(dir: &Path, user: u32, run: &str, begin: Event) -> io::Result<FileJournal> {
        make_folder(dir, user)?;
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

/// Makes the folder for journals where it is not there, closed to others.
fn make_folder(dir: &Path, user: u32) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    check_owner(dir, user)
}

/// Makes sure that a folder is this user's.
///
/// # Errors
/// It is somebody else's, or not there.
pub fn check_owner(dir: &Path, user: u32) -> io::Result<()> {
    let owner = std::fs::metadata(dir)?.uid();
    if owner != user {
        return Err(io::Error::other(format!(
            "it is user {owner}'s, not ours: name another folder in NUMAHERD_STATE"
        )));
    }
    Ok(())
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
    /// It sets the kernel's knobs as it goes.
    pub tunes: bool,
    /// Left in place on purpose.
    pub kept: bool,
    /// Changes, oldest first, and when each was written down, since the journal's begin.
    pub changes: Vec<(Nanos, Change)>,
}

impl LeftBehind {
    /// Reads a journal; `None` where it has no readable first line (then nothing was changed).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(path: &Path) -> io::Result<Option<LeftBehind>> {
        let text = String::from_utf8_lossy(&std::fs::read(path)?).into_owned();
        let mut lines = Line::read_all(&text).into_iter();
        let Some(Event::Begin { run, boot, pid, start, about, tunes }) = lines.next().map(|l| l.event)
        else {
            return Ok(None);
        };
        let (mut kept, mut changes) = (false, Vec::new());
        for line in lines {
            match line.event {
                Event::Before(change) => changes.push((line.t, change)),
                Event::End { kept: on_purpose } => kept = on_purpose,
                _ => {}
            }
        }
        let path = path.into();
        Ok(Some(LeftBehind { path, run, boot, pid, start, about, tunes, kept, changes }))
    }

    /// The same with the machine's settings only: tasks stay where they are.
    #[must_use]
    pub fn settings(mut self) -> LeftBehind {
        self.changes.retain(|(_, change)| matches!(change, Change::Knob { .. }));
        self
    }

    /// All journals of this user in the folder, by name.
    ///
    /// # Errors
    /// The folder exists and cannot be read.
    pub fn find(dir: &Path, user: u32) -> io::Result<Found> {
        let entries = match std::fs::read_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::default()),
            other => other?,
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let is_own = |path: &PathBuf| {
            let found = std::fs::symlink_metadata(path);
            found.is_ok_and(|found| found.is_file() && found.uid() == user)
        };
        let mut paths: Vec<PathBuf> = paths
            .filter(|path| path.extension().is_some_and(|e| e == ENDING) && is_own(path))
            .collect();
        paths.sort();
        Ok(Found::read(paths))
    }
}

/// Journals in a folder.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that could be read.
    pub journals: Vec<LeftBehind>,
    /// Those that could not, and why: they do not keep us from the others.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

impl Found {
    fn read(paths: Vec<PathBuf>) -> Found {
        let mut found = Found::default();
        for path in paths {
            match LeftBehind::read(&path) {
                Ok(left) => found.journals.extend(left),
                // Its run has put everything back since the folder was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => found.unreadable.push((path, error)),
            }
        }
        found
    }
}

/// Removes a journal. That another was quicker (a supervisor, another start) is no error.
///
/// # Errors
/// It is there and cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use numaherd_model::{ProcessId, TaskId};

    use super::*;

    /// Whoever makes files here.
    fn me(dir: &tempfile::TempDir) -> u32 {
        std::fs::metadata(dir.path()).unwrap().uid()
    }

    fn begin() -> Event {
        let (run, boot, about) = ("r1".into(), "b".into(), "sleep".into());
        Event::Begin { run, boot, pid: 7, start: 8, about, tunes: true }
    }

    fn knob(after: &str) -> Change {
        Change::Knob { path: "/proc/sys/x".into(), before: "0".into(), after: after.into() }
    }

    fn find(dir: &Path, user: u32) -> Vec<LeftBehind> {
        let found = LeftBehind::find(dir, user).unwrap();
        assert!(found.unreadable.is_empty(), "{found:?}");
        found.journals
    }

    /// Without when they were written down.
    fn changes(left: &LeftBehind) -> Vec<Change> {
        left.changes.iter().map(|(_, change)| change.clone()).collect()
    }

    #[test]
    fn what_was_written_before_a_kill_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let user = me(&dir);
        let mut journal = FileJournal::create(dir.path(), user, "r1", begin()).unwrap();
        journal.before(&knob("1")).unwrap();
        journal.before(&knob("2")).unwrap();
        assert!(!find(dir.path(), user)[0].kept);
        journal.keep().unwrap();
        assert!(find(dir.path(), user)[0].kept);
        let mut torn = OpenOptions::new().append(true).open(journal.path()).unwrap();
        torn.write_all(b"{\"v\":1,\"t\":3,\"ev").unwrap();
        let found = find(dir.path(), user);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].pid, changes(&found[0])), (7, vec![knob("1"), knob("2")]));
        assert!(found[0].tunes);
        assert!(found[0].changes[0].0 <= found[0].changes[1].0, "{found:?}");
        assert!(FileJournal::create(dir.path(), user, "r1", begin()).is_err());
    }

    #[test]
    fn what_somebody_else_put_there_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let user = me(&dir);
        let journal = FileJournal::create(dir.path(), user, "r1", begin()).unwrap();
        assert_eq!(find(dir.path(), user).len(), 1);
        assert_eq!(find(dir.path(), user + 1), []);
        let error = FileJournal::create(dir.path(), user + 1, "r2", begin()).unwrap_err();
        assert!(error.to_string().contains("NUMAHERD_STATE"), "{error}");
        // Nor what a link names: it may be somebody else's in a moment.
        std::os::unix::fs::symlink(journal.path(), dir.path().join("r3.journal")).unwrap();
        std::fs::create_dir(dir.path().join("r4.journal")).unwrap();
        assert_eq!(find(dir.path(), user).len(), 1);
    }

    #[test]
    fn a_folder_that_is_made_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("numaherd");
        make_folder(&folder, me(&dir)).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn settings_are_told_from_affinities() {
        let task = TaskId { tid: 7, start: 8 };
        let affinity = Change::Affinity {
            task,
            process: ProcessId { tgid: 7, start: 8 },
            before: "0-3".parse().unwrap(),
            after: "0".parse().unwrap(),
        };
        let dir = tempfile::tempdir().unwrap();
        let mut journal = FileJournal::create(dir.path(), me(&dir), "r1", begin()).unwrap();
        journal.before(&affinity).unwrap();
        journal.before(&knob("1")).unwrap();
        let left = LeftBehind::read(journal.path()).unwrap().unwrap();
        assert_eq!(left.changes.len(), 2);
        assert_eq!(changes(&left.settings()), [knob("1")]);
    }

    #[test]
    fn no_folder_means_nothing_left_and_an_empty_journal_changed_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let user = me(&dir);
        assert_eq!(find(&dir.path().join("none"), user), []);
        std::fs::write(dir.path().join("x.journal"), "").unwrap();
        assert_eq!(find(dir.path(), user), []);
    }

    /// A run may end between the look into the folder and the look at its journal.
    #[test]
    fn one_that_is_gone_or_cannot_be_read_does_not_hide_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let journal = FileJournal::create(dir.path(), me(&dir), "r2", begin()).unwrap();
        let paths = [dir.path().join("r1.journal"), dir.path().into(), journal.path().into()];
        let found = Found::read(paths.into());
        assert_eq!(found.journals.len(), 1);
        assert_eq!(found.unreadable.len(), 1);
        assert_eq!(found.unreadable[0].0, dir.path());
        remove(journal.path()).unwrap();
        remove(journal.path()).unwrap();
        assert!(remove(dir.path()).is_err());
    }
}
