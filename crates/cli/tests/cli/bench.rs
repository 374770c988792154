//! Every workload runs here, small, and counts exactly the work it was asked for. That it was
//! done, each workload's own tests show.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::transcript::{numaherd, program, run};
use crate::{skip, transcript};

/// Runs a workload with these words; `None` where this host lacks what it needs.
fn bench(words: &[&str]) -> Option<Value> {
    let transcript = run(&mut numaherd(&[&["bench", "-o", "json"], words].concat()));
    if words[0] == "hugetlb" && transcript.code == 1 {
        transcript.refuses(1, &["free huge pages", "nr_hugepages"]);
        skip("no huge pages are reserved");
        return None;
    }
    Some(transcript.ends_with(0).json())
}

/// Bytes or operations.
fn done(result: &Value) -> u64 {
    result["operations"].as_u64().or(result["bytes"].as_u64()).unwrap()
}

/// Words, and the amount they come to.
const WORK: &[(&[&str], u64)] = &[
    // Each thread writes 1 MiB three times.
    (&["numa01", "--threads", "3", "--size", "1M", "--loops", "3"], 9 << 20),
    // Each process's slices are its 1 MiB.
    (&["numa01_THREAD_ALLOC", "--threads", "4", "--size", "1M", "--loops", "3"], 6 << 20),
    (&["numa02", "--threads", "2", "--size", "1M", "--loops", "3"], 3 << 20),
    (&["numa02_smt", "--threads", "1", "--size", "1M", "--loops", "3"], 3 << 20),
    // numa01's two threads and numa02's two: 1 MiB three times each.
    (&["overcommit", "--threads", "4", "--size", "1M", "--loops", "3"], 12 << 20),
    (&["jbb-like", "--threads", "3", "--processes", "2", "--size", "1M", "--loops", "100"], 300),
    // Three arrays of 2730 lines for each thread, twice.
    (&["stream", "--threads", "2", "--size", "1M", "--loops", "2"], 2 * 2 * 3 * 2730 * 64),
    (&["phases", "--threads", "4", "--size", "1M", "--loops", "4"], 4 << 20),
    // Groups of 3 and 1 over half of the memory each.
    (&["uneven", "--threads", "4", "--size", "1M", "--loops", "2"], 4 << 20),
    (&["forks", "--threads", "2", "--size", "64K", "--loops", "3"], 6),
    (&["shared", "--threads", "4", "--size", "1M", "--loops", "3"], 3 << 20),
    (&["hugetlb", "--threads", "2", "--size", "4M", "--loops", "3"], 12 << 20),
];

/// The processes that a process has started.
fn children(pid: u32) -> Vec<String> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    listed.split_ascii_whitespace().map(str::to_string).collect()
}

/// The others hold its standard error open, which so ends when all have ended; left to themselves they would work
/// on and then have nobody to tell.
#[test]
fn a_workload_of_several_processes_ends_with_its_first() {
    let words = ["bench", "numa01", "--threads", "2", "--size", "1M", "--seconds", "20"];
    let mut first = numaherd(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let threads =
        |pid: &String| std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    while children(first.id()).iter().filter(|pid| threads(pid) > 1).count() < 2 {
        assert!(first.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    first.kill().unwrap();
    let mut told = String::new();
    first.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    first.wait().unwrap();
    assert_eq!(told, "");
}

#[test]
fn every_workload_does_the_work_it_was_asked_for() {
    for (words, amount) in WORK {
        let Some(result) = bench(words) else { continue };
        let operations = ["jbb-like", "forks"].contains(&words[0]);
        let counted = if operations { "operations" } else { "bytes" };
        assert_eq!(result[counted], *amount, "{words:?}: {result}");
        let threads: u64 = words[2].parse().unwrap();
        assert_eq!(result["threads"], threads, "{words:?}: {result}");
        let ends = result["thread_seconds"].as_array().unwrap();
        assert_eq!(ends.len() as u64, threads, "{words:?}: {result}");
        let seconds = result["seconds"].as_f64().unwrap();
        assert!(ends.iter().all(|end| end.as_f64().unwrap() <= seconds), "{words:?}: {result}");
        // What was noted over time is all of it, unless the last moments were too short.
        let over_time = &result["throughput_over_time"];
        assert!(!over_time["values"].as_array().unwrap().is_empty(), "{words:?}: {result}");
        assert_eq!(result["latency_ns"].is_object(), operations, "{words:?}: {result}");
        assert_eq!(result["throughput"]["unit"] == "B/s", !operations, "{words:?}: {result}");
    }
}

/// Whichever way it is tied: this host has memory on every node that has CPUs.
#[test]
fn every_tie_that_one_node_allows_works() {
    for tie in ["free", "bind", "interleave"] {
        for name in ["numa02", "jbb-like", "forks", "phases"] {
            let words = [name, "--threads", "2", "--size", "256K", "--loops", "2", "--tie", tie];
            assert!(done(&bench(&words).unwrap()) > 0, "{words:?}");
        }
    }
}

/// A fixed time ends a run whose number of rounds nobody gave.
#[test]
fn a_fixed_time_is_kept() {
    for name in ["numa02", "jbb-like", "forks", "phases"] {
        let words = [name, "--threads", "2", "--size", "256K", "--seconds", "0.2"];
        let result = bench(&words).unwrap();
        assert!(result["seconds"].as_f64() >= Some(0.2), "{result}");
        assert!(result["loops"].is_null() && done(&result) > 0, "{result}");
    }
}

#[test]
fn what_makes_no_sense_is_one_line() {
    let refuses = |words: &[&str], told: &[&str]| {
        run(&mut numaherd(&[&["bench"], words].concat())).refuses(1, told);
    };
    refuses(&["overcommit", "--threads", "2"], &["at least 3 threads", "not 2"]);
    refuses(&["numa02", "--threads", "9", "--size", "8K"], &["8192 bytes", "9 threads"]);
    let jbb = ["jbb-like", "--threads", "4", "--processes", "2", "--size", "64K"];
    refuses(&jbb, &["each of 2 warehouses"]);
}

/// The stacks of so many threads do not fit into its address space; those that are there wait for the others.
#[test]
fn a_thread_that_cannot_be_started_is_one_line_and_nobody_waits_for_it() {
    for words in ["numa02 --threads 200 --size 8M", "pft -t 200 -m 8m"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -v 300000; exec \"$0\" bench {words}"), program()]);
        run(&mut shell).refuses(1, &["cannot start thread", "of 200", "ulimit"]);
    }
}

/// An address beyond the last one would be the first again.
#[test]
fn a_size_that_no_address_space_holds_is_one_line() {
    for size in ["18446744073709551615", "18446744073707454464", "9223372036854775807"] {
        let words = ["bench", "numa02", "--threads", "2", "--size", size];
        run(&mut numaherd(&words)).refuses(1, &["cannot map", size]);
    }
}

#[test]
fn a_bench_for_people_and_for_spreadsheets_tells_latencies() {
    let words = ["bench", "jbb-like", "--threads", "1", "--processes", "1", "--size", "1M"];
    let with = |more: &[&str]| -> transcript::Transcript {
        run(&mut numaherd(&[&words[..], &["--loops", "50"], more].concat())).ends_with(0)
    };
    let table = with(&[]);
    let told = ["transactions/s", "99.9 %"];
    assert!(told.iter().all(|word| table.stdout.contains(word)), "{table}");
    let csv = with(&["-o", "csv"]);
    assert!(csv.stdout.contains("latency_p99_ns"), "{csv}");
    let row = csv.stdout.lines().nth(1).unwrap();
    assert!(row.starts_with("jbb-like,1,1048576,50,") && row.contains(",0,50,"), "{csv}");
}
