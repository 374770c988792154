//! `balance` on a live kernel, where `compare` does not look.

use serde_json::Value;

use crate::Bench;
use crate::transcript::{program, run};

/// Without hinting faults and without BPF: two processes whose memory is all on one node are each
/// brought together with it, on a node of their own.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn without_bpf_processes_and_their_memory_are_brought_together() {
    let bench = Bench::new();
    let script = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing
         {0} balance --no-bpf --log log -- \
             {0} bench numa01 --start one-node --size 16M --seconds 8 > /dev/null",
        program()
    );
    let words = ["lab", "run", "--no-distance", "--timeout", "150"];
    run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
    let log = bench.shared("log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let strongest = lines.iter().filter_map(|line| line["strength_permille"].as_u64()).max();
    assert!(strongest >= Some(900), "{log}");
    // Half of 2 x 16 MiB was on the wrong node for good; whether in small pages or huge ones.
    let moved = |line: &Value| line["outcome"]["moved"].as_u64();
    assert!(lines.iter().filter_map(moved).sum::<u64>() >= 3000, "{log}");
    let pages_moved = lines.iter().any(|line| line["action"]["do"] == "move-pages");
    assert!(pages_moved, "{log}");
    bench.left_nothing();
}

/// Huge pages of the reserve take no hinting faults: their accesses are sampled, and threads come to their
/// memory or it to them. Also by who gives up what it need not have, where the kernel asks for more than usual.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn who_uses_huge_pages_of_the_reserve_is_found_by_sampling() {
    let bench = Bench::new();
    let script = format!(
        "{} cell --placement herd --reserve 8 --log log -- \
             hugetlb --size 16M --seconds 6 > result; \
         for reserve in /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages; do \
             echo 8 > $reserve; done; \
         {} balance -- {} bench hugetlb --size 16M --seconds 2 2> told",
        program(),
        program(),
        program()
    );
    let words = ["lab", "run", "--no-distance", "--timeout", "150"];
    let lab = run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
    lab.tells(&["its accesses are sampled"]);
    let result: Value = serde_json::from_str(&bench.shared("result")).unwrap();
    // None of them the kernel's: it arms no such memory.
    assert!(result["balance"]["tasks_placed"].as_u64() >= Some(8), "{result}");
    let log = bench.shared("log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.iter().rev().find_map(|line| line["strength_permille"].as_u64());
    assert!(last >= Some(900), "{log}");
    let told = bench.shared("told");
    assert!(told.contains("its accesses are sampled"), "{told}");
    bench.left_nothing();
}
