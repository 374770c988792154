//! One cell of a comparison: a workload, once, under one placement, on this machine.
//!
//! `compare` runs it inside the lab, or here, as a process of its own. It sets the kernel's
//! balancing as the placement wants it, starts from a defined state (page cache dropped, memory
//! compacted, half a second of rest), and prints what it measured as one line of JSON. What it
//! set is put back at the end.

pub mod numad;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use numaherd_linux::knobs::{self, Knob};
use numaherd_linux::memory::vmstat;
use serde::{Deserialize, Serialize};

use super::balance::Summary;
use super::bench::BenchResult;
use crate::args::{CellArgs, Placement};
use crate::session::Session;
use crate::{awaited, interrupt, output};

/// Rest before a run, for what the last one left to settle.
const REST: Duration = Duration::from_millis(500);

/// How long a cell itself may take to put back what it has set. Guessed.
const UNDOING: Duration = Duration::from_secs(10);

/// How long a cell that is told to end may take: it waits for its own command first, ends numad then, which would go on
/// for ever without it, and puts back what it has set.
pub const PATIENCE: Duration =
    awaited::PATIENCE.saturating_add(numad::PATIENCE).saturating_add(UNDOING);

/// What one run gave.
#[derive(Debug, Serialize, Deserialize)]
pub struct CellResult {
    /// What the workload says.
    pub bench: BenchResult,
    /// Pages that the kernel's balancing moved while it ran.
    pub pages_migrated_by_kernel: u64,
    /// What balance says, where it ran.
    pub balance: Option<Summary>,
    /// Hinting faults that found their page local ÷ all, where there were any.
    pub local_share_of_faults: Option<f64>,
    /// How often numad moved a process, where it ran.
    #[serde(default)]
    pub moves_by_numad: Option<u64>,
}

/// Runs one cell.
pub fn run(args: &CellArgs) -> Result<ExitCode> {
    let interrupted = interrupt::flag()?;
    let mut session = Session::begin(&format!("compare {}", args.placement), true, || Ok(()))?;
    let result = cell(args, &mut session, &interrupted);
    session.finish(false)?;
    // Whoever compares tells it.
    if let Some(code) = interrupt::ended(&interrupted) {
        return Ok(code);
    }
    output::print(&(serde_json::to_string(&result?)? + "\n"))
}

fn cell(args: &CellArgs, session: &mut Session, interrupted: &AtomicBool) -> Result<CellResult> {
    let root = Path::new("/");
    let placement = args.placement;
    session.set_knob(Knob::NumaBalancing, if placement.wants_faults() { "1" } else { "0" })?;
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let program = std::env::current_exe().context("cannot find our own program")?;
    // Before the reset: it uses memory on every node, and herd starts from the same state as the others.
    let known = if args.measure { measured(&program, dir.path(), interrupted)? } else { None };
    reset()?;
    if args.reserve > 0 {
        let topology = numaherd_linux::topology::read(root)?;
        for node in super::bench::layout(&topology).node_ids() {
            session.reserve_huge_pages(node, args.reserve)?;
        }
    }
    let summary = dir.path().join("summary");
    let mut command = Command::new(&program);
    if let Some(name) = placement.balance() {
        command.args(["balance", "--placement", name, "--summary"]).arg(&summary);
        if placement.tunes() {
            command.arg("--tune-kernel");
        }
        if let Some(path) = &known {
            command.arg("--measured").arg(path);
        }
        if let Some(log) = &args.log {
            command.arg("--log").arg(log);
        }
        command.arg("--").arg(&program);
    }
    command
        .args(["bench", "--with-parent", "-o", "json", "--tie", placement.tie()])
        .args(&args.bench);
    let numad = match placement {
        Placement::Numad => Some(numad::Daemon::start(args.numad_interval, session)?),
        _ => None,
    };
    let before = vmstat::read(root)?;
    let output = awaited::output(&mut command, interrupted, awaited::PATIENCE)
        .context("cannot start the workload")?;
    let counted = vmstat::read(root)?.since(&before);
    let moves_by_numad = numad.map(|daemon| daemon.end(args.log.as_deref())).transpose()?;
    if !output.status.success() {
        bail!("the workload under {placement} ended with {}", output.status);
    }
    let bench = serde_json::from_slice(&output.stdout).context("the workload's result")?;
    let balance = match placement.balance() {
        Some(_) => Some(serde_json::from_slice(&std::fs::read(&summary)?)?),
        None => None,
    };
    let share = |(local, all): (u64, u64)| (all > 0).then(|| local as f64 / all as f64);
    let faults = counted.numa_hint_faults_local.zip(counted.numa_hint_faults);
    Ok(CellResult {
        bench,
        pages_migrated_by_kernel: counted.numa_pages_migrated.unwrap_or(0),
        balance,
        local_share_of_faults: faults.and_then(share),
        moves_by_numad,
    })
}

/// How far this machine's nodes are from each other and what their memory carries, in a file: whoever looks after a machine
/// measures that once. Where it cannot be measured, firmware's word has to do.
fn measured(program: &Path, dir: &Path, interrupted: &AtomicBool) -> Result<Option<PathBuf>> {
    let words = ["topology", "--measure", "--own", "-o", "json"];
    let said = dir.join("said");
    let mut command = Command::new(program);
    command.args(words).stderr(File::create(&said)?);
    let output = awaited::output(&mut command, interrupted, awaited::PATIENCE)
        .context("cannot measure this machine")?;
    if !output.status.success() {
        let said = std::fs::read_to_string(said).unwrap_or_default();
        let why = said.lines().next_back().unwrap_or_default();
        say!("numaherd: herd goes by firmware's distances: {why}");
        return Ok(None);
    }
    let path = dir.join("measured.json");
    std::fs::write(&path, output.stdout)?;
    Ok(Some(path))
}

/// The defined state that every run starts from.
fn reset() -> Result<()> {
    let root = Path::new("/");
    for (knob, value) in [(Knob::DropCaches, "3"), (Knob::CompactMemory, "1")] {
        match knobs::write(root, knob, value) {
            Err(knobs::KnobError::Absent { .. }) | Ok(()) => {}
            Err(error) => return Err(error).context("cannot reset the machine between runs"),
        }
    }
    std::thread::sleep(REST);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever waits for a cell kills it when its patience is over, and a numad that the cell has not ended yet goes on.
    #[test]
    fn whoever_waits_for_a_cell_waits_longer_than_the_cell_and_numad_do() {
        let own = awaited::PATIENCE + numad::PATIENCE;
        assert!(PATIENCE > own, "{PATIENCE:?} for {own:?} and what is put back");
    }
}
