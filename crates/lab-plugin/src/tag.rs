//! What a cache remembers of a line it holds, in one word.
//!
//! ```text
//! bit   63 … 24      23 … 14   13 … 2     1           0
//!       line + 1     node      version    referenced  dirty
//! ```
//!
//! A line is a physical key divided by the line size; `line + 1` is 0 in an empty way only. The
//! node is the one whose memory holds the line, so that a write-back knows where to go. The
//! version is the directory's (see [`crate::directory`]): a copy whose version is not the
//! present one was written elsewhere since, and is no copy any more. `referenced` is the shared
//! cache's, for replacement.

const LINE_SHIFT: u32 = 24;
const NODE_SHIFT: u32 = 14;
const NODE_MASK: u64 = (1 << (LINE_SHIFT - NODE_SHIFT)) - 1;
const VERSION_SHIFT: u32 = 2;
/// Versions count up to here and start again.
pub const VERSION_MASK: u32 = (1 << (NODE_SHIFT - VERSION_SHIFT)) - 1;
const REFERENCED: u64 = 1 << 1;
const DIRTY: u64 = 1;

/// The word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(pub u64);

impl Tag {
    /// An empty way.
    pub const EMPTY: Tag = Tag(0);

    /// A clean copy of `line`, whose memory is on that node.
    #[inline(always)]
    #[must_use]
    pub fn new(line: u64, node: usize, version: u32) -> Tag {
        debug_assert!(line + 1 < 1 << (64 - LINE_SHIFT) && node as u64 <= NODE_MASK);
        Tag((line + 1) << LINE_SHIFT
            | (node as u64) << NODE_SHIFT
            | u64::from(version & VERSION_MASK) << VERSION_SHIFT)
    }

    /// Whether this is a copy of `line`, of whatever version.
    #[inline(always)]
    #[must_use]
    pub fn is_of(self, line: u64) -> bool {
        self.0 >> LINE_SHIFT == line + 1
    }

    /// The line; `None` of an empty way.
    #[inline(always)]
    #[must_use]
    pub fn line(self) -> Option<u64> {
        (self.0 >> LINE_SHIFT).checked_sub(1)
    }

    /// Index of the node that holds the line.
    #[inline(always)]
    #[must_use]
    pub fn node(self) -> usize {
        (self.0 >> NODE_SHIFT & NODE_MASK) as usize
    }

    /// The version that was copied.
    #[inline(always)]
    #[must_use]
    pub fn version(self) -> u32 {
        (self.0 >> VERSION_SHIFT) as u32 & VERSION_MASK
    }

    /// Whether memory has not seen what was written.
    #[inline(always)]
    #[must_use]
    pub fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// The same, dirty.
    #[inline(always)]
    #[must_use]
    pub fn dirty(self) -> Tag {
        Tag(self.0 | DIRTY)
    }

    /// Whether it was used since the replacement's hand passed by.
    #[inline(always)]
    #[must_use]
    pub fn is_referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    /// The same, with that mark or without.
    #[inline(always)]
    #[must_use]
    pub fn referenced(self, yes: bool) -> Tag {
        Tag(if yes { self.0 | REFERENCED } else { self.0 & !REFERENCED })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_are_kept_apart() {
        let tag = Tag::new(0x12_3456_789a, 1023, VERSION_MASK);
        assert!(tag.is_of(0x12_3456_789a) && !tag.is_of(0x12_3456_789b));
        assert_eq!((tag.line(), tag.node()), (Some(0x12_3456_789a), 1023));
        assert_eq!(tag.version(), VERSION_MASK);
        assert!(!tag.is_dirty() && !tag.is_referenced());
        let marked = tag.dirty().referenced(true);
        assert!(marked.is_dirty() && marked.is_referenced());
        assert_eq!(marked.referenced(false), tag.dirty());
        assert_eq!((marked.line(), marked.node()), (tag.line(), tag.node()));
    }

    #[test]
    fn an_empty_way_is_no_line_not_even_line_zero() {
        assert_eq!(Tag::EMPTY.line(), None);
        assert!(!Tag::EMPTY.is_of(0));
        assert!(Tag::new(0, 0, 0).is_of(0));
    }
}
