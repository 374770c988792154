//! The capabilities that whoever acts goes on with: those that `doctor` names for it, and no more.

use std::path::Path;

use anyhow::{Context as _, Result};
use numaherd_linux::live::Sampled;
use numaherd_linux::sys::identity::Capability::{
    self, Bpf, DacReadSearch, Perfmon, SysAdmin, SysNice, SysPtrace,
};
use numaherd_linux::sys::identity::{has, keep_only};
use numaherd_linux::sys::perf::set_period;
use numaherd_linux::{reserve, topology};
use numaherd_model::{CpuSet, Nanos, Topology};

/// For balancing, where the kernel's knobs are left alone.
const BALANCING: [Capability; 5] = [DacReadSearch, SysPtrace, SysNice, Bpf, Perfmon];

/// Gives up all but what balancing takes.
pub fn give_up(tunes: bool, sampled: Sampled) -> Result<()> {
    let mut needed = BALANCING.to_vec();
    let mut takes_admin = tunes;
    if !tunes && sampled.is_any() {
        let topology = topology::read(Path::new("/"))?;
        let somebody = sampled.rest || has_reserve(&topology);
        takes_admin = somebody && sampling_takes_admin(&topology::open(Path::new("/"), &topology));
    }
    if takes_admin {
        needed.push(SysAdmin);
    }
    keep_only(&needed).context("cannot give up privileges")
}

/// Whether some huge pages are set apart: without them nobody is sampled.
fn has_reserve(topology: &Topology) -> bool {
    let reserved = |node: u32| reserve::read(Path::new("/"), node).ok().flatten();
    topology.nodes.iter().any(|node| reserved(node.id.0).is_some_and(|(pages, _)| pages > 0))
}

/// Whether accesses can be sampled with CAP_SYS_ADMIN only, and we have it. Kernels differ, by setting and by
/// distribution (Debian's asks for it where kernel.perf_event_paranoid is 3, its default), so that is tried: by a
/// thread without it, as capabilities are each thread's own.
pub fn sampling_takes_admin(cpus: &CpuSet) -> bool {
    let can_sample = || can_sample(cpus).is_ok();
    let without = || keep_only(&BALANCING).is_ok_and(|()| can_sample());
    let refused = std::thread::scope(|scope| !scope.spawn(without).join().unwrap_or(true));
    refused && has(SysAdmin) && can_sample()
}

/// Whether accesses can be sampled, with what this thread may do: tried for a moment. Else why not.
pub fn can_sample(cpus: &CpuSet) -> Result<(), String> {
    let mut sampler = numaherd_sampling::sampler(set_period).ok_or("not on this architecture")?;
    let tried = sampler.watch(&[std::process::id()], cpus, Nanos(1_000_000_000));
    tried.map_err(|error| error.to_string())?;
    sampler.missed().filter(|missed| missed.cpus == *cpus).map_or(Ok(()), |missed| Err(missed.why))
}

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use numaherd_model::{Access, AccessSource};

    use super::*;

    const OFTEN: Nanos = Nanos(2_000_000);
    const RARELY: Nanos = Nanos(80_000_000);

    /// Periods that the kernel took.
    static CHANGED: AtomicUsize = AtomicUsize::new(0);

    fn counted(event: RawFd, every: Nanos) -> std::io::Result<()> {
        set_period(event, every).inspect(|()| {
            CHANGED.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// The median of the times between two samples of a CPU.
    fn between(sampler: &mut dyn AccessSource) -> Nanos {
        let mut accesses: Vec<Access> = Vec::new();
        sampler.drain(&mut accesses);
        accesses.clear();
        let mut gaps = Vec::new();
        for _ in 0..500 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            sampler.drain(&mut accesses);
            let mut times: Vec<_> = accesses.iter().map(|found| (found.cpu, found.time)).collect();
            // One sample may tell of several accesses.
            times.sort_unstable();
            times.dedup();
            let same = times.windows(2).filter(|pair| pair[0].0 == pair[1].0);
            gaps = same.map(|pair| pair[1].1.since(pair[0].1)).collect();
            if gaps.len() >= 20 {
                break;
            }
        }
        gaps.sort_unstable();
        gaps[gaps.len() / 2]
    }

    /// As when all has converged, and when it begins to move again.
    #[test]
    fn open_events_take_another_rate() {
        let topology = topology::read(Path::new("/")).unwrap();
        let mut sampler = match numaherd_sampling::sampler(counted) {
            Some(sampler) => sampler,
            None => return eprintln!("skipped: not on this architecture"),
        };
        let cpus = topology::open(Path::new("/"), &topology);
        let mut watch = |every| {
            sampler.watch(&[std::process::id()], &cpus, every)?;
            Ok::<_, std::io::Error>(between(sampler.as_mut()))
        };
        let stop = AtomicBool::new(false);
        let gaps = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut words = vec![1_u64; 1 << 20];
                while !stop.load(Ordering::Relaxed) {
                    words.iter_mut().for_each(|word| *word = word.wrapping_mul(3));
                    std::hint::black_box(&mut words);
                }
            });
            let gaps: Result<Vec<_>, _> =
                [OFTEN, RARELY, OFTEN].map(&mut watch).into_iter().collect();
            stop.store(true, Ordering::Relaxed);
            gaps
        });
        let gaps = match gaps {
            Ok(gaps) => gaps,
            Err(error) => return eprintln!("skipped: perf events are refused here: {error}"),
        };
        let middle = Nanos(RARELY.0 / 4);
        assert!(gaps[0] < middle && gaps[1] > middle && gaps[2] < middle, "{gaps:?}");
        // On each CPU twice: none was opened anew for it.
        assert_eq!(CHANGED.load(Ordering::Relaxed), 2 * cpus.len());
    }
}
