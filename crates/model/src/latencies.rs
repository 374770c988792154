//! Latencies between nodes that somebody measured: firmware's distances are often the same for nodes that are not
//! equally far, and at times off by a factor of two.

use crate::{NodeId, Topology};

/// From CPUs of each node that has any to memory of each that has some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Of the rows.
    pub cpu_nodes: Vec<NodeId>,
    /// Of the columns.
    pub memory_nodes: Vec<NodeId>,
    /// A load, in nanoseconds, by row and column.
    pub ns: Vec<Vec<f64>>,
}

impl Latencies {
    /// Whether they are of a machine with these nodes, neither more nor fewer.
    #[must_use]
    pub fn are_of(&self, topology: &Topology) -> bool {
        self.cpu_nodes.iter().copied().eq(topology.cpu_nodes().map(|node| node.id))
            && self.memory_nodes.iter().copied().eq(topology.memory_nodes().map(|node| node.id))
    }

    /// From a node's CPUs to a node's memory, in nanoseconds, where that was measured.
    #[must_use]
    pub fn between(&self, from: NodeId, to: NodeId) -> Option<f64> {
        let (row, column) = self.cell(from, to)?;
        self.at(row, column)
    }

    /// The row of a node's CPUs and the column of a node's memory, here and in whatever else was measured with this.
    #[must_use]
    pub fn cell(&self, from: NodeId, to: NodeId) -> Option<(usize, usize)> {
        Some((position(&self.cpu_nodes, from)?, position(&self.memory_nodes, to)?))
    }

    fn at(&self, row: usize, column: usize) -> Option<f64> {
        self.ns.get(row)?.get(column).copied().filter(|ns| *ns > 0.0)
    }

    /// Tells a machine's topology how far its nodes are: [`Topology::latencies`]. What was not measured is as far as
    /// firmware says.
    ///
    /// Example: 94 ns to a node's own memory and 112 to another's are 1000 and 1191.
    pub fn fill(&self, topology: &mut Topology) {
        let far = |from: usize, (near, row): (f64, Vec<Option<f64>>)| {
            let cell = |(to, measured): (usize, Option<f64>)| match measured {
                // Nothing is nearer than its own.
                Some(ns) if near > 0.0 => (ns / near * 1000.0).round().max(1000.0) as u32,
                _ => topology.far_by_slit_at(from, to),
            };
            row.into_iter().enumerate().map(cell).collect()
        };
        let rows = self.rows(topology).into_iter().enumerate();
        topology.latencies = rows.map(|(from, row)| far(from, row)).collect();
    }

    /// Nanoseconds from each node's CPUs to each node's memory; what was not measured is as much farther than the node's
    /// own memory as firmware says, and a node of whose own nothing is known has the others' mean. `None` if nobody's
    /// own memory was measured.
    #[must_use]
    pub fn filled_ns(&self, topology: &Topology) -> Option<Vec<Vec<f64>>> {
        let ns = |from: usize, (near, row): (f64, Vec<Option<f64>>)| {
            let by_slit = |to| near * f64::from(topology.far_by_slit_at(from, to)) / 1000.0;
            let cells = row.into_iter().enumerate();
            let cells =
                cells.map(|(to, measured)| measured.unwrap_or_else(|| by_slit(to)).max(near));
            (near > 0.0).then(|| cells.collect())
        };
        self.rows(topology).into_iter().enumerate().map(|(from, row)| ns(from, row)).collect()
    }

    /// For each node of the topology how far its own memory is, and what was measured from it to each.
    fn rows(&self, topology: &Topology) -> Vec<(f64, Vec<Option<f64>>)> {
        let places = |of: &[NodeId]| -> Vec<Option<usize>> {
            topology.nodes.iter().map(|node| position(of, node.id)).collect()
        };
        let (rows, columns) = (places(&self.cpu_nodes), places(&self.memory_nodes));
        let at = |row: Option<usize>, column: Option<usize>| self.at(row?, column?);
        let own: Vec<Option<f64>> = rows.iter().zip(&columns).map(|(&r, &c)| at(r, c)).collect();
        let known: Vec<f64> = own.iter().copied().flatten().collect();
        let usual = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let row = |(&row, own): (&Option<usize>, &Option<f64>)| {
            (own.unwrap_or(usual), columns.iter().map(|&column| at(row, column)).collect())
        };
        rows.iter().zip(&own).map(row).collect()
    }
}

fn position(ids: &[NodeId], id: NodeId) -> Option<usize> {
    ids.iter().position(|known| *known == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    /// Two nodes with both, one with memory alone.
    fn machine() -> Topology {
        let node = |id, cpus| (NodeId(id), cpus, Bytes(1 << 30));
        let slit = vec![vec![10, 12, 20], vec![12, 10, 20], vec![20, 20, 10]];
        Topology::numbered([node(0, 2), node(2, 2), node(3, 0)], slit)
    }

    fn latencies(ns: [[f64; 3]; 2]) -> Latencies {
        Latencies {
            cpu_nodes: [0, 2].map(NodeId).to_vec(),
            memory_nodes: [0, 2, 3].map(NodeId).to_vec(),
            ns: ns.map(|row| row.to_vec()).to_vec(),
        }
    }

    #[test]
    fn nodes_are_as_far_as_measured_and_else_as_firmware_says() {
        let mut topology = machine();
        let far = |topology: &Topology, from, to| topology.far(NodeId(from), NodeId(to));
        assert_eq!((far(&topology, 0, 2), far(&topology, 0, 3)), (1200, 2000));
        let latencies = latencies([[94.0, 112.0, 250.0], [101.0, 100.0, 0.0]]);
        assert!(latencies.are_of(&topology));
        latencies.fill(&mut topology);
        assert_eq!([0, 2, 3].map(|to| far(&topology, 0, to)), [1000, 1191, 2660]);
        // The last was not measured, nor has node 3 CPUs.
        assert_eq!([0, 2, 3].map(|to| far(&topology, 2, to)), [1010, 1000, 2000]);
        assert_eq!([0, 3].map(|to| far(&topology, 3, to)), [2000, 1000]);
    }

    #[test]
    fn nanoseconds_are_filled_up_by_slit() {
        let filled = latencies([[94.0, 112.0, 250.0], [101.0, 100.0, 0.0]]).filled_ns(&machine());
        // Nobody measured from node 3, which has no CPUs: its own are 97, the mean, and SLIT says 20 ÷ 10.
        let rows = [[94.0, 112.0, 250.0], [101.0, 100.0, 200.0], [194.0, 194.0, 97.0]];
        assert_eq!(filled, Some(rows.map(|row| row.to_vec()).to_vec()));
        assert_eq!(latencies([[0.0; 3]; 2]).filled_ns(&machine()), None);
    }

    #[test]
    fn latencies_of_other_nodes_are_of_another_machine() {
        let mut other = latencies([[1.0; 3]; 2]);
        other.memory_nodes.pop();
        assert!(!other.are_of(&machine()));
    }

    #[test]
    fn no_cpu_is_farther_from_its_own_memory_than_from_anothers() {
        let mut topology = machine();
        latencies([[101.0, 100.0, 100.0]; 2]).fill(&mut topology);
        assert_eq!(topology.latencies[0], [1000, 1000, 1000]);
        assert_eq!(topology.latencies[1], [1010, 1000, 1000]);
    }
}
