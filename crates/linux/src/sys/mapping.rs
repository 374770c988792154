//! Memory of our own to try policies on: private, shared, of a file, of System V.
//!
//! A mapping is raw memory that other processes may change, so no reference into it is handed
//! out: it is touched and filled page by page. Lengths and offsets are bytes.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use numaherd_model::Bytes;

use super::{SysError, pages};

/// What a mapping is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mapped,
    Attached,
}

/// Memory, given back when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: usize,
    len: usize,
    kind: Kind,
}

/// How pages are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Read one byte of each.
    Read,
    /// Write one byte of each, without changing it.
    Write,
}

impl Mapping {
    /// Private anonymous memory.
    ///
    /// # Errors
    /// There is not so much.
    pub fn private(len: usize) -> Result<Mapping, SysError> {
        map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Anonymous memory shared with children.
    ///
    /// # Errors
    /// There is not so much.
    pub fn shared(len: usize) -> Result<Mapping, SysError> {
        map(len, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Part of a file, whose pages all who map it share.
    ///
    /// # Errors
    /// The file cannot be mapped, or the offset is not a page's.
    pub fn file(file: &File, offset: u64, len: usize) -> Result<Mapping, SysError> {
        map(len, libc::MAP_SHARED, file.as_raw_fd(), offset)
    }

    /// A System V segment.
    ///
    /// # Errors
    /// There is none with this id, or it is not ours to use.
    pub fn attach(id: i32, len: usize) -> Result<Mapping, SysError> {
        // SAFETY: the kernel chooses a free address.
        let address = unsafe { libc::shmat(id, std::ptr::null(), 0) };
        if address as isize == -1 {
            return Err(SysError::last("shmat", std::process::id()));
        }
        Ok(Mapping { start: address as usize, len, kind: Kind::Attached })
    }

    /// First address.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start as u64
    }

    /// Length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // an empty one cannot be mapped
    pub fn len(&self) -> usize {
        self.len
    }

    /// Touches every page of a part.
    pub fn touch(&mut self, part: Range<usize>, how: Touch) {
        let part = self.check(part);
        let step = pages::size().0 as usize;
        for at in part.step_by(step) {
            // SAFETY: within the mapping; bytes have no alignment; atomic, since others may map it.
            let byte = unsafe { AtomicU8::from_ptr((self.start + at) as *mut u8) };
            match how {
                Touch::Read => {
                    byte.load(Relaxed);
                }
                // an addition of nothing would be compiled to a mere load
                Touch::Write => {
                    let value = byte.load(Relaxed);
                    // whoever changes it in between has written to the page
                    let _ = byte.compare_exchange(value, value, Relaxed, Relaxed);
                }
            }
        }
    }

    /// Sets every byte of a part.
    pub fn fill(&mut self, part: Range<usize>, value: u8) {
        let part = self.check(part);
        // SAFETY: within the mapping, and no reference into it exists.
        unsafe { std::ptr::write_bytes((self.start + part.start) as *mut u8, value, part.len()) };
    }

    /// Refuses huge pages; kernels without them have nothing to refuse.
    pub fn without_huge_pages(&self) {
        // SAFETY: advice on our own mapping.
        unsafe { libc::madvise(self.start as *mut libc::c_void, self.len, libc::MADV_NOHUGEPAGE) };
    }

    /// Asks for huge pages; kernels without them have none to give.
    pub fn with_huge_pages(&self) {
        // SAFETY: advice on our own mapping.
        unsafe { libc::madvise(self.start as *mut libc::c_void, self.len, libc::MADV_HUGEPAGE) };
    }

    /// Locks a part in memory, or lets go of it.
    ///
    /// # Errors
    /// More than we may lock.
    pub fn lock(&self, part: Range<usize>, lock: bool) -> Result<(), SysError> {
        let part = self.check(part);
        let address = (self.start + part.start) as *const libc::c_void;
        // SAFETY: within the mapping; locking changes nothing in it.
        let result = unsafe {
            if lock { libc::mlock(address, part.len()) } else { libc::munlock(address, part.len()) }
        };
        let call = if lock { "mlock" } else { "munlock" };
        if result == 0 { Ok(()) } else { Err(SysError::last(call, std::process::id())) }
    }

    /// A part that lies within.
    fn check(&self, part: Range<usize>) -> Range<usize> {
        assert!(part.start <= part.end && part.end <= self.len, "{part:?} of {}", self.len);
        part
    }
}

fn map(len: usize, flags: i32, fd: i32, offset: u64) -> Result<Mapping, SysError> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let offset = libc::off_t::try_from(offset).unwrap_or(-1);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
    if address == libc::MAP_FAILED {
        return Err(SysError::last("mmap", std::process::id()));
    }
    Ok(Mapping { start: address as usize, len, kind: Kind::Mapped })
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let address = self.start as *mut libc::c_void;
        match self.kind {
            // SAFETY: ours, and no reference into it exists.
            Kind::Mapped => unsafe { libc::munmap(address, self.len) },
            // SAFETY: as above.
            Kind::Attached => unsafe { libc::shmdt(address) },
        };
    }
}

/// The System V key of a file, as ftok has it; only the low 8 bits of `id` count. None where
/// there is no such file.
#[must_use]
pub fn key(path: &std::path::Path, id: i32) -> Option<i32> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: a string with its zero at the end.
    let key = unsafe { libc::ftok(path.as_ptr(), id) };
    (key != -1).then_some(key)
}

/// How a System V segment is looked up or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its key.
    pub key: i32,
    /// At least so long; 0 for any that exists.
    pub len: u64,
    /// Made with these permissions if there is none.
    pub create: Option<u32>,
    /// Of huge pages.
    pub huge: bool,
}

/// The id of a segment; None where there is none and none is to be made.
///
/// # Errors
/// It is shorter, or not ours to use, or cannot be made.
pub fn segment(wanted: Segment) -> Result<Option<i32>, SysError> {
    let create = wanted.create.map_or(0, |mode| libc::IPC_CREAT | (mode & 0o777) as i32);
    let huge = if wanted.huge { libc::SHM_HUGETLB } else { 0 };
    // SAFETY: numbers only.
    let id = unsafe { libc::shmget(wanted.key, wanted.len as usize, create | huge) };
    if id >= 0 {
        return Ok(Some(id));
    }
    match SysError::last("shmget", std::process::id()) {
        error if error.errno() == Some(libc::ENOENT) => Ok(None),
        error => Err(error),
    }
}

/// Length of a segment.
///
/// # Errors
/// There is none with this id.
pub fn segment_len(id: i32) -> Result<Bytes, SysError> {
    let mut about = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: the kernel fills the struct, for which zeroes are a valid value too.
    let (result, about) = unsafe {
        let result = libc::shmctl(id, libc::IPC_STAT, about.as_mut_ptr());
        (result, about.assume_init())
    };
    if result < 0 {
        return Err(SysError::last("shmctl", std::process::id()));
    }
    Ok(Bytes(about.shm_segsz as u64))
}

/// Removes a segment once nobody uses it any more.
///
/// # Errors
/// It is not ours, or there is none.
pub fn remove_segment(id: i32) -> Result<(), SysError> {
    // SAFETY: removing needs no struct.
    let result = unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(SysError::last("shmctl", std::process::id())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::pages::{PageStatus, query};

    fn resident(mapping: &Mapping) -> usize {
        let page = pages::size().0;
        let addresses: Vec<u64> =
            (0..mapping.len() as u64 / page).map(|i| mapping.start() + i * page).collect();
        let mut status = Vec::new();
        query(std::process::id(), &addresses, &mut status).unwrap();
        status.iter().filter(|&&s| matches!(PageStatus::from_raw(s), PageStatus::On(_))).count()
    }

    #[test]
    fn memory_of_every_kind_is_touched_where_it_was_meant() {
        let page = pages::size().0 as usize;
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 * page as u64).unwrap();
        let private = Mapping::private(16 * page).unwrap();
        private.without_huge_pages();
        for mut mapping in [private, Mapping::file(&file, 0, 16 * page).unwrap()] {
            mapping.touch(4 * page..8 * page, Touch::Write);
            assert!(resident(&mapping) >= 4, "{mapping:?}");
            mapping.fill(0..page, 0xff);
            mapping.lock(0..page, true).unwrap();
            mapping.lock(0..page, false).unwrap();
        }
        assert!(Mapping::shared(0).is_err());
        assert!(Mapping::file(&file, 1, page).is_err(), "an offset within a page");
    }

    #[test]
    fn segments_are_made_found_and_removed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let key = key(file.path(), 7).unwrap();
        let wanted = Segment { key, len: 0, create: None, huge: false };
        assert_eq!(segment(wanted).unwrap(), None);
        let made = segment(Segment { len: 8192, create: Some(0o600), ..wanted }).unwrap().unwrap();
        assert_eq!(segment(wanted).unwrap(), Some(made));
        assert_eq!(segment_len(made).unwrap(), Bytes(8192));
        let mut mapping = Mapping::attach(made, 8192).unwrap();
        mapping.touch(0..8192, Touch::Write);
        remove_segment(made).unwrap();
        assert!(super::key("/no/such/file".as_ref(), 0).is_none());
    }

    #[test]
    #[should_panic(expected = "of 4096")]
    fn beyond_the_end_is_refused() {
        Mapping::private(4096).unwrap().touch(0..8192, Touch::Read);
    }
}
