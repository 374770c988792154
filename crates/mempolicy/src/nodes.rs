//! Arithmetic on sets of nodes, as the kernel's bitmaps have it (lib/bitmap.c): fold, onto,
//! remap. Positions count a set's members from 0, ascending.

use numaherd_model::{NodeId, NodeSet};

/// The member at `position`.
#[must_use]
pub fn nth(set: &NodeSet, position: usize) -> Option<NodeId> {
    set.iter().nth(position)
}

/// The position of a member.
#[must_use]
pub fn position(set: &NodeSet, node: NodeId) -> Option<usize> {
    set.iter().position(|member| member == node)
}

/// The next member behind `node`, around the end; None for the empty set.
#[must_use]
pub fn next_around(set: &NodeSet, node: Option<NodeId>) -> Option<NodeId> {
    let behind = node.and_then(|node| set.iter().find(|member| *member > node));
    behind.or_else(|| set.first())
}

/// Numbers modulo `size`: `{0,3,5}` folded to 3 is `{0,2}`. `size` 0 gives the empty set.
#[must_use]
pub fn fold(set: &NodeSet, size: usize) -> NodeSet {
    let Ok(size) = u32::try_from(size) else { return set.clone() };
    if size == 0 {
        return NodeSet::new();
    }
    set.iter().map(|node| NodeId(node.0 % size)).collect()
}

/// Each number n becomes the n-th member of `onto`; those for which there is none are left out.
/// `{0,2}` onto `{4,6,8}` is `{4,8}`.
#[must_use]
pub fn onto(set: &NodeSet, onto: &NodeSet) -> NodeSet {
    set.iter().filter_map(|node| nth(onto, node.0 as usize)).collect()
}

/// What relative nodes mean where `room` may be used: folded to its size, then put onto it.
#[must_use]
pub fn relative(set: &NodeSet, room: &NodeSet) -> NodeSet {
    onto(&fold(set, room.len()), room)
}

/// Each member of `old` becomes the member of `new` at the same position, around the end; others
/// stay. `{0,1,7}` from `{0,1,2}` to `{4,5}` is `{4,5,7}`.
#[must_use]
pub fn remap(set: &NodeSet, old: &NodeSet, new: &NodeSet) -> NodeSet {
    if new.is_empty() {
        return set.clone();
    }
    let moved = |node: NodeId| match position(old, node) {
        Some(at) => nth(new, at % new.len()).unwrap_or(node),
        None => node,
    };
    set.iter().map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    #[test]
    fn the_examples_hold() {
        assert_eq!(fold(&set("0,3,5"), 3), set("0,2"));
        assert_eq!(onto(&set("0,2"), &set("4,6,8")), set("4,8"));
        assert_eq!(onto(&set("3"), &set("4,6,8")), set(""));
        assert_eq!(remap(&set("0,1,7"), &set("0-2"), &set("4-5")), set("4,5,7"));
        // position 2 of three, modulo two nodes, is 0
        assert_eq!(remap(&set("2"), &set("0-2"), &set("4-5")), set("4"));
        assert_eq!(next_around(&set("1,4"), Some(NodeId(4))), Some(NodeId(1)));
        assert_eq!(next_around(&set("1,4"), Some(NodeId(2))), Some(NodeId(4)));
        assert_eq!(next_around(&set(""), None), None);
    }

    proptest! {
        #[test]
        fn relative_nodes_lie_in_the_room(a in proptest::collection::btree_set(0u32..40, 1..9),
                                          b in proptest::collection::btree_set(0u32..40, 1..9)) {
            let (a, room): (NodeSet, NodeSet) =
                (a.into_iter().map(NodeId).collect(), b.into_iter().map(NodeId).collect());
            let found = relative(&a, &room);
            prop_assert!(found.is_subset(&room) && !found.is_empty());
            prop_assert_eq!(remap(&room, &room, &room), room);
        }
    }
}
