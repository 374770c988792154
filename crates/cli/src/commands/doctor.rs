//! `doctor`: what this kernel and this user may do, what numaherd would use, what is missing and
//! how to get it. Changes nothing; where there is something to balance and it may, it loads the
//! BPF programs once and lets them go.

mod diagnosis;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use numaherd_bpf::{Choice, FaultStream, choose, probe};
use numaherd_lab::kernel::{Kernel, cache_dir};
use numaherd_lab::tools::Tools;
use numaherd_linux::knobs::{self, Knob};
use numaherd_linux::sys::identity::{self, Capability};
use numaherd_linux::{host, topology};
use numaherd_report::Listing;
use numaherd_trace::journal::check_owner;
use serde::Serialize;

use super::privileges::{can_sample, sampling_takes_admin};
use crate::args::{DoctorArgs, Format};
use crate::living::{has_switched_off, living, told};
use crate::session::{journals, left_behind, restore_dead};
use crate::{output, traffic};
use diagnosis::{Ability, Facts, Finding, Privilege, Rights, State};

#[derive(Serialize)]
struct Report {
    findings: Vec<Finding>,
    privileges: Vec<Privilege>,
    commands: Vec<Ability>,
}

/// Prints what was found.
pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let facts = gather()?;
    let report = Report {
        findings: facts.findings(),
        privileges: facts.privileges(),
        commands: facts.abilities(),
    };
    output::print(&match args.output {
        Format::Table => table(&report),
        Format::Json => output::json(&report)?,
        Format::Csv => rows(&report).csv()?,
    })
}

fn gather() -> Result<Facts> {
    let root = Path::new("/");
    let topology = topology::read(root)?;
    let faults = choose(&probe(root));
    let worth_trying = topology.cpu_nodes().count() > 1;
    let can = !matches!(faults, Choice::Unavailable { .. });
    let opened = (worth_trying && can)
        .then(|| FaultStream::open(&faults).map(drop).map_err(|error| error.to_string()));
    let open = topology::open(root, &topology);
    let sampling = can_sample(&open);
    let sampling_takes_admin = sampling.is_ok() && sampling_takes_admin(&open);
    let traffic = traffic::find(&topology).map(|(_, by)| by);
    let has = identity::has;
    let folder = journals();
    let problem = can_keep(&folder).err();
    let left = restore_dead(&folder, true).unwrap_or_default();
    let unreadable = left_behind(&folder).unwrap_or_default().unreadable;
    let living = living(&folder).unwrap_or_default();
    Ok(Facts {
        host: host::read(root)?,
        topology,
        root: identity::effective_user() == 0,
        rights: Rights {
            read: has(Capability::DacReadSearch),
            ptrace: has(Capability::SysPtrace),
            nice: has(Capability::SysNice),
            bpf: has(Capability::Bpf),
            perfmon: has(Capability::Perfmon),
            admin: has(Capability::SysAdmin),
        },
        // Not readable is as good as absent here.
        numa_balancing: knobs::read_number(root, Knob::NumaBalancing).unwrap_or_default(),
        faults,
        opened,
        sampling,
        sampling_takes_admin,
        traffic,
        scan_periods: matches!(knobs::read(root, Knob::ScanPeriodMin), Ok(Some(_))),
        journals: (folder.display().to_string(), problem.map(|error| error.to_string())),
        living: living.iter().map(|left| (told(left), has_switched_off(left))).collect(),
        left: left.into_iter().map(|(left, _)| left.run).collect(),
        unreadable: unreadable.iter().map(|(path, _)| path.display().to_string()).collect(),
        lab: lab(),
    })
}

/// Whether journals can be written in a folder, or in one that would be made; makes none.
fn can_keep(folder: &Path) -> std::io::Result<()> {
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    if there == folder {
        check_owner(folder, identity::effective_user())?;
    }
    tempfile::tempfile_in(there).map(drop)
}

/// The kernel the lab would boot, or what it lacks first.
fn lab() -> Result<String, String> {
    let told = |error: numaherd_lab::LabError| error.to_string();
    Tools::find().map_err(told)?;
    let kernel = Kernel::find(None, &cache_dir()).map_err(told)?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let plugin = super::lab::plugin_beside(&program);
    if !plugin.is_file() {
        return Err(format!("the latency plugin {} is missing", plugin.display()));
    }
    Ok(kernel.name)
}

/// All of it in one table: findings, capabilities, commands.
fn rows(report: &Report) -> Listing {
    let mut listing = Listing::new(["what", "state", "found", "to do"]);
    for Finding { topic, state, found, remedy } in &report.findings {
        listing.row([topic, word(*state), found.as_str(), remedy.as_deref().unwrap_or("")]);
    }
    for Privilege { capability, held, needed_for } in &report.privileges {
        let state = if *held { State::Ok } else { State::Missing };
        listing.row([capability, word(state), format!("needed for {needed_for}").as_str(), ""]);
    }
    for Ability { command, state, uses } in &report.commands {
        listing.row([command, word(*state), format!("goes by {uses}").as_str(), ""]);
    }
    listing
}

fn table(report: &Report) -> String {
    let mut text = String::new();
    for Finding { topic, state, found, remedy } in &report.findings {
        text += &format!("{:<8} {topic}: {found}\n", word(*state));
        if let Some(remedy) = remedy {
            text += &format!("         -> {remedy}\n");
        }
    }
    let mut privileges = Listing::new(["capability", "you have it", "needed for"]);
    for Privilege { capability, held, needed_for } in &report.privileges {
        privileges.row([*capability, if *held { "yes" } else { "no" }, needed_for]);
    }
    let mut commands = Listing::new(["command", "here", "goes by"]);
    for Ability { command, state, uses } in &report.commands {
        commands.row([*command, word(*state), uses]);
    }
    text + "\n" + &privileges.table() + "\n" + &commands.table()
}

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Limited => "limited",
        State::Missing => "missing",
    }
}
