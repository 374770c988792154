//! How long tasks ran and waited, of tasks that are asked for again and again: their files stay open, since finding one
//! takes several times as long as reading it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::{ReadError, SchedStat, TaskReader, parse_schedstat};
use crate::file::is_absent;

/// Files that are kept open. Guessed: a process may usually have a thousand, and we have some others.
const MOST: usize = 128;

/// Three numbers of 64 bits.
const LEN: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub struct Kept(BTreeMap<(u32, u32), File>);

impl Kept {
    /// A thread's schedstat; None also where the kernel was built without it, or does not count.
    ///
    /// # Errors
    /// As for [`TaskReader::schedstat`].
    pub fn schedstat(
        &mut self,
        reader: &TaskReader,
        (tgid, tid): (u32, u32),
    ) -> Result<Option<SchedStat>, ReadError> {
        // What has ended cannot be read, though it is open; somebody else may have its number.
        if let Some(text) = self.0.get(&(tgid, tid)).and_then(|file| read(file).ok())
            && let Some(stat) = parse_schedstat(&text)
        {
            return Ok(stat.counted());
        }
        self.0.remove(&(tgid, tid));
        let path = reader.task_file(tgid, tid, "schedstat");
        let opened = File::open(&path).and_then(|file| Ok((read(&file)?, file)));
        let (text, file) = match opened {
            Ok(opened) => opened,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(source) => return Err(ReadError::Read { path, source }),
        };
        let wrong = || ReadError::parse_file(&path, "three numbers", &text);
        let stat = parse_schedstat(&text).ok_or_else(wrong)?;
        if self.0.len() >= MOST {
            self.0.pop_first();
        }
        self.0.insert((tgid, tid), file);
        Ok(stat.counted())
    }
}

/// The file from its beginning, wherever it was read up to.
fn read(file: &File) -> io::Result<String> {
    let mut bytes = [0; LEN];
    let len = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock;
    use numaherd_model::Nanos;
    use std::process::Command;

    #[test]
    fn what_is_open_tells_what_is_new_and_who_has_ended_is_not_told_of() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let (reader, mut kept) = (TaskReader::new("/".as_ref()), Kept::default());
        let who = (child.id(), child.id());
        let mut ran = || kept.schedstat(&reader, who).unwrap().map(|stat| stat.run_time);
        let (first, begun) = (ran().unwrap(), clock::monotonic());
        // It is told at the next tick of the scheduler.
        while ran().unwrap() == first {
            assert!(clock::monotonic().since(begun) < Nanos(60_000_000_000), "it never runs");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ran(), None);
        assert!(kept.0.is_empty());
    }

    #[test]
    fn no_more_than_so_many_files_are_open() {
        let root = tempfile::tempdir().unwrap();
        let (reader, mut kept) = (TaskReader::new(root.path()), Kept::default());
        for tid in 0..2 * MOST as u32 {
            crate::testing::put(root.path(), &format!("proc/7/task/{tid}/schedstat"), "3 4 5\n");
            let told = kept.schedstat(&reader, (7, tid)).unwrap();
            assert_eq!(told.map(|stat| stat.wait_time), Some(Nanos(4)));
        }
        assert_eq!(kept.0.len(), MOST);
    }
}
