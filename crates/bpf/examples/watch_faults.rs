//! Starts eight threads that share memory, and prints the hinting faults the kernel reports.
//!
//! Run as root on a NUMA machine: `watch_faults [SECONDS] [MIB_PER_THREAD] [RING_KIB]`. Exits 1 when the
//! stream is unavailable and 3 when no fault came.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use numaherd_bpf::{FaultStream, choose, probe};
use numaherd_model::{FaultFlags, FaultSource, HintingFault};

const THREADS: usize = 8;
const PAGE_BYTES: usize = 4096;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().ok());
    let seconds = arguments.next().flatten().unwrap_or(10);
    let mib = arguments.next().flatten().unwrap_or(16);
    let ring_bytes = arguments.next().flatten().unwrap_or(1024) as u32 * 1024;

    let started = Instant::now();
    let facts = probe("/".as_ref());
    let probed = started.elapsed();
    let choice = choose(&facts);
    println!("{facts:?}\n{choice:?}");
    let started = Instant::now();
    let mut stream = match FaultStream::open_with_ring(&choice, ring_bytes) {
        Ok(stream) => stream,
        Err(error) => {
            eprintln!("watch_faults: {error}");
            return ExitCode::FAILURE;
        }
    };
    let opened = started.elapsed();
    println!("probe {:.1} ms, open {:.1} ms", ms(probed), ms(opened));
    if let Err(error) = stream.watch(&[std::process::id()]) {
        eprintln!("watch_faults: cannot set the filter: {error}");
        return ExitCode::FAILURE;
    }

    let stop = Arc::new(AtomicBool::new(false));
    let memory: Arc<Vec<AtomicU64>> =
        Arc::new((0..(THREADS * mib) << 17).map(|_| AtomicU64::new(0)).collect());
    let range = memory.as_ptr_range();
    let workers: Vec<_> = (0..THREADS).map(|i| start_worker(i, &memory, &stop)).collect();

    let mut faults = Vec::new();
    let mut draining = Duration::ZERO;
    let end = Instant::now() + Duration::from_secs(seconds as u64);
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(100));
        let started = Instant::now();
        if let Err(error) = stream.drain(&mut faults) {
            eprintln!("watch_faults: {error}");
        }
        draining += started.elapsed();
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        let _ = worker.join();
    }
    summarise(&faults, range.start as u64..range.end as u64);
    let (lost, exited) = (stream.lost(), stream.exited());
    println!("lost {lost}, draining {:.1} ms in all, {exited} threads ended", ms(draining));
    if faults.is_empty() { ExitCode::from(3) } else { ExitCode::SUCCESS }
}

/// Each thread writes to every page of its own share, and reads one page in 16 of its neighbour's.
fn start_worker(
    index: usize,
    memory: &Arc<Vec<AtomicU64>>,
    stop: &Arc<AtomicBool>,
) -> thread::JoinHandle<()> {
    let (memory, stop) = (Arc::clone(memory), Arc::clone(stop));
    thread::spawn(move || {
        let words = PAGE_BYTES / 8;
        let share = memory.len() / THREADS;
        let neighbour = (index + 1) % THREADS;
        while !stop.load(Ordering::Relaxed) {
            for at in (0..share).step_by(words) {
                memory[index * share + at].fetch_add(1, Ordering::Relaxed);
            }
            for at in (0..share).step_by(words * 16) {
                std::hint::black_box(memory[neighbour * share + at].load(Ordering::Relaxed));
            }
        }
    })
}

fn summarise(faults: &[HintingFault], range: std::ops::Range<u64>) {
    let count = |test: &dyn Fn(&HintingFault) -> bool| faults.iter().filter(|f| test(f)).count();
    println!(
        "faults {}: pages {}, with address {}, inside the array {}, local {}, migrated {}, \
         shared {}, with last cpu {}, huge {}",
        faults.len(),
        faults.iter().map(|fault| fault.pages.0).sum::<u64>(),
        count(&|f| f.address.is_some()),
        count(&|f| f.address.is_some_and(|address| range.contains(&address))),
        count(&|f| f.flags.has(FaultFlags::FAULT_LOCAL)),
        count(&|f| f.flags.has(FaultFlags::MIGRATED)),
        count(&|f| f.flags.has(FaultFlags::SHARED)),
        count(&|f| f.last_cpu.is_some()),
        count(&|f| f.pages.0 > 1),
    );
    for fault in faults.iter().take(5) {
        println!("  {fault:?}");
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
