//! Which share of its memory a process uses locally, by the best evidence at hand. Pure.
//!
//! | evidence | known of | what it cannot tell |
//! |---|---|---|
//! | sampled hinting faults | each thread that faulted | how often a page is used between two scans |
//! | the kernel's own counts of faults | the same | what was before the kernel moved the pages |
//! | where pages lie | all | who uses which page |
//!
//! Threads count by their CPU time, memory that cannot fault by its size. A process with one
//! thread has no use for faults: its local pages are not armed (source: `change_pte_range`,
//! v6.12), and where its pages lie is all there is to know.

use numaherd_linux::memory::residence::Residence;
use numaherd_model::{Bytes, NodeId};

use super::look::{Faults, Process, Task};
use crate::estimate::{Interval, possible, sampled, together};

/// The best evidence for a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    HintingFaults,
    KernelCounts,
    ResidentPages,
}

impl Source {
    /// As the contract names it: both kinds of faults are the same thing, seen differently.
    pub fn name(self) -> &'static str {
        match self {
            Source::HintingFaults | Source::KernelCounts => "hinting-faults",
            Source::ResidentPages => "resident-pages",
        }
    }

    /// In words.
    pub fn told(self) -> &'static str {
        match self {
            Source::HintingFaults => "faults sampled",
            Source::KernelCounts => "kernel's counts",
            Source::ResidentPages => "where pages lie",
        }
    }
}

/// A local share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Local {
    /// What it most likely is; None where too much is open to call it one.
    pub value: Option<f64>,
    /// What it may be.
    pub interval: Interval,
    pub source: Source,
    /// Share of the memory that can fault.
    pub coverage: f64,
}

impl Local {
    /// Where there is one node: all of it, whoever runs and whoever sleeps.
    pub fn on_one_node(self) -> Local {
        Local { value: Some(1.0), interval: Interval { low: 1.0, high: 1.0 }, ..self }
    }
}

/// Wider than this, an interval is not worth a figure. Guessed.
const NARROW: f64 = 0.3;
/// Where pages lie leaves less than this open: nobody's faults can tell more. Guessed.
const EXACT: f64 = 0.05;
/// Pages that fault together: those of a huge page's worth.
const PAGES_TOGETHER: u64 = 512;

/// The local share of a process; None where its memory may not be looked at.
pub fn local_share(process: &Process) -> Option<Local> {
    let residence = process.residence.as_ref().ok()?;
    let ran = process.ran();
    let coverage = f64::from(residence.coverage_permille()?) / 1000.0;
    let local = |source, guess: f64, interval: Interval| {
        let value = (interval.width() <= NARROW).then_some(guess);
        Local { value, interval, source, coverage }
    };
    let by_pages = possible(&ran, &bytes(&residence.nodes));
    let by_pages = local(Source::ResidentPages, by_pages.middle(), by_pages);
    if by_pages.interval.width() <= EXACT || process.tasks.len() < 2 {
        return Some(by_pages);
    }
    let blind = possible(&ran, &unseen(residence));
    let by_faults = |source| {
        let (guess, faulted) = threads(process, source)?;
        let interval = together(&[(coverage, faulted), (1.0 - coverage, blind)])?;
        Some(local(source, coverage * guess + (1.0 - coverage) * blind.middle(), interval))
    };
    let sources = [Source::HintingFaults, Source::KernelCounts].map(by_faults);
    let known: Vec<Local> = [by_pages].into_iter().chain(sources.into_iter().flatten()).collect();
    // Sampled faults first, where they tell enough: they are of now.
    let sampled = known.iter().find(|local| local.source == Source::HintingFaults);
    let sampled = sampled.filter(|local| local.value.is_some());
    let narrowest =
        || known.iter().min_by(|a, b| a.interval.width().total_cmp(&b.interval.width()));
    sampled.or_else(narrowest).copied()
}

fn bytes(nodes: &[(NodeId, Bytes)]) -> Vec<(NodeId, u64)> {
    nodes.iter().map(|(node, bytes)| (*node, bytes.0)).collect()
}

/// Memory that cannot fault, by node.
fn unseen(residence: &Residence) -> Vec<(NodeId, u64)> {
    let seen = bytes(&residence.seen);
    let on = |node| seen.iter().find(|(n, _)| *n == node).map_or(0, |(_, bytes)| *bytes);
    residence.nodes.iter().map(|(node, all)| (*node, all.0 - on(*node))).collect()
}

/// All threads together, by CPU time: the likeliest share, and what it may be. Threads that did
/// not fault are not known. None without any fault.
fn threads(process: &Process, source: Source) -> Option<(f64, Interval)> {
    let (mut known, mut unknown, mut sum, mut samples) = (0.0, 0.0, 0.0, 0);
    for task in &process.tasks {
        let time = task.ran.iter().map(|(_, ns)| *ns as f64).sum::<f64>();
        match thread(task, source) {
            Some((share, pieces)) => {
                known += time;
                sum += time * share;
                samples += pieces;
            }
            None => unknown += time,
        }
    }
    let share = if known > 0.0 { sum / known } else { return None };
    let interval = together(&[(known, sampled(share, samples)), (unknown, Interval::UNKNOWN)])?;
    Some((share, interval))
}

/// A thread's local share, and how many independent samples that is.
fn thread(task: &Task, source: Source) -> Option<(f64, u64)> {
    match source {
        Source::HintingFaults => {
            let Faults { local, all, pieces } = task.faults;
            (all > 0).then(|| (local as f64 / all as f64, pieces))
        }
        Source::KernelCounts => {
            let counts = task.counts.as_ref().filter(|counts| !counts.is_empty())?;
            let pages: u64 = counts.iter().map(|(_, pages)| pages).sum();
            // Its time on each node against its memory there.
            let share = possible(&task.ran, counts).middle();
            Some((share, pages.div_ceil(PAGES_TOGETHER)))
        }
        Source::ResidentPages => None,
    }
}

#[cfg(test)]
mod tests;
