//! How many events a second one core handles, how the cost of a run goes with the number of tasks,
//! and what memory it takes: on the X5-8, 288 CPUs on eight nodes. `cargo bench -p numaherd-sim`.
//!
//! Every task has 4 MiB of its own. In the first table tasks run for a fixed simulated time; in the
//! second each goes over 80 blocks, and the cost is set beside n log n. Seconds are CPU time where the
//! kernel tells it, so that a busy machine does not count.

use std::time::Instant;

use numaherd_model::Nanos;
use numaherd_sim::{Machine, Options, Sim, Workload};

fn slices(tasks: u32, times: u32) -> Workload {
    let text = format!(
        "title = \"slices\"\n[[process]]\nthreads = {tasks}\nmemory_mib = {}\n\
         [[process.phase]]\nmemory = \"slice\"\ntimes = {times}\n",
        tasks * 4
    );
    Workload::parse("slices", "slices", &text).expect("a sound workload")
}

/// The most memory this process has had, in MiB, where the kernel tells.
fn peak_mib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or("-".into(), |kib| (kib >> 10).to_string())
}

/// Seconds this process has run, or the time since `start`.
fn cpu_seconds(start: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok());
    ns.map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

fn main() {
    let start = Instant::now();
    let now = || cpu_seconds(start);
    let machine = Machine::built_in("x5-8").expect("a known machine").expect("a sound machine");
    println!(" tasks  simulated s     events  seconds    events/s  peak MiB");
    for (tasks, seconds) in [(288, 20.0), (640, 60.0)] {
        let options = Options::default();
        let mut sim = Sim::new(&machine, &slices(tasks, 1_000_000), options).expect("it fits");
        let begun = now();
        sim.advance(Nanos::from_secs_f64(seconds));
        let took = now() - begun;
        let events = sim.result().events;
        let rate = events as f64 / took;
        let peak = peak_mib();
        println!("{tasks:>6} {seconds:>12} {events:>10} {took:>8.2} {rate:>11.0} {peak:>9}");
    }
    println!("\n tasks     events  seconds   of that to begin  ns / (n log2 n)");
    for tasks in [1_000, 3_000, 10_000, 30_000, 100_000] {
        let begun = now();
        let mut sim = Sim::new(&machine, &slices(tasks, 40), Options::default()).expect("it fits");
        let began = now() - begun;
        let events = sim.finish().events;
        let took = now() - begun;
        let n = f64::from(tasks);
        let scaled = took * 1e9 / (n * n.log2());
        println!("{tasks:>6} {events:>10} {took:>8.2} {began:>18.2} {scaled:>16.1}");
    }
}
