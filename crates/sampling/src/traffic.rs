//! What CPUs and memory controllers count of memory traffic, through perf.
//!
//! Of a CPU: lines that came from memory, prefetched ones included as far as its event has them, and not what it wrote
//! back. So that is less than a memory carries, never more. Of a memory: what its controllers count, where the
//! kernel shows them ([`controllers`]).
//!
//! Which event that is, is not the same everywhere, and the kernel's generic "cache misses" are misses of the last
//! level on Intel's CPUs and of the second on AMD's, behind which there is a third: [`Event::of`].

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use numaherd_model::{Counted, CpuId, CpuSet, NodeId, Topology, TrafficSource};
use perf_event::events::{Dynamic, Hardware, Raw};
use perf_event::{Builder, Counter, ReadFormat};

use crate::controllers::{self, Controller};

/// Bytes of a line, of all CPUs that [`Event::of`] knows.
const LINE: f64 = 64.0;
const MIB: f64 = 1_048_576.0;

/// What counts a CPU's lines from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The kernel's generic one: misses of the last-level cache.
    LastLevelMisses,
    /// Data cache fills from memory of this node and of others, `LsAnyFillsFromSys`, unit mask 0x48 of event 0x44.
    /// Source: AMD's Processor Programming Reference for family 19h, "Performance Monitor Counters".
    FillsFromMemory,
}

impl Event {
    /// Of the first CPU that `/proc/cpuinfo` shows; `None` of CPUs whose events are not known.
    fn of(cpuinfo: &str) -> Option<Event> {
        let value = |key: &str| {
            let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            lines.map(|(name, value)| (name.trim(), value.trim())).find(|(name, _)| *name == key)
        };
        let family: u32 = value("cpu family")?.1.parse().ok()?;
        match value("vendor_id")?.1 {
            "GenuineIntel" => Some(Event::LastLevelMisses),
            "AuthenticAMD" if family >= 0x19 => Some(Event::FillsFromMemory),
            _ => None,
        }
    }

    fn builder(self) -> Builder<'static> {
        match self {
            Event::LastLevelMisses => Builder::new(Hardware::CACHE_MISSES),
            Event::FillsFromMemory => Builder::new(Raw::new(0x4844)),
        }
    }
}

/// Counters of all CPUs, and of all controllers that there are.
pub struct Traffic {
    event: Event,
    cpus: BTreeMap<CpuId, Count>,
    controllers: Vec<(NodeId, Count)>,
}

/// One counter, and what it counted in bytes so far.
struct Count {
    counter: Counter,
    /// Bytes of one count.
    each: f64,
    bytes: f64,
    /// Counts, time enabled and time running when it was read last.
    before: (u64, f64, f64),
    /// No time passed for it between the last two reads: its CPU was off, and an event ends with its CPU.
    ended: bool,
}

impl Traffic {
    /// Begins to count.
    ///
    /// # Errors
    /// In words: the CPU's events are not known, it has none (as in most virtual machines), or they are refused.
    pub fn begin(root: &Path, topology: &Topology) -> Result<Traffic, String> {
        let cpuinfo = std::fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
        let event = Event::of(&cpuinfo).ok_or("this CPU's events are not known")?;
        let count = |cpu: CpuId| Ok((cpu, Count::begin(&mut event.builder(), cpu, LINE)?));
        let cpus: io::Result<_> = topology.cpus().iter().map(count).collect();
        let cpus = cpus.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                "this CPU shows no counters, as in most virtual machines".to_string()
            }
            _ => format!("counters are refused: {error}"),
        })?;
        let controllers = controllers::find(root, topology);
        let opened: io::Result<Vec<_>> = controllers.iter().map(of_controller).collect();
        // With one missing the sum would be too little.
        Ok(Traffic { event, cpus, controllers: opened.unwrap_or_default() })
    }

    /// Whether memories are counted, and not only CPUs.
    #[must_use]
    pub fn has_controllers(&self) -> bool {
        !self.controllers.is_empty()
    }
}

fn of_controller(found: &Controller) -> io::Result<(NodeId, Count)> {
    let mut event = Dynamic::builder(&found.device)?;
    event.event(found.event)?;
    let in_mib = event.unit()?.is_some_and(|unit| unit == "MiB");
    let each = event.scale()?.filter(|_| in_mib).map_or(LINE, |scale| scale * MIB);
    let event = event.build().map_err(io::Error::other)?;
    Ok((found.node, Count::begin(&mut Builder::new(event), found.cpu, each)?))
}

impl Count {
    fn begin(builder: &mut Builder<'_>, cpu: CpuId, each: f64) -> io::Result<Count> {
        let counter = builder
            .any_pid()
            .one_cpu(cpu.0 as usize)
            // What the kernel copies for a task is that task's traffic.
            .exclude_kernel(false)
            .exclude_hv(false)
            .read_format(ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING)
            .enabled(true)
            .build()?;
        Ok(Count { counter, each, bytes: 0.0, before: (0, 0.0, 0.0), ended: false })
    }

    /// Bytes since it began. Where more is asked to be counted than there are counters, they take turns, and what was
    /// counted stands for all the time since the last look.
    fn bytes(&mut self) -> io::Result<u64> {
        let data = self.counter.read_full()?;
        let time = |time: Option<std::time::Duration>| time.unwrap_or_default().as_secs_f64();
        let now = (data.count(), time(data.time_enabled()), time(data.time_running()));
        let before = std::mem::replace(&mut self.before, now);
        let (enabled, ran) = (now.1 - before.1, now.2 - before.2);
        self.ended = enabled <= 0.0;
        if ran > 0.0 {
            self.bytes +=
                now.0.saturating_sub(before.0) as f64 * self.each * (enabled / ran).max(1.0);
        }
        Ok(self.bytes as u64)
    }
}

impl TrafficSource for Traffic {
    fn read(&mut self, cpus: &CpuSet) -> io::Result<Counted> {
        self.cpus.retain(|cpu, count| cpus.contains(*cpu) && !count.ended);
        for cpu in cpus.iter() {
            // One that came is left out where it may not be counted any more.
            if !self.cpus.contains_key(&cpu)
                && let Ok(count) = Count::begin(&mut self.event.builder(), cpu, LINE)
            {
                self.cpus.insert(cpu, count);
            }
        }
        let mut counted = Counted::default();
        for (cpu, count) in &mut self.cpus {
            counted.cpus.insert(*cpu, count.bytes()?);
        }
        for (node, count) in &mut self.controllers {
            *counted.nodes.entry(*node).or_insert(0) += count.bytes()?;
        }
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;

    #[test]
    fn what_misses_are_called_is_known_of_some_cpus() {
        let of = |vendor: &str, family: &str| {
            Event::of(&format!(
                "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 1\n"
            ))
        };
        assert_eq!(of("GenuineIntel", "6"), Some(Event::LastLevelMisses));
        assert_eq!(of("AuthenticAMD", "25"), Some(Event::FillsFromMemory));
        // Zen 2 has them at another number.
        assert_eq!(of("AuthenticAMD", "23"), None);
        assert_eq!((of("HygonGenuine", "24"), of("GenuineIntel", "six")), (None, None));
        assert_eq!(Event::of(""), None);
    }

    /// A counter of what every kernel counts grows with that, in its unit.
    #[test]
    fn a_count_grows_by_what_was_counted() {
        let mut builder = Builder::new(Software::CONTEXT_SWITCHES);
        let mut count = match Count::begin(&mut builder, CpuId(0), 64.0) {
            Ok(count) => count,
            Err(error) => {
                eprintln!("skipped: perf events are refused here: {error}");
                return;
            }
        };
        let before = count.bytes().unwrap();
        while count.bytes().unwrap() < before + 640 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(count.bytes().unwrap() % 64, 0);
        assert!(!count.ended);
        count.counter.disable().unwrap();
        let read = [count.bytes().unwrap(), count.bytes().unwrap()];
        assert!(count.ended, "{read:?}");
    }

    #[test]
    fn a_cpu_without_counters_is_told_in_words() {
        let root = tempfile::tempdir().unwrap();
        let topology = numaherd_model::scene::Scene::two_by_four().snapshot().topology;
        let told = Traffic::begin(root.path(), &topology).err().unwrap();
        assert_eq!(told, "this CPU's events are not known");
    }
}
