//! What this process may name in lists of nodes and CPUs, from its status and from sysfs.
//!
//! As numactl 2.0.16 has it: without `--all` the CPUs and nodes the process may use
//! (`Cpus_allowed`, `Mems_allowed`), with it every one up to the highest there is; what is
//! inverted are as many nodes as have memory, and as many CPUs as are configured.

use std::path::Path;

use numaherd_mempolicy::intent::Universes;
use numaherd_mempolicy::lists::Universe;
use numaherd_model::{CpuId, CpuSet, IdSet, Member, NodeId, NodeSet, Topology};

use crate::file::{self, ReadError};

/// Reads the universes of the process whose status lies at `status` below `root`
/// (`proc/self/status` for ourselves).
///
/// # Errors
/// A file that is missing or not what the kernel prints there.
pub fn read(root: &Path, status: &str, topology: &Topology) -> Result<Universes, ReadError> {
    let path = root.join(status);
    let text = file::text(&path)?;
    let list = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim).unwrap_or_default()
    };
    let wrong = |_| ReadError::parse_file(&path, "a list behind _allowed_list", &text);
    let nodes: NodeSet = list("Mems_allowed_list:").parse().map_err(wrong)?;
    let cpus: CpuSet = list("Cpus_allowed_list:").parse().map_err(wrong)?;
    let highest = topology.nodes.last().map_or(0, |node| node.id.0);
    let all_nodes = up_to::<NodeId>(highest);
    let with_memory = topology.memory_nodes().count() as u32;
    let configured_cpus = configured_cpus(root).max(1);
    let all_cpus = up_to::<CpuId>(configured_cpus - 1);
    let nodes = if nodes.is_empty() { all_nodes.clone() } else { nodes };
    // the kernel may allow CPUs that do not exist
    let cpus = if cpus.is_empty() { all_cpus.clone() } else { cpus.intersection(&all_cpus) };
    Ok(Universes {
        nodes: Universe { allowed: nodes, configured: with_memory },
        all_nodes: Universe { allowed: all_nodes, configured: with_memory },
        cpus: Universe { allowed: cpus, configured: configured_cpus },
        all_cpus: Universe { allowed: all_cpus, configured: configured_cpus },
    })
}

fn up_to<T: Member>(highest: u32) -> IdSet<T> {
    (0..=highest).map(T::from_number).collect()
}

/// Folders `cpuN`: CPUs that exist, online or not.
fn configured_cpus(root: &Path) -> u32 {
    let entries = std::fs::read_dir(root.join("sys/devices/system/cpu"));
    let is_cpu = |name: &str| {
        let digits = name.strip_prefix("cpu").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_str().is_some_and(is_cpu)).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_process_may_name_its_own_nodes_and_cpus() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/2x4/root"));
        let topology = crate::topology::read(root).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sys/devices/system/cpu/cpu7")).unwrap();
        for name in ["cpu0", "cpu1", "cpufreq", "cpuidle"] {
            std::fs::create_dir_all(folder.path().join("sys/devices/system/cpu").join(name))
                .unwrap();
        }
        let status = "Cpus_allowed_list:\t1-9\nMems_allowed_list:\t1\n";
        std::fs::write(folder.path().join("status"), status).unwrap();
        let read = read(folder.path(), "status", &topology).unwrap();
        assert_eq!(read.nodes.allowed.to_string(), "1");
        assert_eq!(read.all_nodes.allowed.to_string(), "0-1");
        // three CPUs are configured, of which 1 and 2 are allowed
        assert_eq!(read.cpus.allowed.to_string(), "1-2");
        assert_eq!((read.cpus.configured, read.nodes.configured), (3, 2));
    }
}
