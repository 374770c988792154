//! `advise`: what bringing a process and its memory together would take and bring, before doing
//! it. Changes nothing.
//!
//! It looks as `balance` looks, has herd's plans carried out on paper, and estimates what that is
//! worth. Where counters tell how much of its time the process waits for memory, the gain is told as
//! a figure, else as "up to". Afterwards, asked again, it lays what it promised beside what has come of it.

mod earlier;
mod expectation;
mod projection;
mod words;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use numaherd_control::Controller;
use numaherd_linux::live::{LiveMachine, LiveOptions, Sampled, TrafficCounters};
use numaherd_linux::process::TaskReader;
use numaherd_linux::sys::perf::set_period;
use numaherd_model::{
    Change, EvidenceGrade, FaultSource, Journal, Latencies, Nanos, NodeId, ProcessId, Snapshot,
    Topology, Waiting, WorldError,
};
use numaherd_placement::herd::PATIENCE;
use numaherd_placement::{Herd, Mechanisms, sharing};
use serde::Serialize;

use super::balance::open_faults;
use super::status::findings::{Finding, balance, looked_after};
use super::status::machine;
use crate::args::{AdviseArgs, Format, PAUSE};
use crate::estimate::{self, Interval};
use crate::living::kept;
use crate::session::journals;
use crate::stalls::{self, Stalls};
use crate::{interrupt, latencies, output, targets, traffic};
use earlier::{Earlier, Shelf};
use expectation::Distances;
use projection::{Projection, project};
use words::{Worth, csv, table, text, unsure};

/// Between two looks.
const TICK: Duration = Duration::from_millis(200);
/// Less than this is not worth moving anything. Guessed.
const WORTH: f64 = 0.02;

/// By how much a figure for the gain may be off. Chosen: what is wanted; four fifths of
/// the cases measured keep it (docs/results/advise.md).
const ERROR: f64 = 0.05;

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
    /// The longest that a thread is to wait for a page on its way, as `balance` keeps it.
    pause_seconds: f64,
    page_move_us: f64,
    remote_ratio: Option<f64>,
    /// The share of its time that it loses as not all that it uses is near.
    loss_interval: Option<[f64; 2]>,
    /// The same as a figure, where the waiting for memory was counted.
    loss: Option<f64>,
    /// Of the time it takes now.
    gain_interval: Option<[f64; 2]>,
    /// The same as a figure, where the waiting for memory was counted; below 0 if it costs time. The
    /// least that may come of it where it is not known whether threads share memory.
    gain: Option<f64>,
    /// Whether enough faults tell how far its threads share memory.
    sharing_known: bool,
    /// The share of its time that it waits for memory, and who counted it.
    waiting_share: Option<f64>,
    waiting_source: Option<&'static str>,
    /// The share of its misses that went to the node of their CPU, as counted.
    local_share_counted: Option<f64>,
    /// Who says how far nodes are from each other.
    distance_source: &'static str,
    worth_it: bool,
    /// What it was told before, and what has come of that.
    earlier: Option<Earlier>,
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
    let mut reader = TaskReader::new("/".as_ref());
    let process = targets::alive(&mut reader, args.pid)?;
    let measured = args.measured.as_deref();
    let measured = measured.map(|path| {
        let known = latencies::read(path)?;
        ensure!(known.latencies.are_of(&topology), latencies::of_another(path));
        Ok(known)
    });
    let measured = measured.transpose()?;
    if topology.cpu_nodes().count() < 2 {
        return print(args.output, &Advice::on_one_node(args.pid, &topology));
    }
    let latencies = measured.as_ref().map(|known| &known.latencies);
    let distances = Distances { firmware: &topology, measured: latencies };
    let (faults, mut evidence) = open_faults(false, true);
    let most = measured.as_ref().map(|known| known.most.as_slice()).unwrap_or_default();
    let looking = |faults| {
        let traffic = traffic::counters(&topology, most, |_| {});
        looking(process, faults, latencies, traffic)
    };
    let mut machine = looking(faults)?;
    let mut controller = Controller::new(Herd::new());
    let told = |error| match error {
        WorldError::NoTasks => anyhow!("process {} ended while it was looked at", args.pid),
        other => other.into(),
    };
    let (begin, look) = (Instant::now(), stalls::Look::begin());
    let (mut snapshot, _) = controller.plan(&mut machine).map_err(&told)?;
    // Of who runs alone the kernel has only those pages fault that are remote (change_pte_range, v6.12).
    let why = match (machine.is_unseen(args.pid), snapshot.tasks.len()) {
        (true, _) => Some("most of them take no hinting faults"),
        (_, 1) => Some("of one thread's, only remote ones take hinting faults"),
        _ => None,
    };
    if let Some(why) = why {
        // Faults say little of it; page tables show all there is.
        evidence = format!("where its pages lie ({why})");
        machine = looking(None)?;
        (snapshot, _) = controller.plan(&mut machine).map_err(&told)?;
    }
    if !machine.sampled().is_empty() {
        evidence = "its accesses, sampled (most of its memory takes no hinting faults)".into();
    }
    let mut wanted = args.sample;
    while begin.elapsed().as_secs_f64() < wanted && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
        let plan;
        (snapshot, plan) = controller.plan(&mut machine).map_err(&told)?;
        let learning = matches!(plan.waiting, Some(Waiting::Sharing { .. }));
        // At least as long as herd waits for that.
        wanted = args.sample.max(if learning { PATIENCE.as_secs_f64() } else { 0.0 });
    }
    if let Some(why) = machine.unreadable(process) {
        bail!("{why}: only its owner and root may see where its memory lies");
    }
    drop(machine);
    let stalls = look.and_then(|look| look.end(&topology));
    let seen = Looked { seconds: begin.elapsed().as_secs_f64(), evidence, stalls, distances };
    let mut advice = advise(args.pid, &snapshot, seen)?;
    let shelf = Shelf::of(process, &reader)?;
    advice.earlier = shelf.compare(&advice);
    shelf.keep(&advice);
    let printed = print(args.output, &advice)?;
    Ok(interrupt::ended(&stop).unwrap_or(printed))
}

fn print(format: Format, advice: &Advice) -> Result<ExitCode> {
    output::print(&match format {
        Format::Table => table(advice),
        Format::Json => output::json(advice)?,
        Format::Csv => csv(advice)?,
    })
}

impl Advice {
    /// Where all CPUs are on one node: an answer, for which nobody has to look.
    fn on_one_node(pid: u32, topology: &Topology) -> Advice {
        let local = (topology.nodes.len() == 1).then_some(1.0);
        let text = "this machine has one node with CPUs: nothing can be moved, nothing is lost";
        Advice {
            pid,
            evidence: "the machine's topology".into(),
            grade: EvidenceGrade::None,
            seconds: 0.0,
            local_share: local,
            local_share_after: local,
            tasks_to_move: 0,
            bytes_to_move: 0,
            move_seconds: 0.0,
            pause_seconds: PAUSE,
            page_move_us: 0.0,
            remote_ratio: None,
            loss_interval: Some([0.0; 2]),
            loss: Some(0.0),
            gain_interval: Some([0.0; 2]),
            gain: Some(0.0),
            sharing_known: false,
            waiting_share: None,
            waiting_source: None,
            local_share_counted: None,
            distance_source: "firmware",
            worth_it: false,
            earlier: None,
            finding: Finding { pid: Some(pid), text: text.into(), command: None },
        }
    }
}

/// A machine that is only looked at.
fn looking(
    process: ProcessId,
    faults: Option<Box<dyn FaultSource>>,
    latencies: Option<&Latencies>,
    traffic: Option<TrafficCounters>,
) -> Result<LiveMachine> {
    let mut machine = LiveMachine::new(LiveOptions {
        targets: vec![process],
        faults,
        accesses: numaherd_sampling::sampler(set_period),
        sampled: Sampled { reserve: true, ..Sampled::default() },
        latencies: latencies.cloned(),
        traffic,
        journal: Box::new(NoJournal),
        acts: false,
        coverage: true,
        objects: true,
        units: true,
        pause: Nanos(0),
        beat: Box::new(|| {}),
    })?;
    machine.take_over(kept(&journals()).unwrap_or_default());
    Ok(machine)
}

/// What goes with a snapshot.
struct Looked<'a> {
    seconds: f64,
    evidence: String,
    stalls: Option<Stalls>,
    distances: Distances<'a>,
}

fn advise(pid: u32, snapshot: &Snapshot, looked: Looked<'_>) -> Result<Advice> {
    let Looked { seconds, evidence, stalls, distances } = looked;
    // Each of the two cases by itself: herd would place some for both.
    let herd = || Herd::with(Mechanisms { early: false, ..Mechanisms::default() });
    let paper = |snapshot| project(&mut herd(), snapshot, |from, to| distances.between(from, to));
    let (apart, shared) = (paper(snapshot.clone()), sharing::if_shared(snapshot).map(paper));
    let ratio = ratio(snapshot, &distances);
    let busy: u64 = snapshot.tasks.iter().map(|task| u64::from(task.busy_permille)).sum();
    let own_cpus = busy as f64 / 1000.0;
    // Page tables do not tell who uses what, but of one thread. Where that is all there is and no process as a
    // whole has to move, it is open what balance will find once it has the kernel take faults.
    let told_by_tables = snapshot.grade == EvidenceGrade::ResidentPages;
    let open = told_by_tables && snapshot.tasks.len() > 1 && !apart.moves();
    let counted = stalls.as_ref().and_then(|stalls| {
        let gain = |told: &Projection| expectation::gain(stalls, told, own_cpus, &distances);
        let gain = match open {
            true => expectation::either(expectation::most(stalls, own_cpus, &distances)?, None),
            false => expectation::either(gain(&apart)?, shared.as_ref().and_then(gain)),
        };
        Some((stalls, gain))
    });
    // Where nobody counts how much of its time it waits for memory, it is from none to all.
    let uncounted = |told: &Projection, after: Option<f64>| {
        let (before, after) = told.before.zip(after)?;
        Some(estimate::gain(before, after, ratio.unwrap_or(1.0), Interval::UNKNOWN))
    };
    // In the case of the two in which it is more: which one it is is not known.
    let in_either = |after: fn(&Projection) -> Option<f64>| {
        let cases = [Some(&apart), shared.as_ref()].into_iter().flatten();
        let told = cases.filter_map(|case| uncounted(case, after(case)));
        told.max_by(|a, b| a.high.total_cmp(&b.high))
    };
    let gain = match counted {
        Some((_, gain)) => {
            let low = if open { 0.0 } else { gain.low - ERROR };
            Some(Interval { low, high: gain.high + ERROR }.clamped())
        }
        None => in_either(|case| case.after),
    };
    let figure = counted.map(|(_, gain)| gain.low);
    let all_near = |stalls| expectation::most(stalls, own_cpus, &distances);
    let lost = counted.and_then(|(stalls, _)| all_near(stalls)).map(|loss| loss.max(0.0));
    let loss = match lost {
        Some(lost) => Some(Interval { low: lost - ERROR, high: lost + ERROR }.clamped()),
        None => in_either(|_| Some(1.0)),
    };
    let most = counted.map(|(_, gain)| gain.high).or(gain.map(|gain| gain.high));
    let sharing_known = shared.is_none();
    let told = shared.filter(|_| !apart.moves()).unwrap_or(apart);
    let moves = told.moves() || (open && figure.is_some());
    let worth_it = most.is_some_and(|most| most >= WORTH) && moves;
    let move_seconds = told.pages as f64 * snapshot.costs.page_move.0 as f64 / 1e9;
    let machine = machine(None, &snapshot.topology)?;
    let command = if worth_it { balance(pid, &machine) } else { None };
    let bytes_to_move = told.pages * snapshot.page_size.0;
    let text = match (open, counted) {
        (true, Some((stalls, most))) if worth_it => unsure(stalls, most.high),
        _ => {
            let counted = counted.map(|(_, gain)| gain);
            let worth = Worth { lost, loss, counted, gain, sharing_known };
            text(&told, worth, bytes_to_move, move_seconds)
        }
    };
    let text = text + &looked_after(pid, &machine);
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
        pause_seconds: PAUSE,
        page_move_us: snapshot.costs.page_move.0 as f64 / 1e3,
        remote_ratio: ratio,
        loss_interval: loss.map(|loss| [loss.low, loss.high]),
        loss: lost,
        gain_interval: gain.map(|gain| [gain.low, gain.high]),
        gain: figure,
        sharing_known,
        waiting_share: counted.map(|(stalls, _)| stalls.waiting),
        waiting_source: counted.map(|_| "emulator"),
        local_share_counted: counted.and_then(|(stalls, _)| stalls.local_share()),
        distance_source: distances.source(),
        worth_it,
        earlier: None,
        finding: Finding { pid: Some(pid), text, command },
    })
}

/// How many times as slow remote memory is, where this process runs and has its memory.
fn ratio(snapshot: &Snapshot, distances: &Distances<'_>) -> Option<f64> {
    let ran = snapshot.tasks.iter().filter_map(|task| {
        let node = snapshot.topology.node_of_cpu(task.last_cpu)?;
        Some((node, u64::from(task.busy_permille)))
    });
    let ran: Vec<(NodeId, u64)> = ran.collect();
    let pages = snapshot.regions.iter().flat_map(|region| &region.pages);
    let memory: Vec<(NodeId, u64)> = pages.map(|(node, pages)| (*node, pages.0)).collect();
    estimate::ratio(&ran, &memory, |a, b| distances.between(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    #[test]
    fn it_loses_at_least_what_it_may_gain() {
        // Four threads, two on each node, each seen in memory of its own there, and no telling whether they share it:
        // if not, all is local; if they do, half of all use is remote.
        let mut scene = Scene::two_by_four();
        for (tid, cpu, node) in [(1, 0, 0), (2, 1, 0), (3, 4, 1), (4, 5, 1)] {
            scene.task(tid, cpu, 1000);
            scene.region(u64::from(tid), &[(tid, 512)], &[(node, 512)]);
        }
        scene.shared(0, 0);
        let snapshot = scene.snapshot();
        let distances = Distances { firmware: &snapshot.topology.clone(), measured: None };
        let looked = Looked { seconds: 1.0, evidence: "faults".into(), stalls: None, distances };
        let advice = advise(7, &snapshot, looked).unwrap();
        assert!(!advice.sharing_known, "{advice:?}");
        let ([_, loss], [_, gain]) = (advice.loss_interval.unwrap(), advice.gain_interval.unwrap());
        assert!(gain > 0.0 && loss >= gain, "{advice:?}");
    }
}
