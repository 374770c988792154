//! Something that passes a limited number of bytes a second: a node's memory, or one direction
//! of a link.
//!
//! Time is cut into windows. A window passes `rate × window` bytes, whoever asks first; who comes
//! too late gets a place in the next window that has one, and waits until that begins. So what
//! passes is the stated rate exactly when more is wanted, and nobody waits when less is, although
//! the vCPUs' clocks run apart by a quantum and more: it does not matter in which order they
//! come to a window, only what all of them want of it. What a queue does within a window
//! (65 µs) is not seen.
//!
//! Units: bytes, and guest time in ps. Any thread may ask at any time; there is no lock.
//!
//! ```text
//! window 100, 10 bytes each:  8 at t=130 → 130    6 at t=110 → no room, so 200    4 at t=160 → 200
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Length of a window: the order of the throttle's quantum, below which vCPUs are not in step
/// anyway.
pub const WINDOW_PS: u64 = 1 << 26;
/// Windows remembered, 17 ms. A vCPU that lags further behind no longer finds its window, and
/// passes freely.
const WINDOWS: usize = 256;
const BYTES_BITS: u32 = 32;
const BYTES_MASK: u64 = (1 << BYTES_BITS) - 1;
const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// The server.
pub struct Server {
    /// A window's number above, the bytes that passed in it below.
    windows: Box<[AtomicU64]>,
    bytes_per_window: u64,
    window_ps: u64,
}

impl Server {
    /// Passes that many bytes a second.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Server {
        let bytes = u128::from(bytes_per_second) * u128::from(WINDOW_PS) / PS_PER_SECOND;
        Server::with_window(WINDOW_PS, u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    fn with_window(window_ps: u64, bytes_per_window: u64) -> Server {
        Server {
            windows: (0..WINDOWS).map(|_| AtomicU64::new(0)).collect(),
            bytes_per_window: bytes_per_window.min(BYTES_MASK / 2),
            window_ps,
        }
    }

    /// When `bytes` pass that are wanted at `at_ps`: then, or at the beginning of the next
    /// window with room.
    #[must_use]
    pub fn pass(&self, bytes: u64, at_ps: u64) -> u64 {
        let first = at_ps / self.window_ps;
        for window in first..first + WINDOWS as u64 {
            if self.take(window, bytes) {
                return at_ps.max(window * self.window_ps);
            }
        }
        at_ps + WINDOWS as u64 * self.window_ps
    }

    /// Takes bytes of a window. Half of what is asked for must fit, so that the limit is kept on
    /// average.
    fn take(&self, window: u64, bytes: u64) -> bool {
        let slot = &self.windows[window as usize % WINDOWS];
        let mut seen = slot.load(Relaxed);
        loop {
            let used = match (seen >> BYTES_BITS).cmp(&window) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => seen & BYTES_MASK,
                std::cmp::Ordering::Greater => return true, // long over
            };
            if used > 0 && used + bytes / 2 > self.bytes_per_window {
                return false;
            }
            let taken = (window << BYTES_BITS) | (used + bytes);
            match slot.compare_exchange_weak(seen, taken, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_to_a_full_window_waits_for_the_next() {
        let server = Server::with_window(100, 10);
        assert_eq!(server.pass(8, 130), 130);
        assert_eq!(server.pass(6, 110), 200); // 8 + 6 / 2 > 10
        assert_eq!(server.pass(4, 160), 160); // half of it fits
        assert_eq!(server.pass(1, 160), 200);
        assert_eq!(server.pass(8, 210), 300); // 7 are taken, and 7 + 8 / 2 > 10
    }

    #[test]
    fn order_does_not_matter_below_the_limit() {
        // Two CPUs want 400 bytes of each window of 1000; the second comes when the first has
        // been through ten windows. Neither waits.
        let server = Server::with_window(1000, 1000);
        for _ in 0..2 {
            for step in 0..100 {
                assert_eq!(server.pass(40, step * 100), step * 100);
            }
        }
    }

    #[test]
    fn above_the_limit_the_rate_is_kept() {
        // Four CPUs that each want a byte per ps of a server that passes one: 4 x 100,000 bytes
        // take 400,000 ps, give or take a window.
        let server = Server::with_window(1000, 1000);
        let mut clocks = [0u64; 4];
        let mut left = [100_000u64; 4];
        // Each runs until it is a quantum of 2000 ahead of the slowest, then it is the next's turn.
        while left.iter().any(|&left| left > 0) {
            for cpu in 0..4 {
                let slowest = (0..4).filter(|&c| left[c] > 0).map(|c| clocks[c]).min();
                while left[cpu] > 0 && slowest.is_some_and(|slowest| clocks[cpu] < slowest + 2000) {
                    clocks[cpu] = server.pass(40, clocks[cpu]) + 40;
                    left[cpu] -= 40;
                }
            }
        }
        let end = clocks.into_iter().max().unwrap();
        assert!((396_000..=404_000).contains(&end), "{end}");
    }

    #[test]
    fn a_cpu_that_lags_far_behind_is_not_held_up() {
        let server = Server::with_window(100, 10);
        assert_eq!(server.pass(10, 100_000), 100_000);
        let same_slot = 100_000 - 100 * WINDOWS as u64;
        assert_eq!(server.pass(10, same_slot), same_slot);
        assert_eq!(server.pass(10, same_slot), same_slot);
    }

    #[test]
    fn a_gigabyte_a_second_is_a_byte_per_nanosecond() {
        let server = Server::new(1_000_000_000);
        assert_eq!(server.bytes_per_window, WINDOW_PS / 1000);
    }
}
