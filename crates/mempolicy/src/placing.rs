//! Which node a page goes to.
//!
//! Two steps, as in the kernel: the policy names the node to begin with and the nodes that may be
//! taken ([`begin`]); the allocator goes through the fallback order of that node until one has
//! room ([`Machine::place`]). Nodes' room is what the caller says is full; watermarks are not
//! modelled.
//!
//! Sources: policy_nodemask, interleave_nid, weighted_interleave_nid (mm/mempolicy.c);
//! find_next_best_node, build_zonelists (mm/page_alloc.c); v6.12.
//!
//! ```
//! use numaherd_mempolicy::{Mode, Policy, Request, Room, placing::{Machine, Page}};
//! use numaherd_model::{NodeId, NodeSet};
//! let machine = Machine::flat("0-1".parse().unwrap());
//! let room = Room { allowed: "0-1".parse().unwrap(), memory: "0-1".parse().unwrap() };
//! let over_both = Request::plain(Mode::Interleave, "0-1".parse().unwrap());
//! let policy = Policy::new(&over_both, &room).unwrap();
//! let page = |index| Page { index, local: NodeId(0) };
//! let node = |index| machine.place(policy.as_ref(), page(index), &room.allowed, &NodeSet::new());
//! assert_eq!([node(0), node(1), node(2)], [NodeId(0), NodeId(1), NodeId(0)].map(Some));
//! ```

use std::collections::BTreeMap;

use numaherd_model::{NodeId, NodeSet, Topology};

use crate::{Mode, Policy, nodes};

/// The page that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// What interleaving counts by: for private memory the address, for a mapped file the offset
    /// in it, for shared memory the offset plus the inode's number; in units of the page's size.
    pub index: u64,
    /// The node of the CPU that touches it.
    pub local: NodeId,
}

/// Weights of weighted interleaving. What is not named weighs 1.
pub type Weights = BTreeMap<NodeId, u8>;

/// What the allocator knows of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// For each online node, the nodes with memory in the order in which they are tried.
    orders: BTreeMap<NodeId, Vec<NodeId>>,
    /// Weights of the nodes.
    pub weights: Weights,
}

/// Begin here, and take these only; `Only(None)` is any that the cpuset allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The node whose fallback order is followed.
    pub node: NodeId,
    /// The nodes that may be taken.
    pub only: Option<NodeSet>,
    /// Whether other nodes are taken when all of `only` are full.
    pub may_leave: bool,
}

impl Machine {
    /// Works the fallback orders out as the kernel does at boot.
    #[must_use]
    pub fn new(topology: &Topology) -> Machine {
        let memory: Vec<NodeId> = topology.memory_nodes().map(|node| node.id).collect();
        let has_cpus = |id: NodeId| topology.node(id).is_some_and(|node| !node.cpus.is_empty());
        // Nodes that were first of their distance for an earlier node are taken later by others,
        // so that not all fall back to the same one.
        let mut load: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut orders = BTreeMap::new();
        for from in topology.nodes.iter().map(|node| node.id) {
            let mut left = memory.clone();
            let mut order = Vec::new();
            let mut before = from;
            while !left.is_empty() {
                let cost = |to: NodeId| {
                    if to == from {
                        return (0, 0);
                    }
                    let penalty = u32::from(to < from) + u32::from(has_cpus(to));
                    let near = u64::from(topology.distance(from, to) + penalty);
                    (near, load.get(&to).copied().unwrap_or(0))
                };
                // the first of the cheapest, as the kernel looks for less than the least so far
                let Some(next) = left.iter().copied().min_by_key(|&to| (cost(to), to)) else {
                    break;
                };
                if topology.distance(from, next) != topology.distance(from, before) {
                    *load.entry(next).or_default() += 1;
                }
                left.retain(|&node| node != next);
                order.push(next);
                before = next;
            }
            orders.insert(from, order);
        }
        Machine { orders, weights: Weights::new() }
    }

    /// A machine whose nodes all have CPUs and memory and are equally far from each other.
    #[must_use]
    pub fn flat(ids: NodeSet) -> Machine {
        let node = |id: NodeId| numaherd_model::Node {
            id,
            cpus: [numaherd_model::CpuId(id.0)].into_iter().collect(),
            memory: numaherd_model::Bytes(1 << 30),
            free: numaherd_model::Bytes(1 << 30),
        };
        Machine::new(&Topology { nodes: ids.iter().map(node).collect(), ..Topology::default() })
    }

    /// The nodes in the order in which `node` falls back on them.
    #[must_use]
    pub fn order(&self, node: NodeId) -> &[NodeId] {
        self.orders.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The node the page goes to, where the nodes in `full` have no room. None if the kernel
    /// would run out of memory.
    #[must_use]
    pub fn place(
        &self,
        policy: Option<&Policy>,
        page: Page,
        allowed: &NodeSet,
        full: &NodeSet,
    ) -> Option<NodeId> {
        let begin = begin(policy, page, &self.weights, allowed);
        let free = |node: &NodeId| allowed.contains(*node) && !full.contains(*node);
        let order = self.order(begin.node);
        let within = |node: &NodeId| begin.only.as_ref().is_none_or(|only| only.contains(*node));
        let first = order.iter().copied().find(|node| free(node) && within(node));
        let anywhere = || order.iter().copied().find(|node| free(node));
        first.or_else(|| if begin.may_leave { anywhere() } else { None })
    }
}

/// Where the allocator begins, by the policy alone.
#[must_use]
pub fn begin(policy: Option<&Policy>, page: Page, weights: &Weights, allowed: &NodeSet) -> Begin {
    let at = |node| Begin { node, only: None, may_leave: true };
    let Some(policy) = policy else { return at(page.local) };
    let nodes = policy.nodes();
    match policy.mode() {
        Mode::Default | Mode::Local => at(page.local),
        Mode::Preferred => at(nodes.first().unwrap_or(page.local)),
        Mode::Interleave => at(in_turn(nodes, page.index).unwrap_or(page.local)),
        Mode::WeightedInterleave => {
            at(in_weighted_turn(nodes, weights, page.index).unwrap_or(page.local))
        }
        Mode::Bind => {
            // A bind that the cpuset has nothing of is not applied, rather than run out of memory.
            let holds = !nodes.intersection(allowed).is_empty();
            let only = holds.then(|| nodes.clone());
            Begin { node: policy.home().unwrap_or(page.local), only, may_leave: !holds }
        }
        Mode::PreferredMany => Begin {
            node: policy.home().unwrap_or(page.local),
            only: Some(nodes.clone()),
            may_leave: true,
        },
    }
}

/// Interleaving: the member at position `index` modulo the number of members.
#[must_use]
pub fn in_turn(set: &NodeSet, index: u64) -> Option<NodeId> {
    let count = set.len() as u64;
    if count == 0 { None } else { nodes::nth(set, (index % count) as usize) }
}

/// Weighted interleaving: each member `weight` times in a row.
///
/// Worked example: nodes 0 and 1 weigh 3 and 1; indices 0 to 3 give 0, 0, 0, 1.
#[must_use]
pub fn in_weighted_turn(set: &NodeSet, weights: &Weights, index: u64) -> Option<NodeId> {
    let weight = |node: NodeId| weights.get(&node).copied().map_or(1, u64::from);
    let total: u64 = set.iter().map(weight).sum();
    if total == 0 {
        return None;
    }
    let mut left = index % total;
    for node in set.iter() {
        if left < weight(node) {
            return Some(node);
        }
        left -= weight(node);
    }
    None
}

#[cfg(test)]
mod tests;
