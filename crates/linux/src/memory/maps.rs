//! Mappings of a process, from `/proc/PID/maps`: the private anonymous writable ranges, which are the
//! memory that is its own and can be moved without a say of anyone else; and what it maps shared and
//! writable, which others may map too. And which addresses it maps at all.

use std::fs::File;
use std::io::Read as _;
use std::ops;
use std::path::Path;

use numaherd_model::{Bytes, ObjectId};

use crate::file::{Buffer, ReadError};

/// One range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonymousRange {
    /// First address.
    pub start: u64,
    /// Length.
    pub len: Bytes,
}

/// What a process maps, each ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The ranges that are its own.
    pub own: Vec<AnonymousRange>,
    /// Which addresses it maps at all, neighbours as one.
    pub mapped: Vec<ops::Range<u64>>,
    /// Where mappings of files begin that are only read.
    pub read_only: Vec<u64>,
    /// Whether it runs a virtual machine's CPUs, whatever it calls their threads.
    pub guest: bool,
}

/// A range of an object that others may map too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRange {
    /// First address.
    pub start: u64,
    /// Length.
    pub len: Bytes,
    /// Of what.
    pub object: ObjectId,
    /// Where in it the range begins, in bytes.
    pub offset: u64,
}

/// A mapping of one of the two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Own(AnonymousRange),
    Shared(ObjectRange),
}

/// Reads the ranges, ascending; None when the process has ended.
///
/// # Errors
/// The file cannot be read, or is not the kernel's.
pub fn read(root: &Path, tgid: u32) -> Result<Option<Vec<AnonymousRange>>, ReadError> {
    let own = |range| if let Range::Own(range) = range { Some(range) } else { None };
    Ok(read_all(root, tgid)?.map(|ranges| ranges.into_iter().filter_map(own).collect()))
}

/// Reads what it maps shared and writable, ascending; None when the process has ended.
///
/// # Errors
/// The file cannot be read, or is not the kernel's.
pub fn read_shared(root: &Path, tgid: u32) -> Result<Option<Vec<ObjectRange>>, ReadError> {
    let shared = |range| if let Range::Shared(range) = range { Some(range) } else { None };
    Ok(read_all(root, tgid)?.map(|ranges| ranges.into_iter().filter_map(shared).collect()))
}

/// Reads which addresses it maps, ascending, neighbours as one; None when the process has ended.
///
/// # Errors
/// The file cannot be read, or is not the kernel's.
pub fn read_mapped(root: &Path, tgid: u32) -> Result<Option<Vec<ops::Range<u64>>>, ReadError> {
    let mut mapped = Vec::new();
    Ok(each_line(root, tgid, |line| add(&mut mapped, &line))?.map(|()| mapped))
}

/// Reads what it maps; None when the process has ended.
///
/// # Errors
/// The file cannot be read, or is not the kernel's.
pub fn read_layout(root: &Path, tgid: u32) -> Result<Option<Layout>, ReadError> {
    let mut layout = Layout::default();
    let take = |line: Line| {
        add(&mut layout.mapped, &line);
        layout.guest |= line.guest;
        if line.only_read {
            layout.read_only.push(line.start);
        }
        if let Some(Range::Own(range)) = line.range {
            layout.own.push(range);
        }
    };
    Ok(each_line(root, tgid, take)?.map(|()| layout))
}

/// How long the first mapping is, which costs one line; None where that cannot be told.
pub(crate) fn first_len(root: &Path, tgid: u32) -> Option<Bytes> {
    // Two addresses fit.
    let mut head = [0; 64];
    let path = root.join(format!("proc/{tgid}/maps"));
    let len = File::open(path).and_then(|mut file| file.read(&mut head)).ok()?;
    let text = String::from_utf8_lossy(&head[..len]);
    let (start, end) = text.split(' ').next()?.split_once('-')?;
    let of = |address| u64::from_str_radix(address, 16).ok();
    Some(Bytes(of(end)?.checked_sub(of(start)?)?))
}

fn add(mapped: &mut Vec<ops::Range<u64>>, line: &Line) {
    match mapped.last_mut() {
        Some(last) if last.end == line.start => last.end += line.len.0,
        _ => mapped.push(line.start..line.start + line.len.0),
    }
}

fn read_all(root: &Path, tgid: u32) -> Result<Option<Vec<Range>>, ReadError> {
    let mut ranges = Vec::new();
    Ok(each_line(root, tgid, |line| ranges.extend(line.range))?.map(|()| ranges))
}

/// What a line tells.
struct Line {
    start: u64,
    len: Bytes,
    /// If it is of one of the two kinds.
    range: Option<Range>,
    /// If it is of a file and is only read.
    only_read: bool,
    /// What the kernel shares with whoever runs a virtual CPU.
    guest: bool,
}

fn each_line(root: &Path, tgid: u32, mut take: impl FnMut(Line)) -> Result<Option<()>, ReadError> {
    let path = root.join(format!("proc/{tgid}/maps"));
    let mut buffer = Buffer::default();
    let Some(bytes) = buffer.read(&path)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(bytes);
    for (index, line) in text.lines().enumerate() {
        match parse(line) {
            Some(line) => take(line),
            None => {
                let expected = "'START-END PERMISSIONS OFFSET DEVICE INODE'";
                return Err(ReadError::parse(&path, index + 1, expected, line));
            }
        }
    }
    Ok(Some(()))
}

/// None for what is no line of maps.
fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let permissions = words.next()?;
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let (major, minor) = words.next()?.split_once(':')?;
    let device = |text| u64::from_str_radix(text, 16).ok();
    let (device, inode) = (device(major)? << 32 | device(minor)?, words.next()?.parse().ok()?);
    let len = Bytes(end.checked_sub(start)?);
    let writable = permissions.get(1..2)? == "w";
    let only_read = permissions.starts_with("r-") && inode != 0;
    // shared memory has an inode too, even where its name says nothing of a file
    let range = match (writable, permissions.ends_with('p'), inode) {
        (true, true, 0) => Some(Range::Own(AnonymousRange { start, len })),
        (true, false, 1..) => {
            let object = ObjectId { device, inode };
            Some(Range::Shared(ObjectRange { start, len, object, offset }))
        }
        _ => None,
    };
    let guest = words.next().is_some_and(|name| name.starts_with("anon_inode:kvm-vcpu"));
    Some(Line { start, len, range, only_read, guest })
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
        let shared = read_shared(root.path(), 7).unwrap().unwrap();
        let object = ObjectId { device: 1, inode: 77 };
        let range = ObjectRange { start: 0x9000, len: Bytes(0x1000), object, offset: 0 };
        assert_eq!(shared, [range]);
        let mapped = read_mapped(root.path(), 7).unwrap().unwrap();
        let vsyscall = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;
        let below =
            [0x55a0..0x55c0, 0x6000..0x8000, 0x9000..0xa000, 0xb000..0xe000, 0xf000..0xf800];
        assert_eq!(mapped, below.into_iter().chain([vsyscall]).collect::<Vec<_>>());
        let mut layout = Layout { own: ranges, mapped, read_only: vec![0x55a0], guest: false };
        assert_eq!(read_layout(root.path(), 7).unwrap().as_ref(), Some(&layout));
        // As of a firecracker, whose threads are called otherwise than QEMU's.
        let vcpu = "5000-5000 rw-s 00000000 00:0f 12 anon_inode:kvm-vcpu:0\n";
        std::fs::write(root.path().join("proc/7/maps"), format!("{maps}{vcpu}")).unwrap();
        layout.mapped.push(0x5000..0x5000);
        layout.guest = true;
        assert_eq!(read_layout(root.path(), 7).unwrap(), Some(layout));
        assert_eq!(read(root.path(), 8).unwrap(), None);
        assert_eq!(read_layout(root.path(), 8).unwrap(), None);
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
