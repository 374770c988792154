//! `compare`: a workload side by side under several placements.
//!
//! One boot for all runs; each round takes the placements in an order of its own, drawn from
//! the seed. Every result is written to the results file as soon as it is there, and what was
//! measured is printed even if the rest fails.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use numaherd_lab::LabError;
use numaherd_lab::kernel::cache_dir;
use numaherd_linux::sys::signal;
use numaherd_model::counted;
use numaherd_report::{
    Against, Cell, Comparison, CpuCounts, Until, against, chart, interval, text,
};

use super::cell::{CellResult, numad};
use super::machine::source;
use super::simulate;
use super::site::{HostSite, LabSite, Site};
use crate::args::{Compare, Format, On, Placement};
use crate::output::Pages;
use crate::progress::Progress;
use crate::{interrupt, output};

/// Late share from which a run is not taken while its machine can have more time: the project's
/// own bar.
const MOST_LATE: f64 = 0.01;

/// Runs the comparison and prints it.
pub fn run(args: &Compare) -> Result<ExitCode> {
    args.check()?;
    let then = args.against.as_deref().map(|path| earlier(path, args)).transpose()?;
    if args.until.is_some() {
        check_until(args)?;
    }
    // What can never be written is told before anything is measured.
    let pages = Pages::at(args.html.as_deref(), args.svg.as_deref())?;
    if let On::Sim(machine) = &args.on {
        signal::end_with_a_word();
        let mut comparison = simulate::comparison(args, machine)?;
        if let Some((file, then)) = &then {
            comparison.against = set_beside(&comparison, then, file);
        }
        print(args.output, &comparison, pages)?;
        return Ok(ExitCode::SUCCESS);
    }
    let placements: Vec<Placement> =
        args.placements.iter().map(|placement| placement.live()).collect::<Result<_>>()?;
    if placements.contains(&Placement::Numad) {
        numad::check(args.workload()?.size_bytes())?;
    }
    let interrupted = interrupt::flag()?;
    let (mut results, mut site): (Results, Box<dyn Site>) = match &args.on {
        On::Lab(machine) => {
            (Results::create(args)?, Box::new(LabSite::boot(args, machine, &interrupted)?))
        }
        // It says first what it is in for, and whether it will do.
        On::Host | On::Sim(_) => {
            let host = HostSite::new(args, &interrupted)?;
            (Results::create(args)?, Box::new(host))
        }
    };
    let runs = args.until.map_or(args.runs, |_| args.max_runs);
    let progress = Progress::of_long_runs(runs, placements.len());
    let mut cells = Vec::new();
    let outcome = measure(args, &placements, site.as_mut(), &progress, &mut results, &mut cells);
    drop(progress);
    let mut comparison = comparison(args, site.as_ref(), &cells);
    site.end();
    if let Some((file, then)) = &then {
        comparison.against = set_beside(&comparison, then, file);
    }
    if !cells.is_empty() {
        print(args.output, &comparison, pages)?;
        if results.whole {
            say!("numaherd: every run is in {}", results.path.display());
        }
    }
    match outcome {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => match error.downcast_ref::<LabError>() {
            Some(LabError::Interrupted) => {
                say!("numaherd: interrupted after {}", counted(cells.len(), "run"));
                Ok(interrupt::code())
            }
            _ => Err(error.context(format!("after {}", counted(cells.len(), "run")))),
        },
    }
}

/// What the cells come to so far.
fn comparison(args: &Compare, site: &dyn Site, cells: &[Cell]) -> Comparison {
    let placements = Comparison::placements(&names(args), cells);
    Comparison {
        workload: args.subject.name(),
        machine: site.machine(),
        kernel: site.kernel(),
        runs: match args.until {
            Some(_) => cells.iter().map(|cell| cell.run + 1).max().unwrap_or(0),
            None => args.runs,
        },
        seed: args.seed,
        dilation: site.dilation(),
        parameters: cells.first().and_then(|cell| cell.parameters.clone()),
        until: args.until.map(|width| Until::of(width, &placements)),
        placements,
        numad_interval_seconds: args
            .has(Placement::Numad)
            .then_some([args.numad_interval.least, args.numad_interval.greatest]),
        against: None,
    }
}

fn names(args: &Compare) -> Vec<String> {
    args.placements.iter().map(ToString::to_string).collect()
}

/// An earlier comparison of the same workload.
fn earlier(path: &Path, args: &Compare) -> Result<(String, Comparison)> {
    let file = path.display().to_string();
    let failed = || format!("--against {file}");
    let bytes = source::bytes(path).with_context(failed)?;
    let then: Comparison = serde_json::from_slice(&bytes)
        .with_context(|| format!("--against {file} is no result of compare -o json"))?;
    against::same_workload(&args.subject.name(), &then).with_context(failed)?;
    if let Some(measured) = &then.parameters {
        // How many threads there are by default the machine will tell.
        let threads = args.given.threads.unwrap_or(measured.threads);
        against::same_parameters(&args.subject.told(&args.given, threads), &then)
            .with_context(failed)?;
    }
    Ok((file, then))
}

fn set_beside(now: &Comparison, then: &Comparison, file: &str) -> Option<Against> {
    match against::set_beside(now, then, file) {
        Ok(against) => Some(against),
        Err(error) => {
            say!("numaherd: --against {file}: {error}");
            None
        }
    }
}

/// Intervals are of ratios to bind.
fn check_until(args: &Compare) -> Result<()> {
    let bind = args.has(Placement::Bind);
    if bind && args.placements.len() > 1 {
        return Ok(());
    }
    bail!("--until is about ratios to bind: give --placements bind and at least one other")
}

fn measure(
    args: &Compare,
    placements: &[Placement],
    site: &mut dyn Site,
    progress: &Progress,
    results: &mut Results,
    cells: &mut Vec<Cell>,
) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(args.seed);
    let mut run = 0;
    while goes_on(args, run, cells) {
        let mut order = placements.to_vec();
        random.shuffle(&mut order);
        for placement in order {
            progress.begin(run, placement);
            let (measured, counted) = in_time(site, &cell_arguments(args, placement, run)?)?;
            let moves = measured.moves_by_numad;
            let told = args.subject.told(&args.given, measured.bench.threads);
            let cell = Cell { parameters: Some(told), ..cell(placement, run, measured, counted) };
            progress.end(&cell);
            if let Some(moves) = moves {
                say!(
                    "numaherd: numad moved processes {} in this run",
                    numaherd_model::counted(moves, "time")
                );
            }
            cells.push(cell);
            results.write(&cells[cells.len() - 1])?;
        }
        run += 1;
    }
    Ok(())
}

/// Runs a cell until the host keeps up with it, or will not get more time for it.
fn in_time(site: &mut dyn Site, words: &[String]) -> Result<(CellResult, Option<Counted>)> {
    loop {
        let (measured, counted) = site.cell(words)?;
        let late = counted.as_ref().map_or(0.0, |counted| counted.late_share);
        if late < MOST_LATE {
            return Ok((measured, counted));
        }
        if !site.slow_down(late)? {
            say!(
                "numaherd: the host was behind by {:.1} %, so that this run tells little: leave out --dilation, or \
                 give a larger one",
                late * 100.0
            );
            return Ok((measured, counted));
        }
    }
}

/// Whether another round is wanted after this many. With `--until` there are as many as carry an
/// interval, and more until all are narrow.
fn goes_on(args: &Compare, rounds: u32, cells: &[Cell]) -> bool {
    let Some(width) = args.until else { return rounds < args.runs };
    if rounds < args.runs.max(interval::LEAST as u32).min(args.max_runs) {
        return true;
    }
    let placements = Comparison::placements(&names(args), cells);
    rounds < args.max_runs && !Until::of(width, &placements).reached
}

/// What the emulator counted in the timed part.
pub struct Counted {
    pub local_share: Option<f64>,
    pub late_share: f64,
    pub instructions: u64,
    pub cpus: Vec<CpuCounts>,
}

fn cell(placement: Placement, run: u32, measured: CellResult, counted: Option<Counted>) -> Cell {
    let CellResult { bench, pages_migrated_by_kernel, balance, local_share_of_faults, .. } =
        measured;
    let converged = balance.as_ref().and_then(|summary| summary.converged_at_ns);
    let since_start = |at: u64| at.saturating_sub(bench.start_ns) as f64 / 1e9;
    let (local_share, source) = match &counted {
        Some(counted) => (counted.local_share, "emulator"),
        None => (local_share_of_faults, "hinting-faults"),
    };
    Cell {
        placement: placement.to_string(),
        run,
        seconds: bench.seconds,
        whole_seconds: bench.whole_seconds,
        amount: bench.operations.unwrap_or(bench.bytes),
        unit: bench.throughput.unit.trim_end_matches("/s").into(),
        latency_ns: bench.latency_ns,
        throughput_over_time: Some(bench.throughput_over_time),
        local_share,
        local_share_source: source.into(),
        pages_migrated_by_kernel,
        pages_migrated_by_us: balance.map_or(0, |summary| summary.pages_moved),
        seconds_to_converge: converged.map(since_start),
        late_share: counted.as_ref().map(|counted| counted.late_share),
        instructions: counted.as_ref().map(|counted| counted.instructions),
        cpus: counted.map_or_else(Vec::new, |counted| counted.cpus),
        parameters: None,
    }
}

fn cell_arguments(args: &Compare, placement: Placement, run: u32) -> Result<Vec<String>> {
    let workload = args.workload()?;
    let mut words = vec!["cell".to_string(), "--placement".into(), placement.to_string()];
    if let Some(dir) = &args.logs
        && placement.has_log()
    {
        // The run's current folder is another.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        let ending = if placement == Placement::Numad { "log" } else { "jsonl" };
        let log = dir.join(format!("{placement}-{run}.{ending}"));
        words.extend(["--log".to_string(), log.display().to_string()]);
    }
    if placement == Placement::Numad {
        words.extend(["--numad-interval".to_string(), args.numad_interval.to_string()]);
    }
    // Without distance only firmware's word is left of it.
    if placement.balance().is_some() && !args.lab.no_distance {
        words.push("--measure".to_string());
    }
    let reserve = workload.name.reserved_pages_per_node(workload.size_bytes());
    if reserve > 0 {
        words.extend(["--reserve".to_string(), reserve.to_string()]);
    }
    words.push("--".into());
    words.extend(workload.words());
    Ok(words)
}

fn print(format: Format, comparison: &Comparison, pages: Pages) -> Result<()> {
    output::print(&match format {
        Format::Table => text::table(comparison),
        Format::Json => output::json(comparison)?,
        Format::Csv => text::csv(comparison)?,
    })?;
    pages.write(|| chart::page(comparison), || chart::svg(comparison))
}

/// The results file: one cell a line. Until there is one, the place is as it was.
struct Results {
    path: PathBuf,
    file: File,
    /// It was not there before.
    made: bool,
    /// There is a cell in it.
    begun: bool,
    /// Every line given so far was written.
    whole: bool,
}

impl Results {
    fn create(args: &Compare) -> Result<Results> {
        let path = match &args.results {
            Some(path) => path.clone(),
            None => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let stamp = now.map_or(0, |since| since.as_secs());
                let name = args.subject.name();
                let name = format!("{name}-{stamp}-{}.jsonl", std::process::id());
                cache_dir().join("results").join(name)
            }
        };
        let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let failed = || {
            let advice =
                if args.results.is_none() { " (--results FILE has them elsewhere)" } else { "" };
            format!("cannot write results to {}{advice}", path.display())
        };
        std::fs::create_dir_all(parent.unwrap_or(Path::new("."))).with_context(failed)?;
        let made = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.with_context(failed)?;
        Ok(Results { path, file, made, begun: false, whole: true })
    }

    fn write(&mut self, cell: &Cell) -> Result<()> {
        if !self.begun {
            // A device has no length.
            let _ = self.file.set_len(0);
            self.begun = true;
        }
        let line = serde_json::to_string(cell)? + "\n";
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        let told = match written {
            // A device that cannot be synced (a pipe) has the line all the same.
            Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => Ok(()),
            other => other.with_context(|| {
                format!("cannot write results to {}: make room and run again", self.path.display())
            }),
        };
        self.whole &= told.is_ok();
        told
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        if self.made && !self.begun {
            // Whoever took it away meanwhile has done it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Reads a cell's line of JSON, whatever else was printed before it.
pub fn parse_cell(output: &[u8]) -> Result<CellResult> {
    let text = String::from_utf8_lossy(output);
    let Some(line) = text.lines().rev().find(|line| line.starts_with('{')) else {
        bail!("a run printed no result");
    };
    serde_json::from_str(line).context("a run's result cannot be read")
}
