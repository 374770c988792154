//! One vCPU's own cache: set-associative, least recently used out first, tagged by physical
//! line.
//!
//! Owns tags only, no data. Invariant: within a set the tags are ordered by recency, most recent
//! first; [`Tag::EMPTY`] marks an empty way.
//!
//! ```text
//! two ways:  touch A, B  →  [B A]     touch A → hit  [A B]     touch C → miss [C A], B is out
//! ```

use crate::tag::Tag;

/// A cache of `sets × ways` lines.
pub struct Cache {
    tags: Box<[Tag]>,
    set_mask: u64,
    ways: usize,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The line is here, and has this tag; it is the most recent of its set now.
    Hit(Tag),
    /// It was not, and is now, with the tag given; this one had to go.
    Miss {
        /// [`Tag::EMPTY`] if there was room.
        victim: Tag,
    },
}

impl Cache {
    /// An empty cache. `sets` must be a power of two, and both at least 1.
    #[must_use]
    pub fn new(sets: usize, ways: usize) -> Self {
        debug_assert!(sets.is_power_of_two() && ways > 0);
        let tags = vec![Tag::EMPTY; sets * ways].into_boxed_slice();
        Cache { tags, set_mask: sets as u64 - 1, ways }
    }

    #[inline(always)]
    fn first(&self, line: u64) -> usize {
        (line & self.set_mask) as usize * self.ways
    }

    /// Brings `line` in as the most recent of its set. A copy that is here keeps its tag; a new
    /// one gets `fresh`.
    #[inline]
    pub fn touch(&mut self, line: u64, fresh: Tag) -> Touch {
        let first = self.first(line);
        let set = &mut self.tags[first..first + self.ways];
        let front = set[0];
        if front.is_of(line) {
            return Touch::Hit(front);
        }
        // Each tag moves one way down until the hole that `line` left, or out of the set.
        let mut carried = std::mem::replace(&mut set[0], fresh);
        for way in &mut set[1..] {
            std::mem::swap(&mut carried, way);
            if carried.is_of(line) {
                set[0] = carried;
                return Touch::Hit(carried);
            }
        }
        Touch::Miss { victim: carried }
    }

    /// Replaces the tag of the line touched last.
    #[inline]
    pub fn retag(&mut self, line: u64, tag: Tag) {
        let first = self.first(line);
        debug_assert!(self.tags[first].is_of(line));
        self.tags[first] = tag;
    }

    /// Empties the cache.
    pub fn clear(&mut self) {
        self.tags.fill(Tag::EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(cache: &mut Cache, line: u64) -> bool {
        matches!(cache.touch(line, Tag::new(line, 0, 0)), Touch::Hit(_))
    }

    #[test]
    fn the_least_recent_line_of_a_full_set_goes() {
        let mut cache = Cache::new(1, 2);
        let found: Vec<bool> = [10, 20, 10, 30, 10, 20].map(|line| hits(&mut cache, line)).to_vec();
        // 10 and 20 come in; 10 hits and is recent; 30 throws 20 out; 10 stayed; 20 is gone.
        assert_eq!(found, [false, false, true, false, true, false]);
    }

    #[test]
    fn what_goes_is_told_with_its_tag() {
        let mut cache = Cache::new(1, 2);
        let tag = Tag::new(7, 3, 5);
        assert_eq!(cache.touch(7, tag), Touch::Miss { victim: Tag::EMPTY });
        cache.retag(7, tag.dirty());
        assert_eq!(cache.touch(8, Tag::new(8, 0, 0)), Touch::Miss { victim: Tag::EMPTY });
        assert_eq!(cache.touch(9, Tag::new(9, 0, 0)), Touch::Miss { victim: tag.dirty() });
        assert_eq!(cache.touch(8, Tag::new(8, 1, 1)), Touch::Hit(Tag::new(8, 0, 0)));
    }

    #[test]
    fn lines_of_different_sets_do_not_meet() {
        let mut cache = Cache::new(4, 1);
        for line in 0..4 {
            assert!(!hits(&mut cache, line));
        }
        assert!((0..4).all(|line| hits(&mut cache, line)));
        assert!(!hits(&mut cache, 4)); // line 4 shares set 0 with line 0
        assert!(!hits(&mut cache, 0));
        assert!(hits(&mut cache, 1));
    }

    #[test]
    fn a_loop_over_twice_the_cache_never_hits_and_over_the_cache_always_does() {
        let mut cache = Cache::new(256, 4); // 64 KiB of 64-byte lines
        let misses =
            |cache: &mut Cache, lines: u64| (0..lines).filter(|&l| !hits(cache, l)).count();
        assert_eq!(misses(&mut cache, 2048), 2048);
        assert_eq!(misses(&mut cache, 2048), 2048);
        assert_eq!(misses(&mut cache, 1024), 1024);
        assert_eq!(misses(&mut cache, 1024), 0);
    }

    #[test]
    fn line_zero_is_a_line_like_any_other_and_clear_forgets() {
        let mut cache = Cache::new(2, 2);
        assert!(!hits(&mut cache, 0));
        assert!(hits(&mut cache, 0));
        cache.clear();
        assert!(!hits(&mut cache, 0));
    }
}
