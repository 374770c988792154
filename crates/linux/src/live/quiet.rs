//! Whom we leave alone, remembered for a while: asking costs some files a process.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_model::{Bytes, HintingFault, Nanos, ProcessId};

use super::silence::Silence;
use super::walk::{self, Budget};
use crate::memory::residence::{Residence, Unseen};
use crate::process::TaskStat;
use crate::respect::Quotas;
use crate::sys::pages;
use crate::system::{self, System};

/// How often control groups are looked at. Guessed: a hundred of the kernel's usual periods.
const GROUP_AGE: Nanos = Nanos(10_000_000_000);

/// How long a process counts as throttled after its group was last found to have run out, and at the most: twice as
/// long each time that it runs out again within, or whoever works in bursts would be placed and released time and
/// again. Guessed.
const THROTTLED: (Nanos, Nanos) = (Nanos(60_000_000_000), Nanos(600_000_000_000));

/// Bounds on how often it is looked whether memory is of the reserve, which stays so: when a process has
/// become twice as old, for what is young allocates; policies only after the upper one, for who is young may give
/// its memory one for a moment while it allocates, and would be left alone just when it begins to work (numa01).
/// Guessed.
const COVERAGE_AGE: (Nanos, Nanos) = (Nanos(100_000_000), Nanos(5_000_000_000));

/// A process's coverage below this, per mille, and its faults say little of where its memory is.
const LEAST_COVERAGE_PERMILLE: u32 = 500;

/// Where page tables have to be walked to know the coverage, this part of the time that a process
/// lives goes into it at the most: 0.2 % of a CPU. Guessed.
pub const WALK_PART: u64 = 500;

/// Bounds on how soon one that was left alone for it is looked at again: when it has become twice as old, since the
/// first look at a program mostly finds it allocating. Guessed.
const HIDDEN_AGE: (Nanos, Nanos) = (Nanos(100_000_000), Nanos(1_000_000_000));

/// Processes with less memory than this are not walked, nor left alone for less that takes no faults:
/// what a program has at its start is its own file, which says nothing of what it will allocate.
/// Guessed.
const LEAST_WALKED: Bytes = Bytes(16 << 20);

/// Faults on so much of a process's memory, one in so many of its pages, after it was found that it takes
/// hardly any: it is looked at again, whatever that costs; the next time after twice as many. Guessed.
const CONTRADICTS: u64 = 4;

/// How soon it is looked again whether reading its mappings holds up a process. Guessed.
const LONG_AGE: Nanos = Nanos(60_000_000_000);

/// How long a walk that found nothing is good, at the least: an owner may give memory a policy years after it was
/// allocated. Guessed.
const WALKED_AGE: Nanos = Nanos(600_000_000_000);

/// What walking one page's entry costs before it was measured there. Measured: 22 to 144 ns (`super::walk`).
pub const PAGE_WALK: Nanos = Nanos(100);

/// How often at the most it is looked whether a process's pages are to stay, by the files that it has open.
const STAYS_AGE: Nanos = Nanos(30_000_000_000);

/// The same by how much is locked, which costs one short file: a segment may be mapped by hundreds. Guessed.
const LOCKED_AGE: Nanos = Nanos(1_000_000_000);

/// Why one is left alone for how it is scheduled.
const BY_DEADLINE: &str =
    "threads of it are scheduled by deadline, which the kernel refuses to who may not use all CPUs";

/// What hides most of a process's memory from its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// What of its memory can be seen, per mille.
    pub permille: u32,
    /// What most of the rest is.
    pub cause: Unseen,
}

impl Hidden {
    /// `None` for a coverage that is high enough.
    pub(super) fn if_low(permille: u32, cause: Unseen) -> Option<Hidden> {
        (permille < LEAST_COVERAGE_PERMILLE).then_some(Hidden { permille, cause })
    }

    /// In words.
    #[must_use]
    pub fn told(self) -> String {
        let (seen, cause) = (self.permille / 10, self.cause.told());
        format!("only {seen} % of its memory can be seen in use, most of the rest is {cause}")
    }
}

/// Processes whose tasks are not placed, or would not be if faults were all there is to go by.
#[derive(Debug, Default)]
pub struct Aside {
    /// Those that have, or had, a thread that is scheduled by deadline.
    by_deadline: BTreeSet<ProcessId>,
    groups: BTreeMap<ProcessId, Group>,
    coverage: BTreeMap<ProcessId, Seen>,
}

/// What is known of a process's coverage.
#[derive(Debug)]
struct Seen {
    /// When a look is due, and when one at all that may hide memory.
    next: Nanos,
    thorough: Nanos,
    /// When page tables may be walked.
    walk: Nanos,
    /// What single mappings came to when they were walked last, and the memory there was.
    walked: Option<(Bytes, Option<Hidden>)>,
    /// Pages that faulted since then, and how often so many did that they spoke against what was found.
    heard: u64,
    contradicted: u32,
    /// Memory that is not walked, and is silent if it takes no faults.
    silence: Silence,
    /// Why its faults say little, if they do.
    why: Option<Hidden>,
}

#[derive(Debug)]
struct Group {
    at: Nanos,
    quotas: Quotas,
    /// How long it counts as throttled, and until when, once it was.
    throttled: Option<(Nanos, Nanos)>,
    /// Why its processes are left alone.
    why: Option<&'static str>,
}

impl Aside {
    /// These faults came in.
    pub fn hear(&mut self, faults: &[HintingFault]) {
        for run in faults.chunk_by(|a, b| a.tgid == b.tgid) {
            let of = |start| ProcessId { tgid: run[0].tgid, start };
            let seen = self.coverage.range_mut(of(0)..=of(u64::MAX));
            for (_, seen) in seen {
                seen.silence.hear(run);
                if seen.why.is_some() {
                    seen.heard += run.iter().map(|fault| fault.pages.0).sum::<u64>();
                }
            }
        }
    }

    /// Who is left alone for what its control group is, or for how it is scheduled, and why.
    pub fn grouped(&self) -> impl Iterator<Item = (ProcessId, String)> + '_ {
        let by_deadline = self.by_deadline.iter().map(|process| (*process, BY_DEADLINE.into()));
        let grouped = |(process, group): (&ProcessId, &Group)| Some((*process, group.why?.into()));
        by_deadline.chain(self.groups.iter().filter_map(grouped))
    }

    /// Whether a process is left alone for how this thread of it is scheduled, or another one was: a thread of the class
    /// may have all CPUs of its partition or be refused, and whoever is about to begin one is one of these.
    pub fn is_by_deadline(&mut self, process: ProcessId, thread: &TaskStat) -> bool {
        if thread.is_by_deadline {
            self.by_deadline.insert(process);
        }
        self.by_deadline.contains(&process)
    }

    /// Whose faults say little, and why.
    pub fn all_hidden(&self) -> impl Iterator<Item = (ProcessId, Hidden)> + '_ {
        self.coverage.iter().filter_map(|(process, seen)| Some((*process, seen.why?)))
    }

    /// Forgets processes that are no more.
    pub fn retain(&mut self, alive: impl Fn(&ProcessId) -> bool) {
        self.by_deadline.retain(|process| alive(process));
        self.groups.retain(|process, _| alive(process));
        self.coverage.retain(|process, _| alive(process));
    }

    /// Whether a process is left alone for its control group: that runs out of its quota, or the scheduler balances
    /// nothing there, so that tasks that may use several CPUs stay where they were put.
    pub fn is_grouped(&mut self, system: &mut dyn System, process: ProcessId, now: Nanos) -> bool {
        if let Some(known) = self.groups.get(&process)
            && now.since(known.at) < GROUP_AGE
        {
            return known.why.is_some();
        }
        let quotas = system.throttles(process.tgid);
        let before = self.groups.remove(&process);
        let throttled = before.as_ref().and_then(|before| before.throttled);
        let mut throttled = throttled.filter(|(_, until)| now < *until);
        // Each group for itself: one that it has just come to says nothing of before.
        let runs_out = before.is_some_and(|before| {
            let then = |group| before.quotas.get(group);
            quotas
                .iter()
                .any(|(group, quota)| then(group).is_some_and(|then| quota.runs_out_since(then)))
        });
        if runs_out {
            let long = throttled.map_or(THROTTLED.0, |(long, _)| Nanos(long.0 * 2));
            let long = long.min(THROTTLED.1);
            throttled = Some((long, Nanos(now.0 + long.0)));
        }
        let why = match throttled.is_some() {
            true => Some("its control group runs out of its quota of CPU time (cpu.max)"),
            false if system.is_isolated(process.tgid) => {
                Some("its control group's CPUs are an isolated partition (cpuset.cpus.partition)")
            }
            false => None,
        };
        self.groups.insert(process, Group { at: now, quotas, throttled, why });
        why.is_some()
    }

    /// What hides most of a process's memory, if something does.
    pub fn hidden(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        now: Nanos,
        walks: &mut Budget,
    ) -> Option<Hidden> {
        let first = Seen::new(now);
        let seen = self.coverage.entry(process).or_insert(first);
        if now >= seen.next {
            let age = system::age(system, process.start);
            seen.look(system, process, (age, now), walks);
            let hidden = seen.why.map(|_| age.clamp(HIDDEN_AGE.0, HIDDEN_AGE.1));
            if now >= seen.thorough {
                seen.thorough = Nanos(now.0 + hidden.unwrap_or(COVERAGE_AGE.1).0);
            }
            let wait = hidden.unwrap_or(age.clamp(COVERAGE_AGE.0, COVERAGE_AGE.1));
            seen.next = Nanos(now.0 + wait.0).min(seen.thorough);
        }
        seen.why
    }
}

impl Seen {
    fn new(now: Nanos) -> Seen {
        Seen {
            next: now,
            thorough: now,
            walk: now,
            walked: None,
            heard: 0,
            contradicted: 0,
            silence: Silence::default(),
            why: None,
        }
    }

    /// A look at the sum first; at policies only in a thorough look, and at single mappings only where that shows
    /// nothing, there is more than a little, and it was found to be hidden or has changed by half since, and the process has lived
    /// long enough to be worth it.
    fn look(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        (age, now): (Nanos, Nanos),
        walks: &mut Budget,
    ) {
        let Some(cheap) = system.coverage(process.tgid) else {
            self.why = None;
            return;
        };
        let low = Hidden::if_low(cheap.permille, cheap.cause);
        let is_of_reserve = |why: &Hidden| why.cause == Unseen::Hugetlb;
        if now < self.thorough && !low.as_ref().is_some_and(is_of_reserve) {
            self.why = self.why.filter(|why| !is_of_reserve(why));
            return;
        }
        self.why = low;
        if self.why.is_none() {
            if self.is_worth_walking(cheap.resident, age, now) && walks.allows(now) {
                match walk::is_too_long(system, process.tgid, cheap.resident) {
                    // What faults tell is believed, unless hardly any of it does.
                    true => {
                        self.walk = Nanos(now.0 + LONG_AGE.0);
                        self.walked = self.walked.filter(|(_, why)| why.is_some());
                        // Mappings of the reserve are silent, too.
                        let all = Bytes(cheap.resident.0 + cheap.reserve.0);
                        self.silence.look(system, process.tgid, all);
                    }
                    false => self.walk(system, process, cheap.resident, walks),
                }
            }
            self.why = self.walked.and_then(|(_, why)| why).or(self.silence.hides());
        }
    }

    /// Whether to look at single mappings, for a process of this age with so much memory.
    fn is_worth_walking(&self, resident: Bytes, age: Nanos, now: Nanos) -> bool {
        if resident < LEAST_WALKED || now < self.walk && !self.is_contradicted(resident) {
            return false;
        }
        match &self.walked {
            // A program may give its memory a policy for a moment only, while it allocates.
            Some((_, Some(_))) => true,
            Some((then, None)) => {
                let (less, more) = (resident.0.min(then.0), resident.0.max(then.0));
                more >= less + less / 2 || now.since(self.walk) >= WALKED_AGE
            }
            None => age.0 >= resident.pages(pages::size()).0 * PAGE_WALK.0 * WALK_PART,
        }
    }

    /// Whether more has faulted than goes with what was found.
    fn is_contradicted(&self, resident: Bytes) -> bool {
        let enough = (resident.pages(pages::size()).0 / CONTRADICTS) << self.contradicted.min(32);
        self.walked.is_some_and(|(_, why)| why.is_some()) && self.heard > enough
    }

    fn walk(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        resident: Bytes,
        walks: &mut Budget,
    ) {
        self.silence = Silence::default();
        self.contradicted += u32::from(self.is_contradicted(resident));
        self.heard = 0;
        let begin = system.monotonic();
        let read = walk::mappings(system, process.tgid, begin, walks);
        let Ok((mappings, took)) = read else { return };
        let residence = Residence::of(&mappings);
        let why = residence.coverage_permille().zip(residence.main_cause());
        let much = |&(permille, _): &(u32, Unseen)| {
            resident.0 / 1000 * u64::from(1000_u32.saturating_sub(permille)) >= LEAST_WALKED.0
        };
        let why = why.filter(much).and_then(|(permille, cause)| Hidden::if_low(permille, cause));
        self.walked = Some((resident, why));
        self.walk = Nanos(begin.0 + took.0 + took.0 * WALK_PART);
    }
}

/// Processes whose pages are to stay where they are: until when what their files tell, and how much is locked, is good, and
/// why.
#[derive(Debug, Default)]
pub struct Stays {
    files: BTreeMap<ProcessId, (Nanos, Option<&'static str>)>,
    locked: BTreeMap<ProcessId, (Nanos, Option<&'static str>)>,
}

impl Stays {
    /// Why they are, if they are.
    pub fn why(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        now: Nanos,
        beat: &mut dyn FnMut(),
    ) -> Option<&'static str> {
        for known in [&mut self.files, &mut self.locked] {
            known.retain(|_, (until, _)| now < *until);
        }
        let look = || {
            let begin = system.monotonic();
            let why = system.pages_stay(process.tgid, beat);
            let took = system.monotonic().since(begin);
            (Nanos(now.0 + STAYS_AGE.0.max(took.0 * walk::ALL_PART)), why)
        };
        let (_, why) = *self.files.entry(process).or_insert_with(look);
        let locked = || (Nanos(now.0 + LOCKED_AGE.0), system.locked(process.tgid));
        why.or_else(|| self.locked.entry(process).or_insert_with(locked).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_walked_for_memory_that_is_new_and_worth_it() {
        let old = Nanos(u64::MAX);
        let now = Nanos(10);
        let mut seen = Seen::new(now);
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
        // What has not changed, after a long time.
        let at = |passed: u64| seen.is_worth_walking(Bytes(64 << 20), old, Nanos(10 + passed));
        assert_eq!([WALKED_AGE.0 - 1, WALKED_AGE.0].map(at), [false, true]);
    }

    #[test]
    fn what_was_found_hidden_is_looked_at_again_the_sooner_if_it_faults() {
        let old = Nanos(u64::MAX);
        let mut aside = Aside::default();
        let process = ProcessId { tgid: 7, start: 1 };
        let why = Some(Hidden { permille: 0, cause: Unseen::Policy });
        let walked = Some((Bytes(64 << 20), why));
        let seen = Seen { walked, why, ..Seen::new(Nanos(10)) };
        aside.coverage.insert(process, seen);
        let worth = |aside: &Aside, now| {
            aside.coverage[&process].is_worth_walking(Bytes(64 << 20), old, Nanos(now))
        };
        // In its time, though nothing has changed; before it, after faults on a quarter of 16384 pages.
        assert!(worth(&aside, 10) && !worth(&aside, 9));
        let fault = |tgid| HintingFault { tgid, ..huge() };
        aside.hear(&[fault(8), fault(7)]);
        aside.hear(&vec![fault(7); 7]);
        assert!(!worth(&aside, 9));
        aside.hear(&[fault(7)]);
        assert!(worth(&aside, 9));
    }

    #[test]
    fn between_thorough_looks_only_the_reserve_is_looked_at() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/7");
        std::fs::create_dir_all(&folder).unwrap();
        let status = |anon: u64, huge: u64| {
            let text = format!("RssAnon:\t{anon} kB\nHugetlbPages:\t{huge} kB\n");
            std::fs::write(folder.join("status"), text).unwrap();
        };
        let maps = "10000000 default stack anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n\
                    20000000 bind:0 anon=16384 dirty=16384 N0=16384 kernelpagesize_kB=4\n";
        std::fs::write(folder.join("numa_maps"), maps).unwrap();
        let mut running = crate::system::Running::new(root.path());
        let process = ProcessId { tgid: 7, start: 1 };
        let mut seen = Seen { thorough: Nanos(100), ..Seen::new(Nanos(0)) };
        let mut look = |now| {
            let when = (Nanos(u64::MAX), Nanos(now));
            seen.look(&mut running, process, when, &mut Budget::default());
            seen.why.map(|why| why.cause)
        };
        status(65_540, 0);
        assert_eq!(look(99), None);
        status(65_540, 300_000);
        assert_eq!(look(99), Some(Unseen::Hugetlb));
        status(65_540, 0);
        assert_eq!(look(99), None);
        assert_eq!([look(100), look(99)], [Some(Unseen::Policy); 2]);
    }

    #[test]
    fn a_young_program_that_was_allocating_is_looked_at_again_soon() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            crate::testing::put(root.path(), &format!("proc/7/{name}"), text);
        };
        put("status", "RssAnon:\t65540 kB\nHugetlbPages:\t0 kB\n");
        put("numa_maps", "10000000 prefer:0 anon=16384 N0=16384 kernelpagesize_kB=4\n");
        let mut running = crate::system::Running::new(root.path());
        let mut hidden = |start, ms: u64| {
            let process = ProcessId { tgid: 7, start };
            let mut aside = Aside::default();
            let mut hidden = |at| {
                aside.hidden(&mut running, process, Nanos(at), &mut Budget::default()).is_some()
            };
            assert!(hidden(0));
            put("numa_maps", "10000000 default anon=16384 N0=16384 kernelpagesize_kB=4\n");
            let hidden = hidden(ms * 1_000_000);
            put("numa_maps", "10000000 prefer:0 anon=16384 N0=16384 kernelpagesize_kB=4\n");
            hidden
        };
        // One that has just begun, and one that did so when the machine did.
        assert_eq!([hidden(u64::MAX, 99), hidden(u64::MAX, 100)], [true, false]);
        assert_eq!([hidden(0, 999), hidden(0, 1000)], [true, false]);
    }

    #[test]
    fn who_runs_out_of_a_quota_in_bursts_is_left_alone_between_them() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| crate::testing::put(root.path(), name, text);
        put("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        put("proc/7/cgroup", "0::/a\n");
        let mut running = crate::system::Running::new(root.path());
        let (mut aside, process) = (Aside::default(), ProcessId { tgid: 7, start: 1 });
        let mut is_aside = |seconds: u64, throttles: u64| {
            put("sys/fs/cgroup/a/cpu.stat", &format!("nr_throttled {throttles}\n"));
            aside.is_grouped(&mut running, process, Nanos(seconds * 1_000_000_000))
        };
        // What was before is not known to be recent.
        assert!(!is_aside(0, 5));
        assert!(is_aside(10, 6));
        assert_eq!([is_aside(20, 6), is_aside(69, 6), is_aside(79, 6)], [true, true, false]);
        // Again, and within a minute once more: two minutes from then on.
        assert_eq!([is_aside(90, 7), is_aside(149, 8)], [true; 2]);
        assert_eq!([is_aside(268, 8), is_aside(278, 8)], [true, false]);
        // However often: ten minutes at the most.
        assert!((0..9).all(|time| is_aside(300 + 10 * time, 9 + time)));
        assert_eq!([is_aside(979, 17), is_aside(989, 17)], [true, false]);
    }

    /// Bursts that a quota is made for leave a service where it is looked after.
    #[test]
    fn who_runs_out_of_a_quota_now_and_then_is_not_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| crate::testing::put(root.path(), name, text);
        put("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        put("proc/7/cgroup", "0::/a/b\n");
        let mut running = crate::system::Running::new(root.path());
        let (mut aside, process) = (Aside::default(), ProcessId { tgid: 7, start: 1 });
        let mut is_aside = |seconds: u64, above: (u64, u64), own: (u64, u64)| {
            for (group, (periods, throttled)) in [("a", above), ("a/b", own)] {
                let text = format!("nr_periods {periods}\nnr_throttled {throttled}\n");
                put(&format!("sys/fs/cgroup/{group}/cpu.stat"), &text);
            }
            aside.is_grouped(&mut running, process, Nanos(seconds * 1_000_000_000))
        };
        assert!(!is_aside(0, (500, 400), (100, 90)));
        // One of a hundred, and four of a hundred in both.
        assert!(!is_aside(10, (600, 401), (200, 90)));
        assert!(!is_aside(20, (700, 405), (300, 94)));
        // One of the ten periods in which the group itself ran.
        assert!(is_aside(30, (800, 405), (310, 95)));
    }

    /// What faults tell is of a few percent of the memory then.
    #[test]
    fn a_process_whose_large_pool_takes_no_faults_is_left_alone() {
        use super::super::silence::tests::{fault, pool};
        let root = tempfile::tempdir().unwrap();
        crate::testing::put(root.path(), "proc/7/status", "RssAnon:\t524288000 kB\n");
        let mut running = crate::system::Running::new(root.path());
        let process = ProcessId { tgid: 7, start: 1 };
        let mut aside = Aside::default();
        // It is too long to be walked.
        let seen = Seen { walk: Nanos(u64::MAX), silence: pool(), ..Seen::new(Nanos(0)) };
        aside.coverage.insert(process, seen);
        let mut hidden = |aside: &mut Aside, seconds: u64| {
            let now = Nanos(seconds * 1_000_000_000);
            let hidden = aside.hidden(&mut running, process, now, &mut Budget::default());
            hidden.map(|hidden| hidden.cause)
        };
        assert_eq!(hidden(&mut aside, 0), None);
        aside.hear(&[fault(1 << 30, 41, 0)]);
        assert_eq!(hidden(&mut aside, 10), Some(Unseen::Silent));
        aside.hear(&[fault(1400 << 30, 1, 0)]);
        assert_eq!(hidden(&mut aside, 20), None);
    }

    /// The walks of others took all the time there is.
    #[test]
    fn nothing_is_walked_that_the_budget_does_not_allow() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| crate::testing::put(root.path(), name, text);
        put("proc/7/status", "RssAnon:\t65540 kB\n");
        let maps = "10000000 default stack anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n\
                    20000000 bind:0 anon=16384 dirty=16384 N0=16384 kernelpagesize_kB=4\n";
        put("proc/7/numa_maps", maps);
        let mut running = crate::system::Running::new(root.path());
        let process = ProcessId { tgid: 7, start: 1 };
        let mut walks = Budget::default();
        walks.spend(Nanos(0), Nanos(1_000_000_000));
        let mut seen = Seen::new(Nanos(0));
        let mut look = |seconds: u64| {
            let when = (Nanos(u64::MAX), Nanos(seconds * 1_000_000_000));
            seen.look(&mut running, process, when, &mut walks);
            seen.why.map(|why| why.cause)
        };
        // A second is paid for after 50, of which 25 may be ahead.
        assert_eq!([look(1), look(25), look(27)], [None, None, Some(Unseen::Policy)]);
    }

    /// A fault on a huge page.
    fn huge() -> HintingFault {
        HintingFault {
            time: Nanos(0),
            tid: 7,
            tgid: 7,
            cpu: numaherd_model::CpuId(0),
            memory_node: numaherd_model::NodeId(0),
            pages: numaherd_model::Pages(512),
            flags: numaherd_model::FaultFlags(0),
            address: None,
            last_cpu: None,
            last_pid_low8: None,
        }
    }
}
