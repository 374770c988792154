//! Is herd harmless? Machines and workloads drawn from a number, each under off, the kernel's own balancing and herd:
//! whoever looks only at the benchmarks of the field does not see where a placement does harm.
//!
//! `make random-loads` prints the table; `LOADS=N` draws as many, `LOADS_FROM=N` begins there, `SEEDS=N` has so many
//! runs of each, and `WITHOUT=PART` leaves a part of herd out, to see what it is worth. A plain `cargo test` draws
//! [`LOADS`].

use numaherd_sim::{Machine, Workload};

use super::dice::{Dice, setting};
use super::{Job, Kernel, parts};
use crate::args::SimPlacement;

/// Loads that a plain `cargo test` draws.
const LOADS: u64 = 30;

/// What a thread works alone, in seconds; guessed: long beside what herd takes to find out.
const SECONDS: f64 = 20.0;

/// What the test asserts of the geometric mean of herd's time over the better of off's and the kernel's, and of the
/// worst of them.
const MEAN: f64 = 0.9;
const WORST: f64 = 1.1;

/// Seeds of each, of which the median counts: medians of three are 5 to 15 % apart where much hangs on the seed.
const SEEDS: u64 = 3;

/// A machine, with its text.
fn machine(dice: &mut Dice) -> (Machine, String) {
    let nodes: u32 = dice.pick(&[2, 2, 2, 3, 4, 4, 4, 8]);
    let threads: u32 = dice.pick(&[1, 1, 1, 2, 4]);
    let cores: u32 = dice.pick(&[1, 2, 4, 3, 6, 8][..if nodes == 8 { 3 } else { 6 }]);
    let stream: u32 = dice.pick(&[500, 1000, 2000, 5000]);
    let most = f64::from(stream * cores * threads);
    let mut text = format!(
        "title = \"random\"\n[cpu]\nthreads_per_core = {threads}\nsmt_speedup_percent = {}\n\
         [sim]\nstream_mb_s = {stream}\nwork_ns = {}\n[memory]\nbandwidth_mb_s = {}\n\
         [links]\nbandwidth_mb_s = {}\n",
        if threads == 1 { 100 } else { dice.pick(&[110, 125, 150]) },
        if dice.once_in(3) { 32_000 / stream } else { 0 },
        (most * dice.pick(&[0.7, 1.2, 2.5, 4.0])) as u64,
        (most * dice.pick(&[0.4, 0.8, 1.5])) as u64
    );
    if dice.once_in(3) {
        let bytes = dice.pick(&[1u32, 8, 64]) << 20;
        text += &format!("[llc]\nbytes = {bytes}\nlatency_ns = 20\n[coherence]\n");
    }
    for id in 0..nodes {
        let cpus = cores * threads;
        text += &format!("[[node]]\nid = {id}\ncpus = {cpus}\nmemory_mib = 4096\n");
    }
    // All alike far, or a cube's edges and what is farther.
    let (near, far) = dice.pick(&[(21, 21), (12, 12), (16, 22), (20, 30)]);
    let distance = |a: u32, b: u32| match (a ^ b).count_ones() {
        0 => 10,
        1 => near,
        _ => far,
    };
    let row = |a| (0..nodes).map(|b| distance(a, b)).collect::<Vec<u32>>();
    text += &format!("[distance]\nslit = {:?}\n", (0..nodes).map(row).collect::<Vec<_>>());
    (Machine::parse("random", "random", &text).unwrap(), text)
}

/// A workload for a machine, with its text.
fn workload(dice: &mut Dice, machine: &Machine) -> (Workload, String) {
    let memory: u64 = machine.node.iter().map(|node| node.memory_mib).sum();
    let kinds = dice.pick(&[1u32, 1, 1, 2, 3]);
    let mut text = "title = \"random\"\n".to_string();
    for _ in 0..kinds {
        let copies = dice.pick(&[1u32, 1, 2, 2, 4]);
        let load = dice.pick(&[0.25, 0.5, 0.5, 1.0, 1.0, 1.5, 2.0]) / f64::from(copies * kinds);
        let threads = ((machine.cpus() as f64 * load) as u64).max(1);
        let share = memory as f64 * 0.6 * dice.pick(&[0.2, 0.5, 0.9]);
        let mib = (share as u64 / u64::from(copies * kinds)).max(8);
        text += &format!(
            "[[process]]\ncopies = {copies}\nthreads = {threads}\nmemory_mib = {mib}\nstart = \"{}\"\n",
            dice.pick(&["one-node", "first-touch", "own-thread", "placed", "inverse"])
        );
        let shared = dice.once_in(4);
        text += if shared { dice.pick(&["shared = 0.1\n", "shared = 0.5\n"]) } else { "" };
        let groups = dice.once_in(4);
        text += if groups { dice.pick(&["groups = [2]\n", "groups = [3, 5]\n"]) } else { "" };
        let phases = dice.pick(&[1usize, 1, 2]);
        for _ in 0..phases {
            let parts = ["all", "slice", "slice", "slice", "next-slice", "shared-part"];
            let part = dice.pick(&parts[..if shared { 6 } else { 3 + phases }]);
            let slices = if groups { threads.div_ceil(3) } else { threads };
            let all = if part == "all" { 1 } else { slices };
            let pass = (mib << 20) as f64 / all as f64 / (machine.cpu.stream_mb_s * 1e6);
            let times = (SECONDS / phases as f64 / pass).max(1.0) as u64;
            text += &format!("[[process.phase]]\nmemory = \"{part}\"\ntimes = {times}\n");
            text += dice.pick(&["", "", "", "writes = false\n", "compute_ns = 5\n"]);
            text += dice.pick(&["", "", "", "", "sleep_ms = 10\n", "barrier = true\n"]);
        }
    }
    (Workload::parse("random", "random", &text).unwrap(), text)
}

/// What one load takes, in medians of seconds.
#[derive(Clone)]
struct Told {
    number: u64,
    off: f64,
    kernel: f64,
    herd: f64,
}

impl Told {
    /// Over the better of the other two.
    fn ratio(&self) -> f64 {
        self.herd / self.off.min(self.kernel)
    }
}

fn play(number: u64, without: &[String]) -> Result<Told, String> {
    let mut dice = Dice(number);
    let (machine, machine_text) = machine(&mut dice);
    let (workload, text) = workload(&mut dice, &machine);
    if setting("SHOW", 0) == number && number > 0 {
        println!("{machine_text}\n---\n{text}");
    }
    let seconds = |placement| {
        let (machine, workload, kernel) = (&machine, &workload, Kernel::Lab);
        let job = Job { machine, workload, placement, huge_pages: true, seed: 1, kernel, without };
        let all = job.seconds(setting("SEEDS", SEEDS).max(1))?;
        Ok::<f64, anyhow::Error>(all[all.len() / 2])
    };
    let told = || {
        let (off, kernel) = (seconds(SimPlacement::Off)?, seconds(SimPlacement::Mainline)?);
        Ok(Told { number, off, kernel, herd: seconds(SimPlacement::Herd)? })
    };
    told().map_err(|error: anyhow::Error| format!("load {number}: {error}\n{text}"))
}

/// All of them, two at a time.
fn play_all(from: u64, count: u64, without: &[String]) -> Vec<Told> {
    let half = |first: u64| {
        let numbers = (from + first..from + count).step_by(2);
        numbers.map(|number| play(number, without).unwrap()).collect::<Vec<_>>()
    };
    let mut told = std::thread::scope(|scope| {
        let odd = scope.spawn(|| half(1));
        [half(0), odd.join().unwrap()].concat()
    });
    told.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    told
}

#[test]
fn herd_is_harmless_on_random_machines_and_loads() {
    let without: Vec<String> =
        std::env::var("WITHOUT").into_iter().filter(|name| !name.is_empty()).collect();
    parts::check(&[SimPlacement::Herd], &without).unwrap();
    let told = play_all(setting("LOADS_FROM", 1), setting("LOADS", LOADS), &without);
    let mean = told.iter().map(|told| told.ratio().ln()).sum::<f64>() / told.len() as f64;
    println!("load      off   kernel     herd   herd over the better of the two");
    for told in &told {
        let Told { number, off, kernel, herd } = told;
        println!("{number:4} {off:8.2} {kernel:8.2} {herd:8.2}   {:.3}", told.ratio());
    }
    let worse = |by: f64| told.iter().filter(|told| told.ratio() > by).count();
    println!(
        "{} loads: geometric mean {:.3}, {} worse by more than 1 %, {} by more than 5 %",
        told.len(),
        mean.exp(),
        worse(1.01),
        worse(1.05)
    );
    // Other loads are looked at; these stay as they are, or become better.
    let usual = setting("LOADS_FROM", 1) == 1 && setting("LOADS", LOADS) == LOADS;
    let holds = mean.exp() <= MEAN && told[0].ratio() <= WORST;
    assert!(!usual || !without.is_empty() || holds, "see the table");
}
