//! What a kernel's own NUMA balancing decides, fault by fault and tick by tick.
//!
//! [`crate::Placement`] looks at a whole machine from outside and plans. A kernel's balancing sits inside:
//! it arms pages, sees each hinting fault, moves that page or not, and moves the task that runs
//! now. Only a simulated machine lets it act; the live kernel has its own.

use crate::{Bytes, Cause, CpuId, Nanos, NodeId, Pages, ProcessId, TaskId, Topology};

/// A hinting fault as the kernel sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// When.
    pub time: Nanos,
    /// Who.
    pub task: TaskId,
    /// Of which process.
    pub process: ProcessId,
    /// Where it runs.
    pub cpu: CpuId,
    /// That CPU's node.
    pub node: NodeId,
    /// Where the memory is.
    pub home: NodeId,
    /// Base pages that this fault stands for.
    pub pages: Pages,
    /// Who touched it before, on which CPU, where the kernel knows it.
    pub last: Option<(TaskId, CpuId)>,
    /// Which page: a number that stays with the memory.
    pub page: u64,
}

/// The running kernel's view of its CPUs, tasks and memory.
pub trait View {
    /// Nodes, CPUs, distances.
    fn topology(&self) -> &Topology;
    /// The time.
    fn now(&self) -> Nanos;
    /// A CPU's node.
    fn node_of(&self, cpu: CpuId) -> NodeId;
    /// Who runs on a CPU.
    fn running(&self, cpu: CpuId) -> Option<TaskId>;
    /// Runnable tasks of a CPU, the running one included.
    fn load(&self, cpu: CpuId) -> u32;
    /// Runnable tasks of a CPU, the running one first.
    fn runnable(&self, cpu: CpuId) -> Vec<TaskId>;
    /// The CPU a task runs on or waits for; `None` if it sleeps or is gone.
    fn cpu_of(&self, task: TaskId) -> Option<CpuId>;
    /// A task's process.
    fn process_of(&self, task: TaskId) -> ProcessId;
    /// CPU time a task has used.
    fn cpu_time(&self, task: TaskId) -> Nanos;
    /// Whether its affinity lets a task run on a CPU.
    fn allowed(&self, task: TaskId, cpu: CpuId) -> bool;
    /// Memory of a process.
    fn resident(&self, process: ProcessId) -> Bytes;
    /// Memory of a process that is on a node.
    fn resident_on(&self, process: ProcessId, node: NodeId) -> Bytes;
    /// Free memory of a node.
    fn free(&self, node: NodeId) -> Bytes;
    /// Between two ticks of a CPU.
    fn tick(&self) -> Nanos;
}

/// What is done with the running task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskMove {
    /// It goes to this CPU.
    To(CpuId),
    /// It changes places with this task.
    Swap(TaskId),
}

/// For whom load balancing asks whether it may take a task to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// First it looks for a task that belongs there.
    Wanted,
    /// A CPU idles.
    Idle,
    /// A CPU has just run out of tasks.
    NewIdle,
    /// Queues are evened.
    Busy,
    /// So they are, and the task is running.
    Running,
}

/// How often a kernel looks for faults, and at how much at a time: its knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanPeriods {
    /// Before a task's memory is looked at first.
    pub delay: Nanos,
    /// The shortest period, in CPU time of a task.
    pub min: Nanos,
    /// The longest.
    pub max: Nanos,
    /// Memory that one scan arms.
    pub size: Bytes,
}

/// How a kernel handles the pages it arms and moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHandling {
    /// One fault handles all 4 KiB pages of the same 2 MiB.
    pub one_fault_for_2m: bool,
    /// A huge page moves whole; otherwise it is split, moved in 4 KiB pages, and rebuilt later.
    pub moves_huge_whole: bool,
    /// What it knows of a page stands beside what the kernel keeps for each: a fault looks there too.
    pub keeps_beside: bool,
}

/// A kernel's automatic NUMA balancing. Called for every task that runs; tasks are numbered from
/// 1 without gaps.
pub trait Balancing {
    /// Its name among the placements.
    fn name(&self) -> &'static str;

    /// How it handles pages.
    fn pages(&self) -> PageHandling;

    /// Whether its work at ticks is smeared over CPUs: done by one after the other, in their order.
    fn ticks_in_order(&self) -> bool {
        false
    }

    /// Its knobs are set, if it has any; `None`: it is switched off, and nothing is armed any more.
    fn set_scan(&mut self, _periods: Option<ScanPeriods>) {}

    /// A tick of a running task: the bytes of its process to arm now, if a scan is due.
    fn scan(&mut self, task: TaskId, view: &dyn View) -> Option<Bytes>;

    /// The task's process was scanned once from end to end.
    fn pass_ended(&mut self, _process: ProcessId, _view: &dyn View) {}

    /// The task's process was to be scanned, and none of its memory ever takes hinting faults: nothing was
    /// armed, and no pass ended.
    fn nothing_to_scan(&mut self, _process: ProcessId, _view: &dyn View) {}

    /// A task has come from a node to a CPU of another, whoever sent it there.
    fn moved(&mut self, _task: TaskId, _from: NodeId, _view: &dyn View) {}

    /// A task is no more.
    fn task_ended(&mut self, _task: TaskId) {}

    /// The process is no more.
    fn process_ended(&mut self, _process: ProcessId, _view: &dyn View) {}

    /// Where the page of a fault goes, and why; nothing if it stays.
    fn on_fault(&mut self, touch: &Touch, view: &dyn View) -> Option<(NodeId, Cause)>;

    /// The page of the last fault was to go to the node that touched it and could not: that is full, or moves are refused.
    fn stayed(&mut self, _touch: &Touch, _view: &dyn View) {}

    /// A tick of a running task: where it should go instead, and why.
    fn place(&mut self, _task: TaskId, _view: &dyn View) -> Option<(TaskMove, Cause)> {
        None
    }

    /// Whether load balancing may take a task to another node.
    fn may_move(
        &self,
        _task: TaskId,
        _from: NodeId,
        _to: NodeId,
        _pull: Pull,
        _view: &dyn View,
    ) -> bool {
        true
    }
}
