//! Whether a vCPU is ahead of the clock or behind, and what follows.
//!
//! A vCPU may run `quantum` ahead. Then it sleeps until the clock has caught up. One that is
//! behind keeps its lag and makes it good by not sleeping. The clock is read only when virtual
//! time passes a check point. Pure arithmetic; all in guest picoseconds.
//!
//! ```text
//! quantum 50: clock 100, virtual 160 → sleep until 160     clock 100, virtual 90 → run, look
//!                                                           again at virtual 150
//! ```

/// A vCPU that is behind looks at the clock at least once in this many quanta of its own time,
/// so that its published counters do not grow old. Guessed.
const QUANTA_BETWEEN_LOOKS: u64 = 16;

/// What to do at a check point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Sleep until the clock shows this.
    SleepUntil {
        /// Guest time.
        guest_ps: u64,
    },
    /// Go on, and look at the clock again when virtual time reaches this.
    RunUntil {
        /// Virtual time.
        virtual_ps: u64,
    },
}

/// The rule.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How far ahead of the clock a vCPU may run.
    pub quantum_ps: u64,
}

impl Pace {
    /// What a vCPU does whose virtual time is `virtual_ps` while the clock shows `now_ps`.
    #[must_use]
    pub fn judge(self, virtual_ps: u64, now_ps: u64) -> Verdict {
        let limit_ps = now_ps + self.quantum_ps;
        if virtual_ps >= limit_ps {
            return Verdict::SleepUntil { guest_ps: virtual_ps };
        }
        Verdict::RunUntil {
            virtual_ps: limit_ps.min(virtual_ps + QUANTA_BETWEEN_LOOKS * self.quantum_ps),
        }
    }
}

/// Time by which a vCPU is behind.
#[must_use]
pub fn lag_ps(virtual_ps: u64, now_ps: u64) -> u64 {
    now_ps.saturating_sub(virtual_ps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { quantum_ps: 50 };

    #[test]
    fn ahead_by_a_quantum_sleeps_until_level() {
        assert_eq!(PACE.judge(160, 100), Verdict::SleepUntil { guest_ps: 160 });
        assert_eq!(PACE.judge(150, 100), Verdict::SleepUntil { guest_ps: 150 });
    }

    #[test]
    fn less_than_a_quantum_ahead_runs_on() {
        assert_eq!(PACE.judge(149, 100), Verdict::RunUntil { virtual_ps: 150 });
    }

    #[test]
    fn behind_runs_without_sleeping_but_looks_up_now_and_then() {
        assert_eq!(PACE.judge(90, 100), Verdict::RunUntil { virtual_ps: 150 });
        assert_eq!(PACE.judge(1_000, 100_000), Verdict::RunUntil { virtual_ps: 1_800 });
    }

    #[test]
    fn a_check_point_always_lies_ahead() {
        for now_ps in 0..200 {
            for virtual_ps in 0..200 {
                if let Verdict::RunUntil { virtual_ps: next } = PACE.judge(virtual_ps, now_ps) {
                    assert!(next > virtual_ps);
                }
            }
        }
    }

    #[test]
    fn lag_is_never_negative() {
        assert_eq!(lag_ps(90, 100), 10);
        assert_eq!(lag_ps(110, 100), 0);
    }
}
