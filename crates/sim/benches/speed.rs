//! How many events a second one core handles, and how that goes with the number of tasks.
//! `cargo bench -p numaherd-sim`.

use std::fmt::Write;
use std::time::Instant;

use numaherd_model::Nanos;
use numaherd_sim::{Machine, Options, Sim, Workload};

/// Eight nodes of 36 CPUs as the X5-8 has; figures guessed, memory for all tasks.
fn machine() -> Machine {
    let mut text = "title = \"eight nodes of 36 CPUs\"\n[cpu]\nthreads_per_core = 2\n\
        smt_speedup_percent = 125\n[sim]\nstream_mb_s = 2500\n[memory]\n\
        bandwidth_mb_s = 60000\n[links]\nbandwidth_mb_s = 19200\n"
        .to_string();
    for id in 0..8 {
        let _ = writeln!(text, "[[node]]\nid = {id}\ncpus = 36\nmemory_mib = 100000");
    }
    let hop = |a: u32, b: u32| match a ^ b {
        0 => 10,
        1 | 2 | 7 => 21,
        _ => 31,
    };
    let row = |a| (0..8).map(|b| hop(a, b)).collect::<Vec<u32>>();
    let slit: Vec<Vec<u32>> = (0..8).map(row).collect();
    let _ = writeln!(text, "[distance]\nslit = {slit:?}");
    Machine::parse("x5-8", "x5-8", &text).expect("a sound machine")
}

fn main() {
    let machine = machine();
    println!("tasks    simulated s    events    seconds    events/s");
    for (tasks, seconds) in [(288, 20.0), (640, 60.0), (10_000, 20.0), (100_000, 20.0)] {
        let text = format!(
            "title = \"slices\"\n[[process]]\nthreads = {tasks}\nmemory_mib = {}\n\
             [[process.phase]]\nmemory = \"slice\"\ntimes = 1000000\n",
            tasks * 4
        );
        let workload = Workload::parse("slices", "slices", &text).expect("a sound workload");
        let mut sim = Sim::new(&machine, &workload, Options::default()).expect("it fits");
        let begun = Instant::now();
        sim.advance(Nanos::from_secs_f64(seconds));
        let took = begun.elapsed().as_secs_f64();
        let events = sim.result().events;
        let rate = events as f64 / took;
        println!("{tasks:>6} {seconds:>13} {events:>11} {took:>10.2} {rate:>11.0}");
    }
}
