//! Worked examples of what accesses cost.

use super::*;
use crate::config::{Bandwidth, Coherence, Llc, Overlap, Smt};

/// CPUs 0 and 1 on node 0, 2 and 3 on node 1; own caches of 4 lines.
fn config() -> Config {
    Config {
        stats: "unused".into(),
        clock_hz_ratio: 1.0,
        quantum_ns: 50_000,
        instruction_ps: 10_000,
        line_bytes: 64,
        cache_bytes: 256,
        cache_ways: 2,
        cpu_node: vec![0, 0, 1, 1],
        node_bytes: vec![1 << 20; 2],
        below_4g_bytes: 1 << 30,
        latency_ns: vec![vec![100, 300], vec![300, 100]],
        llc: None,
        coherence: None,
        overlap: Overlap::default(),
        bandwidth: None,
        smt: Smt::default(),
    }
}

struct Bench {
    memory: Memory,
    ports: Vec<Port>,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Config)) -> Bench {
        let mut config = config();
        change(&mut config);
        Bench {
            memory: Memory::new(&config),
            ports: (0..4).map(|c| Port::new(&config, c)).collect(),
        }
    }

    fn at(&mut self, cpu: usize, line: u64, is_store: bool, now_ps: u64) -> Served {
        // The memory of node 1 begins at line 1000.
        let node = usize::from(line >= 1000);
        let access = Access { line, virtual_line: line, node, is_store };
        self.ports[cpu].access(&self.memory, access, now_ps)
    }

    /// Source and nanoseconds of a load.
    fn load(&mut self, cpu: usize, line: u64) -> (Source, u64) {
        let served = self.at(cpu, line, false, 0);
        (served.source, served.cost_ps / 1000)
    }

    fn store(&mut self, cpu: usize, line: u64) -> (Source, u64) {
        let served = self.at(cpu, line, true, 0);
        (served.source, served.cost_ps / 1000)
    }

    fn write_backs(&self) -> u64 {
        self.ports.iter().map(|port| port.write_backs).sum()
    }
}

fn coherent(config: &mut Config) {
    config.coherence = Some(Coherence { transfer_ns: Some(vec![vec![60, 320], vec![320, 60]]) });
}

fn with_llc(config: &mut Config) {
    coherent(config);
    let cpu_domain = vec![0, 0, 1, 1];
    config.llc = Some(Llc { bytes: 64 * 64, ways: 8, latency_ns: 30, cpu_domain });
}

#[test]
fn misses_cost_distance_and_hits_nothing() {
    let mut bench = Bench::new(|_| {});
    assert_eq!(bench.load(0, 8), (Source::Memory, 100));
    assert_eq!(bench.load(0, 8), (Source::Own, 0));
    assert_eq!(bench.load(0, 1008), (Source::Memory, 300));
    assert_eq!(bench.store(2, 8), (Source::Memory, 300));
    // Nobody told CPU 0: without coherence it believes its copy.
    assert_eq!(bench.load(0, 8), (Source::Own, 0));
}

#[test]
fn a_line_written_elsewhere_misses_and_comes_from_its_writer() {
    let mut bench = Bench::new(coherent);
    assert_eq!(bench.load(0, 8), (Source::Memory, 100));
    assert_eq!(bench.store(2, 8), (Source::Memory, 300)); // the first copy was clean
    assert_eq!(bench.load(0, 8), (Source::Transfer, 320));
    assert_eq!(bench.write_backs(), 1); // on this occasion memory learns it
    assert_eq!(bench.load(1, 8), (Source::Memory, 100)); // so the next one finds it there
    // Three have it. CPU 0 must ask before it writes, and then owns it.
    assert_eq!(bench.store(0, 8), (Source::Upgrade, 100));
    assert_eq!(bench.store(0, 8), (Source::Own, 0));
    assert_eq!(bench.load(1, 8), (Source::Transfer, 60));
    assert_eq!(bench.load(2, 8), (Source::Memory, 300));
}

#[test]
fn two_writers_pass_a_line_to_and_fro() {
    let mut bench = Bench::new(coherent);
    assert_eq!(bench.store(0, 8), (Source::Memory, 100));
    for _ in 0..3 {
        assert_eq!(bench.store(2, 8), (Source::Transfer, 320));
        assert_eq!(bench.store(0, 8), (Source::Transfer, 320));
    }
    assert_eq!(bench.write_backs(), 0);
}

#[test]
fn what_others_did_shows_although_it_is_the_line_accessed_last() {
    let mut bench = Bench::new(coherent);
    bench.store(0, 8);
    assert!(bench.ports[0].is_last(8) && bench.ports[0].is_free(&bench.memory, || true));
    bench.store(2, 8);
    assert!(!bench.ports[0].is_free(&bench.memory, || false));
    bench.load(0, 8);
    assert!(bench.ports[0].is_free(&bench.memory, || false));
    assert!(!bench.ports[0].is_free(&bench.memory, || true), "a store must ask");
}

#[test]
fn reading_and_then_writing_what_nobody_else_has_asks_nobody() {
    let mut bench = Bench::new(coherent);
    bench.load(0, 8);
    assert_eq!(bench.store(0, 8), (Source::Own, 0));
    // Thrown out by lines 10 and 12 of the same set, it is nobody's again.
    bench.load(0, 10);
    bench.load(0, 12);
    assert_eq!(bench.write_backs(), 1);
    assert_eq!(bench.load(2, 8), (Source::Memory, 300));
    assert_eq!(bench.store(2, 8), (Source::Own, 0));
}

#[test]
fn the_last_level_serves_its_own_domain() {
    let mut bench = Bench::new(with_llc);
    assert_eq!(bench.load(0, 8), (Source::Memory, 100));
    assert_eq!(bench.load(1, 8), (Source::LastLevel, 30));
    assert_eq!(bench.load(2, 8), (Source::Memory, 300));
    // A dirty line moves down when the own cache lets it go, and is found there.
    bench.store(0, 1010);
    bench.load(0, 1012);
    bench.load(0, 1014);
    assert_eq!(bench.write_backs(), 0);
    assert_eq!(bench.load(0, 1010), (Source::LastLevel, 30));
    // Written within the domain: at that cache's latency, whatever the distance.
    bench.store(0, 20);
    assert_eq!(bench.load(1, 20), (Source::Transfer, 30));
    bench.store(0, 22);
    assert_eq!(bench.load(3, 22), (Source::Transfer, 320));
}

#[test]
fn what_the_last_level_lets_go_goes_back_to_memory_once() {
    let mut bench = Bench::new(with_llc);
    for line in 0..1000 {
        bench.store(0, line);
    }
    // 64 lines of the last level and 4 of its own are left, or fewer where both have one.
    let left = 1000 - bench.write_backs();
    assert!((60..=68).contains(&left), "{left}");
}

#[test]
fn without_coherence_each_dirty_line_goes_back_too() {
    let mut bench = Bench::new(|_| {});
    for line in 0..100 {
        bench.store(0, line);
        bench.load(1, line);
    }
    assert_eq!(bench.write_backs(), 96); // four are still in CPU 0's cache
}

#[test]
fn foreseen_misses_overlap_and_dependent_ones_do_not() {
    let mut bench =
        Bench::new(|config| config.overlap = Overlap { loads: 4, stores: 2, stores_fetch: true });
    let run: Vec<u64> = (100..105).map(|line| bench.load(0, line).1).collect();
    assert_eq!(run, [100, 100, 25, 25, 25]);
    let run: Vec<u64> = (200..204).map(|line| bench.store(0, line).1).collect();
    assert_eq!(run, [100, 100, 50, 50]);
    let apart: Vec<u64> = [500, 300, 420, 380].map(|line| bench.load(0, line).1).to_vec();
    assert_eq!(apart, [100; 4]);
}

#[test]
fn a_run_of_stores_that_does_not_fetch_takes_no_bandwidth_until_it_goes_back() {
    let mut bench = Bench::new(|config| {
        config.overlap.stores_fetch = false;
        config.bandwidth = Some(Bandwidth {
            memory_bytes_per_second: vec![64_000_000; 2],
            link_bytes_per_second: vec![],
            routes: vec![vec![vec![]; 2]; 2],
        });
    });
    // 2 lines are fetched before the run is seen, which draws 8; 60 go back, which draws 64: one
    // draw more than the window has room for.
    let queued: u64 = (0..64).map(|line| bench.at(0, line, true, 0).queued_ps).sum();
    assert_eq!(queued, crate::bandwidth::WINDOW_PS);
}

#[test]
fn bandwidth_is_waited_for_on_top() {
    // 64 MB/s of memory: a window of 67 us passes 4294 bytes, so 8 draws of 512, and the ninth
    // waits for the next window.
    let mut bench = Bench::new(|config| {
        config.bandwidth = Some(Bandwidth {
            memory_bytes_per_second: vec![64_000_000; 2],
            link_bytes_per_second: vec![],
            routes: vec![vec![vec![]; 2]; 2],
        });
    });
    for line in 0..64 {
        assert_eq!(bench.at(0, line * 3, false, 0).queued_ps, 0);
    }
    let late = bench.at(0, 900, false, 1000);
    assert_eq!(late.queued_ps, crate::bandwidth::WINDOW_PS - 1000);
    assert_eq!(late.cost_ps, late.queued_ps + 100_000);
    assert_eq!(bench.at(2, 1001, false, 0).queued_ps, 0, "the other node's memory is idle");
}
