//! The private anonymous writable ranges of a process, from `/proc/PID/maps`: the memory that is
//! its own, and that can be moved without a say of anyone else.

use std::path::Path;

use numaherd_model::Bytes;

use crate::file::{Buffer, ReadError};

/// One range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonymousRange {
    /// First address.
    pub start: u64,
    /// Length.
    pub len: Bytes,
}

/// Reads the ranges, ascending; None when the process has ended.
///
/// # Errors
/// The file cannot be read, or is not the kernel's.
pub fn read(root: &Path, tgid: u32) -> Result<Option<Vec<AnonymousRange>>, ReadError> {
    let path = root.join(format!("proc/{tgid}/maps"));
    let mut buffer = Buffer::default();
    let Some(bytes) = buffer.read(&path)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(bytes);
    let mut ranges = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match parse(line) {
            Some(Some(range)) => ranges.push(range),
            Some(None) => {}
            None => {
                let expected = "'START-END PERMISSIONS OFFSET DEVICE INODE'";
                return Err(ReadError::parse(&path, index + 1, expected, line));
            }
        }
    }
    Ok(Some(ranges))
}

/// None for what is no line of maps, Some(None) for a range of another kind.
fn parse(line: &str) -> Option<Option<AnonymousRange>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let permissions = words.next()?;
    let inode = words.nth(2)?;
    // shared memory has an inode too, even where its name says nothing of a file
    let own = permissions.get(1..2)? == "w" && permissions.ends_with('p') && inode == "0";
    Some(own.then_some(AnonymousRange { start, len: Bytes(end.checked_sub(start)?) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_writable_memory_without_a_file_counts() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let maps = "55a0-55b0 r--p 00000000 08:01 1234 /usr/bin/x y\n\
                    55b0-55c0 rw-p 00000000 08:01 1234 /usr/bin/x y\n\
                    6000-8000 rw-p 00000000 00:00 0 [heap]\n\
                    9000-a000 rw-s 00000000 00:01 77 /dev/zero (deleted)\n\
                    b000-c000 ---p 00000000 00:00 0 \n\
                    c000-e000 rwxp 00000000 00:00 0 \n\
                    f000-f800 rw-p 00000000 00:00 0 [anon:a name]\n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
        std::fs::write(root.path().join("proc/7/maps"), maps).unwrap();
        let ranges = read(root.path(), 7).unwrap().unwrap();
        let expected = [(0x6000, 0x2000), (0xc000, 0x2000), (0xf000, 0x800)];
        assert_eq!(ranges.iter().map(|r| (r.start, r.len.0)).collect::<Vec<_>>(), expected);
        assert_eq!(read(root.path(), 8).unwrap(), None);
        std::fs::write(root.path().join("proc/7/maps"), "6000-5000 rw-p 0 0:0 0\n").unwrap();
        assert!(read(root.path(), 7).is_err());
    }

    #[test]
    fn our_own_heap_is_found() {
        let boxed = vec![1_u8; 1 << 20];
        let address = boxed.as_ptr() as u64;
        let ranges = read("/".as_ref(), std::process::id()).unwrap().unwrap();
        assert!(ranges.iter().any(|r| (r.start..r.start + r.len.0).contains(&address)));
    }
}
