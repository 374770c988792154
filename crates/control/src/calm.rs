//! Whether there is little left to find out, so that looking at what tasks access is hardly worth what it takes.

use numaherd_model::{HintingFault, Nanos, Waiting};

use crate::Turn;

/// With nothing planned for so long nothing more is found out soon. Guessed: a few looks, and as many samples of each
/// CPU as tell a hundred pieces of memory apart.
const PATIENCE: Nanos = Nanos(2_000_000_000);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm {
    /// Since when nothing was planned.
    since: Option<Nanos>,
    calm: bool,
}

impl Calm {
    /// A turn, and whether others are busy at each: who comes and goes all the time is over before it is known.
    pub fn turned(&mut self, turn: &Turn, storm: bool) -> bool {
        let now = turn.snapshot.time;
        let waits = matches!(turn.plan.waiting, Some(Waiting::Evidence { .. }));
        let idle = turn.plan.actions.is_empty() && !turn.snapshot.stirred && !waits;
        self.since = if idle { self.since.or(Some(now)) } else { None };
        let patient = self.since.is_some_and(|since| now.since(since) >= PATIENCE);
        self.calm = turn.rests() || storm || patient;
        self.calm
    }

    /// What the last turn came to.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.calm
    }

    /// How many of the faults that were heard are news: of samples none while it is calm, since these come all the time.
    #[must_use]
    pub fn news(&self, heard: &[HintingFault]) -> usize {
        let counts = |fault: &&HintingFault| !(self.calm && fault.is_sample());
        heard.iter().filter(counts).count()
    }
}

#[cfg(test)]
mod tests {
    use numaherd_model::{FaultFlags, Plan};

    use super::*;
    use crate::controller::{self, tests::snapshot};

    #[test]
    fn it_is_calm_when_all_rests_or_others_come_all_the_time_or_nothing_was_planned_for_a_while() {
        let turn = |seconds: u64, plan: Plan| {
            let mut snapshot = snapshot(2);
            snapshot.time = Nanos(seconds * 1_000_000_000);
            snapshot.tasks.iter_mut().for_each(|task| task.age = PATIENCE);
            controller::tests::turn(snapshot, plan)
        };
        let mut calm = Calm::default();
        let part = || Plan { strength_permille: 700, ..Plan::default() };
        assert!(calm.turned(&turn(1, Plan { converged: true, ..part() }), false));
        assert!(!calm.turned(&turn(2, part()), false), "since a second");
        assert!(calm.turned(&turn(3, part()), false) && calm.turned(&turn(9, part()), false));
        let waits = || Plan { waiting: Some(Waiting::Evidence { known: 1, busy: 2 }), ..part() };
        assert!(!calm.turned(&turn(10, waits()), false) && !calm.turned(&turn(11, part()), false));
        assert!(calm.turned(&turn(12, waits()), true));
        let fault = crate::evidence::tests::fault(1, 0, 0, None);
        let sample = HintingFault { flags: FaultFlags(FaultFlags::SAMPLE), ..fault };
        assert_eq!(calm.news(&[fault, sample]), 1);
        assert!(!calm.turned(&turn(13, part()), false));
        assert_eq!(calm.news(&[fault, sample]), 2);
    }
}
