//! From what was seen to what it means and what to do about it. Pure.

use std::collections::BTreeSet;

use numaherd_model::{NodeId, NodeState};
use serde::Serialize;

use super::locality::{Local, local_share};
use super::look::{Process, Seen};
use crate::estimate::{self, Interval};

/// What is known of the machine besides.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// `kernel.numa_balancing`; None on a kernel without it.
    pub numa_balancing: Option<u64>,
    /// Whether we are root.
    pub root: bool,
    /// Programs that place processes too.
    pub rivals: Vec<(String, u32)>,
    /// For how many seconds faults were sampled, if they were.
    pub sampled: Option<f64>,
    /// Whether all CPUs are on one node: then nobody can be brought to memory, nor any memory nearer to all.
    pub one_node_runs: bool,
    /// Our own balances that are under way.
    pub balances: Vec<UnderWay>,
}

/// A balance that is under way.
#[derive(Clone, Debug)]
pub struct UnderWay {
    /// Its run's id, which `explain` takes.
    pub run: String,
    /// Which it is, in words.
    pub told: String,
    /// Processes that it looks after.
    pub looks_after: BTreeSet<u32>,
    /// Whether it has switched the kernel's balancing off.
    pub switched_off: bool,
}

impl Machine {
    /// The balance under way that looks after a process.
    fn balance_of(&self, pid: u32) -> Option<&UnderWay> {
        self.balances.iter().find(|balance| balance.looks_after.contains(&pid))
    }
}

/// Something worth saying, and the command that does something about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// About this process; None: the machine.
    pub pid: Option<u32>,
    pub text: String,
    /// What to do, as a command line.
    #[serde(rename = "do")]
    pub command: Option<String>,
}

/// A process with what follows.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    pub process: &'a Process,
    /// CPUs it used.
    pub cpus: f64,
    pub local: Option<Local>,
    /// The share of its CPU time that it loses to distance.
    pub lost: Option<Interval>,
    /// How many times as slow remote memory is taken to be.
    pub ratio: Option<f64>,
}

/// A placement is good from here on: herd itself calls that converged.
const GOOD: f64 = 0.9;
/// Who uses less than this of a CPU loses next to nothing. Guessed.
const HARDLY: f64 = 0.05;
/// Seconds that are worth sampling first, and three times as long where that was not enough. Guessed.
const SAMPLE: f64 = 10.0;
/// Of how much memory the kernel must take faults for them to tell enough.
const COVERED: f64 = 0.5;

/// Processes, the costliest first.
pub fn rows(seen: &Seen) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = seen.processes.iter().map(|process| row(process, seen)).collect();
    let cost = |row: &Row<'_>| row.lost.map_or(0.0, |lost| lost.high) * row.cpus;
    rows.sort_by(|a, b| cost(b).total_cmp(&cost(a)).then(b.cpus.total_cmp(&a.cpus)));
    rows
}

fn row<'a>(process: &'a Process, seen: &Seen) -> Row<'a> {
    let one_node = seen.topology.nodes.len() < 2;
    let local = local_share(process);
    let local = local.map(|local| if one_node { local.on_one_node() } else { local });
    let ran = process.ran();
    let memory = process.residence.as_ref().map_or(Vec::new(), |residence| {
        residence.nodes.iter().map(|(node, bytes)| (*node, bytes.0)).collect()
    });
    let far = |a, b| f64::from(seen.topology.distance(a, b));
    let ratio = estimate::ratio(&ran, &memory, far);
    // How much of its time it waits for memory is not known: from none to all.
    let lost =
        local.map(|local| estimate::lost(local.interval, ratio.unwrap_or(1.0), Interval::UNKNOWN));
    let cpus = process.ran_ns() as f64 / 1e9 / seen.seconds.max(0.001);
    Row { process, cpus, local, lost, ratio }
}

/// Findings on the machine, then on processes in their order.
pub fn findings(seen: &Seen, rows: &[Row<'_>], machine: &Machine) -> Vec<Finding> {
    let mut found: Vec<Finding> = on_machine(seen, machine);
    if seen.topology.nodes.len() > 1 {
        found.extend(rows.iter().flat_map(|row| on_process(row, seen, machine)));
    }
    found
}

fn on_machine(seen: &Seen, machine: &Machine) -> Vec<Finding> {
    let say = |text: String, command: Option<&str>| Finding {
        pid: None,
        text,
        command: command.map(String::from),
    };
    if seen.topology.nodes.len() < 2 {
        let text =
            "this machine has one memory node: nothing is remote, nothing is lost to distance";
        return vec![say(text.into(), None)];
    }
    let mut found = Vec::new();
    if machine.one_node_runs {
        let text = "all CPUs are on one node: balance has nothing to bring together; what is used on nodes without CPUs \
                    the kernel's tiering brings nearer (kernel.numa_balancing=2)";
        found.push(say(text.into(), None));
    }
    for (name, pid) in &machine.rivals {
        found.push(say(format!("{name} (process {pid}) places processes too"), None));
    }
    for UnderWay { run, told, switched_off, .. } in &machine.balances {
        let balancing = match (switched_off, machine.numa_balancing) {
            (true, Some(0)) => {
                ", and has switched kernel.numa_balancing off until it ends or needs it"
            }
            _ => "",
        };
        let command = format!("numaherd explain {run}");
        found.push(say(format!("{told} is under way{balancing}"), Some(&command)));
    }
    if machine.numa_balancing.is_some_and(|mode| mode & 2 != 0) {
        let text = "the kernel moves pages between memory tiers; balance moves none then";
        found.push(say(text.into(), None));
    }
    for node in &seen.nodes {
        if let Some(text) = short_of_memory(node, seen) {
            found.push(say(text, None));
        }
    }
    if seen.processes.is_empty() {
        found.push(say("no process uses more than 1 % of a CPU".into(), None));
    }
    found
}

/// Within a tenth of its memory of where the kernel reclaims. The tenth is guessed.
fn short_of_memory(node: &NodeState, seen: &Seen) -> Option<String> {
    let memory = seen.topology.node(node.id)?.memory;
    let room = node.free.0.saturating_sub(node.high_watermark.0) * seen.page_size.0;
    (memory.0 > 0 && room < memory.0 / 10).then(|| {
        format!(
            "node {} is nearly full: {} MiB left above its high watermark; little can move there",
            node.id,
            room >> 20
        )
    })
}

fn on_process(row: &Row<'_>, seen: &Seen, machine: &Machine) -> Vec<Finding> {
    let pid = row.process.pid;
    let name = format!("{} ({})", row.process.command, pid);
    let say = |text: String, command| Finding { pid: Some(pid), text, command };
    let local = match (&row.process.residence, row.local) {
        (Err(why), _) => {
            return vec![say(format!("{name}: its memory cannot be seen, {why}"), None)];
        }
        (_, None) => return Vec::new(),
        (_, Some(local)) => local,
    };
    if row.cpus < HARDLY {
        let text = format!("{name} hardly runs: where its memory lies costs next to nothing");
        return vec![say(text, None)];
    }
    let mut found = Vec::new();
    match local.value {
        Some(value) if value >= GOOD => {
            let text =
                format!("{name} is well placed: {} of its memory use is local", percent(value));
            found.push(say(text, None));
        }
        Some(value) => {
            let most = row.lost.map_or(0.0, |lost| lost.high);
            let text = format!(
                "{name}: only {} of its memory use is local, {}; it loses up to {} of its time{}",
                percent(value),
                where_it_is(row),
                percent(most),
                looked_after(pid, machine)
            );
            found.push(say(text, balance(pid, machine)));
        }
        None => found.push(open_question(row, local, seen, machine)),
    }
    if local.coverage < COVERED {
        let text = format!("{name}: {}", uncovered(row, local));
        found.push(say(text, None));
    }
    found
}

/// What it would take to know more.
fn open_question(row: &Row<'_>, local: Local, seen: &Seen, machine: &Machine) -> Finding {
    let pid = row.process.pid;
    let Interval { low, high } = local.interval;
    let mut text = format!(
        "{} ({pid}): between {} and {} of its memory use is local: who uses which page is not known",
        row.process.command,
        percent(low),
        percent(high)
    );
    let sudo = if machine.root { "" } else { "sudo " };
    let command = match (&seen.no_faults, machine.numa_balancing) {
        _ if local.coverage < COVERED => None,
        (_, None) => {
            text += "; this kernel takes no hinting faults";
            None
        }
        (_, Some(mode)) if mode & 1 == 0 => {
            let mode = if mode == 0 { "off" } else { "tiering alone" };
            text += &format!("; kernel.numa_balancing is {mode}, so there are no faults to sample");
            balance(pid, machine)
        }
        (Some(reason), _) => {
            text += &format!("; faults cannot be sampled: {reason}");
            None
        }
        (None, Some(_)) => {
            let seconds = machine.sampled.map_or(SAMPLE, |sampled| (sampled * 3.0).ceil());
            if machine.sampled.is_some() {
                text += "; too few faults came in";
            }
            Some(format!("{sudo}numaherd status -p {pid} --sample {seconds}"))
        }
    };
    text += &looked_after(pid, machine);
    Finding { pid: Some(pid), text, command }
}

/// That a balance under way looks after it, if one does.
pub fn looked_after(pid: u32, machine: &Machine) -> String {
    let by = machine.balance_of(pid);
    by.map_or(String::new(), |by| format!("; run {} looks after it", by.run))
}

/// The command that brings a process and its memory together; none where a balance under way looks after it, beside
/// which another would be refused. Without the kernel's balancing there are no faults to go by, and `--tune-kernel`
/// switches it on.
pub fn balance(pid: u32, machine: &Machine) -> Option<String> {
    if machine.balance_of(pid).is_some() || machine.one_node_runs {
        return None;
    }
    let sudo = if machine.root { "" } else { "sudo " };
    let off = machine.numa_balancing.is_some_and(|mode| mode & 1 == 0);
    Some(format!("{sudo}numaherd balance {}-p {pid}", if off { "--tune-kernel " } else { "" }))
}

fn where_it_is(row: &Row<'_>) -> String {
    let memory = row.process.residence.as_ref().map_or(Vec::new(), |residence| {
        residence.nodes.iter().map(|(node, bytes)| (*node, bytes.0)).collect()
    });
    format!("it runs on {} and its memory is on {}", shares(&row.process.ran()), shares(&memory))
}

/// `node 0` or `nodes 0 (75 %) and 1 (25 %)`; less than one in a hundred is left out.
pub fn shares(parts: &[(NodeId, u64)]) -> String {
    let all: u64 = parts.iter().map(|(_, weight)| weight).sum();
    let share = |weight: u64| weight as f64 / all.max(1) as f64;
    let told: Vec<&(NodeId, u64)> =
        parts.iter().filter(|(_, weight)| share(*weight) >= 0.01).collect();
    match &told[..] {
        [] => "no node".into(),
        [(node, _)] => format!("node {node}"),
        many => {
            let each = many.iter().map(|(node, w)| format!("{node} ({})", percent(share(*w))));
            format!("nodes {}", each.collect::<Vec<_>>().join(" and "))
        }
    }
}

fn uncovered(row: &Row<'_>, local: Local) -> String {
    let causes = row.process.residence.as_ref().map_or(Vec::new(), |residence| {
        let each = residence.unseen.iter();
        each.map(|(cause, bytes)| format!("{} MiB of {}", bytes.mib(), cause.told())).collect()
    });
    format!(
        "the kernel takes hinting faults on only {} of its memory, and on none of {}",
        percent(local.coverage),
        causes.join(" and ")
    )
}

/// A share in whole percents.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests;
