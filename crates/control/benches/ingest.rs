//! How many hinting faults a second one core takes in: `cargo bench -p numaherd-control`.
//!
//! 64 threads of 8 processes, 8 MiB a thread. `scanned`: each thread faults through a region of
//! 512 pages before the next has its turn, as a scan makes them. `interleaved`: no two
//! neighbouring faults are of the same thread or the same region. `huge`: the same with huge pages, 4 GiB a thread.
//! And what is kept of all that: resident memory, the most that one of the repeats added.

use numaherd_control::evidence::Evidence;
use numaherd_model::scene::Scene;
use numaherd_model::{
    CpuId, FaultFlags, HintingFault, Nanos, NodeId, Pages, ProcessId, Snapshot, TaskId,
};

const THREADS: u32 = 64;
const FAULTS: u64 = 1_000_000;
const PAGES: u64 = 2048;
const REPEATS: usize = 5;
/// Base pages of a huge one.
const HUGE: u64 = 512;

#[derive(Clone, Copy, PartialEq)]
enum Order {
    Scanned,
    Interleaved,
    Huge,
}

fn fault(nth: u64, order: Order) -> HintingFault {
    let (thread, page) = match order {
        Order::Scanned => {
            (nth / 512 % u64::from(THREADS), nth % 512 + nth / 512 / u64::from(THREADS) * 512)
        }
        _ => (nth % u64::from(THREADS), nth / u64::from(THREADS)),
    };
    let size = if order == Order::Huge { HUGE } else { 1 };
    HintingFault {
        time: Nanos(19_000_000_000 + nth),
        tid: thread as u32 + 1,
        tgid: 1 + thread as u32 / 8,
        cpu: CpuId(0),
        memory_node: NodeId((page % 2) as u32),
        pages: Pages(size),
        flags: FaultFlags::default(),
        address: Some((1 << 40) + (thread * PAGES + page % PAGES) * size * 4096),
        last_cpu: None,
        last_pid_low8: None,
    }
}

fn machine() -> Snapshot {
    let mut scene = Scene::even(2, 32);
    scene.busy(THREADS);
    for task in &mut scene.edit().tasks {
        task.process = ProcessId { tgid: 1 + (task.id.tid - 1) / 8, start: 1 };
        task.id = TaskId { tid: task.id.tid, start: 1 };
    }
    scene.snapshot()
}

/// CPU time of this process so far, in seconds: what else the host does hardly matters.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("a Linux with schedstats");
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.expect("nanoseconds come first") / 1e9
}

/// Resident memory of this process, in MiB.
fn resident_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("a Linux");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.expect("pages come second") * 4096.0 / f64::from(1 << 20)
}

fn main() {
    let machine = machine();
    println!("{FAULTS} faults, {REPEATS} times; million faults a second of CPU time");
    println!("order          median       min       max   resident MiB");
    // What takes the most comes last: memory that was freed may stay with the allocator.
    for (name, order) in
        [("huge", Order::Huge), ("scanned", Order::Scanned), ("interleaved", Order::Interleaved)]
    {
        let faults: Vec<HintingFault> = (0..FAULTS).map(|nth| fault(nth, order)).collect();
        let mut took = 0.0;
        let run = |_| {
            let before = resident_mib();
            let mut evidence = Evidence::new();
            let start = cpu_seconds();
            faults.chunks(4096).for_each(|some| evidence.add(some, &machine));
            let seconds = cpu_seconds() - start;
            took = f64::max(took, resident_mib() - before);
            FAULTS as f64 / seconds / 1e6
        };
        let mut rates: Vec<f64> = (0..REPEATS).map(run).collect();
        rates.sort_by(f64::total_cmp);
        println!(
            "{name:<12} {:>8.1} {:>9.1} {:>9.1} {took:>14.1}",
            rates[REPEATS / 2],
            rates[0],
            rates[REPEATS - 1]
        );
    }
}
