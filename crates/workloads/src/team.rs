//! A team of threads that start together and report when each one ended.

use std::sync::Barrier;

use crate::{Layout, Params, Start, Tie, WorkloadError, sys, system};

/// Runs `work(index)` on `threads` threads. All are ready, tied as `params` say, before `go` is
/// called, and none works before it returns. Answers each thread's end on the monotonic clock,
/// in nanoseconds.
pub fn run(
    params: &Params,
    layout: &Layout,
    threads: usize,
    home: &(dyn Fn(usize) -> std::ops::Range<usize> + Sync),
    work: &(dyn Fn(usize) + Sync),
    go: impl FnOnce() -> Result<(), WorkloadError>,
) -> Result<Vec<u64>, WorkloadError> {
    let (ready, start) = (&Barrier::new(threads + 1), &Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let member = |index| {
            move || {
                let tied = tie(params, &layout.cpus_of(home(index)));
                ready.wait();
                start.wait();
                // A thread that could not be tied must still pass the barriers.
                tied.map(|()| {
                    work(index);
                    sys::monotonic_ns()
                })
            }
        };
        let members: Vec<_> = (0..threads).map(|index| scope.spawn(member(index))).collect();
        ready.wait();
        let gone = go();
        start.wait();
        // Not before they run: a sleeping thread wakes up wherever the waker is.
        let freed = gone.and_then(|()| free_again(params, layout));
        let join = |m: std::thread::ScopedJoinHandle<'_, _>| {
            m.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let ends = members.into_iter().map(join).collect();
        freed.and(ends)
    })
}

fn tie(params: &Params, cpus: &[u32]) -> Result<(), WorkloadError> {
    let tied = match params.tie {
        Tie::Bind | Tie::Inverse => true,
        Tie::Free => params.start == Start::Placed,
        Tie::Interleave => false,
    };
    if tied {
        sys::set_affinity(cpus).map_err(system("cannot bind a thread to its node"))
    } else {
        Ok(())
    }
}

/// Gives every thread of this process all CPUs back where they were tied only for the start.
fn free_again(params: &Params, layout: &Layout) -> Result<(), WorkloadError> {
    if params.tie != Tie::Free || params.start != Start::Placed {
        return Ok(());
    }
    let tasks = std::fs::read_dir("/proc/self/task").map_err(system("cannot list our threads"))?;
    for task in tasks.flatten() {
        let tid = task.file_name().to_string_lossy().parse().unwrap_or(0);
        sys::set_affinity_of(tid, &layout.cpus()).map_err(system("cannot set a thread free"))?;
    }
    Ok(())
}
