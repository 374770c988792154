//! Latency: a chain of dependent loads through memory in random order, so that neither a
//! prefetcher nor the CPU's own looking ahead hides any of it.
//!
//! One line after the other is loaded, each load's address coming out of the one before. The
//! chain visits every line once before it comes back. What the loop's own instructions take is
//! found by running the same loop through a chain that stays in the first-level cache; it is
//! told apart, for the caller to subtract.
//!
//! Units: ns a load, of the machine the program runs on.

use std::hint::black_box;

use crate::span::Span;
use crate::{WorkloadError, sys};

/// Bytes of a line, and of a step of the chain.
const LINE_BYTES: usize = 64;
/// Loads in one turn of the loop.
const UNROLLED: usize = 16;
/// Loads of one sample. Chosen: 4 ms and more where a load takes 100 ns, long beside the emulated
/// machine's quantum of 50 µs.
const LOADS: usize = 40_000;
/// As many where a load hits the first-level cache, for the same time.
const NEAR_LOADS: usize = 400_000;
/// Memory that stays in a first-level cache.
const NEAR_BYTES: usize = 16 << 10;

/// A chain laid out in memory.
pub struct Chain {
    at: usize,
}

impl Chain {
    /// Lays a chain through the first `bytes` of a span. `seed` sets the order.
    pub fn lay(span: &mut Span, bytes: usize, seed: u64) -> Chain {
        let words = span.words();
        let lines = bytes.min(words.len() * 8) / LINE_BYTES;
        let base = words.as_ptr() as usize;
        let order = one_cycle(lines, seed);
        for (line, next) in order.into_iter().enumerate() {
            words[line * LINE_BYTES / 8] = (base + next as usize * LINE_BYTES) as u64;
        }
        Chain { at: base }
    }

    /// Follows the chain for one sample; nanoseconds a load.
    fn follow(&mut self, _span: &Span, loads: usize) -> f64 {
        let start_ns = sys::monotonic_ns();
        let mut at = self.at;
        for _ in 0..loads / UNROLLED {
            for _ in 0..UNROLLED {
                // SAFETY: every word of the chain is the address of another one, in the span
                // that is borrowed.
                at = unsafe { (at as *const usize).read_volatile() };
            }
        }
        self.at = black_box(at);
        (sys::monotonic_ns() - start_ns) as f64 / loads as f64
    }

    /// Nanoseconds a load, once for each sample.
    pub fn sample(&mut self, span: &Span, samples: usize) -> Vec<f64> {
        self.samples(span, samples, LOADS)
    }

    fn samples(&mut self, span: &Span, samples: usize, loads: usize) -> Vec<f64> {
        self.follow(span, loads);
        (0..samples).map(|_| self.follow(span, loads)).collect()
    }
}

/// Nanoseconds a load of the loop itself: a chain that never leaves the nearest cache.
///
/// # Errors
/// No memory.
pub fn overhead(samples: usize) -> Result<Vec<f64>, WorkloadError> {
    let mut span = Span::map(NEAR_BYTES, None)?;
    let mut chain = Chain::lay(&mut span, NEAR_BYTES, 1);
    Ok(chain.samples(&span, samples, NEAR_LOADS))
}

/// A permutation that is a single cycle: Sattolo's algorithm. `next[i]` follows `i`.
fn one_cycle(length: usize, seed: u64) -> Vec<u32> {
    let mut next: Vec<u32> = (0..length as u32).collect();
    let mut state = seed;
    for i in (1..length).rev() {
        // Knuth's MMIX generator; its upper half is random enough for an order.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let j = (((state >> 32) * i as u64) >> 32) as usize;
        next.swap(i, j);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_one_cycle_through_all_lines() {
        for length in [1, 2, 3, 64, 1000] {
            let next = one_cycle(length, 7);
            let mut at = 0;
            for step in 1..=length {
                at = next[at] as usize;
                assert_eq!(at == 0, step == length, "{length} lines, step {step}");
            }
        }
    }

    #[test]
    fn neighbours_seldom_follow_each_other() {
        let next = one_cycle(10_000, 1);
        let near = next.iter().enumerate().filter(|&(i, &n)| n.abs_diff(i as u32) == 1).count();
        assert!(near < 20, "{near}"); // two in ten thousand are expected, for each direction
    }

    #[test]
    fn a_chain_can_be_followed() {
        let mut span = Span::map(1 << 20, None).unwrap();
        let mut chain = Chain::lay(&mut span, 1 << 20, 3);
        let samples = chain.sample(&span, 2);
        assert!(samples.len() == 2 && samples.iter().all(|&ns| ns > 0.0), "{samples:?}");
        assert!(overhead(1).unwrap()[0] > 0.0);
    }
}
