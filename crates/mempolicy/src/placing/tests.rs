//! Worked examples of fallback orders and of where pages go.

use numaherd_model::{Bytes, CpuId, Node};
use proptest::prelude::*;

use super::*;
use crate::{Flags, Request, Room};

fn set(text: &str) -> NodeSet {
    text.parse().unwrap()
}

fn ids(numbers: &[u32]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

/// Nodes 0… with a CPU and 1 GiB each.
fn topology(distances: &[&[u32]]) -> Topology {
    let node = |id: u32| Node {
        id: NodeId(id),
        cpus: [CpuId(id)].into_iter().collect(),
        memory: Bytes(1 << 30),
        free: Bytes(1 << 30),
    };
    Topology {
        nodes: (0..distances.len() as u32).map(node).collect(),
        distances: distances.iter().map(|row| row.to_vec()).collect(),
        ..Topology::default()
    }
}

#[test]
fn equally_far_nodes_are_fallen_back_on_in_turn() {
    let machine = Machine::new(&topology(&[
        &[10, 20, 20, 20],
        &[20, 10, 20, 20],
        &[20, 20, 10, 20],
        &[20, 20, 20, 10],
    ]));
    // Node 0: 20+1 each (CPUs), by id: 1, 2, 3; 1 is first of its distance and gets load 1.
    assert_eq!(machine.order(NodeId(0)), ids(&[0, 1, 2, 3]));
    // Node 1: 0 costs 22 (it is below), 2 and 3 cost 21: 2, 3, 0. 2 gets load 1.
    assert_eq!(machine.order(NodeId(1)), ids(&[1, 2, 3, 0]));
    // Node 2: 3 costs 21; 0 and 1 cost 22, 1 has load 1: 3, 0, 1.
    assert_eq!(machine.order(NodeId(2)), ids(&[2, 3, 0, 1]));
    // Node 3: all cost 22; loads 0: 0, 1: 1, 2: 1: 0, 1, 2.
    assert_eq!(machine.order(NodeId(3)), ids(&[3, 0, 1, 2]));
}

#[test]
fn nearer_nodes_come_first_and_a_node_without_memory_not_at_all() {
    let mut ring = topology(&[&[10, 16, 22], &[16, 10, 16], &[22, 16, 10]]);
    assert_eq!(Machine::new(&ring).order(NodeId(2)), ids(&[2, 1, 0]));
    ring.nodes[1].memory = Bytes(0);
    let machine = Machine::new(&ring);
    assert_eq!(machine.order(NodeId(1)), ids(&[2, 0]), "0 costs one more: it is below");
    assert_eq!(machine.order(NodeId(0)), ids(&[0, 2]));
}

fn place(mode: Mode, nodes: &str, index: u64, local: u32, full: &str) -> Option<u32> {
    let machine = Machine::flat(set("0-3"));
    let room = Room { allowed: set("0-3"), memory: set("0-3") };
    let policy = Policy::new(&Request::plain(mode, set(nodes)), &room).unwrap();
    let page = Page { index, local: NodeId(local) };
    machine.place(policy.as_ref(), page, &room.allowed, &set(full)).map(|node| node.0)
}

#[test]
fn each_mode_falls_back_in_its_own_way() {
    // local: the CPU's node, then 3, 0, 1 (see above)
    assert_eq!(place(Mode::Default, "", 0, 2, ""), Some(2));
    assert_eq!(place(Mode::Local, "", 0, 2, "2"), Some(3));
    // preferred: node 1's order is 1, 2, 3, 0
    assert_eq!(place(Mode::Preferred, "1", 0, 3, ""), Some(1));
    assert_eq!(place(Mode::Preferred, "1", 0, 3, "1-2"), Some(3));
    // bind: the local node if it is among them, else the first of the local node's order
    assert_eq!(place(Mode::Bind, "1,3", 0, 3, ""), Some(3));
    assert_eq!(place(Mode::Bind, "0-1", 0, 2, ""), Some(0));
    assert_eq!(place(Mode::Bind, "0-1", 0, 2, "0-1"), None, "out of memory, though 2 has room");
    // preferred many: as bind, but others stand in
    assert_eq!(place(Mode::PreferredMany, "0-1", 0, 2, "0"), Some(1));
    assert_eq!(place(Mode::PreferredMany, "0-1", 0, 2, "0-1"), Some(2));
    // interleave: 5 mod 3 = 2, the third of 0, 1, 3; if it is full, 3's order: 0
    assert_eq!(place(Mode::Interleave, "0-1,3", 5, 0, ""), Some(3));
    assert_eq!(place(Mode::Interleave, "0-1,3", 5, 0, "3"), Some(0));
}

#[test]
fn weights_make_runs() {
    let weights: Weights = [(NodeId(0), 3), (NodeId(2), 2)].into_iter().collect();
    let nodes: Vec<u32> =
        (0..7).map(|i| in_weighted_turn(&set("0-2"), &weights, i).unwrap().0).collect();
    // 3 + 1 + 2 = 6 in a round
    assert_eq!(nodes, [0, 0, 0, 1, 2, 2, 0]);
}

#[test]
fn a_home_node_comes_before_the_cpus_own() {
    let machine = Machine::flat(set("0-3"));
    let room = Room { allowed: set("0-3"), memory: set("0-3") };
    let request = Request { mode: Mode::Bind, flags: Flags::NONE, nodes: set("1-2") };
    let mut policy = Policy::new(&request, &room).unwrap().unwrap();
    let page = Page { index: 0, local: NodeId(1) };
    let node = |policy: &Policy| machine.place(Some(policy), page, &room.allowed, &NodeSet::new());
    assert_eq!(node(&policy), Some(NodeId(1)));
    policy.set_home(NodeId(2), &set("0-3")).unwrap();
    assert_eq!(node(&policy), Some(NodeId(2)));
    // home 3 is not among 1-2: its order is 3, 0, 1, 2
    policy.set_home(NodeId(3), &set("0-3")).unwrap();
    assert_eq!(node(&policy), Some(NodeId(1)));
}

#[test]
fn pages_stay_in_the_cpuset_even_where_the_policy_does_not() {
    let machine = Machine::flat(set("0-3"));
    let room = Room { allowed: set("0-3"), memory: set("0-3") };
    let request = Request::plain(Mode::Preferred, set("0"));
    let mut policy = Policy::new(&request, &room).unwrap().unwrap();
    policy.rebind(&set("2-3"));
    let page = Page { index: 0, local: NodeId(3) };
    // node 0's order is 0, 1, 2, 3; the first allowed is 2
    assert_eq!(machine.place(Some(&policy), page, &set("2-3"), &NodeSet::new()), Some(NodeId(2)));
}

proptest! {
    #[test]
    fn every_page_goes_where_the_cpuset_and_the_policy_allow(
        request in crate::policy::tests::any_request(), index in 0u64..1000, local in 0u32..4, full in 0u64..16
    ) {
        let machine = Machine::flat(set("0-3"));
        let room = Room { allowed: set("0-3"), memory: set("0-3") };
        let full = NodeSet::from_words(&[full]);
        if let Ok(policy) = Policy::new(&request, &room) {
            let page = Page { index, local: NodeId(local) };
            match machine.place(policy.as_ref(), page, &room.allowed, &full) {
                Some(node) => {
                    prop_assert!(!full.contains(node));
                    if let Some(policy) = policy.filter(|policy| policy.mode() == Mode::Bind) {
                        prop_assert!(policy.nodes().contains(node));
                    }
                }
                None => {
                    let bound = policy.filter(|policy| policy.mode() == Mode::Bind);
                    let reach = bound.map_or(room.allowed.clone(), |policy| policy.nodes().clone());
                    prop_assert!(reach.is_subset(&full));
                }
            }
        }
    }

    #[test]
    fn a_round_of_weighted_turns_gives_each_node_its_weight(weights in proptest::collection::vec(1u8..9, 1..5)) {
        let set: NodeSet = (0..weights.len() as u32).map(NodeId).collect();
        let table: Weights = weights.iter().enumerate().map(|(i, &w)| (NodeId(i as u32), w)).collect();
        let total: u64 = weights.iter().map(|&w| u64::from(w)).sum();
        let mut counted = vec![0u8; weights.len()];
        for index in 0..total {
            counted[in_weighted_turn(&set, &table, index).unwrap().0 as usize] += 1;
        }
        prop_assert_eq!(counted, weights);
    }
}
