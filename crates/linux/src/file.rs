//! Files of `/proc` and `/sys` below a root: whole text, read into a buffer that is used again.
//!
//! Such files are small and have no useful length, so they are read until the kernel says that
//! there is no more. Hot readers keep a [`Buffer`]: no allocation, and three or four system calls a file.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Something below the root could not be read or was not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refused.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The text is not what the kernel prints there.
    #[error("{} line {line}: expected {expected}, found '{found}'", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What should have been there.
        expected: &'static str,
        /// What was there, shortened.
        found: String,
    },
}

/// Longest piece of unexpected text that is shown.
const SHOWN_CHARS: usize = 60;

impl ReadError {
    /// Text at `line` of `path` was not as expected.
    pub(crate) fn parse(path: &Path, line: usize, expected: &'static str, found: &str) -> Self {
        let found = found.trim_end().chars().take(SHOWN_CHARS).collect();
        ReadError::Parse { path: path.to_path_buf(), line, expected, found }
    }

    /// Whether it may not be read, by whom we are.
    pub(crate) fn is_refused(&self) -> bool {
        let refused = io::ErrorKind::PermissionDenied;
        matches!(self, ReadError::Read { source, .. } if source.kind() == refused)
    }

    /// Nothing is there for us where it may not be read: with `hidepid=1` /proc lists whom it does not show.
    ///
    /// # Errors
    /// Those of what was read, but that it may not be.
    pub fn unless_refused<T>(read: Result<Option<T>, Self>) -> Result<Option<T>, Self> {
        match read {
            Err(error) if error.is_refused() => Ok(None),
            read => read,
        }
    }

    /// The whole file was not as expected.
    pub(crate) fn parse_file(path: &Path, expected: &'static str, text: &str) -> Self {
        Self::parse(path, 1, expected, text.lines().next().unwrap_or_default())
    }
}

/// Whether the error says that the file, or the process it is about, is not there (any more).
pub(crate) fn is_absent(error: &io::Error) -> bool {
    // A control group that goes between open and read: ENODEV.
    let gone = [libc::ESRCH, libc::ENODEV].map(Some);
    error.kind() == ErrorKind::NotFound || gone.contains(&error.raw_os_error())
}

/// The file's text, None where there is no such file.
pub(crate) fn text_if_present(path: &Path) -> Result<Option<String>, ReadError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Buffer::default().read(path)?.map(text))
}

/// The file's text, which must be there.
pub(crate) fn text(path: &Path) -> Result<String, ReadError> {
    let missing = || ReadError::Read {
        path: path.to_path_buf(),
        source: io::Error::from_raw_os_error(libc::ENOENT),
    };
    text_if_present(path)?.ok_or_else(missing)
}

/// More than a program is started with, arguments and environment: 6 MiB at the most. It says itself where those are, and
/// may say terabytes.
const MOST_TO_START: u64 = 8 << 20;

/// What a process was started with: its `cmdline` or `environ`.
pub(crate) fn of_start(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(FIRST_BYTES);
    File::open(path)?.take(MOST_TO_START).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The number after a name at the beginning of a line, as in `MemFree:   5 kB`.
pub(crate) fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// A path as it is: where it is one field of a line the kernel writes its spaces, tabs, line ends and `\`, in
/// `numa_maps` `=` and in `/proc/mounts` `#` too, as `\` and three octal digits.
pub(crate) fn unescape(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A buffer to read many files one after the other.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
}

/// First size of a buffer: a task's stat or numa_maps line fits many times over.
const FIRST_BYTES: usize = 8192;

impl Buffer {
    /// Reads the whole file; None where it, or the task it is about, is gone.
    pub(crate) fn read(&mut self, path: &Path) -> Result<Option<&[u8]>, ReadError> {
        self.read_file(path, false, usize::MAX)
    }

    /// The same, asking the kernel for so many bytes at once at the most.
    pub(crate) fn read_in_steps(
        &mut self,
        path: &Path,
        step: usize,
    ) -> Result<Option<&[u8]>, ReadError> {
        self.read_file(path, false, step)
    }

    /// The same of a file that the kernel prints in one go, as it does what tells of a single thing and not of a list of
    /// them (fs/seq_file.c, `single_open`): once some is read and room is left, that is all.
    pub(crate) fn read_once(&mut self, path: &Path) -> Result<Option<&[u8]>, ReadError> {
        self.read_file(path, true, usize::MAX)
    }

    fn read_file(
        &mut self,
        path: &Path,
        once: bool,
        step: usize,
    ) -> Result<Option<&[u8]>, ReadError> {
        match self.fill(path, once, step) {
            Ok(len) => Ok(Some(&self.bytes[..len])),
            Err(error) if is_absent(&error) => Ok(None),
            Err(source) => Err(ReadError::Read { path: path.to_path_buf(), source }),
        }
    }

    /// Reads until there is no more, or, `once`, until room is left; no more than a step at once.
    fn fill(&mut self, path: &Path, once: bool, step: usize) -> io::Result<usize> {
        let mut file = File::open(path)?;
        self.bytes.resize(self.bytes.len().max(FIRST_BYTES), 0);
        let mut len = 0_usize;
        loop {
            let end = self.bytes.len().min(len.saturating_add(step));
            match file.read(&mut self.bytes[len..end]) {
                Ok(0) => return Ok(len),
                Ok(more) => {
                    len += more;
                    if once && len < self.bytes.len() {
                        return Ok(len);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if len == self.bytes.len() {
                self.bytes.resize(len * 2, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_read_is_not_there_and_what_cannot_is_told() {
        let read = |kind: ErrorKind| {
            let error = ReadError::Read { path: "/proc/1/stat".into(), source: kind.into() };
            ReadError::unless_refused::<u32>(Err(error)).map_err(|error| error.to_string())
        };
        assert_eq!(read(ErrorKind::PermissionDenied), Ok(None));
        assert!(read(ErrorKind::InvalidData).is_err());
        assert_eq!(ReadError::unless_refused(Ok(Some(7))).unwrap(), Some(7));
    }

    #[test]
    fn a_file_longer_than_the_buffer_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        let text: String = (0..5000).map(|i| format!("{i}\n")).collect();
        std::fs::write(&path, &text).unwrap();
        let mut buffer = Buffer::default();
        assert_eq!(buffer.read_once(&path).unwrap(), Some(text.as_bytes()));
        assert_eq!(buffer.read(&path).unwrap(), Some(text.as_bytes()));
        assert_eq!(Buffer::default().read_in_steps(&path, 64).unwrap(), Some(text.as_bytes()));
        std::fs::write(&path, "short").unwrap();
        assert_eq!(buffer.read(&path).unwrap(), Some(&b"short"[..]));
        assert_eq!(buffer.read(&folder.path().join("none")).unwrap(), None);
    }

    #[test]
    fn errors_are_one_clear_line() {
        let error = text("/nowhere/at/all".as_ref()).unwrap_err().to_string();
        assert_eq!(error, "cannot read /nowhere/at/all: No such file or directory (os error 2)");
        let found = "x".repeat(200) + "\n";
        let error = ReadError::parse("/f".as_ref(), 3, "a number", &found).to_string();
        assert_eq!(error, format!("/f line 3: expected a number, found '{}'", "x".repeat(60)));
    }
}
