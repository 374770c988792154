//! `status`: who runs where, where its memory is, what that costs, what to do. Changes nothing.
//!
//! Without `--sample` it takes less than a second and goes by where pages lie and by the kernel's
//! own counts of faults; with it, hinting faults are sampled through BPF meanwhile.

pub mod findings;
pub mod locality;
pub mod look;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use numaherd_linux::knobs::{self, Knob};
use numaherd_linux::process::TaskReader;
use numaherd_linux::sys::identity;
use numaherd_model::{Node, NodeId, Topology, counted};
use numaherd_report::Listing;
use numaherd_report::text::grid;
use numaherd_trace::LeftBehind;
use serde_json::{Value, json};

use crate::args::{Format, StatusArgs};
use crate::session::journals;
use crate::{interrupt, living, output};
use findings::{Finding, Machine, Row, UnderWay, percent};
use look::Seen;

/// Looks, and prints what was seen.
pub fn run(args: &StatusArgs) -> Result<ExitCode> {
    let stop = interrupt::flag()?;
    let sample = args.sample.map(Duration::from_secs_f64);
    let seen = look::look(&args.pid, sample, &stop)?;
    let machine = machine(args.sample.filter(|_| seen.no_faults.is_none()), &seen.topology)?;
    let rows = findings::rows(&seen);
    let found = findings::findings(&seen, &rows, &machine);
    let printed = output::print(&match args.output {
        Format::Table => table(&seen, &processes(&rows), &rows, &found),
        Format::Json => output::json(&as_json(&seen, &rows, &found))?,
        Format::Csv => spreadsheet(&rows).csv()?,
    })?;
    Ok(interrupt::ended(&stop).unwrap_or(printed))
}

/// What advice depends on besides what was seen.
pub fn machine(sampled: Option<f64>, topology: &Topology) -> Result<Machine> {
    let root = Path::new("/");
    Ok(Machine {
        // Not readable is as good as absent here.
        numa_balancing: knobs::read_number(root, Knob::NumaBalancing).unwrap_or_default(),
        root: identity::effective_user() == 0,
        rivals: numaherd_linux::host::read(root)?.rivals,
        sampled,
        one_node_runs: topology.cpu_nodes().count() < 2,
        balances: balances(),
    })
}

/// Our own balances that are under way; none where journals cannot be read.
fn balances() -> Vec<UnderWay> {
    let mut reader = TaskReader::new("/".as_ref());
    let under_way = |left: LeftBehind| UnderWay {
        looks_after: living::looked_after(&left, &mut reader),
        told: living::told(&left),
        switched_off: living::has_switched_off(&left),
        run: left.run,
    };
    living::living(&journals()).unwrap_or_default().into_iter().map(under_way).collect()
}

/// Nodes, processes, costs and findings, for people.
pub fn table(seen: &Seen, listed: &Listing, rows: &[Row<'_>], found: &[Finding]) -> String {
    let mut text = nodes(seen);
    if !rows.is_empty() {
        text += &format!("\n{}", listed.table());
        text += &told_of_costs(seen, rows);
    }
    if seen.others > 0 {
        let (others, run) = (seen.others, if seen.others == 1 { "runs" } else { "run" });
        let others = counted(others, "more process");
        text += &format!("{others} hardly {run}; -p PID shows one\n");
    }
    text += "\n";
    for Finding { text: told, command, .. } in found {
        text += &format!("{told}\n");
        if let Some(command) = command {
            text += &format!("    {command}\n");
        }
    }
    text
}

fn nodes(seen: &Seen) -> String {
    let rows = seen.topology.nodes.iter().map(|node| {
        let used = cpus_used(seen, node.id);
        let cpus = if node.cpus.is_empty() { "none".into() } else { node.cpus.to_string() };
        [
            node.id.to_string(),
            cpus,
            used.map_or_else(|| "-".into(), |used| format!("{used:.1}")),
            format!("{} MiB", node.memory.mib()),
            format!("{} MiB", node.free.mib()),
        ]
    });
    grid(["node", "cpus", "cpus used", "memory", "free"], rows)
}

/// CPUs of a node that everybody used, not only those that are looked at: a node that is busy is no place to go to.
fn cpus_used(seen: &Seen, node: NodeId) -> Option<f64> {
    seen.cpus_used.as_ref()?.get(&node).copied()
}

/// A line for each, for people.
pub fn processes(rows: &[Row<'_>]) -> Listing {
    let mut listing = Listing::new([
        "pid",
        "command",
        "threads",
        "cpus used",
        "runs on",
        "memory",
        "lies on",
        "local",
        "going by",
        "can fault",
        "lost to distance",
    ]);
    for row in rows {
        let process = row.process;
        let dash = || "-".to_string();
        let residence = process.residence.as_ref().ok();
        let memory: Vec<_> =
            residence.iter().flat_map(|r| &r.nodes).map(|(node, bytes)| (*node, bytes.0)).collect();
        listing.row([
            process.pid.to_string(),
            process.command.clone(),
            process.tasks.len().to_string(),
            format!("{:.1}", row.cpus),
            findings::shares(&process.ran()),
            residence.map_or_else(dash, |r| format!("{} MiB", r.bytes().mib())),
            residence.map_or_else(dash, |_| findings::shares(&memory)),
            row.local.map_or_else(dash, |local| match local.value {
                Some(value) => percent(value),
                None => {
                    format!("{:.0}-{}", local.interval.low * 100.0, percent(local.interval.high))
                }
            }),
            row.local.map_or_else(dash, |local| local.source.told().into()),
            row.local.map_or_else(dash, |local| percent(local.coverage)),
            row.lost.map_or_else(dash, |lost| {
                if lost.high < 0.005 { percent(0.0) } else { format!("0-{}", percent(lost.high)) }
            }),
        ]);
    }
    listing
}

/// For programs: bytes and parts of one. What is by node is `node=amount`, apart by blanks.
pub fn spreadsheet(rows: &[Row<'_>]) -> Listing {
    let mut listing = Listing::new([
        "pid",
        "command",
        "threads",
        "cpus_used",
        "cpu_time_ns_by_node",
        "memory_bytes",
        "memory_bytes_by_node",
        "local_share",
        "local_share_from",
        "local_share_to",
        "evidence",
        "coverage",
        "lost_share_from",
        "lost_share_to",
    ]);
    let by_node = |parts: &mut dyn Iterator<Item = (NodeId, u64)>| {
        parts.map(|(node, amount)| format!("{}={amount}", node.0)).collect::<Vec<_>>().join(" ")
    };
    let share = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.4}"));
    for row in rows {
        let process = row.process;
        let residence = process.residence.as_ref().ok();
        let memory = residence.into_iter().flat_map(|r| &r.nodes);
        listing.row([
            process.pid.to_string(),
            process.command.clone(),
            process.tasks.len().to_string(),
            format!("{:.2}", row.cpus),
            by_node(&mut process.ran().into_iter()),
            residence.map_or_else(String::new, |r| r.bytes().0.to_string()),
            by_node(&mut memory.map(|(node, bytes)| (*node, bytes.0))),
            share(row.local.and_then(|local| local.value)),
            share(row.local.map(|local| local.interval.low)),
            share(row.local.map(|local| local.interval.high)),
            row.local.map_or_else(String::new, |local| local.source.told().into()),
            share(row.local.map(|local| local.coverage)),
            share(row.lost.map(|lost| lost.low)),
            share(row.lost.map(|lost| lost.high)),
        ]);
    }
    listing
}

/// How the costs were estimated.
fn told_of_costs(seen: &Seen, rows: &[Row<'_>]) -> String {
    let ratios: Vec<f64> = rows.iter().filter_map(|row| row.ratio).collect();
    let most = ratios.iter().copied().fold(1.0, f64::max);
    if most <= 1.0 {
        return format!("seen for {:.1} s\n", seen.seconds);
    }
    let least = ratios.iter().copied().fold(most, f64::min);
    let times =
        if most - least < 0.05 { format!("{most:.1}") } else { format!("{least:.1} to {most:.1}") };
    format!(
        "seen for {:.1} s; lost: of the CPU time, from none of it waiting for memory to all of it; \
         remote memory taken to be {times} times as slow (firmware's distances)\n",
        seen.seconds
    )
}

/// All that was seen, for programs.
pub fn as_json(seen: &Seen, rows: &[Row<'_>], found: &[Finding]) -> Value {
    let by_node = |parts: Vec<(NodeId, u64)>, name: &str| -> Vec<Value> {
        parts.into_iter().map(|(node, weight)| json!({"node": node, name: weight})).collect()
    };
    let process = |row: &Row<'_>| {
        let process = row.process;
        let residence = process.residence.as_ref();
        let memory = residence.map(|r| r.nodes.iter().map(|(n, b)| (*n, b.0)).collect::<Vec<_>>());
        let unseen = residence.map_or(Vec::new(), |residence| {
            let each = residence.unseen.iter();
            each.map(|(cause, bytes)| json!({"cause": cause.told(), "bytes": bytes})).collect()
        });
        json!({
            "pid": process.pid,
            "command": process.command,
            "threads": process.tasks.len(),
            "cpus_used": row.cpus,
            "cpu_time_by_node": by_node(process.ran(), "ns"),
            "memory_by_node": memory.ok().map(|memory| by_node(memory, "bytes")),
            "memory_unknown": residence.err(),
            "local_share": row.local.and_then(|local| local.value),
            "local_share_interval": row.local.map(|l| [l.interval.low, l.interval.high]),
            "local_share_source": row.local.map(|local| local.source.name()),
            "evidence": row.local.map(|local| local.source.told()),
            "coverage": row.local.map(|local| local.coverage),
            "uncovered": unseen,
            "lost_share_interval": row.lost.map(|lost| [lost.low, lost.high]),
            "remote_ratio": row.ratio,
            "remote_ratio_source": row.ratio.map(|_| "firmware"),
        })
    };
    let node = |node: &Node| {
        let Node { id, cpus, memory, free } = node;
        let used = cpus_used(seen, *id);
        json!({"id": id, "cpus": cpus, "memory": memory, "free": free, "cpus_used": used})
    };
    json!({
        "seconds": seen.seconds,
        "nodes": seen.topology.nodes.iter().map(node).collect::<Vec<_>>(),
        "processes": rows.iter().map(process).collect::<Vec<_>>(),
        "other_processes": seen.others,
        "sampling_problem": seen.no_faults,
        "findings": found,
    })
}
