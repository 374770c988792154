//! The capabilities that whoever acts goes on with: those that `doctor` names for it, and no more.

use std::path::Path;

use anyhow::{Context as _, Result};
use numaherd_linux::live::Sampled;
use numaherd_linux::sys::identity::Capability::{
    self, Bpf, DacReadSearch, Perfmon, SysAdmin, SysNice, SysPtrace,
};
use numaherd_linux::sys::identity::{has, keep_only};
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
        takes_admin = somebody && sampling_takes_admin(&topology.cpus());
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
    let mut sampler = numaherd_sampling::sampler().ok_or("not on this architecture")?;
    let tried = sampler.watch(&[std::process::id()], cpus, Nanos(1_000_000_000));
    tried.map_err(|error| error.to_string())
}
