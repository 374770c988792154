//! `topology`: nodes, CPUs, memory, distances.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use numaherd_model::Topology;

use numaherd_sim::{Machine, SimError};

use super::machine::source;
use crate::args::{LabTuning, TopologyArgs, TopologyFormat};
use crate::{latencies, output};

/// Prints the topology below a root, or of a machine that is described somewhere.
pub fn run(args: &TopologyArgs) -> Result<ExitCode> {
    if args.measure {
        let Some(format) = args.output.plain() else {
            misuse!(
                "what is measured has no -o toml: give -o json to a file, and that to topology --measured"
            );
        };
        return super::measure::run(args.machine.as_deref(), &args.measurement, format);
    }
    let LabTuning { kernel, append, dilation, no_distance } = &args.measurement.lab;
    let used = kernel.is_some() || append.is_some() || dilation.is_some() || *no_distance;
    if used {
        misuse!(
            "--kernel, --append, --dilation and --no-distance are for what is measured: give --measure, too"
        );
    }
    if args.measured.is_some() && args.output != TopologyFormat::Toml {
        misuse!("--measured is for a machine file: give -o toml, too");
    }
    let topology = match &args.machine {
        Some(name) => super::machine::topology(name)?,
        None => numaherd_linux::topology::read(&args.root)?,
    };
    let text = match (args.hardware, args.output) {
        (true, _) => numaherd_linux::numactl::hardware(&topology),
        (false, TopologyFormat::Json) => output::json(&topology)?,
        (false, TopologyFormat::Csv) => csv(&topology),
        (false, TopologyFormat::Table) => table(&topology),
        (false, TopologyFormat::Toml) => file(args, &topology)?,
    };
    output::print(&text)
}

/// A machine file: that of a machine that has one, or one with what was measured, or else guessed.
fn file(args: &TopologyArgs, topology: &Topology) -> Result<String> {
    let name = match &args.machine {
        Some(name) => name.clone(),
        None if args.root == Path::new("/") => super::machine::HOST.into(),
        None => args.root.display().to_string(),
    };
    // A captured folder goes before a built-in machine of that name, as it does in every other format.
    let named = args.machine.as_deref().filter(|name| !super::machine::is_captured(name));
    let own = match named.map(|name| (name, Machine::built_in_text(name))) {
        Some((_, Some(text))) => Some(text.to_string()),
        Some((name, None))
            if name.ends_with(".toml") || super::machine::only_simulated(name, name).is_some() =>
        {
            let bytes = source::bytes(name)?;
            Some(numaherd_sim::text(name, bytes)?)
        }
        _ => None,
    };
    if let Some(own) = own {
        if args.measured.is_some() {
            misuse!("{name} has a file, which says how fast it is: leave --measured out");
        }
        return Ok(own);
    }
    let measured = args.measured.as_deref().map(latencies::measured).transpose()?;
    if let (Some(path), Some(known)) = (&args.measured, &measured)
        && !known.latencies.are_of(topology)
    {
        bail!(latencies::of_another(path));
    }
    let text = Machine::derived(&name, topology, measured.as_ref()).text();
    // Where in the text that nobody sees yet is of no use.
    match Machine::parse(&name, &name, &text) {
        Err(SimError::Parse { expected, .. }) => {
            bail!("{name} cannot be written as a machine file: {expected}")
        }
        read => read.map(|_| text).context("a machine file"),
    }
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
