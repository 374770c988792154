//! How long herd takes to decide, by size: `cargo bench -p numaherd-placement`, with `-- LOAD` only that load, and
//! with `-- LOAD TASKS` only that many tasks.
//!
//! Processes of eight threads, half of which share all their memory; two regions a thread; 64
//! nodes of 32 CPUs in 8 groups of one hop, two hops between groups; all threads busy. `settled`:
//! everybody is placed beside their memory. `new`: they are there, but not placed yet.
//! `scattered`: threads are anywhere.
//! `growth` is the time against that of the row before, over what n log n would be, and `in all` against that of the first
//! row. `plan` differs where a plan does. 100,000 tasks take more than a last-level cache of 32 MiB holds, 10,000 do
//! not: a step, after which it grows as before, so there are larger ones, too.

use numaherd_model::{
    Bytes, CpuId, EvidenceGrade, Nanos, Node, NodeFaults, NodeId, NodeState, Pages, Placement,
    Plan, ProcessId, Region, RegionId, RegionUse, Sharing, Snapshot, Task, TaskId, TaskState,
    Topology,
};
use numaherd_placement::Herd;

const NODES: u32 = 64;
const CPUS: u32 = NODES * 32;
const THREADS: u32 = 8;
const REPEATS: usize = 5;
/// Tasks that are decided on in one measurement, at least: the smallest load alone takes too short.
const TASKS_AT_ONCE: u32 = 10_000;

#[derive(Clone, Copy, PartialEq)]
enum Load {
    Settled,
    New,
    Scattered,
}

fn topology() -> Topology {
    let cpus = CPUS / NODES;
    let node = |id: u32| Node {
        id: NodeId(id),
        cpus: (id * cpus..(id + 1) * cpus).map(CpuId).collect(),
        memory: Bytes(1 << 40),
        free: Bytes(1 << 39),
    };
    let distance = |a: u32, b: u32| match (a == b, a / 8 == b / 8) {
        (true, _) => 10,
        (_, true) => 16,
        _ => 32,
    };
    let row = |a| (0..NODES).map(|b| distance(a, b)).collect();
    Topology {
        nodes: (0..NODES).map(node).collect(),
        distances: (0..NODES).map(row).collect(),
        ..Topology::default()
    }
}

/// A number that looks drawn, from a number.
fn scatter(n: u32) -> u32 {
    (u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u32
}

/// The CPU of the n-th thread: with its process, or anywhere.
fn cpu_of(n: u32, tasks: u32, load: Load) -> u32 {
    // 7919 is prime: it takes turns through all CPUs.
    let nth =
        if load == Load::Scattered { (u64::from(n) * 7919 % u64::from(tasks)) as u32 } else { n };
    (u64::from(nth) * u64::from(CPUS) / u64::from(tasks)) as u32
}

fn snapshot(tasks: u32, load: Load) -> Snapshot {
    let topology = topology();
    let cpus = topology.cpus();
    let process = |n: u32| ProcessId { tgid: 1 + n / THREADS, start: 1 };
    let cpu = |n: u32| CpuId(cpu_of(n, tasks, Load::New));
    let home = |n: u32| topology.node_of_cpu(cpu(n / THREADS * THREADS)).unwrap();
    let task = |n: u32| Task {
        id: TaskId { tid: n + 1, start: 1 },
        process: process(n),
        cpus_allowed: cpus.clone(),
        cpus_owner: cpus.clone(),
        fixed: false,
        home: (load == Load::Settled).then(|| home(n)),
        last_cpu: CpuId(cpu_of(n, tasks, load)),
        cpu_time: Nanos(10_000_000_000),
        busy_permille: 1000,
        waiting_permille: 0,
        usual_permille: None,
        age: Nanos(10_000_000_000),
        state: TaskState::Runnable,
        faults: vec![NodeFaults { node: home(n), private: 1024, shared: 0 }],
        remote_faults: 0,
    };
    let region = |i: u32| {
        let n = i / 2;
        let shared = (n / THREADS).is_multiple_of(2);
        let first = if shared { n / THREADS * THREADS } else { n };
        let users = first..first + if shared { THREADS } else { 1 };
        let of = |n| RegionUse { task: TaskId { tid: n + 1, start: 1 }, faults: 512 };
        Region {
            id: RegionId { process: process(n), start: (1 << 32) + (u64::from(i) << 21) },
            len: Bytes(2 << 20),
            pages: vec![(home(n), Pages(400 + u64::from(scatter(i) % 112)))],
            users: users.filter(|&n| n < tasks).map(of).collect(),
            age: Nanos(0),
            rests: false,
            pairs: 0,
            switches: 0,
            stays: false,
        }
    };
    let state = |id| NodeState {
        id: NodeId(id),
        free: Pages(1 << 27),
        high_watermark: Pages(1 << 12),
        others_permille: 0,
    };
    let sharing = |p: u32| Sharing {
        process: process(p * THREADS),
        samples: 800,
        switches: if p.is_multiple_of(2) { 700 } else { 0 },
    };
    Snapshot {
        time: Nanos(20_000_000_000),
        page_size: Bytes(4096),
        isolated: Default::default(),
        nodes: (0..NODES).map(state).collect(),
        tasks: (0..tasks).map(task).collect(),
        common: Vec::new(),
        units: Vec::new(),
        mems_allowed: Vec::new(),
        traffic: Default::default(),
        regions: (0..2 * tasks).map(region).collect(),
        sharing: (0..tasks.div_ceil(THREADS)).map(sharing).collect(),
        grade: EvidenceGrade::HintingFaults,
        stirred: false,
        fewer: Vec::new(),
        resident: Vec::new(),
        kernel_tiering: false,
        costs: Default::default(),
        topology,
    }
}

/// CPU time of this process so far, in milliseconds: what else the host does hardly matters.
fn cpu_ms() -> f64 {
    // The kernel brings the count up to date when it looks for somebody else to run.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("a Linux with schedstats");
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.expect("nanoseconds come first") / 1e6
}

/// Median milliseconds of a first decision, with the least and the greatest, and its plan.
fn measure(tasks: u32, load: Load) -> ([f64; 3], Plan) {
    let snapshot = snapshot(tasks, load);
    let times = (TASKS_AT_ONCE / tasks).max(1);
    let mut plan = Plan::default();
    let mut run = |_| {
        let start = cpu_ms();
        (0..times).for_each(|_| plan = Herd::new().decide(&snapshot));
        (cpu_ms() - start) / f64::from(times)
    };
    let mut all: Vec<f64> = (0..REPEATS).map(&mut run).collect();
    all.sort_by(f64::total_cmp);
    ([all[REPEATS / 2], all[0], all[REPEATS - 1]], plan)
}

/// A few digits of a plan (FNV-1a).
fn digest(plan: &Plan) -> u32 {
    let text = format!("{plan:?}");
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn main() {
    println!("{REPEATS} decisions each; milliseconds of CPU time");
    println!(
        "load          tasks    median       min       max   actions   growth   in all      plan"
    );
    let loads = [("settled", Load::Settled), ("new", Load::New), ("scattered", Load::Scattered)];
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let wanted = words.next();
    let sizes = match words.next().map(|word| word.parse::<u32>()) {
        Some(Ok(tasks @ 1..)) => vec![tasks],
        Some(_) => return eprintln!("give a number of tasks after the load"),
        None => vec![1_000, 10_000, 100_000, 200_000, 400_000, 800_000],
    };
    let wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    for (name, load) in loads.into_iter().filter(|(name, _)| wanted(name)) {
        let (mut first, mut before): (Option<f64>, Option<f64>) = (None, None);
        for &tasks in &sizes {
            let ([median, min, max], plan) = measure(tasks, load);
            let (actions, digest) = (plan.actions.len(), digest(&plan));
            let n = f64::from(tasks);
            let per = median / (n * n.log2());
            let against =
                |one: Option<f64>| one.map_or(String::new(), |one| format!("{:.2}", per / one));
            let (growth, in_all) = (against(before), against(first));
            println!(
                "{name:<10} {tasks:>8} {median:>9.1} {min:>9.1} {max:>9.1} {actions:>9} {growth:>8} {in_all:>8}  {digest:08x}"
            );
            before = Some(per);
            first.get_or_insert(per);
        }
    }
}
