//! numa01: two processes, half the threads each, all threads of a process writing all of its
//! memory over and over. Each process fits on half of the nodes and belongs there whole.
//!
//! Each process is a program of its own that runs [`part`]; [`run`] starts both, lets them go
//! together and gathers what they say. They talk in lines: the part says `ready`, hears `go`,
//! says `ended` and its threads' ends in nanoseconds of the monotonic clock.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use crate::span::Span;
use crate::{Elapsed, Layout, Params, Start, Tie, WorkloadError, marker, sys, system, team};

/// Processes.
pub const PARTS: usize = 2;

/// Runs it: `command(index)` is to start a program that calls [`part`] with that index.
///
/// # Errors
/// Parameters that make no sense, or a process that fails.
pub fn run(
    params: &Params,
    layout: &Layout,
    command: impl Fn(usize) -> Command,
) -> Result<Elapsed, WorkloadError> {
    layout.check(params.tie)?;
    if params.threads < PARTS || params.size_bytes < 4096 {
        let problem = format!(
            "numa01 needs at least {PARTS} threads and a page of memory, not {} and {} bytes",
            params.threads, params.size_bytes
        );
        return Err(WorkloadError::Params { problem });
    }
    let begin = Instant::now();
    let mut parts = (0..PARTS)
        .map(|index| Part::start(index, command(index)))
        .collect::<Result<Vec<_>, _>>()?;
    for part in &mut parts {
        part.hear("ready")?;
    }
    let start_ns = sys::monotonic_ns();
    marker::begin();
    for part in &mut parts {
        part.say("go")?;
    }
    let mut ends = Vec::new();
    for part in &mut parts {
        let rest = part.hear("ended")?;
        ends.extend(rest.split_whitespace().filter_map(|ns| ns.parse::<u64>().ok()));
    }
    marker::end();
    for mut part in parts {
        part.finish()?;
    }
    let bytes = (params.size_bytes * params.loops * params.threads) as u64;
    Ok(Elapsed::new(start_ns, &ends, begin.elapsed().as_secs_f64(), bytes))
}

/// One of the processes: talks to [`run`] over standard input and output.
///
/// # Errors
/// Memory or CPUs that cannot be had, or the other side is gone.
pub fn part(params: &Params, layout: &Layout, index: usize) -> Result<(), WorkloadError> {
    let threads = threads_of(params.threads, index);
    let home = layout.home(PARTS, index);
    let mut span = Span::map(params.size_bytes, params.huge_pages)?;
    initialise(&mut span, params, layout, home.clone())?;
    let all = 0..params.size_bytes;
    let work = |_| {
        for _ in 0..params.loops {
            // SAFETY: all threads write zeroes, and only zeroes.
            unsafe { span.write_shared(all.clone()) };
        }
    };
    let gone = || system("the first process of numa01 is gone");
    let ends = team::run(params, layout, threads, &|_| home.clone(), &work, || {
        println!("ready");
        std::io::stdout().flush().map_err(gone())?;
        std::io::stdin().lock().read_line(&mut String::new()).map_err(gone())?;
        Ok(())
    })?;
    let ends: Vec<String> = ends.iter().map(u64::to_string).collect();
    println!("ended {}", ends.join(" "));
    Ok(())
}

/// Threads of one process: half of them, the first process takes the odd one.
fn threads_of(threads: usize, index: usize) -> usize {
    (threads + PARTS - 1 - index) / PARTS
}

fn initialise(
    span: &mut Span,
    params: &Params,
    layout: &Layout,
    home: std::ops::Range<usize>,
) -> Result<(), WorkloadError> {
    let all = 0..params.size_bytes;
    let bound = match (params.tie, params.start) {
        (Tie::Bind | Tie::Inverse, _) => Some((sys::MPOL_BIND, layout.memory_of(home, params.tie))),
        (Tie::Interleave, _) => Some((sys::MPOL_INTERLEAVE, layout.node_ids())),
        (Tie::Free, Start::Placed) => Some((sys::MPOL_BIND, layout.memory_of(home, Tie::Bind))),
        (Tie::Free, Start::OneNode) => Some((sys::MPOL_BIND, layout.node_ids()[..1].to_vec())),
        (Tie::Free, Start::FirstTouch) => None,
    };
    if let Some((mode, nodes)) = bound {
        // Several nodes of a home share its memory evenly.
        let mode = if nodes.len() > 1 { sys::MPOL_INTERLEAVE } else { mode };
        span.bind(all.clone(), mode, &nodes)?;
    }
    span.write(all.clone());
    if params.tie == Tie::Free {
        span.bind(all, sys::MPOL_DEFAULT, &[])?;
    }
    Ok(())
}

/// A process of the workload, as its starter sees it; ended when dropped.
struct Part {
    index: usize,
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Part {
    fn start(index: usize, mut command: Command) -> Result<Part, WorkloadError> {
        let failed = |problem: String| WorkloadError::Process { index, problem };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| failed(format!("cannot be started: {e}")))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.ok_or_else(|| failed("has no pipes".into()))?;
        Ok(Part { index, child, to, from: BufReader::new(from) })
    }

    fn say(&mut self, line: &str) -> Result<(), WorkloadError> {
        writeln!(self.to, "{line}").map_err(system("a process of numa01 is gone"))
    }

    /// Waits for a line that begins with `word`; answers the rest of it.
    fn hear(&mut self, word: &str) -> Result<String, WorkloadError> {
        let mut line = String::new();
        let heard = self.from.read_line(&mut line);
        heard.map_err(system("cannot hear a process of numa01"))?;
        match line.trim().strip_prefix(word) {
            Some(rest) => Ok(rest.to_string()),
            None => {
                let problem = match self.child.wait() {
                    Ok(status) => format!("ended with {status} before it was {word}"),
                    Err(e) => e.to_string(),
                };
                Err(WorkloadError::Process { index: self.index, problem })
            }
        }
    }

    fn finish(&mut self) -> Result<(), WorkloadError> {
        let status = self.child.wait().map_err(system("cannot wait for a process of numa01"))?;
        if status.success() {
            return Ok(());
        }
        Err(WorkloadError::Process { index: self.index, problem: format!("ended with {status}") })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It has ended already when all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_thread_goes_to_the_first_process() {
        assert_eq!((threads_of(8, 0), threads_of(8, 1)), (4, 4));
        assert_eq!((threads_of(7, 0), threads_of(7, 1)), (4, 3));
    }

    #[test]
    fn a_process_that_fails_is_named() {
        let params = Params {
            threads: 2,
            size_bytes: 4096,
            loops: 1,
            huge_pages: None,
            tie: Tie::Free,
            start: Start::FirstTouch,
        };
        let error =
            run(&params, &Layout::flat(0), |_| Command::new("false")).unwrap_err().to_string();
        assert!(error.contains("process 0") && error.contains("before it was ready"), "{error}");
    }
}
