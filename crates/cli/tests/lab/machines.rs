//! Odd machines, booted: the kernel sees the nodes that were asked for, and `topology -H` prints
//! there what numactl prints.
//!
//! A few by default; `TOPOLOGIES=all` boots every machine and every captured tree that the
//! emulator can build (`make topology-test`, some ten minutes).

use std::path::Path;

use numaherd_model::{NodeId, NodeSet};
use serde_json::Value;

use crate::Bench;
use crate::transcript::{numaherd, program, run, same_hardware};

/// Of everything that can be asked for, what is least like a usual machine.
const FEW: &[&str] = &["sparse", "fixtures/memory-first", "fixtures/asymmetric"];

/// The emulator's limit.
const MOST_CPUS: usize = 64;

fn asked(machine: &str) -> Value {
    run(&mut numaherd(&["topology", "--machine", machine, "-o", "json"])).ends_with(0).json()
}

fn machines() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if std::env::var("TOPOLOGIES").is_ok_and(|which| which == "all") {
        let mut all: Vec<String> =
            numaherd_lab::machine::names().iter().map(|name| name.to_string()).collect();
        let tiny = "[numa(memory=16MiB)]";
        all.push(format!("group:22 {tiny} {tiny} {tiny} pu:1"));
        all.push("pack:2 node:2 pu:2".into());
        all.push(root.join("fixtures/hwloc/cxl.xml").display().to_string());
        let entries = std::fs::read_dir(root.join("fixtures")).unwrap().flatten();
        let trees = entries.map(|e| e.path()).filter(|path| path.join("root").is_dir());
        all.extend(trees.map(|path| path.display().to_string()));
        all.retain(|machine| buildable(&asked(machine)));
        all.sort();
        return all;
    }
    let path = |name: &str| match name.strip_prefix("fixtures/") {
        Some(_) => root.join(name).display().to_string(),
        None => name.to_string(),
    };
    FEW.iter().map(|name| path(name)).collect()
}

/// Not too many CPUs, one at least, and distances that firmware may give.
fn buildable(machine: &Value) -> bool {
    let cpus: usize = nodes(machine).iter().map(|(_, cpus)| cpus).sum();
    let distances = machine["distances"].as_array().unwrap();
    let far = distances.iter().flat_map(|row| row.as_array().unwrap()).any(|d| d == 255);
    (1..=MOST_CPUS).contains(&cpus) && !far
}

/// Id and number of CPUs of each node.
fn nodes(machine: &Value) -> Vec<(u64, usize)> {
    let count = |cpus: &str| {
        cpus.parse::<numaherd_model::CpuSet>().unwrap_or_else(|e| panic!("{cpus}: {e}")).len()
    };
    let node = |node: &Value| (node["id"].as_u64().unwrap(), count(node["cpus"].as_str().unwrap()));
    machine["nodes"].as_array().unwrap().iter().map(node).collect()
}

#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn odd_machines_boot_and_print_as_numactl_prints_them() {
    for machine in machines() {
        let bench = Bench::new();
        let script = format!(
            "numactl -H > theirs; {0} topology -H > ours; {0} topology -o json > seen.json; \
             cat /sys/devices/system/node/has_memory > has_memory",
            program()
        );
        let words = ["lab", "run", "--no-distance", "--machine", &machine];
        eprintln!("booting {machine}");
        run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
        same_hardware(&bench.shared("ours"), &bench.shared("theirs"));
        let (asked, seen) = (asked(&machine), bench.shared("seen.json"));
        let seen: Value = serde_json::from_str(&seen).unwrap();
        assert_eq!(nodes(&seen), nodes(&asked), "{machine}: nodes and their CPUs");
        // Where none are given the kernel makes them up.
        if asked["distances"].as_array().is_some_and(|rows| !rows.is_empty()) {
            assert_eq!(seen["distances"], asked["distances"], "{machine}");
        }
        // Of a node this small the kernel and what it unpacks may take all.
        let small = 16 << 20;
        let seen: NodeSet = bench.shared("has_memory").trim().parse().unwrap();
        for node in asked["nodes"].as_array().unwrap() {
            let (id, memory) = (node["id"].as_u64().unwrap(), node["memory"].as_u64().unwrap());
            let seen = seen.contains(NodeId(id as u32));
            let right = seen == (memory > 0) || !seen && memory < small;
            assert!(right, "{machine}: node {id}, asked for {memory} bytes, has memory: {seen}");
        }
        bench.left_nothing();
    }
}
