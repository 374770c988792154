//! A last-level cache that several vCPUs share: set-associative, tagged by physical line, second
//! chance replacement (a set's hand passes by what was used since it came by last).
//!
//! Every word is atomic and there is no lock: two vCPUs that meet in one set may lose an entry
//! or bring it in twice, which blurs replacement and nothing else. Not inclusive: what leaves
//! here may stay in a vCPU's own cache.
//!
//! ```text
//! one set of two ways, hand at 0:  put A, B → [A B]   find A → [A* B]   put C → [A C], B is out
//! ```

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::tag::Tag;

/// The cache.
pub struct SharedCache {
    tags: Box<[AtomicU64]>,
    hands: Box<[AtomicU8]>,
    set_mask: u64,
    ways: usize,
}

impl SharedCache {
    /// An empty cache. `sets` must be a power of two; `ways` from 1 to 64.
    #[must_use]
    pub fn new(sets: usize, ways: usize) -> Self {
        debug_assert!(sets.is_power_of_two() && (1..=64).contains(&ways));
        SharedCache {
            tags: (0..sets * ways).map(|_| AtomicU64::new(0)).collect(),
            hands: (0..sets).map(|_| AtomicU8::new(0)).collect(),
            set_mask: sets as u64 - 1,
            ways,
        }
    }

    fn set(&self, line: u64) -> (&[AtomicU64], &AtomicU8) {
        let set = (line & self.set_mask) as usize;
        (&self.tags[set * self.ways..][..self.ways], &self.hands[set])
    }

    /// The copy of `line` that is here, if any; it counts as used.
    pub fn find(&self, line: u64) -> Option<Tag> {
        let (set, _) = self.set(line);
        for way in set {
            let tag = Tag(way.load(Relaxed));
            if tag.is_of(line) {
                if !tag.is_referenced() {
                    way.store(tag.referenced(true).0, Relaxed);
                }
                return Some(tag);
            }
        }
        None
    }

    /// Gives the copy that is here this tag, or brings one in. What had to go for it, or
    /// [`Tag::EMPTY`].
    pub fn put(&self, line: u64, tag: Tag) -> Tag {
        let (set, _) = self.set(line);
        match set.iter().find(|way| Tag(way.load(Relaxed)).is_of(line)) {
            Some(way) => {
                way.store(tag.0, Relaxed);
                Tag::EMPTY
            }
            None => self.insert(line, tag),
        }
    }

    /// Brings a copy in of a line that is not here. What had to go for it, or [`Tag::EMPTY`].
    pub fn insert(&self, line: u64, tag: Tag) -> Tag {
        let (set, hand) = self.set(line);
        let mut at = usize::from(hand.load(Relaxed));
        // Twice around at most: the first round takes the marks away.
        for _ in 0..2 * self.ways {
            let old = Tag(set[at].load(Relaxed));
            let next = if at + 1 == self.ways { 0 } else { at + 1 };
            if !old.is_referenced() {
                set[at].store(tag.0, Relaxed);
                hand.store(next as u8, Relaxed);
                return old;
            }
            set[at].store(old.referenced(false).0, Relaxed);
            at = next;
        }
        Tag::EMPTY // others keep marking this set: the line does not come in
    }

    /// Empties the cache.
    pub fn clear(&self) {
        self.tags.iter().for_each(|way| way.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(line: u64) -> Tag {
        Tag::new(line, 0, 0)
    }

    #[test]
    fn what_was_used_gets_a_second_chance() {
        let cache = SharedCache::new(1, 2);
        assert_eq!(cache.put(1, tag(1)), Tag::EMPTY);
        assert_eq!(cache.put(2, tag(2)), Tag::EMPTY);
        assert_eq!(cache.find(1), Some(tag(1)));
        assert_eq!(cache.put(3, tag(3)), tag(2));
        assert!(cache.find(1).is_some() && cache.find(2).is_none() && cache.find(3).is_some());
    }

    #[test]
    fn a_loop_over_more_than_the_cache_misses_and_over_less_hits() {
        let cache = SharedCache::new(64, 8);
        let misses = |lines: u64| {
            let miss = |line: &u64| {
                cache.find(*line).is_none() && {
                    cache.put(*line, tag(*line));
                    true
                }
            };
            (0..lines).filter(miss).count()
        };
        assert_eq!(misses(1024), 1024);
        assert_eq!(misses(1024), 1024); // nothing was used twice: first in, first out
        assert_eq!(misses(512), 512);
        assert_eq!(misses(512), 0);
    }

    #[test]
    fn a_copy_that_is_here_takes_the_new_tag() {
        let cache = SharedCache::new(1, 2);
        cache.put(1, tag(1));
        assert_eq!(cache.put(1, tag(1).dirty()), Tag::EMPTY);
        assert_eq!(cache.find(1), Some(tag(1).dirty()));
        cache.put(2, tag(2));
        cache.clear();
        assert_eq!(cache.find(1), None);
    }
}
