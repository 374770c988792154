//! When all had converged: at the last change after which nothing was left to do.
//!
//! Once tasks have ended since, the load is another one, and what is done about those that are left does not undo that:
//! a program that is over in a moment would otherwise converge when it ends.

use numaherd_model::Nanos;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Convergence {
    last_change: Nanos,
    /// When, and how many tasks had ended by then.
    converged: Option<(Nanos, u64)>,
}

impl Convergence {
    /// A turn: whether it changed anything, whether all has converged, and how many tasks have ended so far.
    pub fn turned(&mut self, now: Nanos, changed: bool, converged: bool, ended: u64) {
        if self.converged.is_some_and(|(_, then)| ended > then) {
            return;
        }
        if changed {
            self.last_change = now;
            self.converged = None;
        }
        if converged {
            self.converged = Some((self.last_change, ended));
        }
    }

    /// When, if it has.
    #[must_use]
    pub fn at(&self) -> Option<Nanos> {
        self.converged.map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After turns, each a time with what was changed, had converged and had ended.
    fn after(turns: &[(u64, bool, bool, u64)]) -> Option<u64> {
        let mut convergence = Convergence::default();
        for (now, changed, converged, ended) in turns {
            convergence.turned(Nanos(*now), *changed, *converged, *ended);
        }
        convergence.at().map(|at| at.0)
    }

    #[test]
    fn it_is_the_last_change_before_nothing_was_left_to_do() {
        assert_eq!(after(&[(1, true, false, 0), (2, true, false, 0)]), None);
        assert_eq!(
            after(&[(1, true, false, 0), (2, true, false, 0), (9, false, true, 0)]),
            Some(2)
        );
        assert_eq!(
            after(&[(1, true, false, 0), (2, false, true, 0), (3, false, false, 0)]),
            Some(1)
        );
    }

    #[test]
    fn another_change_undoes_it_and_one_after_somebody_ended_does_not() {
        let settled = [(1, true, false, 2), (3, false, true, 2)];
        let then = |more: &[_]| after(&[&settled[..], more].concat());
        assert_eq!(then(&[(7, true, false, 2)]), None);
        assert_eq!(then(&[(7, true, false, 2), (8, false, true, 3)]), Some(7));
        assert_eq!(then(&[(7, true, false, 3), (8, true, true, 4)]), Some(1));
    }
}
