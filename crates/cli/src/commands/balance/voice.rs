//! What `balance` says on its own account of the processes in its care: each thing once.

use std::collections::BTreeMap;

use numaherd_linux::live::LiveMachine;
use numaherd_model::{ProcessId, Snapshot};

/// What was said so far.
#[derive(Debug, Default)]
pub struct Voice {
    /// Processes that were told to be left alone.
    aside: BTreeMap<ProcessId, String>,
    /// Processes whose accesses were told to be sampled.
    sampled: BTreeMap<ProcessId, String>,
    born_confined: u64,
    /// Whether it was told that traffic is counted no more, and that accesses cannot be sampled, at all or on some CPUs.
    uncounted: bool,
    unsampled: bool,
    missed: bool,
}

impl Voice {
    /// Says whose tasks are not placed, and why, and when that is over; whose accesses are sampled; and that a
    /// process may have miscounted.
    pub fn tell(&mut self, machine: &LiveMachine, snapshot: &Snapshot) {
        if self.born_confined == 0 && machine.born_confined() > 0 {
            say!(
                "numaherd: a process was started by a placed thread and had the CPUs of one node \
                 for a moment: if it counted them then (JVM, Go, OpenMP), it counted too few"
            );
        }
        self.born_confined = machine.born_confined();
        if let Some(why) = machine.uncounted().filter(|_| !self.uncounted) {
            say!(
                "numaherd: what memory carries is no limit any more, as it cannot be counted: {why}"
            );
            self.uncounted = true;
        }
        if let Some(why) = machine.unsampled().filter(|_| !self.unsampled) {
            say!("numaherd: accesses cannot be sampled ({why}): faults alone tell who uses what");
            self.unsampled = true;
        }
        if let Some(missed) = machine.unsampled_cpus().filter(|_| !self.missed) {
            say!(
                "numaherd: accesses on CPUs {} are not sampled for now: {}",
                missed.cpus,
                missed.why
            );
            self.missed = true;
        }
        let sampled = machine.sampled();
        for (process, why) in new(&sampled, &self.sampled) {
            say!("numaherd: process {process}: {why}; its accesses are sampled");
        }
        let aside = machine.left_alone();
        for (process, why) in new(&aside, &self.aside) {
            say!(
                "numaherd: process {process} is left alone: {why}; see 'numaherd advise -p {process}'"
            );
        }
        let is_there = |process| snapshot.tasks.iter().any(|task| task.process == process);
        let is_back = |process: &&ProcessId| !aside.contains_key(*process) && is_there(**process);
        for process in self.aside.keys().filter(is_back) {
            say!("numaherd: process {process} is no longer left alone");
        }
        (self.aside, self.sampled) = (aside, sampled);
    }
}

/// Those that were not there before.
fn new<'a>(
    now: &'a BTreeMap<ProcessId, String>,
    before: &'a BTreeMap<ProcessId, String>,
) -> impl Iterator<Item = (&'a ProcessId, &'a String)> {
    now.iter().filter(|(process, _)| !before.contains_key(*process))
}
