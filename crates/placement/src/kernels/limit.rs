//! A limit on pages that may come to a node in a window of time.

use std::collections::BTreeMap;

use numaherd_model::{Bytes, Nanos, Pages};

/// So many bytes a window for each destination.
#[derive(Debug)]
pub struct Limit {
    window: Nanos,
    bytes: Bytes,
    nodes: BTreeMap<usize, (Nanos, u64)>,
}

impl Limit {
    /// 128 MB in 100 ms, which is 1.28 GB/s. Published, of AutoNUMA and of balancenuma.
    #[must_use]
    pub fn of_2012() -> Limit {
        let (window, bytes) = (Nanos(100_000_000), Bytes(128 << 20));
        Limit { window, bytes, nodes: BTreeMap::new() }
    }

    /// Whether these pages may come to a node now; if so they are counted.
    pub fn admits(&mut self, node: usize, pages: Pages, now: Nanos) -> bool {
        let (since, bytes) = self.nodes.entry(node).or_insert((now, 0));
        if now.since(*since) >= self.window {
            (*since, *bytes) = (now, 0);
        }
        let admitted = *bytes < self.bytes.0;
        *bytes += if admitted { pages.bytes(Bytes(4096)).0 } else { 0 };
        admitted
    }

    /// Whether a node has had all it may have, in this window or in one that ended less than
    /// `grace` ago.
    #[must_use]
    pub fn is_reached(&self, node: usize, now: Nanos, grace: Nanos) -> bool {
        self.nodes.get(&node).is_some_and(|&(since, bytes)| {
            bytes >= self.bytes.0 && now.since(since).0 < self.window.0 + grace.0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_admits_128_mib_and_the_next_one_again() {
        let mut limit = Limit::of_2012();
        let huge = Pages(512);
        // 64 huge pages of 2 MiB fill a window.
        let admitted = (0..100).filter(|_| limit.admits(1, huge, Nanos(5))).count();
        assert_eq!(admitted, 64);
        assert!(limit.admits(0, huge, Nanos(5)), "each node has its own");
        assert!(limit.is_reached(1, Nanos(50_000_000), Nanos(0)));
        assert!(!limit.is_reached(1, Nanos(100_000_005), Nanos(0)));
        assert!(limit.is_reached(1, Nanos(1_000_000_000), Nanos(1_000_000_000)));
        assert!(limit.admits(1, huge, Nanos(100_000_005)));
    }
}
