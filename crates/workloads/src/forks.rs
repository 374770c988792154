//! forks: a storm of short processes. One thread per CPU starts a process, waits for its end and
//! starts the next. Each process is a program that maps its memory, writes it eight times and
//! ends: it is over before anybody has learnt where it belongs, and a balancer that cares for
//! each of them pays for nothing.
//!
//! An operation is one process, from its start to its end. `bind` ties each thread to its node;
//! processes inherit that, and their memory is beside them.

use std::process::Stdio;

use crate::job::Job;
use crate::setting::{Piece, Setting};
use crate::span::Span;
use crate::{Params, WorkloadError, sys};

/// How often a process writes its memory. Chosen: together with the default size some
/// milliseconds on the emulated machine, about what starting a process costs there.
const PASSES: u64 = 8;

/// The process that starts the others: `loops` by each thread.
pub fn job<'a>(setting: &'a Setting) -> Result<Job<'a>, WorkloadError> {
    let Params { threads, loops, .. } = setting.params;
    let homes = (0..threads).map(|index| setting.layout.thread(threads, index)).collect();
    // The program comes from the disk once, before the timed part.
    start_and_wait(setting, 0)?;
    Ok(Job::of(homes, move |index, tally| {
        for _ in tally.rounds(loops) {
            let began = sys::ticks();
            start_and_wait(setting, index)?;
            tally.operation(began);
        }
        Ok(())
    }))
}

fn start_and_wait(setting: &Setting, index: usize) -> Result<(), WorkloadError> {
    let failed = |problem: String| WorkloadError::Process { index, problem };
    let mut command = (setting.command)(index);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().map_err(|e| failed(format!("cannot be started: {e}")))?;
    if status.success() { Ok(()) } else { Err(failed(format!("ended with {status}"))) }
}

/// A short process, started by thread `index`.
pub fn short(setting: &Setting, index: usize) -> Result<(), WorkloadError> {
    let Params { threads, size_bytes, .. } = setting.params;
    let span = Span::map(size_bytes, setting.params.huge_pages)?;
    let home = setting.layout.thread(threads, index);
    setting.place(&span, [Piece { part: 0..size_bytes, home }], 0)?;
    for pass in 1..=PASSES {
        span.write(0..size_bytes, pass);
    }
    let lines = (size_bytes / crate::span::LINE_BYTES) as u64;
    // Whoever runs it sees by its exit code that all was written.
    if span.read(0..size_bytes) == lines * PASSES {
        return Ok(());
    }
    Err(WorkloadError::Process { index, problem: "did not find what it wrote".into() })
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::Layout;
    use crate::testing::{params, run_here, with};

    #[test]
    fn as_many_processes_run_as_asked() {
        let started = AtomicUsize::new(0);
        let command = |_| {
            started.fetch_add(1, Relaxed);
            Command::new("true")
        };
        let setting =
            Setting { params: params(2, 4096, 3), layout: Layout::flat(0), command: &command };
        let measured = run_here(&job(&setting).unwrap(), &setting);
        // One more is started before the timed part.
        assert_eq!((measured.amount, started.load(Relaxed)), (6, 7));
        let latency = measured.latency_ns.unwrap();
        assert!(latency.p50 > 0 && latency.p50 <= latency.max, "{latency:?}");
    }

    #[test]
    fn a_process_that_fails_ends_it() {
        let setting = Setting {
            params: params(2, 4096, 3),
            layout: Layout::flat(0),
            command: &|_| Command::new("false"),
        };
        let error = crate::Kind::Forks.run(&setting).unwrap_err().to_string();
        assert!(error.contains("ended with"), "{error}");
    }

    #[test]
    fn a_short_process_finds_what_it_wrote() {
        with(2, 64 << 10, 1, |setting| short(setting, 1).unwrap());
    }
}
