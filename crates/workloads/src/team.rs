//! A team of threads that start together; each keeps a tally of what it does.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::job::Work;
use crate::tally::{Harvest, Tally};
use crate::{Setting, Tie, WorkloadError, sys, system};

/// Runs `work(index)` on a thread for each home. All are ready, tied as the setting says, before
/// `go` is called, and none works before it returns; it answers when the timed part began, in
/// nanoseconds of the monotonic clock.
pub fn run(
    setting: &Setting,
    homes: &[Range<usize>],
    work: &Work,
    go: impl FnOnce() -> Result<u64, WorkloadError>,
) -> Result<Harvest, WorkloadError> {
    let (ready, start) = (&Barrier::new(homes.len() + 1), &Barrier::new(homes.len() + 1));
    let (start_ns, started) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let limit_ns = setting.params.limit_ns;
    std::thread::scope(|scope| {
        let member = |index: usize, home: Range<usize>| {
            move || {
                let tied = tie(setting, home);
                ready.wait();
                start.wait();
                // A thread that could not be tied must still pass the barriers.
                tied?;
                let mut tally = Tally::new(start_ns.load(Ordering::Acquire), limit_ns);
                if started.load(Ordering::Acquire) {
                    work(index, &mut tally)?;
                }
                Ok(tally.finish())
            }
        };
        let homes = homes.iter().cloned().enumerate();
        let members: Vec<_> = homes.map(|(index, home)| scope.spawn(member(index, home))).collect();
        ready.wait();
        let gone = go();
        start_ns.store(*gone.as_ref().unwrap_or(&0), Ordering::Release);
        started.store(gone.is_ok(), Ordering::Release);
        start.wait();
        // Not before they run: a sleeping thread wakes up wherever the waker is.
        let freed = gone.and_then(|_| free_again(setting));
        let mut harvest = Harvest::default();
        let mut failed = freed.err();
        for member in members {
            match member.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(one) => harvest.merge(&one),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(harvest), Err)
    })
}

fn tie(setting: &Setting, home: Range<usize>) -> Result<(), WorkloadError> {
    if setting.begins_tied().is_none() {
        return Ok(());
    }
    let cpus = setting.layout.cpus_of(home);
    sys::set_affinity(&cpus).map_err(system("cannot bind a thread to its node"))
}

/// Gives every thread of this process all CPUs back where they were tied only for the start.
fn free_again(setting: &Setting) -> Result<(), WorkloadError> {
    if setting.params.tie != Tie::Free || setting.begins_tied().is_none() {
        return Ok(());
    }
    let tasks = std::fs::read_dir("/proc/self/task").map_err(system("cannot list our threads"))?;
    for task in tasks.flatten() {
        let tid = task.file_name().to_string_lossy().parse().unwrap_or(0);
        let set = sys::set_affinity_of(tid, &setting.layout.cpus());
        set.map_err(system("cannot set a thread free"))?;
    }
    Ok(())
}
