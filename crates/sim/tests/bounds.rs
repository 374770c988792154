//! Figures at the bounds of what files may say overflow nothing: what would take longer than is simulated is either
//! told before it begins, or ends at the limit.

use numaherd_model::Nanos;
use numaherd_sim::{Machine, Options, Sim, Workload};

fn machine(latency_ns: &str, mb_s: &str, kernel_ns: &str) -> Machine {
    let node = |id| format!("[[node]]\nid = {id}\ncpus = 2\nmemory_mib = 1073741824\n");
    let text = format!(
        "title = 't'\n[cpu]\nthreads_per_core = 2\n[sim]\nstream_mb_s = {mb_s}\n[sim.kernel]\nfault_ns = {kernel_ns}\n\
         move_ns = {kernel_ns}\n[memory]\nbandwidth_mb_s = {mb_s}\n[links]\nbandwidth_mb_s = {mb_s}\n{}{}[distance]\n\
         slit = [[10, 254], [11, 10]]\nlatency_ns = {latency_ns}\n",
        node(0),
        node(1023)
    );
    Machine::parse("m", "m", &text).unwrap()
}

#[test]
fn figures_at_their_bounds_overflow_nothing() {
    let phases = [
        "times = 1\nwork = 1e3\ncompute_ns = 1e9\nsleep_ms = 1e8",
        "seconds = 100\nwork = 1e3\ncompute_ns = 1e9\nlock = true",
        "times = 1\nscattered = true\nbarrier = true\nsleep_ms = 1e8",
        "operations = 1\nwork = 0",
    ];
    for latency_ns in ["[[0.1, 1e9], [1e9, 0.1]]", "[[1e9, 1e9], [1e9, 1e9]]"] {
        for (mb_s, kernel_ns) in [("0.001", "1_000_000_000"), ("1e9", "1500")] {
            let machine = machine(latency_ns, mb_s, kernel_ns);
            for (phase, exact) in phases.into_iter().zip([false, true].into_iter().cycle()) {
                let text = format!(
                    "title = 't'\n[[process]]\ncopies = 2\nat_once = 1\nthreads = 3\nmemory_mib = 64\n\
                     lines_per_operation = 1e8\nstart = 'one-node'\n[[process.phase]]\nmemory = 'all'\n{phase}\n"
                );
                let workload = Workload::parse("w", "w", &text).unwrap();
                let limit = Nanos(200_000_000_000);
                let options = Options { exact, limit, huge_pages: exact, ..Options::default() };
                // What surely takes longer is told.
                let Ok(mut sim) = Sim::new(&machine, &workload, options) else { continue };
                let run = sim.finish();
                assert!(run.seconds <= 200.0 && run.seconds > 0.0, "{phase}: {run:?}");
            }
        }
    }
}
