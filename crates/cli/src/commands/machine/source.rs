//! Files that describe a machine or a workload, read once: what a pipe has given (`<(…)`) it does not give again, and
//! more than one reader asks what a file is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

/// More than any description of a machine or a workload has: distances between 1024 nodes, a line each, are 15 MiB.
const MOST_BYTES: u64 = 64 << 20;

/// What was read, by path.
static READ: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// A described machine's or workload's file, and no more of it than such a file can have: a device gives zeros until
/// memory is full. Asked for again, it is what it was at first.
///
/// # Errors
/// It cannot be read, or goes on.
pub fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut known = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = known.get(path) {
        return Ok(bytes.clone());
    }
    let bytes = whole(path)?;
    known.insert(path.into(), bytes.clone());
    Ok(bytes)
}

fn whole(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        let told =
            format!("more than {} MiB, which no machine or workload takes", MOST_BYTES >> 20);
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
}
