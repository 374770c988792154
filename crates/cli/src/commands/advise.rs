//! `advise`: what bringing a process and its memory together would take and bring, before doing
//! it. Changes nothing.
//!
//! It looks as `balance` looks, has herd's plans carried out on paper, and estimates what that is
//! worth. How much of its time the process waits for memory is not measured, so the gain is told
//! as "up to".

mod projection;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use numaherd_control::Controller;
use numaherd_linux::live::{LiveMachine, LiveOptions};
use numaherd_linux::process::TaskReader;
use numaherd_model::{Change, EvidenceGrade, FaultSource, Journal, Nanos, NodeId, Snapshot};
use numaherd_placement::Herd;
use serde::Serialize;

use super::balance::open_faults;
use super::status::findings::{Finding, balance, percent};
use super::status::machine;
use crate::args::{AdviseArgs, Format};
use crate::estimate::{self, Interval};
use crate::{interrupt, output};
use projection::{Projection, project};

/// Between two looks.
const TICK: Duration = Duration::from_millis(200);
/// Less than this is not worth moving anything. Guessed.
const WORTH: f64 = 0.02;

/// The answer.
#[derive(Debug, Serialize)]
struct Advice {
    pid: u32,
    /// What it goes by.
    evidence: String,
    grade: EvidenceGrade,
    seconds: f64,
    local_share: Option<f64>,
    local_share_after: Option<f64>,
    tasks_to_move: u64,
    bytes_to_move: u64,
    /// Guessed until balance has moved something.
    move_seconds: f64,
    page_move_us: f64,
    remote_ratio: Option<f64>,
    /// Of the time it takes now.
    gain_interval: Option<[f64; 2]>,
    worth_it: bool,
    finding: Finding,
}

/// Nothing is changed, so nothing is written down.
struct NoJournal;

impl Journal for NoJournal {
    fn before(&mut self, _: &Change) -> std::io::Result<()> {
        Err(std::io::Error::other("advise changes nothing"))
    }
}

/// Looks for a while, and tells.
pub fn run(args: &AdviseArgs) -> Result<ExitCode> {
    let stop = interrupt::flag()?;
    let topology = numaherd_linux::topology::read(Path::new("/"))?;
    let stat = TaskReader::new("/".as_ref()).stat(args.pid, args.pid)?;
    ensure!(stat.is_some(), "no process {}", args.pid);
    if topology.cpu_nodes().count() < 2 {
        bail!("this machine has one node with CPUs: nothing can be moved, nothing is lost");
    }
    let (faults, mut evidence) = open_faults(false);
    let mut machine = looking(args.pid, faults)?;
    let mut controller = Controller::new(Herd::new());
    let begin = Instant::now();
    let (mut snapshot, _) = controller.plan(&mut machine)?;
    if machine.is_unseen(args.pid) {
        // Faults say little of it; page tables show all there is.
        evidence = "where its pages lie (most of them take no hinting faults)".into();
        machine = looking(args.pid, None)?;
        (snapshot, _) = controller.plan(&mut machine)?;
    }
    while begin.elapsed().as_secs_f64() < args.sample && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
        (snapshot, _) = controller.plan(&mut machine)?;
    }
    drop(machine);
    let advice = advise(args.pid, &snapshot, evidence, begin.elapsed().as_secs_f64())?;
    output::print(&match args.output {
        Format::Table => table(&advice),
        Format::Json => output::json(&advice)?,
        Format::Csv => csv(&advice)?,
    })
}

/// A machine that is only looked at.
fn looking(pid: u32, faults: Option<Box<dyn FaultSource>>) -> Result<LiveMachine> {
    Ok(LiveMachine::new(LiveOptions {
        targets: vec![pid],
        faults,
        journal: Box::new(NoJournal),
        acts: false,
        coverage: true,
        objects: true,
        units: true,
        pause: Nanos(0),
        beat: Box::new(|| {}),
    })?)
}

fn advise(pid: u32, snapshot: &Snapshot, evidence: String, seconds: f64) -> Result<Advice> {
    let told = project(&mut Herd::new(), snapshot.clone());
    let ratio = ratio(snapshot);
    // How much of its time it waits for memory is not known: from none to all.
    let shares = told.before.zip(told.after);
    let gain = shares.map(|(before, after)| {
        estimate::gain(before, after, ratio.unwrap_or(1.0), Interval::UNKNOWN)
    });
    let worth_it = gain.is_some_and(|gain| gain.high >= WORTH) && told.tasks + told.pages > 0;
    let move_seconds = told.pages as f64 * snapshot.costs.page_move.0 as f64 / 1e9;
    let command = if worth_it { Some(balance(pid, &machine(true)?)) } else { None };
    let bytes_to_move = told.pages * snapshot.page_size.0;
    let text = text(&told, gain, bytes_to_move, move_seconds);
    Ok(Advice {
        pid,
        evidence,
        grade: snapshot.grade,
        seconds,
        local_share: told.before,
        local_share_after: told.after,
        tasks_to_move: told.tasks,
        bytes_to_move,
        move_seconds,
        page_move_us: snapshot.costs.page_move.0 as f64 / 1e3,
        remote_ratio: ratio,
        gain_interval: gain.map(|gain| [gain.low, gain.high]),
        worth_it,
        finding: Finding { pid: Some(pid), text, command },
    })
}

/// How many times as slow remote memory is, where this process runs and has its memory.
fn ratio(snapshot: &Snapshot) -> Option<f64> {
    let ran = snapshot.tasks.iter().filter_map(|task| {
        let node = snapshot.topology.node_of_cpu(task.last_cpu)?;
        Some((node, u64::from(task.busy_permille)))
    });
    let ran: Vec<(NodeId, u64)> = ran.collect();
    let pages = snapshot.regions.iter().flat_map(|region| &region.pages);
    let memory: Vec<(NodeId, u64)> = pages.map(|(node, pages)| (*node, pages.0)).collect();
    estimate::ratio(&ran, &memory, |a, b| snapshot.topology.distance(a, b))
}

fn text(told: &Projection, gain: Option<Interval>, bytes: u64, seconds: f64) -> String {
    let (Some(before), Some(after), Some(gain)) = (told.before, told.after, gain) else {
        return "nothing can be said: no sign of who uses which memory; a longer --sample may tell"
            .into();
    };
    let now = format!("{} of its memory use is local", percent(before));
    if told.tasks + told.pages == 0 {
        return format!("{now}; herd would move nothing");
    }
    let moving = format!(
        "moving {} threads and {} MiB takes about {seconds:.1} s, makes {} local",
        told.tasks,
        bytes >> 20,
        percent(after)
    );
    let end = if told.finished { "" } else { " and would not be all" };
    if gain.high < WORTH {
        return format!(
            "{now}; {moving}{end}: not worth it, it brings {} at most",
            percent(gain.high)
        );
    }
    format!("{now}; {moving}{end} and brings up to {} of its time", percent(gain.high))
}

fn table(advice: &Advice) -> String {
    let mut text = format!("{}\n", advice.finding.text);
    if let Some(command) = &advice.finding.command {
        text += &format!("    {command}\n");
    }
    if let Some(ratio) = advice.remote_ratio {
        text += &format!(
            "seen for {:.1} s; by {}; up to: if all of its time were spent waiting for memory; \
             remote memory taken to be {ratio:.1} times as slow (firmware's distances), a page to \
             take {:.0} us to move (guessed)\n",
            advice.seconds, advice.evidence, advice.page_move_us
        );
    }
    text
}

fn csv(advice: &Advice) -> Result<String> {
    let mut listing = numaherd_report::Listing::new([
        "pid",
        "local_share",
        "local_share_after",
        "tasks_to_move",
        "bytes_to_move",
        "move_seconds",
        "gain_from",
        "gain_to",
        "worth_it",
    ]);
    let number = |figure: Option<f64>| figure.map_or_else(String::new, |f| f.to_string());
    listing.row([
        advice.pid.to_string(),
        number(advice.local_share),
        number(advice.local_share_after),
        advice.tasks_to_move.to_string(),
        advice.bytes_to_move.to_string(),
        advice.move_seconds.to_string(),
        number(advice.gain_interval.map(|[from, _]| from)),
        number(advice.gain_interval.map(|[_, to]| to)),
        advice.worth_it.to_string(),
    ]);
    Ok(listing.csv()?)
}
