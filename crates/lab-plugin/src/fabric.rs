//! What lies between a CPU's caches and memory: the nodes' memory and the links between nodes,
//! each with a limited bandwidth.
//!
//! A line that is filled passes the memory of its node and every link on the way from there; a
//! dirty line that is written back passes the links on the way there and that memory; a line
//! that comes from another CPU's cache passes links only. A node's memory serves reads and
//! write-backs from one budget, as DRAM does; each direction of a link has its own.
//!
//! CPUs draw bandwidth for several lines at a time ([`LINES_AT_ONCE`]) and keep what they have
//! not used, so that few of their misses touch words that all CPUs share.
//!
//! ```text
//! square 0-1-3-2-0, one way:  a CPU of node 0 fills from node 3:  memory 3, link 3→1, link 1→0
//! ```

use crate::bandwidth::Server;
use crate::config::Bandwidth;

/// Lines for which bandwidth is drawn at once. Chosen: at the slowest link of our machines a
/// window is about 700 lines, of which this is 1 %; and a miss in eight draws.
pub const LINES_AT_ONCE: u32 = 8;

/// The servers and the ways between nodes.
pub struct Fabric {
    memory: Vec<Server>,
    links: Vec<Server>,
    /// Links passed from a node to another, in order.
    routes: Vec<Vec<Vec<usize>>>,
    line_bytes: u64,
}

/// Where a line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a node's memory to a CPU of another node, or of the same.
    Fill {
        /// Where it is.
        memory: usize,
        /// Where it is wanted.
        cpu: usize,
    },
    /// Back to memory.
    WriteBack {
        /// The CPU's node.
        cpu: usize,
        /// Where it belongs.
        memory: usize,
    },
    /// From a cache of one node to one of another.
    Transfer {
        /// Where it is.
        from: usize,
        /// Where it is wanted.
        to: usize,
    },
}

impl Fabric {
    /// As configured.
    #[must_use]
    pub fn new(bandwidth: &Bandwidth, line_bytes: u64) -> Fabric {
        let servers = |rates: &[u64]| rates.iter().map(|&rate| Server::new(rate)).collect();
        Fabric {
            memory: servers(&bandwidth.memory_bytes_per_second),
            links: servers(&bandwidth.link_bytes_per_second),
            routes: bandwidth.routes.clone(),
            line_bytes,
        }
    }

    /// When that many lines have passed that set out at `at_ps`.
    #[must_use]
    pub fn pass(&self, way: Way, lines: u32, at_ps: u64) -> u64 {
        let bytes = self.line_bytes * u64::from(lines);
        let (memory, from, to) = match way {
            Way::Fill { memory, cpu } => (Some(memory), memory, cpu),
            Way::WriteBack { cpu, memory } => (Some(memory), cpu, memory),
            Way::Transfer { from, to } => (None, from, to),
        };
        let at_ps = memory.map_or(at_ps, |node| self.memory[node].pass(bytes, at_ps));
        let links = &self.routes[from][to];
        links.iter().fold(at_ps, |at_ps, &link| self.links[link].pass(bytes, at_ps))
    }
}

/// What one CPU has drawn and not used: lines, by the node at the other end.
pub struct Credit {
    fill: Box<[u32]>,
    write_back: Box<[u32]>,
}

impl Credit {
    /// None yet.
    #[must_use]
    pub fn new(nodes: usize) -> Credit {
        Credit { fill: vec![0; nodes].into(), write_back: vec![0; nodes].into() }
    }

    /// When one line has passed that set out at `at_ps`.
    #[inline]
    pub fn pass(&mut self, fabric: &Fabric, way: Way, at_ps: u64) -> u64 {
        let credit = match way {
            Way::Fill { memory, .. } => &mut self.fill[memory],
            Way::WriteBack { memory, .. } => &mut self.write_back[memory],
            Way::Transfer { .. } => return fabric.pass(way, 1, at_ps),
        };
        if *credit > 0 {
            *credit -= 1;
            return at_ps;
        }
        *credit = LINES_AT_ONCE - 1;
        fabric.pass(way, LINES_AT_ONCE, at_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bandwidth::WINDOW_PS;

    /// Two nodes of 2 GB/s and a link of 0.5 GB/s each way.
    fn fabric() -> Fabric {
        Fabric::new(
            &Bandwidth {
                memory_bytes_per_second: vec![2_000_000_000; 2],
                link_bytes_per_second: vec![500_000_000; 2],
                routes: vec![vec![vec![], vec![0]], vec![vec![1], vec![]]],
            },
            64,
        )
    }

    /// Seconds until a megabyte has passed on each way, drawn in turn by one CPU that asks for
    /// the next line at once.
    fn rate(fabric: &Fabric, ways: &[Way]) -> f64 {
        let mut credit = Credit::new(2);
        let mut at_ps = 0;
        let lines = 655_360;
        for _ in 0..lines {
            for &way in ways {
                at_ps = credit.pass(fabric, way, at_ps);
            }
        }
        // The last window counts whole.
        let end_ps = at_ps.next_multiple_of(WINDOW_PS);
        f64::from(lines) * 64.0 / (end_ps as f64 * 1e-12)
    }

    #[track_caller]
    fn assert_near(is: f64, should: f64) {
        assert!((is / should - 1.0).abs() < 0.02, "{is:e}, not {should:e}");
    }

    #[test]
    fn the_narrowest_part_of_the_way_sets_the_rate() {
        assert_near(rate(&fabric(), &[Way::Fill { memory: 0, cpu: 0 }]), 2e9);
        assert_near(rate(&fabric(), &[Way::Fill { memory: 1, cpu: 0 }]), 5e8);
        assert_near(rate(&fabric(), &[Way::Transfer { from: 1, to: 0 }]), 5e8);
    }

    #[test]
    fn reads_and_write_backs_share_memory_but_not_the_directions_of_a_link() {
        let local = [Way::Fill { memory: 0, cpu: 0 }, Way::WriteBack { memory: 0, cpu: 0 }];
        assert_near(rate(&fabric(), &local), 1e9);
        let remote = [Way::Fill { memory: 1, cpu: 0 }, Way::WriteBack { memory: 1, cpu: 0 }];
        assert_near(rate(&fabric(), &remote), 5e8);
    }
}
