//! How much of each node's CPUs tasks take that are not in our care, so that nobody is placed on
//! CPUs that others keep busy.
//!
//! What is busy and not ours, over about a second. What we take ourselves is ours too: next to nothing, once all
//! has converged. Tasks are read one after the other, while those that run go on: what is busy is read before
//! and after, and taken halfway, so that eight busy CPUs do not show as a ninth when that took longer. A task that changes nodes in between would
//! count on the wrong one; so a node is never given more than there is on the whole machine, and
//! what counts is the least of the last [`WINDOWS`]: a burst is nothing to make room for, and
//! capacity that comes and goes would move tasks to and fro.

use std::collections::{BTreeMap, VecDeque};

use numaherd_model::{CpuId, CpuSet, Nanos, NodeState, Task, TaskId, Topology};

/// Seconds over which a load must last to count. Guessed.
const WINDOWS: usize = 3;

/// See the module.
#[derive(Debug, Default)]
pub struct Others {
    before: Option<Sample>,
    /// The last look found nobody in our care.
    deserted: bool,
    /// The last windows, per mille of one CPU for each node, newest last.
    windows: VecDeque<Vec<u32>>,
}

#[derive(Debug)]
struct Sample {
    at: Nanos,
    busy: Busy,
    ours: BTreeMap<TaskId, Nanos>,
    own: Nanos,
}

/// Busy time of each CPU.
pub type Busy = BTreeMap<CpuId, Nanos>;

impl Others {
    /// Whether a window has passed since the last sample, and there is anybody to place.
    pub fn is_due(&self, now: Nanos, window: Nanos) -> bool {
        !self.deserted && self.before.as_ref().is_none_or(|before| now.since(before.at) >= window)
    }

    /// Whether a look found nobody in our care. Until one finds somebody, samples are of no use; and a look that is to
    /// find out must not read what is busy first, each time.
    pub fn found_nobody(&mut self, nobody: bool) {
        self.deserted = nobody;
    }

    /// A new sample: busy time of each CPU before and after the tasks in our care were read, and the CPU
    /// that we are on, with the time that we took ourselves. CPUs set apart are nobody's to be counted.
    pub fn sample(
        &mut self,
        now: Nanos,
        (before, after): (Busy, Busy),
        tasks: &[Task],
        (cpu, own): (Option<CpuId>, Nanos),
        (topology, isolated): (&Topology, &CpuSet),
    ) {
        let ours = tasks.iter().map(|task| (task.id, task.cpu_time)).collect();
        let halfway = |(cpu, busy): (CpuId, Nanos)| {
            let later = after.get(&cpu).copied().unwrap_or(busy);
            (cpu, Nanos(busy.0 + later.since(busy).0 / 2))
        };
        let busy = before.into_iter().map(halfway).collect();
        let sample = Sample { at: now, busy, ours, own };
        if let Some(before) = &self.before {
            self.windows.push_back(window(before, &sample, tasks, cpu, (topology, isolated)));
            if self.windows.len() > WINDOWS {
                self.windows.pop_front();
            }
        }
        self.before = Some(sample);
    }

    /// Fills in what others take of each node. Nothing is known before the second window.
    pub fn fill(&self, nodes: &mut [NodeState], topology: &Topology) {
        for state in nodes {
            let index = topology.nodes.iter().position(|node| node.id == state.id);
            let of = |window: &Vec<u32>| index.and_then(|i| window.get(i).copied()).unwrap_or(0);
            let least = self.windows.iter().map(of).min().unwrap_or(0);
            state.others_permille = if self.windows.len() < 2 { 0 } else { least };
        }
    }
}

/// Per mille of one CPU that others took of each node between two samples.
fn window(
    before: &Sample,
    now: &Sample,
    tasks: &[Task],
    own_cpu: Option<CpuId>,
    (topology, isolated): (&Topology, &CpuSet),
) -> Vec<u32> {
    let elapsed = now.at.since(before.at).0.max(1);
    let took = |task: &Task| {
        let then = before.ours.get(&task.id).copied();
        task.cpu_time.since(then.unwrap_or(Nanos(task.cpu_time.0.saturating_sub(elapsed)))).0
    };
    let open: Vec<CpuSet> =
        topology.nodes.iter().map(|node| node.cpus.difference(isolated)).collect();
    let of = |cpu: CpuId| Some(now.busy.get(&cpu)?.since(*before.busy.get(&cpu)?).0);
    let busy: Vec<u64> = open.iter().map(|cpus| cpus.iter().filter_map(of).sum()).collect();
    let mut ours = vec![0; open.len()];
    let of_tasks = tasks.iter().map(|task| (task.last_cpu, took(task)));
    let of_us = own_cpu.map(|cpu| (cpu, now.own.since(before.own).0));
    for (cpu, time) in of_tasks.chain(of_us) {
        if let Some(node) = open.iter().position(|cpus| cpus.contains(cpu)) {
            ours[node] += time;
        }
    }
    let all = busy.iter().sum::<u64>().saturating_sub(ours.iter().sum());
    let others = busy.iter().zip(&ours).map(|(busy, ours)| busy.saturating_sub(*ours).min(all));
    others.map(|time| u32::try_from(time.saturating_mul(1000) / elapsed).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::Snapshot;
    use numaherd_model::scene::Scene;

    const SECOND: u64 = 1_000_000_000;

    /// With no CPU set apart.
    fn none_apart(snapshot: &Snapshot) -> (&Topology, &CpuSet) {
        (&snapshot.topology, &snapshot.isolated)
    }

    #[test]
    fn what_polls_on_cpus_set_apart_is_nothing_to_make_room_for_on_the_others() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.task(2, 3, 1000);
        scene.edit().isolated = "2-3".parse().unwrap();
        let mut snapshot = scene.snapshot();
        let mut others = Others::default();
        for second in 0..4 {
            // A stranger polls on CPU 2, task 2 of ours on CPU 3; another stranger is on CPU 1 by half.
            snapshot.tasks.iter_mut().for_each(|task| task.cpu_time = Nanos(second * SECOND));
            let busy = [(0, 2), (1, 1), (2, 2), (3, 2)];
            let busy: Busy =
                busy.map(|(cpu, halves)| (CpuId(cpu), Nanos(second * halves * SECOND / 2))).into();
            let (now, busy) = (Nanos(second * SECOND), (busy.clone(), busy));
            let machine = (&snapshot.topology, &snapshot.isolated);
            others.sample(now, busy, &snapshot.tasks, (None, Nanos(0)), machine);
        }
        let topology = snapshot.topology.clone();
        others.fill(&mut snapshot.nodes, &topology);
        assert_eq!(snapshot.nodes[0].others_permille, 500);
    }

    /// Two nodes of four CPUs; a task of ours on CPU 0 that is always busy, and strangers that
    /// take `share` per mille of CPU 1, from `moved` on of CPU 5.
    fn after(seconds: u64, share: u64, moved: u64) -> Vec<u32> {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        let mut others = Others::default();
        let mut snapshot = scene.snapshot();
        for second in 0..=seconds {
            let now = Nanos(second * SECOND);
            snapshot.tasks[0].cpu_time = now;
            let (left, right) = (second.min(moved), second.saturating_sub(moved));
            let busy = [(0, second * 1000), (1, left * share), (5, right * share)];
            let busy = busy.map(|(cpu, ms)| (CpuId(cpu), Nanos(ms * 1_000_000)));
            assert!(others.is_due(now, Nanos(SECOND)));
            let busy = BTreeMap::from(busy);
            let nothing = (None, Nanos(0));
            others.sample(
                now,
                (busy.clone(), busy),
                &snapshot.tasks,
                nothing,
                none_apart(&snapshot),
            );
            assert!(!others.is_due(now, Nanos(SECOND)));
        }
        let topology = snapshot.topology.clone();
        others.fill(&mut snapshot.nodes, &topology);
        snapshot.nodes.iter().map(|node| node.others_permille).collect()
    }

    #[test]
    fn what_is_busy_and_not_ours_is_the_others() {
        assert_eq!(after(3, 700, 99), [700, 0]);
        assert_eq!(after(3, 0, 99), [0, 0]);
    }

    #[test]
    fn one_window_is_not_enough_and_what_ended_does_not_count() {
        assert_eq!(after(1, 900, 99), [0, 0]);
        assert_eq!(after(4, 900, 3), [0, 0]);
        assert_eq!(after(6, 900, 3), [0, 900]);
    }

    #[test]
    fn a_task_of_ours_that_changed_nodes_is_nobody_else() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        let mut snapshot = scene.snapshot();
        let mut others = Others::default();
        for second in 0..4 {
            // It ran on CPU 4 and is seen on CPU 0.
            snapshot.tasks[0].cpu_time = Nanos(second * SECOND);
            let busy = BTreeMap::from([(CpuId(4), Nanos(second * SECOND))]);
            let (now, busy) = (Nanos(second * SECOND), (busy.clone(), busy));
            others.sample(now, busy, &snapshot.tasks, (None, Nanos(0)), none_apart(&snapshot));
        }
        let topology = snapshot.topology.clone();
        others.fill(&mut snapshot.nodes, &topology);
        assert!(snapshot.nodes.iter().all(|node| node.others_permille == 0));
    }

    /// Eight tasks that keep all CPUs busy, and what is said of others where to read them takes half a second, then
    /// one, then three halves, half of the tasks on average being read in half of that. Of CPU 0 and its task we
    /// take a share.
    fn of_eight_tasks(own_permille: u64) -> Vec<u32> {
        let mut scene = Scene::two_by_four();
        (0..8).for_each(|cpu| scene.task(cpu + 1, cpu, 1000));
        let mut snapshot = scene.snapshot();
        let mut others = Others::default();
        for look in 0..4 {
            let [now, takes] = [look * 10 * SECOND, look * SECOND / 2];
            for (i, task) in snapshot.tasks.iter_mut().enumerate() {
                let ran = now + takes * (2 * i as u64 + 1) / 16;
                let own = if i == 0 { own_permille } else { 0 };
                task.cpu_time = Nanos(ran * (1000 - own) / 1000);
            }
            let busy = |at: u64| (0..8).map(|cpu| (CpuId(cpu), Nanos(at))).collect::<Busy>();
            let own = Nanos((now + takes / 2) * own_permille / 1000);
            let busy = (busy(now), busy(now + takes));
            let us = (Some(CpuId(0)), own);
            others.sample(Nanos(now), busy, &snapshot.tasks, us, none_apart(&snapshot));
        }
        let topology = snapshot.topology.clone();
        others.fill(&mut snapshot.nodes, &topology);
        snapshot.nodes.iter().map(|node| node.others_permille).collect()
    }

    #[test]
    fn how_long_tasks_took_to_read_is_nobody_else() {
        assert!(of_eight_tasks(0).iter().all(|&permille| permille < 60), "{:?}", of_eight_tasks(0));
    }

    #[test]
    fn what_we_take_ourselves_is_nothing_to_make_room_for() {
        assert!(
            of_eight_tasks(600).iter().all(|&permille| permille < 60),
            "{:?}",
            of_eight_tasks(600)
        );
    }
}
