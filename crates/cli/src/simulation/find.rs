//! Which machine and which workload a name, a path or a text means.

use std::path::Path;

use anyhow::{Context, Result, bail};
use numaherd_sim::{Machine, Parameters, Workload};

use crate::args::Resize;
use crate::commands;

/// A machine that comes with numaherd, a user's own, or one made from a topology.
pub fn machine(name: &str) -> Result<Machine> {
    if let Some(machine) = Machine::built_in(name) {
        return Ok(machine?);
    }
    if name.ends_with(".toml") {
        return Ok(Machine::parse(&stem(name), name, &read(name)?)?);
    }
    if !Path::new(name).exists() && !name.contains(':') {
        let known: Vec<&str> = Machine::names().collect();
        bail!(
            "unknown machine '{name}': give one of {}, the path of a .toml or hwloc .xml file, a \
             captured folder, or a text such as \"node:2 core:4\"",
            known.join(", ")
        );
    }
    let topology = commands::machine::topology(name)?;
    let name = if name.contains(':') { name.to_string() } else { stem(name) };
    Ok(Machine::derived(&name, &topology))
}

/// A workload that comes with numaherd, or a user's own.
pub fn workload(name: &str, resize: Resize) -> Result<Workload> {
    let workload = match Workload::built_in(name) {
        Some(workload) => workload?,
        None if name.ends_with(".toml") => Workload::parse(&stem(name), name, &read(name)?)?,
        None => {
            let known: Vec<&str> = Workload::names().collect();
            bail!(
                "unknown workload '{name}': give one of {}, or the path of a .toml file",
                known.join(", ")
            );
        }
    };
    let count = |n: Option<usize>| n.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    let parameters = Parameters {
        threads: count(resize.threads),
        size_bytes: resize.size.map(|n| n as u64),
        loops: count(resize.loops),
    };
    Ok(workload.resized(parameters)?)
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

fn stem(path: &str) -> String {
    Path::new(path).file_stem().map_or_else(|| path.into(), |s| s.to_string_lossy().into_owned())
}
