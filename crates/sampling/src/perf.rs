//! Taking the samples: a perf event on each CPU, by the CPU clock.

use std::collections::BTreeSet;
use std::{fmt, io};

use numaherd_model::{Access, AccessSource, CpuId, CpuSet, Nanos};
use perf_event::data::{Record, Registers as Noted, SampleRegsAbi};
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag};

use crate::block;
use crate::code::Code;
use crate::registers::{MASK, Registers};

/// Bytes of samples that each CPU holds until they are drained: some 170.
const RING_BYTES: usize = 32 << 10;

/// A sampler of accesses, one event for each CPU while somebody is watched.
pub struct Sampler {
    watched: BTreeSet<u32>,
    cpus: CpuSet,
    every: Nanos,
    rings: Vec<perf_event::Sampler>,
    code: Code,
}

impl Sampler {
    /// Watches nobody yet.
    #[must_use]
    pub fn new() -> Sampler {
        Sampler {
            watched: BTreeSet::new(),
            cpus: CpuSet::new(),
            every: Nanos(0),
            rings: Vec::new(),
            code: Code::new("/".as_ref()),
        }
    }

    fn open(&mut self) -> io::Result<()> {
        self.rings.clear();
        let opened: io::Result<_> = self.cpus.iter().map(|cpu| event(cpu, self.every)).collect();
        self.rings = opened.inspect_err(|_| self.watched.clear())?;
        Ok(())
    }
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler::new()
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (watched, every) = (&self.watched, &self.every);
        f.debug_struct("Sampler").field("watched", watched).field("every", every).finish()
    }
}

/// The event of one CPU.
fn event(cpu: CpuId, every: Nanos) -> io::Result<perf_event::Sampler> {
    let parts = SampleFlag::TID | SampleFlag::TIME | SampleFlag::CPU | SampleFlag::REGS_USER;
    let counter = Builder::new(Software::CPU_CLOCK)
        .any_pid()
        .one_cpu(cpu.0 as usize)
        .sample_period(every.0.max(1))
        .sample(parts)
        .sample_regs_user(MASK)
        .clockid(Clock::MONOTONIC)
        // A task in the kernel is not at an instruction of its own.
        .exclude_kernel(true)
        .exclude_hv(true)
        .enabled(true)
        .build()?;
    counter.sampled(RING_BYTES)
}

impl AccessSource for Sampler {
    fn watch(&mut self, tgids: &[u32], cpus: &CpuSet, every: Nanos) -> io::Result<()> {
        let watched: BTreeSet<u32> = tgids.iter().copied().collect();
        if watched != self.watched {
            // The pid of one that was not there may be another's by now.
            self.code.keep(|tgid| self.watched.contains(&tgid) && watched.contains(&tgid));
        }
        if watched.is_empty() {
            self.rings.clear();
            self.watched = watched;
            return Ok(());
        }
        let open = !self.watched.is_empty() && self.cpus == *cpus && self.every == every;
        if self.watched.is_empty() {
            // Without a thread the first sample waits for it.
            let _ = std::thread::Builder::new().spawn(block::unpack_decoder);
        }
        self.watched = watched;
        if open {
            return Ok(());
        }
        (self.cpus, self.every) = (cpus.clone(), every);
        self.open()
    }

    fn drain(&mut self, accesses: &mut Vec<Access>) {
        for ring in &mut self.rings {
            while let Some(record) = ring.next_record() {
                let Ok(Record::Sample(sample)) = record.parse_record() else { continue };
                let (Some(tgid), Some(tid)) = (sample.pid(), sample.tid()) else { continue };
                if !self.watched.contains(&tgid) {
                    continue;
                }
                let (Some(time), Some(cpu)) = (sample.time(), sample.cpu()) else { continue };
                let is_64 = |regs: &&Noted<'_>| regs.abi == SampleRegsAbi::ABI_64;
                let noted = sample.regs_user().filter(is_64);
                let Some(registers) = noted.and_then(|regs| Registers::read(&regs.regs)) else {
                    continue;
                };
                let block = self.code.at(tgid, registers.ip());
                let at =
                    |address| Access { time: Nanos(time), tid, tgid, cpu: CpuId(cpu), address };
                accesses.extend(block.accesses(&registers).into_iter().map(at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A thread of ours that goes round a buffer is found there, where this system lets us look.
    #[test]
    fn our_own_accesses_are_found_where_they_are() {
        let cpus: CpuSet = std::fs::read_to_string("/sys/devices/system/cpu/online")
            .map_or_else(|_| "0".into(), |text| text.trim().to_string())
            .parse()
            .unwrap();
        let mut sampler = Sampler::new();
        let me = std::process::id();
        if let Err(error) = sampler.watch(&[me], &cpus, Nanos(1_000_000)) {
            eprintln!("skipped: perf events are refused here: {error}");
            return;
        }
        let stop = AtomicBool::new(false);
        let mut buffer = vec![0_u64; 4 << 20];
        let range = buffer.as_ptr() as u64..buffer.as_ptr() as u64 + (32 << 20);
        let mut accesses = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    buffer.iter_mut().step_by(8).for_each(|word| *word ^= round);
                }
            });
            let is_ours = |access: &Access| range.contains(&access.address);
            let mut looks = 0;
            while accesses.iter().filter(|access| is_ours(access)).count() < 50 && looks < 1000 {
                std::thread::sleep(std::time::Duration::from_millis(10));
                sampler.drain(&mut accesses);
                looks += 1;
            }
            stop.store(true, Ordering::Relaxed);
        });
        let ours: Vec<u64> =
            accesses.iter().map(|a| a.address).filter(|a| range.contains(a)).collect();
        assert!(ours.len() >= 50, "{} of {}", ours.len(), accesses.len());
        // Spread over it, not its first address again and again.
        let quarter = |address: &u64| (address - range.start) / (8 << 20);
        let quarters: BTreeSet<u64> = ours.iter().map(quarter).collect();
        assert!(quarters.len() >= 3, "{quarters:?}");
        assert!(accesses.iter().all(|access| access.tgid == me));
        sampler.watch(&[], &cpus, Nanos(1)).unwrap();
        accesses.clear();
        sampler.drain(&mut accesses);
        assert!(accesses.is_empty() && sampler.rings.is_empty());
    }
}
