//! Our BPF on each kernel: it loads, hinting faults arrive, with addresses, and `balance` uses them.
//!
//! Which kernels: the newest in the cache, or those that `KERNELS` names (`make kernel-test`:
//! Debian's 6.1 and 6.12, and one with sched_ext).

use serde_json::Value;

use crate::Bench;
use crate::transcript::{program, run};

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn hinting_faults_arrive_on_every_kernel() {
    let kernels = std::env::var("KERNELS").unwrap_or_default();
    let kernels: Vec<&str> = match kernels.split_ascii_whitespace().collect::<Vec<_>>() {
        none if none.is_empty() => vec![""],
        some => some,
    };
    for kernel in kernels {
        let bench = Bench::new();
        let mut words = vec!["lab", "run", "--no-distance", "--timeout", "150"];
        if !kernel.is_empty() {
            words.extend(["--kernel", kernel]);
        }
        let script = format!(
            "uname -r; {0} balance --tune-kernel --log log.jsonl --verbose -- \
             {0} bench numa02 --size 32M --loops 40",
            program()
        );
        let transcript = run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
        let log = bench.shared("log.jsonl");
        let events: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let faults: u64 = events.iter().filter_map(|event| event["faults"].as_u64()).sum();
        // Regions are known by the faults' addresses alone, so only those are moved.
        let moved = log.matches("\"move-pages\"").count();
        eprintln!("{}: {faults} faults, {moved} plans of pages", transcript.stdout.trim());
        assert!(faults > 1000, "{kernel}: {faults} faults: {transcript}");
        assert!(moved > 0, "{kernel}: no page was moved for its faults: {transcript}\n{log}");
        bench.left_nothing();
    }
}
