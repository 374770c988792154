//! What a placement answers: ordered actions, each with its reason as data.
//!
//! A plan leaves whoever applies it no choices. Text, logs and tests all render the same
//! [`Reason`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, CpuSet, NodeId, Pages, ProcessId, RegionId, TaskId, counted};

/// Why an action is planned. Shares are per mille.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Reason {
    /// The task's memory is, or will be, on that node: it faulted there for this share.
    MemoryThere {
        /// Share of the task's faults on regions whose home is that node.
        permille: u32,
    },
    /// The task shares this much of its memory with tasks on that node.
    BuddiesThere {
        /// Share of the task's faults on regions that tasks there use too.
        permille: u32,
    },
    /// No evidence pulls it elsewhere and that node has a free CPU.
    Balance,
    /// The memory of the node it was on carries no more.
    Bandwidth,
    /// It is where it should be; pinned so that it stays.
    Hold {
        /// Share of its faults that are local under the plan.
        permille: u32,
    },
    /// This share of the region's uses comes from tasks on the destination.
    UsersThere {
        /// Share of the uses.
        permille: u32,
    },
    /// Its users run on several nodes: it lies on those, in equal parts.
    UsersOnAll {
        /// So many.
        nodes: u32,
    },
    /// Its team does not fit its memory's node, and this one's turn to be there, or away, has come.
    Turn {
        /// Whether it comes to its memory.
        comes: bool,
    },
    /// It waits for a CPU, and there is one on another node: its owner's CPUs are given back.
    Squeezed {
        /// Share of the time that it was runnable without running.
        permille: u32,
    },
    /// It is not ours to place any more: its owner's CPUs are given back.
    NotOurs,
    /// It hardly runs: its owner's CPUs are given back.
    Idle {
        /// Share of one CPU it used of late.
        permille: u32,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |permille: &u32| format!("{}.{} %", permille / 10, permille % 10);
        match self {
            Reason::MemoryThere { permille } => {
                write!(f, "{} of what it uses lies there", percent(permille))
            }
            Reason::BuddiesThere { permille } => {
                write!(
                    f,
                    "{} of what it uses lies there and is shared with tasks there",
                    percent(permille)
                )
            }
            Reason::Balance => write!(f, "nothing pulls it elsewhere and a CPU is free there"),
            Reason::Bandwidth => {
                write!(f, "memory where it was carries no more, and there it does")
            }
            Reason::Hold { permille: 0 } => {
                write!(
                    f,
                    "held where it is: there is no better place, though its memory is not there"
                )
            }
            Reason::Hold { permille } if *permille < 500 => {
                let local = percent(permille);
                write!(f, "held where it is: there is no better place, with {local} local")
            }
            Reason::Hold { permille } => {
                let local = percent(permille);
                write!(f, "held where it is: {local} of what it uses lies there")
            }
            Reason::UsersThere { permille } => {
                write!(f, "{} of its uses come from tasks there", percent(permille))
            }
            Reason::Turn { comes: true } => {
                write!(f, "its turn to be with its memory, which has no room for all who share it")
            }
            Reason::Turn { comes: false } => {
                write!(f, "its turn to be away: its memory has no room for all who share it")
            }
            Reason::UsersOnAll { nodes } => {
                write!(f, "{nodes} nodes use it alike: each gets its part")
            }
            Reason::Squeezed { permille } => {
                let waits = percent(permille);
                write!(f, "it waits {waits} of the time, and a CPU is free on another node")
            }
            Reason::NotOurs => {
                write!(f, "it is not ours to place: of the kernel, in real time, or under a quota")
            }
            Reason::Idle { permille } => write!(f, "it only uses {} of a CPU", percent(permille)),
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// Allow the task exactly these CPUs, all of one node.
    PlaceTask {
        /// Who.
        task: TaskId,
        /// Where.
        node: NodeId,
        /// CPUs of that node its owner allows.
        cpus: CpuSet,
        /// Why.
        #[serde(flatten)]
        reason: Reason,
    },
    /// Give the task back the CPUs its owner allowed.
    ReleaseTask {
        /// Who.
        task: TaskId,
        /// What its owner allowed.
        cpus: CpuSet,
        /// Why.
        #[serde(flatten)]
        reason: Reason,
    },
    /// Move what lies elsewhere of a region to a node.
    MovePages {
        /// Region.
        region: RegionId,
        /// Its length.
        len: Bytes,
        /// Destination.
        to: NodeId,
        /// Pages expected to move.
        pages: Pages,
        /// Why.
        #[serde(flatten)]
        reason: Reason,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::PlaceTask { task, node, cpus, reason } => {
                write!(f, "place task {task} on node {node} (cpus {cpus}): {reason}")
            }
            Action::ReleaseTask { task, cpus, reason } => {
                write!(f, "release task {task} to cpus {cpus}: {reason}")
            }
            Action::MovePages { region, len, to, pages, reason } => {
                let pages = counted(pages, "page");
                write!(f, "move {pages} of {region} (+{len} bytes) to node {to}: {reason}")
            }
        }
    }
}

/// Ordered actions and what the placement thinks of the state it saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// Convergence strength: per mille of the evidence that is local under today's placement.
    pub strength_permille: u32,
    /// Per mille of the evidence that is remote and will not be with memory where the plan has it; memory that
    /// several nodes use does not count.
    pub misplaced_permille: u32,
    /// Nothing is left to find out: tasks have long been where they should be, and so has memory that belongs
    /// to one node. What several nodes use may still be shared out.
    pub calm: bool,
    /// Every task with evidence is where it should be and no page needs to move.
    pub converged: bool,
    /// Why nothing is decided yet, if so.
    pub waiting: Option<Waiting>,
}

/// What a placement waits for before it decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "kebab-case")]
pub enum Waiting {
    /// Faults of more of the busy tasks.
    Evidence {
        /// Busy tasks with evidence.
        known: u64,
        /// Busy tasks.
        busy: u64,
    },
    /// More touches of the same pages, to tell shared memory from private.
    Sharing {
        /// Of this process.
        process: ProcessId,
        /// Pairs of touches seen.
        pairs: u64,
    },
    /// Another look: how busy tasks were over the time since the last one is not what they do now.
    Look,
}
