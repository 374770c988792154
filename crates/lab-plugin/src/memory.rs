//! What an access costs beyond its instruction: caches, coherence, latency, bandwidth.
//!
//! [`Memory`] is what all vCPUs share; a [`Port`] is one vCPU's own part, touched by its thread
//! only. Pure of QEMU and of the clock: time goes in and cost comes out, in guest ps.
//!
//! ```text
//!  own cache ──miss──► last-level cache ──miss──► another CPU's cache, if it wrote the line
//!   cost 0              latency of that cache  └► memory of the line's node
//!                                                 latency by distance ÷ overlap, then bandwidth
//! ```
//!
//! - A run of neighbouring misses is foreseen ([`crate::streams`]): its latency is divided by
//!   the overlap. What bandwidth makes it wait is not.
//! - A line that its CPU wrote is dirty; when the last cache that has it lets it go, or another
//!   CPU reads it, it passes the fabric back to its node.
//! - A line that another CPU wrote comes from there, at that CPU's distance; within one
//!   last-level domain at that cache's latency. Writing what others may have costs a round to
//!   the line's node (an *upgrade*). Without coherence every CPU believes its copy.

use crate::cache::{Cache, Touch};
use crate::config::Config;
use crate::directory::{Directory, State};
use crate::fabric::{Credit, Fabric, Way};
use crate::llc::SharedCache;
use crate::nodemap;
use crate::streams::Streams;
use crate::tag::Tag;

/// What all vCPUs share.
pub struct Memory {
    directory: Option<Directory>,
    llcs: Vec<SharedCache>,
    fabric: Option<Fabric>,
    cpu_node: Vec<usize>,
    /// Index of each CPU's last-level cache; of no meaning where there is none.
    cpu_domain: Vec<usize>,
    latency_ps: Vec<Vec<u64>>,
    transfer_ps: Vec<Vec<u64>>,
    llc_ps: u64,
}

/// An access to a line that is not the one before.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Physical line.
    pub line: u64,
    /// Virtual line.
    pub virtual_line: u64,
    /// Index of the node that holds it.
    pub node: usize,
    /// Whether it is written.
    pub is_store: bool,
}

/// Where an access was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The CPU's own cache.
    Own,
    /// Its last-level cache.
    LastLevel,
    /// The cache of another CPU, which had written it.
    Transfer,
    /// The line's node.
    Memory,
    /// Its own cache, after a round that took the line from others.
    Upgrade,
}

/// How a miss is served.
struct Found {
    source: Source,
    latency_ps: u64,
    /// The last-level cache has, or may have, a copy of some version.
    is_kept: bool,
}

/// What an access came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// By whom.
    pub source: Source,
    /// Guest time, waiting included.
    pub cost_ps: u64,
    /// What of it was waiting for bandwidth.
    pub queued_ps: u64,
}

impl Memory {
    /// Empty caches.
    #[must_use]
    pub fn new(config: &Config) -> Memory {
        let to_ps = |rows: &[Vec<u64>]| -> Vec<Vec<u64>> {
            rows.iter().map(|row| row.iter().map(|ns| ns * 1000).collect()).collect()
        };
        let latency_ps = to_ps(&config.latency_ns);
        let coherence = config.coherence.as_ref();
        let transfer = coherence.and_then(|coherence| coherence.transfer_ns.as_deref());
        let keys = nodemap::highest_key(&config.node_bytes, config.below_4g_bytes);
        let llc = config.llc.as_ref();
        let llcs = llc.map_or(0, |llc| llc.cpu_domain.iter().max().map_or(0, |&last| last + 1));
        Memory {
            directory: coherence.map(|_| Directory::new(keys / config.line_bytes)),
            llcs: (0..llcs)
                .filter_map(|_| config.llc_sets())
                .map(|(s, w)| SharedCache::new(s, w))
                .collect(),
            fabric: config.bandwidth.as_ref().map(|b| Fabric::new(b, config.line_bytes)),
            cpu_node: config.cpu_node.clone(),
            cpu_domain: llc.map_or_else(|| config.cpu_node.clone(), |llc| llc.cpu_domain.clone()),
            transfer_ps: transfer.map_or_else(|| latency_ps.clone(), to_ps),
            latency_ps,
            llc_ps: llc.map_or(0, |llc| llc.latency_ns * 1000),
        }
    }

    /// Empties the shared caches and forgets who has what. Nobody may be accessing.
    pub fn clear(&self) {
        self.llcs.iter().for_each(SharedCache::clear);
        self.directory.iter().for_each(Directory::clear);
    }

    /// What the directory says of a line; without one, that `cpu` has written it and has it
    /// alone.
    #[inline(always)]
    fn state(&self, line: u64, cpu: usize) -> State {
        match &self.directory {
            Some(directory) => directory.state(line),
            None => State::default().written_by(cpu),
        }
    }

    #[inline(always)]
    fn remember(&self, line: u64, before: State, after: State) {
        if let Some(directory) = self.directory.as_ref().filter(|_| before != after) {
            directory.set(line, after);
        }
    }
}

/// One vCPU's own part.
pub struct Port {
    cpu: usize,
    node: usize,
    domain: usize,
    cache: Cache,
    streams: Streams,
    credit: Credit,
    overlap: [u64; 2],
    stores_fetch: bool,
    /// The line accessed last, what the directory said of it then, and whether storing to it
    /// again changes nothing.
    last: Last,
    /// Dirty lines sent back to memory.
    pub write_backs: u64,
}

#[derive(Clone, Copy)]
struct Last {
    virtual_line: u64,
    line: u64,
    state: State,
    is_written: bool,
}

/// No virtual line: addresses are below 2^64 and lines at least 8 bytes.
const NO_LINE: u64 = u64::MAX;
const NO_LAST: Last =
    Last { virtual_line: NO_LINE, line: 0, state: State::NOTHING, is_written: false };

impl Port {
    /// The part of that vCPU.
    #[must_use]
    pub fn new(config: &Config, cpu: usize) -> Port {
        let overlap = config.overlap;
        Port {
            cpu,
            node: config.cpu_node[cpu],
            domain: config.llc.as_ref().map_or(0, |llc| llc.cpu_domain[cpu]),
            cache: Cache::new(config.cache_sets(), config.cache_ways as usize),
            streams: Streams::default(),
            credit: Credit::new(config.node_bytes.len()),
            overlap: [overlap.loads, overlap.stores],
            stores_fetch: overlap.stores_fetch,
            last: NO_LAST,
            write_backs: 0,
        }
    }

    /// Empties its cache.
    pub fn clear(&mut self) {
        self.cache.clear();
        self.last = NO_LAST;
    }

    /// The next access is not to be taken for one to the same line: translations changed.
    pub fn forget_last(&mut self) {
        self.last = NO_LAST;
    }

    /// Whether this is the line accessed last. Never while nothing is charged.
    #[inline(always)]
    #[must_use]
    pub fn is_last(&self, virtual_line: u64) -> bool {
        virtual_line == self.last.virtual_line
    }

    /// Whether an access to the line accessed last changes and costs nothing: nobody else has
    /// touched it since, and a store finds it written already.
    #[inline(always)]
    #[must_use]
    pub fn is_free(&self, memory: &Memory, is_store: impl FnOnce() -> bool) -> bool {
        let unchanged =
            memory.directory.as_ref().is_none_or(|d| d.state(self.last.line) == self.last.state);
        unchanged && (self.last.is_written || !is_store())
    }

    /// Touches a line for the sake of learning where nodes lie; whether it was there.
    pub fn learn(&mut self, line: u64) -> bool {
        matches!(self.cache.touch(line, Tag::new(line, 0, 0)), Touch::Hit(_))
    }

    /// An access at `now_ps`.
    #[inline(always)]
    pub fn access(&mut self, memory: &Memory, access: Access, now_ps: u64) -> Served {
        let Access { line, virtual_line, node, is_store } = access;
        let state = memory.state(line, self.cpu);
        let fresh = Tag::new(line, node, state.version());
        let touched = self.cache.touch(line, fresh);
        let (served, after) = match touched {
            Touch::Hit(tag) if tag.version() == state.version() => {
                let (served, after) = self.hit(memory, access, state);
                if is_store {
                    let tag = Tag::new(line, node, after.version());
                    self.cache.retag(line, tag.dirty());
                }
                (served, after)
            }
            Touch::Hit(_) => self.miss(memory, access, state, Tag::EMPTY, now_ps),
            Touch::Miss { victim } => self.miss(memory, access, state, victim, now_ps),
        };
        memory.remember(line, state, after);
        let is_written = is_store || touched_dirty(touched) && after.is_written_by(self.cpu);
        self.last = Last { virtual_line, line, state: after, is_written };
        served
    }

    /// The line is in the CPU's own cache, and good.
    #[inline(always)]
    fn hit(&self, memory: &Memory, access: Access, state: State) -> (Served, State) {
        if !access.is_store || state.is_written_by(self.cpu) {
            return (Served { source: Source::Own, cost_ps: 0, queued_ps: 0 }, state);
        }
        let after = state.written_by(self.cpu);
        // A new version means that others may have the old one.
        let asks = after.version() != state.version();
        let cost_ps = if asks { memory.latency_ps[self.node][access.node] } else { 0 };
        let source = if asks { Source::Upgrade } else { Source::Own };
        (Served { source, cost_ps, queued_ps: 0 }, after)
    }

    #[inline(never)]
    fn miss(
        &mut self,
        memory: &Memory,
        access: Access,
        state: State,
        victim: Tag,
        now_ps: u64,
    ) -> (Served, State) {
        let mut at_ps = self.retire(memory, victim, now_ps);
        let Access { line, node, is_store, .. } = access;
        let after = if is_store { state.written_by(self.cpu) } else { state.read_by(self.cpu) };
        let tag = Tag::new(line, node, after.version());
        self.cache.retag(line, if is_store { tag.dirty() } else { tag });

        let Found { source, latency_ps, is_kept } = self.find(memory, access, state);
        let foreseen = self.streams.foresaw(access.virtual_line);
        let overlap = if foreseen { self.overlap[usize::from(is_store)] } else { 1 };
        if let Some(fabric) = &memory.fabric {
            let way = match (source, state.owner()) {
                (Source::Memory, _) if foreseen && is_store && !self.stores_fetch => None,
                (Source::Memory, _) => Some(Way::Fill { memory: node, cpu: self.node }),
                (Source::Transfer, Some(owner)) => {
                    Some(Way::Transfer { from: memory.cpu_node[owner], to: self.node })
                }
                _ => None,
            };
            at_ps = way.map_or(at_ps, |way| self.credit.pass(fabric, way, at_ps));
        }
        if source == Source::Transfer && !is_store {
            self.clean(memory, state, node, at_ps);
        }
        if let Some(llc) = memory.llcs.get(self.domain).filter(|_| source != Source::LastLevel) {
            let out = if is_kept { llc.put(line, tag) } else { llc.insert(line, tag) };
            at_ps = self.drop_line(memory, out, at_ps);
        }
        let queued_ps = at_ps - now_ps;
        (Served { source, cost_ps: queued_ps + latency_ps / overlap, queued_ps }, after)
    }

    /// Who serves a miss, and how far away that is.
    fn find(&self, memory: &Memory, access: Access, state: State) -> Found {
        let found = |source, latency_ps, is_kept| Found { source, latency_ps, is_kept };
        let to_memory_ps = memory.latency_ps[self.node][access.node];
        let elsewhere = state.owner().filter(|&owner| owner != self.cpu);
        if let Some(owner) = elsewhere.filter(|_| memory.directory.is_some() && state.is_dirty()) {
            let shares_llc = !memory.llcs.is_empty() && memory.cpu_domain[owner] == self.domain;
            let far_ps = memory.transfer_ps[self.node][memory.cpu_node[owner]];
            return found(Source::Transfer, if shares_llc { memory.llc_ps } else { far_ps }, true);
        }
        let copy = memory.llcs.get(self.domain).and_then(|llc| llc.find(access.line));
        if copy.is_some_and(|copy| copy.version() == state.version()) {
            let asks = access.is_store && state.written_by(self.cpu).version() != state.version();
            let upgrade_ps = if asks { to_memory_ps } else { 0 };
            return found(Source::LastLevel, memory.llc_ps.max(upgrade_ps), true);
        }
        found(Source::Memory, to_memory_ps, copy.is_some())
    }

    /// A line that was read out of the cache of the CPU that wrote it goes to memory, too. The
    /// reader does not wait for that.
    fn clean(&mut self, memory: &Memory, state: State, node: usize, at_ps: u64) {
        if let (Some(fabric), Some(owner)) = (&memory.fabric, state.owner()) {
            let way = Way::WriteBack { cpu: memory.cpu_node[owner], memory: node };
            let _ = self.credit.pass(fabric, way, at_ps);
        }
        self.write_backs += 1;
    }

    /// A line leaves the CPU's own cache.
    fn retire(&mut self, memory: &Memory, victim: Tag, at_ps: u64) -> u64 {
        let (Some(line), llc) = (victim.line(), memory.llcs.get(self.domain)) else {
            return at_ps;
        };
        match llc {
            Some(llc) if victim.is_dirty() => {
                let out = llc.put(line, victim);
                self.drop_line(memory, out, at_ps)
            }
            Some(_) => at_ps,
            None => self.drop_line(memory, victim, at_ps),
        }
    }

    /// A line leaves the last cache of this domain that had it: back to memory if it is dirty
    /// and still the newest.
    fn drop_line(&mut self, memory: &Memory, victim: Tag, at_ps: u64) -> u64 {
        let Some(line) = victim.line() else { return at_ps };
        if let Some(directory) = &memory.directory {
            let state = directory.state(line);
            let ours = state.owner().is_some_and(|owner| match memory.llcs.is_empty() {
                true => owner == self.cpu,
                false => memory.cpu_domain[owner] == self.domain,
            });
            if !ours || state.version() != victim.version() || state.is_shared() {
                return at_ps;
            }
            directory.set(line, state.forgotten());
            if !state.is_dirty() {
                return at_ps;
            }
        } else if !victim.is_dirty() {
            return at_ps;
        }
        self.write_backs += 1;
        let way = Way::WriteBack { cpu: self.node, memory: victim.node() };
        memory.fabric.as_ref().map_or(at_ps, |fabric| self.credit.pass(fabric, way, at_ps))
    }
}

#[inline(always)]
fn touched_dirty(touched: Touch) -> bool {
    matches!(touched, Touch::Hit(tag) if tag.is_dirty())
}

#[cfg(test)]
#[path = "memory/tests.rs"]
mod tests;
