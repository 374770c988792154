//! Synthetic machines: hwloc's one-line descriptions, such as `node:4 core:8 pu:2`.
//!
//! Levels run from the whole machine to its CPUs, each with the number of objects below one
//! object of the level before; the last is `pu`, a CPU (added where it is missing). A node level
//! says where memory is; `[numa(memory=16GiB)]` attaches a node to each object of the level before
//! it, so a second one describes memory without CPUs. Grammar: lstopo(1), "synthetic".
//!
//! ```text
//! node:4 core:8 pu:2                       4 nodes of 16 CPUs
//! pack:2 node:2(memory=8GiB) pu:4          4 nodes of 4 CPUs, two to a package
//! [numa(memory=64GiB)] pack:2 [numa] pu:4  2 nodes of 4 CPUs, and one without CPUs
//! ```
//!
//! What the text does not say: CPUs are numbered through; nodes with CPUs come first, then the
//! others; a node has 1 GiB; distances are 12 within a package and 21 otherwise.

use numaherd_model::{Bytes, CpuId, CpuSet, Node, NodeId, Topology};

/// hwloc's default for a synthetic node.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Published: SLIT of nodes within one package (sub-NUMA clusters, nodes per socket).
const SAME_PACKAGE: u32 = 12;
/// Published: SLIT of two sockets.
const OTHER_PACKAGE: u32 = 21;
/// Guards against texts that describe more than any kernel can run.
const MOST_CPUS: usize = 8192;
const MOST_NODES: usize = 1024;

/// A level of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Node that is a level of its own: those below it belong to it.
    Node,
    /// `[numa]`: a node beside the CPUs of the level before.
    Attached,
    Package,
    /// Groups, dies, caches and cores: they multiply, and matter no further here.
    Other,
    Pu,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    kind: Kind,
    count: usize,
    memory_bytes: u64,
}

/// Where the nodes of one node level are: one for each object at this depth of the tree.
struct NodeLevel {
    objects: usize,
    /// Of the package level above it.
    packages: usize,
    memory_bytes: u64,
}

/// Reads a synthetic description.
///
/// # Errors
/// One line that names the offending word.
pub fn parse(text: &str) -> Result<Topology, String> {
    let mut levels: Vec<Level> =
        split_words(text).iter().map(|word| level(word)).collect::<Result<_, _>>()?;
    if levels.iter().rev().skip(1).any(|level| level.kind == Kind::Pu) {
        return Err("pu must be the last level".into());
    }
    if levels.last().is_some_and(|level| level.kind != Kind::Pu) {
        levels.push(Level { kind: Kind::Pu, count: 1, memory_bytes: 0 });
    }
    if levels.iter().filter(|level| level.kind == Kind::Node).count() > 1 {
        return Err("two node levels: further nodes are written [numa]".into());
    }
    let cpus = count_cpus(&levels)?;
    let mut places = node_levels(&levels);
    // The innermost level has the CPUs; hwloc's attached nodes further out are memory alone.
    places.sort_by_key(|place| std::cmp::Reverse(place.objects));
    let nodes = places.iter().map(|place| place.objects).sum::<usize>();
    if nodes > MOST_NODES {
        return Err(format!("{nodes} nodes: {MOST_NODES} at most"));
    }
    Ok(lay_out(&places, cpus))
}

/// Words end at spaces that are not within brackets: `node:2(memory=1GiB indexes=…)`.
fn split_words(text: &str) -> Vec<String> {
    let (mut words, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        if c.is_whitespace() && depth <= 0 {
            words.push(String::new());
        } else if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn level(word: &str) -> Result<Level, String> {
    let attached = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
    let (plain, attributes) = match attached.unwrap_or(word).split_once('(') {
        Some((plain, rest)) => {
            let inside = rest.strip_suffix(')').ok_or_else(|| format!("'{word}' lacks a ')'"))?;
            (plain, inside)
        }
        None => (attached.unwrap_or(word), ""),
    };
    let (name, count) = match (plain.split_once(':'), attached) {
        (Some((name, count)), None) => (name, count),
        (None, Some(_)) => (plain, "1"),
        _ => return Err(format!("'{word}' is no level such as node:4")),
    };
    let count = count.parse::<usize>().ok().filter(|count| (1..=MOST_CPUS).contains(count));
    let count =
        count.ok_or_else(|| format!("'{word}': a number from 1 to {MOST_CPUS} follows the ':'"))?;
    let mut kind = kind(name).ok_or_else(|| {
        format!("'{name}' is no level: group, pack, die, node, l3, l2, core and pu are")
    })?;
    if attached.is_some() {
        if kind != Kind::Node {
            return Err(format!("'{word}': only numa can stand in brackets"));
        }
        kind = Kind::Attached;
    }
    Ok(Level { kind, count, memory_bytes: memory(word, attributes)? })
}

fn kind(name: &str) -> Option<Kind> {
    let name = name.to_ascii_lowercase();
    let begins = |whole: &str, least: usize| name.len() >= least && whole.starts_with(&name);
    if begins("numanode", 4) || name == "node" {
        Some(Kind::Node)
    } else if begins("package", 4) || name == "socket" {
        Some(Kind::Package)
    } else if name == "pu" {
        Some(Kind::Pu)
    } else {
        let cache = name.strip_prefix('l').and_then(|rest| rest.chars().next());
        let other = ["group", "die", "core"].contains(&name.as_str());
        (other || cache.is_some_and(|level| ('1'..='5').contains(&level))).then_some(Kind::Other)
    }
}

/// The attribute `memory=SIZE`; hwloc's other attributes change nothing that is read here, but
/// for `indexes`, which is refused.
fn memory(word: &str, attributes: &str) -> Result<u64, String> {
    let mut bytes = DEFAULT_MEMORY_BYTES;
    for attribute in attributes.split_whitespace() {
        match attribute.split_once('=') {
            Some(("memory", size)) => {
                bytes = size_bytes(size)
                    .ok_or_else(|| format!("'{word}': memory={size} is no size such as 16GiB"))?;
            }
            Some(("indexes", _)) => return Err(format!("'{word}': indexes are not supported")),
            _ => {}
        }
    }
    Ok(bytes)
}

/// hwloc's sizes: bytes, or with kB … TB (powers of 1000) or KiB … TiB (of 1024).
fn size_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit: u64 = match text[digits..].to_ascii_lowercase().as_str() {
        "" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

fn count_cpus(levels: &[Level]) -> Result<usize, String> {
    if levels.is_empty() {
        return Err("no level such as node:4".into());
    }
    let product = levels.iter().try_fold(1, |n: usize, level| n.checked_mul(level.count));
    product.filter(|cpus| *cpus <= MOST_CPUS).ok_or_else(|| format!("more than {MOST_CPUS} CPUs"))
}

fn node_levels(levels: &[Level]) -> Vec<NodeLevel> {
    let (mut objects, mut packages) = (1, 1);
    let mut places = Vec::new();
    for level in levels {
        objects *= level.count;
        if level.kind == Kind::Package {
            packages = objects;
        }
        if matches!(level.kind, Kind::Node | Kind::Attached) {
            places.push(NodeLevel { objects, packages, memory_bytes: level.memory_bytes });
        }
    }
    if places.is_empty() {
        places.push(NodeLevel { objects: 1, packages: 1, memory_bytes: DEFAULT_MEMORY_BYTES });
    }
    places
}

fn lay_out(places: &[NodeLevel], cpus: usize) -> Topology {
    let mut topology = Topology::default();
    let most_packages = places.iter().map(|place| place.packages).max().unwrap_or(1);
    let mut package_of: Vec<Option<usize>> = Vec::new();
    for (order, place) in places.iter().enumerate() {
        for index in 0..place.objects {
            let share = if order == 0 { cpus / place.objects } else { 0 };
            let own = (index * share..(index + 1) * share).map(|cpu| CpuId(cpu as u32));
            topology.nodes.push(Node {
                id: NodeId(topology.nodes.len() as u32),
                cpus: own.collect::<CpuSet>(),
                memory: Bytes(place.memory_bytes),
                free: Bytes(place.memory_bytes),
            });
            // A node outside all packages is far from each of them.
            let inside = place.packages == most_packages;
            package_of.push(inside.then(|| index * place.packages / place.objects));
        }
    }
    let nodes = topology.nodes.len();
    let distance = |a: usize, b: usize| match (package_of[a], package_of[b]) {
        _ if a == b => 10,
        (Some(x), Some(y)) if x == y && most_packages > 1 => SAME_PACKAGE,
        _ => OTHER_PACKAGE,
    };
    topology.distances = (0..nodes).map(|a| (0..nodes).map(|b| distance(a, b)).collect()).collect();
    topology
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> Vec<String> {
        parse(text).unwrap().nodes.iter().map(|node| node.cpus.to_string()).collect()
    }

    #[test]
    fn levels_multiply_and_cpus_are_numbered_through() {
        // 4 nodes × 8 cores × 2 threads
        assert_eq!(cpus("node:4 core:8 pu:2"), ["0-15", "16-31", "32-47", "48-63"]);
        assert_eq!(cpus("Package:2 NUMANode:1 L3Cache:2 core:2"), ["0-3", "4-7"]);
        assert_eq!(cpus("pack:2 core:2 pu:2"), ["0-7"], "no node level: one node");
        assert_eq!(cpus("pack:2 [numa] core:3"), ["0-2", "3-5"]);
    }

    #[test]
    fn nodes_of_a_package_are_nearer_and_memory_is_read() {
        let topology = parse("pack:2 node:2(memory=512MiB) pu:2").unwrap();
        assert_eq!(topology.distances[0], [10, 12, 21, 21]);
        assert_eq!(topology.distances[3], [21, 21, 12, 10]);
        assert!(topology.nodes.iter().all(|node| node.memory == Bytes(512 << 20)));
        // without packages all are equally far
        assert_eq!(parse("node:3 pu:1").unwrap().distances[1], [21, 10, 21]);
    }

    #[test]
    fn a_second_attached_node_has_no_cpus_and_comes_last() {
        let topology = parse("[numa(memory=64GB)] pack:2 [numa] pu:4").unwrap();
        assert_eq!(topology.nodes.len(), 3);
        assert!(topology.nodes[2].cpus.is_empty());
        assert_eq!(topology.nodes[2].memory, Bytes(64_000_000_000));
        assert_eq!(topology.distances[2], [21, 21, 10]);
    }

    #[test]
    fn a_bad_text_is_told_by_its_word() {
        for (text, part) in [
            ("", "no level"),
            ("node", "'node' is no level such as"),
            ("node:x", "'node:x': a number"),
            ("node:0 pu:2", "'node:0': a number"),
            ("nodule:2", "'nodule' is no level"),
            ("pu:2 core:2", "pu must be the last"),
            ("node:2(memory=lots)", "memory=lots"),
            ("node:2(memory=1GiB", "lacks a ')'"),
            ("node:2(indexes=1,0)", "indexes"),
            ("[core]", "only numa"),
            ("node:8000 core:8000", "8192"),
            ("node:2000 pu:2", "2000 nodes"),
            ("node:2 node:2 pu:1", "two node levels"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}
