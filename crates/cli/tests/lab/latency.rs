//! How long requests take while balance converges. Some minutes: `make latency-test`.

use serde_json::Value;

use crate::Bench;
use crate::transcript::{program, run};

/// A run, and how much of it is left alone before balance comes.
const SECONDS: u32 = 26;
const ALONE: u32 = 12;
/// The bar: p99.9 while converging ÷ before.
const MOST: f64 = 1.5;

/// A second's histogram: nanoseconds, and how many operations took about so long.
type Histogram = Vec<(u64, u64)>;

/// What is told of a stretch of time.
#[derive(Debug)]
struct Phase {
    name: &'static str,
    seconds: Vec<usize>,
    operations: u64,
    p50: u64,
    p999: u64,
    longest: u64,
}

impl Phase {
    /// Of the seconds that overlap with from … to.
    fn of(name: &'static str, all: &[Histogram], from: f64, to: f64) -> Phase {
        let overlaps = |second: &usize| (*second as f64) < to && (*second + 1) as f64 > from;
        let seconds: Vec<usize> = (0..all.len()).filter(overlaps).collect();
        let mut cells: Histogram = seconds.iter().flat_map(|&s| all[s].iter().copied()).collect();
        cells.sort_unstable();
        let operations: u64 = cells.iter().map(|(_, count)| count).sum();
        let percentile = |permille: u64| {
            let mut left = (operations * permille).div_ceil(1000);
            let found = cells.iter().find(|(_, count)| {
                left = left.saturating_sub(*count);
                left == 0
            });
            found.map_or(0, |(ns, _)| *ns)
        };
        let longest = cells.last().map_or(0, |(ns, _)| *ns);
        let (p50, p999) = (percentile(500), percentile(999));
        Phase { name, seconds, operations, p50, p999, longest }
    }
}

#[test]
#[ignore = "some minutes: make latency-test"]
fn requests_hardly_wait_longer_while_balance_converges() {
    let machine = std::env::var("MACHINE").unwrap_or_else(|_| "2x4".into());
    let mut worst: f64 = 0.0;
    for start in ["inverse", "one-node"] {
        let bench = Bench::new();
        let numaherd = program();
        let script = format!(
            "echo 0 > /proc/sys/kernel/numa_balancing
             {numaherd} bench jbb-like --start {start} --seconds {SECONDS} --histograms -o json \
                 > bench & load=$!
             sleep {ALONE}; cat /proc/uptime > begin
             {numaherd} balance --tune-kernel -p $load --summary summary 2> told
             wait $load"
        );
        let words = ["lab", "run", "--timeout", "3600", "--machine", &machine];
        run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
        let read = |name: &str| -> Value { serde_json::from_str(&bench.shared(name)).unwrap() };
        let (told, summary) = (read("bench"), read("summary"));
        let all: Vec<Histogram> =
            serde_json::from_value(told["latency_histograms"].clone()).unwrap();
        let start_s = told["start_ns"].as_f64().unwrap() / 1e9;
        let up: f64 = bench.shared("begin").split(' ').next().unwrap().parse().unwrap();
        let (begin, end) = (up - start_s, told["seconds"].as_f64().unwrap());
        let converged = summary["converged_at_ns"].as_f64().map(|ns| ns / 1e9 - start_s);
        let until = converged.unwrap_or(end - 2.0).max(begin + 0.5);
        // A second more at either side: the first has the start, and clocks are rounded.
        let phases = [
            Phase::of("before", &all, 1.0, begin.floor() - 0.5),
            Phase::of("converging", &all, begin, until),
            Phase::of("after", &all, until.ceil() + 1.0, end.floor() - 0.5),
        ];
        eprintln!(
            "jbb-like --start {start}: balance from {begin:.1} s, converged {}; {} pages moved",
            converged.map_or("never".into(), |at| format!("at {at:.1} s")),
            summary["pages_moved"]
        );
        eprintln!("| phase | seconds | a second | p50 us | p99.9 us | longest us |");
        eprintln!("|---|---|---|---|---|---|");
        for phase in &phases {
            let us = |ns: u64| ns / 1000;
            // Where it never converged there is no time after.
            let (Some(first), Some(last)) = (phase.seconds.first(), phase.seconds.last()) else {
                continue;
            };
            eprintln!(
                "| {} | {first}-{last} | {} | {} | {} | {} |",
                phase.name,
                phase.operations / phase.seconds.len() as u64,
                us(phase.p50),
                us(phase.p999),
                us(phase.longest)
            );
        }
        let by_second: Vec<u64> = (0..all.len())
            .map(|s| Phase::of("", &all, s as f64 + 0.1, s as f64 + 0.9).p999 / 1000)
            .collect();
        eprintln!("p99.9 by the second, in us: {by_second:?}");
        worst = worst.max(phases[1].p999 as f64 / phases[0].p999 as f64);
        bench.left_nothing();
    }
    eprintln!("p99.9 while converging is {worst:.2} times that before at the most");
    assert!(worst <= MOST);
}
