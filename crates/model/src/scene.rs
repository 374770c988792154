//! Small machines and loads, put together for tests and worked examples: behind the feature
//! `scene`, which only tests turn on.
//!
//! ```
//! # use numaherd_model::scene::Scene;
//! let mut scene = Scene::even(2, 4);
//! scene.task(1, 5, 1000); // thread 1, on CPU 5 of node 1, always busy
//! scene.region(0, &[(1, 512)], &[(0, 512)]); // its memory is on node 0
//! let snapshot = scene.snapshot();
//! assert_eq!(snapshot.tasks[0].faults[0].private, 512);
//! ```

use crate::{
    Bytes, Costs, CpuId, CpuSet, EvidenceGrade, Nanos, Node, NodeFaults, NodeId, NodeState, Pages,
    ProcessId, Region, RegionId, RegionUse, Sharing, Snapshot, Task, TaskId, TaskState, Topology,
};

/// A snapshot being put together.
pub struct Scene {
    snapshot: Snapshot,
}

/// The task of this tid: born at the start time of the same number.
#[must_use]
pub fn task_id(tid: u32) -> TaskId {
    TaskId { tid, start: u64::from(tid) }
}

/// The process that all tasks and regions of a scene belong to.
pub const PROCESS: ProcessId = ProcessId { tgid: 1, start: 1 };

impl Scene {
    /// Two nodes of four CPUs.
    #[must_use]
    pub fn two_by_four() -> Scene {
        Scene::even(2, 4)
    }

    /// So many nodes of so many CPUs each, 2 GiB a node and half of it free, all at SLIT 21
    /// from each other.
    #[must_use]
    pub fn even(nodes: u32, cpus: u32) -> Scene {
        let node = |id: u32| Node {
            id: NodeId(id),
            cpus: (cpus * id..cpus * (id + 1)).map(CpuId).collect(),
            memory: Bytes(2 << 30),
            free: Bytes(1 << 30),
        };
        let state = |id: u32| NodeState {
            id: NodeId(id),
            free: Pages(1 << 18),
            high_watermark: Pages(4096),
            others_permille: 0,
        };
        let distance = |from: u32, to: u32| if from == to { 10 } else { 21 };
        Scene {
            snapshot: Snapshot {
                time: Nanos(20_000_000_000),
                page_size: Bytes(4096),
                topology: Topology {
                    nodes: (0..nodes).map(node).collect(),
                    distances: (0..nodes)
                        .map(|from| (0..nodes).map(|to| distance(from, to)).collect())
                        .collect(),
                    ..Topology::default()
                },
                isolated: CpuSet::new(),
                nodes: (0..nodes).map(state).collect(),
                tasks: Vec::new(),
                common: Vec::new(),
                units: Vec::new(),
                mems_allowed: Vec::new(),
                traffic: Default::default(),
                regions: Vec::new(),
                sharing: vec![Sharing { process: PROCESS, samples: 100, switches: 0 }],
                resident: Vec::new(),
                grade: EvidenceGrade::HintingFaults,
                stirred: false,
                fewer: Vec::new(),
                kernel_tiering: false,
                costs: Costs::default(),
            },
        }
    }

    /// The same machine with cores of so many CPUs each.
    pub fn cores_of(&mut self, threads: u32) {
        let topology = std::mem::take(&mut self.snapshot.topology);
        self.snapshot.topology = topology.with_cores_of(threads);
    }

    /// A task, ten seconds old, that last ran on `cpu`.
    pub fn task(&mut self, tid: u32, cpu: u32, busy_permille: u32) {
        let cpus = self.snapshot.topology.cpus();
        self.snapshot.tasks.push(Task {
            id: task_id(tid),
            process: PROCESS,
            cpus_allowed: cpus.clone(),
            cpus_owner: cpus,
            fixed: false,
            home: None,
            last_cpu: CpuId(cpu),
            cpu_time: Nanos(10_000_000_000),
            busy_permille,
            waiting_permille: 0,
            usual_permille: None,
            age: Nanos(10_000_000_000),
            state: TaskState::Runnable,
            faults: Vec::new(),
            remote_faults: 0,
        });
    }

    /// A region of 2 MiB with its users' faults and its pages per node.
    pub fn region(&mut self, index: u64, users: &[(u32, u64)], pages: &[(u32, u64)]) {
        let users = users.iter().filter(|(_, faults)| *faults > 0);
        self.snapshot.regions.push(Region {
            id: RegionId { process: PROCESS, start: (1 << 30) + (index << 21) },
            len: Bytes(2 << 20),
            pages: pages.iter().map(|&(node, pages)| (NodeId(node), Pages(pages))).collect(),
            users: users.map(|&(tid, faults)| RegionUse { task: task_id(tid), faults }).collect(),
            age: Nanos(0),
            rests: false,
            pairs: 0,
            switches: 0,
            stays: false,
        });
    }

    /// How often pages of the process changed hands.
    pub fn shared(&mut self, samples: u64, switches: u64) {
        self.snapshot.sharing = vec![Sharing { process: PROCESS, samples, switches }];
    }

    /// As if we had placed the task.
    pub fn at_home(&mut self, tid: u32, node: u32) {
        for task in self.snapshot.tasks.iter_mut().filter(|task| task.id.tid == tid) {
            task.home = Some(NodeId(node));
            task.cpus_allowed = self.snapshot.topology.nodes[node as usize].cpus.clone();
        }
    }

    /// Several always busy tasks, tid 1 and up, the first on CPU 0 and so on round.
    pub fn busy(&mut self, tasks: u32) {
        let cpus = self.snapshot.topology.cpus().len() as u32;
        (1..=tasks).for_each(|tid| self.task(tid, (tid - 1) % cpus, 1000));
    }

    /// The snapshot, with each task's faults summed up from the regions.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.snapshot.clone();
        for task in &mut snapshot.tasks {
            for region in &snapshot.regions {
                let faults =
                    region.users.iter().filter(|user| user.task == task.id).map(|u| u.faults).sum();
                let node = region.pages.first().map_or(NodeId(0), |(node, _)| *node);
                task.faults.push(NodeFaults { node, private: faults, shared: 0 });
            }
        }
        snapshot
    }

    /// Whatever else a test wants to change.
    pub fn edit(&mut self) -> &mut Snapshot {
        &mut self.snapshot
    }
}
