//! Nodes, CPUs, memory and distances from `/sys/devices/system`.
//!
//! | read | for |
//! |------|-----|
//! | `node/online` | which nodes there are; sparse, and node 0 may be missing |
//! | `node/nodeN/cpulist` | its CPUs; empty for a memory-only node |
//! | `node/nodeN/meminfo` | total and free memory; 0 for a CPU-only node |
//! | `node/nodeN/distance` | one number per online node, in ascending order of nodes |
//! | `cpu/online` | CPUs that are offline count nowhere |
//! | `cpu/cpuN/topology/thread_siblings_list` | CPUs of its core; missing: it has none but itself |
//! | `cpu/possible` | all CPUs there may ever be |
//! | `cpu/isolated`, `cpu/nohz_full`, and `cpuset.cpus.isolated` of `/sys/fs/cgroup`, or without that `cpuset.cpus.partition` of the groups below | CPUs set apart from what the scheduler does by itself |
//!
//! A kernel built without NUMA has no `node` folder: then there is one node 0 with every CPU and
//! the memory of `/proc/meminfo`, and no distances.

use std::path::Path;
use std::str::FromStr;

use numaherd_model::{Bytes, CpuId, CpuSet, Node, NodeId, NodeSet, Topology};

use crate::file::{self, ReadError};

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";
const ONLINE_CPUS: &str = "sys/devices/system/cpu/online";
const GROUPS: &str = "sys/fs/cgroup";
const ISOLATED_PARTITIONS: &str = "sys/fs/cgroup/cpuset.cpus.isolated";
const POSSIBLE_CPUS: &str = "sys/devices/system/cpu/possible";

/// Reads the topology below `root` (`/` for this machine).
///
/// # Errors
/// A file that is missing or is not what the kernel prints there.
pub fn read(root: &Path) -> Result<Topology, ReadError> {
    let online_cpus = read_list::<CpuSet>(&root.join(ONLINE_CPUS), "a list of CPUs such as 0-3")?;
    let expected = "a list of nodes such as 0-1";
    let Some(ids) = read_list::<NodeSet>(&root.join(NODES).join("online"), expected)? else {
        return without_numa(root, online_cpus);
    };
    let mut topology = Topology::default();
    for id in ids.iter() {
        let folder = root.join(NODES).join(format!("node{id}"));
        topology.nodes.push(read_node(&folder, id, online_cpus.as_ref())?);
        if let Some(row) = read_distances(&folder.join("distance"), ids.len())? {
            topology.distances.push(row);
        }
    }
    // Square or nothing: a table with missing rows could be read against the wrong node.
    if topology.distances.len() != ids.len() {
        topology.distances.clear();
    }
    topology.siblings = read_siblings(root, &topology.cpus())?;
    Ok(topology)
}

/// The online CPUs of each core that has several.
fn read_siblings(root: &Path, online: &CpuSet) -> Result<Vec<CpuSet>, ReadError> {
    let mut cores = Vec::new();
    let mut seen = CpuSet::new();
    for cpu in online.iter() {
        if seen.contains(cpu) {
            continue;
        }
        let path = root.join(format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"));
        // A CPU may go offline meanwhile, and containers hide such files.
        let Ok(text) = file::text(&path) else { continue };
        let core = parse_list::<CpuSet>(&path, &text, "a list of CPUs such as 0-3")?;
        let core = core.intersection(online);
        core.iter().for_each(|cpu| seen.insert(cpu));
        cores.extend((core.len() > 1).then_some(core));
    }
    Ok(cores)
}

/// CPUs that are online; CPU 0 where the kernel keeps no list.
///
/// # Errors
/// The list is there and is none.
pub fn online(root: &Path) -> Result<CpuSet, ReadError> {
    let cpus = read_list::<CpuSet>(&root.join(ONLINE_CPUS), "a list of CPUs such as 0-3")?;
    Ok(cpus.unwrap_or_else(|| [CpuId(0)].into_iter().collect()))
}

/// Nodes that have memory; none where the kernel keeps no list.
///
/// # Errors
/// The list is there and is none.
pub fn with_memory(root: &Path) -> Result<Option<NodeSet>, ReadError> {
    read_list(&root.join(NODES).join("has_memory"), "a list of nodes such as 0-1")
}

/// CPUs that may ever be there, plugged in or not; those online where the kernel keeps no list.
///
/// # Errors
/// The list is there and is none.
pub fn possible(root: &Path) -> Result<CpuSet, ReadError> {
    let cpus = read_list::<CpuSet>(&root.join(POSSIBLE_CPUS), "a list of CPUs such as 0-3")?;
    cpus.map_or_else(|| online(root), Ok)
}

/// CPUs set apart by `isolcpus` or `nohz_full`, or by isolated partitions of control groups (from 6.8 on listed; before that
/// they are looked for).
///
/// # Errors
/// A file that is not what the kernel prints there.
pub fn isolated(root: &Path) -> Result<CpuSet, ReadError> {
    let mut apart = CpuSet::new();
    let listed = root.join(ISOLATED_PARTITIONS);
    if !listed.exists() {
        apart = partitions(&root.join(GROUPS));
    }
    let of_machine = ["isolated", "nohz_full"].map(|name| root.join(CPUS).join(name));
    for path in of_machine.into_iter().chain([listed]) {
        let Ok(text) = file::text(&path) else { continue };
        // Some kernels print a null pointer for none.
        if text.trim() != "(null)" {
            let cpus = parse_list::<CpuSet>(&path, &text, "a list of CPUs such as 0-3")?;
            apart = apart.union(&cpus);
        }
    }
    Ok(apart)
}

/// CPUs of isolated partitions in force below a group that is itself a partition, as the root is: a valid one has none but
/// partitions above it.
fn partitions(folder: &Path) -> CpuSet {
    let mut apart = CpuSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = file::text(&entry.path().join("cpuset.cpus.partition")).unwrap_or_default();
        let kind = kind.trim();
        if kind == "isolated" {
            let cpus = file::text(&entry.path().join("cpuset.cpus.effective")).unwrap_or_default();
            apart = apart.union(&cpus.trim().parse().unwrap_or_default());
        }
        if kind == "isolated" || kind == "root" {
            apart = apart.union(&partitions(&entry.path()));
        }
    }
    apart
}

/// CPUs that we may interrupt and run on: those online that are not set apart, as far as can be told.
#[must_use]
pub fn open(root: &Path, topology: &Topology) -> CpuSet {
    topology.cpus().difference(&isolated(root).unwrap_or_default())
}

fn without_numa(root: &Path, online_cpus: Option<CpuSet>) -> Result<Topology, ReadError> {
    // a kernel for one CPU alone has no list of CPUs either
    let cpus = online_cpus.unwrap_or_else(|| [CpuId(0)].into_iter().collect());
    let (memory, free) = read_memory(&root.join("proc/meminfo"))?;
    let nodes = vec![Node { id: NodeId(0), cpus, memory, free }];
    let siblings = read_siblings(root, &nodes[0].cpus)?;
    Ok(Topology { nodes, siblings, ..Topology::default() })
}

fn read_node(folder: &Path, id: NodeId, online: Option<&CpuSet>) -> Result<Node, ReadError> {
    let path = folder.join("cpulist");
    let cpus = parse_list::<CpuSet>(&path, &file::text(&path)?, "a list of CPUs such as 0-3")?;
    let cpus = online.map_or_else(|| cpus.clone(), |online| cpus.intersection(online));
    let (memory, free) = read_memory(&folder.join("meminfo"))?;
    Ok(Node { id, cpus, memory, free })
}

/// Total and free memory from a node's meminfo (`Node 0 MemTotal: 5 kB`) or the machine's
/// (`MemTotal: 5 kB`).
fn read_memory(path: &Path) -> Result<(Bytes, Bytes), ReadError> {
    let text = file::text(path)?;
    let find = |name: &str, expected| {
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split_ascii_whitespace().skip_while(|word| *word != name).skip(1);
            if let Some(value) = words.next() {
                let kib = value.parse::<u64>().ok().and_then(|kib| kib.checked_mul(1024));
                let wrong = || ReadError::parse(path, index + 1, expected, line);
                return kib.filter(|_| words.next() == Some("kB")).map(Bytes).ok_or_else(wrong);
            }
        }
        Err(ReadError::parse_file(path, expected, &text))
    };
    Ok((find("MemTotal:", "'MemTotal: NUMBER kB'")?, find("MemFree:", "'MemFree: NUMBER kB'")?))
}

fn read_distances(path: &Path, nodes: usize) -> Result<Option<Vec<u32>>, ReadError> {
    let Some(text) = file::text_if_present(path)? else {
        return Ok(None);
    };
    let row: Result<Vec<u32>, _> = text.split_ascii_whitespace().map(str::parse).collect();
    match row {
        Ok(row) if row.len() == nodes => Ok(Some(row)),
        _ => Err(ReadError::parse_file(path, "one distance for each online node", &text)),
    }
}

fn read_list<T: FromStr>(path: &Path, expected: &'static str) -> Result<Option<T>, ReadError> {
    let text = file::text_if_present(path)?;
    text.map(|text| parse_list(path, &text, expected)).transpose()
}

fn parse_list<T: FromStr>(path: &Path, text: &str, expected: &'static str) -> Result<T, ReadError> {
    text.parse().map_err(|_| ReadError::parse_file(path, expected, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    #[test]
    fn what_is_set_apart_is_the_machines_and_that_of_partitions() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let apart = || isolated(root).unwrap().to_string();
        assert_eq!(apart(), "");
        put(root, "sys/devices/system/cpu/isolated", "2\n");
        put(root, "sys/devices/system/cpu/nohz_full", "(null)\n");
        assert_eq!(apart(), "2");
        put(root, "sys/devices/system/cpu/nohz_full", "2-3\n");
        put(root, ISOLATED_PARTITIONS, "6-7\n");
        assert_eq!(apart(), "2-3,6-7");
        let (cpus, memory, free) = ("0-7".parse().unwrap(), Bytes(1), Bytes(1));
        let node = Node { id: NodeId(0), cpus, memory, free };
        let topology = Topology { nodes: vec![node], ..Topology::default() };
        assert_eq!(open(root, &topology).to_string(), "0-1,4-5");
        put(root, ISOLATED_PARTITIONS, "six\n");
        assert!(isolated(root).is_err());
    }

    /// Linux 6.7 and earlier.
    #[test]
    fn partitions_that_nobody_lists_are_looked_for_where_there_may_be_some() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let group = |path: &str, kind: &str, cpus: &str| {
            let path = format!("sys/fs/cgroup/{path}");
            put(root, &format!("{path}/cpuset.cpus.partition"), &format!("{kind}\n"));
            put(root, &format!("{path}/cpuset.cpus.effective"), &format!("{cpus}\n"));
        };
        group("system.slice", "member", "0-1");
        // Of a member none is in force.
        group("system.slice/db", "isolated", "0");
        group("rt", "root", "2-5");
        group("rt/loop", "isolated", "4-5");
        group("rt/other", "isolated invalid (Parent is not a partition root)", "2");
        group("alone", "isolated", "7");
        assert_eq!(isolated(root).unwrap().to_string(), "4-5,7");
        put(root, ISOLATED_PARTITIONS, "\n");
        assert_eq!(isolated(root).unwrap().to_string(), "", "all of them are listed");
    }
}
