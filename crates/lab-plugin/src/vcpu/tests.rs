//! Worked examples of the account. The clock is real but runs at a millionth of its speed, so
//! that guest time practically stands still; quanta are long enough that nothing sleeps.

use super::*;
use crate::config::{Overlap, Smt};
use crate::marker::Marker;

const SECOND_PS: u64 = 1_000_000_000_000;

fn config(folder: &tempfile::TempDir) -> Config {
    Config {
        stats: folder.path().join("stats"),
        clock_hz_ratio: 2e-6,
        quantum_ns: 1_000_000_000,
        instruction_ps: 10_000,
        line_bytes: 64,
        cache_bytes: 8192,
        cache_ways: 2,
        cpu_node: vec![0, 1],
        node_bytes: vec![1 << 30, 1 << 30],
        below_4g_bytes: 1 << 30,
        latency_ns: vec![vec![100, 300], vec![310, 110]],
        llc: None,
        coherence: None,
        overlap: Overlap::default(),
        bandwidth: None,
        smt: Smt::default(),
    }
}

/// A machine with its map found, charging on, and vCPU 0 in its first block.
fn charging() -> Machine {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(&config(&folder)).unwrap();
    learn(&machine, 2 << 30);
    machine.order(0, Marker::ChargingOn);
    block(&machine, 0, 0);
    machine
}

impl Machine {
    fn order(&self, index: usize, marker: Marker) {
        // SAFETY: the tests have one thread.
        unsafe { self.obey(index, marker) };
    }
}

fn vcpu(machine: &Machine, index: usize) -> &Vcpu {
    machine.vcpu(index).unwrap()
}

fn block(machine: &Machine, index: usize, instructions: u64) {
    let cost_ps = instructions * machine.instruction_ps();
    // SAFETY: the tests have one thread.
    unsafe { vcpu(machine, index).block(machine, index, instructions, cost_ps) };
}

/// An access whose page lies at `key`.
fn access(machine: &Machine, index: usize, virtual_address: u64, key: u64) {
    // SAFETY: the tests have one thread.
    unsafe {
        vcpu(machine, index).access(machine, virtual_address, || false, || machine.target(key));
    }
}

/// vCPU 0 touches memory of node 0 at key 0 and of node 1 from `node_1_key` on.
fn learn(machine: &Machine, node_1_key: u64) {
    machine.order(0, Marker::MapBegin);
    (0..128).for_each(|i| access(machine, 0, i << 12, i << 12));
    machine.order(0, Marker::MapNext);
    (0..128).for_each(|i| access(machine, 0, 1 << 30 | i << 12, node_1_key + (i << 12)));
    machine.order(0, Marker::MapEnd);
}

fn cost_ps(machine: &Machine, index: usize, act: impl FnOnce()) -> u64 {
    let before_ps = vcpu(machine, index).virtual_ps.get();
    act();
    vcpu(machine, index).virtual_ps.get() - before_ps
}

const LOCAL: u64 = 0x10_0000;
const REMOTE: u64 = 2 << 30;

#[test]
fn instructions_hits_and_misses_cost_what_the_machine_says() {
    let machine = charging();
    assert_eq!(cost_ps(&machine, 0, || block(&machine, 0, 7)), 70_000);
    assert_eq!(cost_ps(&machine, 0, || access(&machine, 0, 0x1000, LOCAL)), 100_000);
    assert_eq!(cost_ps(&machine, 0, || access(&machine, 0, 0x1038, LOCAL)), 0); // same line
    assert_eq!(cost_ps(&machine, 0, || access(&machine, 0, 0x2000, REMOTE)), 300_000);
    assert_eq!(cost_ps(&machine, 0, || access(&machine, 0, 0x1000, LOCAL)), 0); // still cached
    let counts = vcpu(&machine, 0).counts(machine.now_ps(), 0);
    assert_eq!((counts.instructions, counts.accesses, counts.misses), (7, 4, 2));
    assert_eq!(counts.stalled_ns, 400); // 100 + 300
    assert_eq!(vcpu(&machine, 0).served().collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn the_row_is_the_cpus_own_node() {
    let machine = charging();
    block(&machine, 1, 0);
    assert_eq!(cost_ps(&machine, 1, || access(&machine, 1, 0x1000, LOCAL)), 310_000);
    assert_eq!(cost_ps(&machine, 1, || access(&machine, 1, 0x2000, REMOTE)), 110_000);
}

#[test]
fn a_migrated_page_misses_once_its_translation_was_dropped() {
    let machine = charging();
    access(&machine, 0, 0x1000, LOCAL);
    // The kernel moved the page. Until this CPU has dropped the translation it may use it.
    assert_eq!(cost_ps(&machine, 0, || access(&machine, 0, 0x1000, REMOTE)), 0);
    // SAFETY: the tests have one thread.
    unsafe { vcpu(&machine, 0).drop_translations() };
    assert_eq!(cost_ps(&machine, 0, || access(&machine, 0, 0x1000, REMOTE)), 300_000);
    assert_eq!(cost_ps(&machine, 0, || access(&machine, 0, 0x1000, REMOTE)), 0);
}

#[test]
fn two_mappings_of_one_page_share_its_lines() {
    let machine = charging();
    access(&machine, 0, 0x1000, REMOTE);
    assert_eq!(cost_ps(&machine, 0, || access(&machine, 0, 0x7000, REMOTE)), 0);
}

#[test]
fn devices_are_charged_local_and_never_cached_and_strays_are_counted() {
    let machine = charging();
    for _ in 0..2 {
        // SAFETY: the tests have one thread.
        let device = || unsafe {
            vcpu(&machine, 0).access(&machine, 0xfee0_0000, || false, || Target::Device);
        };
        assert_eq!(cost_ps(&machine, 0, device), 100_000);
        access(&machine, 0, 0x1000, LOCAL);
    }
    access(&machine, 0, 0x3000, 1 << 40); // no node's range
    assert_eq!(vcpu(&machine, 0).strays(), 1);
    assert_eq!(vcpu(&machine, 0).served().collect::<Vec<_>>(), [4, 0]);
}

#[test]
fn nothing_is_counted_before_charging_is_on_or_after_it_is_off() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(&config(&folder)).unwrap();
    let run = || {
        block(&machine, 0, 5);
        access(&machine, 0, 0x1000, LOCAL);
    };
    let counted =
        || vcpu(&machine, 0).counts(0, 0).instructions + vcpu(&machine, 0).counts(0, 0).accesses;
    run();
    assert_eq!(counted(), 0);
    learn(&machine, 2 << 30);
    run();
    assert_eq!(counted(), 0, "nor while learning");
    machine.order(0, Marker::ChargingOn);
    run();
    assert_eq!(counted(), 6);
    machine.order(0, Marker::ChargingOff);
    run();
    assert_eq!(counted(), 6);
}

#[test]
fn an_idle_cpu_earns_no_credit_and_its_lag_is_counted() {
    let machine = charging();
    let cpu = vcpu(&machine, 0);
    let now_ps = machine.now_ps() + SECOND_PS;
    let behind_ps = cpu.virtual_ps.get();
    std::thread::sleep(std::time::Duration::from_millis(2)); // 4 guest ns
    // SAFETY: the tests have one thread.
    unsafe { cpu.idle(&machine, 0) };
    let late_ps = cpu.late_ps.get();
    assert!(late_ps >= 4_000, "{late_ps}");
    assert_eq!(cpu.virtual_ps.get(), behind_ps + late_ps);
    std::thread::sleep(std::time::Duration::from_millis(2));
    // SAFETY: the tests have one thread.
    unsafe { cpu.resume(&machine, 0) };
    assert_eq!(cpu.late_ps.get(), late_ps, "time halted is not late");
    assert!(cpu.idle_ps.get() >= 4_000);
    assert!(cpu.virtual_ps.get() >= behind_ps + late_ps + 4_000, "no credit for it");
    // What a snapshot a second later would show: the lag so far, once.
    assert!(cpu.counts(now_ps, 0).lag_ns > 900_000_000);
}

#[test]
fn a_cpu_ahead_by_more_than_the_quantum_sleeps() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&folder);
    config.clock_hz_ratio = 0.25;
    config.quantum_ns = 100_000;
    let machine = Machine::new(&config).unwrap();
    learn(&machine, 2 << 30);
    machine.order(0, Marker::ChargingOn);
    block(&machine, 0, 0);
    let start_ns = clock::real_now_ns();
    block(&machine, 0, 100_000); // 1 guest ms = 4 real ms
    let slept_ns = clock::real_now_ns() - start_ns;
    assert!(slept_ns > 3_500_000, "{slept_ns}");
    assert!(vcpu(&machine, 0).counts(0, 0).slept_ns > 850_000);
}

#[test]
fn idle_time_counts_while_charging_is_on_and_never_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&folder);
    config.clock_hz_ratio = 1.0;
    let machine = Machine::new(&config).unwrap();
    learn(&machine, 2 << 30);
    let pause = || std::thread::sleep(std::time::Duration::from_millis(2));
    let cpu = vcpu(&machine, 1);
    let idle_ns = || cpu.counts(machine.now_ps(), machine.charged_ps(machine.now_ps())).idle_ns;
    // SAFETY: the tests have one thread.
    unsafe { cpu.idle(&machine, 1) };
    pause();
    assert_eq!(idle_ns(), 0, "nothing is charged yet");
    machine.order(0, Marker::ChargingOn);
    pause();
    machine.order(0, Marker::ChargingOff);
    let first_ns = idle_ns();
    assert!(first_ns >= 2_000_000, "{first_ns}");
    pause();
    assert_eq!(idle_ns(), first_ns);
    machine.order(0, Marker::ChargingOn);
    pause();
    // SAFETY: the tests have one thread.
    unsafe { cpu.resume(&machine, 1) };
    assert!(idle_ns() >= first_ns + 2_000_000);
}
