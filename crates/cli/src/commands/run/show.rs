//! `numactl --show`: this process's policy and CPUs, byte for byte in numactl's layout (2.0.16).

use std::fmt::Write as _;
use std::process::ExitCode;

use numaherd_linux::sys::{affinity, mempolicy};
use numaherd_mempolicy::Mode;
use numaherd_model::{CpuSet, IdSet, Member, NodeId, NodeSet, Topology};

/// What is shown.
struct State {
    /// Mode and flags in one number: a policy with flags is none that numactl knows.
    raw: i32,
    nodes: NodeSet,
    /// The node the next interleaved page goes to, where there is one.
    next: Option<NodeId>,
    cpus: CpuSet,
    allowed: NodeSet,
}

/// Prints the state of this process; `caller` says what is wrong, if it is.
pub fn show(topology: &Topology, caller: &str) -> ExitCode {
    let state = mempolicy::get().and_then(|told| {
        Ok(State {
            raw: told.raw,
            nodes: told.nodes,
            next: mempolicy::next_interleaved().ok(),
            cpus: affinity::get(0)?,
            allowed: mempolicy::allowed()?,
        })
    });
    match state {
        Ok(state) => {
            put!("{}", text(&state, topology));
            ExitCode::SUCCESS
        }
        Err(error) => {
            putln!("No NUMA support available on this system.");
            say!("{caller}: {error}");
            ExitCode::from(1)
        }
    }
}

fn text(state: &State, topology: &Topology) -> String {
    let mut text = String::new();
    let mode = Mode::from_raw(state.raw);
    let word = mode.map_or_else(|| format!("[{}]", state.raw), |mode| mode.numactl_word().into());
    let first = |set: &NodeSet| set.first().map_or(0, |node| node.0);
    let next = state.next.map_or(0, |node| node.0);
    // writing to a String cannot fail
    let _ = write!(text, "policy: {word}\npreferred node: ");
    let _ = match mode {
        Some(Mode::Preferred) => writeln!(text, "{}", first(&state.nodes)),
        Some(Mode::Default) => writeln!(text, "current"),
        Some(Mode::Interleave) => writeln!(text, "{next} (interleave next)"),
        Some(Mode::WeightedInterleave) => writeln!(text, "{next} (weighted-interleave next)"),
        Some(Mode::Bind) => writeln!(text, "{}", first(&state.nodes)),
        Some(Mode::PreferredMany) => writeln!(text, "{next} (preferred-many)"),
        // numactl ends no line for modes it has no words for; scripts have learned to live with it
        Some(Mode::Local) | None => Ok(()),
    };
    if mode == Some(Mode::Interleave) {
        list(&mut text, "interleavemask", &state.nodes);
        let _ = writeln!(text, "interleavenode: {next}");
    }
    list(&mut text, "physcpubind", &state.cpus);
    let runs_on = |node: &&numaherd_model::Node| {
        state.allowed.contains(node.id) && !node.cpus.intersection(&state.cpus).is_empty()
    };
    let nodes: NodeSet = topology.nodes.iter().filter(runs_on).map(|node| node.id).collect();
    list(&mut text, "cpubind", &nodes);
    list(&mut text, "nodebind", &nodes);
    list(
        &mut text,
        "membind",
        if mode == Some(Mode::Bind) { &state.nodes } else { &state.allowed },
    );
    list(&mut text, "preferred", &state.nodes);
    text
}

fn list<T: Member>(text: &mut String, name: &str, set: &IdSet<T>) {
    let _ = write!(text, "{name}: ");
    for id in set.iter() {
        let _ = write!(text, "{} ", id.number());
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::{Bytes, Node};

    fn shown(raw: i32, nodes: &str, next: Option<u32>, cpus: &str) -> String {
        let node = |id: u32, cpus: &str| Node {
            id: NodeId(id),
            cpus: cpus.parse().unwrap(),
            memory: Bytes(1),
            free: Bytes(1),
        };
        let topology =
            Topology { nodes: vec![node(0, "0-1"), node(1, "2-3")], ..Topology::default() };
        let state = State {
            raw,
            nodes: nodes.parse().unwrap(),
            next: next.map(NodeId),
            cpus: cpus.parse().unwrap(),
            allowed: "0-1".parse().unwrap(),
        };
        text(&state, &topology)
    }

    #[test]
    fn the_layout_is_numactls() {
        assert_eq!(
            shown(0, "", None, "0-3"),
            "policy: default\npreferred node: current\nphyscpubind: 0 1 2 3 \ncpubind: 0 1 \n\
             nodebind: 0 1 \nmembind: 0 1 \npreferred: \n"
        );
        assert_eq!(
            shown(3, "0-1", Some(1), "2"),
            "policy: interleave\npreferred node: 1 (interleave next)\ninterleavemask: 0 1 \n\
             interleavenode: 1\nphyscpubind: 2 \ncpubind: 1 \nnodebind: 1 \nmembind: 0 1 \n\
             preferred: 0 1 \n"
        );
        assert_eq!(
            shown(2, "1", None, "0"),
            "policy: bind\npreferred node: 1\nphyscpubind: 0 \ncpubind: 0 \nnodebind: 0 \n\
             membind: 1 \npreferred: 1 \n"
        );
        let local = shown(4, "", None, "0");
        assert!(local.starts_with("policy: local\npreferred node: physcpubind: 0 \n"), "{local}");
        // bind with balancing is a number to numactl
        assert!(shown(0x2002, "1", None, "0").starts_with("policy: [8194]\n"));
    }
}
