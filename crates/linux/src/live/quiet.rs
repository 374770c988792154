//! Whom we leave alone, remembered for a while: asking costs some files a process.

use std::collections::BTreeMap;

use numaherd_model::{Nanos, ProcessId};

use crate::system::System;

/// How often quotas are looked at, and how long a process counts as throttled after its group last
/// ran out. Guessed: a hundred of the kernel's usual periods.
const QUOTA_AGE: Nanos = Nanos(10_000_000_000);

/// How often coverage is looked at. Guessed: soon after a program has begun to allocate.
const COVERAGE_AGE: Nanos = Nanos(5_000_000_000);

/// A process's coverage below this, per mille, and its faults say little of where its memory is.
const LEAST_COVERAGE_PERMILLE: u32 = 500;

/// How often it is looked whether a process's pages are to stay.
const STAYS_AGE: Nanos = Nanos(30_000_000_000);

/// Processes whose tasks are not placed.
#[derive(Debug, Default)]
pub struct Aside {
    quotas: BTreeMap<ProcessId, Quota>,
    coverage: BTreeMap<ProcessId, (Nanos, Option<String>)>,
}

#[derive(Debug)]
struct Quota {
    at: Nanos,
    throttles: u64,
    throttled: bool,
}

impl Aside {
    /// Whether a process's tasks are left alone.
    pub fn has(&mut self, system: &mut dyn System, process: ProcessId, now: Nanos) -> bool {
        self.is_throttled(system, process, now) || self.is_hidden(system, process, now)
    }

    /// Who is, and why.
    pub fn told(&self) -> impl Iterator<Item = (ProcessId, String)> + '_ {
        let quotas = self.quotas.iter().filter(|(_, quota)| quota.throttled);
        let text = "its control group runs out of its quota of CPU time (cpu.max)";
        let quotas = quotas.map(move |(process, _)| (*process, text.to_string()));
        let hidden = |(process, (_, why)): (&ProcessId, &(Nanos, Option<String>))| {
            Some((*process, why.clone()?))
        };
        quotas.chain(self.coverage.iter().filter_map(hidden))
    }

    /// Forgets processes that are no more.
    pub fn retain(&mut self, alive: impl Fn(&ProcessId) -> bool) {
        self.quotas.retain(|process, _| alive(process));
        self.coverage.retain(|process, _| alive(process));
    }

    fn is_throttled(&mut self, system: &mut dyn System, process: ProcessId, now: Nanos) -> bool {
        if let Some(known) = self.quotas.get(&process)
            && now.since(known.at) < QUOTA_AGE
        {
            return known.throttled;
        }
        let throttles = system.throttles(process.tgid);
        let before = self.quotas.get(&process).map_or(throttles, |known| known.throttles);
        let throttled = throttles > before;
        self.quotas.insert(process, Quota { at: now, throttles, throttled });
        throttled
    }

    fn is_hidden(&mut self, system: &mut dyn System, process: ProcessId, now: Nanos) -> bool {
        if let Some((at, why)) = self.coverage.get(&process)
            && now.since(*at) < COVERAGE_AGE
        {
            return why.is_some();
        }
        let coverage = system.coverage(process.tgid);
        let low = coverage.filter(|(permille, _)| *permille < LEAST_COVERAGE_PERMILLE);
        let why = low.map(|(permille, cause)| {
            format!(
                "only {} % of its memory can be seen in use, most of the rest is {cause}",
                permille / 10
            )
        });
        let hidden = why.is_some();
        self.coverage.insert(process, (now, why));
        hidden
    }
}

/// Processes whose pages are to stay where they are.
#[derive(Debug, Default)]
pub struct Stays(BTreeMap<ProcessId, (Nanos, Option<&'static str>)>);

impl Stays {
    /// Why they are, if they are.
    pub fn why(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        now: Nanos,
    ) -> Option<&'static str> {
        self.0.retain(|_, (at, _)| now.since(*at) < STAYS_AGE);
        let look = || (now, system.pages_stay(process.tgid));
        self.0.entry(process).or_insert_with(look).1
    }
}
