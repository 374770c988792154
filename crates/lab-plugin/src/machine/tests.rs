//! What the markers do, read back from the stats file as the launcher would.

use super::*;
use crate::config::Overlap;
use crate::layout;

struct Bench {
    machine: Machine,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(nodes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::new(&Config {
            stats: folder.path().join("stats"),
            clock_hz_ratio: 1.0,
            quantum_ns: 1_000_000_000,
            instruction_ps: 1,
            line_bytes: 64,
            cache_bytes: 8192,
            cache_ways: 2,
            cpu_node: vec![0; 2],
            node_bytes: vec![1 << 30; nodes],
            below_4g_bytes: 1 << 30,
            latency_ns: vec![vec![100; nodes]; nodes],
            llc: None,
            coherence: None,
            overlap: Overlap::default(),
            bandwidth: None,
            smt: Smt::default(),
        });
        Bench { machine: machine.unwrap(), folder }
    }

    fn word(&self, word: usize) -> u64 {
        let bytes = std::fs::read(self.folder.path().join("stats")).unwrap();
        u64::from_le_bytes(bytes[word * 8..][..8].try_into().unwrap())
    }

    fn order(&self, marker: Marker) {
        // SAFETY: the tests have one thread.
        unsafe { self.machine.obey(0, marker) };
    }

    fn touch(&self, key: u64) {
        for page in 0..100 {
            let key = key + (page << 12);
            // SAFETY: the tests have one thread.
            unsafe {
                let vcpu = self.machine.vcpu(0).unwrap();
                vcpu.access(&self.machine, key, || false, || self.machine.target(key));
            }
        }
    }
}

#[test]
fn charging_is_refused_until_the_map_is_found() {
    let bench = Bench::new(2);
    assert_eq!(bench.word(header::MAP_STATE), 0);
    bench.order(Marker::ChargingOn);
    assert_eq!((bench.word(header::CHARGING), bench.word(header::MAP_STATE)), (0, 3));

    bench.order(Marker::MapBegin);
    assert_eq!(bench.word(header::MAP_STATE), 1);
    bench.touch(0);
    bench.order(Marker::MapNext);
    bench.touch(2 << 30);
    bench.order(Marker::MapEnd);
    assert_eq!((bench.word(header::MAP_STATE), bench.word(header::MAP_LAYOUT)), (2, 2));
    bench.order(Marker::ChargingOn);
    assert_eq!(bench.word(header::CHARGING), 1);
    bench.order(Marker::ChargingOff);
    assert_eq!(bench.word(header::CHARGING), 0);
}

#[test]
fn touches_that_no_layout_explains_fail() {
    let bench = Bench::new(2);
    bench.order(Marker::MapBegin);
    bench.touch(2 << 30); // node 0's memory where node 1's should be
    bench.order(Marker::MapNext);
    bench.touch(0);
    bench.order(Marker::MapEnd);
    assert_eq!((bench.word(header::MAP_STATE), bench.word(header::MAP_LAYOUT)), (3, 0));
    bench.order(Marker::MapNext); // out of order: no harm
    bench.order(Marker::MapEnd);
    assert_eq!(bench.word(header::MAP_STATE), 3);
}

#[test]
fn one_node_needs_no_learning() {
    let bench = Bench::new(1);
    assert_eq!(bench.word(header::MAP_STATE), 2);
    bench.order(Marker::ChargingOn);
    assert_eq!(bench.word(header::CHARGING), 1);
}

#[test]
fn snapshots_carry_tag_and_time_and_the_ring_wraps() {
    let bench = Bench::new(1);
    let layout = Layout { cpus: 2, nodes: 1 };
    for number in 0..layout::SNAPSHOTS as u64 + 2 {
        bench.order(Marker::Snapshot { tag: number as u8 ^ 0x5a });
    }
    assert_eq!(bench.word(header::SNAPSHOTS_TAKEN), 258);
    assert_eq!(bench.word(layout.snapshot(257)), 1 ^ 0x5a); // in the place of number 1
    assert_eq!(bench.word(layout.snapshot(2)), 2 ^ 0x5a);
    assert!(bench.word(layout.snapshot(257) + 1) > bench.word(layout.snapshot(2) + 1));
}
