//! Virtual machines: which threads of a QEMU process make up each of its virtual nodes.
//!
//! A guest with virtual nodes places its programs by them, so one that is torn over two host nodes
//! misleads it for good. QEMU names the threads of virtual CPUs `CPU 3/KVM` (with
//! `-name …,debug-threads=on`, as libvirt starts it), and its command line says which virtual CPUs
//! are on which virtual node: `-numa node,nodeid=0,cpus=0-3,memdev=ram0`. Without that all are one.
//! All other threads (emulator, I/O threads, vhost's since Linux 6.4) go with the first.
//!
//! Not seen: `-numa cpu,…`, which names sockets and cores instead; then all are taken for one node.
//! vhost threads of earlier kernels, which are the kernel's own and not the process's.
//!
//! Source: qemu(1), `-numa` and `-name`; `vhost_task_create` (v6.4).

use std::collections::BTreeMap;

use numaherd_model::{CpuSet, ProcessId, TaskId};

/// A thread: who, of whom, and what it is called.
pub type Named = (TaskId, ProcessId, String);

/// Tasks that belong together, one list for each virtual node, each ascending. `command_line` is
/// asked only of processes with a virtual CPU.
pub fn units(
    threads: &[Named],
    mut command_line: impl FnMut(ProcessId) -> Option<Vec<u8>>,
) -> Vec<Vec<TaskId>> {
    let mut machines: BTreeMap<ProcessId, Vec<Vec<TaskId>>> = BTreeMap::new();
    let mut nodes: BTreeMap<ProcessId, Vec<CpuSet>> = BTreeMap::new();
    for (_, process, name) in threads {
        if virtual_cpu(name).is_some() && !nodes.contains_key(process) {
            nodes.insert(*process, virtual_nodes(&command_line(*process).unwrap_or_default()));
        }
    }
    for (task, process, name) in threads {
        let Some(nodes) = nodes.get(process) else { continue };
        let of = |cpu| nodes.iter().position(|cpus| cpus.contains(numaherd_model::CpuId(cpu)));
        let node = virtual_cpu(name).and_then(of).unwrap_or(0);
        let machine = machines.entry(*process).or_default();
        machine.resize(machine.len().max(node + 1), Vec::new());
        machine[node].push(*task);
    }
    let mut units: Vec<Vec<TaskId>> = machines.into_values().flatten().collect();
    units.iter_mut().for_each(|unit| unit.sort_unstable());
    units.retain(|unit| unit.len() > 1);
    units
}

/// Processes that are virtual machines, by their threads' names.
pub fn guests(threads: &[Named]) -> impl Iterator<Item = ProcessId> + '_ {
    let of = |(_, process, name): &Named| virtual_cpu(name).map(|_| *process);
    threads.iter().filter_map(of)
}

/// The virtual CPU that a thread's name says it is.
fn virtual_cpu(name: &str) -> Option<u32> {
    let (number, kind) = name.strip_prefix("CPU ")?.split_once('/')?;
    ["KVM", "TCG"].contains(&kind).then(|| number.parse().ok())?
}

/// The virtual CPUs of each virtual node, by a command line as `/proc/PID/cmdline` has it.
fn virtual_nodes(command_line: &[u8]) -> Vec<CpuSet> {
    let text = String::from_utf8_lossy(command_line);
    let mut words = text.split('\0');
    let mut nodes: BTreeMap<u32, CpuSet> = BTreeMap::new();
    while let Some(word) = words.next() {
        if word != "-numa" && word != "--numa" {
            continue;
        }
        let Some(options) = words.next().and_then(|word| word.strip_prefix("node")) else {
            continue;
        };
        let value = |name: &'static str| {
            options.split(',').filter_map(move |o| o.strip_prefix(name)?.strip_prefix('='))
        };
        let next = nodes.last_key_value().map_or(0, |(last, _)| last + 1);
        let id = value("nodeid").next().and_then(|id| id.parse().ok()).unwrap_or(next);
        let cpus = nodes.entry(id).or_default();
        for list in value("cpus").filter_map(|list| list.parse::<CpuSet>().ok()) {
            *cpus = cpus.union(&list);
        }
    }
    nodes.into_values().filter(|cpus| !cpus.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(names: &[&str]) -> Vec<Named> {
        let process = ProcessId { tgid: 100, start: 1 };
        let task = |(i, name): (usize, &&str)| {
            (TaskId { tid: 100 + i as u32, start: 1 }, process, (*name).to_string())
        };
        names.iter().enumerate().map(task).collect()
    }

    fn told(names: &[&str], command_line: &str) -> Vec<Vec<u32>> {
        let text = command_line.replace(' ', "\0").into_bytes();
        let units = units(&threads(names), |_| Some(text.clone()));
        units.iter().map(|unit| unit.iter().map(|task| task.tid).collect()).collect()
    }

    const VM: [&str; 8] = [
        "qemu-system-x86",
        "CPU 0/KVM",
        "CPU 1/KVM",
        "CPU 2/KVM",
        "CPU 3/KVM",
        "IO iothread1",
        "vhost-100",
        "CPU 4/KVM",
    ];

    #[test]
    fn each_virtual_node_is_a_unit_and_the_rest_goes_with_the_first() {
        let line = "qemu -smp 5 -numa node,nodeid=0,cpus=0-1,memdev=ram0 \
                    -numa node,nodeid=1,cpus=2-3,cpus=4,memdev=ram1";
        assert_eq!(told(&VM, line), [vec![100, 101, 102, 105, 106], vec![103, 104, 107]]);
        // by order where they have no numbers
        let line = "qemu -numa node,cpus=2-4 -numa node,cpus=0-1";
        assert_eq!(told(&VM, line), [vec![100, 103, 104, 105, 106, 107], vec![101, 102]]);
    }

    #[test]
    fn without_virtual_nodes_all_is_one() {
        let all = [vec![100, 101, 102, 103, 104, 105, 106, 107]];
        for line in [
            "",
            "qemu -smp 5",
            "qemu -numa cpu,node-id=0,socket-id=0 -numa",
            "qemu -numa node,cpus=x",
        ] {
            assert_eq!(told(&VM, line), all, "{line}");
        }
    }

    #[test]
    fn whoever_has_no_virtual_cpu_is_none_and_is_not_asked() {
        let asked = |_| -> Option<Vec<u8>> { panic!("asked") };
        assert!(
            units(&threads(&["java", "CPU usage", "CPU x/KVM", "CPU 1/GPU"]), asked).is_empty()
        );
    }
}
