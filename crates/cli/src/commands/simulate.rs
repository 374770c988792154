//! `simulate`: a workload on a simulated machine under one placement or several.

pub mod pft;

use std::process::ExitCode;

use anyhow::Result;
use numaherd_report::{CallGraph, Cell, Comparison, text};
use numaherd_sim::workload::ProcessSpec;
use numaherd_sim::{Machine, Workload};
use serde::Serialize;

use crate::args::{Compare, Format, OnOff, SimPlacement, Simulate, each_once};
use crate::output::{self, NewFile};
use crate::progress::Progress;
use crate::simulation::{self, Job, Kernel, find, has_inverse, page, parts, places, timeline};

/// Simulates and prints.
pub fn run(args: &Simulate) -> Result<ExitCode> {
    each_once(&args.placement)?;
    parts::check(&args.placement, &args.without)?;
    let machine = find::machine(&args.machine)?;
    let workload = find::workload(&args.workload, args.resize)?;
    let watched = args.trace.is_some() || args.html.is_some();
    let one = args.placement.len() == 1 && args.runs == 1;
    if watched && !one {
        misuse!("--trace and --html are of one run: give one --placement and --runs 1");
    }
    if args.callgraph && args.output == Format::Csv {
        misuse!("--callgraph is a tree: give -o table or -o json");
    }
    if args.trace.is_some() && args.trace == args.html {
        misuse!("--trace and --html cannot be one file");
    }
    let mut trace = args.trace.as_deref().map(NewFile::at).transpose()?;
    let mut html = args.html.as_deref().map(NewFile::at).transpose()?;
    let (mut cells, mut graphs) = (Vec::new(), Vec::new());
    let kernel = Kernel::of(&args.placement);
    let progress = Progress::of_runs(args.runs, args.placement.len());
    for run in 0..args.runs {
        for &placement in &args.placement {
            progress.begin(run, placement);
            let huge_pages = args.thp == OnOff::On;
            let seed = args.seed.wrapping_add(u64::from(run));
            let job = Job {
                machine: &machine,
                workload: &workload,
                placement,
                huge_pages,
                seed,
                kernel,
                without: &args.without,
            };
            let finished = job.run(watched)?;
            if let Some(file) = trace.take() {
                file.write(&serde_json::to_vec(&timeline::perfetto(&finished.sim))?)?;
            }
            if let Some(file) = html.take() {
                file.write(page::nodes(&job, &finished).as_bytes())?;
            }
            if args.callgraph {
                graphs.push(places::graph(placement, run + 1, &finished));
            }
            let cell = simulation::cell(placement, run, &finished);
            progress.end(&cell);
            cells.push(cell);
        }
    }
    drop(progress);
    find::tell_guesses(&machine);
    let names: Vec<String> = args.placement.iter().map(ToString::to_string).collect();
    let (runs, seed) = (args.runs, args.seed);
    let whole = Whole { machine: &machine, workload: &workload, kernel, runs, seed };
    let comparison = whole.comparison(&names, &cells);
    output::print(&match args.output {
        Format::Table => {
            let graphs = graphs.iter().map(|graph| format!("\n{}", graph.text()));
            text::table(&comparison) + &graphs.collect::<String>()
        }
        Format::Json => output::json(&Told { comparison, callgraphs: graphs })?,
        Format::Csv => text::csv(&comparison)?,
    })
}

/// A comparison, and each run's call graph if they were asked for.
#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    comparison: Comparison,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    callgraphs: Vec<CallGraph>,
}

/// What a comparison says of itself.
struct Whole<'a> {
    machine: &'a Machine,
    workload: &'a Workload,
    kernel: Kernel,
    runs: u32,
    seed: u64,
}

impl Whole<'_> {
    fn comparison(&self, names: &[String], cells: &[Cell]) -> Comparison {
        Comparison {
            workload: self.workload.name.clone(),
            machine: format!("sim:{}", self.machine.name),
            kernel: self.kernel.name().into(),
            runs: self.runs,
            seed: self.seed,
            dilation: 0.0,
            parameters: None,
            until: None,
            placements: Comparison::placements(names, cells),
            numad_interval_seconds: None,
            against: None,
        }
    }
}

/// `compare --on sim:M`: the workload with the parameters that it has in the lab, or a user's own.
pub fn comparison(args: &Compare, machine: &str) -> Result<Comparison> {
    let given = &args.given;
    let not_simulated = [
        ("--force", args.force),
        ("--seconds", given.seconds.is_some()),
        ("--until", args.until.is_some()),
        ("--trace", args.trace.is_some()),
        ("--logs", args.logs.is_some()),
        ("--results", args.results.is_some()),
    ];
    let on = format!("sim:{machine}");
    output::without(&on, &args.lab.given())?;
    output::without(&on, &not_simulated)?;
    // Before anything is simulated.
    let mut placements: Vec<(String, SimPlacement)> = args
        .placements
        .iter()
        .map(|placement| Ok((placement.to_string(), placement.simulated()?)))
        .collect::<Result<_>>()?;
    let machine = find::machine(machine)?;
    let is_inverse = |(_, placement): &(String, SimPlacement)| *placement == SimPlacement::Inverse;
    if !has_inverse(&machine) && !placements.iter().all(is_inverse) {
        let all = placements.len();
        placements.retain(|placement| !is_inverse(placement));
        if placements.len() < all {
            say!("numaherd: {} has one node: the inverse placement is left out", machine.name);
        }
    }
    let workload = find::subject(args, &machine)?;
    let kernel = Kernel::Lab;
    let mut cells = Vec::new();
    let progress = Progress::of_runs(args.runs, placements.len());
    for run in 0..args.runs {
        for &(ref told, placement) in &placements {
            progress.begin(run, told);
            let job = Job {
                machine: &machine,
                workload: &workload,
                placement,
                huge_pages: given.thp != Some(OnOff::Off),
                seed: args.seed.wrapping_add(u64::from(run)),
                kernel,
                without: &[],
            };
            let cell = simulation::cell(placement, run, &job.run(false)?);
            let cell = Cell { placement: told.clone(), ..cell };
            progress.end(&cell);
            cells.push(cell);
        }
    }
    drop(progress);
    find::tell_guesses(&machine);
    let names: Vec<String> = placements.into_iter().map(|(name, _)| name).collect();
    let (runs, seed) = (args.runs, args.seed);
    let whole = Whole { machine: &machine, workload: &workload, kernel, runs, seed };
    let threads_of =
        |process: &ProcessSpec| process.copies as usize * process.threads_on(machine.cpus());
    let threads = workload.process.iter().map(threads_of).sum();
    let parameters = Some(args.subject.told(given, threads));
    Ok(Comparison { parameters, ..whole.comparison(&names, &cells) })
}
