//! numa02: one process, a thread per CPU, each writing its own slice of one allocation over
//! and over. Nothing is shared, so every thread has one best node.
//!
//! numa02_SMT is the same with a thread for every second CPU.

use crate::job::Job;
use crate::setting::{Piece, Setting};
use crate::span::Span;
use crate::{WorkloadError, slice};

/// The process.
pub fn job<'a>(setting: &Setting) -> Result<Job<'a>, WorkloadError> {
    setting.check_bytes(4096, "a page")?;
    let (size, loops) = (setting.params.size_bytes, setting.params.loops);
    let threads = setting.params.threads;
    let span = Span::map(size, setting.params.huge_pages)?;
    let homes: Vec<_> = (0..threads).map(|index| setting.layout.thread(threads, index)).collect();
    let pieces = homes.iter().cloned().enumerate();
    let piece = |(index, home)| Piece { part: slice(size, threads, index), home };
    setting.place(&span, pieces.map(piece), 0)?;
    Ok(Job::over(span, homes, move |span, index, tally| {
        for round in tally.rounds(loops) {
            tally.write(span, slice(size, threads, index), round as u64 + 1);
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;
    use crate::testing::{no_process, params, run_here, with};

    #[test]
    fn every_slice_is_written_as_often_as_asked() {
        with(2, 1 << 20, 2, |setting| {
            let job = job(setting).unwrap();
            let measured = run_here(&job, setting);
            assert_eq!(measured.amount, 2 << 20);
            assert_eq!(measured.thread_seconds.len(), 2);
            assert!(measured.seconds > 0.0 && measured.whole_seconds >= measured.seconds);
            assert_eq!(job.span.as_ref().unwrap().extremes(0..1 << 20), (2, 2));
        });
    }

    #[test]
    fn a_limit_of_time_ends_it() {
        let mut params = params(2, 1 << 20, 0);
        params.limit_ns = Some(30_000_000);
        let setting = Setting { params, layout: Layout::flat(0), command: &no_process };
        let measured = run_here(&job(&setting).unwrap(), &setting);
        assert!(measured.seconds >= 0.03 && measured.amount > 0, "{measured:?}");
        // Whole slices, however many.
        assert_eq!(measured.amount % (512 << 10), 0);
    }

    #[test]
    fn less_than_a_page_a_thread_is_refused() {
        with(8, 8192, 1, |setting| {
            let error = job(setting).err().unwrap().to_string();
            assert!(error.contains("8192 bytes") && error.contains("8 threads"), "{error}");
        });
    }
}
