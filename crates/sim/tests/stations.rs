//! Nothing carries more than it can: over a run, the bytes that go through each memory and each direction of a link are
//! at most what it carries in that time.

use numaherd_sim::{Machine, Options, Sim, Tie, Workload};

/// How far above what it can a station may be over a run. At a moment that may be an eighth, until all blocks are timed
/// anew, but it is below as often; and blocks vary by 1 % either way, of which a run of many is the mean. Measured here:
/// 1.001 at worst.
const MOST: f64 = 1.01;

const TIES: [Tie; 4] = [Tie::Free, Tie::Bind, Tie::Inverse, Tie::Interleave];

fn machine(nodes: usize, cpus: usize, mb_s: [u32; 2]) -> Machine {
    let mut text = format!(
        "title = 'm'\n[cpu]\n[sim]\nstream_mb_s = 2000\n[memory]\nbandwidth_mb_s = {}\n[links]\nbandwidth_mb_s = {}\n",
        mb_s[0], mb_s[1]
    );
    for id in 0..nodes {
        text += &format!("[[node]]\nid = {id}\ncpus = {cpus}\nmemory_mib = 8192\n");
    }
    // A ring.
    let hops = |a: usize, b: usize| a.abs_diff(b).min(nodes - a.abs_diff(b));
    let slit: Vec<Vec<usize>> =
        (0..nodes).map(|a| (0..nodes).map(|b| 10 + 10 * hops(a, b)).collect()).collect();
    text += &format!("[distance]\nslit = {slit:?}\n");
    Machine::parse("m", "m", &text).unwrap()
}

/// A run, and what its busiest station has carried of what it can.
fn run(machine: &Machine, workload: &str, tie: Tie) -> (f64, f64) {
    let workload = Workload::parse("w", "w", workload).unwrap();
    let options = Options { tie, ..Options::default() };
    let mut sim = Sim::new(machine, &workload, options).unwrap();
    let run = sim.finish();
    assert!(!run.unfinished);
    (run.seconds, sim.most_carried())
}

/// Four threads of either node go over blocks of both by turns. Those of one node go to the other's memory just when the
/// other's come to theirs, so that as many are at each memory as before.
#[test]
fn threads_that_change_memories_with_each_other_wait_for_the_link() {
    let machine = machine(2, 4, [1_000_000, 1000]);
    let text = "title = 'w'\n[[process]]\nthreads = 8\nmemory_mib = 512\n[[process.phase]]\nmemory = 'slice'\ntimes = 160\n";
    let [inverse, interleave] = [Tie::Inverse, Tie::Interleave].map(|tie| run(&machine, text, tie));
    // 160 × 512 MiB, all and half of it remote. A line of that comes over one link and goes back over the other, from
    // either side: 2 × 85.9 GB at 1 GB/s each way.
    let least = 2.0 * 160.0 * 512.0 * 1.048_576 / 2.0 / 1000.0;
    assert!((inverse.0 / least - 1.0).abs() < 0.01 && inverse.1 <= MOST, "{inverse:?}");
    assert!((interleave.0 / (least / 2.0) - 1.0).abs() < 0.01, "{interleave:?}");
    assert!(interleave.1 <= MOST, "{interleave:?}");
}

#[test]
fn no_station_carries_more_than_it_can() {
    // Full are links, memories, or both; and one machine has few who could be there.
    let machines = [
        machine(2, 4, [1_000_000, 1000]),
        machine(2, 1, [1_000_000, 500]),
        machine(2, 3, [3000, 1500]),
        machine(4, 4, [4000, 1_000_000]),
        machine(6, 2, [4000, 1000]),
    ];
    let phases = [
        "memory = 'slice'\ntimes = 60\n",
        "memory = 'all'\ntimes = 10\n",
        "memory = 'slice'\ntimes = 20\nbarrier = true\n",
        "memory = 'slice'\ntimes = 40\nscattered = true\n",
        "memory = 'slice'\ntimes = 40\ncompute_ns = 20\n",
        "memory = 'slice'\ntimes = 2000\nrange = [0.3, 0.32]\n",
        "memory = 'all'\ntimes = 5\nbarrier = true\n[[process.phase]]\nmemory = 'slice'\ntimes = 9\n",
    ];
    let mut worst: f64 = 0.0;
    for machine in &machines {
        for phase in phases {
            for writes in [true, false] {
                for tie in TIES {
                    for start in ["first-touch", "one-node"] {
                        let text = format!(
                            "title = 'w'\n[[process]]\nthreads = {}\nmemory_mib = 96\nstart = '{start}'\n\
                             [[process.phase]]\nwrites = {writes}\n{phase}",
                            machine.cpus()
                        );
                        let (_, share) = run(machine, &text, tie);
                        worst = worst.max(share);
                        let on = machine.node.len();
                        assert!(share <= MOST, "{share}: {tie:?}, {start} on {on} nodes, {phase}");
                    }
                }
            }
        }
    }
    // Something was full.
    assert!(worst > 0.99, "{worst}");
}
