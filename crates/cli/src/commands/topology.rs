//! `topology`: nodes, CPUs, memory, distances.

use std::process::ExitCode;

use anyhow::Result;
use numaherd_model::Topology;

use crate::args::{Format, LabTuning, TopologyArgs};
use crate::output;

/// Prints the topology below a root, or of a machine that is described somewhere.
pub fn run(args: &TopologyArgs) -> Result<ExitCode> {
    if args.measure {
        return super::measure::run(args.machine.as_deref(), &args.measured, args.output);
    }
    let LabTuning { kernel, append, dilation, no_distance } = &args.measured.lab;
    let used = kernel.is_some() || append.is_some() || dilation.is_some() || *no_distance;
    if used {
        misuse!(
            "--kernel, --append, --dilation and --no-distance are for what is measured: give --measure, too"
        );
    }
    let topology = match &args.machine {
        Some(name) => super::machine::topology(name)?,
        None => numaherd_linux::topology::read(&args.root)?,
    };
    let text = match (args.hardware, args.output) {
        (true, _) => numaherd_linux::numactl::hardware(&topology),
        (false, Format::Json) => output::json(&topology)?,
        (false, Format::Csv) => csv(&topology),
        (false, Format::Table) => table(&topology),
    };
    output::print(&text)
}

fn csv(topology: &Topology) -> String {
    let mut text = String::from("node,cpus,memory_bytes,free_bytes,distances\n");
    for node in &topology.nodes {
        let distances: Vec<String> =
            topology.nodes.iter().map(|to| topology.distance(node.id, to.id).to_string()).collect();
        text += &format!(
            "{},\"{}\",{},{},{}\n",
            node.id,
            node.cpus,
            node.memory.0,
            node.free.0,
            distances.join(" ")
        );
    }
    text
}

fn table(topology: &Topology) -> String {
    let distances = |node: &numaherd_model::Node| {
        let each = topology.nodes.iter().map(|to| topology.distance(node.id, to.id).to_string());
        each.collect::<Vec<_>>().join(" ")
    };
    let rows = topology.nodes.iter().map(|node| {
        let cpus = if node.cpus.is_empty() { "none".into() } else { node.cpus.to_string() };
        [
            node.id.to_string(),
            cpus,
            format!("{} MiB", node.memory.mib()),
            format!("{} MiB", node.free.mib()),
            distances(node),
        ]
    });
    numaherd_report::text::grid(["node", "cpus", "memory", "free", "distances"], rows)
}
