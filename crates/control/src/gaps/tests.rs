//! Whose pages are looked up, and how often.

use super::*;
use numaherd_model::scene::{PROCESS, Scene};
use numaherd_model::{HintingFault, NodeFaults, WorldError};

/// A machine that counts how often it is asked.
#[derive(Default)]
struct Asked(u32);

impl Observe for Asked {
    fn observe(&mut self, _: &mut Vec<HintingFault>) -> Result<Snapshot, WorldError> {
        Err(WorldError::NoTasks)
    }

    fn pages_lie(&mut self, process: ProcessId) -> Vec<(NodeId, Pages)> {
        assert_eq!(process, PROCESS);
        self.0 += 1;
        vec![(NodeId(1), Pages(u64::from(self.0)))]
    }
}

/// Three busy tasks of which no fault has told, two seconds old.
fn three() -> Snapshot {
    let mut scene = Scene::two_by_four();
    scene.busy(3);
    let mut snapshot = scene.edit().clone();
    snapshot.tasks.iter_mut().for_each(|task| task.age = Nanos(2_000_000_000));
    snapshot
}

/// What a look at each of these finds, one after the other.
fn found(scenes: &[Snapshot]) -> Vec<Option<u64>> {
    let (mut gaps, mut machine) = (Gaps::default(), Asked::default());
    let look = |scene: &Snapshot| {
        let mut snapshot = scene.clone();
        gaps.fill(&mut machine, &mut snapshot);
        snapshot.resident.first().map(|resident| resident.nodes[0].1.0)
    };
    scenes.iter().map(look).collect()
}

fn later(milliseconds: u64, change: impl Fn(&mut Snapshot)) -> Snapshot {
    let mut snapshot = three();
    snapshot.time.0 += milliseconds * 1_000_000;
    change(&mut snapshot);
    snapshot
}

#[test]
fn it_is_looked_again_when_twice_as_old_and_when_tasks_come_or_go() {
    let same = |_: &mut Snapshot| {};
    let fewer = |snapshot: &mut Snapshot| _ = snapshot.tasks.pop();
    let scenes = [later(0, same), later(1900, same), later(2000, same), later(2100, fewer)];
    assert_eq!(found(&scenes), [Some(1), Some(1), Some(2), Some(3)]);
    // Threads that come and go all the time: ten times a second at the most.
    let scenes = [later(0, same), later(99, fewer), later(100, fewer), later(150, same)];
    assert_eq!(found(&scenes), [Some(1), Some(1), Some(2), Some(2)]);
    // Who sleeps for a moment is not looked up anew after it.
    let asleep = |s: &mut Snapshot| s.tasks.iter_mut().for_each(|task| task.busy_permille = 0);
    let scenes = [later(0, same), later(500, asleep), later(600, same)];
    assert_eq!(found(&scenes), [Some(1), None, Some(1)]);
}

#[test]
fn who_is_placed_or_shown_or_left_alone_or_sleeps_is_not_looked_at() {
    let seen = vec![NodeFaults { node: NodeId(0), private: 48, shared: 0 }];
    let hardly = vec![NodeFaults { node: NodeId(0), private: 47, shared: 0 }];
    let scenes = [
        later(0, |s| s.tasks[2].home = Some(NodeId(0))),
        later(0, |s| s.tasks.iter_mut().for_each(|task| task.faults.clone_from(&seen))),
        later(0, |s| s.tasks[0].fixed = true),
        later(0, |s| s.tasks.iter_mut().for_each(|task| task.busy_permille = 249)),
        later(0, |s| s.grade = EvidenceGrade::ResidentPages),
        // Two of three are shown.
        later(0, |s| s.tasks[..2].iter_mut().for_each(|task| task.faults.clone_from(&seen))),
        later(200, |s| s.tasks.iter_mut().for_each(|task| task.faults.clone_from(&hardly))),
    ];
    assert_eq!(found(&scenes), [None, None, None, None, None, Some(1), Some(1)]);
}

#[test]
fn who_shares_memory_over_several_nodes_is_looked_at_though_it_is_placed_and_shown() {
    let shares = |switches, cpu| {
        later(0, |s| {
            let process = PROCESS;
            s.sharing = vec![Sharing { process, samples: 100, switches }];
            s.tasks.iter_mut().for_each(|task| {
                task.home = s.topology.node_of_cpu(task.last_cpu);
                task.faults = vec![NodeFaults { node: NodeId(0), private: 0, shared: 48 }];
            });
            s.tasks[2].last_cpu.0 = cpu;
        })
    };
    let scenes = [shares(50, 2), shares(25, 4), shares(50, 4)];
    assert_eq!(found(&scenes), [None, None, Some(1)]);
}
