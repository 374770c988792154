//! How fast the kernel is to scan for us: quickly while evidence is needed, and a little for ever once all
//! has converged. Decided here for live and simulated machines alike; who acts turns the knobs.
//!
//! The kernel's scan period is the time of a pass over all that a process has resident, taken in pieces of
//! the scan size (`task_scan_min`, v6.12), at 2.5 GB/s at the most. Pieces are small, because a piece is also
//! what it takes to pass by a mapping in which the scanning thread has not faulted of late (since 6.7): with
//! 256 MiB every 2 s, memory of 64 MiB was hardly scanned any more.

use std::collections::BTreeMap;

use numaherd_model::{
    Action, Bytes, CONVERGED_PERMILLE, Nanos, NodeId, Plan, ProcessId, Region, ScanPeriods,
    Snapshot, Task, TaskId, Topology, Waiting,
};

use crate::bundles::{Busy, busy, by_process};
use crate::herd::is_in_place;
use crate::{lost, tables};

/// Pages a fault from which faults are mostly of huge pages. Guessed: a fifth of them is.
const MOSTLY_HUGE: u64 = 100;

/// Tasks younger than this are still to be scanned for the first time. Guessed.
const YOUNG: Nanos = Nanos(3_000_000_000);

/// Faults by which it is known whether they are of huge pages, and that a program has begun to use its
/// memory. Guessed.
const ENOUGH_FAULTS: u64 = 200;

/// Faults from which on older ones count less and less. Guessed: hours of a converged run, and seconds of a busy one.
const MOST_FAULTS: u64 = 100_000;

/// Pages of a process that may fault in a millisecond once all has converged, or is well, at the most; and the part
/// of a CPU that may go into their faults, or into moving huge ones to and fro between nodes that use them alike.
const SLOW_FAULTS_A_MS: u64 = 1;
const SLOW_PERMILLE: u64 = 2;

/// The part of a task's time that the first faults on base pages may take. Guessed: it is told by a few hundred of
/// them that a program is well, and all that were armed until then are taken all the same.
const SEEK_FAULTS_PERMILLE: u64 = 50;

/// The time of a pass with [`Scan::Seek`], in milliseconds, and bounds of that of the first pass over base pages.
const SEEK_MS: u64 = 100;
const SEEK_PASS: (u64, u64) = (SEEK_MS, 16_000);

/// What [`Scan::Seek`] has of MiB to a piece, of a delay and of a pass, in milliseconds.
const SEEK: (u64, u64, u64) = (32, SEEK_MS, SEEK_MS);

/// Base pages of a process that fault in a millisecond at the most. Seen with two processes on the eight
/// slow CPUs of the emulated 2x4.
const QUICK_FAULTS_A_MS: u64 = 20;

/// Bounds of the time of a quick pass over a process's base pages, in milliseconds: the lower is the kernel's
/// own.
const QUICK_PASS: (u64, u64) = (1000, 16_000);

/// Bounds of the time of a slow pass over a process's memory, in milliseconds: the upper is the kernel's own, and
/// that over base pages ten times as much, since in a minute a hundred gigabytes are four hundred a millisecond.
const SLOW_PASS: (u64, u64) = (2000, 60_000);
const SLOW_BASE_PASS: (u64, u64) = (2000, 600_000);

/// CPU time that others take, per mille of one CPU, from which on they may need the kernel's balancing. Guessed: daemons take
/// less, and who computes takes ten times as much.
const OTHERS_PERMILLE: u32 = 100;

/// The kernel's own delay before a task's first scan, and shortest period, in milliseconds (v6.12): it looks no later
/// for us than it would without.
const KERNELS_MS: u64 = 1000;

/// What was seen since the start; of very many faults, the later count the more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Faults.
    pub faults: u64,
    /// The pages that they tell of.
    pub pages: u64,
    /// Memory of programs' own that came in base pages; none if most came in huge ones, or hardly any.
    pub new_base: Bytes,
    /// Whether others were busy at each of the last looks.
    pub storm: bool,
    /// Whether samples tell of everybody who is busy, too, and most of what they tell of has been shown
    /// ([`is_told`]).
    pub told: bool,
}

impl Seen {
    /// Adds a turn's faults and the pages that they tell of. What memory is made of now would not show among the
    /// faults of months.
    pub fn add(&mut self, faults: u64, pages: u64) {
        self.faults += faults;
        self.pages += pages;
        while self.faults > MOST_FAULTS {
            self.faults /= 2;
            self.pages /= 2;
        }
    }

    /// Whether faults tell what memory is made of. Of base pages only some are told of, each for several.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.faults.max(if self.is_base() { self.pages } else { 0 }) >= ENOUGH_FAULTS
    }

    /// Whether most faults were on base pages.
    fn is_base(&self) -> bool {
        self.pages < self.faults * MOSTLY_HUGE
    }
}

/// One of seven settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// As below, and tasks born now are scanned the soonest: a thread inherits the delay as its first
    /// period. Only while tasks are young, for the reason below.
    Seek,
    /// The same where what began has its memory in base pages, and faults on those take a good part of its time: a
    /// pass over so many milliseconds. As long as the first lasts it is the delay between pieces that counts, and
    /// these are the smallest.
    SeekBase(u64),
    /// Soon and often. The upper bound matters as much as the lower: seen on 6.12, the kernel takes
    /// most faults for private ones and scans ever slower. The delay must not be too short either:
    /// since 6.4 the kernel forgets within four delays which threads use a mapping, and with 100 ms
    /// it hardly scanned at all any more; 300 ms gave the earliest evidence of 100, 300, 500 and 1000
    /// (numa01 on the emulated 2x4).
    Quick,
    /// The same where memory is in base pages: a pass over so many milliseconds, no quicker than their faults
    /// are taken. All is armed by the first pass; what comes after it sooner than those are taken only adds
    /// to them, and they went on for eight seconds after all had converged (jbb-like of 320 MiB).
    QuickBase(u64),
    /// A little, but without end: a pass over so many milliseconds. Its pieces are the smallest (the kernel
    /// takes whole huge pages), since they count at once and the period only when the pass that is under
    /// way has ended. Left to itself the kernel scans ever more seldom, and a program that goes on with
    /// other memory was not noticed for 24 s (phases, 6.12).
    Slow(u64),
    /// The same where memory is in huge pages.
    SlowHuge,
    /// Not at all: samples tell of another phase as well, and nobody else would miss it. What several nodes use stays
    /// where it was laid, in place of going to whoever comes first.
    Off,
}

impl Scan {
    /// What comes after a turn that saw this and planned that, with all that was seen so far.
    /// The kernel need not scan quickly when nothing is left to find out, or was not, and hardly
    /// anything is misplaced since: a few stragglers do not need everybody's memory looked at ten times a second.
    #[must_use]
    pub fn after(self, snapshot: &Snapshot, plan: &Plan, seen: Seen) -> Scan {
        let places = plan.actions.iter().any(|action| matches!(action, Action::PlaceTask { .. }));
        let local = plan.strength_permille >= CONVERGED_PERMILLE;
        let slow = matches!(self, Scan::Slow(_) | Scan::SlowHuge | Scan::Off);
        let stays = slow && plan.waiting.is_none() && is_in_place(plan) && !places;
        let young = |task: &Task| task.claims_cpu() && task.age < YOUNG;
        let young = snapshot.tasks.iter().any(young);
        // One thread that is well by its first fault is about to start the others, which inherit its delay.
        let known = seen.is_enough();
        let begins = young && !known;
        let enough = !begins && (plan.converged || plan.calm || stays && !snapshot.stirred);
        let seeks = begins || young && matches!(plan.waiting, Some(Waiting::Evidence { .. }));
        let base = if known { seen.is_base() } else { seen.new_base.0 > 0 };
        // A quick pass over base pages that are well costs more than it can bring; and those who are over before they
        // are known would be scanned, and fault, all the same.
        let enough = enough || seen.storm || base && known && is_local(snapshot);
        match (enough, base) {
            (false, false) if seeks => Scan::Seek,
            (false, true) if !known => begun(snapshot, plan, seen.new_base),
            (false, false) => Scan::Quick,
            (false, true) => quick_base(largest(snapshot)),
            (true, _) if seen.told && !is_needed(snapshot) => Scan::Off,
            // Who uses memory from several nodes has its pages sent to and fro by each fault.
            (true, false) if local => Scan::SlowHuge,
            (true, _) => {
                let pages = largest(snapshot);
                let (costs, remote) = (&snapshot.costs, 1000 - plan.strength_permille.min(1000));
                let (each, bounds) = match base {
                    true => (costs.fault.0, SLOW_BASE_PASS),
                    false => (costs.page_move.0 * u64::from(remote) / 1000, SLOW_PASS),
                };
                let taken = pages * each / (SLOW_PERMILLE * 1000);
                Scan::Slow(rounded(taken.max(pages / SLOW_FAULTS_A_MS), bounds))
            }
        }
    }

    /// Its knobs on this machine; `None`: the kernel's balancing is switched off.
    #[must_use]
    pub fn knobs(self, topology: &Topology) -> Option<ScanPeriods> {
        let knobs = match self {
            Scan::Seek => SEEK,
            Scan::SeekBase(pass_ms) => (1, 300, pass_ms),
            Scan::Quick => (32, 300, 100),
            Scan::QuickBase(pass_ms) => (32, 300, pass_ms),
            Scan::Slow(pass_ms) => (1, 1000, pass_ms),
            Scan::SlowHuge => (4, 1000, SLOW_PASS.0),
            Scan::Off => return None,
        };
        Some(periods(knobs, topology))
    }
}

/// With pieces of so many MiB, after so long a delay, a pass over so long, in milliseconds. Where there is less to lose by
/// distance, there is as much less haste: what is armed early faults, and pages that several nodes use go to and fro with
/// it, and blocks who uses them.
fn periods((size_mib, delay_ms, pass_ms): (u64, u64, u64), topology: &Topology) -> ScanPeriods {
    let lost = lost::permille(topology);
    let unhurried = |ms: u64| ms.max((ms * 1000 / lost).min(KERNELS_MS));
    let [delay, pass] = [delay_ms, pass_ms].map(|ms| Nanos(unhurried(ms) * 1_000_000));
    ScanPeriods { delay, min: pass, max: pass, size: Bytes(size_mib << 20) }
}

/// Whether samples tell of the memory of everybody who is busy, so much of each process's, and faults and samples have shown
/// most of that. Until then a scan shows in seconds what samples of gigabytes take minutes for.
#[must_use]
pub fn is_told(snapshot: &Snapshot, told: impl Fn(ProcessId) -> Option<Bytes>) -> bool {
    by_process(&busy(snapshot)).all(|tasks| {
        let process = tasks[0].0;
        let shown = tables::all(&tables::shown(snapshot, process));
        let is_most = |told: Bytes| {
            shown * 1000 >= told.pages(snapshot.page_size).0 * u64::from(CONVERGED_PERMILLE)
        };
        told(process).is_some_and(is_most)
    })
}

/// Whether the kernel has to go on balancing: memory of tasks that are not in our care and use CPUs in earnest, or between
/// tiers.
fn is_needed(snapshot: &Snapshot) -> bool {
    let others: u32 = snapshot.nodes.iter().map(|node| node.others_permille).sum();
    others >= OTHERS_PERMILLE || snapshot.kernel_tiering
}

/// Whether hardly any fault is on what was remote.
fn is_local(snapshot: &Snapshot) -> bool {
    let all: u64 = snapshot.tasks.iter().map(Task::fault_pages).sum();
    let remote: u64 = snapshot.tasks.iter().map(|task| task.remote_faults).sum();
    all > 0 && remote * 1000 <= all * u64::from(1000 - CONVERGED_PERMILLE)
}

/// With so much new memory in base pages of which no fault has told yet. Page tables tell where it lies, and as soon
/// as processes came together by that, each fault brings a page to its task; before, most would have to move again.
///
/// Example: a process of eight busy tasks with 1 GiB. [`Scan::Seek`] arms 8192 pages in 100 ms. At a microsecond a fault that is
/// 1 % of the tasks' time, at 60 it is 60 %.
fn begun(snapshot: &Snapshot, plan: &Plan, new_base: Bytes) -> Scan {
    let pages = new_base.pages(snapshot.page_size).0;
    let busy = busy(snapshot);
    let (tasks, processes) = (busy.len().max(1) as u64, by_process(&busy).count().max(1) as u64);
    if are_together(snapshot, plan, &busy) {
        return quick_base(pages / processes);
    }
    let budget = tasks * SEEK_FAULTS_PERMILLE * 1000;
    let seek = periods(SEEK, &snapshot.topology);
    let armed = pages.min(seek.size.pages(snapshot.page_size).0 * processes);
    match armed * snapshot.costs.fault.0 / (seek.min.0 / 1_000_000) <= budget {
        true => Scan::Seek,
        false => Scan::SeekBase(rounded(pages * snapshot.costs.fault.0 / budget, SEEK_PASS)),
    }
}

/// A quick pass over a process of so many base pages.
fn quick_base(pages: u64) -> Scan {
    Scan::QuickBase(rounded(pages / QUICK_FAULTS_A_MS, QUICK_PASS))
}

/// Whether there are busy tasks, and those of each process were all placed on one node, or are now.
fn are_together(snapshot: &Snapshot, plan: &Plan, busy: &[Busy]) -> bool {
    let placed = |action: &Action| match action {
        Action::PlaceTask { task, node, .. } => Some((*task, *node)),
        _ => None,
    };
    let placed: BTreeMap<TaskId, NodeId> = plan.actions.iter().filter_map(placed).collect();
    let home = |&(_, i): &Busy| {
        let task = &snapshot.tasks[i];
        placed.get(&task.id).copied().or(task.home)
    };
    let is_one = |tasks: &[Busy]| {
        let first = home(&tasks[0]);
        first.is_some() && tasks.iter().all(|one| home(one) == first)
    };
    !busy.is_empty() && by_process(busy).all(is_one)
}

/// Pages of the memory that the largest process was seen to use.
fn largest(snapshot: &Snapshot) -> u64 {
    let of_process = snapshot.regions.chunk_by(|a, b| a.id.process == b.id.process);
    let pages = |regions: &[Region]| -> u64 {
        regions.iter().map(|region| region.len.pages(snapshot.page_size).0).sum()
    };
    of_process.map(pages).max().unwrap_or(0)
}

/// The time of a pass within bounds; a power of two, so that it is not set anew for every region.
fn rounded(pass_ms: u64, bounds: (u64, u64)) -> u64 {
    pass_ms.next_power_of_two().clamp(bounds.0, bounds.1)
}

#[cfg(test)]
mod tests {
    use numaherd_model::scene::{Scene, task_id};

    use super::*;

    /// So many faults of huge pages, and of small ones.
    const HUGE: Seen = seen(1000, 512_000);
    const BASE: Seen = seen(1000, 1000);

    const fn seen(faults: u64, pages: u64) -> Seen {
        Seen { faults, pages, new_base: Bytes(0), storm: false, told: false }
    }

    fn plan(converged: bool, strength_permille: u32) -> Plan {
        let misplaced_permille = 1000 - strength_permille;
        Plan { converged, strength_permille, misplaced_permille, ..Plan::default() }
    }

    #[test]
    fn quick_until_all_has_converged_and_slow_until_it_no_longer_has() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        let mut snapshot = scene.snapshot();
        let waits = Waiting::Evidence { known: 0, busy: 1 };
        let seeks = Plan { waiting: Some(waits), ..plan(false, 0) };
        snapshot.tasks[0].age = Nanos(YOUNG.0 - 1);
        assert_eq!(Scan::Seek.after(&snapshot, &seeks, seen(0, 0)), Scan::Seek);
        assert_eq!(
            Scan::Seek.after(&snapshot, &plan(true, 1000), seen(1, 512)),
            Scan::Seek,
            "begins"
        );
        assert_eq!(Scan::Seek.after(&snapshot, &plan(true, 1000), HUGE), Scan::SlowHuge);
        snapshot.tasks[0].age = YOUNG;
        assert_eq!(Scan::Seek.after(&snapshot, &seeks, seen(0, 0)), Scan::Quick, "no longer young");
        let after = |scan: Scan, plan: &Plan, faults| scan.after(&snapshot, plan, faults);
        assert_eq!(after(Scan::Quick, &plan(false, 500), BASE), Scan::QuickBase(1000));
        assert_eq!(after(Scan::Quick, &plan(true, 950), HUGE), Scan::SlowHuge);
        assert_eq!(after(Scan::Quick, &plan(true, 500), HUGE), Scan::Slow(2000), "not local");
        // A few stragglers are no reason, another phase is.
        assert_eq!(after(Scan::SlowHuge, &plan(false, 950), HUGE), Scan::SlowHuge);
        assert_eq!(after(Scan::SlowHuge, &plan(false, 899), HUGE), Scan::Quick);
        let shared = Plan { misplaced_permille: 0, ..plan(false, 700) };
        assert_eq!(after(Scan::Quick, &shared, HUGE), Scan::Quick);
        assert_eq!(
            after(Scan::Quick, &Plan { calm: true, ..shared.clone() }, HUGE),
            Scan::Slow(2000)
        );
        assert_eq!(
            after(Scan::Slow(2000), &shared, HUGE),
            Scan::Slow(2000),
            "no more can be local"
        );
        snapshot.stirred = true;
        assert_eq!(Scan::SlowHuge.after(&snapshot, &plan(false, 950), HUGE), Scan::Quick);
    }

    #[test]
    fn where_samples_tell_of_everybody_and_nobody_else_needs_it_nothing_is_scanned_once_all_rests()
    {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        let mut snapshot = scene.snapshot();
        snapshot.tasks[0].age = YOUNG;
        let told = |seen: Seen| Seen { told: true, ..seen };
        for seen in [HUGE, BASE] {
            let after =
                |snapshot: &Snapshot, seen| Scan::Quick.after(snapshot, &plan(true, 950), seen);
            assert_eq!(after(&snapshot, told(seen)), Scan::Off);
            assert_ne!(after(&snapshot, seen), Scan::Off);
            let mut needed = [snapshot.clone(), snapshot.clone()];
            needed[0].nodes.iter_mut().for_each(|node| node.others_permille = OTHERS_PERMILLE / 2);
            needed[1].kernel_tiering = true;
            for snapshot in needed {
                assert_eq!(after(&snapshot, told(seen)), after(&snapshot, seen), "needed");
            }
        }
        assert_eq!(Scan::Off.knobs(&snapshot.topology), None);
        // It lasts as a slow one does.
        assert_eq!(Scan::Off.after(&snapshot, &plan(false, 950), told(HUGE)), Scan::Off);
        assert_eq!(Scan::Off.after(&snapshot, &plan(false, 899), told(HUGE)), Scan::Quick);
        snapshot.stirred = true;
        assert_eq!(Scan::Off.after(&snapshot, &plan(false, 950), told(HUGE)), Scan::Quick);
    }

    #[test]
    fn all_is_told_where_most_of_what_samples_tell_of_was_shown_of_everybody_who_is_busy() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.region(0, &[(1, 10)], &[(0, 256), (1, 256)]);
        let snapshot = scene.snapshot();
        let told = |pages: Option<u64>| {
            is_told(&snapshot, |_| pages.map(|pages| Bytes(pages * snapshot.page_size.0)))
        };
        // 512 were shown.
        assert_eq!([told(Some(512)), told(Some(568)), told(Some(569))], [true, true, false]);
        assert!(!told(None), "not sampled");
        scene.edit().tasks[0].state = numaherd_model::TaskState::Sleeping;
        scene.edit().tasks[0].busy_permille = 0;
        assert!(is_told(&scene.snapshot(), |_| None), "nobody is busy");
    }

    #[test]
    fn where_there_is_little_to_lose_there_is_no_haste_and_the_kernels_own_is_the_least() {
        let mut topology = Scene::two_by_four().snapshot().topology;
        let ms = |scan: Scan, topology: &Topology| {
            let knobs = scan.knobs(topology).unwrap();
            [knobs.delay, knobs.min, knobs.max].map(|time| time.0 / 1_000_000)
        };
        assert_eq!(ms(Scan::Seek, &topology), [100; 3]);
        topology.distances = vec![vec![10, 12], vec![12, 10]];
        assert_eq!(ms(Scan::Seek, &topology), [300; 3]);
        assert_eq!(ms(Scan::Quick, &topology), [900, 300, 300]);
        assert_eq!(ms(Scan::QuickBase(4000), &topology), [900, 4000, 4000]);
        assert_eq!(ms(Scan::Slow(2000), &topology), [1000, 2000, 2000]);
        // Measured to be nearer still, and farther.
        topology.latencies = vec![vec![1000, 1010], vec![1010, 1000]];
        assert_eq!(ms(Scan::Seek, &topology), [1000; 3]);
        topology.latencies = vec![vec![1000, 1800], vec![1800, 1000]];
        assert_eq!(ms(Scan::Seek, &topology), [100; 3]);
    }

    #[test]
    fn short_processes_one_after_the_other_are_hardly_scanned() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        let mut snapshot = scene.snapshot();
        snapshot.tasks[0].age = Nanos(100_000_000);
        let waits = Waiting::Evidence { known: 0, busy: 1 };
        let seeks = Plan { waiting: Some(waits), ..plan(false, 0) };
        let new_base = Bytes(8 << 20);
        for seen in [Seen::default(), Seen { new_base, ..Seen::default() }, BASE, HUGE] {
            let after = |storm| Scan::Seek.after(&snapshot, &seeks, Seen { storm, ..seen });
            assert!(matches!(after(true), Scan::Slow(_)) && !matches!(after(false), Scan::Slow(_)));
            let slow = after(true).knobs(&snapshot.topology);
            assert!(slow.is_some_and(|knobs| knobs.delay.0 > 500_000_000));
        }
    }

    #[test]
    fn base_pages_of_which_some_are_told_of_count_as_all_that_they_stand_for() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.region(0, &[(1, 240)], &[(1, 240)]);
        let mut snapshot = scene.snapshot();
        snapshot.tasks[0].remote_faults = 240;
        snapshot.tasks[0].age = Nanos(1_000_000_000);
        let after =
            |faults, pages| Scan::Seek.after(&snapshot, &plan(false, 500), seen(faults, pages));
        assert_eq!([after(30, 30), after(30, 30 * 512)], [Scan::Seek; 2]);
        assert_eq!(after(30, 240), Scan::QuickBase(QUICK_PASS.0));
    }

    #[test]
    fn a_pass_over_base_pages_takes_as_long_as_their_faults_may() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.region(0, &[(1, 10)], &[(0, 512)]);
        let mut snapshot = scene.snapshot();
        // 10,000 pages at one a millisecond: 10 s, and the next power of two.
        snapshot.regions[0].len = Bytes(10_000 * snapshot.page_size.0);
        assert_eq!(Scan::Quick.after(&snapshot, &plan(true, 950), BASE), Scan::Slow(16_384));
        // 40,000 at twenty: 2 s, and the next power of two.
        snapshot.regions[0].len = Bytes(40_000 * snapshot.page_size.0);
        snapshot.tasks[0].remote_faults = 10;
        assert_eq!(Scan::Quick.after(&snapshot, &plan(false, 500), BASE), Scan::QuickBase(2048));
        snapshot.regions[0].len = Bytes(1 << 40);
        assert_eq!(Scan::Quick.after(&snapshot, &plan(true, 950), BASE), Scan::Slow(600_000));
    }

    #[test]
    fn what_memory_was_made_of_long_ago_is_forgotten() {
        let mut seen = Seen::default();
        (0..100).for_each(|_| seen.add(1000, 1000));
        assert_eq!((seen.faults, seen.pages), (100_000, 100_000), "all count");
        (0..1000).for_each(|_| seen.add(1_000_000, 1_000_000));
        assert!(seen.is_base() && seen.is_enough());
        (0..100).for_each(|_| seen.add(1000, 512_000));
        assert!(!seen.is_base() && seen.is_enough(), "{seen:?}");
    }

    #[test]
    fn huge_pages_that_go_to_and_fro_do_so_as_seldom_as_moving_them_takes_long() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.region(0, &[(1, 10)], &[(0, 256), (1, 256)]);
        let mut snapshot = scene.snapshot();
        snapshot.regions[0].len = Bytes(16_384 * snapshot.page_size.0);
        let mut after = |page_move, strength| {
            snapshot.costs.page_move = Nanos(page_move);
            Scan::Quick.after(&snapshot, &plan(true, strength), HUGE)
        };
        // Half of 16,384 pages at 6 us are 49 ms, a fifth of a hundredth of 25 s; a quarter, of 12 s.
        assert_eq!([after(6000, 500), after(6000, 750)], [Scan::Slow(32_768), Scan::Slow(16_384)]);
        assert_eq!(after(1_000_000, 500), Scan::Slow(SLOW_PASS.1));
        assert_eq!([after(1000, 500), after(0, 500)], [Scan::Slow(16_384); 2], "one a millisecond");
        assert_eq!(after(6000, 950), Scan::SlowHuge, "all is local");
    }

    #[test]
    fn base_pages_are_hardly_looked_at_before_processes_came_together() {
        let mut scene = Scene::two_by_four();
        scene.busy(4);
        scene.edit().tasks.iter_mut().for_each(|task| task.age = Nanos(1_000_000_000));
        scene.edit().costs.fault = Nanos(100_000);
        // 40,000 pages: a twentieth of four tasks' time is two faults a millisecond, and quick are twenty.
        let begun = Seen { new_base: Bytes(40_000 * 4096), ..Seen::default() };
        let after = |scene: &Scene, plan: &Plan| Scan::Seek.after(&scene.snapshot(), plan, begun);
        let none = plan(false, 0);
        (1..=3).for_each(|tid| scene.at_home(tid, 0));
        assert_eq!(after(&scene, &none), Scan::SeekBase(16_000), "one is left");
        let (node, cpus) = (NodeId(0), "0-3".parse().unwrap());
        let (task, reason) = (task_id(4), numaherd_model::Reason::Balance);
        let last = Action::PlaceTask { task, node, cpus, reason };
        let places = Plan { actions: vec![last], ..none.clone() };
        assert_eq!(after(&scene, &places), Scan::QuickBase(2048));
        scene.at_home(4, 1);
        assert_eq!(after(&scene, &none), Scan::SeekBase(16_000), "one is elsewhere");
        scene.edit().tasks[3].process.tgid += 1;
        assert_eq!(after(&scene, &none), Scan::QuickBase(1024), "two processes");
        // Where faults take no time worth speaking of, it is as with huge pages.
        scene.edit().costs.fault = Nanos(1000);
        scene.edit().tasks[3].process.tgid -= 1;
        assert_eq!(after(&scene, &none), Scan::Seek);
    }

    #[test]
    fn where_faults_take_long_they_come_slowly() {
        let mut scene = Scene::two_by_four();
        for tid in 1..=4 {
            scene.task(tid, tid - 1, 1000);
            scene.region(u64::from(tid), &[(tid, 10)], &[(0, 512)]);
        }
        let mut snapshot = scene.snapshot();
        snapshot.tasks.iter_mut().for_each(|task| task.age = Nanos(1_000_000_000));
        let both = |snapshot: &Snapshot| {
            [BASE, HUGE].map(|seen| Scan::Seek.after(snapshot, &plan(true, 950), seen))
        };
        assert_eq!(both(&snapshot), [Scan::Slow(2048), Scan::SlowHuge]);
        // One in 50 ms, for 2048.
        snapshot.costs.fault = Nanos(100_000);
        assert_eq!(both(&snapshot), [Scan::Slow(131_072), Scan::SlowHuge]);
    }

    #[test]
    fn base_pages_that_are_well_are_not_looked_at_quickly() {
        let mut scene = Scene::two_by_four();
        scene.task(1, 0, 1000);
        scene.region(0, &[(1, 1000)], &[(0, 512)]);
        let mut snapshot = scene.snapshot();
        let mut after = |remote, faults| {
            snapshot.tasks[0].remote_faults = remote;
            Scan::Seek.after(&snapshot, &plan(false, 500), faults)
        };
        assert_eq!([after(100, BASE), after(101, BASE)], [Scan::Slow(2000), Scan::QuickBase(1000)]);
        assert_eq!(after(0, HUGE), Scan::Quick, "those cost little");
    }
}
