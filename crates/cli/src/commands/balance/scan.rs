//! Turning the knobs of the kernel's scans, with `--tune-kernel`. Which setting is decided in
//! [`numaherd_placement::scan`], for the simulator too.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
use numaherd_control::Turn;
use numaherd_linux::ReadError;
use numaherd_linux::knobs::{self, Knob, KnobError};
use numaherd_model::{Nanos, ScanPeriods, Topology};
use numaherd_placement::{Scan, Seen};

use crate::session::Session;

/// The setting while nobody is there.
const DESERTED: Scan = Scan::SlowHuge;

/// Whose knobs they are: the kernel's, through a session that puts them back, or a test's.
pub trait Knobs {
    /// The mode of the kernel's balancing; none where it has no such thing.
    fn mode(&self) -> Option<u64>;
    /// Sets one.
    fn set(&mut self, knob: Knob, value: &str) -> Result<()>;
}

impl Knobs for Session {
    fn mode(&self) -> Option<u64> {
        knobs::read_number(Path::new("/"), Knob::NumaBalancing).unwrap_or_default()
    }

    fn set(&mut self, knob: Knob, value: &str) -> Result<()> {
        self.set_knob(knob, value)
    }
}

/// The setting that the kernel has, if any of ours yet, and which knobs it keeps from us.
#[derive(Default)]
pub struct Tuner {
    scan: Option<Scan>,
    locked: BTreeSet<Knob>,
}

impl Tuner {
    /// Has the kernel tell of who uses which memory.
    pub fn begin(session: &mut impl Knobs) -> Result<Tuner> {
        let mut tuner = Tuner::default();
        tuner.switch(session, true)?;
        Ok(tuner)
    }

    /// Has the kernel look for those who are about to begin.
    pub fn seek(mut self, session: &mut impl Knobs, topology: &Topology) -> Result<Tuner> {
        self.set(session, Scan::Seek, topology)?;
        Ok(self)
    }

    /// Has the kernel scan as slowly as when all has converged: nobody is there to look after, perhaps for days. Who
    /// comes has it look again.
    pub fn rest(&mut self, session: &mut impl Knobs, topology: &Topology) -> Result<()> {
        self.set(session, DESERTED, topology)
    }

    /// Sets what comes after a turn, with all that was seen so far.
    pub fn turned(&mut self, session: &mut impl Knobs, turn: &Turn, seen: Seen) -> Result<()> {
        let next = self.scan.unwrap_or(Scan::Seek).after(&turn.snapshot, &turn.plan, seen);
        self.set(session, next, &turn.snapshot.topology)
    }

    /// Sets what the kernel has not got yet.
    fn set(&mut self, session: &mut impl Knobs, next: Scan, topology: &Topology) -> Result<()> {
        match self.scan.replace(next) == Some(next) {
            true => Ok(()),
            false => self.tune(session, next, topology),
        }
    }

    /// Sets all of a setting's knobs.
    fn tune(&mut self, session: &mut impl Knobs, scan: Scan, topology: &Topology) -> Result<()> {
        let knobs = scan.knobs(topology);
        // The switch may be refused to us where the others are not (it takes CAP_SYS_ADMIN): then it scans slowly.
        let slowest = knobs.or_else(|| Scan::SlowHuge.knobs(topology));
        for (knob, value) in slowest.map_or_else(Vec::new, values) {
            self.turn(session, knob, &value.to_string())?;
        }
        // Knobs first: it starts with those that it is to go on with.
        self.switch(session, knobs.is_some())
    }

    /// Has the kernel tell of who uses which memory, or not.
    fn switch(&mut self, session: &mut impl Knobs, on: bool) -> Result<()> {
        let mode = with_faults(session.mode(), on);
        self.turn(session, Knob::NumaBalancing, &mode.to_string())
    }

    /// Sets one knob. One that the kernel keeps locked stays as it is, and we go on without.
    fn turn(&mut self, session: &mut impl Knobs, knob: Knob, value: &str) -> Result<()> {
        if self.locked.contains(&knob) {
            return Ok(());
        }
        match session.set(knob, value) {
            Err(error) if is_locked(&error) => {
                say!("numaherd: {error}: it stays as it is");
                self.locked.insert(knob);
                Ok(())
            }
            set => set,
        }
    }
}

/// The mode that has hinting faults or has none, whatever else is on: a kernel that tiers memory goes on with it.
fn with_faults(mode: Option<u64>, on: bool) -> u64 {
    mode.unwrap_or(0) & !1 | u64::from(on)
}

/// The knobs with their values.
fn values(periods: ScanPeriods) -> Vec<(Knob, u64)> {
    let ms = |time: Nanos| time.0 / 1_000_000;
    vec![
        (Knob::ScanSize, periods.size.0 >> 20),
        (Knob::ScanDelay, ms(periods.delay)),
        (Knob::ScanPeriodMin, ms(periods.min)),
        (Knob::ScanPeriodMax, ms(periods.max)),
    ]
}

/// Whether a knob is refused to us: lockdown closes debugfs even to root, and in containers /proc/sys can
/// mostly be read only.
fn is_locked(error: &anyhow::Error) -> bool {
    let source = match (error.downcast_ref::<ReadError>(), error.downcast_ref::<KnobError>()) {
        (Some(ReadError::Read { source, .. }), _) => source,
        (_, Some(KnobError::Refused { source, .. })) => source,
        _ => return false,
    };
    matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use numaherd_model::scene::Scene;
    use numaherd_model::{Bytes, Plan, Waiting};

    use super::*;

    /// However long others were there before.
    #[test]
    fn who_comes_where_nobody_was_has_the_kernel_look_quickly_again() {
        let mut scene = Scene::two_by_four();
        scene.busy(1);
        let mut snapshot = scene.snapshot();
        let plan =
            Plan { waiting: Some(Waiting::Evidence { known: 0, busy: 1 }), ..Plan::default() };
        for faults in [0, 100_000] {
            let pages = 512 * faults;
            let seen = Seen { faults, pages, new_base: Bytes(0), storm: false, told: true };
            snapshot.tasks[0].age = Nanos(0);
            assert_eq!(DESERTED.after(&snapshot, &plan, seen), Scan::Seek);
            snapshot.tasks[0].age = Nanos(60_000_000_000);
            assert_eq!(DESERTED.after(&snapshot, &plan, seen), Scan::Quick);
        }
    }

    /// Knobs of which the kernel's switch is refused, and how often anything was tried.
    #[derive(Default)]
    struct Refusing(BTreeMap<Knob, String>, usize);

    impl Knobs for Refusing {
        fn mode(&self) -> Option<u64> {
            Some(1)
        }

        fn set(&mut self, knob: Knob, value: &str) -> Result<()> {
            if knob == Knob::NumaBalancing && value != "1" {
                self.1 += 1;
                let path = "/proc/sys/kernel/numa_balancing".into();
                let source = ErrorKind::PermissionDenied.into();
                return Err(KnobError::Refused { path, value: value.into(), source }.into());
            }
            self.0.insert(knob, value.into());
            Ok(())
        }
    }

    #[test]
    fn a_kernel_that_may_not_be_switched_off_scans_slowly_and_is_not_asked_again() {
        let topology = Scene::two_by_four().snapshot().topology;
        let mut knobs = Refusing::default();
        let mut tuner = Tuner::begin(&mut knobs).unwrap().seek(&mut knobs, &topology).unwrap();
        let quick = knobs.0.clone();
        tuner.rest(&mut knobs, &topology).unwrap();
        let slow = knobs.0.clone();
        assert!(slow != quick && slow.len() == 5);
        for _ in 0..2 {
            tuner.set(&mut knobs, Scan::Seek, &topology).unwrap();
            assert_eq!(knobs.0, quick);
            tuner.set(&mut knobs, Scan::Off, &topology).unwrap();
            assert_eq!((&knobs.0, knobs.1), (&slow, 1));
        }
    }

    #[test]
    fn a_knob_that_root_may_not_set_or_that_is_mounted_to_be_read_only_is_locked() {
        let refused = |kind: ErrorKind| {
            let path = "/proc/sys/kernel/numa_balancing".into();
            let error = KnobError::Refused { path, value: "1".into(), source: kind.into() };
            is_locked(&error.into())
        };
        assert!(refused(ErrorKind::PermissionDenied) && refused(ErrorKind::ReadOnlyFilesystem));
        assert!(!refused(ErrorKind::InvalidInput));
    }

    #[test]
    fn a_kernel_that_tiers_memory_goes_on_with_it() {
        let modes = [None, Some(0), Some(1), Some(2), Some(3)];
        assert_eq!(modes.map(|mode| with_faults(mode, true)), [1, 1, 1, 3, 3]);
        assert_eq!(modes.map(|mode| with_faults(mode, false)), [0, 0, 0, 2, 2]);
    }
}
