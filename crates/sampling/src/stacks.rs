//! Where a thread spends its time in the kernel: its stacks there, while it runs and while it does not.
//!
//! Two perf events of the thread itself. One is a clock of its CPU time, whose samples have the kernel's stack. The
//! other counts its switches: each has the stack that gave the CPU up, and a record tells when the thread had one
//! again. So what runs is sampled, and what waits is measured whole.
//!
//! Where interrupts are off no clock comes: that time is found where they are let in again. Time in the program
//! itself is not in it. Interfaces: `perf_event_open(2)`.

use std::collections::BTreeMap;
use std::io;

use numaherd_model::Nanos;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag};

use crate::{How, Stack};

/// Bytes of samples until they are drained: some six thousand, six seconds of one a millisecond.
const CLOCK_BYTES: usize = 2 << 20;
/// Likewise of switches.
const SWITCH_BYTES: usize = 512 << 10;
/// `PERF_RECORD_SWITCH`, and of its `misc`: the thread gave up its CPU; it was taken from it.
const SWITCH: u32 = 14;
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
/// From here on a stack's entries are no addresses, but say of whom the next ones are.
const CONTEXTS: u64 = u64::MAX - 4094;

/// Of one thread, from [`Stacks::start`] to [`Stacks::stop`].
pub struct Stacks {
    clock: perf_event::Sampler,
    switches: perf_event::Sampler,
    every: Nanos,
}

impl std::fmt::Debug for Stacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stacks").field("every", &self.every).finish_non_exhaustive()
    }
}

impl Stacks {
    /// Of the calling thread, not yet started; then one sample each so much of its CPU time. Whoever shares its
    /// memory may have to wait while this is made and while it is dropped, since it maps memory.
    ///
    /// # Errors
    /// The kernel refuses: without CAP_PERFMON it shows its stacks to nobody, as mostly configured.
    pub fn of_this_thread(every: Nanos) -> io::Result<Stacks> {
        let parts = SampleFlag::TID | SampleFlag::TIME | SampleFlag::CALLCHAIN;
        let event = |event, period| {
            let mut builder = Builder::new(event);
            builder
                .observe_self()
                .any_cpu()
                .sample_period(period)
                .sample(parts)
                .clockid(Clock::MONOTONIC)
                .include_kernel()
                .exclude_user(true)
                .exclude_callchain_user(true)
                .exclude_hv(true)
                .enabled(false);
            builder
        };
        let switches = event(Software::CONTEXT_SWITCHES, 1)
            .context_switch(true)
            .sample_id_all(true)
            .build()?
            .sampled(SWITCH_BYTES)?;
        let clock = event(Software::CPU_CLOCK, every.0.max(1)).build()?.sampled(CLOCK_BYTES)?;
        Ok(Stacks { clock, switches, every })
    }

    /// From now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start(&mut self) -> io::Result<()> {
        self.switches.enable()?;
        self.clock.enable()
    }

    /// Until now.
    pub fn stop(&mut self) {
        // One that cannot be stopped sees our own doing, too.
        let _ = self.clock.disable();
        let _ = self.switches.disable();
    }

    /// What was seen, and how many samples were lost for want of room.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Stack>, u64) {
        self.stop();
        let mut found = Found::default();
        while let Some(record) = self.clock.next_record() {
            match record.parse_record() {
                Ok(Record::Sample(sample)) => {
                    found.add(How::Runs, kernels(sample.callchain()), self.every.0);
                }
                other => found.lost += lost(&other),
            }
        }
        let mut left: Option<(u64, Vec<u64>, How)> = None;
        while let Some(record) = self.switches.next_record() {
            if record.ty() == SWITCH {
                let misc = record.misc();
                if misc & SWITCH_OUT == 0 {
                    let since = left.take().zip(time_of_switch(&record.to_contiguous()));
                    if let Some(((then, stack, how), now)) = since {
                        found.add(how, stack, now.saturating_sub(then));
                    }
                } else if let Some((_, _, how)) = left.as_mut()
                    && misc & SWITCH_OUT_PREEMPT != 0
                {
                    *how = How::Queues;
                }
                continue;
            }
            match record.parse_record() {
                Ok(Record::Sample(sample)) => {
                    let stack = kernels(sample.callchain());
                    left = sample.time().map(|time| (time, stack, How::Waits));
                }
                other => found.lost += lost(&other),
            }
        }
        (found.stacks(), found.lost)
    }
}

/// Time and visits by state and stack.
#[derive(Default)]
struct Found {
    by_stack: BTreeMap<(How, Vec<u64>), (u64, u64)>,
    lost: u64,
}

impl Found {
    fn add(&mut self, how: How, stack: Vec<u64>, nanos: u64) {
        let (time, times) = self.by_stack.entry((how, stack)).or_default();
        *time += nanos;
        *times += 1;
    }

    fn stacks(&mut self) -> Vec<Stack> {
        let all = std::mem::take(&mut self.by_stack).into_iter();
        let stack =
            |((how, frames), (nanos, times))| Stack { how, frames, time: Nanos(nanos), times };
        all.map(stack).collect()
    }
}

fn lost<E>(record: &Result<Record<'_>, E>) -> u64 {
    match record {
        Ok(Record::Lost(lost)) => lost.lost,
        Ok(Record::LostSamples(lost)) => lost.lost,
        _ => 0,
    }
}

/// The kernel's part of a call chain, outermost first.
fn kernels(chain: Option<&[u64]>) -> Vec<u64> {
    let addresses = chain.unwrap_or_default().iter().copied();
    let mut frames: Vec<u64> = addresses.filter(|address| *address < CONTEXTS).collect();
    frames.reverse();
    frames
}

/// The time in the body of a record of a switch: pid and tid stand before it.
fn time_of_switch(body: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(body.get(8..16)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn what_sleeps_waits_in_the_kernel_as_long_as_it_sleeps() {
        let mut stacks = match Stacks::of_this_thread(Nanos(1_000_000)) {
            Ok(stacks) => stacks,
            Err(error) => {
                eprintln!("skipped: perf events are refused here: {error}");
                return;
            }
        };
        let begin = Instant::now();
        stacks.start().unwrap();
        (0..5).for_each(|_| std::thread::sleep(Duration::from_millis(20)));
        let took = begin.elapsed().as_nanos() as u64;
        let (found, lost) = stacks.finish();
        assert_eq!(lost, 0);
        let waits: Vec<&Stack> = found.iter().filter(|stack| stack.how == How::Waits).collect();
        let (time, times) =
            waits.iter().fold((0, 0), |(time, times), s| (time + s.time.0, times + s.times));
        assert!(times >= 5, "{found:?}");
        assert!((100_000_000..=took).contains(&time), "{time} of {took}");
        assert!(waits.iter().all(|stack| stack.frames.len() > 2), "{found:?}");
    }

    #[test]
    fn what_works_in_the_kernel_is_found_there_about_as_long_as_it_works() {
        let Ok(mut stacks) = Stacks::of_this_thread(Nanos(1_000_000)) else {
            eprintln!("skipped: perf events are refused here");
            return;
        };
        // Zeros are made in the kernel.
        let mut zeros = std::fs::File::open("/dev/zero").unwrap();
        let mut buffer = vec![0; 64 << 20];
        let begin = Instant::now();
        stacks.start().unwrap();
        while begin.elapsed() < Duration::from_millis(300) {
            std::io::Read::read_exact(&mut zeros, &mut buffer).unwrap();
        }
        let took = begin.elapsed().as_nanos() as u64;
        let (found, _) = stacks.finish();
        let time = |how| found.iter().filter(|s| s.how == how).map(|s| s.time.0).sum::<u64>();
        assert!(time(How::Runs) > 0, "{found:?}");
        let all = [How::Runs, How::Waits, How::Queues].map(time).iter().sum::<u64>();
        assert!(all <= took + took / 10, "{all} of {took}");
        let most = found.iter().filter(|stack| stack.how == How::Runs).max_by_key(|s| s.time.0);
        assert!(most.unwrap().frames.len() > 2, "{found:?}");
    }

    #[test]
    fn a_chain_is_turned_round_without_its_marks() {
        let kernel = u64::MAX - 127;
        assert_eq!(kernels(Some(&[kernel, 3, 2, 1])), [1, 2, 3]);
        assert_eq!(kernels(None), [] as [u64; 0]);
        assert_eq!(time_of_switch(&[0; 8]), None);
        let body = [[0; 8], 7_u64.to_ne_bytes()].concat();
        assert_eq!(time_of_switch(&body), Some(7));
    }
}
