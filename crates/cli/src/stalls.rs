//! What counters of the CPUs say over a stretch of time: which share of their busy time they
//! waited for memory, and from where to where their misses went.
//!
//! The emulated machine shows its counters to programs in it ([`IN_GUEST`]), as a PMU does on
//! hardware; of hardware's own only traffic is read ([`crate::traffic`]). They count CPUs, not processes: what they say is a
//! process's own only where hardly anybody else runs.

use std::path::Path;
use std::time::Instant;

use numaherd_lab::counters::{CounterFile, Counters, IN_GUEST};
use numaherd_model::{NodeId, Topology};

/// A look that has begun.
pub struct Look {
    file: CounterFile,
    begin: Counters,
    began: Instant,
}

/// What was counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Stalls {
    /// Of the busy time of all CPUs, the share in which they waited for memory.
    pub waiting: f64,
    /// CPUs that were busy, on average.
    pub busy_cpus: f64,
    /// Misses from a CPU of the first node in memory of the second; ascending.
    pub misses: Vec<((NodeId, NodeId), u64)>,
}

impl Look {
    /// Begins, where there are counters.
    pub fn begin() -> Option<Look> {
        let file = CounterFile::open(Path::new(IN_GUEST)).ok()?;
        let begin = file.now().ok()?;
        Some(Look { file, begin, began: Instant::now() })
    }

    /// What was counted since it began; `None` if the CPUs were idle.
    pub fn end(&self, topology: &Topology) -> Option<Stalls> {
        let elapsed_ns = self.began.elapsed().as_nanos() as u64;
        stalls(&self.file.now().ok()?.since(&self.begin), elapsed_ns, topology)
    }
}

fn stalls(counted: &Counters, elapsed_ns: u64, topology: &Topology) -> Option<Stalls> {
    let busy: Vec<u64> =
        counted.cpus.iter().map(|cpu| elapsed_ns.saturating_sub(cpu.idle_ns)).collect();
    let busy_ns: u64 = busy.iter().sum();
    let stalled_ns: u64 = counted.cpus.iter().map(|cpu| cpu.stalled_ns).sum();
    let mut misses = std::collections::BTreeMap::new();
    for (index, cpu) in counted.cpus.iter().enumerate() {
        let here = topology.nodes.iter().find(|node| {
            u32::try_from(index).is_ok_and(|cpu| node.cpus.iter().any(|found| found.0 == cpu))
        })?;
        // Counted in the order of the machine's nodes, which is that of their ids.
        for (node, count) in topology.nodes.iter().zip(&cpu.misses_by_node) {
            *misses.entry((here.id, node.id)).or_insert(0) += count;
        }
    }
    let waiting = (stalled_ns as f64 / busy_ns as f64).min(1.0);
    (busy_ns > 0).then(|| Stalls {
        waiting,
        busy_cpus: busy_ns as f64 / elapsed_ns.max(1) as f64,
        misses: misses.into_iter().filter(|(_, count)| *count > 0).collect(),
    })
}

impl Stalls {
    /// The mean of `distance` over all misses; `None` without any.
    pub fn mean(&self, distance: impl Fn(NodeId, NodeId) -> f64) -> Option<f64> {
        let all: u64 = self.misses.iter().map(|(_, count)| count).sum();
        let sum =
            |((from, to), count): &((NodeId, NodeId), u64)| distance(*from, *to) * *count as f64;
        (all > 0).then(|| self.misses.iter().map(sum).sum::<f64>() / all as f64)
    }

    /// The share of the misses that went to the CPU's own node.
    pub fn local_share(&self) -> Option<f64> {
        self.mean(|from, to| if from == to { 1.0 } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_lab::counters::CpuCounters;
    use numaherd_model::scene::Scene;

    #[test]
    fn waiting_is_of_the_busy_time_and_misses_go_from_node_to_node() {
        let cpu = |idle_ns, stalled_ns, misses: [u64; 2]| CpuCounters {
            idle_ns,
            stalled_ns,
            misses_by_node: misses.to_vec(),
            ..CpuCounters::default()
        };
        let mut cpus = vec![cpu(1000, 0, [0, 0]); 8];
        cpus[0] = cpu(0, 750, [0, 3]); // on node 0, all busy, three quarters of it waiting
        cpus[5] = cpu(500, 0, [1, 0]); // on node 1, half busy
        let counted = Counters { tag: 0, guest_ns: 0, cpus };
        let topology = Scene::two_by_four().snapshot().topology;
        let stalls = stalls(&counted, 1000, &topology).unwrap();
        // 750 of 1500 ns, by 1500 ÷ 1000 CPUs
        assert_eq!((stalls.waiting, stalls.busy_cpus), (0.5, 1.5));
        let (zero, one) = (NodeId(0), NodeId(1));
        assert_eq!(stalls.misses, [((zero, one), 3), ((one, zero), 1)]);
        assert_eq!(stalls.local_share(), Some(0.0));
        let far = |from: NodeId, _| if from == zero { 300.0 } else { 100.0 };
        assert_eq!(stalls.mean(far), Some(250.0)); // (3 x 300 + 100) ÷ 4
    }

    #[test]
    fn idle_cpus_say_nothing() {
        let topology = Scene::two_by_four().snapshot().topology;
        let idle = CpuCounters { idle_ns: 10, ..CpuCounters::default() };
        let counted = Counters { tag: 0, guest_ns: 0, cpus: vec![idle; 8] };
        assert_eq!(stalls(&counted, 10, &topology), None);
    }
}
