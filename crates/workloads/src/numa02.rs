//! numa02: one process, a thread per CPU, each writing its own slice of one allocation over
//! and over. Nothing is shared, so every thread has one best node.

use std::time::Instant;

use crate::span::Span;
use crate::{Elapsed, Layout, Params, Start, Tie, WorkloadError, marker, slice, sys, team};

/// Runs it.
///
/// # Errors
/// Parameters that make no sense, or memory or CPUs that cannot be had.
pub fn run(params: &Params, layout: &Layout) -> Result<Elapsed, WorkloadError> {
    layout.check(params.tie)?;
    let Params { threads, size_bytes, loops, .. } = *params;
    if threads == 0 || size_bytes / threads < 4096 {
        let problem =
            format!("{size_bytes} bytes are less than a page for each of {threads} threads");
        return Err(WorkloadError::Params { problem });
    }
    let begin = Instant::now();
    let mut span = Span::map(size_bytes, params.huge_pages)?;
    initialise(&mut span, params, layout)?;
    let mut start_ns = 0;
    let work = |index| {
        for _ in 0..loops {
            // SAFETY: slices do not overlap and only zeroes are written.
            unsafe { span.write_shared(slice(size_bytes, threads, index)) };
        }
    };
    let ends =
        team::run(params, layout, threads, &|index| layout.home(threads, index), &work, || {
            start_ns = sys::monotonic_ns();
            marker::begin();
            Ok(())
        })?;
    marker::end();
    Ok(Elapsed::new(start_ns, &ends, begin.elapsed().as_secs_f64(), (size_bytes * loops) as u64))
}

/// Touches everything for the first time, on the nodes where it is to lie.
fn initialise(span: &mut Span, params: &Params, layout: &Layout) -> Result<(), WorkloadError> {
    let Params { threads, size_bytes, .. } = *params;
    let all = layout.node_ids();
    let per_thread = match (params.tie, params.start) {
        (Tie::Bind | Tie::Inverse, _) => Some(params.tie),
        (Tie::Free, Start::Placed) => Some(Tie::Bind),
        _ => None,
    };
    if let Some(tie) = per_thread {
        for index in 0..threads {
            let memory = layout.memory_of(layout.home(threads, index), tie);
            span.bind(slice(size_bytes, threads, index), sys::MPOL_BIND, &memory)?;
        }
    } else if params.tie == Tie::Interleave {
        span.bind(0..size_bytes, sys::MPOL_INTERLEAVE, &all)?;
    } else if params.start == Start::OneNode {
        span.bind(0..size_bytes, sys::MPOL_BIND, &all[..1])?;
    }
    span.write(0..size_bytes);
    if params.tie == Tie::Free {
        span.bind(0..size_bytes, sys::MPOL_DEFAULT, &[])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(threads: usize, size_bytes: usize) -> Params {
        Params {
            threads,
            size_bytes,
            loops: 2,
            huge_pages: None,
            tie: Tie::Free,
            start: Start::FirstTouch,
        }
    }

    #[test]
    fn it_runs_here_and_counts_its_bytes() {
        let elapsed = run(&params(2, 1 << 20), &Layout::flat(0)).unwrap();
        assert_eq!(elapsed.bytes, 2 << 20);
        assert_eq!(elapsed.thread_seconds.len(), 2);
        assert!(elapsed.seconds > 0.0 && elapsed.whole_seconds >= elapsed.seconds);
    }

    #[test]
    fn less_than_a_page_a_thread_is_refused() {
        let error = run(&params(8, 8192), &Layout::flat(0)).unwrap_err().to_string();
        assert!(error.contains("8192 bytes") && error.contains("8 threads"), "{error}");
    }
}
