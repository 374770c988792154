//! Captured machines give the topology and the text that numactl gives on them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use numaherd_linux::{numactl, topology};
use numaherd_model::{Bytes, CpuId, NodeId, Topology};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn captured_machines_print_as_numactl_prints_them() {
    let mut machines = Vec::new();
    for entry in fs::read_dir(fixture("")).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(golden) = fs::read_to_string(folder.join("numactl-H.txt")) else { continue };
        let topology = topology::read(&folder.join("root"));
        let topology = topology.unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        assert_eq!(numactl::hardware(&topology), golden, "{}", folder.display());
        machines.push(topology);
    }
    // The fixtures' point is that they are odd, and many.
    let count = |odd: &dyn Fn(&Topology) -> bool| machines.iter().filter(|t| odd(t)).count();
    assert!(machines.len() >= 28, "only {} machines", machines.len());
    for (what, number) in [
        ("no node 0", count(&|t| t.node(NodeId(0)).is_none())),
        ("more than 64 nodes", count(&|t| t.nodes.len() > 64)),
        ("more than 1024 CPUs", count(&|t| t.cpus().len() > 1024)),
        ("no distances", count(&|t| t.distances.is_empty())),
        ("memory without CPUs", count(&|t| t.nodes.iter().any(|n| n.cpus.is_empty()))),
        ("CPUs without memory", count(&|t| t.memory_nodes().count() < t.nodes.len())),
        ("not symmetric", count(&asymmetric)),
    ] {
        assert!(number > 0, "no machine with {what}");
    }
}

fn asymmetric(topology: &Topology) -> bool {
    let ids: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
    let differs = |a, b| topology.distance(a, b) != topology.distance(b, a);
    ids.iter().any(|&a| ids.iter().any(|&b| differs(a, b)))
}

#[test]
fn a_node_may_lack_cpus_or_memory_and_be_any_number() {
    // mixed: node 1 has CPU 2 (3 is offline) and no memory, node 2 memory and no CPU
    let mixed = topology::read(&fixture("mixed/root")).unwrap();
    let node = |id| mixed.node(NodeId(id)).unwrap();
    assert_eq!((node(1).cpus.to_string().as_str(), node(1).memory), ("2", Bytes(0)));
    assert!(node(2).cpus.is_empty() && node(2).memory.0 > 0);
    assert_eq!(mixed.node_of_cpu(CpuId(3)), None, "offline CPUs count nowhere");

    let sparse = topology::read(&fixture("sparse/root")).unwrap();
    assert_eq!(sparse.nodes.iter().map(|n| n.id.0).collect::<Vec<_>>(), [8, 16, 252]);
    assert_eq!(sparse.distance(NodeId(16), NodeId(252)), 80);
    assert_eq!(sparse.cpu_nodes().count(), 2);
    assert_eq!(sparse.memory_nodes().count(), 3);
}

#[test]
fn a_kernel_without_numa_is_one_node() {
    let topology = topology::read(&fixture("no-numa/root")).unwrap();
    assert_eq!(topology.nodes.len(), 1);
    assert_eq!(topology.nodes[0].id, NodeId(0));
    assert_eq!(topology.nodes[0].cpus.to_string(), "0-3");
    assert_eq!(topology.nodes[0].memory, Bytes(4_026_340 * 1024));
    let text = numactl::hardware(&topology);
    assert!(text.ends_with("No distance information available.\n"), "{text}");
}

#[test]
fn eighty_nodes_with_1280_cpus_are_read() {
    const NODES: u32 = 80;
    const CPUS: u32 = 16;
    let root = tempfile::tempdir().unwrap();
    let top = "sys/devices/system";
    put(root.path(), &format!("{top}/node/online"), "0-79\n");
    put(root.path(), &format!("{top}/cpu/online"), "0-1279\n");
    for node in 0..NODES {
        let folder = format!("{top}/node/node{node}");
        let (first, last) = (node * CPUS, node * CPUS + CPUS - 1);
        put(root.path(), &format!("{folder}/cpulist"), &format!("{first}-{last}\n"));
        let meminfo = format!("\nNode {node} MemTotal: 2048 kB\nNode {node} MemFree: {node} kB\n");
        put(root.path(), &format!("{folder}/meminfo"), &meminfo);
        let row: Vec<_> = (0..NODES).map(|to| (10 + 2 * node.abs_diff(to)).to_string()).collect();
        put(root.path(), &format!("{folder}/distance"), &row.join(" "));
    }
    let topology = topology::read(root.path()).unwrap();
    assert_eq!(topology.nodes.len(), 80);
    assert_eq!(topology.cpus().len(), 1280);
    assert_eq!(topology.node_of_cpu(CpuId(1279)), Some(NodeId(79)));
    // 79 steps apart: 10 + 2 * 79
    assert_eq!(topology.distance(NodeId(0), NodeId(79)), 168);
    let text = numactl::hardware(&topology);
    assert!(text.starts_with("available: 80 nodes (0-79)\nnode 0 cpus: 0 1 2 "));
    assert_eq!(text.lines().count(), 1 + 3 * 80 + 2 + 80);
    // three digits make the column wider, as numactl's do
    assert!(text.contains("\n 79:  168  166 "));
}

#[test]
fn siblings_are_the_online_cpus_of_a_core() {
    let root = tempfile::tempdir().unwrap();
    let top = "sys/devices/system";
    put(root.path(), &format!("{top}/node/online"), "0\n");
    put(root.path(), &format!("{top}/cpu/online"), "0-4,6\n");
    put(root.path(), &format!("{top}/node/node0/cpulist"), "0-6\n");
    let meminfo = "Node 0 MemTotal: 8 kB\nNode 0 MemFree: 4 kB\n";
    put(root.path(), &format!("{top}/node/node0/meminfo"), meminfo);
    // Nothing is known of CPU 3, and CPU 5 is offline.
    for (cpu, core) in [(0, "0,4"), (1, "1,5"), (2, "2,6"), (4, "0,4"), (6, "2,6")] {
        let file = format!("{top}/cpu/cpu{cpu}/topology/thread_siblings_list");
        put(root.path(), &file, &format!("{core}\n"));
    }
    let topology = topology::read(root.path()).unwrap();
    let cores: Vec<String> = topology.siblings.iter().map(ToString::to_string).collect();
    assert_eq!(cores, ["0,4", "2,6"]);
    let of = |cpus: &str| topology.cores(&cpus.parse().unwrap());
    assert_eq!([of("0-4,6"), of("0,2"), of("4"), of("2,6"), of("1,3")], [4, 2, 1, 1, 2]);
}

#[test]
fn what_cannot_be_read_is_one_line_with_path_and_expectation() {
    let broken = |file: &str, text: &str| {
        let root = tempfile::tempdir().unwrap();
        let top = "sys/devices/system";
        put(root.path(), &format!("{top}/node/online"), "0\n");
        put(root.path(), &format!("{top}/cpu/online"), "0-1\n");
        put(root.path(), &format!("{top}/node/node0/cpulist"), "0-1\n");
        let meminfo = "Node 0 MemTotal: 8 kB\nNode 0 MemFree: 4 kB\n";
        put(root.path(), &format!("{top}/node/node0/meminfo"), meminfo);
        put(root.path(), &format!("{top}/node/node0/distance"), "10\n");
        topology::read(root.path()).expect("it is whole before it is broken");
        put(root.path(), &format!("{top}/{file}"), text);
        let error = topology::read(root.path()).unwrap_err().to_string();
        error.strip_prefix(&format!("{}/", root.path().display())).unwrap().to_string()
    };
    for (file, text, expected) in [
        ("node/online", "0-x\n", "line 1: expected a list of nodes such as 0-1, found '0-x'"),
        ("cpu/online", "1-0\n", "line 1: expected a list of CPUs such as 0-3, found '1-0'"),
        ("node/node0/cpulist", "?\n", "line 1: expected a list of CPUs such as 0-3, found '?'"),
        (
            "cpu/cpu1/topology/thread_siblings_list",
            "0-\n",
            "line 1: expected a list of CPUs such as 0-3, found '0-'",
        ),
        ("node/node0/meminfo", "", "line 1: expected 'MemTotal: NUMBER kB', found ''"),
        (
            "node/node0/meminfo",
            "Node 0 MemTotal: 8 kB\nNode 0 MemFree: many kB\n",
            "line 2: expected 'MemFree: NUMBER kB', found 'Node 0 MemFree: many kB'",
        ),
        (
            "node/node0/distance",
            "10 21\n",
            "line 1: expected one distance for each online node, found '10 21'",
        ),
    ] {
        assert_eq!(broken(file, text), format!("sys/devices/system/{file} {expected}"));
    }
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "sys/devices/system/node/online", "0-1\n");
    let error = topology::read(root.path()).unwrap_err().to_string();
    assert!(error.contains("node0/cpulist: No such file"), "{error}");
}

/// Free memory may differ by 1 % between two looks, everything else not at all.
#[test]
fn this_machine_prints_as_numactl_prints_it() {
    let Ok(output) = Command::new("numactl").arg("-H").output() else {
        eprintln!("numactl is not installed: not compared");
        return;
    };
    let theirs = String::from_utf8(output.stdout).unwrap();
    let close = |ours: &str, theirs: &str| {
        let number = |line: &str| line.strip_suffix(" MB")?.rsplit(' ').next()?.parse::<u64>().ok();
        let free = ours.contains(" free: ") && theirs.contains(" free: ");
        match (number(ours), number(theirs)) {
            (Some(a), Some(b)) if free => a.abs_diff(b) * 100 <= b.max(100),
            _ => ours == theirs,
        }
    };
    // while memory is in heavy use, or hot-plugged, two looks may differ by more
    let mut ours = String::new();
    for _ in 0..20 {
        let theirs = String::from_utf8(Command::new("numactl").arg("-H").output().unwrap().stdout);
        let theirs = theirs.unwrap();
        ours = numactl::hardware(&topology::read("/".as_ref()).unwrap());
        let lines = ours.lines().zip(theirs.lines());
        if ours.lines().count() == theirs.lines().count() && lines.clone().all(|(a, b)| close(a, b))
        {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("ours:\n{ours}\nnumactl's:\n{theirs}");
}
