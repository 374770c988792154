//! What is measured there: remote memory is slower, the plugin's counts say where it lies, and
//! results keep the contract's names and survive a full disk.

use serde_json::Value;

use crate::Bench;
use crate::transcript::{program, run};

/// Counts come with the result. Threads bound beside their memory miss on their own node: node
/// 0's CPUs, the first four, nearly always on node 0.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn counters_say_where_memory_was_served() {
    let bench = Bench::new();
    let load = [program(), "bench", "numa02", "--size", "16M", "--loops", "20", "--tie", "bind"];
    let words = ["lab", "run", "--timeout", crate::HANGS, "--counters", "counters.json"];
    run(&mut bench.command(&words, &load)).ends_with(0);
    let counters: Value = serde_json::from_str(&bench.shared("counters.json")).unwrap();
    let cpus = counters["cpus"].as_array().unwrap();
    assert_eq!(cpus.len(), 8, "{counters}");
    let (mut local, mut all) = (0, 0);
    for (number, cpu) in cpus.iter().enumerate() {
        let by_node: Vec<u64> =
            cpu["misses_by_node"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        let count = |name: &str| cpu[name].as_u64().unwrap_or_else(|| panic!("{name} in {cpu}"));
        assert_eq!(by_node.iter().sum::<u64>(), count("misses"), "CPU {number}: {cpu}");
        assert!(count("accesses") >= count("misses"), "CPU {number}: {cpu}");
        assert!(count("instructions") > 0, "CPU {number}: {cpu}");
        local += by_node[number / 4];
        all += count("misses");
    }
    // 16 MiB written 20 times, a line of 64 bytes each: 5.2 million misses at least.
    assert!(all > 5_000_000, "{all} misses");
    // The boot's end, the program's code and the first touch are in it too.
    assert!(local * 10 > all * 7, "{local} of {all} misses are local");
    bench.left_nothing();
}

/// The mirror of a good placement is slower by what distance costs.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_comparison_tells_good_from_bad_and_keeps_the_contract() {
    let bench = Bench::new();
    let words = ["compare", "numa02", "--loops", "40", "--runs", "1", "-o", "json"];
    let more = ["--placements", "bind,inverse", "--results", "cells.jsonl", "--seed", "5"];
    let transcript = run(&mut bench.command(&[&words[..], &more].concat(), &[])).ends_with(0);
    let json = transcript.json();
    let fields = [("workload", "numa02"), ("machine", "lab:2x4")];
    assert!(fields.iter().all(|(name, value)| json[name] == *value), "{transcript}");
    assert!(json["kernel"].as_str().unwrap().starts_with(|c: char| c.is_ascii_digit()), "{json}");
    assert_eq!((&json["runs"], &json["seed"]), (&1.into(), &5.into()), "{transcript}");
    assert!(json["dilation"].as_f64().unwrap() >= 1.0, "{transcript}");

    let placements = json["placements"].as_array().unwrap();
    let names: Vec<&str> = placements.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bind", "inverse"], "{transcript}");
    for placement in placements {
        let seconds = &placement["seconds"];
        let median = seconds["median"].as_f64().unwrap();
        // Of one run, all are the same.
        assert!(median > 0.0 && seconds["min"] == median && seconds["max"] == median, "{json}");
        assert_eq!(seconds["all"], Value::from(vec![median]), "{json}");
        assert!(placement["throughput"]["median"].as_f64().unwrap() > 0.0, "{json}");
        assert!(placement["throughput"]["unit"].is_string(), "{json}");
        assert_eq!(placement["local_share_source"], "emulator", "{json}");
        assert_eq!(placement["pages_migrated_by_us"], 0, "{json}");
        assert!(placement["pages_migrated_by_kernel"].is_u64(), "{json}");
        assert!(placement["seconds_to_converge"].is_null(), "{json}");
        assert!(placement["late_share"].as_f64().unwrap() < 0.1, "{json}");
    }
    let figure = |at: usize, name: &str| placements[at][name].as_f64().unwrap();
    assert_eq!(figure(0, "ratio_to_bind"), 1.0);
    assert!(figure(1, "ratio_to_bind") >= 1.4, "{transcript}");
    assert!(figure(0, "local_share") > 0.9, "{transcript}");
    assert!(figure(1, "local_share") < 0.1, "{transcript}");

    let cells = bench.shared("cells.jsonl");
    let mut kept: Vec<(String, f64)> = Vec::new();
    for line in cells.lines() {
        let cell: Value = serde_json::from_str(line).unwrap();
        kept.push((cell["placement"].as_str().unwrap().into(), cell["seconds"].as_f64().unwrap()));
    }
    kept.sort_by(|a, b| a.0.cmp(&b.0));
    let seconds = |at: usize| placements[at]["seconds"]["median"].as_f64().unwrap();
    assert_eq!(kept, [("bind".into(), seconds(0)), ("inverse".into(), seconds(1))], "{cells}");
    bench.left_nothing();
}

/// A full disk ends the comparison with one line, and what was measured is printed all the same.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn a_full_disk_is_told_and_what_was_measured_is_printed() {
    let bench = Bench::new();
    let words = ["compare", "numa02", "--no-distance", "--size", "1M", "--loops", "1"];
    let more = ["--runs", "1", "--placements", "bind,inverse", "--results", "/dev/full"];
    let words = [&words[..], &more, &["-o", "json"]].concat();
    let transcript = run(&mut bench.command(&words, &[])).ends_with(1);
    let told = ["cannot write results to /dev/full", "make room", "No space left"];
    let transcript = transcript.tells(&told);
    let about = transcript.stderr.lines().filter(|line| line.contains("/dev/full")).count();
    assert_eq!(about, 1, "{transcript}");
    let json = transcript.json();
    assert_eq!(json["placements"].as_array().map(Vec::len), Some(1), "{transcript}");
    bench.left_nothing();
}

/// What is measured inside is what the machine's file states: each latency within 3 %, each
/// bandwidth within 7 %. `MACHINES=all` takes all machines whose files state both.
#[test]
#[ignore = "needs QEMU, a quiet host and minutes: make fidelity-test"]
fn the_machine_is_what_its_file_says() {
    let all = std::env::var("MACHINES").is_ok_and(|which| which == "all");
    let machines: &[&str] =
        if all { &["2x4", "2x4-near", "4x2", "8x1", "autonuma"] } else { &["2x4-near"] };
    let bench = Bench::new();
    for machine in machines {
        let json = measured_in_peace(&bench, machine);
        let late = json["late_share"].as_f64().unwrap();
        eprintln!(
            "{machine}, late share {late:.4}, measured / stated - 1, least and greatest cell:"
        );
        for (key, within) in [("latency_ns", 0.03), ("read_mb_s", 0.07), ("write_mb_s", 0.07)] {
            let off = beside_stated(&json, key);
            let ends = off.iter().fold((f64::MAX, f64::MIN), |(l, g), c| (l.min(c.2), g.max(c.2)));
            eprintln!("  {key} {:+.1} % to {:+.1} %", ends.0 * 100.0, ends.1 * 100.0);
            let beyond: Vec<_> = off.iter().filter(|cell| cell.2.abs() >= within).collect();
            assert!(beyond.is_empty(), "{machine}: {key}: (row, column, share off): {beyond:?}");
        }
    }
    bench.left_nothing();
}

/// Row, column, and measured ÷ stated − 1 of each cell.
fn beside_stated(json: &Value, key: &str) -> Vec<(usize, usize, f64)> {
    let rows = json["stated"][key].as_array().unwrap().iter().enumerate();
    let cells = rows.flat_map(|(row, cells)| {
        let cells = cells.as_array().unwrap().iter().enumerate();
        cells.map(move |(column, stated)| (row, column, stated.as_f64().unwrap()))
    });
    let off = |(row, column, stated): (usize, usize, f64)| {
        (row, column, json[key][row][column]["median"].as_f64().unwrap() / stated - 1.0)
    };
    cells.map(off).collect()
}

/// Where the host was behind, the figures are the host's: measured again with more time for each
/// guest second.
fn measured_in_peace(bench: &Bench, machine: &str) -> Value {
    // Nine samples: of five, one cell in a hundred had a median that ticks had pushed past 3 %.
    let words = ["topology", "--measure", "--machine", machine, "--samples", "9", "-o", "json"];
    let mut late = Vec::new();
    for more in [&[][..], &["--dilation", "8"], &["--dilation", "16"]] {
        let words = [&words[..], more].concat();
        let json = run(&mut bench.command(&words, &[])).ends_with(0).json();
        assert_eq!(json["machine"], format!("lab:{machine}"), "{json}");
        match json["late_share"].as_f64().unwrap() {
            share if share < 0.02 => return json,
            share => late.push(share),
        }
    }
    panic!("{machine}: this host is too busy to measure: late shares {late:?}");
}
