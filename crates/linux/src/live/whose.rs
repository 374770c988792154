//! Whose evidence comes from where: who is left alone since faults say little of it, and whose accesses are sampled.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_model::{Bytes, CpuSet, Missed, Nanos, ProcessId, Task};

use super::{LiveMachine, quiet};
use crate::vm;

/// Who is younger is not sampled: it may be over before anything comes of it, and its mappings have to be read first.
/// Guessed.
const LEAST_SAMPLED: Nanos = Nanos(100_000_000);

/// Why a process is left alone of which samples say little.
const UNTOLD: &str = "without the kernel's faults nothing tells who uses most of its memory, which others may map, too, or \
                      which is a file's, has a policy, or would hold up its threads if policies were read";

impl LiveMachine {
    /// Processes whose tasks are left alone, and why.
    #[must_use]
    pub fn left_alone(&self) -> BTreeMap<ProcessId, String> {
        let hidden = self.aside.all_hidden();
        let alone = hidden.filter(|(_, hidden)| !self.accesses.make_up(hidden));
        let refused =
            self.accesses.refused().map(|why| format!("; accesses cannot be sampled: {why}"));
        let refused = refused.unwrap_or_default();
        let alone = alone.map(|(process, hidden)| (process, hidden.told() + &refused));
        let unreadable =
            self.policies.unreadable.iter().map(|(process, why)| (*process, why.clone()));
        let untold = self.processes.values().filter(|process| self.is_untold(**process));
        let untold = untold.map(|process| (*process, UNTOLD.to_string()));
        let theirs = self
            .processes
            .values()
            .filter_map(|process| Some((*process, self.theirs.get(&process.tgid)?.clone())));
        let alone = self.aside.grouped().chain(alone).chain(unreadable).chain(untold);
        alone.chain(theirs).collect()
    }

    /// From now on these processes are left to whoever looks after them, as told: two balancers would take each other's
    /// CPUs for the owner's, and the last to end would leave them so.
    pub fn leave_to_others(&mut self, theirs: BTreeMap<u32, String>) {
        self.theirs = theirs;
    }

    /// Whether samples say little of a process, and nothing else tells of it.
    pub(super) fn is_untold(&self, process: ProcessId) -> bool {
        self.faults.is_none() && self.accesses.tells_all() && self.accesses.is_untold(process)
    }

    /// The memory of a process that samples tell of, if that is as good as all that it has.
    #[must_use]
    pub fn told_of(&self, process: ProcessId) -> Option<Bytes> {
        self.accesses.told_of(process).filter(|_| self.accesses.tells_all())
    }

    /// Why a process's memory may not be read, where page tables are looked at.
    #[must_use]
    pub fn unreadable(&self, process: ProcessId) -> Option<&str> {
        self.policies.unreadable.get(&process).map(String::as_str)
    }

    /// Processes whose accesses are sampled, and why.
    #[must_use]
    pub fn sampled(&self) -> BTreeMap<ProcessId, String> {
        self.made_up().map(|(process, hidden)| (process, hidden.told())).collect()
    }

    /// Processes whose accesses are to be sampled: those whose memory takes no faults, and whoever is busy, where
    /// that is asked for.
    pub(super) fn sampled_processes(&mut self, tasks: &[Task]) -> Vec<ProcessId> {
        let mut all: Vec<ProcessId> = self.made_up().map(|(process, _)| process).collect();
        let sampled = self.accesses.sampled();
        if sampled.rest {
            let begins = sampled.base || !self.system.is_mostly_base();
            // What runs inside a virtual machine is found in the kernel, and is not seen.
            let guests: BTreeSet<ProcessId> = vm::guests(&self.named).collect();
            let old = tasks.iter().filter(|task| task.age >= LEAST_SAMPLED);
            let old: BTreeSet<ProcessId> = old.map(|task| task.process).collect();
            // Whoever is looked at stays so while it rests: what it has mapped would have to be read again.
            let is_one = |task: &&Task| {
                let ours = !task.fixed && !task.is_apart(&self.isolated);
                let busy = task.claims_cpu() && ours && old.contains(&task.process);
                begins && busy && !guests.contains(&task.process)
                    || self.accesses.is_watched(task.process)
            };
            all.extend(tasks.iter().filter(is_one).map(|task| task.process));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// CPUs that are interrupted for samples: not those set apart, whoever runs there.
    pub(super) fn open_cpus(&self) -> CpuSet {
        self.topology.cpus().difference(&self.isolated)
    }

    /// Samples those from now on. What has just been born has laid out other memory.
    pub(super) fn sample(&mut self, tasks: &[Task], now: Nanos) {
        let sampled = self.sampled_processes(tasks);
        let cpus = self.open_cpus();
        self.accesses.watch(&sampled, &cpus);
        for task in tasks {
            self.accesses.born(task.process, Nanos(now.0.saturating_sub(task.age.0)));
        }
    }

    pub(super) fn made_up(&self) -> impl Iterator<Item = (ProcessId, quiet::Hidden)> + '_ {
        self.aside.all_hidden().filter(|(_, hidden)| self.accesses.make_up(hidden))
    }

    /// Whether little is left to find out: samples are taken rarely then.
    pub fn settle(&mut self, settled: bool) {
        let cpus = self.open_cpus();
        self.accesses.settle(settled, &cpus);
    }

    /// Why accesses to memory that faults are not sampled, where they should be.
    #[must_use]
    pub fn unsampled(&self) -> Option<&str> {
        self.accesses.refused().filter(|_| self.accesses.sampled().rest)
    }

    /// CPUs on which accesses cannot be sampled for now, where others can.
    #[must_use]
    pub fn unsampled_cpus(&self) -> Option<&Missed> {
        self.accesses.missed()
    }

    /// Why what memory carries is not counted any more.
    #[must_use]
    pub fn uncounted(&self) -> Option<&str> {
        self.meter.refused()
    }

    /// Whether most of a process's memory takes no hinting faults and nothing makes up for that, as far as has
    /// been looked.
    #[must_use]
    pub fn is_unseen(&self, tgid: u32) -> bool {
        let mut hidden = self.aside.all_hidden();
        hidden.any(|(process, why)| process.tgid == tgid && !self.accesses.make_up(&why))
    }
}
