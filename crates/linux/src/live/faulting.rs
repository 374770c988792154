//! What a hinting fault takes here.
//!
//! To take one to measure it we would have to wait until the kernel scans us. To touch memory for the first time
//! is a fault as well: a page is cleared in it, and a hinting fault looks up where its page belongs instead. On a
//! server either is about a microsecond, in an emulator it is fifty times that; within a factor of two is enough to
//! know how many a program can bear.

use std::time::Instant;

use numaherd_model::Nanos;

use crate::sys::mapping::{Mapping, Touch};
use crate::sys::pages;

/// Rounds, of which the median counts: in some we are interrupted.
const ROUNDS: usize = 5;
/// Pages that are touched in each. All together are less than a huge page.
const PAGES: usize = 64;

/// The time of one; none if there is no memory to try it on.
pub fn measured() -> Option<Nanos> {
    let page = pages::size().0 as usize;
    let mut memory = Mapping::private(ROUNDS * PAGES * page).ok()?;
    let mut round = |round: usize| {
        let begun = Instant::now();
        memory.touch(round * PAGES * page..(round + 1) * PAGES * page, Touch::Write);
        begun.elapsed().as_nanos() as u64 / PAGES as u64
    };
    let mut each: Vec<u64> = (0..ROUNDS).map(&mut round).collect();
    each.sort_unstable();
    Some(Nanos(each[ROUNDS / 2].max(1)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_fault_takes_longer_than_a_touch_and_less_than_a_disk() {
        let time = super::measured().unwrap().0;
        assert!((20..10_000_000).contains(&time), "{time} ns");
    }
}
