//! What one process of a workload is made of: memory, threads with their homes, and the work of
//! one thread.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::span::Span;
use crate::tally::{Harvest, Measured, Tally};
use crate::{Setting, Unit, WorkloadError, marker, sys, team};

/// The work of the thread with this index.
pub type Work<'a> = dyn Fn(usize, &mut Tally) -> Result<(), WorkloadError> + Sync + 'a;

/// One process, its memory touched, its threads not started yet.
pub struct Job<'a> {
    /// For each thread the nodes, as indices, where `bind` runs it.
    pub homes: Vec<Range<usize>>,
    /// What each thread does.
    pub work: Box<Work<'a>>,
    /// Its memory, where it is one span.
    #[cfg_attr(not(test), allow(dead_code))]
    pub span: Option<Arc<Span>>,
}

impl<'a> Job<'a> {
    /// Of threads that work on one span.
    pub fn over(
        span: Span,
        homes: Vec<Range<usize>>,
        work: impl Fn(&Span, usize, &mut Tally) + Sync + Send + 'a,
    ) -> Job<'a> {
        let span = Arc::new(span);
        let shared = Arc::clone(&span);
        let work = move |index: usize, tally: &mut Tally| {
            work(&shared, index, tally);
            Ok(())
        };
        Job { homes, work: Box::new(work), span: Some(span) }
    }

    /// Of threads that bring their own.
    pub fn of(
        homes: Vec<Range<usize>>,
        work: impl Fn(usize, &mut Tally) -> Result<(), WorkloadError> + Sync + 'a,
    ) -> Job<'a> {
        Job { homes, work: Box::new(work), span: None }
    }

    /// Runs it: `go` lets the threads work and answers when that was.
    pub fn run(
        &self,
        setting: &Setting,
        go: impl FnOnce() -> Result<u64, WorkloadError>,
    ) -> Result<Harvest, WorkloadError> {
        team::run(setting, &self.homes, &*self.work, go)
    }

    /// Runs it as the only process of a workload that began at `begin`.
    pub fn run_alone(
        &self,
        setting: &Setting,
        unit: Unit,
        begin: Instant,
    ) -> Result<Measured, WorkloadError> {
        let mut start_ns = 0;
        let harvest = self.run(setting, || {
            start_ns = sys::monotonic_ns();
            marker::begin();
            Ok(start_ns)
        })?;
        marker::end();
        Ok(harvest.measured(unit, start_ns, begin.elapsed().as_secs_f64()))
    }
}
