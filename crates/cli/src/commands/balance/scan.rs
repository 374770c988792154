//! How fast the kernel scans for us, with `--tune-kernel`: quickly while evidence is needed, and a little
//! for ever once all has converged.

use anyhow::Result;
use numaherd_control::Turn;
use numaherd_linux::ReadError;
use numaherd_linux::knobs::{Knob, KnobError};
use numaherd_model::{Action, Nanos, Region, Snapshot, Task, Waiting};
use numaherd_placement::demand::CLAIMS_A_CPU;
use numaherd_placement::herd::CONVERGED_PERMILLE;

use crate::session::Session;

/// Pages a fault from which faults are mostly of huge pages. Guessed: a fifth of them is.
const MOSTLY_HUGE: u64 = 100;

/// Tasks younger than this are still to be scanned for the first time. Guessed.
const YOUNG: Nanos = Nanos(3_000_000_000);

/// Faults by which it is known whether they are of huge pages. Guessed.
const ENOUGH_FAULTS: u64 = 200;

/// Base pages a second that may fault once all has converged: at a microsecond or two each, 0.5 % of a CPU.
const SLOW_FAULTS_A_MS: u64 = 4;

/// Bounds of the time of a slow pass over a process's memory, in milliseconds: the upper is the kernel's own.
const SLOW_PASS: (u64, u64) = (2000, 60_000);

/// One of five settings. The kernel's scan period is the time of a pass over all that a process has
/// resident, taken in pieces of the scan size (`task_scan_min`, v6.12), at 2.5 GB/s at the most. Pieces
/// are small, because a piece is also what it takes to pass by a mapping in which the scanning thread has
/// not faulted of late (since 6.7): with 256 MiB every 2 s, memory of 64 MiB was hardly scanned any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// As below, and tasks born now are scanned the soonest: a thread inherits the delay as its first
    /// period. Only while tasks are young, for the reason below.
    Seek,
    /// Soon and often. The upper bound matters as much as the lower: seen on 6.12, the kernel takes
    /// most faults for private ones and scans ever slower. The delay must not be too short either:
    /// since 6.4 the kernel forgets within four delays which threads use a mapping, and with 100 ms
    /// it hardly scanned at all any more; 300 ms gave the earliest evidence of 100, 300, 500 and 1000
    /// (numa01 on the emulated 2x4).
    Quick,
    /// The same where memory is in base pages: as often as the kernel itself does at its quickest. At the
    /// pace for huge pages, 20,000 faults came between two looks (jbb-like of 320 MiB).
    QuickBase,
    /// A little, but without end: a pass over so many milliseconds. Its pieces are the smallest, since
    /// they count at once and the period only when the pass that is under way has ended. Left to itself the kernel scans ever
    /// more seldom, and a program that goes on with other memory was not noticed for 24 s (phases, 6.12).
    Slow(u64),
    /// The same where memory is in huge pages.
    SlowHuge,
}

impl Scan {
    /// What a turn asks for, with so many faults so far and the pages of those. The kernel need not scan
    /// quickly when all has converged, or was so and nearly all is local still: a few stragglers do not
    /// need everybody's memory looked at ten times a second.
    pub fn after(self, turn: &Turn, (faults, pages): (u64, u64)) -> Scan {
        let plan = &turn.plan;
        let places = plan.actions.iter().any(|action| matches!(action, Action::PlaceTask { .. }));
        let local = plan.strength_permille >= CONVERGED_PERMILLE;
        let slow = matches!(self, Scan::Slow(_) | Scan::SlowHuge);
        let stays = slow && plan.waiting.is_none() && local && !places;
        let enough = plan.converged || stays && !turn.snapshot.stirred;
        let young = |task: &Task| task.busy_permille >= CLAIMS_A_CPU && task.age < YOUNG;
        let seeks = matches!(plan.waiting, Some(Waiting::Evidence { .. }));
        let huge = faults < ENOUGH_FAULTS || pages >= faults * MOSTLY_HUGE;
        match (enough, huge) {
            (false, true) if seeks && turn.snapshot.tasks.iter().any(young) => Scan::Seek,
            (false, true) => Scan::Quick,
            (false, false) => Scan::QuickBase,
            // Who uses memory from several nodes has its pages sent to and fro by each fault.
            (true, true) if local => Scan::SlowHuge,
            (true, _) => Scan::Slow(slow_pass(&turn.snapshot)),
        }
    }

    /// Sets its knobs.
    pub fn set(self, session: &mut Session) -> Result<()> {
        let (size, delay, period) = match self {
            Scan::Seek => (32, 100, 100),
            Scan::Quick => (32, 300, 100),
            Scan::QuickBase => (32, 300, 1000),
            Scan::Slow(pass) => (1, 1000, pass),
            Scan::SlowHuge => (4, 1000, SLOW_PASS.0),
        };
        let (min, max) = (Knob::ScanPeriodMin, Knob::ScanPeriodMax);
        let knobs =
            [(Knob::ScanSize, size), (Knob::ScanDelay, delay), (min, period), (max, period)];
        knobs.into_iter().try_for_each(|(knob, value)| set(session, knob, &value.to_string()))
    }
}

/// The time of a slow pass, by the memory that the largest process was seen to use; a power of two, so that
/// it is not set anew for every region.
fn slow_pass(snapshot: &Snapshot) -> u64 {
    let of_process = snapshot.regions.chunk_by(|a, b| a.id.process == b.id.process);
    let pages = |regions: &[Region]| -> u64 {
        regions.iter().map(|region| region.len.pages(snapshot.page_size).0).sum()
    };
    let most = of_process.map(pages).max().unwrap_or(0);
    (most / SLOW_FAULTS_A_MS).next_power_of_two().clamp(SLOW_PASS.0, SLOW_PASS.1)
}

/// Sets one knob. One that the kernel keeps locked stays as it is, and we go on without.
pub fn set(session: &mut Session, knob: Knob, value: &str) -> Result<()> {
    match session.set_knob(knob, value) {
        Err(error) if is_locked(&error) => {
            eprintln!("numaherd: {error}: it stays as it is");
            Ok(())
        }
        set => set,
    }
}

/// Whether a knob is refused to us: lockdown closes debugfs even to root.
fn is_locked(error: &anyhow::Error) -> bool {
    let source = match (error.downcast_ref::<ReadError>(), error.downcast_ref::<KnobError>()) {
        (Some(ReadError::Read { source, .. }), _) => source,
        (_, Some(KnobError::Refused { source, .. })) => source,
        _ => return false,
    };
    source.kind() == std::io::ErrorKind::PermissionDenied
}
