//! What balance costs, and does, once there is nothing left to do. Some minutes: `make rest-test`.

use crate::Bench;
use crate::transcript::{program, run};

/// A run, in guest seconds; how long after balance has come it is looked at first, and for how long.
const SECONDS: u32 = 40;
const SETTLED: u32 = 20;
const LOOKED: u32 = 15;
/// The bars: a part of the time of all CPUs, which are all busy, and of the pages of the load a second.
const MOST_CPU: f64 = 0.005;
const MOST_PAGES: f64 = 0.01;

/// What was counted at one moment.
#[derive(Debug)]
struct Counts {
    up_s: f64,
    /// CPU time of the balancer.
    own_s: f64,
    /// That of its programs in the kernel, on whichever task.
    bpf_s: f64,
    /// Entries of page tables that the kernel's scans have armed.
    armed: u64,
}

impl Counts {
    fn of(text: &str) -> Counts {
        let mut lines = text.lines();
        let up = lines.next().unwrap().split(' ').next().unwrap();
        let stat = lines.next().unwrap();
        // After the name, which may hold anything: utime and stime are the 14th and 15th field, in hundredths.
        let after: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
        let ticks = |field: usize| after[field - 3].parse::<f64>().unwrap();
        let (mut bpf_ns, mut armed) = (0, 0);
        for line in lines {
            let value = line.split_whitespace().last().unwrap().parse::<u64>().unwrap();
            match line.starts_with("run_time_ns") {
                true => bpf_ns += value,
                false => armed = value,
            }
        }
        let own_s = (ticks(14) + ticks(15)) / 100.0;
        Counts { up_s: up.parse().unwrap(), own_s, bpf_s: bpf_ns as f64 / 1e9, armed }
    }
}

#[test]
#[ignore = "some minutes: make rest-test"]
fn at_rest_balance_moves_nothing_and_takes_next_to_no_time() {
    let machine = std::env::var("MACHINE").unwrap_or_else(|_| "2x4".into());
    let mut missed = Vec::new();
    eprintln!(
        "| load | balance | own CPU time | BPF | together, of all CPUs | of one | armed by scans | tasks moved | pages moved a second |"
    );
    eprintln!("|---|---|---|---|---|---|---|---|---|");
    for (load, start) in [("numa02", "placed"), ("numa02", "one-node"), ("jbb-like", "placed")] {
        for knobs in ["", "--tune-kernel"] {
            let bench = Bench::new();
            let numaherd = program();
            let look = "cat /proc/uptime /proc/$herd/stat; cat /proc/$herd/fdinfo/* | grep run_time_ns; \
                        grep numa_pte_updates /proc/vmstat; true";
            let script = format!(
                "echo 1 > /proc/sys/kernel/bpf_stats_enabled; nproc > cpus
                 {numaherd} bench {load} --start {start} --seconds {SECONDS} -o json > bench & load=$!
                 cat /proc/uptime > begun
                 {numaherd} balance {knobs} -p $load --log log 2> told & herd=$!
                 sleep {SETTLED}; {{ {look}; }} > before
                 sleep {LOOKED}; {{ {look}; }} > after
                 wait $load"
            );
            let words = ["lab", "run", "--timeout", "3600", "--machine", &machine];
            run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
            let [before, after] = ["before", "after"].map(|name| Counts::of(&bench.shared(name)));
            let seconds = after.up_s - before.up_s;
            let (own, bpf) = (after.own_s - before.own_s, after.bpf_s - before.bpf_s);
            let of_one = (own + bpf) / seconds;
            let cpu = of_one / bench.shared("cpus").trim().parse::<f64>().unwrap();
            // The log's times are since it began, as balance did.
            let begun: f64 = bench.shared("begun").split(' ').next().unwrap().parse().unwrap();
            let (from, to) = (before.up_s - begun, after.up_s - begun);
            let (tasks, pages) = moved(&bench.shared("log"), from, to);
            let whole: serde_json::Value = serde_json::from_str(&bench.shared("bench")).unwrap();
            let all = whole["size_bytes"].as_f64().unwrap() / 4096.0;
            let part = pages as f64 / seconds / all;
            let armed = after.armed - before.armed;
            eprintln!(
                "| {load}, {start} | {knobs} | {own:.3} s | {bpf:.4} s | {:.2} % | {:.2} % | {armed} | {tasks} | {:.3} % |",
                cpu * 100.0,
                of_one * 100.0,
                part * 100.0
            );
            if cpu > MOST_CPU || tasks > 0 || part >= MOST_PAGES {
                missed.push(format!("{load} {start} {knobs}"));
            }
            bench.left_nothing();
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Tasks placed or released, and pages moved, between two times, by the log of balance.
fn moved(log: &str, from_s: f64, to_s: f64) -> (usize, u64) {
    let (mut tasks, mut pages) = (0, 0);
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let at = line["t"].as_f64().unwrap() / 1e9;
        if line["event"] != "action" || !(from_s..to_s).contains(&at) {
            continue;
        }
        match line["action"]["do"].as_str().unwrap() {
            "move-pages" => pages += line["outcome"]["moved"].as_u64().unwrap_or(0),
            _ => tasks += 1,
        }
    }
    (tasks, pages)
}
