//! The undo journal: every change, written down before it is made.
//!
//! One file a run, `NAME.journal`, in a state folder that does not survive a reboot. A line is
//! written with one `write`, so a process that is killed leaves at most a torn last line, of a
//! change that was not made. Undoing is done by whoever can reach the machine; this module
//! finds the files and says what they hold.
//!
//! A run may go on for months, and the folder is in memory: a file that has grown long is replaced by one
//! with what is still needed. Whoever reads it finds the old one or the new one, whole, by the same name.
//!
//! A journal says what to write where, so one that somebody else put there is not read: the folder
//! is its user's alone, and so are the files.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use numaherd_model::{Change, Journal, Nanos};
use rustix::time::{ClockId, clock_gettime};

use crate::event::{Event, Line, VERSION};

/// A journal being written.
#[derive(Debug)]
pub struct FileJournal {
    path: PathBuf,
    file: File,
    /// Since boot, in which a suspended machine's time counts, as start times of tasks have it.
    begin: Nanos,
    bytes: u64,
    /// It is long once it has more bytes.
    bound: u64,
}

/// Ending of journals' names.
const ENDING: &str = "journal";
/// Of one that is to replace another, until it does.
const ENDING_NEW: &str = "new";

/// A journal is not replaced before it has as many bytes: some thousands of changes.
const LONG: u64 = 1 << 20;

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
        let file = create_file(&path)?;
        FileJournal::begun(path, file, begin)
    }

    /// Writes the first line of a new file.
    fn begun(path: PathBuf, file: File, begin: Event) -> io::Result<FileJournal> {
        let now = since_boot();
        let mut journal = FileJournal { path, file, begin: now, bytes: 0, bound: LONG };
        journal.append(begin).inspect_err(|_| {
            // On a full disk a file can be made, and nothing be written: without that line nobody would ever remove it.
            let _ = gone(&journal.path);
        })?;
        Ok(journal)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds, also where its name is gone: `$XDG_RUNTIME_DIR` goes when its user logs out, and a temporary
    /// folder is tidied, while a run may go on for months.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn left(&self) -> io::Result<Option<LeftBehind>> {
        LeftBehind::of(&self.path, &self.file)
    }

    /// Its changes are to stay: only asked for by name are they undone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&mut self) -> io::Result<()> {
        self.append(Event::End { kept: true })
    }

    /// Settings were undone, and are not to be again: whoever gives one the value that it had with us would find it
    /// taken back one day.
    ///
    /// # Errors
    /// As [`shorten`](Self::shorten) has them: the settings are still there.
    pub fn forget_settings(&mut self) -> io::Result<()> {
        let stays = |change: &Change| matches!(change, Change::Affinity { .. });
        self.shorten(|changes| changes.iter().filter(|(_, of)| stays(of)).cloned().collect())
    }

    fn append(&mut self, event: Event) -> io::Result<()> {
        let t = since_boot().since(self.begin);
        let text = Line { v: VERSION, t, event }.text()?;
        self.file.write_all(text.as_bytes()).inspect_err(|_| {
            // On a full disk a part may be there, and what is written after that would be one line with it.
            let _ = self.file.set_len(self.bytes);
        })?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Whether it has become so long that it should be shortened.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.bytes > self.bound
    }

    /// Leaves only those changes that `needed` picks from all; what it begins with, and that it is kept, stays. To be called
    /// when all changes that it holds were made, or refused.
    ///
    /// # Errors
    /// The file cannot be read, or the new one not written: then the old one is still there, and written
    /// on.
    pub fn shorten(
        &mut self,
        needed: impl FnOnce(&[(Nanos, Change)]) -> Vec<(Nanos, Change)>,
    ) -> io::Result<()> {
        // Not tried again at the next line where it fails, or where all is needed.
        self.bound = 2 * self.bytes;
        let lines = Line::read_all(&String::from_utf8_lossy(&std::fs::read(&self.path)?));
        let (mut text, mut changes) = (String::new(), Vec::new());
        for line in lines {
            match line.event {
                Event::Before(change) => changes.push((line.t, change)),
                _ => text += &line.text()?,
            }
        }
        for (t, change) in needed(&changes) {
            text += &Line { v: VERSION, t, event: Event::Before(change) }.text()?;
        }
        self.file = replace(&self.path, &text)?;
        self.bytes = text.len() as u64;
        self.bound = LONG.max(2 * self.bytes);
        Ok(())
    }
}

fn since_boot() -> Nanos {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, ns) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    Nanos(seconds.unwrap_or(0) * 1_000_000_000 + ns.unwrap_or(0))
}

/// A file to be written at its end, of its owner alone.
fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(path)
}

/// Puts a file with this text in the place of a journal, at once.
fn replace(path: &Path, text: &str) -> io::Result<File> {
    let new = path.with_extension(ENDING_NEW);
    gone(&new)?;
    let write = || -> io::Result<File> {
        let mut file = create_file(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        Ok(file)
    };
    let file = write().inspect_err(|_| {
        // The folder may be full: it is not to stay so for that.
        let _ = gone(&new);
    })?;
    // Until then the old one may come back after a crash of the machine, which holds all of it too.
    if let Some(folder) = path.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
    Ok(file)
}

/// Removes a file, if it is there.
fn gone(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes the folder for journals where it is not there, closed to others.
fn make_folder(dir: &Path, user: u32) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    check_owner(dir, user)
}

/// Between two looks whether another's turn is over.
const TURN_LOOK: Duration = Duration::from_millis(5);

/// Waits for our turn at the folder of journals, so long at the most, and has it until what is answered is dropped; the
/// kernel ends that of one that is killed. Whoever begins a run only if no other is in the way looks and begins in one
/// turn: of two at once the second sees the first. It is a lock of the folder itself, and leaves no file.
///
/// # Errors
/// The folder cannot be made or read, is somebody else's, or another's turn does not end.
pub fn take_turn(dir: &Path, user: u32, longest: Duration) -> io::Result<File> {
    make_folder(dir, user)?;
    let folder = File::open(dir)?;
    let begun = Instant::now();
    while let Err(TryLockError::WouldBlock) = folder.try_lock() {
        if begun.elapsed() >= longest {
            let told = format!("another run has been about to begin for {longest:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, told));
        }
        std::thread::sleep(TURN_LOOK);
    }
    // Where folders cannot be locked (some of NFS) nobody waits, and two that begin in one instant both do.
    Ok(folder)
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

/// Opens a journal that is this user's. Where others may write to the folder, it may be somebody else's by now, who would
/// have us change what he may not.
///
/// # Errors
/// It is not there, not a file of this user's, or cannot be opened.
pub fn open_own(path: &Path, user: u32) -> io::Result<File> {
    // First by its name alone: to open what somebody laid there could be for ever.
    if is_own(&std::fs::symlink_metadata(path)?, user) {
        let file = File::open(path)?;
        if is_own(&file.metadata()?, user) {
            return Ok(file);
        }
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

fn is_own(found: &Metadata, user: u32) -> bool {
    found.is_file() && found.uid() == user
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
    /// Lines that cannot be read: what was changed there is not known.
    pub unreadable: Vec<usize>,
}

impl LeftBehind {
    /// Reads a journal; `None` where it has no first line (then nothing was changed).
    ///
    /// # Errors
    /// The file cannot be read, or its first line.
    pub fn read(path: &Path) -> io::Result<Option<LeftBehind>> {
        LeftBehind::of(path, &File::open(path)?)
    }

    /// The same of an open file, whose name is or was `path`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(path: &Path, file: &File) -> io::Result<Option<LeftBehind>> {
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes);
        let (lines, unreadable) = Line::read(&text);
        let mut lines = lines.into_iter();
        let Some(Event::Begin { run, boot, pid, start, about, tunes }) =
            lines.next().map(|l| l.event)
        else {
            return match text.contains('\n') {
                true => {
                    Err(io::Error::other("its first line is none of a journal of this version"))
                }
                false => Ok(None),
            };
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
        Ok(Some(LeftBehind {
            path,
            run,
            boot,
            pid,
            start,
            about,
            tunes,
            kept,
            changes,
            unreadable,
        }))
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
            std::fs::symlink_metadata(path).is_ok_and(|found| is_own(&found, user))
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
    gone(&path.with_extension(ENDING_NEW))?;
    gone(path)
}

#[cfg(test)]
mod tests;
