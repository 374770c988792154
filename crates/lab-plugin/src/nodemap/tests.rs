//! Worked examples of layouts and of finding them.

use super::*;

const GIB: u64 = 1 << 30;
const BELOW_4G: u64 = 3 * GIB;
const TWO_BY_TWO: [u64; 2] = [2 * GIB, 2 * GIB];

/// Touches each node in turn at the given (key, times).
fn touches(nodes: &[&[(u64, u64)]]) -> Touches {
    let mut touches = Touches::default();
    for (node, keys) in nodes.iter().enumerate() {
        if node > 0 {
            touches.next_node();
        }
        for &(key, times) in *keys {
            (0..times).for_each(|_| touches.count(key));
        }
    }
    touches
}

#[test]
fn ranges_of_two_nodes_of_2_gib() {
    let node = |layout, key| NodeMap::new(layout, &TWO_BY_TWO, BELOW_4G).node(key);
    assert_eq!(node(MemoryLayout::Cumulative, 2 * GIB - 1), Some(0));
    assert_eq!(node(MemoryLayout::Cumulative, 2 * GIB), Some(1));
    assert_eq!(node(MemoryLayout::Cumulative, 4 * GIB), None);

    assert_eq!(node(MemoryLayout::Doubled, 2 * GIB), None);
    assert_eq!(node(MemoryLayout::Doubled, 4 * GIB), Some(1));
    assert_eq!(node(MemoryLayout::Doubled, 6 * GIB), None);

    // Node 1 is split: 1 GiB below the hole, 1 GiB from 4 GiB on.
    assert_eq!(node(MemoryLayout::PcHole, 2 * GIB), Some(1));
    assert_eq!(node(MemoryLayout::PcHole, 3 * GIB), None);
    assert_eq!(node(MemoryLayout::PcHole, 4 * GIB), Some(1));
    assert_eq!(node(MemoryLayout::PcHole, 5 * GIB), None);
}

#[test]
fn four_nodes_of_1_gib_lie_at_0_2_4_6_when_doubled() {
    let map = NodeMap::new(MemoryLayout::Doubled, &[GIB; 4], BELOW_4G);
    let nodes: Vec<_> = (0..8).map(|gib| map.node(gib * GIB)).collect();
    assert_eq!(nodes, [Some(0), None, Some(1), None, Some(2), None, Some(3), None]);
}

#[test]
fn what_qemu_gives_for_memory_backends_is_found() {
    let seen = touches(&[&[(GIB, 1000)], &[(4 * GIB, 960), (GIB, 40)]]);
    let (layout, map) = find(&seen, &TWO_BY_TWO, BELOW_4G).unwrap();
    assert_eq!(layout, MemoryLayout::Doubled);
    assert_eq!(map.node(5 * GIB), Some(1));
}

#[test]
fn the_other_layouts_are_found() {
    let cumulative = touches(&[&[(0, 100)], &[(3 * GIB, 100)]]);
    assert_eq!(find(&cumulative, &TWO_BY_TWO, BELOW_4G).unwrap().0, MemoryLayout::Cumulative);
    // 3 nodes of 2 GiB: guest-physical 0–2, 2–3 and 4–5, 5–7.
    let hole = touches(&[&[(0, 100)], &[(4 * GIB, 60), (2 * GIB, 60)], &[(6 * GIB, 100)]]);
    assert_eq!(find(&hole, &[2 * GIB; 3], BELOW_4G).unwrap().0, MemoryLayout::PcHole);
}

#[test]
fn a_node_with_too_much_elsewhere_fails() {
    // 89 % of node 1's touches are right, 90 % are needed.
    let seen = touches(&[&[(GIB, 100)], &[(5 * GIB, 89), (GIB, 11)]]);
    let error = find(&seen, &TWO_BY_TWO, BELOW_4G).unwrap_err().to_string();
    assert!(error.contains("node 1: 0x140000000 (89) 0x40000000 (11)"), "{error}");
    let enough = touches(&[&[(GIB, 100)], &[(5 * GIB, 90), (GIB, 10)]]);
    assert!(find(&enough, &TWO_BY_TWO, BELOW_4G).is_ok());
}

#[test]
fn too_few_touches_or_nodes_fail() {
    let few = touches(&[&[(0, 1000)], &[(4 * GIB, 63)]]);
    assert!(matches!(find(&few, &TWO_BY_TWO, BELOW_4G), Err(MapError::TooFew { .. })));
    let one = touches(&[&[(0, 1000)]]);
    assert_eq!(
        find(&one, &TWO_BY_TWO, BELOW_4G).unwrap_err(),
        MapError::Nodes { touched: 1, nodes: 2 }
    );
}
