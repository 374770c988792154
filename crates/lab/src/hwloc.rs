//! Machines from hwloc's XML, as `lstopo machine.xml` writes it; versions 1 and 2 of the format.
//!
//! Read: each `NUMANode` object with its `os_index`, `cpuset`, `local_memory`, and the matrix of
//! latencies between them. hwloc gives a node without CPUs the CPUs that are near it, Linux gives
//! each CPU to one node; so a CPU belongs to the node with the fewest CPUs that names it, the
//! lowest id among equals. Free memory is not in the file: it is taken to be all. A file without
//! nodes is a machine of one.
//!
//! Bitmaps are words of 32 bits in hexadecimal, the highest first: `0x00000001,0x0000000f` is
//! 0-3 and 32; an empty word is 0.

use std::collections::BTreeMap;

use numaherd_model::{Bytes, CpuId, CpuSet, Node, NodeId, Topology};
use roxmltree::{Document, Error, ParsingOptions};

/// Bit of a matrix's `kind` in version 2: the values are latencies.
const MEANS_LATENCY: u64 = 4;
/// Guards against a bitmap that no kernel has.
const MOST_WORDS: usize = 2048;

/// Reads an XML file's text.
///
/// # Errors
/// One line that says what is wrong, and at which line.
pub fn parse(text: &str) -> Result<Topology, String> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|e| unsound(text, &e))?;
    let root = document.root_element();
    if root.tag_name().name() != "topology" {
        let name = root.tag_name().name();
        return Err(format!(
            "not hwloc's XML: its root is <{name}>, not <topology>: write it with lstopo"
        ));
    }
    let mut found = Vec::new();
    for element in objects(root, "NUMANode") {
        found.push(numa_node(element)?);
    }
    if found.is_empty() {
        let machine = objects(root, "Machine").next().ok_or("it has no Machine object")?;
        found.push(NumaNode { id: 0, ..numa_node_without_id(machine)? });
    }
    // Version 1 gives matrices in this order, the document's.
    let order: Vec<u32> = found.iter().map(|node| node.id).collect();
    let distances = distances(root, &order)?;
    found.sort_by_key(|node| node.id);
    if let Some(pair) = found.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(format!("two NUMANode objects have os_index {}", pair[0].id));
    }
    assign_cpus(&mut found);
    let square = |distances: BTreeMap<(u32, u32), u32>| {
        let row = |a: &NumaNode| -> Option<Vec<u32>> {
            found.iter().map(|b| distances.get(&(a.id, b.id)).copied()).collect()
        };
        found.iter().map(row).collect::<Option<Vec<_>>>()
    };
    let distances = distances.and_then(square).unwrap_or_default();
    let nodes = found
        .into_iter()
        .map(|node| Node {
            id: NodeId(node.id),
            cpus: node.cpus,
            memory: Bytes(node.memory_bytes),
            free: Bytes(node.memory_bytes),
        })
        .collect();
    Ok(Topology { nodes, distances, ..Topology::default() })
}

/// What keeps a text from being XML. One that breaks off does so at its end, of which the parser says nothing.
fn unsound(text: &str, error: &Error) -> String {
    let ends = [Error::UnexpectedEndOfStream, Error::UnclosedRootNode, Error::NoRootNode];
    let line = match ends.contains(error) {
        true => text.lines().count().max(1),
        false => error.pos().row as usize,
    };
    let told = error.to_string();
    let told = told.strip_suffix(&format!(" at {}", error.pos())).unwrap_or(&told);
    format!("line {line}: {told}: write it with lstopo")
}

type Element<'a, 'i> = roxmltree::Node<'a, 'i>;

#[derive(Debug)]
struct NumaNode {
    id: u32,
    cpus: CpuSet,
    memory_bytes: u64,
}

fn objects<'a, 'i>(
    root: Element<'a, 'i>,
    kind: &'static str,
) -> impl Iterator<Item = Element<'a, 'i>> {
    root.descendants()
        .filter(move |e| e.has_tag_name("object") && e.attribute("type") == Some(kind))
}

fn numa_node(element: Element<'_, '_>) -> Result<NumaNode, String> {
    let id =
        number(element, "os_index")?.ok_or_else(|| at(element, "a NUMANode without os_index"))?;
    // As the kernel's lists: no kernel has more nodes.
    let id = u32::try_from(id).ok().filter(|id| *id < 1 << 16);
    let id = id.ok_or_else(|| at(element, "os_index is too large"))?;
    Ok(NumaNode { id, ..numa_node_without_id(element)? })
}

fn numa_node_without_id(element: Element<'_, '_>) -> Result<NumaNode, String> {
    let set = |name: &str| {
        let text = element.attribute(name);
        text.map(|text| {
            bitmap(text).ok_or_else(|| at(element, &format!("{name} is no bitmap: '{text}'")))
        })
        .transpose()
    };
    let cpus = set("cpuset")?.unwrap_or_default();
    // Version 1 names what is online apart.
    let cpus = set("online_cpuset")?.map_or(cpus.clone(), |online| cpus.intersection(&online));
    let memory_bytes = number(element, "local_memory")?.unwrap_or(0);
    Ok(NumaNode { id: 0, cpus, memory_bytes })
}

fn number(element: Element<'_, '_>, name: &str) -> Result<Option<u64>, String> {
    let text = element.attribute(name);
    text.map(|text| {
        text.parse().map_err(|_| at(element, &format!("{name} is no number: '{text}'")))
    })
    .transpose()
}

fn at(element: Element<'_, '_>, problem: &str) -> String {
    let line = element.document().text_pos_at(element.range().start).row;
    format!("line {line}: {problem}")
}

fn bitmap(text: &str) -> Option<CpuSet> {
    let words: Vec<&str> = text.split(',').collect();
    if words.len() > MOST_WORDS {
        return None;
    }
    let mut set = CpuSet::new();
    for (index, word) in words.iter().rev().enumerate() {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let word = if digits.is_empty() { 0 } else { u32::from_str_radix(digits, 16).ok()? };
        let bits = (0..32).filter(|bit| word >> bit & 1 == 1);
        bits.for_each(|bit| set.insert(CpuId(index as u32 * 32 + bit)));
    }
    Some(set)
}

/// Each CPU to one node: the one with the fewest CPUs, the lowest id among equals.
fn assign_cpus(nodes: &mut [NumaNode]) {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|&index| (nodes[index].cpus.len(), nodes[index].id));
    let mut taken = CpuSet::new();
    for index in order {
        let own: CpuSet = nodes[index].cpus.iter().filter(|&cpu| !taken.contains(cpu)).collect();
        own.iter().for_each(|cpu| taken.insert(cpu));
        nodes[index].cpus = own;
    }
}

/// SLIT values by (from, to), by the nodes' ids.
type Distances = BTreeMap<(u32, u32), u32>;

/// None where the file has no latencies of nodes.
fn distances(root: Element<'_, '_>, order: &[u32]) -> Result<Option<Distances>, String> {
    for element in root.descendants().filter(|e| e.has_tag_name("distances2")) {
        let latency = number(element, "kind")?.is_some_and(|kind| kind & MEANS_LATENCY != 0);
        if latency && element.attribute("type") == Some("NUMANode") {
            let ids = words(element, "indexes")?;
            let ids = match element.attribute("indexing") {
                Some("os") => ids.iter().map(|id| u32::try_from(*id).ok()).collect(),
                indexing => return Err(at(element, &format!("indexing {indexing:?} is not 'os'"))),
            };
            let ids: Option<Vec<u32>> = ids;
            let ids = ids.ok_or_else(|| at(element, "an index is too large"))?;
            return table(element, &ids, &words(element, "u64values")?).map(Some);
        }
    }
    for element in root.descendants().filter(|e| e.has_tag_name("distances")) {
        let base = element.attribute("latency_base").and_then(|base| base.parse::<f64>().ok());
        let values: Option<Vec<u64>> = element
            .children()
            .filter(|e| e.has_tag_name("latency"))
            .map(|e| Some((e.attribute("value")?.parse::<f64>().ok()? * base?).round() as u64))
            .collect();
        let values = values.ok_or_else(|| at(element, "a latency is no number"))?;
        // A matrix of something else has another size.
        if values.len() == order.len() * order.len() {
            return table(element, order, &values).map(Some);
        }
    }
    Ok(None)
}

/// Numbers in the text of all children of a name.
fn words(element: Element<'_, '_>, name: &str) -> Result<Vec<u64>, String> {
    let texts = element.children().filter(|e| e.has_tag_name(name)).filter_map(|e| e.text());
    let numbers: Result<Vec<u64>, _> =
        texts.flat_map(str::split_ascii_whitespace).map(str::parse).collect();
    numbers.map_err(|_| at(element, &format!("{name} holds something that is no number")))
}

fn table(element: Element<'_, '_>, ids: &[u32], values: &[u64]) -> Result<Distances, String> {
    if values.len() != ids.len() * ids.len() {
        let (n, have) = (ids.len(), values.len());
        return Err(at(element, &format!("{n} nodes need {} distances, not {have}", n * n)));
    }
    let pairs = ids.iter().flat_map(|&a| ids.iter().map(move |&b| (a, b)));
    let value = |v: &u64| u32::try_from(*v).map_err(|_| at(element, "a distance is too large"));
    pairs.zip(values).map(|(pair, v)| Ok((pair, value(v)?))).collect()
}

#[cfg(test)]
#[path = "hwloc/tests.rs"]
mod tests;
