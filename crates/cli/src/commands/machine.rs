//! What `--machine M` names: everything the lab knows, this very machine, what `topology` wrote of one, and folders
//! with a captured one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use numaherd_lab::machine::Description;
use numaherd_lab::{LabError, Machine, derived};
use numaherd_model::Topology;
use numaherd_model::places::Places;
use numaherd_sim::SimError;

/// The name of this very machine.
pub const HOST: &str = "host";

/// A machine that can be booted.
pub fn find(name: &str) -> Result<Machine> {
    match captured(name)? {
        Some(topology) => {
            let path = Path::new(name);
            let stem = if is_json(name) { path.file_stem() } else { path.file_name() };
            let stem = stem.unwrap_or_default().to_string_lossy();
            Ok(derived::machine(&stem, &topology)?)
        }
        None => Ok(Machine::find(name)?),
    }
}

/// Its nodes, CPUs, memory and distances, whether or not it can be booted.
pub fn topology(name: &str) -> Result<Topology> {
    match captured(name)? {
        Some(topology) => Ok(topology),
        None => match Description::find(name) {
            Ok(description) => Ok(description.topology()),
            Err(error) => match only_simulated(name) {
                Some(machine) => Ok(machine?.topology()),
                None => Err(naming_all(error).into()),
            },
        },
    }
}

/// The error with the names of what the simulator takes too, where it tells names.
fn naming_all(error: LabError) -> LabError {
    match error {
        LabError::UnknownMachine { name, .. } => {
            let known = numaherd_sim::Machine::names().collect::<Vec<_>>().join(", ");
            LabError::UnknownMachine { name, known }
        }
        error => error,
    }
}

/// A machine which the simulator takes and the lab does not, or what is wrong with one that is for the simulator: what
/// the lab misses in such a file helps nobody.
fn only_simulated(name: &str) -> Option<Result<numaherd_sim::Machine, SimError>> {
    if let Some(machine) = numaherd_sim::Machine::built_in(name) {
        return Some(machine);
    }
    let text = std::fs::read_to_string(name).ok()?;
    let is_simulated = Places::of(&text).has("sim");
    let machine = numaherd_sim::Machine::parse(name, name, &text);
    (machine.is_ok() || is_simulated).then_some(machine)
}

/// This machine's topology, that below a folder, or below its folder `root`, as fixtures have it, or that of a file.
fn captured(name: &str) -> Result<Option<Topology>> {
    if name == HOST {
        return Ok(Some(numaherd_linux::topology::read(Path::new("/"))?));
    }
    if is_json(name) {
        let text = std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
        return Ok(Some(told(name, &text)?));
    }
    let folder = PathBuf::from(name);
    if !folder.is_dir() {
        return Ok(None);
    }
    let root = folder.join("root");
    let root = if root.is_dir() { root } else { folder };
    let topology = numaherd_linux::topology::read(&root);
    topology.map(Some).with_context(|| format!("no captured machine in {}", root.display()))
}

fn is_json(name: &str) -> bool {
    name.ends_with(".json")
}

/// What `topology -o json` said.
fn told(path: &str, text: &str) -> Result<Topology> {
    if serde_json::from_str::<numaherd_report::Matrices>(text).is_ok() {
        bail!(
            "{path} is what topology --measure found, which does not say what the machine has: give what topology -o \
             json writes, or a machine file of both (topology --measured {path} -o toml)"
        );
    }
    let topology: Topology = serde_json::from_str(text)
        .with_context(|| format!("{path} is not what topology -o json writes"))?;
    let wrong = |what: &str| format!("{path} is not what topology -o json writes: {what}");
    let Topology { nodes, distances, .. } = &topology;
    if nodes.is_empty() || !nodes.is_sorted_by(|a, b| a.id < b.id) {
        bail!(wrong("nodes have to be there, with ascending ids"));
    }
    let is_square =
        distances.len() == nodes.len() && distances.iter().all(|row| row.len() == nodes.len());
    if !distances.is_empty() && !is_square {
        bail!(wrong("distances have to be as many rows and columns as there are nodes"));
    }
    let all: usize = nodes.iter().map(|node| node.cpus.len()).sum();
    if topology.cpus().len() != all {
        bail!(wrong("a CPU is on one node"));
    }
    Ok(topology)
}
