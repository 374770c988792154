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
