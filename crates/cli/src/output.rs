//! Results on standard output, in the form asked for, and in files that are whole or as they were.
//!
//! `println!` and `eprintln!` panic where nothing can be printed (a full disk, a reader that has gone), so
//! nobody here calls them.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use numaherd_report::chart::ChartError;

/// Prints as `print!` does, for commands that print as they go.
macro_rules! put {
    ($($text:tt)*) => { $crate::output::put(format_args!($($text)*)) };
}

/// The same, with a newline.
macro_rules! putln {
    ($($text:tt)*) => { put!("{}\n", format_args!($($text)*)) };
}

/// Tells on standard error, as `eprintln!` does. Where nobody listens any more the work goes on: there may be
/// something to put back.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr().lock(),
            format_args!("{}\n", format_args!($($text)*)),
        );
    }};
}

/// A command line that is wrong in a way that clap does not tell: it ends as those do that it does.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

/// Ends with [`Misuse`], as `bail!` does.
macro_rules! misuse {
    ($($text:tt)*) => { return Err($crate::output::Misuse(format!($($text)*)).into()) };
}

/// What was being done, and why it failed, on one line. A cause that a message already ends with
/// is not told again.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for part in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = part;
        } else if !told.ends_with(&part) {
            told = format!("{told}: {part}");
        }
    }
    told.split('\n').map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The same error, as one of the command line.
pub fn misused(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Misuse(one_line(&error.into())).into()
}

/// Prints a result.
pub fn print(text: &str) -> Result<ExitCode> {
    printed(std::io::stdout().lock().write_all(text.as_bytes()))
}

/// That none of these options is given, which are for another place than this.
pub fn without(on: &str, options: &[(&str, bool)]) -> Result<()> {
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => misuse!("{option} does not go with --on {on}: leave it out"),
        None => Ok(()),
    }
}

/// How a command ends that has written its result to standard output, or could not.
pub fn printed(written: std::io::Result<()>) -> Result<ExitCode> {
    match written.and_then(|()| std::io::stdout().lock().flush()) {
        // A reader that has seen enough is no error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot print the result")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints a part of a result. Where that fails there is nobody to print for, and the process ends:
/// only for commands that have nothing to put back.
pub fn put(text: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        say!("numaherd: cannot print the result: {error}");
        std::process::exit(1);
    }
}

/// A result as JSON, with the newline.
pub fn json(value: &impl serde::Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// A file for a result that takes a while: that it can be written is known before, and until it is
/// there whole the place is as it was.
pub struct NewFile {
    path: PathBuf,
    way: Way,
}

/// How it is written.
enum Way {
    /// As a file of these permissions beside it, which takes its place at the end.
    Beside(Permissions),
    /// A device, or in a folder that is not ours: where it is.
    There(File),
}

impl NewFile {
    /// Makes sure that the file can be written, and leaves it as it is.
    pub fn at(path: &Path) -> Result<NewFile> {
        let doing = || format!("cannot write {}", path.display());
        // Through links, to what they name.
        let path = path.canonicalize().unwrap_or_else(|_| path.into());
        let there = std::fs::metadata(&path).ok();
        let in_place = || OpenOptions::new().write(true).open(&path).with_context(doing);
        let mode = there.as_ref().map_or(0o666, |found| found.permissions().mode() & 0o777);
        let way = match &there {
            Some(found) if !found.is_file() => Way::There(in_place()?),
            _ => match tempfile::tempfile_in(folder(&path)) {
                Ok(_) => Way::Beside(Permissions::from_mode(mode)),
                Err(_) if there.is_some() => Way::There(in_place()?),
                Err(error) => {
                    // Without the other file's name.
                    let told = error.to_string();
                    let told = told.split(" at path").next().unwrap_or(&told);
                    return Err(std::io::Error::other(told)).with_context(doing);
                }
            },
        };
        Ok(NewFile { path, way })
    }

    /// Writes it.
    pub fn write(self, bytes: &[u8]) -> Result<()> {
        let NewFile { path, way } = self;
        let written = match way {
            Way::Beside(permissions) => replace(&path, permissions, bytes),
            Way::There(mut file) => {
                // A device has no length.
                let _ = file.set_len(0);
                file.write_all(bytes)
            }
        };
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A page and a picture of a result, where they are asked for.
pub struct Pages {
    html: Option<NewFile>,
    svg: Option<NewFile>,
}

impl Pages {
    /// Makes sure that both can be written, before there is a result.
    pub fn at(html: Option<&Path>, svg: Option<&Path>) -> Result<Pages> {
        // Of two in one file the first is lost, and nothing says so.
        if html.is_some() && html == svg {
            misuse!("--html and --svg cannot be one file");
        }
        let file = |path: Option<&Path>| path.map(NewFile::at).transpose();
        Ok(Pages { html: file(html)?, svg: file(svg)? })
    }

    /// Draws what is asked for, and writes it.
    pub fn write(
        self,
        page: impl FnOnce() -> Result<String, ChartError>,
        picture: impl FnOnce() -> Result<String, ChartError>,
    ) -> Result<()> {
        if let Some(file) = self.html {
            file.write(page()?.as_bytes())?;
        }
        if let Some(file) = self.svg {
            file.write(picture()?.as_bytes())?;
        }
        Ok(())
    }
}

fn replace(path: &Path, permissions: Permissions, bytes: &[u8]) -> std::io::Result<()> {
    let mut draft = tempfile::Builder::new()
        .prefix(".numaherd-")
        .permissions(permissions)
        .tempfile_in(folder(path))?;
    draft.write_all(bytes)?;
    draft.persist(path).map(drop).map_err(|error| error.error)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_it_is_whole_a_file_is_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let file = NewFile::at(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "a kill would leave more than it");
        file.write(b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "no draft stays");
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_path_buf(), dir.path().join("no/page.html")] {
            let error = NewFile::at(&path).err().unwrap().to_string();
            assert!(error.contains("cannot write") && error.contains(path.to_str().unwrap()));
        }
        let full = NewFile::at(Path::new("/dev/full")).unwrap().write(b"x");
        assert!(full.is_err());
    }

    #[test]
    fn a_page_and_a_picture_are_two_files() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
        assert!(Pages::at(Some(&one), Some(&other)).is_ok() && Pages::at(None, None).is_ok());
        let error = Pages::at(Some(&one), Some(&one)).err().unwrap();
        assert!(error.is::<Misuse>(), "{error}");
    }

    #[test]
    fn a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        NewFile::at(&link).unwrap().write(b"new").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    }
}
