//! Policies as the kernel writes them: tmpfs's `mpol=` and the words of numa_maps.
//!
//! `mode[=flags][:nodes]`, with the modes `default`, `prefer`, `bind`, `interleave`, `local`,
//! `prefer (many)`, `weighted interleave`. As a mount option there is one flag, `static` or
//! `relative`; in numa_maps there may be `balancing` too. Source: mpol_parse_str and mpol_to_str
//! (mm/mempolicy.c, v6.12).
//!
//! ```
//! use numaherd_mempolicy::kernel_text::parse_mount;
//! let memory = "0-3".parse().unwrap();
//! let request = parse_mount("bind=static:0-1", &memory).unwrap();
//! assert_eq!((request.nodes.to_string(), request.flags.to_string()), ("0-1".into(), "static".into()));
//! // Without nodes, interleaving means all that have memory.
//! assert_eq!(parse_mount("interleave", &memory).unwrap().nodes, memory);
//! ```

use numaherd_model::NodeSet;

use crate::{Flags, Mode, Request};

/// A text the kernel refuses, or would not write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no policy such as bind=static:0-1: {problem}")]
pub struct TextError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A mount option's value; `memory` are the nodes that have memory.
///
/// # Errors
/// The kernel refuses to mount with it.
pub fn parse_mount(text: &str, memory: &NodeSet) -> Result<Request, TextError> {
    let fail = |problem: &str| TextError { text: text.to_string(), problem: problem.to_string() };
    let (head, list) = split_nodes(text);
    let (mode, flags) = split_mode(head);
    let mode = mode_of(mode).ok_or_else(|| fail(&format!("there is no mode '{mode}'")))?;
    let mut nodes = match list {
        Some(list) => list.parse::<NodeSet>().map_err(|error| fail(&error.problem))?,
        None => NodeSet::new(),
    };
    if !nodes.is_subset(memory) {
        return Err(fail(&format!("of these only nodes {memory} have memory")));
    }
    match (mode, list) {
        (Mode::Preferred, Some(list)) if !list.bytes().all(|b| b.is_ascii_digit()) => {
            return Err(fail("one node can be preferred"));
        }
        (Mode::Preferred, Some(_)) if nodes.is_empty() => return Err(fail("the node is missing")),
        (Mode::Interleave | Mode::WeightedInterleave, None) => nodes = memory.clone(),
        (Mode::Local | Mode::Default, Some(_)) => return Err(fail("this mode takes no nodes")),
        (Mode::Bind | Mode::PreferredMany, None) => return Err(fail("the nodes are missing")),
        _ => {}
    }
    // The kernel is done with "default" before it looks at flags.
    let flags = match flags {
        None => Flags::NONE,
        Some(_) if mode == Mode::Default => Flags::NONE,
        Some("static") => Flags::STATIC,
        Some("relative") => Flags::RELATIVE,
        Some(_) => return Err(fail("the flag is static or relative")),
    };
    if flags.any() && nodes.is_empty() {
        return Err(fail("static and relative go with nodes only"));
    }
    if mode.takes_turns() && nodes.is_empty() || mode == Mode::Bind && nodes.is_empty() {
        return Err(fail("the nodes are missing"));
    }
    if mode == Mode::PreferredMany && nodes.is_empty() {
        return Err(fail("the nodes are missing"));
    }
    // "prefer" alone is local, in the kernel's words too
    let mode = if mode == Mode::Preferred && nodes.is_empty() { Mode::Local } else { mode };
    Ok(Request { mode, flags, nodes })
}

/// The policy of a line of numa_maps. Its nodes are those in force.
///
/// # Errors
/// The kernel writes nothing like it.
pub fn parse_map(text: &str) -> Result<Request, TextError> {
    let fail = |problem: String| TextError { text: text.to_string(), problem };
    let (head, list) = split_nodes(text);
    let (word, names) = split_mode(head);
    let mode = mode_of(word).ok_or_else(|| fail(format!("there is no mode '{word}'")))?;
    let mut flags = Flags::NONE;
    for name in names.into_iter().flat_map(|names| names.split('|')) {
        let named = [Flags::STATIC, Flags::RELATIVE, Flags::BALANCING];
        let found = named.into_iter().find(|flag| flag.to_string() == name);
        flags = flags.with(found.ok_or_else(|| fail(format!("there is no flag '{name}'")))?);
    }
    let nodes = list.map_or(Ok(NodeSet::new()), str::parse);
    Ok(Request {
        mode,
        flags,
        nodes: nodes.map_err(|e: numaherd_model::SetError| fail(e.problem))?,
    })
}

/// A request as a mount option's value; None where tmpfs has no words for it.
#[must_use]
pub fn format_mount(request: &Request) -> Option<String> {
    let flags = request.flags;
    if flags.has(Flags::BALANCING) {
        return None;
    }
    let mut text = request.mode.kernel_word().to_string();
    if flags.any() {
        text += &format!("={flags}");
    }
    if !request.nodes.is_empty() {
        text += &format!(":{}", request.nodes);
    }
    Some(text)
}

fn split_nodes(text: &str) -> (&str, Option<&str>) {
    text.split_once(':').map_or((text, None), |(head, list)| (head, Some(list)))
}

fn split_mode(head: &str) -> (&str, Option<&str>) {
    head.split_once('=').map_or((head, None), |(mode, flags)| (mode, Some(flags)))
}

fn mode_of(word: &str) -> Option<Mode> {
    Mode::ALL.into_iter().find(|mode| mode.kernel_word() == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Room};
    use proptest::prelude::*;

    fn memory() -> NodeSet {
        "0-3".parse().unwrap()
    }

    #[test]
    fn what_the_kernel_mounts_is_read_and_the_rest_is_refused() {
        for text in [
            "default",
            "prefer",
            "prefer:1",
            "prefer=static:1",
            "local",
            "bind:0-1",
            "interleave",
            "interleave=relative:0,2",
            "weighted interleave:0",
            "prefer (many):0,3",
        ] {
            assert!(parse_mount(text, &memory()).is_ok(), "{text}");
        }
        for (text, problem) in [
            ("", "no mode"),
            ("binds:0", "no mode"),
            ("bind", "missing"),
            ("bind:", "missing"),
            ("bind:9", "only nodes 0-3"),
            ("bind:x", "not a number"),
            ("local:0", "takes no nodes"),
            ("default:0", "takes no nodes"),
            ("prefer:0-1", "one node"),
            ("prefer:", "missing"),
            ("prefer=static", "with nodes only"),
            ("bind=balancing:0", "static or relative"),
            ("interleave:", "missing"),
        ] {
            let error = parse_mount(text, &memory()).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn the_words_of_numa_maps_are_read() {
        let read = parse_map("bind=static|balancing:0,2-3").unwrap();
        assert_eq!(read.mode, Mode::Bind);
        assert_eq!(read.flags, Flags::STATIC.with(Flags::BALANCING));
        assert_eq!(parse_map("prefer (many):1").unwrap().mode, Mode::PreferredMany);
        assert!(parse_map("bind=sticky:0").is_err());
    }

    proptest! {
        #[test]
        fn what_is_formatted_reads_back(request in crate::policy::tests::any_request()) {
            let room = Room { allowed: memory(), memory: memory() };
            if let Ok(Some(policy)) = Policy::new(&request, &room) {
                let told = parse_map(&policy.to_string()).unwrap();
                prop_assert_eq!(&told.nodes, policy.nodes());
                prop_assert_eq!((told.mode, told.flags), (policy.mode(), policy.flags()));
                let request = Request { nodes: policy.nodes().clone(), mode: policy.mode(), ..request };
                if let Some(text) = format_mount(&request) {
                    prop_assert_eq!(parse_mount(&text, &memory()).unwrap(), request);
                }
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = (parse_mount(&text, &memory()), parse_map(&text));
        }
    }
}
