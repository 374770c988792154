//! A watched run as the page of nodes over time.

use std::cmp::Reverse;

use numaherd_report::nodes::{Course, Moment, page};
use numaherd_sim::Sim;
use numaherd_sim::engine::{BLOCK_BYTES, Sample};

use super::{Finished, Job, places};

/// Bytes of a mebibyte, and mebibytes of a simulated block.
const MIB: f64 = (1 << 20) as f64;
const BLOCK_MIB: f64 = BLOCK_BYTES as f64 / MIB;
/// Colours: of the busiest processes, of the others together, and of files, where there are any.
const MOST: usize = 8;

/// What stands for all files.
const FILES: &str = "files";

/// Where each process is shown, and what stands there: the busiest by themselves, the rest together; and last all files.
fn shown(sim: &Sim) -> (Vec<usize>, Vec<String>) {
    let count = sim.processes();
    let mut busy: Vec<(Reverse<u64>, usize)> = (0..count).map(|p| (Reverse(0), p)).collect();
    for sample in sim.samples() {
        for (tasks, (busy, _)) in sample.tasks.iter().zip(&mut busy) {
            busy.0 += tasks.iter().copied().map(u64::from).sum::<u64>();
        }
    }
    busy.sort_unstable();
    let has_files = sim.samples().iter().any(|sample| sample.files.iter().any(|bytes| *bytes > 0));
    let most = MOST - usize::from(has_files);
    let own = if count > most { most - 1 } else { count };
    let mut first: Vec<usize> = busy[..own].iter().map(|&(_, p)| p).collect();
    first.sort_unstable();
    let mut names: Vec<String> = first.iter().map(|p| format!("process {}", p + 1)).collect();
    if own < count {
        names.push(format!("{} others", count - own));
    }
    if has_files {
        names.push(FILES.into());
    }
    ((0..count).map(|p| first.binary_search(&p).unwrap_or(own)).collect(), names)
}

/// The whole page.
pub fn nodes(job: &Job, finished: &Finished) -> String {
    let (run, sim) = (&finished.run, &finished.sim);
    let (shown, processes) = shown(sim);
    let count = processes.len();
    let floats = |rows: &[Vec<u32>], unit: f64| -> Vec<Vec<f64>> {
        let mut sums = vec![vec![0.0; job.machine.node.len()]; count];
        for (row, &at) in rows.iter().zip(&shown) {
            row.iter().zip(&mut sums[at]).for_each(|(&n, sum)| *sum += f64::from(n) * unit);
        }
        sums
    };
    let has_files = processes.last().is_some_and(|name| name == FILES);
    let mib = |sample: &Sample| {
        let mut sums = floats(&sample.blocks, BLOCK_MIB);
        if has_files {
            sums[count - 1] = sample.files.iter().map(|bytes| *bytes as f64 / MIB).collect();
        }
        sums
    };
    let graph = places::graph(job.placement, 1, finished);
    let moments = sim.samples().iter().zip(sim.local_shares());
    let course = Course {
        title: format!("{} on {} under {}", job.workload.name, job.machine.name, job.placement),
        nodes: job.machine.node.iter().map(|n| (format!("node {}", n.id), n.cpus)).collect(),
        processes,
        moments: moments
            .map(|(sample, local_share)| Moment {
                seconds: sample.ns as f64 / 1e9,
                tasks: floats(&sample.tasks, 1.0),
                mib: mib(sample),
                local_share,
            })
            .collect(),
        pictures: vec![("Where tasks spent their time".into(), graph.svg())],
        moves: finished.moves.clone(),
        facts: vec![
            ("seconds".into(), format!("{:.2}", run.seconds)),
            ("local share".into(), format!("{:.1} %", 100.0 * run.local_share)),
            ("hinting faults".into(), run.faults.to_string()),
            ("pages moved by the kernel".into(), run.pages_moved_by_kernel.to_string()),
            ("pages moved by herd".into(), run.pages_moved_by_us.to_string()),
            ("tasks moved between nodes".into(), run.task_moves.to_string()),
        ],
    };
    page(&course)
}
