//! What can be said of a process from little: how much of its memory use is local, and what
//! distance costs it. Pure arithmetic on shares from 0 to 1; every answer is an interval, as wide
//! as what is not known.
//!
//! Time lost to distance. Let a process need the time 1 if all its memory were local, `b` of it
//! waiting for memory. With a share `r` of remote accesses, each `ρ` times as slow as a local
//! one, it needs `1 + b·r·(ρ − 1)`, so of the time it takes now it loses
//!
//! ```text
//! lost = x ÷ (1 + x),  x = b · r · (ρ − 1)
//! ```
//!
//! Example: numa02 on the emulated 2x4, all memory remote (r = 1), 100 ns local and 300 ns remote
//! (ρ = 3), half of the time waiting for memory (b = ½: 100 ns a miss beside 100 ns of work): x =
//! 1, lost = ½. Measured there: 35.6 s against 17.8 s bound.

use numaherd_model::NodeId;
use serde::Serialize;

/// From … to, within 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Nothing is known.
    pub const UNKNOWN: Interval = Interval { low: 0.0, high: 1.0 };

    /// Exactly this.
    #[cfg(test)]
    pub fn exactly(share: f64) -> Interval {
        Interval { low: share, high: share }
    }

    pub fn width(self) -> f64 {
        self.high - self.low
    }

    pub fn middle(self) -> f64 {
        (self.low + self.high) / 2.0
    }

    /// The rest to 1.
    pub fn complement(self) -> Interval {
        Interval { low: 1.0 - self.high, high: 1.0 - self.low }
    }

    /// As far as it is a share.
    pub fn clamped(self) -> Interval {
        let high = self.high.clamp(0.0, 1.0);
        Interval { low: self.low.clamp(0.0, high), high }
    }
}

/// What has a weight on each node: CPU time, or bytes.
pub type ByNode = [(NodeId, u64)];

/// The share of `node` in the whole.
fn share(parts: &ByNode, node: NodeId) -> f64 {
    let all: u64 = parts.iter().map(|(_, weight)| weight).sum();
    let here: u64 = parts.iter().filter(|(n, _)| *n == node).map(|(_, weight)| weight).sum();
    if all > 0 { here as f64 / all as f64 } else { 0.0 }
}

/// The local share that a process can have at all, when it is known how its CPU time and its
/// memory are spread over nodes, every page is used alike, and nothing is known of who uses
/// which.
///
/// At most `Σ min(c, m)`: everybody uses what is near. At least `max(c + m − 1, 0)` of any node:
/// what cannot be avoided. With CPU time and memory half and half on two nodes that is 0 to 1;
/// with all CPU time on node 0 it is exactly node 0's share of the memory.
pub fn possible(cpu: &ByNode, memory: &ByNode) -> Interval {
    let weight = |parts: &ByNode| parts.iter().map(|(_, weight)| weight).sum::<u64>();
    if weight(cpu) == 0 || weight(memory) == 0 {
        return Interval::UNKNOWN;
    }
    let nodes = || cpu.iter().map(|(node, _)| *node);
    let high = nodes().map(|node| share(cpu, node).min(share(memory, node))).sum();
    let low = nodes().map(|node| share(cpu, node) + share(memory, node) - 1.0);
    Interval { low: low.fold(0.0, f64::max), high }.clamped()
}

/// Where the true share lies, 95 % of the time, when `share` of so many independent samples was
/// seen (Wilson 1927).
///
/// None of 30: 0 to 0.114; half of 30: 0.33 to 0.67.
pub fn sampled(share: f64, samples: u64) -> Interval {
    if samples == 0 {
        return Interval::UNKNOWN;
    }
    const Z: f64 = 1.96;
    let (p, n) = (share.clamp(0.0, 1.0), samples as f64);
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    Interval { low: middle - half, high: middle + half }.clamped()
}

/// Several parts of a whole, by weight; None where there is no weight.
///
/// Three quarters known to be 0.2 and nothing known of a quarter: 0.15 to 0.4.
pub fn together(parts: &[(f64, Interval)]) -> Option<Interval> {
    let all: f64 = parts.iter().map(|(weight, _)| weight).sum();
    let sum = |of: fn(&Interval) -> f64| {
        parts.iter().map(|(weight, part)| weight * of(part)).sum::<f64>() / all
    };
    (all > 0.0).then(|| Interval { low: sum(|i| i.low), high: sum(|i| i.high) }.clamped())
}

/// How many times as slow a remote access is as a local one, going by the distances between where
/// a process runs and where its memory lies; None where nothing can be remote.
///
/// CPU time on node 0, memory on nodes 0 and 1 at SLIT 21: 2.1.
pub fn ratio(
    cpu: &ByNode,
    memory: &ByNode,
    distance: impl Fn(NodeId, NodeId) -> f64,
) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for &(from, time) in cpu {
        for &(to, bytes) in memory.iter().filter(|(to, _)| *to != from) {
            let weight = time as f64 * bytes as f64;
            let near = distance(from, from);
            sum += weight * if near > 0.0 { distance(from, to) / near } else { 1.0 };
            weights += weight;
        }
    }
    (weights > 0.0).then(|| sum / weights)
}

/// The share of its time that a process loses to distance, from its local share, how much slower
/// remote memory is, and which share of its time it would wait for memory if all were local.
pub fn lost(local: Interval, ratio: f64, waiting: Interval) -> Interval {
    let of = |remote: f64, waiting: f64| {
        let x = waiting * remote * (ratio - 1.0).max(0.0);
        x / (1.0 + x)
    };
    let remote = local.complement();
    Interval { low: of(remote.low, waiting.low), high: of(remote.high, waiting.high) }
}

/// The share of the time taken now that is saved when the local share becomes another. From
/// nothing to all local that is what [`lost`] says is lost.
///
/// From half to all local at ρ = 3 and b = ½: 1 − 1 ÷ 1.5 = ⅓.
pub fn gain(before: f64, after: f64, ratio: f64, waiting: Interval) -> Interval {
    let time = |local: f64, waiting: f64| 1.0 + waiting * (1.0 - local) * (ratio - 1.0).max(0.0);
    let of = |waiting: f64| 1.0 - time(after, waiting) / time(before, waiting);
    Interval { low: of(waiting.low), high: of(waiting.high) }.clamped()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on(parts: &[u64]) -> Vec<(NodeId, u64)> {
        parts.iter().zip(0..).map(|(&weight, node)| (NodeId(node), weight)).collect()
    }

    fn near(got: Interval, low: f64, high: f64) {
        assert!((got.low - low).abs() < 1e-3 && (got.high - high).abs() < 1e-3, "{got:?}");
    }

    #[test]
    fn spread_threads_over_spread_memory_say_nothing_and_one_node_says_all() {
        near(possible(&on(&[1, 1]), &on(&[7, 7])), 0.0, 1.0);
        near(possible(&on(&[5, 0]), &on(&[1, 3])), 0.25, 0.25);
        near(possible(&on(&[0, 5]), &on(&[8, 0])), 0.0, 0.0);
        // 80 % of the time and 70 % of the memory on node 0: 0.8 + 0.7 - 1 = 0.5 cannot be
        // avoided; 0.7 + 0.2 is the best.
        near(possible(&on(&[8, 2]), &on(&[7, 3])), 0.5, 0.9);
        assert_eq!(possible(&on(&[0]), &on(&[1])), Interval::UNKNOWN);
    }

    #[test]
    fn few_samples_say_little() {
        // Wilson, n = 30, p = 0: high = z²/n ÷ (1 + z²/n) = 0.128 ÷ 1.128 = 0.1135
        near(sampled(0.0, 30), 0.0, 0.1135);
        // p = ½: middle ½, half width 1.96/1.128 x sqrt(0.25/30 + 0.9604/900) = 0.1685
        near(sampled(0.5, 30), 0.3315, 0.6685);
        assert!(sampled(1.0, 1).width() > 0.75);
        assert_eq!(sampled(0.0, 0), Interval::UNKNOWN);
    }

    #[test]
    fn what_is_not_known_widens_the_whole() {
        let parts = [(3.0, Interval::exactly(0.2)), (1.0, Interval::UNKNOWN)];
        near(together(&parts).unwrap(), 0.15, 0.4);
        assert_eq!(together(&[]), None);
    }

    #[test]
    fn the_worked_example_loses_half() {
        near(lost(Interval::exactly(0.0), 3.0, Interval::exactly(0.5)), 0.5, 0.5);
        // how much it waits is not known: from nothing to 2 ÷ 3
        near(lost(Interval::exactly(0.0), 3.0, Interval::UNKNOWN), 0.0, 0.6667);
        near(lost(Interval::exactly(1.0), 3.0, Interval::UNKNOWN), 0.0, 0.0);
        near(lost(Interval { low: 0.5, high: 1.0 }, 3.0, Interval::exactly(1.0)), 0.0, 0.5);
    }

    #[test]
    fn a_gain_is_what_is_no_longer_lost() {
        near(gain(0.5, 1.0, 3.0, Interval::exactly(0.5)), 1.0 / 3.0, 1.0 / 3.0);
        near(gain(0.0, 1.0, 3.0, Interval::exactly(0.5)), 0.5, 0.5);
        near(gain(1.0, 0.5, 3.0, Interval::UNKNOWN), 0.0, 0.0);
    }

    #[test]
    fn only_pairs_in_use_count_for_the_ratio() {
        let slit = |a: NodeId, b: NodeId| {
            [[10.0, 21.0, 31.0], [21.0, 10.0, 21.0], [31.0, 21.0, 10.0]][a.0 as usize][b.0 as usize]
        };
        assert_eq!(ratio(&on(&[4, 0, 0]), &on(&[9, 1, 0]), slit), Some(2.1));
        // equal parts at 21 and at 31
        assert_eq!(ratio(&on(&[4, 0, 0]), &on(&[9, 1, 1]), slit), Some(2.6));
        assert_eq!(ratio(&on(&[4, 0, 0]), &on(&[9, 0, 0]), slit), None);
    }

    proptest! {
        #[test]
        fn any_sharing_out_lies_within_what_is_possible(
            uses in prop::collection::vec(0u64..50, 9)
        ) {
            // uses[3a + b] of CPU node a on memory node b, on three nodes
            let all: u64 = uses.iter().sum();
            prop_assume!(all > 0);
            let cpu: Vec<u64> = (0..3).map(|a| (0..3).map(|b| uses[3 * a + b]).sum()).collect();
            let memory: Vec<u64> = (0..3).map(|b| (0..3).map(|a| uses[3 * a + b]).sum()).collect();
            let local = (uses[0] + uses[4] + uses[8]) as f64 / all as f64;
            let Interval { low, high } = possible(&on(&cpu), &on(&memory));
            prop_assert!(low <= local + 1e-9 && local <= high + 1e-9, "{local} in {low}..{high}");
            let lost = lost(Interval::exactly(local), 2.1, Interval::UNKNOWN);
            prop_assert!(lost.low == 0.0 && (0.0..0.53).contains(&lost.high));
        }
    }
}
