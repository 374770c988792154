//! Guest time during which charging was on, all periods together.
//!
//! One atomic word, so that any thread reads a consistent state: while running, the guest time
//! at which the watch would have shown 0; while stopped, what it shows, with the top bit set.
//! Units: guest ps; they stay below 2^63 for 106 days.
//!
//! ```text
//! start at 100, stop at 130, start at 200:   at 150 it shows 30, at 210 it shows 40
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

const STOPPED: u64 = 1 << 63;

/// The watch. Starting and stopping is one thread's at a time.
#[derive(Debug)]
pub struct Stopwatch(AtomicU64);

impl Default for Stopwatch {
    fn default() -> Self {
        Stopwatch(AtomicU64::new(STOPPED))
    }
}

impl Stopwatch {
    /// What it shows when the clock shows `now_ps`.
    #[must_use]
    pub fn shows_ps(&self, now_ps: u64) -> u64 {
        let word = self.0.load(Ordering::Relaxed);
        if word & STOPPED != 0 { word & !STOPPED } else { now_ps.saturating_sub(word) }
    }

    /// Goes on from what it shows.
    pub fn start(&self, now_ps: u64) {
        self.0.store(now_ps.saturating_sub(self.shows_ps(now_ps)), Ordering::Relaxed);
    }

    /// Stays at what it shows.
    pub fn stop(&self, now_ps: u64) {
        self.0.store(self.shows_ps(now_ps) | STOPPED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_running_periods_count() {
        let watch = Stopwatch::default();
        assert_eq!(watch.shows_ps(50), 0);
        watch.start(100);
        assert_eq!(watch.shows_ps(120), 20);
        watch.stop(130);
        assert_eq!(watch.shows_ps(150), 30);
        watch.start(200);
        assert_eq!(watch.shows_ps(210), 40);
        watch.stop(220);
        assert_eq!(watch.shows_ps(9_999), 50);
    }
}
