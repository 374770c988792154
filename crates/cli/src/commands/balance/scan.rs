//! Turning the knobs of the kernel's scans, with `--tune-kernel`. Which setting is decided in
//! [`numaherd_placement::scan`], for the simulator too.

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

/// The setting that the kernel has.
pub struct Tuner(Scan);

impl Tuner {
    /// Has the kernel look for those who are about to begin.
    pub fn start(session: &mut Session, topology: &Topology) -> Result<Tuner> {
        tune(session, Scan::Seek, topology)?;
        Ok(Tuner(Scan::Seek))
    }

    /// Has the kernel scan as slowly as when all has converged: nobody is there to look after, perhaps for days. Who
    /// comes has it look again.
    pub fn rest(&mut self, session: &mut Session, topology: &Topology) -> Result<()> {
        self.set(session, DESERTED, topology)
    }

    /// Sets what comes after a turn, with all that was seen so far.
    pub fn turned(&mut self, session: &mut Session, turn: &Turn, seen: Seen) -> Result<()> {
        let next = self.0.after(&turn.snapshot, &turn.plan, seen);
        self.set(session, next, &turn.snapshot.topology)
    }

    /// Sets what the kernel has not got yet.
    fn set(&mut self, session: &mut Session, next: Scan, topology: &Topology) -> Result<()> {
        match std::mem::replace(&mut self.0, next) == next {
            true => Ok(()),
            false => tune(session, next, topology),
        }
    }
}

/// Has the kernel tell of who uses which memory, or not.
pub fn switch(session: &mut Session, on: bool) -> Result<()> {
    let mode = knobs::read_number(Path::new("/"), Knob::NumaBalancing).unwrap_or_default();
    set(session, Knob::NumaBalancing, &with_faults(mode, on).to_string())
}

/// The mode that has hinting faults or has none, whatever else is on: a kernel that tiers memory goes on with it.
fn with_faults(mode: Option<u64>, on: bool) -> u64 {
    mode.unwrap_or(0) & !1 | u64::from(on)
}

/// Sets all of a setting's knobs.
fn tune(session: &mut Session, scan: Scan, topology: &Topology) -> Result<()> {
    let knobs = scan.knobs(topology);
    for (knob, value) in knobs.map_or_else(Vec::new, values) {
        set(session, knob, &value.to_string())?;
    }
    // Knobs first: it starts with those that it is to go on with.
    switch(session, knobs.is_some())
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

/// Sets one knob. One that the kernel keeps locked stays as it is, and we go on without.
fn set(session: &mut Session, knob: Knob, value: &str) -> Result<()> {
    match session.set_knob(knob, value) {
        Err(error) if is_locked(&error) => {
            say!("numaherd: {error}: it stays as it is");
            Ok(())
        }
        set => set,
    }
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
