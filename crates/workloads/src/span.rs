//! A piece of anonymous memory, written and read a cache line at a time.
//!
//! Its words are atomics, written and read without ordering: plain loads and stores that threads
//! may share. Writes are eight 8-byte stores a line, so that every build does the same work;
//! `memset` would depend on the CPU.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{WorkloadError, sys, system};

/// Size of a huge page, and alignment of a span, so that huge pages fit.
pub const HUGE_BYTES: usize = 2 << 20;
/// Bytes per cache line.
pub const LINE_BYTES: usize = 64;
/// Words per cache line.
const LINE_WORDS: usize = LINE_BYTES / 8;

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
        let mapping = anonymous(len, len.checked_add(HUGE_BYTES), 0)?;
        if let Some(wanted) = huge_pages {
            let advice = if wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
            let address = mapping.start as *mut libc::c_void;
            // SAFETY: advice on our own mapping. Kernels without huge pages refuse it, which
            // changes nothing.
            unsafe { libc::madvise(address, mapping.len(), advice) };
        }
        let start = mapping.start.next_multiple_of(HUGE_BYTES);
        Ok(Span { mapping, start, len })
    }

    /// Maps whole huge pages of the kernel's reserve (hugetlb), which are never split, swapped
    /// or scanned.
    pub fn map_reserved(len: usize) -> Result<Span, WorkloadError> {
        let kind = libc::MAP_HUGETLB | (HUGE_BYTES.ilog2() as i32) << libc::MAP_HUGE_SHIFT;
        let mapping = anonymous(len, len.checked_next_multiple_of(HUGE_BYTES), kind)?;
        Ok(Span { start: mapping.start, mapping, len })
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Puts the policy `mode` over `nodes` on part of the span, for pages not touched yet.
    pub fn bind(&self, part: Range<usize>, mode: i32, nodes: &[u32]) -> Result<(), WorkloadError> {
        let first = (self.start + part.start) / 4096 * 4096;
        let last = (self.start + part.end).next_multiple_of(4096);
        sys::bind_range(first..last, mode, nodes)
            .map_err(system(&format!("cannot bind memory to nodes {nodes:?}")))
    }

    /// The whole lines of a part, as words.
    fn line_words(&self, part: Range<usize>) -> &[AtomicU64] {
        assert!(part.start <= part.end && part.end <= self.len);
        let lines = part.start / LINE_BYTES..part.end / LINE_BYTES;
        let first = (self.start + lines.start * LINE_BYTES) as *const AtomicU64;
        // SAFETY: the lines lie within the mapping, as asserted above, which is aligned, zeroed
        // by the kernel, lives as long as we do, and whoever shares it reaches it through such
        // words only.
        unsafe { std::slice::from_raw_parts(first, lines.len() * LINE_WORDS) }
    }

    // The loops below are what workloads are timed by. Each is a function of its own, whose code does not depend on whoever
    // calls it: as part of their callers they were compiled otherwise when other code of this crate changed, and took
    // up to 2.3 % longer.

    /// Writes `value` to all words of a part.
    #[inline(never)]
    pub fn write(&self, part: Range<usize>, value: u64) {
        for line in self.line_words(part).chunks_exact(LINE_WORDS) {
            line[0].store(value, Relaxed);
            line[1].store(value, Relaxed);
            line[2].store(value, Relaxed);
            line[3].store(value, Relaxed);
            line[4].store(value, Relaxed);
            line[5].store(value, Relaxed);
            line[6].store(value, Relaxed);
            line[7].store(value, Relaxed);
        }
    }

    /// Loads the first word of each line of a part and stores it again.
    #[inline(never)]
    pub fn update(&self, part: Range<usize>) {
        for line in self.line_words(part).chunks_exact(LINE_WORDS) {
            line[0].store(line[0].load(Relaxed), Relaxed);
        }
    }

    /// All of it, as words.
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: the mapping is ours, aligned, at least this long and initialised (to zero, by
        // the kernel); we hold it exclusively as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.start as *mut u64, self.len / 8) }
    }

    /// Reads one word of each line of a part and adds them up.
    #[inline(never)]
    pub fn read(&self, part: Range<usize>) -> u64 {
        let words = self.line_words(part).iter().step_by(LINE_WORDS);
        words.fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }

    /// As [`Span::read`], eight lines a turn, so that its instructions hardly count beside the
    /// memory; lines beyond a multiple of eight are left out.
    #[inline(never)]
    pub fn sweep(&self, part: Range<usize>) -> u64 {
        let mut sum = 0u64;
        for lines in self.line_words(part).chunks_exact(8 * LINE_WORDS) {
            let word = |line: usize| lines[line * LINE_WORDS].load(Relaxed);
            sum = sum
                .wrapping_add(word(0))
                .wrapping_add(word(1))
                .wrapping_add(word(2))
                .wrapping_add(word(3))
                .wrapping_add(word(4))
                .wrapping_add(word(5))
                .wrapping_add(word(6))
                .wrapping_add(word(7));
        }
        sum
    }

    /// `to[i] = from[i] + 3 × and[i]` for one word of each line of three parts of equal length:
    /// every line is moved as if all its words were, with few instructions.
    #[inline(never)]
    pub fn triad(&self, to: Range<usize>, from: Range<usize>, and: Range<usize>) {
        let (to, from, and) = (self.line_words(to), self.line_words(from), self.line_words(and));
        let others = from.chunks_exact(LINE_WORDS).zip(and.chunks_exact(LINE_WORDS));
        for (to, (from, and)) in to.chunks_exact(LINE_WORDS).zip(others) {
            let sum = from[0].load(Relaxed).wrapping_add(and[0].load(Relaxed).wrapping_mul(3));
            to[0].store(sum, Relaxed);
        }
    }

    /// The least and the greatest word of a part.
    #[cfg(test)]
    pub fn extremes(&self, part: Range<usize>) -> (u64, u64) {
        let words = self.line_words(part).iter().map(|word| word.load(Relaxed));
        words.fold((u64::MAX, 0), |(least, most), word| (least.min(word), most.max(word)))
    }
}

/// `whole` is what `len` takes; none where that is more than can be told.
fn anonymous(len: usize, whole: Option<usize>, kind: i32) -> Result<Range<usize>, WorkloadError> {
    let failed = |source| WorkloadError::System { what: format!("cannot map {len} bytes"), source };
    let whole = whole.ok_or_else(|| failed(std::io::ErrorKind::OutOfMemory.into()))?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = kind | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), whole, access, kind, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(failed(std::io::Error::last_os_error()));
    }
    Ok(address as usize..address as usize + whole)
}

impl Drop for Span {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference into it outlives us.
        unsafe { libc::munmap(self.mapping.start as *mut libc::c_void, self.mapping.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_aligned_and_holds_what_was_written() {
        let span = Span::map(1 << 20, Some(false)).unwrap();
        assert_eq!(span.start % HUGE_BYTES, 0);
        span.write(4096..8192, 7);
        assert_eq!(span.extremes(4096..8192), (7, 7));
        assert_eq!(span.extremes(0..4096), (0, 0));
        // 64 lines of 64 bytes are 4096 bytes; one word of each is 7.
        assert_eq!(span.read(0..1 << 20), 64 * 7);
        assert_eq!(span.sweep(0..1 << 20), 64 * 7);
        // 9 lines from 7 on: the first eight are a turn, of which the last seven were written.
        assert_eq!(span.sweep(4096 - 64..4096 + 8 * 64), 7 * 7);
    }

    #[test]
    fn what_no_address_space_holds_is_an_error() {
        for len in [usize::MAX, usize::MAX - HUGE_BYTES, 1 << 62] {
            for span in [Span::map(len, None), Span::map_reserved(len)] {
                let error = span.err().unwrap().to_string();
                assert!(error.contains(&format!("cannot map {len} bytes")), "{error}");
            }
        }
    }

    #[test]
    fn an_update_changes_nothing() {
        let span = Span::map(8192, None).unwrap();
        span.write(0..4096, 9);
        span.update(0..8192);
        assert_eq!((span.extremes(0..4096), span.extremes(4096..8192)), ((9, 9), (0, 0)));
    }

    #[test]
    fn a_triad_adds_three_times_the_third() {
        let span = Span::map(3 * 4096, None).unwrap();
        span.write(4096..8192, 5);
        span.write(8192..12288, 2);
        span.triad(0..4096, 4096..8192, 8192..12288);
        // 5 + 3 x 2 in one word of each of 64 lines.
        assert_eq!(span.read(0..4096), 64 * 11);
    }

    #[test]
    #[should_panic(expected = "part.end <= self.len")]
    fn a_part_beyond_the_end_is_refused() {
        Span::map(4096, None).unwrap().write(0..8192, 0);
    }
}
