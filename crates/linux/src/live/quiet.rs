//! Whom we leave alone, remembered for a while: asking costs some files a process.

use std::collections::BTreeMap;

use numaherd_model::{Bytes, Nanos, ProcessId};

use crate::memory::residence::{Residence, Unseen};
use crate::sys::{clock, pages};
use crate::system::System;

/// How often quotas are looked at, and how long a process counts as throttled after its group last
/// ran out. Guessed: a hundred of the kernel's usual periods.
const QUOTA_AGE: Nanos = Nanos(10_000_000_000);

/// How often coverage is looked at. Guessed: soon after a program has begun to allocate.
const COVERAGE_AGE: Nanos = Nanos(5_000_000_000);

/// A process's coverage below this, per mille, and its faults say little of where its memory is.
const LEAST_COVERAGE_PERMILLE: u32 = 500;

/// Where page tables have to be walked to know the coverage, this part of the time that a process
/// lives goes into it at the most: 0.2 % of a CPU. Guessed.
const WALK_PART: u64 = 500;

/// Processes with less memory than this are not walked: what a program has at its start is its own
/// file, which says nothing of what it will allocate. Guessed.
const LEAST_WALKED: Bytes = Bytes(16 << 20);

/// What walking one page's entry costs before it was measured. Guessed: 100 ns.
const PAGE_WALK: Nanos = Nanos(100);

/// How often it is looked whether a process's pages are to stay.
const STAYS_AGE: Nanos = Nanos(30_000_000_000);

/// Processes whose tasks are not placed.
#[derive(Debug, Default)]
pub struct Aside {
    quotas: BTreeMap<ProcessId, Quota>,
    coverage: BTreeMap<ProcessId, Seen>,
}

/// What is known of a process's coverage.
#[derive(Debug)]
struct Seen {
    /// When a cheap look is due.
    next: Nanos,
    /// When page tables may be walked.
    walk: Nanos,
    /// What single mappings came to when they were walked last, and the memory there was.
    walked: Option<(Bytes, Option<String>)>,
    /// Why its faults say little, if they do.
    why: Option<String>,
}

#[derive(Debug)]
struct Quota {
    at: Nanos,
    throttles: u64,
    throttled: bool,
}

impl Aside {
    /// Whether a process's tasks are left alone. Where evidence is faults, so are those of a process
    /// most of whose memory takes none.
    pub fn has(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        by_faults: bool,
        now: Nanos,
    ) -> bool {
        self.is_throttled(system, process, now) || by_faults && self.is_hidden(system, process, now)
    }

    /// Whether a process's faults say little of where its memory is.
    pub fn is_unseen(&self, process: ProcessId) -> bool {
        self.coverage.get(&process).is_some_and(|seen| seen.why.is_some())
    }

    /// Who is, and why.
    pub fn told(&self) -> impl Iterator<Item = (ProcessId, String)> + '_ {
        let quotas = self.quotas.iter().filter(|(_, quota)| quota.throttled);
        let text = "its control group runs out of its quota of CPU time (cpu.max)";
        let quotas = quotas.map(move |(process, _)| (*process, text.to_string()));
        let hidden = |(process, seen): (&ProcessId, &Seen)| Some((*process, seen.why.clone()?));
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
        let first = Seen { next: now, walk: now, walked: None, why: None };
        let seen = self.coverage.entry(process).or_insert(first);
        if now >= seen.next {
            seen.next = Nanos(now.0 + COVERAGE_AGE.0);
            seen.look(system, process, now);
        }
        seen.why.is_some()
    }
}

impl Seen {
    /// A look at the sum first; at single mappings only where that shows nothing, there is more than
    /// a little and it has changed by half, and the process has lived long enough to be worth it.
    fn look(&mut self, system: &mut dyn System, process: ProcessId, now: Nanos) {
        let Some(cheap) = system.coverage(process.tgid) else {
            self.why = None;
            return;
        };
        self.why = told(cheap.permille, cheap.cause);
        if self.why.is_some() {
            return;
        }
        let age = system.since_boot().0.saturating_sub(process.start * clock::tick().0);
        if self.is_worth_walking(cheap.resident, Nanos(age), now) {
            self.walk(system, process, cheap.resident);
        }
        self.why = self.walked.as_ref().and_then(|(_, why)| why.clone());
    }

    /// Whether to look at single mappings, for a process of this age with so much memory.
    fn is_worth_walking(&self, resident: Bytes, age: Nanos, now: Nanos) -> bool {
        if resident < LEAST_WALKED || now < self.walk {
            return false;
        }
        match &self.walked {
            Some((then, _)) => {
                let (less, more) = (resident.0.min(then.0), resident.0.max(then.0));
                more >= less + less / 2
            }
            None => age.0 >= resident.pages(pages::size()).0 * PAGE_WALK.0 * WALK_PART,
        }
    }

    fn walk(&mut self, system: &mut dyn System, process: ProcessId, resident: Bytes) {
        let begin = system.monotonic();
        let Ok(mappings) = system.mappings(process.tgid) else { return };
        let residence = Residence::of(&mappings.unwrap_or_default());
        let why = residence.coverage_permille().zip(residence.main_cause());
        self.walked = Some((resident, why.and_then(|(permille, cause)| told(permille, cause))));
        let end = system.monotonic();
        self.walk = Nanos(end.0 + end.since(begin).0 * WALK_PART);
    }
}

/// Why a coverage is too low, if it is.
fn told(permille: u32, cause: Unseen) -> Option<String> {
    (permille < LEAST_COVERAGE_PERMILLE).then(|| {
        let (seen, cause) = (permille / 10, cause.told());
        format!("only {seen} % of its memory can be seen in use, most of the rest is {cause}")
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_walked_for_memory_that_is_new_and_worth_it() {
        let old = Nanos(u64::MAX);
        let now = Nanos(10);
        let mut seen = Seen { next: now, walk: now, walked: None, why: None };
        // A program that has begun and allocated nothing: later.
        assert!(!seen.is_worth_walking(Bytes(6 << 20), old, now));
        assert!(seen.is_worth_walking(Bytes(64 << 20), old, now));
        // 16384 pages of 4 KiB at 100 ns: 1.6 ms, 0.2 % of 0.82 s.
        let pages = Bytes(64 << 20).pages(pages::size()).0;
        let least = pages * 100 * 500;
        assert!(!seen.is_worth_walking(Bytes(64 << 20), Nanos(least - 1), now));
        assert!(seen.is_worth_walking(Bytes(64 << 20), Nanos(least), now));
        seen.walked = Some((Bytes(64 << 20), None));
        assert!(!seen.is_worth_walking(Bytes(95 << 20), old, now));
        assert!(seen.is_worth_walking(Bytes(96 << 20), old, now));
        // Not before its time.
        assert!(!seen.is_worth_walking(Bytes(96 << 20), old, Nanos(9)));
    }
}
