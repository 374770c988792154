//! A team of threads that start together; each keeps a tally of what it does.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::job::Work;
use crate::tally::{Harvest, Tally};
use crate::{Setting, Tie, WorkloadError, sys, system};

/// A thread of [`start_all`]; it answers nothing where it was sent home.
pub type Member<'scope, T> = ScopedJoinHandle<'scope, Option<T>>;

/// Starts a thread for each of these, or, where one cannot be had, none of them works: threads that wait for all others
/// would wait for ever for one that is not there.
pub fn start_all<'scope, T: Send + 'scope, F: FnOnce() -> T + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    works: impl ExactSizeIterator<Item = F>,
) -> Result<Vec<Member<'scope, T>>, WorkloadError> {
    let (count, mut members) = (works.len(), Vec::with_capacity(works.len()));
    let all_here = Arc::new(OnceLock::<bool>::new());
    for (number, work) in (1..).zip(works) {
        let go = Arc::clone(&all_here);
        let started = Builder::new().spawn_scoped(scope, move || (*go.wait()).then(work));
        match started {
            Ok(member) => members.push(member),
            Err(source) => {
                all_here.get_or_init(|| false);
                let what = format!(
                    "cannot start thread {number} of {count} (ulimit -u and -v limit them)"
                );
                return Err(WorkloadError::System { what, source });
            }
        }
    }
    all_here.get_or_init(|| true);
    Ok(members)
}

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
        let members = start_all(scope, homes.map(|(index, home)| member(index, home)))?;
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
                Some(Ok(one)) => harvest.merge(&one),
                Some(Err(error)) => failed = failed.or(Some(error)),
                None => {}
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
