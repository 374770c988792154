//! Which counters of memory controllers there are, and of which node's memory each is.
//!
//! The kernel shows a server's controllers (Intel's) as devices `uncore_imc_N` with the events `cas_count_read` and
//! `cas_count_write`: lines, with the factor to MiB. A device counts for a whole package, on the CPU that its
//! `cpumask` names; so it tells of a node where that has the package's CPUs, and of nothing where a package is
//! several nodes (sub-NUMA clusters).
//!
//! Source: the kernel's Documentation/ABI/testing/sysfs-bus-event_source-devices-events and -format, and the `cpumask` of
//! arch/x86/events/intel/uncore.c.

use std::path::{Path, PathBuf};

use numaherd_model::{CpuId, CpuSet, NodeId, Topology};

const DEVICES: &str = "sys/bus/event_source/devices";
const EVENTS: [&str; 2] = ["cas_count_read", "cas_count_write"];

/// One counter to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its device's folder.
    pub device: PathBuf,
    /// The event's name.
    pub event: &'static str,
    /// Where it is opened.
    pub cpu: CpuId,
    /// Whose memory it counts.
    pub node: NodeId,
}

/// All of them; none where there are none, or where it cannot be told whose they are.
pub fn find(root: &Path, topology: &Topology) -> Vec<Controller> {
    let Ok(entries) = std::fs::read_dir(root.join(DEVICES)) else { return Vec::new() };
    let is_controller = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("uncore_imc"))
    };
    let mut devices: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_controller).collect();
    devices.sort();
    devices.iter().flat_map(|device| of_device(root, device, topology)).collect()
}

fn of_device(root: &Path, device: &Path, topology: &Topology) -> Vec<Controller> {
    let has_all = EVENTS.iter().all(|event| device.join("events").join(event).exists());
    let Some(cpus) = cpus(&device.join("cpumask")).filter(|_| has_all) else { return Vec::new() };
    let node = |cpu: CpuId| {
        let name = format!("sys/devices/system/cpu/cpu{}/topology", cpu.0);
        let package = cpus_of_package(&root.join(name))?;
        let node = topology.nodes.iter().find(|node| node.cpus.contains(cpu))?;
        // Of those that are online: the package may have more than the node shows.
        let others =
            package.iter().any(|cpu| topology.node_of_cpu(cpu).is_some_and(|id| id != node.id));
        (!others).then_some(node.id)
    };
    let known = cpus.iter().filter_map(|cpu| Some((cpu, node(cpu)?)));
    let both = |(cpu, node)| {
        EVENTS.map(|event| Controller { device: device.to_path_buf(), event, cpu, node })
    };
    known.flat_map(both).collect()
}

/// The file has this name since 5.4, and another before.
fn cpus_of_package(folder: &Path) -> Option<CpuSet> {
    cpus(&folder.join("package_cpus_list")).or_else(|| cpus(&folder.join("core_siblings_list")))
}

fn cpus(path: &Path) -> Option<CpuSet> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    /// Two packages of four CPUs, with two controllers each, one of them of a kind that has no such events.
    fn tree(mask: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for device in ["uncore_imc_0", "uncore_imc_1", "uncore_imc_free_running", "cpu"] {
            write(&format!("{DEVICES}/{device}/cpumask"), mask);
        }
        for (device, event) in
            ["uncore_imc_0", "uncore_imc_1", "cpu"].iter().flat_map(|d| EVENTS.map(|e| (d, e)))
        {
            write(&format!("{DEVICES}/{device}/events/{event}"), "event=0x04,umask=0x03\n");
        }
        for cpu in 0..8 {
            let list = if cpu < 4 { "0-3\n" } else { "4-7\n" };
            write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/package_cpus_list"), list);
        }
        root
    }

    #[test]
    fn each_package_has_its_controllers() {
        let root = tree("0,4\n");
        let found = find(root.path(), &Scene::two_by_four().snapshot().topology);
        let told: Vec<(String, &str, u32, u32)> = found
            .iter()
            .map(|c| {
                let name = c.device.file_name().unwrap().to_string_lossy().into_owned();
                (name, c.event, c.cpu.0, c.node.0)
            })
            .collect();
        let of = |device: &str| {
            [(0, 0), (4, 1)]
                .iter()
                .flat_map(move |&(cpu, node)| {
                    EVENTS.map(|event| (device.to_string(), event, cpu, node))
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(told, [of("uncore_imc_0"), of("uncore_imc_1")].concat());
    }

    #[test]
    fn of_a_package_of_several_nodes_nothing_is_told() {
        let root = tree("0,4\n");
        assert_eq!(find(root.path(), &Scene::even(4, 2).snapshot().topology), []);
        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(find(nowhere.path(), &Scene::two_by_four().snapshot().topology), []);
        assert_eq!(find(tree("none\n").path(), &Scene::two_by_four().snapshot().topology), []);
    }
}
