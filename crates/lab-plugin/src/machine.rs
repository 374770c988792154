//! The emulated machine as a whole: its vCPUs, the switches, and what the markers do.
//!
//! Owns the epoch (0 while nothing is charged, else the number of the present period of
//! charging), the node map and the stats file. Invariant: charging is on only with a node map;
//! the map does not change while it is on.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::clock::{self, Dilation};
use crate::config::{Config, Smt};
use crate::layout::{Layout, header};
use crate::marker::Marker;
use crate::memory::Memory;
use crate::nodemap::{self, MemoryLayout, NodeMap};
use crate::pace::Pace;
use crate::stats::Stats;
use crate::stopwatch::Stopwatch;
use crate::translation::Frame;
use crate::vcpu::{Target, Vcpu};

/// Values of the stats file's node map word; 0, as the file begins, is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum MapState {
    Learning = 1,
    Found = 2,
    Failed = 3,
}

/// The machine.
pub struct Machine {
    epoch: AtomicU64,
    charged: Stopwatch,
    dilation: Dilation,
    pace: Pace,
    instruction_ps: u64,
    vcpus: Vec<Vcpu>,
    smt: Smt,
    memory: Memory,
    node_map: OnceLock<NodeMap>,
    stats: Stats,
    node_bytes: Vec<u64>,
    below_4g_bytes: u64,
    /// Periods of charging so far. Held while a marker is obeyed: one at a time.
    periods: Mutex<u64>,
}

/// Tells whoever watches QEMU's standard error.
pub fn complain(text: &str) {
    eprintln!("numaherd_latency: {text}");
}

impl Machine {
    /// A machine as configured, nothing charged yet.
    ///
    /// # Errors
    /// If the stats file cannot be made.
    pub fn new(config: &Config) -> io::Result<Self> {
        let nodes = config.node_bytes.len();
        let layout = Layout { cpus: config.cpu_node.len(), nodes };
        let machine = Machine {
            epoch: AtomicU64::new(0),
            dilation: Dilation::new(clock::real_now_ns(), config.clock_hz_ratio),
            pace: Pace { quantum_ps: config.quantum_ns * 1000 },
            instruction_ps: config.instruction_ps,
            vcpus: (0..layout.cpus).map(|cpu| Vcpu::new(config, cpu)).collect(),
            smt: config.smt,
            memory: Memory::new(config),
            node_map: OnceLock::new(),
            stats: Stats::create(&config.stats, layout, config.line_bytes)?,
            node_bytes: config.node_bytes.clone(),
            below_4g_bytes: config.below_4g_bytes,
            periods: Mutex::default(),
            charged: Stopwatch::default(),
        };
        if nodes == 1 {
            // Nothing to tell apart: all memory is node 0's.
            machine.take_map(MemoryLayout::Cumulative, NodeMap::whole());
        }
        Ok(machine)
    }

    /// The present period of charging; 0 if nothing is charged.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Time during which charging was on, up to `now_ps`.
    #[must_use]
    pub fn charged_ps(&self, now_ps: u64) -> u64 {
        self.charged.shows_ps(now_ps)
    }

    /// The vCPU of that index, if it was configured.
    #[inline(always)]
    pub fn vcpu(&self, index: usize) -> Option<&Vcpu> {
        self.vcpus.get(index)
    }

    /// Number of vCPUs configured.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.vcpus.len()
    }

    /// Cost of one instruction.
    #[must_use]
    pub fn instruction_ps(&self) -> u64 {
        self.instruction_ps
    }

    /// What all vCPUs share of caches, memory and links.
    #[inline(always)]
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Time of an instruction of this vCPU now, in percent of that of a vCPU whose core has no
    /// other thread running.
    #[must_use]
    pub fn slowness_percent(&self, index: usize) -> u64 {
        let threads = self.smt.threads_per_core;
        let first = index / threads * threads;
        let mut siblings = (first..first + threads).filter(|&sibling| sibling != index);
        match siblings.any(|sibling| self.vcpu(sibling).is_some_and(Vcpu::is_busy)) {
            true => self.smt.busy_sibling_percent,
            false => 100,
        }
    }

    /// The throttle's rule.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Guest time now, since the plugin was installed.
    #[must_use]
    pub fn now_ps(&self) -> u64 {
        self.dilation.guest_ps(clock::real_now_ns())
    }

    /// When, on the host's clock, guest time reaches `guest_ps`.
    #[must_use]
    pub fn real_ns(&self, guest_ps: u64) -> u64 {
        self.dilation.real_ns(guest_ps)
    }

    /// What the RAM with this key is.
    #[must_use]
    pub fn target(&self, key: u64) -> Target {
        match self.node_map.get() {
            // While learning, all that matters is the key.
            None => Target::Memory(Frame::new(key, 0)),
            Some(map) => match map.node(key) {
                Some(node) => Target::Memory(Frame::new(key, node)),
                None => Target::Stray { key },
            },
        }
    }

    /// Brings a vCPU's block of the stats file up to date. Called by that vCPU.
    pub fn publish(&self, index: usize, vcpu: &Vcpu, now_ps: u64) {
        self.stats.publish(index, &vcpu.counts(now_ps, self.charged_ps(now_ps)), vcpu.served());
    }

    /// vCPU `index` executes a marker.
    ///
    /// # Safety
    /// Only from that vCPU's own thread.
    pub unsafe fn obey(&self, index: usize, marker: Marker) {
        let Some(vcpu) = self.vcpu(index) else { return };
        let mut periods = self.periods.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match marker {
            Marker::ChargingOn => self.start_charging(&mut periods),
            Marker::ChargingOff => self.stop_charging(),
            Marker::Snapshot { tag } => self.snapshot(tag),
            Marker::MapBegin if self.epoch() != 0 => {
                complain("the node map is not learnt while charging is on")
            }
            Marker::MapBegin if self.node_map.get().is_some() => {} // found before, memory does not move
            Marker::MapBegin => {
                // SAFETY: own thread, the caller's promise.
                unsafe { vcpu.learn(true) };
                self.set_map_state(MapState::Learning);
            }
            // SAFETY: own thread, the caller's promise.
            Marker::MapNext => drop(unsafe { vcpu.learn_next() }),
            Marker::MapEnd if self.node_map.get().is_some() => {}
            Marker::MapEnd => {
                // SAFETY: own thread, the caller's promise.
                let touches = unsafe { vcpu.learn(false) }.unwrap_or_default();
                match nodemap::find(&touches, &self.node_bytes, self.below_4g_bytes) {
                    Ok((layout, map)) => self.take_map(layout, map),
                    Err(error) => {
                        self.set_map_state(MapState::Failed);
                        complain(&error.to_string());
                    }
                }
            }
        }
    }

    fn set_map_state(&self, state: MapState) {
        self.stats.set(header::MAP_STATE, state as u64);
    }

    fn take_map(&self, layout: MemoryLayout, map: NodeMap) {
        if self.node_map.set(map).is_ok() {
            self.stats.set(header::MAP_LAYOUT, layout as u64);
            self.set_map_state(MapState::Found);
        }
    }

    fn start_charging(&self, periods: &mut u64) {
        if self.epoch() != 0 {
            return;
        }
        if self.node_map.get().is_none() {
            self.set_map_state(MapState::Failed);
            complain(
                "charging does not start: which memory belongs to which node was not found out",
            );
            return;
        }
        if *periods > 0 {
            self.memory.clear();
        }
        *periods += 1;
        self.charged.start(self.now_ps());
        self.epoch.store(*periods, Ordering::Relaxed);
        self.stats.set(header::CHARGING, 1);
    }

    fn stop_charging(&self) {
        self.epoch.store(0, Ordering::Relaxed);
        self.charged.stop(self.now_ps());
        self.stats.set(header::CHARGING, 0);
        self.publish_strays();
    }

    fn snapshot(&self, tag: u8) {
        let now_ps = self.now_ps();
        let charged_ps = self.charged_ps(now_ps);
        self.publish_strays();
        self.stats.append_snapshot(tag, now_ps / 1000, |cpu| {
            let vcpu = &self.vcpus[cpu];
            (vcpu.counts(now_ps, charged_ps), vcpu.served().collect())
        });
    }

    fn publish_strays(&self) {
        self.stats.set(header::STRAY_MISSES, self.vcpus.iter().map(Vcpu::strays).sum());
    }
}

#[cfg(test)]
#[path = "machine/tests.rs"]
mod tests;
