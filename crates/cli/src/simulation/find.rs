//! Which machine and which workload a name, a path or a text means.

use std::path::Path;

use anyhow::{Result, bail};
use numaherd_model::{Topology, counted, printable, stem};
use numaherd_sim::workload::Start;
use numaherd_sim::{Machine, Parameters, Workload};
use numaherd_workloads::Kind;

use crate::args::{Compare, Resize, StartArg, Subject, WorkloadArgs};
use crate::commands;
use crate::commands::machine::json::MOST_NODES;
use crate::commands::machine::{is_captured, only_simulated, source};
use crate::progress::Wait;

/// The distance by which firmware says that there is no way (ACPI, SLIT).
const UNREACHABLE: u32 = 255;
/// As many as the simulator can number.
const MOST_CPUS: usize = 1 << 16;

/// A machine that comes with numaherd, a user's own, or one made from a topology.
pub fn machine(name: &str) -> Result<Machine> {
    if !is_captured(name) {
        if name.ends_with(".toml") {
            return Ok(Machine::parse(&stem(name), name, &read(name)?)?);
        }
        // A built-in one, or a machine file under another name, as of `<(…)`: it says how fast it is, and of its
        // topology alone that would be guessed.
        if let Some(machine) = only_simulated(name, &stem(name)) {
            return Ok(machine?);
        }
    }
    // Large ones take a while, of which nobody knows yet.
    let _wait = name.contains(':').then(|| Wait::of(format!("making the machine {name}")));
    let topology = commands::machine::topology(name)?;
    let name = if name.contains(':') { printable(name) } else { stem(name) };
    check(&name, &topology)?;
    Ok(Machine::derived(&name, &topology, None))
}

/// Says what is guessed of a machine, if anything is: figures stand and fall with it.
pub fn tell_guesses(machine: &Machine) {
    if let Some(guesses) = machine.guesses() {
        say!(
            "numaherd: speeds of {} are guessed: {guesses}; topology -o toml writes a file to put them right, with \
             --measured FILE those that topology --measure -o json found",
            machine.name
        );
    }
}

/// Whether a machine that somebody described has what a workload needs, before anything is made of it; a file's is
/// checked when it is read.
fn check(name: &str, topology: &Topology) -> Result<()> {
    let (nodes, cpus) = (topology.nodes.len(), topology.cpus().len());
    if nodes > MOST_NODES || cpus > MOST_CPUS {
        bail!(
            "{name} cannot be simulated: {nodes} nodes and {cpus} CPUs, of at most {MOST_NODES} and {MOST_CPUS}"
        );
    }
    if !topology.nodes.iter().any(|node| !node.cpus.is_empty() && node.memory.mib() > 0) {
        bail!("{name} cannot be simulated: no node has both CPUs and memory");
    }
    let mut pairs = (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b)));
    if let Some((a, b)) = pairs.find(|&(a, b)| topology.distance_at(a, b) >= UNREACHABLE) {
        let [a, b] = [a, b].map(|node| topology.nodes[node].id);
        bail!("{name} cannot be simulated: node {a} does not reach node {b} (a distance of 255)");
    }
    Ok(())
}

/// A workload that comes with numaherd, or a user's own.
pub fn workload(name: &str, resize: Resize) -> Result<Workload> {
    let workload = match Workload::built_in(name) {
        Some(workload) => workload?,
        None if name.ends_with(".toml") => Workload::parse(&stem(name), name, &read(name)?)?,
        None if name.ends_with(".json") => rt_app(name)?,
        None if name == "pft" => {
            misuse!("pft has options of its own: begin with it, as in simulate pft --machine M")
        }
        None if Path::new(name).is_file() => {
            misuse!(
                "'{name}' is there, but its name ends in neither .toml nor .json (rt-app's): give it one"
            )
        }
        None if name == Kind::Forks.name() => bail!("{}", not_simulated(name)),
        None => {
            let known: Vec<&str> = Workload::names().collect();
            misuse!(
                "unknown workload '{name}': give one of {}, or the path of a .toml file or of rt-app's .json",
                known.join(", ")
            );
        }
    };
    let parameters = Parameters {
        threads: count(resize.threads),
        size_bytes: resize.size.map(|n| n as u64),
        loops: count(resize.loops),
        ..Parameters::default()
    };
    Ok(workload.resized(parameters)?)
}

/// What rt-app would run. Says what is passed over of it that might matter elsewhere.
fn rt_app(path: &str) -> Result<Workload> {
    let workload = Workload::parse_rt_app(&stem(path), path, &read(path)?)?;
    let programs = workload.process.iter().filter_map(|process| process.programs.as_ref());
    let passed_over: Vec<&str> =
        programs.flat_map(|programs| &programs.passed_over).map(String::as_str).collect();
    if !passed_over.is_empty() {
        say!(
            "numaherd: {path}: {} passed over: all tasks weigh the same here",
            passed_over.join(", ")
        );
    }
    Ok(workload)
}

/// What is compared: a user's own workload as it stands in its file, or one of the emulated machine.
pub fn subject(args: &Compare, machine: &Machine) -> Result<Workload> {
    let Subject::Own(path) = &args.subject else { return lab_workload(&args.workload()?, machine) };
    let given = &args.given;
    let resize = Resize { threads: given.threads, size: given.size, loops: given.loops };
    let start = given.start.map(start);
    Ok(workload(path, resize)?.resized(Parameters { start, ..Parameters::default() })?)
}

fn start(start: StartArg) -> Start {
    match start {
        StartArg::FirstTouch => Start::FirstTouch,
        StartArg::OneNode => Start::OneNode,
        StartArg::Placed => Start::Placed,
        StartArg::Inverse => Start::Inverse,
    }
}

fn not_simulated(name: &str) -> String {
    format!(
        "{name} is not simulated: nothing says how long starting a program takes, which is most of it"
    )
}

/// The workload of the emulated machine, with the parameters that it has there.
pub(super) fn lab_workload(args: &WorkloadArgs, machine: &Machine) -> Result<Workload> {
    let (kind, given) = (args.name, &args.given);
    let Some(workload) = Workload::of_lab(kind.name()) else {
        bail!("{}", not_simulated(kind.name()));
    };
    let warehouses = kind == Kind::JbbLike;
    args.check()?;
    let defaults = kind.defaults(machine.cpus(), given.quick);
    let nodes = machine.node.iter().filter(|node| node.is_home()).count();
    let processes = given.processes.unwrap_or(nodes);
    let even = || nearest_multiple(defaults.threads, processes);
    let parameters = Parameters {
        threads: count(given.threads.or_else(|| warehouses.then(even))),
        size_bytes: Some(args.size_bytes() as u64),
        loops: count(Some(given.loops.unwrap_or(defaults.loops))),
        processes: count(warehouses.then_some(processes)),
        start: given.start.map(start),
    };
    if warehouses && given.threads.is_none() && even() != defaults.threads {
        say!(
            "numaherd: {} for {}, so that each of {processes} processes has as many; --threads N has others",
            counted(even(), "thread"),
            counted(defaults.threads, "CPU")
        );
    }
    // By the name that was given, which messages say.
    let workload = Workload { name: kind.name().into(), ..workload? };
    Ok(workload.resized(parameters)?)
}

/// The multiple of `step` that is nearest to `number`, of two the smaller; none at all is no number of threads.
fn nearest_multiple(number: usize, step: usize) -> usize {
    let step = step.max(1);
    ((number + (step - 1) / 2) / step).max(1) * step
}

fn count(n: Option<usize>) -> Option<u32> {
    n.map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

fn read(path: &str) -> Result<String> {
    let bytes = source::bytes(path)?;
    Ok(numaherd_sim::text(path, bytes)?)
}

#[cfg(test)]
pub(super) mod tests {
    use clap::{Args, FromArgMatches};
    use numaherd_workloads::{Layout, LayoutNode, Start as LabStart};

    use super::*;
    use crate::args::TieArg;

    /// What these words on a command line say of a workload.
    pub fn args(words: &[&str]) -> WorkloadArgs {
        let command = WorkloadArgs::augment_args(clap::Command::new("w").no_binary_name(true));
        WorkloadArgs::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    fn layout(machine: &Machine) -> Layout {
        let node_of = machine.node_of_cpus();
        let cpus = |node| (0..node_of.len()).filter(move |&cpu| node_of[cpu] == node);
        let cpus = |node| cpus.clone()(node).map(|cpu| cpu as u32).collect();
        let node = |node| LayoutNode { id: node as u32, cpus: cpus(node) };
        Layout { nodes: (0..machine.node.len()).map(node).collect() }
    }

    /// Processes, threads, sizes and starts are those of the real workloads, on machines of two nodes and
    /// of four, and so is what all threads do together, where that is bytes.
    #[test]
    fn workloads_are_those_of_the_lab() {
        for name in ["2x4", "4x2"] {
            let machine = machine(name).unwrap();
            for kind in Kind::all().into_iter().filter(|kind| *kind != Kind::Forks) {
                let given = args(&[kind.name()]);
                let real = given.params(TieArg::Free, &layout(&machine));
                let ours = lab_workload(&given, &machine).unwrap();
                let cpus = machine.cpus();
                let copies = ours.process.iter().map(|process| process.copies as usize);
                let threads = ours.process.iter().zip(copies.clone());
                let threads: usize = threads.map(|(p, copies)| p.threads_on(cpus) * copies).sum();
                let start = match real.start {
                    LabStart::FirstTouch => Start::FirstTouch,
                    LabStart::OneNode => Start::OneNode,
                    LabStart::Placed => Start::Placed,
                    LabStart::Inverse => Start::Inverse,
                };
                assert_eq!(
                    copies.sum::<usize>(),
                    kind.processes(&real, &layout(&machine)),
                    "{kind:?}"
                );
                assert_eq!(threads, real.threads, "{kind:?}");
                assert!(ours.process.iter().all(|process| process.start == start), "{kind:?}");
                let sizes = ours.process.iter().map(|p| (p.memory_mib << 20) as usize);
                assert!(sizes.into_iter().all(|bytes| bytes == real.size_bytes), "{kind:?}");
                let thread_bytes = match kind {
                    Kind::Uneven => real.size_bytes / 2,
                    Kind::Overcommit => real.size_bytes,
                    Kind::Shared => real.size_bytes / threads,
                    Kind::JbbLike => continue,
                    _ => kind.bytes_per_thread(&real, &layout(&machine)),
                };
                let bytes = (threads * thread_bytes * real.loops) as f64;
                let off = ours.bytes(cpus) / bytes - 1.0;
                assert!(off.abs() < 1e-9, "{kind:?}: {off}");
            }
        }
    }

    #[test]
    fn parameters_are_those_that_the_lab_s_workloads_take() {
        let machine = machine("4x2").unwrap();
        let workload = |words: &[&str]| lab_workload(&args(words), &machine);
        let jbb = workload(&["jbb-like", "--processes", "2", "--start", "inverse"]).unwrap();
        let process = &jbb.process[0];
        assert_eq!((process.copies, process.threads, process.start), (2, Some(4), Start::Inverse));
        assert_eq!(process.phase[0].operations, Some(450_000));
        let phases = workload(&["phases", "--loops", "7"]).unwrap();
        assert_eq!(phases.process[0].phase.iter().map(|p| p.times).collect::<Vec<_>>(), [3, 4]);
        let both = workload(&["overcommit", "--threads", "8", "--loops", "3"]).unwrap();
        let [numa01, numa02] = &both.process[..] else { panic!("{both:?}") };
        assert_eq!((numa01.threads, numa02.threads), (Some(2), Some(4)));
        // Of four threads each writes a quarter of memory twelve times, or all of it three times.
        assert_eq!(numa02.passes(&numa02.phase[0], 4), 12);
        let says = |words: &[&str]| workload(words).unwrap_err().to_string();
        assert!(
            says(&["jbb-like", "--threads", "7"]).contains("of jbb-like: give a multiple of 4")
        );
        assert!(says(&["forks"]).contains("not simulated: nothing says how long starting"));
        assert!(says(&["numa02", "--processes", "2"]).contains("for jbb-like"));
        assert!(says(&["overcommit", "--threads", "6"]).contains("a multiple of 4"));
    }

    /// What nobody gave a number for runs everywhere, with as many threads as can be shared out.
    #[test]
    fn every_workload_fits_every_machine_that_comes_with_numaherd() {
        for name in Machine::names() {
            let machine = machine(name).unwrap();
            for kind in Kind::all().into_iter().filter(|kind| *kind != Kind::Forks) {
                if let Err(error) = lab_workload(&args(&[kind.name(), "--quick"]), &machine) {
                    panic!("{kind:?} on {name}: {error}");
                }
            }
        }
        // 8 CPUs on three nodes with CPUs and memory.
        let sparse = machine("sparse").unwrap();
        let jbb = lab_workload(&args(&["jbb-like"]), &sparse).unwrap();
        assert_eq!((jbb.process[0].copies, jbb.process[0].threads), (3, Some(3)));
        let few =
            [(8, 3), (6, 4), (2, 4), (8, 2), (5, 0)].map(|(n, step)| nearest_multiple(n, step));
        assert_eq!(few, [9, 4, 4, 8, 5]);
    }
}
