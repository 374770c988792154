//! For tests: a world of two nodes of two CPUs, one process.

use numaherd_model::scene::Scene;
use numaherd_model::{Bytes, CpuId, Nanos, NodeId, ProcessId, TaskId, Topology, Touch, View};

/// One process; its tasks have run as long as the clock shows.
pub(super) struct World {
    pub(super) topology: Topology,
    pub(super) now: Nanos,
    /// Who runs on each CPU.
    pub(super) cpus: [Option<u32>; 4],
    /// Who waits for it.
    pub(super) waiting: [Vec<u32>; 4],
}

pub(super) fn id(tid: u32) -> TaskId {
    TaskId { tid, start: 1 }
}

impl World {
    pub(super) fn new(cpus: [Option<u32>; 4]) -> World {
        World {
            topology: Scene::even(2, 2).snapshot().topology,
            now: Nanos(0),
            cpus,
            waiting: Default::default(),
        }
    }

    /// A touch of a page of node `home` by the task on a CPU, after another task.
    pub(super) fn touch(&self, tid: u32, home: u32, last: Option<(u32, u32)>) -> Touch {
        let cpu = self.cpu_of(id(tid)).unwrap();
        Touch {
            time: self.now,
            task: id(tid),
            process: self.process_of(id(tid)),
            cpu,
            node: self.node_of(cpu),
            home: NodeId(home),
            pages: numaherd_model::Pages(512),
            last: last.map(|(tid, cpu)| (id(tid), CpuId(cpu))),
            page: 0,
        }
    }
}

impl View for World {
    fn topology(&self) -> &Topology {
        &self.topology
    }
    fn now(&self) -> Nanos {
        self.now
    }
    fn node_of(&self, cpu: CpuId) -> NodeId {
        self.topology.node_of_cpu(cpu).unwrap()
    }
    fn running(&self, cpu: CpuId) -> Option<TaskId> {
        self.cpus[cpu.0 as usize].map(id)
    }
    fn load(&self, cpu: CpuId) -> u32 {
        self.runnable(cpu).len() as u32
    }
    fn runnable(&self, cpu: CpuId) -> Vec<TaskId> {
        self.running(cpu)
            .into_iter()
            .chain(self.waiting[cpu.0 as usize].iter().map(|&tid| id(tid)))
            .collect()
    }
    fn cpu_of(&self, task: TaskId) -> Option<CpuId> {
        let at = (0..4).position(|at| self.runnable(CpuId(at)).contains(&task))?;
        Some(CpuId(at as u32))
    }
    fn process_of(&self, _: TaskId) -> ProcessId {
        ProcessId { tgid: 1, start: 1 }
    }
    fn cpu_time(&self, _: TaskId) -> Nanos {
        self.now
    }
    fn allowed(&self, _: TaskId, _: CpuId) -> bool {
        true
    }
    fn resident(&self, _: ProcessId) -> Bytes {
        Bytes(1 << 30)
    }
    fn resident_on(&self, _: ProcessId, _: NodeId) -> Bytes {
        Bytes(1 << 29)
    }
    fn free(&self, _: NodeId) -> Bytes {
        Bytes(1 << 30)
    }
    fn tick(&self) -> Nanos {
        Nanos(20_000_000)
    }
}
