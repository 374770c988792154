//! Worked examples of what the kernel accepts and of rebinding, and properties of both.

use proptest::prelude::*;

use super::*;

fn set(text: &str) -> NodeSet {
    text.parse().unwrap()
}

fn room(allowed: &str) -> Room {
    Room { allowed: set(allowed), memory: set("0-3") }
}

fn made(
    mode: Mode,
    flags: Flags,
    nodes: &str,
    allowed: &str,
) -> Result<Option<Policy>, PolicyError> {
    Policy::new(&Request { mode, flags, nodes: set(nodes) }, &room(allowed))
}

#[test]
fn default_is_no_policy_and_preferred_without_nodes_is_local() {
    assert_eq!(made(Mode::Default, Flags::NONE, "", "0-3").unwrap(), None);
    // the kernel lets flags pass where there is no policy
    assert_eq!(made(Mode::Default, Flags::STATIC, "", "0-3").unwrap(), None);
    for mode in [Mode::Preferred, Mode::Local] {
        let policy = made(mode, Flags::NONE, "", "0-3").unwrap().unwrap();
        assert_eq!((policy.mode(), policy.to_string().as_str()), (Mode::Local, "local"));
    }
}

#[test]
fn refusals_are_the_kernels() {
    let refused = |mode, flags, nodes| made(mode, flags, nodes, "0-1").unwrap_err();
    let both = Flags::STATIC.with(Flags::RELATIVE);
    assert_eq!(refused(Mode::Bind, both, "0"), PolicyError::StaticAndRelative);
    assert!(matches!(refused(Mode::Default, Flags::NONE, "0"), PolicyError::NodesNotWanted { .. }));
    assert!(matches!(refused(Mode::Local, Flags::STATIC, ""), PolicyError::FlagsNotWanted { .. }));
    assert!(matches!(refused(Mode::Bind, Flags::NONE, ""), PolicyError::NodesMissing { .. }));
    let balancing = refused(Mode::Interleave, Flags::BALANCING, "0");
    assert!(matches!(balancing, PolicyError::BalancingNotHere { .. }));
    let outside = refused(Mode::Bind, Flags::NONE, "2-3");
    assert_eq!(
        outside.to_string(),
        "none of nodes 2-3 has memory that may be used here (those with memory in the cpuset: 0-1)"
    );
    assert_eq!(outside.errno(), Errno::Invalid);
    let mut interleave = made(Mode::Interleave, Flags::NONE, "0", "0-1").unwrap().unwrap();
    let error = interleave.set_home(NodeId(0), &set("0-3")).unwrap_err();
    assert_eq!(error.errno(), Errno::NotSupported);
    assert_eq!(interleave.set_home(NodeId(9), &set("0-3")).unwrap_err().errno(), Errno::Invalid);
}

#[test]
fn the_cpuset_cuts_plain_nodes_and_counts_relative_ones() {
    let text = |flags, nodes| made(Mode::Bind, flags, nodes, "1,3").unwrap().unwrap().to_string();
    assert_eq!(text(Flags::NONE, "0-1"), "bind:1");
    assert_eq!(text(Flags::STATIC, "0-1"), "bind=static:1");
    // positions 0 and 1 of {1,3}
    assert_eq!(text(Flags::RELATIVE, "0-1"), "bind=relative:1,3");
    // 3 mod 2 = 1, the second of {1,3}
    assert_eq!(text(Flags::RELATIVE, "3"), "bind=relative:3");
    let preferred = made(Mode::Preferred, Flags::NONE, "2-3", "0-3").unwrap().unwrap();
    assert_eq!(preferred.to_string(), "prefer:2", "the first one only");
}

#[test]
fn a_changed_cpuset_moves_plain_cuts_static_and_counts_relative_nodes_anew() {
    for (mode, flags, nodes, expected) in [
        // positions 0,1 of 0-1 become those of 2-3
        (Mode::Bind, Flags::NONE, "0-1", "bind:2-3"),
        (Mode::Interleave, Flags::NONE, "1", "interleave:3"),
        // nothing of 0-1 is in 2-3: all of 2-3
        (Mode::Bind, Flags::STATIC, "0-1", "bind=static:2-3"),
        (Mode::Bind, Flags::STATIC, "1-2", "bind=static:2"),
        (Mode::WeightedInterleave, Flags::RELATIVE, "1", "weighted interleave=relative:3"),
        // preferred nodes stay
        (Mode::Preferred, Flags::NONE, "1", "prefer:1"),
        (Mode::PreferredMany, Flags::RELATIVE, "0-1", "prefer (many)=relative:0-1"),
        // remapped from the nodes asked for, {1}, of which 1 is the first: 2
        (Mode::Bind, Flags::BALANCING, "1", "bind=balancing:2"),
    ] {
        let mut policy = made(mode, flags, nodes, "0-1").unwrap().unwrap();
        policy.rebind(&set("2-3"));
        assert_eq!(policy.to_string(), expected);
    }
}

#[test]
fn static_nodes_come_back_with_the_cpuset() {
    let mut policy = made(Mode::Interleave, Flags::STATIC, "0-2", "0-3").unwrap().unwrap();
    for (cpuset, expected) in [("1", "1"), ("3", "3"), ("0-3", "0-2")] {
        policy.rebind(&set(cpuset));
        assert_eq!(policy.nodes(), &set(expected), "in {cpuset}");
        assert_eq!(policy.told_nodes(), &set("0-2"));
    }
}

pub fn any_request() -> impl Strategy<Value = Request> {
    let flags = prop_oneof![
        Just(Flags::NONE),
        Just(Flags::STATIC),
        Just(Flags::RELATIVE),
        Just(Flags::BALANCING)
    ];
    let nodes = proptest::collection::btree_set(0u32..6, 0..4);
    (0..7i32, flags, nodes).prop_map(|(mode, flags, nodes)| Request {
        mode: Mode::from_raw(mode).unwrap(),
        flags,
        nodes: nodes.into_iter().map(NodeId).collect(),
    })
}

fn any_room() -> impl Strategy<Value = Room> {
    proptest::collection::btree_set(0u32..4, 1..4).prop_map(|allowed| Room {
        allowed: allowed.into_iter().map(NodeId).collect(),
        memory: set("0-3"),
    })
}

proptest! {
    #[test]
    fn an_accepted_policy_stays_within_its_cpuset(request in any_request(), first in any_room(), then in any_room()) {
        if let Ok(Some(mut policy)) = Policy::new(&request, &first) {
            prop_assert!(policy.nodes().is_subset(&first.usable()));
            prop_assert_eq!(policy.nodes().is_empty(), policy.mode() == Mode::Local);
            policy.rebind(&then.allowed);
            if !matches!(policy.mode(), Mode::Preferred | Mode::PreferredMany) {
                prop_assert!(policy.nodes().is_subset(&then.allowed) || !policy.flags().fixes_nodes());
            }
            prop_assert_eq!(policy.nodes().is_empty(), policy.mode() == Mode::Local);
        }
    }

    #[test]
    fn the_same_cpuset_again_changes_nothing(request in any_request(), room in any_room()) {
        if let Ok(Some(policy)) = Policy::new(&request, &room) {
            let mut again = policy.clone();
            again.rebind(&room.allowed);
            prop_assert!(again.nodes() == policy.nodes() || policy.flags().has(Flags::BALANCING));
        }
    }
}
