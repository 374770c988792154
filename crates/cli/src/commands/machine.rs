//! What `--machine M` names: everything the lab knows, and folders with a captured machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use numaherd_lab::machine::Description;
use numaherd_lab::{LabError, Machine, derived};
use numaherd_model::Topology;

/// A machine that can be booted.
pub fn find(name: &str) -> Result<Machine> {
    match captured(name)? {
        Some(topology) => {
            let stem = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
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
            Err(error) => Ok(only_simulated(name).ok_or_else(|| naming_all(error))?),
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

/// That of a machine which the simulator takes and the lab does not.
fn only_simulated(name: &str) -> Option<Topology> {
    let machine = numaherd_sim::Machine::built_in(name).unwrap_or_else(|| {
        let text = std::fs::read_to_string(name).unwrap_or_default();
        numaherd_sim::Machine::parse(name, name, &text)
    });
    machine.ok().map(|machine| machine.topology())
}

/// The topology below a folder, or below its folder `root`, as fixtures have it.
fn captured(name: &str) -> Result<Option<Topology>> {
    let folder = PathBuf::from(name);
    if !folder.is_dir() {
        return Ok(None);
    }
    let root = folder.join("root");
    let root = if root.is_dir() { root } else { folder };
    let topology = numaherd_linux::topology::read(&root);
    topology.map(Some).with_context(|| format!("no captured machine in {}", root.display()))
}
