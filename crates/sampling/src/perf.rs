//! Taking the samples: a perf event on each CPU, by the CPU clock.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd as _;
use std::time::Instant;
use std::{fmt, io};

use numaherd_model::{Access, AccessSource, CpuId, CpuSet, Missed, Nanos};
use perf_event::data::{Record, Registers as Noted, SampleRegsAbi};
use perf_event::events::Software;
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag};
use rustix::io::Errno;

use crate::code::Code;
use crate::registers::{MASK, Registers};
use crate::rings::{Events, Failed, Rings};
use crate::{SetPeriod, block, files};

/// Bytes of samples that each CPU holds until they are drained: some 170.
const RING_BYTES: usize = 32 << 10;

/// Why nobody is sampled where code is sealed.
const SEALED: &str = "kernel.yama.ptrace_scope is 3 until the next boot, so that nobody may read the instruction that a \
                      program is at";

/// A sampler of accesses, one event for each CPU while somebody is watched.
pub struct Sampler {
    watched: BTreeSet<u32>,
    rings: Rings<Perf>,
    code: Code,
    begun: Instant,
}

impl Sampler {
    /// Watches nobody yet.
    #[must_use]
    pub fn new(set_period: SetPeriod) -> Sampler {
        Sampler {
            watched: BTreeSet::new(),
            rings: Rings::new(Perf { set_period }),
            code: Code::new("/".as_ref()),
            begun: Instant::now(),
        }
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("watched", &self.watched).finish_non_exhaustive()
    }
}

/// The running kernel's events.
struct Perf {
    set_period: SetPeriod,
}

impl Events for Perf {
    type Event = perf_event::Sampler;

    fn open(&mut self, cpu: CpuId, every: Nanos) -> Result<perf_event::Sampler, Failed> {
        let counter = match counter(cpu, every) {
            Err(error) if errno(&error) == Some(Errno::MFILE) && files::allow_more() => {
                counter(cpu, every)
            }
            counter => counter,
        };
        let counter = counter.map_err(judge)?;
        if !files::leaves_some(counter.as_raw_fd()) {
            return Err(Failed::Later(Errno::MFILE.into()));
        }
        // Refused where another of this user's holds as much memory as may be locked, whatever we may do besides.
        counter.sampled(RING_BYTES).map_err(Failed::Later)
    }

    fn set_period(&mut self, event: &perf_event::Sampler, every: Nanos) -> io::Result<()> {
        (self.set_period)(event.as_raw_fd(), period(every))
    }

    fn counted(&mut self, event: &mut perf_event::Sampler) -> io::Result<Nanos> {
        let enabled = event.as_counter_mut().read_full()?.time_enabled().unwrap_or_default();
        Ok(Nanos(enabled.as_nanos() as u64))
    }
}

/// The counter of one CPU.
fn counter(cpu: CpuId, every: Nanos) -> io::Result<Counter> {
    let parts = SampleFlag::TID | SampleFlag::TIME | SampleFlag::CPU | SampleFlag::REGS_USER;
    Builder::new(Software::CPU_CLOCK)
        .any_pid()
        .one_cpu(cpu.0 as usize)
        .sample_period(period(every).0)
        .sample(parts)
        .sample_regs_user(MASK)
        .read_format(ReadFormat::TOTAL_TIME_ENABLED)
        .clockid(Clock::MONOTONIC)
        // A task in the kernel is not at an instruction of its own.
        .exclude_kernel(true)
        .exclude_hv(true)
        .enabled(true)
        .build()
}

/// None is no period.
fn period(every: Nanos) -> Nanos {
    every.max(Nanos(1))
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// What it means that an event was not opened (kernel/events/core.c).
fn judge(error: io::Error) -> Failed {
    match errno(&error) {
        Some(Errno::NODEV | Errno::NXIO) => Failed::Offline,
        Some(
            // We may not; or this kernel has no such event, or does not know what we ask of it.
            Errno::ACCESS
            | Errno::PERM
            | Errno::NOENT
            | Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::INVAL
            | Errno::TOOBIG,
        ) => Failed::Refused(error),
        _ => Failed::Later(error),
    }
}

impl AccessSource for Sampler {
    fn watch(&mut self, tgids: &[u32], cpus: &CpuSet, every: Nanos) -> io::Result<()> {
        let watched: BTreeSet<u32> = tgids.iter().copied().collect();
        if watched != self.watched {
            // The pid of one that was not there may be another's by now.
            self.code.keep(|tgid| self.watched.contains(&tgid) && watched.contains(&tgid));
        }
        if watched.is_empty() {
            self.rings.close();
            self.watched = watched;
            return Ok(());
        }
        if self.watched.is_empty() {
            if self.code.is_sealed() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, SEALED));
            }
            // Without a thread the first sample waits for it.
            let _ = std::thread::Builder::new().spawn(block::unpack_decoder);
        }
        self.watched = watched;
        let now = Nanos(self.begun.elapsed().as_nanos() as u64);
        self.rings.keep(cpus, every, now).inspect_err(|_| self.watched.clear())
    }

    fn missed(&self) -> Option<Missed> {
        self.rings.missed()
    }

    fn drain(&mut self, accesses: &mut Vec<Access>) {
        for ring in self.rings.events() {
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
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// What the live machine's does, which this crate does not see.
    fn no_ioctl(_: std::os::fd::RawFd, _: Nanos) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn online() -> CpuSet {
        std::fs::read_to_string("/sys/devices/system/cpu/online")
            .map_or_else(|_| "0".into(), |text| text.trim().to_string())
            .parse()
            .unwrap()
    }

    /// Everybody's accesses here while a thread of ours goes round a buffer, until `enough`; and where that is.
    fn while_busy(
        sampler: &mut Sampler,
        enough: impl Fn(&[Access], &std::ops::Range<u64>) -> bool,
    ) -> (Vec<Access>, std::ops::Range<u64>) {
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
            let mut looks = 0;
            while !enough(&accesses, &range) && looks < 1000 {
                std::thread::sleep(std::time::Duration::from_millis(10));
                sampler.drain(&mut accesses);
                looks += 1;
            }
            stop.store(true, Ordering::Relaxed);
        });
        (accesses, range)
    }

    /// A thread of ours that goes round a buffer is found there, where this system lets us look.
    #[test]
    fn our_own_accesses_are_found_where_they_are() {
        let cpus = online();
        let mut sampler = Sampler::new(no_ioctl);
        let me = std::process::id();
        if let Err(error) = sampler.watch(&[me], &cpus, Nanos(1_000_000)) {
            eprintln!("skipped: perf events are refused here: {error}");
            return;
        }
        assert_eq!(sampler.missed(), None);
        let ours = |accesses: &[Access], range: &std::ops::Range<u64>| -> Vec<u64> {
            accesses.iter().map(|a| a.address).filter(|a| range.contains(a)).collect()
        };
        let (mut accesses, range) =
            while_busy(&mut sampler, |accesses, range| ours(accesses, range).len() >= 50);
        let ours = ours(&accesses, &range);
        assert!(ours.len() >= 50, "{} of {}", ours.len(), accesses.len());
        // Spread over it, not its first address again and again.
        let quarter = |address: &u64| (address - range.start) / (8 << 20);
        let quarters: BTreeSet<u64> = ours.iter().map(quarter).collect();
        assert!(quarters.len() >= 3, "{quarters:?}");
        assert!(accesses.iter().all(|access| access.tgid == me));
        sampler.watch(&[], &cpus, Nanos(1)).unwrap();
        accesses.clear();
        sampler.drain(&mut accesses);
        assert!(accesses.is_empty() && sampler.rings.events().count() == 0);
    }

    #[test]
    fn what_an_error_means_is_told_by_its_number() {
        let judged = |number| match judge(io::Error::from_raw_os_error(number)) {
            Failed::Offline => "offline",
            Failed::Later(_) => "later",
            Failed::Refused(_) => "refused",
        };
        // ENODEV, ENXIO.
        assert_eq!([19, 6].map(judged), ["offline"; 2]);
        // EPERM, EACCES, ENOENT, ENOSYS, EOPNOTSUPP, EINVAL, E2BIG.
        assert_eq!([1, 13, 2, 38, 95, 22, 7].map(judged), ["refused"; 7]);
        // EMFILE, ENFILE, ENOMEM, EAGAIN, EINTR, EBUSY, ENOSPC.
        assert_eq!([24, 23, 12, 11, 4, 16, 28].map(judged), ["later"; 7]);
    }

    /// An event that counts no more, as after its CPU was offline: to the kernel one that is disabled is as good.
    #[test]
    fn how_long_an_event_has_counted_tells_whether_it_does() {
        let mut perf = Perf { set_period: no_ioctl };
        let mut event = match perf.open(CpuId(0), Nanos(1_000_000_000)) {
            Ok(event) => event,
            Err(error) => return eprintln!("skipped: perf events are refused here: {error:?}"),
        };
        let mut counted = || perf.counted(&mut event).unwrap();
        let first = counted();
        assert!(counted() > first);
        event.as_counter_mut().disable().unwrap();
        let last = perf.counted(&mut event).unwrap();
        assert_eq!(perf.counted(&mut event).unwrap(), last);
    }

    /// Set by the test below for itself, as a program of its own.
    const FEW: &str = "NUMAHERD_TEST_FEW_FILES";

    /// In a program of its own: how many files may be open is of all its threads.
    #[test]
    fn where_few_files_may_be_open_more_are_allowed() {
        if std::env::var_os(FEW).is_some() {
            return with_few_files();
        }
        let name = "perf::tests::where_few_files_may_be_open_more_are_allowed";
        let script = format!("ulimit -Sn 40; exec \"$0\" --exact {name} --nocapture");
        let program = std::env::current_exe().unwrap();
        let output =
            Command::new("sh").args(["-c", &script]).arg(program).env(FEW, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    fn with_few_files() {
        let allowed = || rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        assert_eq!(allowed(), Some(40));
        let mut sampler = Sampler::new(no_ioctl);
        let me = std::process::id();
        let cpus: CpuSet = "0".parse().unwrap();
        let null = || std::fs::File::open("/dev/null");
        let mut files: Vec<_> = (0..30).map(|_| null().unwrap()).collect();
        if sampler.watch(&[me], &cpus, Nanos(1_000_000_000)).is_err() {
            return;
        }
        assert_eq!((allowed(), sampler.rings.events().count()), (Some(80), 1));
        // With none left at all.
        sampler.watch(&[], &cpus, Nanos(1_000_000_000)).unwrap();
        files.extend(std::iter::from_fn(|| null().ok()));
        sampler.watch(&[me], &cpus, Nanos(1_000_000_000)).unwrap();
        assert_eq!((allowed(), sampler.rings.events().count()), (Some(160), 1));
    }
}
