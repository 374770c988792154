//! Look-ups of shared policies per second for 1 to N threads: as readers do it (neither lock nor
//! reference) against the plain way (a lock and a reference for each look-up).
//!
//! `cargo bench -p numaherd-mempolicy [-- --threads N --rounds N]`; the best of several rounds
//! counts, since others on the machine can only take away. Two ways are told: with the lock held
//! for the search, as the kernel's rb-tree had it.

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
const ROUND: Duration = Duration::from_millis(300);
/// Look-ups between two looks at the clock's flag.
const BATCH: u64 = 256;

fn main() {
    let word = |name: &str, default: usize| {
        let words: Vec<String> = std::env::args().collect();
        let at = words.iter().position(|word| word == name);
        at.and_then(|at| words.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let (threads, rounds) = (word("--threads", cpus), word("--rounds", 5));
    let (shared, locked) = (Shared::default(), Mutex::new(Ranges::default()));
    for index in 0..RANGES {
        let policy = bind((index % 2) as u32);
        shared.set(index * 16..index * 16 + 16, Some(Arc::clone(&policy)));
        locked.lock().unwrap().set(index * 16..index * 16 + 16, Some(policy));
    }
    println!(
        "{:>7} {:>16} {:>16} {:>8} {:>8}",
        "threads", "free/s", "locked/s", "x1 free", "x1 lock"
    );
    let mut firsts = (0.0, 0.0);
    for count in 1..=threads {
        let (mut free, mut lock) = (0.0_f64, 0.0_f64);
        for _ in 0..rounds {
            free = free.max(measure(count, || {
                let mut reader = shared.reader();
                move |page| {
                    black_box(reader.get(page).map(Policy::mode));
                }
            }));
            lock = lock.max(measure(count, || {
                |page| {
                    let kept = locked.lock().unwrap().keep(page);
                    black_box(kept.as_deref().map(Policy::mode));
                }
            }));
        }
        if count == 1 {
            firsts = (free, lock);
        }
        let (a, b) = (free / firsts.0, lock / firsts.1);
        println!("{count:>7} {free:>16.0} {lock:>16.0} {a:>8.2} {b:>8.2}");
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
        std::thread::sleep(ROUND);
        over.store(true, Ordering::Relaxed);
        elapsed = start.elapsed();
    });
    total.load(Ordering::Relaxed) as f64 / elapsed.as_secs_f64()
}
