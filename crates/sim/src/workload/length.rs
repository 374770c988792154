//! How long a workload takes at least: one that cannot end within what is simulated is told at once, rather than
//! after minutes.

use numaherd_model::Nanos;

use super::Workload;
use crate::SimError;
use crate::machine::LINE_BYTES;

/// Lines take by chance a little less or more than their mean.
const SURELY: f64 = 0.9;

impl Workload {
    /// Seconds on a machine of so many CPUs that a line takes so many nanoseconds at least.
    ///
    /// Worked example: two threads that write 1 GiB each a thousand times, on one CPU at a nanosecond a line of 64
    /// bytes: 2000 x 16.8 ms, 34 s, of which nine tenths are sure.
    fn least_seconds(&self, cpus: usize, line_ns: f64) -> f64 {
        // Of one that something may end sooner, what it goes over says nothing.
        let ends_alone = self.process.iter().all(|process| {
            process.programs.as_ref().is_none_or(|programs| programs.duration.is_none())
        });
        let bytes = if ends_alone { self.bytes(cpus) } else { 0.0 };
        let going_over = bytes / LINE_BYTES * line_ns / 1e9 / cpus as f64;
        let of_time = self.process.iter().map(|process| {
            if let Some(programs) = &process.programs {
                return programs.least_seconds();
            }
            let phases = process.phase.iter().filter_map(|phase| phase.seconds);
            f64::from(process.rounds.unwrap_or(1)) * phases.sum::<f64>()
        });
        of_time.fold(going_over * SURELY, f64::max)
    }

    /// Whether it may end in time.
    ///
    /// # Errors
    /// [`SimError::Unfit`] if it surely does not.
    pub(crate) fn check_length(
        &self,
        cpus: usize,
        line_ns: f64,
        limit: Nanos,
    ) -> Result<(), SimError> {
        let (least, limit) = (self.least_seconds(cpus, line_ns), limit.as_secs_f64());
        if least <= limit {
            return Ok(());
        }
        let problem = format!(
            "it takes {least:.0} simulated seconds at least, and no more than {limit:.0} are simulated: give \
             --loops, or its phases fewer times or seconds"
        );
        Err(SimError::Unfit { problem })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::slices;
    use super::*;

    #[test]
    fn what_cannot_end_in_time_is_told_before_it_begins() {
        let mut workload = slices(2, 2048, 1000);
        // 2^31 bytes a thousand times, in lines of 64 bytes at a nanosecond, on one CPU.
        let expected = 33.554_432 * SURELY;
        assert!((workload.least_seconds(1, 1.0) - expected).abs() < 1e-9);
        assert!((workload.least_seconds(2, 1.0) - expected / 2.0).abs() < 1e-9);
        let check = |workload: &Workload, seconds| {
            let checked = workload.check_length(1, 1.0, Nanos::from_secs_f64(seconds));
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check(&workload, 31.0), Ok(()));
        let said = check(&workload, 30.0).unwrap_err();
        assert!(
            said.contains("30 simulated seconds at least") && said.contains("--loops"),
            "{said}"
        );
        (workload.process[0].phase[0].times, workload.process[0].rounds) = (0, Some(7));
        workload.process[0].phase[0].seconds = Some(5.0);
        assert_eq!((check(&workload, 35.0), check(&workload, 34.0).is_err()), (Ok(()), true));
    }
}
