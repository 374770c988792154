//! Who counts memory traffic on this machine: the emulated machine's counters, or hardware's.

use std::io;
use std::path::Path;

use numaherd_lab::counters::{CounterFile, Counters, IN_GUEST};
use numaherd_linux::live::TrafficCounters;
use numaherd_model::{Counted, CpuId, CpuSet, NodeId, Topology, TrafficSource};

/// Counters, where it is known what each node's memory carries at most: without that they are of no use. `story` hears
/// what was found.
pub fn counters(
    topology: &Topology,
    most: &[(NodeId, u64)],
    story: impl FnOnce(&str),
) -> Option<TrafficCounters> {
    if most.is_empty() {
        return None;
    }
    match find(topology) {
        Ok((source, by)) => {
            story(&format!("what memory carries is counted {by}"));
            Some(TrafficCounters { source, most: most.to_vec() })
        }
        Err(why) => {
            story(&format!("what memory carries is no limit, as it is not counted: {why}"));
            None
        }
    }
}

/// Whoever counts, and what in words; else why nobody does.
pub fn find(topology: &Topology) -> Result<(Box<dyn TrafficSource>, &'static str), String> {
    match Emulated::begin(Path::new(IN_GUEST), topology) {
        Some(emulated) => Ok((Box::new(emulated), "by the emulated machine, of CPUs and memories")),
        None => {
            numaherd_sampling::count_traffic(Path::new("/"), topology).map(|(source, memories)| {
                let told = match memories {
                    true => "by counters of CPUs and of memory controllers",
                    false => "by counters of CPUs",
                };
                (source, told)
            })
        }
    }
}

/// What the emulated machine counts.
struct Emulated {
    file: CounterFile,
    /// In the order of the file, which is that of their ids.
    nodes: Vec<NodeId>,
    before: Counters,
    counted: Counted,
}

impl Emulated {
    /// Begins, where there are such counters.
    fn begin(path: &Path, topology: &Topology) -> Option<Emulated> {
        let file = CounterFile::open(path).ok()?;
        let before = file.now().ok()?;
        let nodes = topology.nodes.iter().map(|node| node.id).collect();
        Some(Emulated { file, nodes, before, counted: Counted::default() })
    }

    /// Adds what was counted since. Of lines that a CPU wrote back each memory has as many as of those that the CPU
    /// fetched: where they went is not counted.
    fn add(&mut self, now: Counters) {
        let (since, line) = (now.since(&self.before), self.file.line_bytes());
        self.before = now;
        for (index, cpu) in since.cpus.iter().enumerate() {
            let fetched: u64 = cpu.misses_by_node.iter().sum();
            let cpu_id = CpuId(u32::try_from(index).unwrap_or(u32::MAX));
            *self.counted.cpus.entry(cpu_id).or_insert(0) += (fetched + cpu.write_backs) * line;
            for (node, misses) in self.nodes.iter().zip(&cpu.misses_by_node) {
                let written = (cpu.write_backs * misses).checked_div(fetched).unwrap_or(0);
                *self.counted.nodes.entry(*node).or_insert(0) += (misses + written) * line;
            }
        }
    }
}

impl TrafficSource for Emulated {
    fn read(&mut self, _: &CpuSet) -> io::Result<Counted> {
        let now = self.file.now()?;
        self.add(now);
        Ok(self.counted.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_lab::counters::CpuCounters;

    #[test]
    fn lines_fetched_and_written_back_are_of_their_cpu_and_of_a_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats");
        // A machine of one CPU and two nodes that has counted nothing yet.
        let mut words = vec![0x4e55_4d41_4845_5244, 4, 1, 2, 256, 0, 0, 0, 0, 0, 128];
        words.resize(16 + 14, 0_u64);
        std::fs::write(&path, words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>())
            .unwrap();
        let topology = numaherd_model::scene::Scene::two_by_four().snapshot().topology;
        let mut emulated = Emulated::begin(&path, &topology).unwrap();
        let counters = |misses_by_node: [u64; 2], write_backs| Counters {
            cpus: vec![CpuCounters {
                misses_by_node: misses_by_node.to_vec(),
                write_backs,
                ..CpuCounters::default()
            }],
            ..Counters::default()
        };
        emulated.add(counters([30, 10], 20));
        emulated.add(counters([30, 20], 20));
        // 40 + 20 + 10 lines; 30 + 15 and 10 + 5 + 10 of them
        let counted = Counted {
            cpus: [(CpuId(0), 70 * 128)].into(),
            nodes: [(NodeId(0), 45 * 128), (NodeId(1), 25 * 128)].into(),
        };
        assert_eq!(emulated.counted, counted);
        assert_eq!(emulated.read(&CpuSet::new()).unwrap(), counted);
        assert!(Emulated::begin(&folder.path().join("none"), &topology).is_none());
    }
}
