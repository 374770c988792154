//! The workloads' names and defaults, and which file each one is.

use std::path::Path;
use std::time::Instant;

use crate::job::Job;
use crate::setting::{Params, Setting, Start};
use crate::tally::Measured;
use crate::{
    Layout, WorkloadError, forks, hugetlb, jbb, numa01, numa02, overcommit, parts, phases, shared,
    stream, uneven,
};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// See `numa01`; likewise below.
    Numa01,
    /// `numa01`, a slice for each thread.
    Numa01ThreadAlloc,
    /// `numa02`.
    Numa02,
    /// `numa02`, a thread for every second CPU.
    Numa02Smt,
    /// `overcommit`.
    Overcommit,
    /// `jbb`.
    JbbLike,
    /// `stream`.
    Stream,
    /// `phases`.
    Phases,
    /// `uneven`.
    Uneven,
    /// `forks`.
    Forks,
    /// `shared`.
    Shared,
    /// `hugetlb`.
    Hugetlb,
}

/// What a workload's throughput counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes written, or moved.
    Bytes,
    /// Transactions.
    Transactions,
    /// Processes.
    Processes,
}

/// A workload's parameters where none are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Threads of all processes.
    pub threads: usize,
    /// Memory of one process.
    pub size_bytes: usize,
    /// Rounds of each thread.
    pub loops: usize,
    /// Where everything is at the start.
    pub start: Start,
}

/// Name, other spellings, what it is.
type Naming = (Kind, &'static str, &'static [&'static str], &'static str);

const NAMES: [Naming; 12] = [
    (Kind::Numa01, "numa01", &[], "Two processes, each one's memory shared by all its threads"),
    (
        Kind::Numa01ThreadAlloc,
        "numa01_thread_alloc",
        &["numa01_THREAD_ALLOC", "numa01-thread-alloc"],
        "Two processes, a slice of memory for each thread",
    ),
    (Kind::Numa02, "numa02", &[], "One process, a slice of memory for each thread"),
    (
        Kind::Numa02Smt,
        "numa02_smt",
        &["numa02_SMT", "numa02-smt"],
        "numa02 with a thread for every second CPU",
    ),
    (Kind::Overcommit, "overcommit", &[], "numa01 and numa02 at once: two threads for each CPU"),
    (Kind::JbbLike, "jbb-like", &[], "Processes with a warehouse of maps for each thread"),
    (Kind::Stream, "stream", &[], "Bound by bandwidth: a = b + 3c on every second CPU"),
    (Kind::Phases, "phases", &[], "numa02 whose threads pass their slices on half-way"),
    (Kind::Uneven, "uneven", &[], "Groups of 3 and 5 threads, each with memory of its own"),
    (Kind::Forks, "forks", &[], "A storm of short processes"),
    (Kind::Shared, "shared", &[], "A slice for each thread and one region that all use"),
    (Kind::Hugetlb, "hugetlb", &[], "numa02 in reserved huge pages, which never fault"),
];

impl Kind {
    /// All of them, in the order in which they are told.
    #[must_use]
    pub fn all() -> [Kind; NAMES.len()] {
        NAMES.map(|(kind, ..)| kind)
    }

    fn naming(self) -> &'static Naming {
        let found = NAMES.iter().find(|(kind, ..)| *kind == self);
        found.unwrap_or(&NAMES[0])
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.naming().1
    }

    /// Other spellings of the name, as the field has it.
    #[must_use]
    pub fn aliases(self) -> &'static [&'static str] {
        self.naming().2
    }

    /// What it is, in a line.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.naming().3
    }

    /// The workload of this name or spelling.
    #[must_use]
    pub fn find(name: &str) -> Option<Kind> {
        Kind::all().into_iter().find(|kind| kind.name() == name || kind.aliases().contains(&name))
    }

    /// What its throughput counts.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Kind::JbbLike => Unit::Transactions,
            Kind::Forks => Unit::Processes,
            _ => Unit::Bytes,
        }
    }

    /// Sized for the emulated 2x4 and 4x2: with `bind` at least 15 seconds there, and about 4 if quick. Those
    /// with several processes start on one node, since first touch would place each by luck.
    #[must_use]
    pub fn defaults(self, cpus: usize, quick: bool) -> Defaults {
        let half = (cpus / 2).max(1);
        let (threads, mib, loops, start) = match self {
            Kind::Numa01 => (cpus, 64, 20, Start::OneNode),
            Kind::Numa01ThreadAlloc => (cpus, 64, 80, Start::OneNode),
            Kind::Numa02 => (cpus, 64, 160, Start::FirstTouch),
            Kind::Numa02Smt => (half, 64, 80, Start::FirstTouch),
            Kind::Overcommit => (2 * cpus, 32, 20, Start::OneNode),
            Kind::JbbLike => (cpus, 32, 75_000, Start::OneNode),
            Kind::Stream => (half, 96, 160, Start::FirstTouch),
            Kind::Phases => (cpus, 64, 160, Start::FirstTouch),
            Kind::Uneven => (cpus, 64, 32, Start::OneNode),
            Kind::Forks => (cpus, 1, 50, Start::FirstTouch),
            Kind::Shared => (cpus, 64, 120, Start::FirstTouch),
            Kind::Hugetlb => (cpus, 64, 160, Start::FirstTouch),
        };
        // 4x2, where runs of stores overlap, takes two thirds of what 2x4 takes. Of phases each takes 15 seconds.
        let times = match self {
            _ if quick => 1,
            Kind::Phases => 12,
            _ => 6,
        };
        Defaults { threads, size_bytes: mib << 20, loops: loops * times, start }
    }

    /// Processes that run it (those that `forks` starts apart).
    #[must_use]
    pub fn processes(self, params: &Params, layout: &Layout) -> usize {
        match self {
            Kind::Numa01 | Kind::Numa01ThreadAlloc => numa01::PARTS,
            Kind::Overcommit => overcommit::PARTS,
            Kind::JbbLike => params.processes.unwrap_or(layout.nodes.len()),
            _ => 1,
        }
    }

    /// Bytes that one thread goes through again and again; small ones stay in a cache.
    #[must_use]
    pub fn bytes_per_thread(self, params: &Params, layout: &Layout) -> usize {
        let of_process = params.threads.div_ceil(self.processes(params, layout)).max(1);
        match self {
            Kind::Numa01 | Kind::Forks => params.size_bytes,
            Kind::Overcommit => params.size_bytes / params.threads.div_ceil(2).max(1),
            Kind::Uneven => params.size_bytes / params.threads.div_ceil(4).max(1),
            Kind::Shared => params.size_bytes / 2,
            _ => params.size_bytes / of_process,
        }
    }

    /// Huge pages of 2 MiB that must be reserved on every node.
    #[must_use]
    pub fn reserved_pages_per_node(self, size_bytes: usize) -> usize {
        if self == Kind::Hugetlb { hugetlb::pages_per_node(size_bytes) } else { 0 }
    }

    /// Memory of all its processes together, those that `forks` starts at a time included, and what is reserved.
    #[must_use]
    pub fn memory_bytes(self, params: &Params, layout: &Layout) -> usize {
        let shares = match self {
            Kind::Forks => params.threads,
            // Reserved on every node.
            Kind::Hugetlb => layout.nodes.len(),
            _ => self.processes(params, layout),
        };
        params.size_bytes.saturating_mul(shares)
    }

    /// Runs it.
    ///
    /// # Errors
    /// Parameters that make no sense, memory or CPUs that cannot be had, a process that fails.
    pub fn run(self, setting: &Setting) -> Result<Measured, WorkloadError> {
        let Params { threads, size_bytes, tie, .. } = setting.params;
        setting.layout.check(setting.begins_tied().unwrap_or(tie))?;
        let processes = self.processes(&setting.params, &setting.layout);
        if threads < processes || size_bytes < 4096 {
            let name = self.name();
            let problem = format!(
                "{name} needs at least {processes} threads and a page of memory, not {threads} \
                 and {size_bytes} bytes"
            );
            return Err(WorkloadError::Params { problem });
        }
        if self == Kind::JbbLike {
            jbb::check(setting, processes)?;
        }
        let begin = Instant::now();
        match processes {
            1 => self.job(setting, 0)?.run_alone(setting, self.unit(), begin),
            _ => parts::run(setting, processes, self.unit()),
        }
    }

    /// Runs process `index` of it, started by [`Kind::run`] elsewhere.
    ///
    /// # Errors
    /// Memory or CPUs that cannot be had, or the other side is gone.
    pub fn part(self, setting: &Setting, index: usize) -> Result<(), WorkloadError> {
        match self {
            Kind::Forks => forks::short(setting, index),
            _ => parts::part(setting, &self.job(setting, index)?),
        }
    }

    fn job<'a>(self, setting: &'a Setting, index: usize) -> Result<Job<'a>, WorkloadError> {
        match self {
            Kind::Numa01 => numa01::shared(setting, index),
            Kind::Numa01ThreadAlloc => numa01::sliced(setting, index),
            Kind::Numa02 | Kind::Numa02Smt => numa02::job(setting),
            Kind::Overcommit => overcommit::job(setting, index),
            Kind::JbbLike => {
                let parts = self.processes(&setting.params, &setting.layout);
                jbb::job(setting, parts, index)
            }
            Kind::Stream => stream::job(setting),
            Kind::Phases => phases::job(setting),
            Kind::Uneven => uneven::job(setting),
            Kind::Forks => forks::job(setting),
            Kind::Shared => shared::job(setting),
            Kind::Hugetlb => hugetlb::job(setting, Path::new("/")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{no_process, params};

    #[test]
    fn every_name_and_spelling_finds_its_workload() {
        for kind in Kind::all() {
            assert_eq!(Kind::find(kind.name()), Some(kind));
            assert!(kind.aliases().iter().all(|alias| Kind::find(alias) == Some(kind)));
        }
        assert_eq!(Kind::find("numa01_THREAD_ALLOC"), Some(Kind::Numa01ThreadAlloc));
        assert_eq!(Kind::find("numa07"), None);
    }

    /// Copying is slow on the emulated machine, and its default nodes have 2 GiB.
    #[test]
    fn defaults_are_small_and_quick_is_a_sixth_or_a_twelfth() {
        for kind in Kind::all() {
            let (whole, quick) = (kind.defaults(8, false), kind.defaults(8, true));
            let params = params(whole.threads, whole.size_bytes, whole.loops);
            let processes = kind.processes(&params, &Layout::flat(0));
            assert!(processes * whole.size_bytes <= 128 << 20, "{}", kind.name());
            let times = if kind == Kind::Phases { 12 } else { 6 };
            assert_eq!(whole.loops, quick.loops * times);
        }
    }

    #[test]
    fn memory_is_that_of_all_processes() {
        let node = |id| crate::LayoutNode { id, cpus: vec![id] };
        let layout = Layout { nodes: (0..4).map(node).collect() };
        let of = |kind: Kind| kind.memory_bytes(&params(8, 1 << 20, 1), &layout) >> 20;
        let kinds = [
            Kind::Numa02,
            Kind::Numa01,
            Kind::Overcommit,
            Kind::JbbLike,
            Kind::Hugetlb,
            Kind::Forks,
        ];
        assert_eq!(kinds.map(of), [1, 2, 3, 4, 4, 8]);
        assert_eq!(Kind::Numa01.memory_bytes(&params(8, usize::MAX, 1), &layout), usize::MAX);
    }

    #[test]
    fn fewer_threads_than_processes_are_refused() {
        let setting =
            Setting { params: params(1, 4096, 1), layout: Layout::flat(0), command: &no_process };
        let error = Kind::Numa01.run(&setting).unwrap_err().to_string();
        assert!(error.contains("at least 2 threads") && error.contains("not 1"), "{error}");
    }
}
