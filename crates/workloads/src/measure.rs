//! Measuring a machine: latency and bandwidth from each node's CPUs to each node's memory.
//!
//! For each memory node a span is bound there; CPUs of each node in turn read it, write it, and
//! follow a chain of dependent loads through it. The chain is laid last, as it is the one that
//! needs what is in memory. Memory that cannot be bound (a container may forbid it) is an error
//! where there are several nodes, and told where there is one.

use std::ops::Range;

use crate::chase::{self, Chain};
use crate::flow::{self, Direction};
use crate::span::Span;
use crate::{WorkloadError, sys, system};

/// Which bandwidths are measured, by all CPUs of a node at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// None.
    None,
    /// Reading, of each node's own memory.
    Own,
    /// Reading and writing, from each node to each.
    All,
}

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// CPUs of each node that has any, in the order of the rows.
    pub cpus: Vec<Vec<u32>>,
    /// Which nodes those are.
    pub cpu_nodes: Vec<u32>,
    /// Nodes with memory, in the order of the columns.
    pub memory_nodes: Vec<u32>,
    /// Memory used on each of them: well above the last-level cache.
    pub size_bytes: usize,
    /// Samples of each cell.
    pub samples: usize,
    /// Which bandwidths are measured too.
    pub flows: Flows,
}

/// Samples by row, column.
pub type Cells = Vec<Vec<Vec<f64>>>;

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Nanoseconds of one dependent load, the loop's own time included.
    pub load_ns: Cells,
    /// Nanoseconds of the loop alone, by row.
    pub loop_ns: Vec<Vec<f64>>,
    /// Bytes a second that all CPUs of a node read; of its own memory alone, where only that was asked for.
    pub read_bytes_s: Cells,
    /// And write.
    pub write_bytes_s: Cells,
    /// Whether memory was bound to its node.
    pub is_bound: bool,
}

impl Plan {
    /// Measures. `story` hears what is being done.
    ///
    /// # Errors
    /// Memory or CPUs cannot be had, or memory cannot be bound.
    pub fn run(&self, mut story: impl FnMut(&str)) -> Result<Measured, WorkloadError> {
        self.check()?;
        let rows = self.cpus.len();
        let mut measured = Measured {
            load_ns: vec![Vec::new(); rows],
            read_bytes_s: vec![Vec::new(); rows],
            write_bytes_s: vec![Vec::new(); rows],
            is_bound: true,
            ..Measured::default()
        };
        for &node in &self.memory_nodes {
            story(&format!("memory of node {node}"));
            self.measure_node(node, &mut measured)?;
        }
        for cpus in &self.cpus {
            pin(cpus)?;
            measured.loop_ns.push(chase::overhead(self.samples)?);
        }
        let all: Vec<u32> = self.cpus.concat();
        sys::set_affinity(&all).map_err(system("cannot unpin this thread"))?;
        Ok(measured)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let problem = if self.cpus.is_empty() || self.cpus.iter().any(Vec::is_empty) {
            "no node has a CPU that may be used".into()
        } else if self.memory_nodes.is_empty() || self.samples == 0 {
            "nothing to measure".into()
        } else if self.size_bytes < 1 << 20 {
            format!("{} bytes fit into caches: give at least 1M", self.size_bytes)
        } else {
            return Ok(());
        };
        Err(WorkloadError::Params { problem })
    }

    fn measure_node(&self, node: u32, measured: &mut Measured) -> Result<(), WorkloadError> {
        let all: Range<usize> = 0..self.size_bytes;
        let mut span = Span::map(self.size_bytes, Some(true))?;
        match span.bind(all.clone(), sys::MPOL_BIND, &[node]) {
            Ok(()) => {}
            // With one node there is nothing else where it could lie.
            Err(_) if self.memory_nodes.len() == 1 => measured.is_bound = false,
            Err(error) => return Err(error),
        }
        span.write(all, 1);
        for (row, cpus) in self.cpus.iter().enumerate() {
            let flows = |direction| {
                let one = |_| flow::sample(&span, self.size_bytes, cpus, direction);
                (0..self.samples).map(one).collect::<Result<Vec<f64>, _>>()
            };
            if self.flows == Flows::All || self.flows == Flows::Own && self.cpu_nodes[row] == node {
                measured.read_bytes_s[row].push(flows(Direction::Read)?);
            }
            if self.flows == Flows::All {
                measured.write_bytes_s[row].push(flows(Direction::Write)?);
            }
        }
        let mut chain = Chain::lay(&mut span, self.size_bytes, u64::from(node) + 1);
        for (row, cpus) in self.cpus.iter().enumerate() {
            pin(cpus)?;
            measured.load_ns[row].push(chain.sample(&span, self.samples));
        }
        Ok(())
    }
}

/// On the last CPU of a node: the first ones serve most interrupts.
fn pin(cpus: &[u32]) -> Result<(), WorkloadError> {
    let last = cpus.last().copied().unwrap_or(0);
    sys::set_affinity(&[last]).map_err(system("cannot pin this thread"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let (cpus, cpu_nodes, memory_nodes) = (vec![vec![0]], vec![0], vec![0]);
        Plan { cpus, cpu_nodes, memory_nodes, size_bytes: 2 << 20, samples: 2, flows: Flows::All }
    }

    #[test]
    fn one_node_gives_one_cell_of_each() {
        // On a thread of its own: it pins itself.
        let measured = std::thread::spawn(|| plan().run(|_| {})).join().unwrap().unwrap();
        for cells in [&measured.load_ns, &measured.read_bytes_s, &measured.write_bytes_s] {
            assert_eq!((cells.len(), cells[0].len(), cells[0][0].len()), (1, 1, 2));
            assert!(cells[0][0].iter().all(|&figure| figure > 0.0), "{cells:?}");
        }
        assert_eq!(measured.loop_ns.len(), 1);
    }

    #[test]
    fn latencies_alone_leave_the_rates_empty() {
        let plan = Plan { flows: Flows::None, ..plan() };
        let measured = std::thread::spawn(move || plan.run(|_| {})).join().unwrap().unwrap();
        assert!(measured.load_ns[0][0][0] > 0.0);
        assert!(measured.read_bytes_s[0].is_empty() && measured.write_bytes_s[0].is_empty());
    }

    #[test]
    fn of_its_own_memory_alone_a_node_is_only_read() {
        let measured = |cpu_nodes| {
            let plan = Plan { flows: Flows::Own, cpu_nodes, ..plan() };
            std::thread::spawn(move || plan.run(|_| {})).join().unwrap().unwrap()
        };
        let own = measured(vec![0]);
        assert!(own.read_bytes_s[0][0][1] > 0.0 && own.write_bytes_s[0].is_empty());
        assert!(measured(vec![7]).read_bytes_s[0].is_empty());
    }

    #[test]
    fn plans_that_make_no_sense_are_refused() {
        let says = |change: fn(&mut Plan)| {
            let mut plan = plan();
            change(&mut plan);
            plan.run(|_| {}).unwrap_err().to_string()
        };
        assert!(says(|p| p.cpus.clear()).contains("no node has a CPU"));
        assert!(says(|p| p.samples = 0).contains("nothing to measure"));
        assert!(says(|p| p.size_bytes = 4096).contains("at least 1M"));
    }
}
