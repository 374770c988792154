//! Look-ups of shared policies per second for 1 to N threads, three ways:
//!
//! - `alone`: each thread has a table of its own. What this machine gives at best; where its CPUs
//!   are threads of one core, or others use them, this falls short of N too.
//! - `shared`: as readers of `Shared` do it, with neither lock nor reference.
//! - `locked`: the plain way, a lock and a reference for each look-up, with the lock held for the
//!   search as the kernel's rb-tree had it.
//!
//! `cargo bench -p numaherd-mempolicy [-- --threads N --rounds N]`. Each round measures every way
//! with every number of threads, in turn forwards and backwards, and ratios are taken within a
//! round: what slows the machine for seconds slows both sides. Medians of the rounds, least and
//! greatest in brackets.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use numaherd_mempolicy::ranges::Ranges;
use numaherd_mempolicy::shared::Shared;
use numaherd_mempolicy::{Mode, Policy, Request, Room};

/// Ranges in the table, of 16 pages each: an object with that many mbinds (chosen).
const RANGES: u64 = 64;
/// How long one measurement runs (chosen).
const SPELL: Duration = Duration::from_millis(100);
/// Rounds, unless told otherwise (chosen).
const ROUNDS: usize = 15;
/// Look-ups between two looks at the clock's flag.
const BATCH: u64 = 256;

const WAYS: [&str; 3] = ["alone", "shared", "locked"];

fn main() {
    let (threads, rounds) = (word("--threads", cpus()).max(1), word("--rounds", ROUNDS).max(1));
    let tables = Tables::new();
    // [round][threads - 1][way]
    let mut rates = vec![vec![[0.0_f64; 3]; threads]; rounds];
    for (round, rates) in rates.iter_mut().enumerate() {
        let mut cells: Vec<(usize, usize)> =
            (0..threads).flat_map(|count| (0..3).map(move |way| (count, way))).collect();
        if round % 2 == 1 {
            cells.reverse();
        }
        for (count, way) in cells {
            rates[count][way] = tables.measure(way, count + 1);
        }
    }
    let over = |value: &dyn Fn(&[[f64; 3]]) -> f64| -> Spread {
        Spread::of(rates.iter().map(|round| value(round)).collect())
    };
    println!("{:>7} {:>6} {:>24} {:>22}", "threads", "way", "look-ups/s", "x of 1 thread");
    for count in 0..threads {
        for (way, name) in WAYS.iter().enumerate() {
            let rate = over(&|round| round[count][way]).median;
            let scale = over(&|round| round[count][way] / round[0][way]);
            println!("{:>7} {name:>6} {rate:>24.0} {scale:>22}", count + 1);
        }
    }
    let against = over(&|round| round[0][1] / round[0][2]);
    println!("1 thread, shared ÷ locked: {against}; {rounds} rounds{}", same_core());
}

/// The number behind an option.
fn word(name: &str, default: usize) -> usize {
    let words: Vec<String> = std::env::args().collect();
    let at = words.iter().position(|word| word == name);
    at.and_then(|at| words.get(at + 1)?.parse().ok()).unwrap_or(default)
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether the first CPU shares its core, where the kernel knows.
fn same_core() -> String {
    let path = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list";
    let list = std::fs::read_to_string(path).unwrap_or_default();
    match list.trim() {
        "" | "0" => String::new(),
        list => format!("; CPUs {list} are threads of one core"),
    }
}

/// Median, least and greatest.
struct Spread {
    median: f64,
    least: f64,
    greatest: f64,
}

impl Spread {
    fn of(mut all: Vec<f64>) -> Spread {
        all.sort_by(f64::total_cmp);
        Spread { median: all[all.len() / 2], least: all[0], greatest: all[all.len() - 1] }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{:.2} ({:.2}-{:.2})", self.median, self.least, self.greatest))
    }
}

struct Tables {
    plain: Ranges,
    shared: Shared,
    locked: Mutex<Ranges>,
}

impl Tables {
    fn new() -> Tables {
        let (shared, mut plain) = (Shared::default(), Ranges::default());
        for index in 0..RANGES {
            let pages = index * 16..index * 16 + 16;
            let policy = bind((index % 2) as u32);
            shared.set(pages.clone(), Some(Arc::clone(&policy)));
            plain.set(pages, Some(policy));
        }
        Tables { shared, locked: Mutex::new(plain.clone()), plain }
    }

    /// Look-ups per second of so many threads together.
    fn measure(&self, way: usize, threads: usize) -> f64 {
        match way {
            0 => measure(threads, || {
                let own = self.plain.clone();
                move |page| {
                    black_box(own.get(page).map(Policy::mode));
                }
            }),
            1 => measure(threads, || {
                let mut reader = self.shared.reader();
                move |page| {
                    black_box(reader.get(page).map(Policy::mode));
                }
            }),
            _ => measure(threads, || {
                |page| {
                    let kept = self.locked.lock().unwrap().keep(page);
                    black_box(kept.as_deref().map(Policy::mode));
                }
            }),
        }
    }
}

fn bind(node: u32) -> Arc<Policy> {
    let room = Room { allowed: "0-1".parse().unwrap(), memory: "0-1".parse().unwrap() };
    let request = Request::plain(Mode::Bind, node.to_string().parse().unwrap());
    Arc::new(Policy::new(&request, &room).unwrap().unwrap())
}

/// Look-ups per second of `threads` threads together, each over all pages in turn.
fn measure<L: FnMut(u64)>(threads: usize, look: impl Fn() -> L + Sync) -> f64 {
    let (begin, over) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let total = AtomicU64::new(0);
    let mut elapsed = Duration::ZERO;
    std::thread::scope(|scope| {
        for index in 0..threads as u64 {
            let (begin, over, total, look) = (&begin, &over, &total, &look);
            scope.spawn(move || {
                let (mut look, mut done) = (look(), 0);
                begin.wait();
                while !over.load(Ordering::Relaxed) {
                    for step in 0..BATCH {
                        look((index * 37 + done + step) % (RANGES * 16));
                    }
                    done += BATCH;
                }
                total.fetch_add(done, Ordering::Relaxed);
            });
        }
        begin.wait();
        let start = Instant::now();
        std::thread::sleep(SPELL);
        over.store(true, Ordering::Relaxed);
        elapsed = start.elapsed();
    });
    total.load(Ordering::Relaxed) as f64 / elapsed.as_secs_f64()
}
