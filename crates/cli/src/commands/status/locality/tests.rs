//! Worked examples: which evidence is taken, and what it says.

use super::*;
use numaherd_linux::memory::residence::Unseen;

const MIB: u64 = 1 << 20;

/// Two threads, one on each node, that used as much CPU time.
fn process(memory: [u64; 2], bound: [u64; 2]) -> Process {
    let list = |a: u64, b: u64| -> Vec<(NodeId, Bytes)> {
        vec![(NodeId(0), Bytes(a * MIB)), (NodeId(1), Bytes(b * MIB))]
    };
    let task =
        |node| Task { ran: vec![(NodeId(node), 1000)], counts: None, faults: Faults::default() };
    let residence = Residence {
        nodes: list(memory[0] + bound[0], memory[1] + bound[1]),
        seen: list(memory[0], memory[1]),
        unseen: vec![(Unseen::Policy, Bytes((bound[0] + bound[1]) * MIB))],
    };
    let (command, tasks) = ("x".to_string(), vec![task(0), task(1)]);
    Process { pid: 1, command, residence: Ok(residence), tasks }
}

fn faults(process: &mut Process, each: [(u64, u64, u64); 2]) {
    for (task, (local, all, pieces)) in process.tasks.iter_mut().zip(each) {
        task.faults = Faults { local, all, pieces };
    }
}

fn near(got: f64, expected: f64) {
    assert!((got - expected).abs() < 1e-3, "{got}, not {expected}");
}

#[test]
fn spread_threads_over_spread_memory_need_faults_to_be_known() {
    let mut process = process([32, 32], [0, 0]);
    let local = local_share(&process).unwrap();
    assert_eq!((local.value, local.source), (None, Source::ResidentPages));
    assert_eq!(local.interval, Interval::UNKNOWN);
    // Both threads use the other's node: 0 of 32 pieces of 2 MiB
    faults(&mut process, [(0, 8192, 16), (0, 8192, 16)]);
    let local = local_share(&process).unwrap();
    assert_eq!((local.value, local.source), (Some(0.0), Source::HintingFaults));
    // Wilson: z²/32 ÷ (1 + z²/32) = 0.12 ÷ 1.12
    near(local.interval.high, 0.1072);
}

#[test]
fn a_thread_that_did_not_fault_and_memory_that_cannot_are_open() {
    let mut process = process([32, 32], [0, 0]);
    faults(&mut process, [(8192, 8192, 500), (0, 0, 0)]);
    // One thread is local, of the other nothing is known: from about a half to one
    let local = local_share(&process).unwrap();
    near(local.interval.low, 0.5 * 500.0 / (500.0 + 3.8416));
    assert_eq!((local.interval.high, local.value), (1.0, None));

    let mut process = self::process([24, 24], [8, 8]);
    faults(&mut process, [(0, 8192, 500), (0, 8192, 500)]);
    // Three quarters can fault and are remote; a quarter may be anything
    let local = local_share(&process).unwrap();
    assert_eq!(local.coverage, 0.75);
    near(local.interval.low, 0.0);
    assert!(local.interval.high > 0.25 && local.interval.high < 0.26, "{local:?}");
    near(local.value.unwrap(), 0.125);
}

#[test]
fn all_memory_on_one_node_needs_no_faults() {
    let mut process = process([64, 0], [0, 0]);
    faults(&mut process, [(8192, 8192, 16), (8192, 8192, 16)]);
    // Half of the time on each node, all memory on node 0: half is local, whoever faults
    let local = local_share(&process).unwrap();
    assert_eq!((local.value, local.source), (Some(0.5), Source::ResidentPages));
}

#[test]
fn the_kernels_own_counts_stand_in_and_a_single_thread_has_no_use_for_either() {
    let mut process = process([32, 32], [0, 0]);
    for (task, node) in process.tasks.iter_mut().zip([0, 0]) {
        task.counts = Some(vec![(NodeId(node), 16384)]);
    }
    // Thread 1 runs where its faults are, thread 2 does not; 16384 pages are 32 pieces each
    let local = local_share(&process).unwrap();
    assert_eq!((local.value, local.source), (Some(0.5), Source::KernelCounts));
    // Of a few faults that were sampled less is known than of those; of many, more, and they are of now.
    faults(&mut process, [(512, 512, 1), (0, 0, 0)]);
    assert_eq!(local_share(&process).unwrap().source, Source::KernelCounts);
    faults(&mut process, [(8192, 8192, 16), (8192, 8192, 16)]);
    let local = local_share(&process).unwrap();
    assert_eq!((local.value, local.source), (Some(1.0), Source::HintingFaults));
    process.tasks.truncate(1);
    assert_eq!(local_share(&process).unwrap().source, Source::ResidentPages);
    process.residence = Err("another user's".into());
    assert_eq!(local_share(&process), None);
}
