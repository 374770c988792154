//! A watched run as the page of nodes over time.

use numaherd_report::nodes::{Course, Moment, page};
use numaherd_sim::engine::BLOCK_BYTES;

use super::{Finished, Job, places};

/// Mebibytes of a simulated block.
const BLOCK_MIB: f64 = (BLOCK_BYTES >> 20) as f64;

/// The whole page.
pub fn nodes(job: &Job, finished: &Finished) -> String {
    let (run, sim) = (&finished.run, &finished.sim);
    let floats = |rows: &[Vec<u32>], unit: f64| -> Vec<Vec<f64>> {
        rows.iter().map(|row| row.iter().map(|&n| f64::from(n) * unit).collect()).collect()
    };
    let graph = places::graph(job.placement, 0, finished);
    let moments = sim.samples().iter().zip(sim.local_shares());
    let course = Course {
        title: format!("{} on {} under {}", job.workload.name, job.machine.name, job.placement),
        nodes: job.machine.node.iter().map(|n| (format!("node {}", n.id), n.cpus)).collect(),
        processes: (1..=sim.processes()).map(|n| format!("process {n}")).collect(),
        moments: moments
            .map(|(sample, local_share)| Moment {
                seconds: sample.ns as f64 / 1e9,
                tasks: floats(&sample.tasks, 1.0),
                mib: floats(&sample.blocks, BLOCK_MIB),
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
