//! What a workload is told: its parameters, the machine, and how to start a process of itself.

use std::ops::Range;
use std::process::Command;

use crate::span::Span;
use crate::{Layout, WorkloadError, sys};

/// How tasks and memory are tied to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tie {
    /// Not at all: threads are free, memory lies where [`Start`] puts it.
    #[default]
    Free,
    /// The natural static placement of the workload.
    Bind,
    /// Its mirror: every thread's memory on another node than the thread.
    Inverse,
    /// Threads are free, memory is interleaved over all nodes with CPUs.
    Interleave,
}

/// Where memory lies, and threads run, at the end of initialisation, when nothing is tied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The main thread touches everything first, wherever it runs.
    #[default]
    FirstTouch,
    /// All memory on the first node (autonuma-benchmark's NO_BIND_FORCE_SAME_NODE).
    OneNode,
    /// Every thread and its memory together, as [`Tie::Bind`] has it, and then set free.
    Placed,
    /// Every thread apart from its memory, as [`Tie::Inverse`] has it, and then set free.
    Inverse,
}

/// A workload's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Threads of all processes together.
    pub threads: usize,
    /// Processes, for the workloads that leave it open; `None` is one per node.
    pub processes: Option<usize>,
    /// Memory of one process, in bytes.
    pub size_bytes: usize,
    /// Rounds of each thread: passes over its memory, transactions, processes.
    pub loops: usize,
    /// Ends the run after this time instead, in nanoseconds.
    pub limit_ns: Option<u64>,
    /// Ask for huge pages, refuse them, or leave the system's default.
    pub huge_pages: Option<bool>,
    /// How things are tied to nodes.
    pub tie: Tie,
    /// Where things are when the timed part begins.
    pub start: Start,
}

/// A part of a workload's memory, and the nodes, as indices, where `bind` has it. On several
/// nodes it is interleaved.
pub(crate) struct Piece {
    pub part: Range<usize>,
    pub home: Range<usize>,
}

/// What a workload is told.
pub struct Setting<'a> {
    /// Its parameters.
    pub params: Params,
    /// The machine.
    pub layout: Layout,
    /// Starts a program that calls [`crate::Kind::part`] with this index.
    pub command: &'a (dyn Fn(usize) -> Command + Sync),
}

impl Setting<'_> {
    /// The static placement that memory and threads begin with, if any.
    pub(crate) fn begins_tied(&self) -> Option<Tie> {
        match (self.params.tie, self.params.start) {
            (tie @ (Tie::Bind | Tie::Inverse), _) => Some(tie),
            (Tie::Free, Start::Placed) => Some(Tie::Bind),
            (Tie::Free, Start::Inverse) => Some(Tie::Inverse),
            _ => None,
        }
    }

    /// The policy under which memory of this home is touched for the first time.
    pub(crate) fn policy(&self, home: Range<usize>) -> Option<(i32, Vec<u32>)> {
        let Params { tie, start, .. } = self.params;
        let over = |nodes: Vec<u32>| {
            let mode = if nodes.len() > 1 { sys::MPOL_INTERLEAVE } else { sys::MPOL_BIND };
            Some((mode, nodes))
        };
        match self.begins_tied() {
            Some(tied) => over(self.layout.memory_of(home, tied)),
            None if tie == Tie::Interleave => over(self.layout.node_ids()),
            None if start == Start::OneNode => over(self.layout.node_ids()[..1].to_vec()),
            None => None,
        }
    }

    /// Writes `value` to all words of `span`, each piece on the nodes where it is to lie, and
    /// sets the memory free again where nothing is tied.
    pub(crate) fn place(
        &self,
        span: &Span,
        pieces: impl IntoIterator<Item = Piece>,
        value: u64,
    ) -> Result<(), WorkloadError> {
        for Piece { part, home } in pieces {
            if let Some((mode, nodes)) = self.policy(home) {
                span.bind(part, mode, &nodes)?;
            }
        }
        let all = 0..span.len();
        span.write(all.clone(), value);
        if self.params.tie == Tie::Free && self.policy(0..1).is_some() {
            span.bind(all, sys::MPOL_DEFAULT, &[])?;
        }
        Ok(())
    }

    /// An error unless every thread has `least` bytes.
    pub(crate) fn check_bytes(&self, least: usize, what: &str) -> Result<(), WorkloadError> {
        let Params { threads, size_bytes, .. } = self.params;
        if threads > 0 && size_bytes / threads >= least {
            return Ok(());
        }
        let problem =
            format!("{size_bytes} bytes are less than {what} for each of {threads} threads");
        Err(WorkloadError::Params { problem })
    }
}
