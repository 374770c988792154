//! How fast the kernel scans for us, with `--tune-kernel`: quickly while evidence is needed, and a little
//! for ever once all has converged.

use anyhow::Result;
use numaherd_control::Turn;
use numaherd_linux::ReadError;
use numaherd_linux::knobs::{Knob, KnobError};
use numaherd_model::{Action, Nanos, Task, Waiting};
use numaherd_placement::demand::CLAIMS_A_CPU;
use numaherd_placement::herd::CONVERGED_PERMILLE;

use crate::session::Session;

/// Pages a fault from which faults are mostly of huge pages. Guessed: a fifth of them is.
const MOSTLY_HUGE: u64 = 100;

/// Tasks younger than this are still to be scanned for the first time. Guessed.
const YOUNG: Nanos = Nanos(3_000_000_000);

/// One of four settings.
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
    /// A little, but without end. Left to itself the kernel scans ever more seldom, and a program that
    /// goes on with other memory was not noticed for 24 s (phases, 6.12). At most 2048 base pages a
    /// second of a process are armed so, which at a microsecond or two a fault is less than 0.5 % of a
    /// CPU.
    Slow,
    /// The same where memory is in huge pages, of which so much is 16 a second of a process. Larger pieces
    /// at the same pace were no help: 6.12 goes on with a mapping that it has begun, but begins one only
    /// for a thread that has faulted in it of late (with 256 MiB every 2 s it hardly scanned at all).
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
        let slow = matches!(self, Scan::Slow | Scan::SlowHuge);
        let stays = slow && plan.waiting.is_none() && local && !places;
        let enough = plan.converged || stays && !turn.snapshot.stirred;
        let young = |task: &Task| task.busy_permille >= CLAIMS_A_CPU && task.age < YOUNG;
        let seeks = matches!(plan.waiting, Some(Waiting::Evidence { .. }));
        match enough {
            false if seeks && turn.snapshot.tasks.iter().any(young) => Scan::Seek,
            false => Scan::Quick,
            // Who uses memory from several nodes has its pages sent to and fro by each fault.
            true if local && pages >= faults * MOSTLY_HUGE => Scan::SlowHuge,
            true => Scan::Slow,
        }
    }

    /// Sets its knobs.
    pub fn set(self, session: &mut Session) -> Result<()> {
        let (size, delay, period) = match self {
            Scan::Seek => ("256", "100", "100"),
            Scan::Quick => ("256", "300", "100"),
            Scan::Slow => ("16", "1000", "2000"),
            Scan::SlowHuge => ("16", "1000", "500"),
        };
        let (min, max) = (Knob::ScanPeriodMin, Knob::ScanPeriodMax);
        let knobs =
            [(Knob::ScanSize, size), (Knob::ScanDelay, delay), (min, period), (max, period)];
        knobs.into_iter().try_for_each(|(knob, value)| set(session, knob, value))
    }
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
