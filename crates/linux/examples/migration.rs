//! How moving pages between nodes scales with the threads that do it:
//! `migration [MIB] [THREADS,…] [FROM] [TO]`, 64 MiB a thread, 1,2,4,… threads, from the first node
//! to the second.
//!
//! Each thread has memory of its own and moves it with `move_pages`, all at once; beside that the
//! kernel's `migrate_pages` for as much memory in one call, and copying between the nodes by as many
//! threads, which is what could be had. Base pages and huge ones apart. Meanwhile the kernel's stack of
//! every moving thread that does not run is looked at a thousand times a second: the last lines say
//! where they wait. Each figure is the median of three rounds, with the least and the greatest. Needs two
//! nodes; stacks need root.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use numaherd_linux::sys::mapping::{Mapping, Touch};
use numaherd_linux::sys::pages::{self, PageStatus, Target};
use numaherd_linux::sys::{affinity, mempolicy};
use numaherd_model::{NodeId, NodeSet, Topology};

/// Rounds of each row.
const ROUNDS: usize = 3;
const HUGE_BYTES: u64 = 2 << 20;
/// Frames shown of a stack, innermost first.
const FRAMES: usize = 6;
/// Stacks shown of a row.
const STACKS: usize = 3;

#[derive(Clone, Copy)]
struct Plan {
    bytes: usize,
    from: NodeId,
    to: NodeId,
    huge: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |nth: usize| words.get(nth).and_then(|word| word.parse::<u32>().ok());
    let topology = numaherd_linux::topology::read("/".as_ref()).expect("a Linux with /sys");
    let nodes: Vec<NodeId> = topology.memory_nodes().map(|node| node.id).collect();
    if nodes.len() < 2 {
        eprintln!("migration: this machine has one node with memory");
        return ExitCode::FAILURE;
    }
    let mib = number(0).unwrap_or(64) as usize;
    let threads: Vec<usize> = match words.get(1) {
        Some(list) => list.split(',').filter_map(|word| word.parse().ok()).collect(),
        None => (0..).map(|n| 1 << n).take_while(|n| *n <= topology.cpus().len()).collect(),
    };
    let from = number(2).map_or(nodes[0], NodeId);
    let to = number(3).map_or(nodes[1], NodeId);
    println!("GB/s, median of {ROUNDS} (least-greatest); {mib} MiB a thread, node {from} to {to}");
    println!("pages  threads           move_pages        migrate_pages              copying");
    for huge in [false, true] {
        for &count in &threads {
            row(&topology, Plan { bytes: mib << 20, from, to, huge }, count);
        }
    }
    ExitCode::SUCCESS
}

fn row(topology: &Topology, plan: Plan, threads: usize) {
    let stacks = Stacks::default();
    let move_all = || {
        together(topology, plan, threads, Some(&stacks), |ready| {
            let memory = placed(plan);
            let addresses = addresses(&memory, plan.huge);
            ready();
            let begin = Instant::now();
            let mut status = Vec::new();
            pages::migrate(0, &addresses, Target::One(plan.to), false, &mut status)
                .expect("move_pages");
            let seconds = begin.elapsed().as_secs_f64();
            (on(&memory, plan.to), seconds)
        })
    };
    let copy_all = || {
        together(topology, plan, threads, None, |ready| {
            let source = filled(plan.bytes, plan.from);
            let mut target = filled(plan.bytes, plan.to);
            ready();
            let begin = Instant::now();
            target.copy_from_slice(&source);
            std::hint::black_box(&target);
            (plan.bytes as u64, begin.elapsed().as_secs_f64())
        })
    };
    let moved = rounds(move_all);
    let by_kernel = rounds(|| by_kernel(plan, threads));
    let copied = rounds(copy_all);
    let name = if plan.huge { "huge" } else { "base" };
    println!("{name:<6} {threads:>7} {moved:>20} {by_kernel:>20} {copied:>20}");
    stacks.print();
}

/// The median of several rounds, with the least and the greatest.
fn rounds(measure: impl FnMut() -> f64) -> String {
    let mut all: Vec<f64> = std::iter::repeat_with(measure).take(ROUNDS).collect();
    all.sort_by(f64::total_cmp);
    format!("{:.3} ({:.3}-{:.3})", all[ROUNDS / 2], all[0], all[ROUNDS - 1])
}

/// Runs threads, each on a CPU of its own, that get ready and then do something at once; answers
/// bytes ÷ the time of the slowest, in GB/s.
fn together(
    topology: &Topology,
    plan: Plan,
    threads: usize,
    stacks: Option<&Stacks>,
    act: impl Fn(&dyn Fn()) -> (u64, f64) + Sync,
) -> f64 {
    // The destination's CPUs first: whose task it is that pages follow.
    let there = topology.node(plan.to).map(|node| node.cpus.clone()).unwrap_or_default();
    let cpus: Vec<_> = there.iter().chain(topology.cpus().difference(&there).iter()).collect();
    let barrier = Barrier::new(threads);
    let done = AtomicBool::new(false);
    let tids = Mutex::new(Vec::new());
    let results: Vec<(u64, f64)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|nth| {
                let (cpu, act, barrier, tids) = (cpus[nth % cpus.len()], &act, &barrier, &tids);
                scope.spawn(move || {
                    affinity::set(0, &[cpu].into_iter().collect()).expect("a CPU that is online");
                    act(&|| {
                        let tid = std::fs::read_link("/proc/thread-self").expect("a /proc");
                        tids.lock().unwrap_or_else(PoisonError::into_inner).push(tid);
                        barrier.wait();
                    })
                })
            })
            .collect();
        let watcher = stacks.map(|stacks| {
            let (tids, done) = (&tids, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for tid in tids.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                        stacks.look(tid);
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            })
        });
        let results = workers.into_iter().map(|worker| worker.join().expect("a worker")).collect();
        done.store(true, Ordering::Relaxed);
        watcher.into_iter().for_each(|watcher| watcher.join().expect("the watcher"));
        results
    });
    let bytes: u64 = results.iter().map(|(bytes, _)| bytes).sum();
    bytes as f64 / results.iter().map(|(_, s)| *s).fold(f64::MIN_POSITIVE, f64::max) / 1e9
}

/// The same memory moved by one call of `migrate_pages`.
fn by_kernel(plan: Plan, threads: usize) -> f64 {
    let memory: Vec<Mapping> = (0..threads).map(|_| placed(plan)).collect();
    let node = |node: NodeId| [node].into_iter().collect::<NodeSet>();
    let begin = Instant::now();
    mempolicy::migrate_process(0, &node(plan.from), &node(plan.to)).expect("migrate_pages");
    let seconds = begin.elapsed().as_secs_f64();
    let bytes: u64 = memory.iter().map(|memory| on(memory, plan.to)).sum();
    bytes as f64 / seconds / 1e9
}

/// Memory, touched, all of it on the node it is to leave; huge pages that it is to have it has.
fn placed(plan: Plan) -> Mapping {
    // Whole huge pages, wherever the mapping begins.
    let more = if plan.huge { HUGE_BYTES as usize } else { 0 };
    let mut memory = Mapping::private(plan.bytes + more).expect("memory");
    if plan.huge {
        memory.with_huge_pages();
    } else {
        memory.without_huge_pages();
    }
    let begins =
        if plan.huge { memory.start().next_multiple_of(HUGE_BYTES) } else { memory.start() };
    let first = (begins - memory.start()) as usize;
    memory.touch(first..first + plan.bytes, Touch::Write);
    bring(&addresses(&memory, false), plan.from);
    let there = on(&memory, plan.from);
    assert!(there >= plan.bytes as u64, "only {there} bytes came to node {}", plan.from);
    memory
}

fn filled(bytes: usize, node: NodeId) -> Vec<u8> {
    let memory = vec![1u8; bytes];
    let (start, page) = (memory.as_ptr() as u64, pages::size().0);
    let first = start.next_multiple_of(page);
    let all: Vec<u64> = (first..start + bytes as u64).step_by(page as usize).collect();
    bring(&all, node);
    memory
}

fn bring(addresses: &[u64], node: NodeId) {
    let mut status = Vec::new();
    pages::migrate(0, addresses, Target::One(node), false, &mut status).expect("move_pages");
}

/// Its pages; of huge ones the first of each.
fn addresses(memory: &Mapping, huge: bool) -> Vec<u64> {
    let step = if huge { HUGE_BYTES } else { pages::size().0 };
    let start = memory.start();
    (start.next_multiple_of(step)..start + memory.len() as u64).step_by(step as usize).collect()
}

/// Bytes of it that are on a node.
fn on(memory: &Mapping, node: NodeId) -> u64 {
    let mut status = Vec::new();
    pages::query(0, &addresses(memory, false), &mut status).expect("move_pages");
    let there = status.iter().filter(|raw| PageStatus::from_raw(**raw) == PageStatus::On(node));
    there.count() as u64 * pages::size().0
}

/// Where threads were seen waiting, and how often.
#[derive(Default)]
struct Stacks(Arc<Mutex<BTreeMap<String, u64>>>);

impl Stacks {
    fn look(&self, task: &std::path::Path) {
        let folder = std::path::Path::new("/proc").join(task);
        let stat = std::fs::read_to_string(folder.join("stat")).unwrap_or_default();
        let running = stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('R'));
        let text = if running {
            "runs, or waits for a CPU".into()
        } else {
            let stack = std::fs::read_to_string(folder.join("stack")).unwrap_or_default();
            let frames = stack.lines().filter_map(|line| line.split_whitespace().nth(1));
            let names = frames.filter_map(|frame| frame.split('+').next());
            names.take(FRAMES).collect::<Vec<_>>().join(" < ")
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(text).or_default() += 1;
    }

    fn print(&self) {
        let stacks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: u64 = stacks.values().sum::<u64>().max(1);
        let mut most: Vec<(&String, &u64)> = stacks.iter().collect();
        most.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
        for (stack, times) in most.into_iter().take(STACKS) {
            let stack = if stack.is_empty() { "(the kernel shows no stack)" } else { stack };
            println!("       {:>3} % {stack}", times * 100 / all);
        }
    }
}
