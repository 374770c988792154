//! One vCPU's account: what it executed, what that cost, and whether it must sleep.
//!
//! Owns the hot path: [`Vcpu::block`] runs for every translation block, [`Vcpu::access`] for
//! every memory access. Units: virtual time in guest ps. Invariants:
//! - all but the counters is touched by the vCPU's own thread only ([`Vcpu::core`]);
//! - counters have one writer, the vCPU's thread, and may be read by any (snapshots);
//! - `core.epoch` is 0 while nothing is charged. It follows the machine's epoch at the next
//!   block; each time charging starts is a new epoch, which starts with an empty cache at the
//!   clock's present time.
//!
//! The filter in front of the cache: an access to the same *virtual* line as the one before is
//! a hit. It is exact, because between the two no other line of this CPU's cache was touched,
//! a change of the translation in between executes an instruction that clears the filter (see
//! [`crate::translation`]), and what other CPUs do to the line shows in its word of the
//! directory, which is looked at.
//!
//! A core's threads share its speed: while another thread of it runs, instructions take longer.
//! Who runs is looked at when the clock is, about once in a quantum.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock;
use crate::config::Config;
use crate::machine::Machine;
use crate::memory::{Access, Port, Source};
use crate::nodemap::Touches;
use crate::pace::{self, Verdict};
use crate::stats::CpuCounts;
use crate::translation::{Frame, Translations};

/// `core.epoch` of a vCPU whose touches are counted to find the node map.
pub const LEARNING: u64 = u64::MAX;
/// Kernel addresses are above. Learning leaves them out: what the kernel does for the agent
/// touches its own memory, wherever that is.
const USER_END: u64 = 1 << 47;

/// A counter with one writer: adding needs no locked instruction.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds; only the owner may.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    /// The value now.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it; only the owner may.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Where an access went, as QEMU tells.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Memory of a node; the translation may be remembered.
    Memory(Frame),
    /// RAM that no node's range holds: ROM, video memory, or a wrong node map.
    Stray {
        /// Its key.
        key: u64,
    },
    /// A device. Never cached.
    Device,
}

/// What only the vCPU's own thread touches.
struct Core {
    epoch: u64,
    check_ps: u64,
    line_shift: u32,
    /// What an access to a device costs: a local miss.
    device_ps: u64,
    own_node: usize,
    /// Time of an instruction now ÷ that of a thread that has its core alone, with 16 fractional
    /// bits.
    slowness_q16: u64,
    translations: Translations,
    port: Port,
    touches: Option<Box<Touches>>,
    timers_sharp: bool,
}

/// The account. Aligned so that no two share a cache line, prefetched neighbours included.
#[repr(align(128))]
pub struct Vcpu {
    core: UnsafeCell<Core>,
    instructions: Count,
    accesses: Count,
    /// Guest time this vCPU has used.
    virtual_ps: Count,
    misses: Count,
    llc_hits: Count,
    transfers: Count,
    write_backs: Count,
    queued_ps: Count,
    stalled_ps: Count,
    strays: Count,
    served: Box<[Count]>,
    late_ps: Count,
    slept_ps: Count,
    idle_ps: Count,
    /// What the machine's stopwatch of charging showed when it went idle.
    idle_since_ps: Count,
    is_idle: AtomicBool,
    /// Whether `core.epoch` stands for a period of charging, for other threads.
    is_charged: AtomicBool,
}

// SAFETY: `core` is only reached through `core()`, whose contract is the vCPU's own thread;
// everything else is atomic.
unsafe impl Sync for Vcpu {}
// SAFETY: nothing in it is bound to the thread that made it.
unsafe impl Send for Vcpu {}

impl Vcpu {
    /// The account of vCPU `index`.
    #[must_use]
    pub fn new(config: &Config, index: usize) -> Self {
        let own_node = config.cpu_node[index];
        let core = Core {
            epoch: 0,
            check_ps: 0,
            line_shift: config.line_bytes.ilog2(),
            device_ps: config.latency_ns[own_node][own_node] * 1000,
            own_node,
            slowness_q16: 1 << 16,
            translations: Translations::default(),
            port: Port::new(config, index),
            touches: None,
            timers_sharp: false,
        };
        Vcpu {
            core: UnsafeCell::new(core),
            instructions: Count::default(),
            accesses: Count::default(),
            virtual_ps: Count::default(),
            misses: Count::default(),
            llc_hits: Count::default(),
            transfers: Count::default(),
            write_backs: Count::default(),
            queued_ps: Count::default(),
            stalled_ps: Count::default(),
            strays: Count::default(),
            served: config.node_bytes.iter().map(|_| Count::default()).collect(),
            late_ps: Count::default(),
            slept_ps: Count::default(),
            idle_ps: Count::default(),
            idle_since_ps: Count::default(),
            is_idle: AtomicBool::new(false),
            is_charged: AtomicBool::new(false),
        }
    }

    /// # Safety
    /// Only from the vCPU's own thread, and never while another such borrow lives: the public
    /// methods do not call one another while they hold it.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    unsafe fn core(&self) -> &mut Core {
        // SAFETY: exclusive by the caller's promise.
        unsafe { &mut *self.core.get() }
    }

    /// A translation block of `instructions` that cost `cost_ps` begins.
    ///
    /// # Safety
    /// Only from the vCPU's own thread.
    #[inline(always)]
    pub unsafe fn block(&self, machine: &Machine, index: usize, instructions: u64, cost_ps: u64) {
        // SAFETY: own thread; this is the only borrow.
        let core = unsafe { self.core() };
        let epoch = machine.epoch();
        if core.epoch != epoch && !self.follow(core, machine, index, epoch) || core.epoch == 0 {
            return;
        }
        self.instructions.add(instructions);
        self.virtual_ps.add((cost_ps * core.slowness_q16) >> 16);
        if self.virtual_ps.get() >= core.check_ps {
            self.keep_pace(core, machine, index);
        }
    }

    /// Charging was switched, or this vCPU is learning. Whether the block is to be charged.
    #[cold]
    fn follow(&self, core: &mut Core, machine: &Machine, index: usize, epoch: u64) -> bool {
        if core.epoch == LEARNING {
            return false;
        }
        let now_ps = machine.now_ps();
        if core.epoch != 0 {
            self.late_ps.add(pace::lag_ps(self.virtual_ps.get(), now_ps));
        }
        self.virtual_ps.set(now_ps);
        core.check_ps = 0;
        core.translations.clear();
        core.port.clear();
        core.epoch = epoch;
        self.is_charged.store(epoch != 0, Ordering::Relaxed);
        machine.publish(index, self, now_ps);
        epoch != 0
    }

    #[cold]
    #[inline(never)]
    fn keep_pace(&self, core: &mut Core, machine: &Machine, index: usize) {
        let mut now_ps = machine.now_ps();
        let before_ps = now_ps;
        core.check_ps = loop {
            match machine.pace().judge(self.virtual_ps.get(), now_ps) {
                Verdict::RunUntil { virtual_ps } => break virtual_ps,
                Verdict::SleepUntil { guest_ps } => {
                    if !core.timers_sharp {
                        clock::sharpen_timers();
                        core.timers_sharp = true;
                    }
                    clock::sleep_until(machine.real_ns(guest_ps));
                    now_ps = machine.now_ps();
                }
            }
        };
        self.slept_ps.add(now_ps - before_ps);
        core.slowness_q16 = (machine.slowness_percent(index) << 16) / 100;
        machine.publish(index, self, now_ps);
    }

    /// Whether it runs rather than halts, for other threads.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.is_idle.load(Ordering::Relaxed)
    }

    /// The vCPU accesses `virtual_address`; `resolve` asks QEMU where that is, `is_store` what
    /// kind of access it is.
    ///
    /// # Safety
    /// Only from the vCPU's own thread.
    #[inline(always)]
    pub unsafe fn access(
        &self,
        machine: &Machine,
        virtual_address: u64,
        is_store: impl Fn() -> bool,
        resolve: impl FnOnce() -> Target,
    ) {
        // SAFETY: own thread; this is the only borrow.
        let core = unsafe { self.core() };
        let memory = machine.memory();
        // While nothing is charged no line is the last, so this needs no look at the epoch.
        if core.port.is_last(virtual_address >> core.line_shift)
            && core.port.is_free(memory, &is_store)
        {
            self.accesses.add(1);
            return;
        }
        if core.epoch == 0 {
            return;
        }
        if let Some(frame) = core.translations.find(virtual_address) {
            self.access_line(core, machine, virtual_address, is_store(), frame);
        } else {
            self.access_unknown(core, machine, virtual_address, is_store(), resolve());
        }
    }

    #[cold]
    fn access_unknown(
        &self,
        core: &mut Core,
        machine: &Machine,
        virtual_address: u64,
        is_store: bool,
        target: Target,
    ) {
        match target {
            Target::Memory(frame) => {
                core.translations.insert(virtual_address, frame);
                self.access_line(core, machine, virtual_address, is_store, frame);
            }
            Target::Stray { key } => {
                let frame = Frame::new(key, core.own_node);
                let misses = self.misses.get();
                self.access_line(core, machine, virtual_address, is_store, frame);
                self.strays.add(self.misses.get() - misses);
            }
            Target::Device if core.epoch != LEARNING => {
                self.accesses.add(1);
                self.virtual_ps.add(core.device_ps);
                self.stalled_ps.add(core.device_ps);
                self.count(Source::Memory, core.own_node);
            }
            Target::Device => {}
        }
    }

    #[inline(always)]
    fn access_line(
        &self,
        core: &mut Core,
        machine: &Machine,
        virtual_address: u64,
        is_store: bool,
        frame: Frame,
    ) {
        let key = frame.key(virtual_address);
        let line = key >> core.line_shift;
        if core.epoch == LEARNING {
            if !core.port.learn(line) && virtual_address < USER_END {
                core.touches.get_or_insert_default().count(key);
            }
            return;
        }
        let virtual_line = virtual_address >> core.line_shift;
        let access = Access { line, virtual_line, node: frame.node(), is_store };
        let served = core.port.access(machine.memory(), access, self.virtual_ps.get());
        self.accesses.add(1);
        if served.source != Source::Own {
            self.virtual_ps.add(served.cost_ps);
            self.stalled_ps.add(served.cost_ps);
            self.queued_ps.add(served.queued_ps);
            self.write_backs.set(core.port.write_backs);
            self.count(served.source, frame.node());
        }
    }

    #[inline(always)]
    fn count(&self, source: Source, node: usize) {
        if matches!(source, Source::Memory | Source::Transfer) {
            self.misses.add(1);
            self.served[node].add(1);
        }
        match source {
            Source::LastLevel => self.llc_hits.add(1),
            Source::Transfer | Source::Upgrade => self.transfers.add(1),
            Source::Memory | Source::Own => {}
        }
    }

    /// The vCPU executes an instruction after which it may see other translations.
    ///
    /// # Safety
    /// Only from the vCPU's own thread.
    pub unsafe fn drop_translations(&self) {
        // SAFETY: own thread; this is the only borrow.
        let core = unsafe { self.core() };
        core.port.forget_last();
        core.translations.clear();
    }

    /// The vCPU halts. Lag that it has now is never made good.
    ///
    /// # Safety
    /// Only from the vCPU's own thread.
    pub unsafe fn idle(&self, machine: &Machine, index: usize) {
        let now_ps = machine.now_ps();
        self.idle_since_ps.set(machine.charged_ps(now_ps));
        self.is_idle.store(true, Ordering::Relaxed);
        // SAFETY: own thread; this is the only borrow.
        if matches!(unsafe { self.core() }.epoch, 0 | LEARNING) {
            return;
        }
        let lag_ps = pace::lag_ps(self.virtual_ps.get(), now_ps);
        self.late_ps.add(lag_ps);
        self.virtual_ps.add(lag_ps);
        machine.publish(index, self, now_ps);
    }

    /// The vCPU wakes. The time it slept through earns it nothing.
    ///
    /// # Safety
    /// Only from the vCPU's own thread.
    pub unsafe fn resume(&self, machine: &Machine, index: usize) {
        let now_ps = machine.now_ps();
        let was_idle = self.is_idle.swap(false, Ordering::Relaxed);
        if !was_idle {
            return;
        }
        self.idle_ps.add(self.idle_time_ps(machine.charged_ps(now_ps)));
        // SAFETY: own thread; this is the only borrow.
        if matches!(unsafe { self.core() }.epoch, 0 | LEARNING) {
            return; // if it went idle before charging was on, its time starts with its next block
        }
        self.virtual_ps.set(self.virtual_ps.get().max(now_ps));
        machine.publish(index, self, now_ps);
    }

    fn idle_time_ps(&self, charged_ps: u64) -> u64 {
        charged_ps.saturating_sub(self.idle_since_ps.get())
    }

    /// From now on this vCPU's touches are counted, or no longer: what was counted so far.
    ///
    /// # Safety
    /// Only from the vCPU's own thread.
    pub unsafe fn learn(&self, on: bool) -> Option<Box<Touches>> {
        // SAFETY: own thread; this is the only borrow.
        let core = unsafe { self.core() };
        core.epoch = if on { LEARNING } else { 0 };
        core.translations.clear();
        core.port.clear();
        std::mem::replace(&mut core.touches, on.then(Box::default))
    }

    /// The touches from here on are of the next node's memory. Whether this vCPU is learning.
    ///
    /// # Safety
    /// Only from the vCPU's own thread.
    pub unsafe fn learn_next(&self) -> bool {
        // SAFETY: own thread; this is the only borrow.
        let core = unsafe { self.core() };
        // Empty, so that a small buffer's lines are misses for each node.
        core.port.clear();
        core.touches.as_mut().map(|touches| touches.next_node()).is_some()
    }

    /// What it has counted up to `now_ps`, when charging has been on for
    /// `charged_ps` in all. Any thread may ask.
    #[must_use]
    pub fn counts(&self, now_ps: u64, charged_ps: u64) -> CpuCounts {
        let is_idle = self.is_idle.load(Ordering::Relaxed);
        let idle_now_ps = match is_idle {
            true => self.idle_time_ps(charged_ps),
            false => 0,
        };
        let lag_ps = match self.is_charged.load(Ordering::Relaxed) && !is_idle {
            true => pace::lag_ps(self.virtual_ps.get(), now_ps),
            false => 0,
        };
        CpuCounts {
            instructions: self.instructions.get(),
            accesses: self.accesses.get(),
            misses: self.misses.get(),
            late_ns: self.late_ps.get() / 1000,
            slept_ns: self.slept_ps.get() / 1000,
            idle_ns: (self.idle_ps.get() + idle_now_ps) / 1000,
            lag_ns: lag_ps / 1000,
            llc_hits: self.llc_hits.get(),
            transfers: self.transfers.get(),
            write_backs: self.write_backs.get(),
            queued_ns: self.queued_ps.get() / 1000,
            stalled_ns: self.stalled_ps.get() / 1000,
        }
    }

    /// Misses by the node that served them.
    pub fn served(&self) -> impl Iterator<Item = u64> + '_ {
        self.served.iter().map(Count::get)
    }

    /// Misses on RAM that no node's range holds.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays.get()
    }
}

#[cfg(test)]
#[path = "vcpu/tests.rs"]
mod tests;
