//! Other people's NUMA tools run unmodified in the lab: perf's benchmark, numad, stress-ng.
//!
//! They are no part of what numaherd needs: `make tools-test` installs them and runs these; where
//! one is missing the test says so and passes.

use std::path::Path;

use crate::Bench;
use crate::transcript::{Transcript, run};

/// What a shell says to a script in the guest, or None where a tool is not installed.
fn in_guest(bench: &Bench, tool: &str, script: &str) -> Option<Transcript> {
    if !["/usr/bin", "/usr/sbin"].iter().any(|dir| Path::new(dir).join(tool).exists()) {
        eprintln!("skipped: {tool} is not installed");
        return None;
    }
    let words = ["lab", "run", "--no-distance", "--timeout", crate::HANGS];
    let transcript = run(&mut bench.command(&words, &["sh", "-c", script]));
    eprintln!("{tool}:\n{}", transcript.stdout);
    bench.left_nothing();
    Some(transcript)
}

/// Two processes of two threads, each with memory of its own, until the kernel has gathered each
/// process on a node, or for 8 seconds.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn perfs_numa_benchmark_runs() {
    let bench = Bench::new();
    let script = "perf bench numa mem -p 2 -t 2 -P 32 -s 8 -zZ0qcm --thp 1 2>&1";
    let Some(transcript) = in_guest(&bench, "perf", script) else { return };
    let transcript = transcript.ends_with(0);
    assert!(transcript.stdout.contains("GB/sec/thread speed"), "{transcript}");
    assert!(transcript.stdout.contains("latency to NUMA-converge"), "{transcript}");
}

/// It sees the nodes, stays up, and ends when told to.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn numad_runs() {
    let bench = Bench::new();
    let script = "numad -i 5:10 -l 7; sleep 12; pidof numad || echo gone; numad -i 0; sleep 1; \
                  cat /var/log/numad.log";
    let Some(transcript) = in_guest(&bench, "numad", script) else { return };
    let transcript = transcript.ends_with(0);
    assert!(transcript.stdout.contains("Nodes: 2"), "{transcript}");
    assert!(!transcript.stdout.contains("gone"), "{transcript}");
}

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn stress_ngs_numa_stressor_runs() {
    let bench = Bench::new();
    let script = "stress-ng --numa 2 --timeout 10 --metrics-brief 2>&1";
    let Some(transcript) = in_guest(&bench, "stress-ng", script) else { return };
    let transcript = transcript.ends_with(0);
    assert!(transcript.stdout.contains("successful run completed"), "{transcript}");
    assert!(!transcript.stdout.contains("skipped: 2"), "{transcript}");
}
