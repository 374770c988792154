//! A run's trace in the format that ui.perfetto.dev reads: a track for each CPU, grouped by node,
//! and a track for page moves. Times are microseconds.

use numaherd_sim::Sim;
use numaherd_sim::engine::TraceEvent;
use serde_json::{Value, json};

/// Pages' own group of tracks: no node has this number.
const PAGES: usize = 10_000;

/// The whole page.
pub fn perfetto(sim: &Sim) -> Value {
    let node_of = sim.node_of_cpus();
    let mut events: Vec<Value> = Vec::new();
    for (index, node) in sim.machine().node.iter().enumerate() {
        let name = format!("node {}", node.id);
        events
            .push(json!({"ph": "M", "name": "process_name", "pid": index, "args": {"name": name}}));
    }
    for (cpu, node) in node_of.iter().enumerate() {
        let name = format!("cpu {cpu}");
        events.push(json!({"ph": "M", "name": "thread_name", "pid": node, "tid": cpu,
            "args": {"name": name}}));
    }
    events.push(json!({"ph": "M", "name": "process_name", "pid": PAGES,
        "args": {"name": "pages moved"}}));
    let micros = |ns: u64| ns as f64 / 1000.0;
    // Who runs on each CPU, and since when.
    let mut on: Vec<Option<(u64, u32)>> = vec![None; node_of.len()];
    let ran = |cpu: usize, (since, task): (u64, u32), until: u64| {
        json!({"ph": "X", "name": format!("task {task}"), "pid": node_of[cpu], "tid": cpu,
            "ts": micros(since), "dur": micros(until - since)})
    };
    for event in sim.trace() {
        match event {
            TraceEvent::Runs { ns, task, cpu } => {
                let before = on[*cpu as usize].replace((*ns, *task));
                events.extend(before.map(|before| ran(*cpu as usize, before, *ns)));
            }
            TraceEvent::Stops { ns, cpu, .. } => {
                let before = on[*cpu as usize].take();
                events.extend(before.map(|before| ran(*cpu as usize, before, *ns)));
            }
            TraceEvent::Moved { ns, process, block, from, to, why } => {
                let name = format!("process {process}, block {block}: node {from} to {to}");
                let mut event = json!({"ph": "i", "s": "p", "name": name, "pid": PAGES, "tid": to,
                    "ts": micros(*ns)});
                if let Some(why) = why {
                    event["args"] = json!({"why": why.to_string()});
                }
                events.push(event);
            }
            TraceEvent::Sent { ns, task, from, to, other, why, .. } => {
                let exchange = other.map_or_else(String::new, |other| format!(" for task {other}"));
                let name = format!("task {task} from cpu {from}{exchange}");
                events
                    .push(json!({"ph": "i", "s": "t", "name": name, "pid": node_of[*to as usize],
                    "tid": to, "ts": micros(*ns), "args": {"why": why.to_string()}}));
            }
            TraceEvent::Ended { .. } => {}
        }
    }
    json!({"traceEvents": events})
}
