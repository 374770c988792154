//! What each task asks of memory, and what each node's memory carries, by counters of CPUs and memories.
//!
//! Counters of a CPU count whoever runs there. What was counted while a task ran is its own: of a CPU's bytes, as
//! much as it took of the time that the CPU was busy. A task that changed CPUs has its part of the last one's. So
//! it is exact where tasks keep to a CPU each. Of a task that was born meanwhile it is by the time that it has lived.
//!
//! Worked example: in half a second a CPU read 200 MB. A task of ours ran there for 0.1 s, and the CPU was busy for
//! 0.4: 50 MB are the task's, 100 MB/s.

use std::collections::BTreeMap;

use numaherd_model::{Counted, CpuId, CpuSet, Nanos, NodeId, Task, TaskId, Traffic, TrafficSource};

use crate::ReadError;
use crate::system::System;

/// Time over which traffic is counted, at the least. Guessed, as the simulator's: many of the clock ticks in
/// which the kernel counts how busy a CPU is.
const WINDOW: Nanos = Nanos(200_000_000);

/// Who counts, and what nodes' memory carries at most.
pub struct Counters {
    /// Where counts come from.
    pub source: Box<dyn TrafficSource>,
    /// What the memory of each node carries at most, in bytes a second; nodes of which that is not known are missing.
    pub most: Vec<(NodeId, u64)>,
}

/// See the module.
#[derive(Default)]
pub struct Meter {
    counters: Option<Counters>,
    /// Why counting was given up.
    refused: Option<String>,
    before: Option<Sample>,
    traffic: Traffic,
}

/// What had been counted at one moment.
struct Sample {
    at: Nanos,
    counted: Counted,
    busy: BTreeMap<CpuId, Nanos>,
    ran: BTreeMap<TaskId, Nanos>,
}

impl Meter {
    /// With counters, where there are any.
    pub fn new(counters: Option<Counters>) -> Meter {
        let most = counters.as_ref().map(|counters| counters.most.clone()).unwrap_or_default();
        let traffic = Traffic { most, ..Traffic::default() };
        Meter { counters, traffic, ..Meter::default() }
    }

    /// Why counting was given up.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// What the last window told, of these CPUs; ends it if it is over.
    ///
    /// # Errors
    /// How busy CPUs are cannot be read.
    pub fn see(
        &mut self,
        system: &mut dyn System,
        now: Nanos,
        tasks: &[Task],
        cpus: &CpuSet,
    ) -> Result<Traffic, ReadError> {
        let is_over = self.before.as_ref().is_none_or(|before| now.since(before.at) >= WINDOW);
        let Some(counters) = self.counters.as_mut().filter(|_| is_over) else {
            return Ok(self.traffic.clone());
        };
        match counters.source.read(cpus) {
            Ok(counted) => {
                let ran = tasks.iter().map(|task| (task.id, task.cpu_time)).collect();
                let sample = Sample { at: now, counted, busy: system.busy()?, ran };
                if let Some(before) = self.before.replace(sample) {
                    let now = self.before.as_ref().unwrap_or(&before);
                    self.traffic.carried = carried(&before, now);
                    self.traffic.tasks = asked(&before, now, tasks);
                }
            }
            Err(error) => {
                // Nothing is limited by what is not measured any more.
                (self.counters, self.traffic) = (None, Traffic::default());
                self.refused = Some(error.to_string());
            }
        }
        Ok(self.traffic.clone())
    }
}

/// Bytes a second that each node's memory carried between two samples.
fn carried(before: &Sample, now: &Sample) -> Vec<(NodeId, u64)> {
    let of = |(node, bytes): (&NodeId, &u64)| {
        let counted = bytes.checked_sub(*before.counted.nodes.get(node)?)?;
        Some((*node, rate(u128::from(counted), now.at.since(before.at))))
    };
    now.counted.nodes.iter().filter_map(of).collect()
}

/// Bytes a second that each task asked for between two samples.
fn asked(before: &Sample, now: &Sample, tasks: &[Task]) -> Vec<(TaskId, u64)> {
    let ran = |task: &Task| {
        let then = before.ran.get(&task.id).copied().unwrap_or(Nanos(0));
        task.cpu_time.since(then).0.min(now.at.since(before.at).0)
    };
    let mut ours: BTreeMap<CpuId, u64> = BTreeMap::new();
    for task in tasks {
        *ours.entry(task.last_cpu).or_insert(0) += ran(task);
    }
    let of = |task: &Task| {
        let cpu = &task.last_cpu;
        let counted = now.counted.cpus.get(cpu)?.checked_sub(*before.counted.cpus.get(cpu)?)?;
        let busy = now.busy.get(cpu).zip(before.busy.get(cpu)).map_or(0, |(a, b)| a.since(*b).0);
        let time = busy.max(*ours.get(cpu)?).max(1);
        let bytes = u128::from(counted) * u128::from(ran(task)) / u128::from(time);
        let elapsed = now.at.since(before.at).min(task.age);
        Some((task.id, rate(bytes, elapsed)))
    };
    tasks.iter().filter_map(of).filter(|(_, bytes)| *bytes > 0).collect()
}

fn rate(bytes: u128, elapsed: Nanos) -> u64 {
    u64::try_from(bytes * 1_000_000_000 / u128::from(elapsed.0.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::{Scene, task_id};

    const MS: u64 = 1_000_000;
    const MB: u64 = 1_000_000;

    /// `cpus` and `nodes` have counted so many MB, and CPUs were busy so many ms, at a time in ms.
    fn sample(
        at: u64,
        cpus: &[(u32, u64)],
        busy: &[(u32, u64)],
        nodes: &[(u32, u64)],
        tasks: &[Task],
    ) -> Sample {
        Sample {
            at: Nanos(at * MS),
            counted: Counted {
                cpus: cpus.iter().map(|&(cpu, mb)| (CpuId(cpu), mb * MB)).collect(),
                nodes: nodes.iter().map(|&(node, mb)| (NodeId(node), mb * MB)).collect(),
            },
            busy: busy.iter().map(|&(cpu, ms)| (CpuId(cpu), Nanos(ms * MS))).collect(),
            ran: tasks.iter().map(|task| (task.id, task.cpu_time)).collect(),
        }
    }

    /// Tasks 1, 2, …, each last on a CPU, after so many ms of CPU time.
    fn tasks(of: &[(u32, u64)]) -> Vec<Task> {
        let mut scene = Scene::two_by_four();
        for (index, &(cpu, _)) in of.iter().enumerate() {
            scene.task(index as u32 + 1, cpu, 1000);
        }
        let mut tasks = scene.snapshot().tasks;
        tasks.iter_mut().zip(of).for_each(|(task, &(_, ms))| task.cpu_time = Nanos(ms * MS));
        tasks
    }

    #[test]
    fn of_what_a_cpu_read_a_task_has_its_part_of_the_busy_time() {
        let then = tasks(&[(0, 1000), (4, 0), (4, 0)]);
        let now = tasks(&[(0, 1100), (4, 300), (4, 100)]);
        // CPU 0 was busy for 400 ms of 500; CPU 4 for no longer than our tasks ran there, by a clock of ticks.
        let before = sample(500, &[(0, 50), (4, 0)], &[(0, 7000), (4, 0)], &[(0, 10)], &then);
        let after =
            sample(1000, &[(0, 250), (4, 400)], &[(0, 7400), (4, 390)], &[(0, 610), (1, 9)], &now);
        let ids = |mb: &[(u32, u64)]| -> Vec<(TaskId, u64)> {
            mb.iter().map(|&(id, mb)| (task_id(id), mb * MB)).collect()
        };
        // 200 MB x 100 of 400 ms; 400 MB x 300 and 100 of 400 ms; each in half a second
        assert_eq!(asked(&before, &after, &now), ids(&[(1, 100), (2, 600), (3, 200)]));
        // Of node 1 it is not known what had been counted before.
        assert_eq!(carried(&before, &after), [(NodeId(0), 1200 * MB)]);
    }

    #[test]
    fn who_was_born_meanwhile_asks_for_as_much_in_the_time_that_it_lives() {
        let mut now = tasks(&[(0, 100)]);
        now[0].age = Nanos(125 * MS);
        let before = sample(0, &[(0, 0)], &[(0, 0)], &[], &[]);
        let after = sample(500, &[(0, 50)], &[(0, 100)], &[], &now);
        // 50 MB in 0.125 s
        assert_eq!(asked(&before, &after, &now), [(task_id(1), 400 * MB)]);
    }

    #[test]
    fn a_counter_that_is_new_or_began_anew_tells_nothing_yet() {
        let then = tasks(&[(0, 0), (1, 0), (2, 0)]);
        let now = tasks(&[(0, 500), (1, 500), (2, 500)]);
        let before = sample(0, &[(0, 100), (1, 100)], &[], &[(0, 100)], &then);
        let after = sample(500, &[(0, 50), (1, 150), (2, 900)], &[], &[(0, 50)], &now);
        assert_eq!(asked(&before, &after, &now), [(task_id(2), 100 * MB)]);
        assert_eq!(carried(&before, &after), []);
    }
}
