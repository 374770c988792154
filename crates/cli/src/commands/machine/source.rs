//! Files that describe a machine or a workload, or hold results, read once: what a pipe has given (`<(…)`) it does not give again, and
//! more than one reader asks what a file is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Error;
use numaherd_lab::LabError;

use crate::interrupt;

/// More than any description of a machine or a workload, or a result, has: distances between 1024 nodes, a line each, are 15 MiB.
const MOST_BYTES: u64 = 64 << 20;

/// From when on a wait is told: whoever writes a pipe by a command is sooner, mostly. Guessed.
const SILENT: Duration = Duration::from_secs(1);
/// Between two looks at signals, meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// What was read, by path.
static READ: Mutex<BTreeMap<PathBuf, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// Such a file, and no more of it than it can have: a device gives zeros until
/// memory is full. Asked for again, it is what it was at first.
///
/// # Errors
/// It cannot be read, or goes on; or a signal ends the wait for it ([`io::ErrorKind::Interrupted`]).
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    let mut known = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = known.get(path) {
        return Ok(bytes.clone());
    }
    let bytes = awaited(path, || {
        let file = path.display();
        say!("numaherd: waiting for {file}, which nobody has written to its end yet");
    })?;
    known.insert(path.into(), bytes.clone());
    Ok(bytes)
}

/// The same, with an error that names it.
///
/// # Errors
/// As [`read`] has them.
pub fn bytes(path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
    let path = path.as_ref();
    read(path).map_err(|error| failed(path, error))
}

/// What it is when reading failed: an error of its own where the user did not want to wait any longer.
fn failed(path: &Path, error: io::Error) -> Error {
    let file = path.display();
    match error.kind() {
        io::ErrorKind::Interrupted => LabError::WaitInterrupted { path: file.to_string() }.into(),
        _ => Error::from(error).context(format!("cannot read {file}")),
    }
}

/// Reads it, and calls `waits` where that takes long: a named pipe cannot even be opened until somebody writes it, which
/// may be never.
fn awaited(path: &Path, waits: impl FnOnce()) -> io::Result<Vec<u8>> {
    let (done, result) = sync_channel(1);
    let name = path.to_path_buf();
    std::thread::Builder::new().spawn(move || {
        // Where we have ended nobody wants it any more.
        let _ = done.send(whole(&name));
    })?;
    let mut waits = Some(waits);
    let mut wait = SILENT;
    loop {
        match result.recv_timeout(wait) {
            Ok(read) => return read,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("its reader has ended"));
            }
            Err(RecvTimeoutError::Timeout) if interrupt::came() => {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        wait = LOOK;
        if let Some(waits) = waits.take() {
            waits();
        }
    }
}

fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        let told =
            format!("more than {} MiB, which nothing takes that is read here", MOST_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, told));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pipe_gives_but_once_is_there_again() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"title").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read(&path).unwrap(), b"title");
        assert_eq!(read(&path).unwrap(), b"title");
    }

    #[test]
    fn a_file_that_is_there_is_not_waited_for() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert!(!awaited(path, || panic!("waits")).unwrap().is_empty());
        let error = awaited(Path::new("/no/such"), || panic!("waits")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
