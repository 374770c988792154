//! One simulated run: a workload, a machine, a placement and a seed in, what it came to out.

#[cfg(test)]
mod ablations;
mod beside;
#[cfg(test)]
mod dice;
pub mod find;
mod moves;
pub mod page;
pub mod parts;
#[cfg(test)]
mod pauses;
pub mod places;
#[cfg(test)]
#[path = "random_loads/tests.rs"]
mod random_loads;
#[cfg(test)]
mod swarm;
#[cfg(test)]
#[path = "tails/tests.rs"]
mod tails;
pub mod timeline;

use anyhow::{Context, Result, bail};
use numaherd_model::Nanos;
use numaherd_report::nodes::Move;
use numaherd_report::{Cell, Series};
use numaherd_scheduling::{Fair, Fair6};
use numaherd_sim::{Machine, Options, Run, Sim, Tie, Workload};

use crate::args::SimPlacement;

/// What is simulated.
pub struct Job<'a> {
    pub machine: &'a Machine,
    pub workload: &'a Workload,
    pub placement: SimPlacement,
    pub huge_pages: bool,
    pub seed: u64,
    pub kernel: Kernel,
    /// Mechanisms that are left out, of what has them.
    pub without: &'a [String],
}

/// Whose scheduler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// The documents', of 2012.
    Documents,
    /// The emulated machine's, 6.12.
    Lab,
}

impl Kernel {
    /// One for all of these placements, so that they compare: today's, but beside a placement of 2012.
    pub fn of(placements: &[SimPlacement]) -> Kernel {
        let is_todays = |placement: &SimPlacement| match placement {
            SimPlacement::Off
            | SimPlacement::Bind
            | SimPlacement::Inverse
            | SimPlacement::Interleave
            | SimPlacement::Mainline
            | SimPlacement::Herd
            | SimPlacement::HerdTasks
            | SimPlacement::HerdUntuned => true,
            SimPlacement::Autonuma
            | SimPlacement::AutonumaMarch
            | SimPlacement::AutonumaThp
            | SimPlacement::NumacoreV17
            | SimPlacement::NumacoreV18
            | SimPlacement::Balancenuma => false,
        };
        if placements.iter().all(is_todays) { Kernel::Lab } else { Kernel::Documents }
    }

    /// As a comparison names it.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Documents => "simulated, scheduler of 2012",
            Kernel::Lab => "simulated, scheduler of 6.12",
        }
    }
}

/// A finished run.
pub struct Finished {
    pub run: Run,
    /// From the start until the last change by herd after which it found nothing left to do, if it did.
    pub seconds_to_converge: Option<f64>,
    /// What herd did, or did not, and why; without herd what the kernel did, if it was watched.
    pub moves: Vec<Move>,
    /// With its trace and samples, if they were asked for.
    pub sim: Sim,
}

/// Whether memory can be elsewhere than its threads: there are two nodes with both CPUs and memory.
pub fn has_inverse(machine: &Machine) -> bool {
    machine.node.iter().filter(|node| node.is_home()).count() > 1
}

impl Job<'_> {
    /// Simulates it; `watched` keeps a trace and samples.
    pub fn run(&self, watched: bool) -> Result<Finished> {
        if self.placement == SimPlacement::Inverse && !has_inverse(self.machine) {
            let name = &self.machine.name;
            bail!("the inverse placement needs two nodes with CPUs and memory, {name} has one")
        }
        let herd = parts::herd(self.placement, self.without);
        let sampled = parts::sampled(self.placement, self.without);
        let options = Options {
            seed: self.seed,
            tie: tie(self.placement),
            huge_pages: self.huge_pages,
            trace: watched,
            samples: watched,
            balancing: parts::balancing(self.placement, self.without),
            watch_faults: herd.is_some(),
            sample_accesses: sampled.reserve,
            sample_all: sampled.rest && (sampled.base || self.huge_pages),
            scheduling: match self.kernel {
                Kernel::Documents => Box::new(Fair),
                Kernel::Lab => Box::new(Fair6),
            },
            ..Options::default()
        };
        let mut sim = Sim::new(self.machine, self.workload, options)
            .with_context(|| format!("{} on {}", self.workload.name, self.machine.name))?;
        let tunes = self.placement != SimPlacement::HerdUntuned;
        let balanced = herd.map(|herd| beside::balance(&mut sim, herd, tunes)).transpose()?;
        let run = sim.finish();
        let beside::Balanced { converged, moves } = balanced.unwrap_or_else(|| beside::Balanced {
            converged: None,
            moves: moves::kernel::told(&sim),
        });
        if let Some(places) = sim.stuck() {
            bail!(
                "{} under {} ends in nothing: its threads wait for each other for ever, {places}",
                self.workload.name,
                self.placement
            )
        }
        if let Some(short) = sim.out_of_room() {
            bail!(
                "{} under {} runs out of memory and does less than its work, {short}: make its files smaller, or give \
                 --size or the machine more memory",
                self.workload.name,
                self.placement
            )
        }
        if run.unfinished {
            bail!(
                "{} under {} does not end within {:.0} simulated seconds: give --loops, or its phases fewer times or \
                 seconds",
                self.workload.name,
                self.placement,
                run.seconds
            )
        }
        Ok(Finished { run, seconds_to_converge: converged.map(Nanos::as_secs_f64), moves, sim })
    }
}

#[cfg(test)]
impl Job<'_> {
    /// Seconds with so many seeds from this one on, ascending.
    fn seconds(&self, seeds: u64) -> Result<Vec<f64>> {
        let run = |seed| Job { seed, ..*self }.run(false).map(|finished| finished.run.seconds);
        let mut all = (self.seed..self.seed + seeds).map(run).collect::<Result<Vec<f64>>>()?;
        all.sort_by(f64::total_cmp);
        Ok(all)
    }
}

/// As a comparison has it.
pub fn cell(placement: SimPlacement, number: u32, finished: &Finished) -> Cell {
    let run = &finished.run;
    let (interval_seconds, values) = finished.sim.course();
    let (amount, unit) = if run.operations.is_empty() {
        (run.bytes, "B")
    } else {
        (run.operations.iter().sum(), "operations")
    };
    Cell {
        placement: placement.to_string(),
        run: number,
        seconds: run.seconds,
        whole_seconds: run.initial_seconds + run.seconds,
        amount: amount.round() as u64,
        unit: unit.into(),
        latency_ns: None,
        throughput_over_time: Some(Series { interval_seconds, values }),
        local_share: Some(run.local_share),
        local_share_source: "simulator".into(),
        pages_migrated_by_kernel: run.pages_moved_by_kernel,
        pages_migrated_by_us: run.pages_moved_by_us,
        seconds_to_converge: finished.seconds_to_converge,
        late_share: None,
        instructions: None,
        cpus: Vec::new(),
        parameters: None,
    }
}

fn tie(placement: SimPlacement) -> Tie {
    match placement {
        SimPlacement::Bind => Tie::Bind,
        SimPlacement::Inverse => Tie::Inverse,
        SimPlacement::Interleave => Tie::Interleave,
        _ => Tie::Free,
    }
}
