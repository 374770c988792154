//! Every workload under every tie on two real nodes; huge pages reserved and given back; and that
//! `bind` is local and `inverse` is not.

use serde_json::Value;

use crate::Bench;
use crate::transcript::{program, run};

/// Small, and with loops enough that every thread has a second round.
const SMALL: &[&str] = &[
    "numa01 --size 2M --loops 2",
    "numa01_thread_alloc --size 8M --loops 2",
    "numa02 --size 8M --loops 2",
    "numa02_smt --size 8M --loops 2",
    "overcommit --size 2M --loops 2",
    "jbb-like --size 2M --loops 50",
    "stream --size 8M --loops 2",
    "phases --size 8M --loops 2",
    "uneven --size 4M --loops 2",
    "forks --size 64K --loops 2",
    "shared --size 8M --loops 2",
    "hugetlb --size 16M --loops 2",
];

/// Bytes or operations.
fn done(bench: &Value) -> u64 {
    bench["operations"].as_u64().or(bench["bytes"].as_u64()).unwrap()
}

/// The work is the same however it is tied, and the reserve is what it was when all is over.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn every_workload_runs_under_every_tie_on_two_nodes() {
    let bench = Bench::new();
    let program = program();
    let mut script = String::from("set -e\n");
    for words in SMALL {
        for placement in ["off", "bind", "inverse", "interleave"] {
            let reserve = if words.starts_with("hugetlb") { "--reserve 8" } else { "" };
            script += &format!(
                "{program} cell --placement {placement} {reserve} -- {words} >> results\n"
            );
        }
    }
    script += "cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages > left\n";
    let words = ["lab", "run", "--no-distance", "--timeout", crate::HANGS];
    run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
    let results = bench.shared("results");
    let results: Vec<Value> =
        results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), 4 * SMALL.len());
    for (words, under_each) in SMALL.iter().zip(results.chunks(4)) {
        let amounts: Vec<u64> = under_each.iter().map(|cell| done(&cell["bench"])).collect();
        assert!(amounts[0] > 0 && amounts.iter().all(|a| *a == amounts[0]), "{words}: {amounts:?}");
    }
    assert_eq!(bench.shared("left"), "0\n0\n");
    bench.left_nothing();
}

/// Two of eight threads are remote after the slices were passed on, so 14 of 16 halves are local, and
/// the slowest thread needs (1 + 1.95) ÷ 2 under bind and 1.95 under inverse.
#[test]
#[ignore = "needs QEMU and minutes: make phases-test"]
fn the_bind_of_phases_is_the_best_that_stays() {
    let bench = Bench::new();
    let words = ["compare", "phases", "--loops", "40", "--runs", "1", "-o", "json"];
    let more = ["--placements", "bind,inverse", "--results", "/dev/null"];
    let page = ["--html", "page.html"];
    let words = [&words[..], &more, &page].concat();
    let json = run(&mut bench.command(&words, &[])).ends_with(0).json();
    let figure = |at: usize, name: &str| json["placements"][at][name].as_f64().unwrap();
    assert!((figure(0, "local_share") - 14.0 / 16.0).abs() < 0.06, "{json}");
    assert!((figure(1, "local_share") - 2.0 / 16.0).abs() < 0.06, "{json}");
    assert!((1.2..1.5).contains(&figure(1, "ratio_to_bind")), "{json}");
    // 8 threads x 40 rounds x 8 MiB in all, seen over time.
    let course = &json["placements"][0]["throughput_over_time"];
    let noted: f64 = course["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).sum();
    let seconds = json["placements"][0]["seconds"]["median"].as_f64().unwrap();
    let rate = json["placements"][0]["throughput"]["median"].as_f64().unwrap();
    let noted = noted * course["interval_seconds"].as_f64().unwrap();
    assert!((noted / (rate * seconds) - 1.0).abs() < 0.3, "{json}");
    assert!(bench.shared("page.html").contains("throughput, MB/s"));
    bench.left_nothing();
}
