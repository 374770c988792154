//! `simulate`: a workload on a simulated machine under one placement or several.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use numaherd_report::{Comparison, text};

use crate::args::{Format, OnOff, Simulate};
use crate::simulation::{self, Job, find, timeline};

/// Simulates and prints.
pub fn run(args: &Simulate) -> Result<ExitCode> {
    let machine = find::machine(&args.machine)?;
    let workload = find::workload(&args.workload, args.resize)?;
    if args.trace.is_some() {
        let one = args.placement.len() == 1 && args.runs == 1;
        ensure!(one, "--trace is of one run: give one --placement and --runs 1");
    }
    let mut cells = Vec::new();
    for run in 0..args.runs {
        for &placement in &args.placement {
            let huge_pages = args.thp == OnOff::On;
            let seed = args.seed + u64::from(run);
            let job = Job { machine: &machine, workload: &workload, placement, huge_pages, seed };
            let finished = job.run(args.trace.is_some())?;
            if let Some(path) = &args.trace {
                let page = serde_json::to_vec(&timeline::perfetto(&finished.sim))?;
                std::fs::write(path, page)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            cells.push(simulation::cell(placement, run, &finished));
        }
    }
    let names: Vec<String> = args.placement.iter().map(ToString::to_string).collect();
    let comparison = Comparison {
        workload: workload.name.clone(),
        machine: format!("sim:{}", machine.name),
        kernel: "simulated".into(),
        runs: args.runs,
        seed: args.seed,
        dilation: 0.0,
        until: None,
        placements: Comparison::placements(&names, &cells),
        against: None,
    };
    match args.output {
        Format::Table => print!("{}", text::table(&comparison)),
        Format::Json => println!("{}", serde_json::to_string_pretty(&comparison)?),
        Format::Csv => print!("{}", text::csv(&comparison)?),
    }
    Ok(ExitCode::SUCCESS)
}
