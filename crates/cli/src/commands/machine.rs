//! What `--machine M` names: everything the lab knows, this very machine, what `topology` wrote of one, and folders
//! with a captured one.

pub mod json;
pub mod source;

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
use numaherd_lab::machine::Description;
use numaherd_lab::{LabError, Machine, derived};
use numaherd_model::places::Places;
use numaherd_model::{Topology, printable, stem};
use numaherd_sim::SimError;

/// The name of this very machine.
pub const HOST: &str = "host";

/// A machine that can be booted.
pub fn find(name: &str) -> Result<Machine> {
    match captured(name)? {
        Some(topology) => {
            let folder = || Path::new(name).file_name().unwrap_or_default().to_string_lossy();
            let called = if is_json(name) { stem(name) } else { printable(&folder()) };
            Ok(derived::machine(&called, &topology)?)
        }
        None => {
            let description = Description::read_by(name, source::read);
            Ok(description.map_err(|error| unknown(name, error))?.machine(name)?)
        }
    }
}

/// Its nodes, CPUs, memory and distances, whether or not it can be booted.
pub fn topology(name: &str) -> Result<Topology> {
    match captured(name)? {
        Some(topology) => Ok(topology),
        None => match Description::read_by(name, source::read) {
            Ok(description) => Ok(description.topology()),
            Err(error) => match only_simulated(name, name) {
                Some(machine) => Ok(machine?.topology()),
                None => Err(unknown(name, naming_all(error))),
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

/// The error; of a file under another name that it is one, since its path is right.
fn unknown(name: &str, error: LabError) -> Error {
    match error {
        LabError::UnknownMachine { .. } if Path::new(name).exists() => anyhow!(
            "no machine '{name}': it is there, but its name ends in none of .toml (a machine file), .xml (hwloc's) and \
             .json (topology's)"
        ),
        error => error.into(),
    }
}

/// A machine which the simulator takes and the lab does not, or what is wrong with one that is for the simulator: what
/// the lab misses in such a file helps nobody. `called` is what a file's machine is called.
pub fn only_simulated(name: &str, called: &str) -> Option<Result<numaherd_sim::Machine, SimError>> {
    if let Some(machine) = numaherd_sim::Machine::built_in(name) {
        return Some(machine);
    }
    let text = String::from_utf8(source::read(name).ok()?).ok()?;
    let is_simulated = Places::of(&text).has("sim");
    let machine = numaherd_sim::Machine::parse(called, name, &text);
    (machine.is_ok() || is_simulated).then_some(machine)
}

/// Whether a machine is read from /proc and /sys: this one, or one that was captured in a folder, or in its folder
/// `root`. Such a folder goes before a built-in machine of its name; one with something else, as results of that
/// machine, does not.
pub fn is_captured(name: &str) -> bool {
    let root = root(name);
    name == HOST || has_tree(&root)
}

fn has_tree(root: &Path) -> bool {
    ["proc", "sys"].iter().any(|part| root.join(part).is_dir())
}

fn root(name: &str) -> PathBuf {
    let folder = PathBuf::from(name);
    let root = folder.join("root");
    // A machine's own / has a folder of that name, too: its superuser's.
    if root.is_dir() && !has_tree(&folder) { root } else { folder }
}

/// This machine's topology, that below a folder, or below its folder `root`, as fixtures have it, or that of a file.
fn captured(name: &str) -> Result<Option<Topology>> {
    if name == HOST {
        return Ok(Some(numaherd_linux::topology::read(Path::new("/"))?));
    }
    if is_json(name) {
        let bytes = source::bytes(name)?;
        return Ok(Some(json::told(name, &numaherd_sim::text(name, bytes)?)?));
    }
    let built_in = numaherd_sim::Machine::built_in_text(name).is_some();
    if !Path::new(name).is_dir() || built_in && !is_captured(name) {
        return Ok(None);
    }
    let root = root(name);
    let topology = numaherd_linux::topology::read(&root);
    topology.map(Some).with_context(|| format!("no captured machine in {}", root.display()))
}

fn is_json(name: &str) -> bool {
    name.ends_with(".json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_machine_is_in_its_folder_or_in_root_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().to_str().unwrap();
        std::fs::create_dir_all(dir.path().join("root/proc")).unwrap();
        assert_eq!((root(name), is_captured(name)), (dir.path().join("root"), true));
        std::fs::create_dir(dir.path().join("sys")).unwrap();
        assert_eq!(root(name), dir.path(), "as / has it");
    }
}
