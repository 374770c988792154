//! Moving memory: by threads at once, by one call of the kernel's, and copying it.

use std::io;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use numaherd_linux::sys::mapping::Mapping;
use numaherd_linux::sys::pages::{self, PageStatus, Target};
use numaherd_linux::sys::{affinity, mempolicy};
use numaherd_mempolicy::{Mode, Request};
use numaherd_model::{CpuId, Nanos, NodeId, NodeSet};
use numaherd_sampling::{Stack, Stacks};

use super::gate::{Gate, Pass};

/// Of what is to be huge, so much, in per cent, has to be.
const HUGE_PERCENT: u64 = 90;

/// What is moved from where to where, and on which CPUs, in the order in which threads take them.
pub struct Mover {
    pub bytes: usize,
    pub from: NodeId,
    pub to: NodeId,
    pub cpus: Vec<CpuId>,
}

/// Pages of a size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Base(u64),
    Huge(u64),
}

impl Size {
    pub fn name(self) -> &'static str {
        match self {
            Size::Base(_) => "base",
            Size::Huge(_) => "huge",
        }
    }

    pub fn bytes(self) -> u64 {
        match self {
            Size::Base(bytes) | Size::Huge(bytes) => bytes,
        }
    }
}

/// What threads did together.
pub struct Done {
    /// Of all of them: the bytes that were done ÷ the time of the slowest.
    pub bytes_per_second: f64,
    /// Where they were in the kernel, if that was looked at.
    pub stacks: Vec<Stack>,
    /// Samples that were lost.
    pub lost: u64,
}

impl Mover {
    /// Gives this thread, and those that it starts, a policy: the kernel's balancing leaves memory of such alone,
    /// and would move some of what is measured.
    pub fn leave_balancing_out(&self) -> Result<()> {
        on_node(None)
    }

    /// Threads that each move memory of their own with `move_pages`, all at once.
    pub fn by_threads(&self, size: Size, threads: usize, look: Option<Nanos>) -> Result<Done> {
        let prepare = || {
            let memory = self.placed(size)?;
            let addresses = addresses(&memory, size.bytes());
            Ok((memory, addresses))
        };
        let act = |(_, addresses): &mut (Mapping, Vec<u64>)| -> Result<()> {
            let mut status = Vec::new();
            Ok(pages::migrate(0, addresses, Target::One(self.to), false, &mut status)?)
        };
        let count = |(memory, _): &(Mapping, Vec<u64>)| on(memory, self.to);
        self.together(threads, look, prepare, act, count)
    }

    /// As much memory, by one call of `migrate_pages`; bytes a second.
    pub fn whole(&self, size: Size, threads: usize) -> Result<f64> {
        let memory: Result<Vec<Mapping>> = (0..threads).map(|_| self.placed(size)).collect();
        let memory = memory?;
        on_node(None)?;
        let node = |node: NodeId| [node].into_iter().collect::<NodeSet>();
        let begin = Instant::now();
        mempolicy::migrate_process(0, &node(self.from), &node(self.to))?;
        let seconds = begin.elapsed().as_secs_f64();
        let bytes: Result<u64> = memory.iter().map(|memory| on(memory, self.to)).sum();
        Ok(bytes? as f64 / seconds.max(f64::MIN_POSITIVE))
    }

    /// As much memory, copied by as many threads; bytes a second.
    pub fn copied(&self, threads: usize) -> Result<f64> {
        let filled = |node| -> Result<Vec<u8>> {
            on_node(Some(node))?;
            Ok(vec![1; self.bytes])
        };
        let prepare = || Ok((filled(self.from)?, filled(self.to)?));
        let act = |(source, target): &mut (Vec<u8>, Vec<u8>)| {
            target.copy_from_slice(source);
            std::hint::black_box(target);
            Ok(())
        };
        let count = |(source, _): &(Vec<u8>, Vec<u8>)| Ok(source.len() as u64);
        Ok(self.together(threads, None, prepare, act, count)?.bytes_per_second)
    }

    /// Threads, each on a CPU of its own as far as there are so many, that get ready and then act at once. What
    /// they did is counted afterwards.
    fn together<T>(
        &self,
        threads: usize,
        look: Option<Nanos>,
        prepare: impl Fn() -> Result<T> + Sync,
        act: impl Fn(&mut T) -> Result<()> + Sync,
        count: impl Fn(&T) -> Result<u64> + Sync,
    ) -> Result<Done> {
        let gate = Gate::new(threads);
        let work = |nth: usize, pass: Pass<'_>| -> Result<(u64, f64, Vec<Stack>, u64)> {
            let cpu = self.cpus[nth % self.cpus.len()];
            let pinned = affinity::set(0, &[cpu].into_iter().collect());
            let ready = pinned.map_err(anyhow::Error::from).and_then(|()| {
                let ready = prepare()?;
                Ok((ready, look.map(Stacks::of_this_thread).transpose()?))
            });
            // Here and below also whoever has failed: the others wait for it.
            pass.wait();
            let acted = ready.and_then(|(mut ready, mut stacks)| {
                stacks.as_mut().map_or(Ok(()), Stacks::start)?;
                let begin = Instant::now();
                act(&mut ready)?;
                let seconds = begin.elapsed().as_secs_f64();
                if let Some(stacks) = &mut stacks {
                    stacks.stop();
                }
                Ok((ready, seconds, stacks))
            });
            // Nobody gives memory back while others act: they would wait for it.
            pass.wait();
            let (ready, seconds, stacks) = acted?;
            let (stacks, lost) = stacks.map(Stacks::finish).unwrap_or_default();
            Ok((count(&ready)?, seconds, stacks, lost))
        };
        let work = &work;
        let results: Result<Vec<_>> = thread::scope(|scope| {
            let start =
                |(nth, pass)| thread::Builder::new().spawn_scoped(scope, move || work(nth, pass));
            let passes: Vec<Pass<'_>> = (0..threads).map(|_| gate.pass()).collect();
            // Whatever comes of one, the others are waited for here: of one that panics and was not, the scope
            // panics.
            let workers: Vec<_> = passes.into_iter().enumerate().map(start).collect();
            let ended: Vec<Result<_>> = workers.into_iter().map(joined).collect();
            ended.into_iter().collect()
        });
        let results = results?;
        let bytes: u64 = results.iter().map(|(bytes, ..)| bytes).sum();
        let slowest =
            results.iter().map(|(_, seconds, ..)| *seconds).fold(f64::MIN_POSITIVE, f64::max);
        let lost = results.iter().map(|(.., lost)| lost).sum();
        let stacks = results.into_iter().flat_map(|(_, _, stacks, _)| stacks).collect();
        Ok(Done { bytes_per_second: bytes as f64 / slowest, stacks, lost })
    }

    /// Memory, written, all of it on the node it is to leave; huge pages that it is to have it has.
    fn placed(&self, size: Size) -> Result<Mapping> {
        on_node(Some(self.from))?;
        // Whole huge pages, wherever the mapping begins.
        let step = size.bytes() as usize;
        let more = if matches!(size, Size::Huge(_)) { step } else { 0 };
        let len = self.bytes.next_multiple_of(step);
        let mut memory = Mapping::private(len + more)?;
        match size {
            Size::Huge(_) => memory.with_huge_pages(),
            Size::Base(_) => memory.without_huge_pages(),
        }
        let first = (memory.start().next_multiple_of(step as u64) - memory.start()) as usize;
        // Written without being read: the huge page of zeros that reading gives is split by a write (before Linux
        // 6.13).
        memory.fill(first..first + len, 1);
        let there = on(&memory, self.from)?;
        if there < len as u64 {
            bail!(
                "only {} of {} MiB came to node {}: give less memory (-m) or fewer threads (-t)",
                there >> 20,
                len >> 20,
                self.from
            );
        }
        if let Size::Huge(_) = size {
            let huge = huge_bytes(&memory)?;
            if huge < len as u64 / 100 * HUGE_PERCENT {
                bail!(
                    "only {} of {} MiB are in huge pages: memory of node {} is in pieces",
                    huge >> 20,
                    len >> 20,
                    self.from
                );
            }
        }
        Ok(memory)
    }
}

fn joined<T>(started: io::Result<thread::ScopedJoinHandle<'_, Result<T>>>) -> Result<T> {
    let worker = started.context("a thread that moves memory cannot be started")?;
    worker.join().unwrap_or_else(|_| bail!("a thread that moves memory panicked"))
}

/// Has this thread's memory come from a node, or from wherever it runs.
fn on_node(node: Option<NodeId>) -> Result<()> {
    Ok(mempolicy::set(&Request::plain(Mode::Preferred, node.into_iter().collect()))?)
}

/// Where its pages begin.
fn addresses(memory: &Mapping, page: u64) -> Vec<u64> {
    let (start, end) = (memory.start(), memory.start() + memory.len() as u64);
    (start.next_multiple_of(page)..end - end % page).step_by(page as usize).collect()
}

/// Bytes of it that are on a node.
fn on(memory: &Mapping, node: NodeId) -> Result<u64> {
    let page = pages::size().0;
    let mut status = Vec::new();
    pages::query(0, &addresses(memory, page), &mut status)?;
    let there = status.iter().filter(|raw| PageStatus::from_raw(**raw) == PageStatus::On(node));
    Ok(there.count() as u64 * page)
}

/// Bytes of it in transparent huge pages.
fn huge_bytes(memory: &Mapping) -> Result<u64> {
    let smaps =
        std::fs::read_to_string("/proc/self/smaps").context("cannot read /proc/self/smaps")?;
    Ok(huge_between(&smaps, memory.start(), memory.start() + memory.len() as u64))
}

/// Bytes in huge pages of the mappings that lie within. A mapping may have been merged with its neighbours, which are
/// as huge: then it begins before, or ends behind.
fn huge_between(smaps: &str, start: u64, end: u64) -> u64 {
    let (mut within, mut kib) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|word| word.split_once('-'));
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        if let Some((begins, ends)) = range.and_then(|(b, e)| hex(b).zip(hex(e))) {
            within = begins < end && start < ends;
        } else if within && line.starts_with("AnonHugePages:") {
            kib += words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    kib << 10
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn huge_pages_are_counted_of_the_mappings_within() {
        let smaps = "1000-2000 rw-p 0 00:00 0 \nSize: 4 kB\nAnonHugePages:      2048 kB\n\
                     a000-b000 rw-p 0 00:00 0 \nAnonHugePages:      4096 kB\n";
        assert_eq!(huge_between(smaps, 0xa000, 0xb000), 4 << 20);
        assert_eq!(huge_between(smaps, 0x1800, 0xa800), 6 << 20);
        assert_eq!(huge_between(smaps, 0x2000, 0xa000), 0);
    }

    #[test]
    fn pages_are_whole_ones_within_the_mapping() {
        let memory = Mapping::private(5 << 20).unwrap();
        let huge = addresses(&memory, 2 << 20);
        assert!((1..=2).contains(&huge.len()), "{huge:x?}");
        assert!(huge.iter().all(|at| at % (2 << 20) == 0 && *at >= memory.start()));
        assert!(huge.iter().all(|at| at + (2 << 20) <= memory.start() + (5 << 20)));
        assert_eq!(addresses(&memory, pages::size().0).len() as u64, (5 << 20) / pages::size().0);
    }

    #[test]
    fn one_that_fails_does_not_leave_the_others_waiting() {
        let cpus: Vec<CpuId> = affinity::get(0).unwrap().iter().collect();
        let mover = Mover { bytes: 4096, from: NodeId(0), to: NodeId(1), cpus };
        let told = |fails: fn() -> Result<()>| {
            let first = AtomicBool::new(true);
            let prepare = || if first.swap(false, Ordering::Relaxed) { fails() } else { Ok(()) };
            let told = mover.together(3, None, prepare, |()| Ok(()), |()| Ok(1));
            told.err().unwrap().to_string()
        };
        assert_eq!(told(|| bail!("not this one")), "not this one");
        assert_eq!(told(|| panic!("nor this one")), "a thread that moves memory panicked");
        let all = mover.together(3, None, || panic!("nor any"), |()| Ok(()), |()| Ok(1));
        assert_eq!(all.err().unwrap().to_string(), "a thread that moves memory panicked");
        let done = mover.together(3, None, || Ok(()), |()| Ok(()), |()| Ok(5)).unwrap();
        assert!(done.bytes_per_second > 0.0 && done.stacks.is_empty() && done.lost == 0);
    }
}
