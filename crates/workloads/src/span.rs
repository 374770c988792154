//! A piece of anonymous memory, written and read a cache line at a time.
//!
//! Writes are eight 8-byte stores a line, so that every build does the same work; `memset`
//! would depend on the CPU.

use std::ops::Range;

use crate::{WorkloadError, sys, system};

/// Alignment of a span, so that huge pages fit.
const ALIGN_BYTES: usize = 2 << 20;
/// Bytes per cache line.
const LINE_BYTES: usize = 64;

/// Private anonymous memory, unmapped when dropped.
pub struct Span {
    mapping: Range<usize>,
    start: usize,
    len: usize,
}

impl Span {
    /// Maps `len` bytes (a multiple of a line is used), aligned to 2 MiB, without touching
    /// them.
    pub fn map(len: usize, huge_pages: Option<bool>) -> Result<Span, WorkloadError> {
        let whole = len + ALIGN_BYTES;
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), whole, access, kind, -1, 0) };
        if address == libc::MAP_FAILED {
            let source = std::io::Error::last_os_error();
            return Err(WorkloadError::System { what: format!("cannot map {len} bytes"), source });
        }
        let address = address as usize;
        let start = address.next_multiple_of(ALIGN_BYTES);
        let span = Span { mapping: address..address + whole, start, len };
        if let Some(wanted) = huge_pages {
            let advice = if wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
            // SAFETY: advice on our own mapping. Kernels without huge pages refuse it, which
            // changes nothing.
            unsafe { libc::madvise(address as *mut libc::c_void, whole, advice) };
        }
        Ok(span)
    }

    /// Puts the policy `mode` over `nodes` on part of the span, for pages not touched yet.
    pub fn bind(&self, part: Range<usize>, mode: i32, nodes: &[u32]) -> Result<(), WorkloadError> {
        let first = (self.start + part.start) / 4096 * 4096;
        let last = (self.start + part.end).next_multiple_of(4096);
        sys::bind_range(first..last, mode, nodes)
            .map_err(system(&format!("cannot bind memory to nodes {nodes:?}")))
    }

    /// Zeroes part of the span.
    pub fn write(&mut self, part: Range<usize>) {
        // SAFETY: we hold the span exclusively.
        unsafe { self.write_shared(part) }
    }

    /// Zeroes part of the span that other threads may be zeroing too.
    ///
    /// # Safety
    /// Nobody may hold a reference into the span, and everybody may only write zeroes: all
    /// writes are then of the same value.
    pub unsafe fn write_shared(&self, part: Range<usize>) {
        assert!(part.start <= part.end && part.end <= self.len);
        let lines = part.start / LINE_BYTES..part.end / LINE_BYTES;
        let first = (self.start + lines.start * LINE_BYTES) as *mut u64;
        for line in 0..lines.len() {
            // SAFETY: the line lies within the mapping, as asserted above, and is aligned.
            unsafe {
                let line = first.add(line * 8);
                line.write_volatile(0);
                line.add(1).write_volatile(0);
                line.add(2).write_volatile(0);
                line.add(3).write_volatile(0);
                line.add(4).write_volatile(0);
                line.add(5).write_volatile(0);
                line.add(6).write_volatile(0);
                line.add(7).write_volatile(0);
            }
        }
    }

    /// Loads the first word of each line of a part and stores it again.
    ///
    /// # Safety
    /// As for [`Span::write_shared`]; nobody else may write the part.
    pub unsafe fn update(&self, part: Range<usize>) {
        assert!(part.start <= part.end && part.end <= self.len);
        for line in part.start / LINE_BYTES..part.end / LINE_BYTES {
            // SAFETY: the line lies within the mapping, as asserted above, and is aligned.
            unsafe {
                let word = (self.start + line * LINE_BYTES) as *mut u64;
                word.write_volatile(word.read_volatile());
            }
        }
    }

    /// All of it, as words.
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: the mapping is ours, aligned, at least this long and initialised (to zero, by
        // the kernel); we hold it exclusively as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.start as *mut u64, self.len / 8) }
    }

    /// Reads one word of each line of a part and adds them up.
    pub fn read(&self, part: Range<usize>) -> u64 {
        assert!(part.start <= part.end && part.end <= self.len);
        let words = (part.start / LINE_BYTES..part.end / LINE_BYTES).map(|line| {
            // SAFETY: the line lies within the mapping, as asserted above, and is aligned.
            unsafe { ((self.start + line * LINE_BYTES) as *const u64).read_volatile() }
        });
        words.fold(0, u64::wrapping_add)
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference into it is ever handed out.
        unsafe { libc::munmap(self.mapping.start as *mut libc::c_void, self.mapping.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_aligned_and_reads_as_zero_after_a_write() {
        let mut span = Span::map(1 << 20, Some(false)).unwrap();
        assert_eq!(span.start % ALIGN_BYTES, 0);
        span.write(0..1 << 20);
        assert_eq!(span.read(0..1 << 20), 0);
    }

    #[test]
    #[should_panic(expected = "part.end <= self.len")]
    fn a_part_beyond_the_end_is_refused() {
        Span::map(4096, None).unwrap().write(0..8192);
    }
}
