//! How many events a second one core handles, how the cost of a run goes with the number of tasks,
//! and what memory it takes: on the X5-8, 288 CPUs on eight nodes. `cargo bench -p numaherd-sim`;
//! numbers of tasks after `--` have only those of the second table measured.
//!
//! Every task has 4 MiB of its own. In the first table tasks run for a fixed simulated time, and all memory
//! is on one node at first. In the second each goes over 80 blocks, and the cost is set beside n log n;
//! there memory is where its task starts, so that each node has its part, however many tasks there are (on
//! one node that of 100,000 has no room, and fills four). Seconds are CPU time where the kernel tells it, so
//! that a busy machine does not count but for its caches; they are the median of [`REPEATS`], which take
//! turns, with the least and the most.

use std::time::Instant;

use numaherd_model::Nanos;
use numaherd_sim::{Machine, Options, Sim, Workload};

fn slices(tasks: u32, times: u32, start: &str) -> Workload {
    let text = format!(
        "title = \"slices\"\n[[process]]\nthreads = {tasks}\nmemory_mib = {}\nstart = \"{start}\"\n\
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

/// How often each is measured.
const REPEATS: usize = 7;

/// One line of a table.
struct Case {
    tasks: u32,
    times: u32,
    start: &'static str,
    until: Nanos,
    events: u64,
    seconds: Vec<f64>,
    peak: String,
}

impl Case {
    fn new(tasks: u32, times: u32, start: &'static str, seconds: f64) -> Case {
        let until = Nanos::from_secs_f64(seconds);
        Case { tasks, times, start, until, events: 0, seconds: Vec::new(), peak: String::new() }
    }

    fn measure(&mut self, machine: &Machine, now: &dyn Fn() -> f64) {
        let workload = slices(self.tasks, self.times, self.start);
        let begun = now();
        let mut sim = Sim::new(machine, &workload, Options::default()).expect("it fits");
        sim.advance(self.until);
        self.seconds.push(now() - begun);
        self.events = sim.result().events;
        if self.peak.is_empty() {
            self.peak = peak_mib();
        }
    }

    /// Median, least, most.
    fn spread(&self) -> [f64; 3] {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        [sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1]]
    }
}

fn main() {
    let start = Instant::now();
    let now = || cpu_seconds(start);
    let machine = Machine::built_in("x5-8").expect("a known machine").expect("a sound machine");
    let only: Vec<u32> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let timed =
        [(288, 20.0), (640, 60.0)].map(|(tasks, s)| Case::new(tasks, 1_000_000, "first-touch", s));
    let timed = timed.into_iter().filter(|case| only.is_empty() || only.contains(&case.tasks));
    let mut timed: Vec<Case> = timed.collect();
    let counts = [1_000, 3_000, 10_000, 30_000, 100_000].into_iter();
    let counts = counts.filter(|tasks| only.is_empty() || only.contains(tasks));
    let mut whole: Vec<Case> =
        counts.map(|tasks| Case::new(tasks, 40, "own-thread", 1e9)).collect();
    for _ in 0..REPEATS {
        timed.iter_mut().chain(&mut whole).for_each(|case| case.measure(&machine, &now));
    }
    println!(
        " tasks  simulated s     events  seconds (least, most)   events/s (least, most)   MiB"
    );
    for case in &timed {
        let ([s, least, most], events) = (case.spread(), case.events as f64);
        let [rate, slow, fast] = [s, most, least].map(|s| events / s / 1e6);
        println!(
            "{:>6} {:>12} {events:>10} {s:>8.3} ({least:.3}, {most:.3})   {rate:>6.2} M ({slow:.2}, {fast:.2}) {:>5}",
            case.tasks,
            case.until.as_secs_f64(),
            case.peak
        );
    }
    println!("\n tasks     events  seconds (least, most)   ns / event   ns / (n log2 n)   MiB");
    for case in &whole {
        let [s, least, most] = case.spread();
        let n = f64::from(case.tasks);
        let (event, scaled) = (s * 1e9 / case.events as f64, s * 1e9 / (n * n.log2()));
        println!(
            "{:>6} {:>10} {s:>8.3} ({least:.3}, {most:.3}) {event:>12.0} {scaled:>17.0} {:>5}",
            case.tasks, case.events, case.peak
        );
    }
}
