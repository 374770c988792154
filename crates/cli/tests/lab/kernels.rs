//! Our BPF on each kernel: it is accepted, and hinting faults arrive with their addresses.
//!
//! Which kernels: the newest in the cache, or those that `KERNELS` names (`make kernel-test`:
//! Debian's 6.1 and 6.12, and one with sched_ext). What runs there is `crates/bpf`'s example
//! `watch_faults`: eight threads that share memory, and a count of what is reported of them.

use std::path::Path;

use crate::Bench;
use crate::transcript::{program, run};

/// Of eight threads with 8 MiB each, seen for 10 seconds: hundreds on a busy host, where most are of
/// huge pages.
const FEWEST_FAULTS: u64 = 50;

/// All of them fault, and end.
const THREADS: u64 = 8;

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn hinting_faults_arrive_on_every_kernel() {
    let watch = Path::new(program()).with_file_name("examples").join("watch_faults");
    let how = "cargo build -p numaherd-bpf --example watch_faults";
    assert!(watch.is_file(), "{} is missing: {how}, as the make targets do", watch.display());
    let kernels = std::env::var("KERNELS").unwrap_or_default();
    let mut kernels: Vec<Option<&str>> = kernels.split_ascii_whitespace().map(Some).collect();
    if kernels.is_empty() {
        kernels.push(None);
    }
    for kernel in kernels {
        let bench = Bench::new();
        let mut words = vec!["lab", "run", "--no-distance", "--timeout", crate::HANGS];
        words.extend(kernel.into_iter().flat_map(|kernel| ["--kernel", kernel]));
        let script = format!("uname -r; {} 10 8", watch.display());
        let transcript = run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
        let line = transcript.stdout.lines().find(|line| line.starts_with("faults "));
        let line = line.unwrap_or_else(|| panic!("no count: {transcript}"));
        let release = transcript.stdout.lines().next().unwrap_or_default();
        let lost = transcript.stdout.lines().find(|line| line.starts_with("lost "));
        eprintln!("{release}: {line}; {}", lost.unwrap_or_default());
        let faults = number_after(line, "faults ");
        assert!(faults >= FEWEST_FAULTS, "{transcript}");
        assert_eq!(number_after(line, "with address "), faults, "{transcript}");
        // Their own stacks and code fault too.
        assert!(number_after(line, "inside the array ") * 2 > faults, "{transcript}");
        let ended = format!(" {THREADS} threads ended");
        assert!(lost.is_some_and(|line| line.ends_with(&ended)), "{transcript}");
        bench.left_nothing();
    }
}

#[track_caller]
fn number_after(line: &str, name: &str) -> u64 {
    let rest = line.split_once(name).unwrap_or_else(|| panic!("no '{name}' in '{line}'")).1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}
