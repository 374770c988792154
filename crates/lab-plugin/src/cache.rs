//! One vCPU's cache: set-associative, least recently used out first, tagged by physical line.
//!
//! Owns tags only, no data. Units: lines (a physical key divided by the line size). Invariant:
//! within a set the tags are ordered by recency, most recent first; 0 marks an empty way.
//!
//! ```text
//! two ways:  touch A, B  →  [B A]     touch A → hit  [A B]     touch C → miss [C A], B is out
//! ```

/// A cache of `sets × ways` lines.
pub struct Cache {
    /// `ways` tags a set; a tag is its line + 1.
    tags: Box<[u64]>,
    set_mask: u64,
    ways: usize,
}

impl Cache {
    /// An empty cache. `sets` must be a power of two, and both at least 1.
    #[must_use]
    pub fn new(sets: usize, ways: usize) -> Self {
        debug_assert!(sets.is_power_of_two() && ways > 0);
        Cache { tags: vec![0; sets * ways].into_boxed_slice(), set_mask: sets as u64 - 1, ways }
    }

    /// Brings `line` in as the most recent of its set; whether it was there already.
    #[inline]
    pub fn touch(&mut self, line: u64) -> bool {
        let first = (line & self.set_mask) as usize * self.ways;
        let set = &mut self.tags[first..first + self.ways];
        let tag = line + 1;
        let mut carried = std::mem::replace(&mut set[0], tag);
        if carried == tag {
            return true;
        }
        // Each tag moves one way down until the hole that `line` left, or out of the set.
        for way in &mut set[1..] {
            std::mem::swap(&mut carried, way);
            if carried == tag {
                return true;
            }
        }
        false
    }

    /// Empties the cache.
    pub fn clear(&mut self) {
        self.tags.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_line_of_a_full_set_goes() {
        let mut cache = Cache::new(1, 2);
        let hits: Vec<bool> = [10, 20, 10, 30, 10, 20].map(|line| cache.touch(line)).to_vec();
        // 10 and 20 come in; 10 hits and is recent; 30 throws 20 out; 10 stayed; 20 is gone.
        assert_eq!(hits, [false, false, true, false, true, false]);
    }

    #[test]
    fn lines_of_different_sets_do_not_meet() {
        let mut cache = Cache::new(4, 1);
        for line in 0..4 {
            assert!(!cache.touch(line));
        }
        assert!((0..4).all(|line| cache.touch(line)));
        assert!(!cache.touch(4)); // line 4 shares set 0 with line 0
        assert!(!cache.touch(0));
        assert!(cache.touch(1));
    }

    #[test]
    fn a_loop_over_twice_the_cache_never_hits_and_over_the_cache_always_does() {
        let mut cache = Cache::new(256, 4); // 64 KiB of 64-byte lines
        let misses =
            |cache: &mut Cache, lines: u64| (0..lines).filter(|&l| !cache.touch(l)).count();
        assert_eq!(misses(&mut cache, 2048), 2048);
        assert_eq!(misses(&mut cache, 2048), 2048);
        assert_eq!(misses(&mut cache, 1024), 1024);
        assert_eq!(misses(&mut cache, 1024), 0);
    }

    #[test]
    fn line_zero_is_a_line_like_any_other_and_clear_forgets() {
        let mut cache = Cache::new(2, 2);
        assert!(!cache.touch(0));
        assert!(cache.touch(0));
        cache.clear();
        assert!(!cache.touch(0));
    }
}
