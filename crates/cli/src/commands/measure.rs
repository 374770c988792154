//! `topology --measure`: latency and bandwidth from each node to each, here or on an emulated
//! machine.
//!
//! On an emulated machine the same command runs inside it and answers in JSON; what the machine's
//! file states is put beside it out here.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use numaherd_lab::guest::Output;
use numaherd_lab::{Exec, Machine};
use numaherd_model::{CpuSet, Topology};
use numaherd_report::{Figure, Matrices, Stated, heat};
use numaherd_workloads::measure::{Cells, Flows, Measured, Plan};

use super::{bench, lab};
use crate::args::{Format, LabArgs, Measure};
use crate::output::Pages;
use crate::{interrupt, output};

/// Memory used on each node: this many times the last-level cache, so that hardly anything of
/// it is found there.
const CACHES: u64 = 4;
/// And at least this much. Chosen: 128 times the own cache of our emulated machines' CPUs.
const LEAST_BYTES: u64 = 8 << 20;
/// What a bandwidth's unit is in bytes.
const MB: f64 = 1e-6;

/// Measures an emulated machine, or this one, and prints.
pub fn run(machine: Option<&str>, args: &Measure, format: Format) -> Result<ExitCode> {
    // Told before anything is measured.
    let pages = Pages::at(args.html.as_deref(), args.svg.as_deref())?;
    let matrices = match machine {
        Some(machine) if machine != super::machine::HOST => in_lab(args, machine)?,
        _ => here(args)?,
    };
    output::print(&match format {
        Format::Json => output::json(&matrices)?,
        Format::Csv => matrices.csv(),
        Format::Table => matrices.table(),
    })?;
    pages.write(|| heat::page(&matrices), || heat::svg(&matrices))?;
    Ok(ExitCode::SUCCESS)
}

/// Measures this very machine.
fn here(args: &Measure) -> Result<Matrices> {
    let topology = numaherd_linux::topology::read(Path::new("/"))?;
    let size_bytes = match args.size {
        Some(size) => size as u64,
        None => LEAST_BYTES.max(CACHES * bench::last_level_cache_bytes().unwrap_or(0)),
    };
    let plan = plan(&topology, size_bytes, args)?;
    let measured = plan.run(|doing| say!("numaherd: measuring {doing}"))?;
    if !measured.is_bound {
        say!(
            "numaherd: memory could not be bound (mbind is refused here); with one node of \
             memory it lies there all the same"
        );
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(matrices(&plan, &measured, release.trim()))
}

/// What to measure.
fn plan(topology: &Topology, size_bytes: u64, args: &Measure) -> Result<Plan> {
    let allowed = numaherd_linux::sys::affinity::get(0).context("cannot read our own affinity")?;
    let may_use = |cpus: &CpuSet| cpus.intersection(&allowed).iter().map(|cpu| cpu.0).collect();
    let rows = topology.cpu_nodes().map(|node| (node.id.0, may_use(&node.cpus)));
    let (cpu_nodes, cpus): (Vec<u32>, Vec<Vec<u32>>) =
        rows.filter(|(_, cpus): &(u32, Vec<u32>)| !cpus.is_empty()).unzip();
    if cpu_nodes.len() < topology.cpu_nodes().count() {
        say!("numaherd: our affinity leaves out nodes; only CPUs {allowed} measure");
    }
    for node in topology.memory_nodes() {
        // A quarter more: page tables, stacks, the kernel's reserves.
        ensure!(
            node.free.0 > size_bytes / 4 * 5,
            "node {} has {} MiB free and {} MiB are wanted for the measurement: make room, or give \
             a smaller --size",
            node.id,
            node.free.0 >> 20,
            size_bytes >> 20
        );
    }
    let memory_nodes = topology.memory_nodes().map(|node| node.id.0).collect();
    let size_bytes = usize::try_from(size_bytes).context("--size is too large")?;
    let flows = match (args.latencies, args.own) {
        (true, _) => Flows::None,
        (false, true) => Flows::Own,
        (false, false) => Flows::All,
    };
    Ok(Plan { cpus, cpu_nodes, memory_nodes, size_bytes, samples: args.samples, flows })
}

fn matrices(plan: &Plan, measured: &Measured, kernel: &str) -> Matrices {
    let loop_ns: Vec<f64> = measured.loop_ns.iter().map(|s| Figure::of(s).median).collect();
    let latency = |(row, cells): (usize, &Vec<Vec<f64>>)| {
        cells.iter().map(|samples| Figure::of(samples).minus(loop_ns[row])).collect()
    };
    let rates = |cells: &Cells| -> Vec<Vec<Figure>> {
        let row = |row: &Vec<Vec<f64>>| row.iter().map(|s| Figure::of(s).times(MB)).collect();
        cells.iter().map(row).collect()
    };
    let mut read_mb_s = rates(&measured.read_bytes_s);
    let mut own_read_mb_s = Vec::new();
    if plan.flows == Flows::Own {
        let own = |row: &mut Vec<Figure>| std::mem::take(row).pop().unwrap_or_default();
        own_read_mb_s = read_mb_s.iter_mut().map(own).collect();
    }
    Matrices {
        machine: "host".into(),
        kernel: kernel.into(),
        cpu_nodes: plan.cpu_nodes.clone(),
        memory_nodes: plan.memory_nodes.clone(),
        size_bytes: plan.size_bytes as u64,
        samples: plan.samples,
        bound: measured.is_bound,
        latency_ns: measured.load_ns.iter().enumerate().map(latency).collect(),
        read_mb_s,
        own_read_mb_s,
        write_mb_s: rates(&measured.write_bytes_s),
        loop_ns,
        stated: None,
        late_share: None,
    }
}

/// Has an emulated machine measure itself.
fn in_lab(args: &Measure, name: &str) -> Result<Matrices> {
    let machine = super::machine::find(name)?;
    let cache = machine.llc.as_ref().map_or(0, |llc| llc.bytes);
    let size = args.size.map_or(LEAST_BYTES.max(CACHES * cache), |size| size as u64);
    let story = |line: &str| say!("numaherd: {line}");
    let lab_args = LabArgs { machine: name.into(), tuning: args.lab.clone() };
    let mut booted = lab::boot(&lab_args, Vec::new(), None, &interrupt::flag()?, &story)?;
    let program = std::env::current_exe().context("cannot find our own program")?;
    let words = ["topology", "--measure", "-o", "json", "--size", &size.to_string()];
    let samples = args.samples.to_string();
    let words = words.into_iter().chain(["--samples", &samples]);
    let words = words.chain(args.latencies.then_some("--latencies"));
    let words = words.chain(args.own.then_some("--own")).map(String::from);
    let argv = std::iter::once(program.display().to_string()).chain(words).collect();
    let env = vec![("PATH".to_string(), "/usr/sbin:/usr/bin:/sbin:/bin".to_string())];
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let exec = Exec { argv, env, cwd: "/".into(), terminal: None };
    let exit = booted.guest.exec(&exec, &mut |output, bytes| match output {
        Output::Stdout => stdout.extend_from_slice(bytes),
        Output::Stderr => stderr.extend_from_slice(bytes),
    })?;
    if exit.code != 0 {
        let said = String::from_utf8_lossy(&stderr);
        let said = said.lines().next_back().unwrap_or("it said nothing").trim();
        bail!("the measurement in the emulated machine ended with {}: {said}", exit.code);
    }
    let late = booted.guest.counted()?.map(|counters| counters.late_share());
    booted.guest.shutdown(&story)?;
    let mut matrices: Matrices =
        serde_json::from_slice(&stdout).context("the emulated machine's answer")?;
    matrices.machine = format!("lab:{}", machine.name);
    matrices.late_share = late;
    matrices.stated = if args.lab.no_distance { None } else { Some(stated(&machine)) };
    Ok(matrices)
}

/// What the machine's file states, for its rows and columns.
fn stated(machine: &Machine) -> Stated {
    let rows: Vec<usize> = (0..machine.node.len()).filter(|&i| machine.node[i].cpus > 0).collect();
    let columns: Vec<usize> =
        (0..machine.node.len()).filter(|&i| machine.node[i].memory_mib > 0).collect();
    let table = |cell: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
        rows.iter().map(|&cpu| columns.iter().map(|&memory| cell(cpu, memory)).collect()).collect()
    };
    let rates = machine.narrowest_mb_s();
    Stated {
        latency_ns: table(&|cpu, memory| machine.distance.latency_ns[cpu][memory] as f64),
        read_mb_s: rates.as_ref().map(|rates| table(&|cpu, memory| rates.read[cpu][memory])),
        write_mb_s: rates.as_ref().map(|rates| table(&|cpu, memory| rates.write[cpu][memory])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_states_two_hops_and_what_writing_costs() {
        let stated = stated(&Machine::find("4x2").unwrap());
        assert_eq!(stated.latency_ns[0], [100.0, 160.0, 160.0, 220.0]);
        // Memory 2400, links 800: over the links 800; a write at home is a fetch and a write-back.
        assert_eq!(stated.read_mb_s.unwrap()[0], [2400.0, 800.0, 800.0, 800.0]);
        assert_eq!(stated.write_mb_s.unwrap()[0], [1200.0, 800.0, 800.0, 800.0]);
    }

    #[test]
    fn the_loop_is_taken_off_the_latency_and_not_off_the_rates() {
        let (cpus, cpu_nodes, memory_nodes) = (vec![vec![0]], vec![0], vec![0]);
        let flows = Flows::All;
        let plan = Plan { cpus, cpu_nodes, memory_nodes, size_bytes: 1 << 20, samples: 1, flows };
        let measured = Measured {
            load_ns: vec![vec![vec![110.0]]],
            loop_ns: vec![vec![10.0]],
            read_bytes_s: vec![vec![vec![4e9]]],
            write_bytes_s: vec![vec![vec![2e9]]],
            is_bound: true,
        };
        let all = matrices(&plan, &measured, "6.12");
        assert_eq!(all.latency_ns[0][0].median, 100.0);
        assert!((all.read_mb_s[0][0].median - 4000.0).abs() < 1e-9);
        let own = matrices(&Plan { flows: Flows::Own, ..plan }, &measured, "6.12");
        assert!(own.read_mb_s[0].is_empty());
        assert_eq!(own.of_own_memory(), all.of_own_memory());
    }
}
