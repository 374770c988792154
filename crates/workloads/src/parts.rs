//! A workload of several processes. Each is a program of its own that calls [`part`]; [`run`]
//! starts all, lets them go together and gathers what they say.
//!
//! They talk in lines: the part says `ready`, hears `go` and when that was in nanoseconds of the
//! monotonic clock (which processes share), and says `ended` and its harvest.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::job::Job;
use crate::tally::{Harvest, Measured, garbled};
use crate::{Setting, Unit, WorkloadError, marker, sys, system};

/// How long a process that has closed its output may take to end. Guessed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs a workload of `count` processes.
pub fn run(setting: &Setting, count: usize, unit: Unit) -> Result<Measured, WorkloadError> {
    let begin = Instant::now();
    let mut parts = (0..count)
        .map(|index| Part::start(index, (setting.command)(index)))
        .collect::<Result<Vec<_>, _>>()?;
    for part in &mut parts {
        part.hear("ready")?;
    }
    let start_ns = sys::monotonic_ns();
    marker::begin();
    for part in &mut parts {
        part.say(&format!("go {start_ns}"))?;
    }
    let mut harvest = Harvest::default();
    for part in &mut parts {
        let line = part.hear("ended")?;
        harvest.merge(&Harvest::parse(&line).ok_or_else(|| garbled(part.index))?);
    }
    marker::end();
    for mut part in parts {
        part.finish()?;
    }
    Ok(harvest.measured(unit, start_ns, begin.elapsed().as_secs_f64()))
}

/// One of the processes: talks to [`run`] over standard input and output, and ends with the process that
/// started it, however that ends.
pub fn part(setting: &Setting, job: &Job) -> Result<(), WorkloadError> {
    let gone = || system("the workload's first process is gone");
    // Where that has ended already, nothing is heard below.
    sys::end_with_parent().map_err(system("prctl"))?;
    let say = |line: &str| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(gone())
    };
    let harvest = job.run(setting, || {
        say("ready")?;
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map_err(gone())?;
        let told = line.trim().strip_prefix("go ").and_then(|ns| ns.parse().ok());
        told.ok_or_else(|| gone()(std::io::ErrorKind::UnexpectedEof.into()))
    })?;
    say(&format!("ended {}", harvest.to_line()))
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
        writeln!(self.to, "{line}").map_err(system("a process of the workload is gone"))
    }

    /// Waits for a line that begins with `word`; answers the rest of it.
    fn hear(&mut self, word: &str) -> Result<String, WorkloadError> {
        let mut line = String::new();
        let heard = self.from.read_line(&mut line);
        heard.map_err(system("cannot hear a process of the workload"))?;
        match line.trim().strip_prefix(word) {
            Some(rest) => Ok(rest.to_string()),
            None => {
                let problem = match self
                    .ended(&line)
                    .map_err(system("cannot wait for a process of the workload"))?
                {
                    Some(status) => format!("ended with {status} before it was {word}"),
                    None => format!("said {:?} before it was {word}", line.trim()),
                };
                Err(WorkloadError::Process { index: self.index, problem })
            }
        }
    }

    /// How it ended, after a line that is not the one expected. It may as well live on and wait for us: only one whose
    /// output is closed is waited for, and not for ever.
    fn ended(&mut self, line: &str) -> std::io::Result<Option<ExitStatus>> {
        let begin = Instant::now();
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || !line.is_empty() || begin.elapsed() > PATIENCE {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn finish(&mut self) -> Result<(), WorkloadError> {
        let ended = self.child.wait();
        let status = ended.map_err(system("cannot wait for a process of the workload"))?;
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

/// Threads of process `index` of `parts`: equal shares, the first processes take what is left.
///
/// Worked example: 7 threads in 2 processes are 4 and 3.
pub fn threads_of(threads: usize, parts: usize, index: usize) -> usize {
    (threads + parts - 1 - index) / parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::params;
    use crate::{Kind, Layout};

    #[test]
    fn an_odd_thread_goes_to_the_first_process() {
        assert_eq!((threads_of(8, 2, 0), threads_of(8, 2, 1)), (4, 4));
        assert_eq!((threads_of(7, 2, 0), threads_of(7, 2, 1)), (4, 3));
        for (threads, parts) in [(5, 3), (9, 4), (3, 3)] {
            let all: usize = (0..parts).map(|index| threads_of(threads, parts, index)).sum();
            assert_eq!(all, threads);
        }
    }

    fn error_with(command: &(dyn Fn(usize) -> Command + Sync)) -> String {
        let setting = Setting { params: params(2, 4096, 1), layout: Layout::flat(0), command };
        Kind::Numa01.run(&setting).unwrap_err().to_string()
    }

    #[test]
    fn a_process_that_fails_is_named() {
        let error = error_with(&|_| Command::new("false"));
        assert!(error.contains("process 0") && error.contains("before it was ready"), "{error}");
    }

    /// It hears nothing more from us, and would wait for ever.
    #[test]
    fn a_process_that_says_something_else_and_lives_on_is_not_waited_for() {
        let error = error_with(&|_| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo well; read go"]);
            command
        });
        assert!(error.contains("process 0") && error.contains("said \"well\""), "{error}");
    }

    #[test]
    fn a_process_that_talks_nonsense_is_named() {
        let error = error_with(&|index| {
            let mut command = Command::new("sh");
            let harvest = if index == 0 { "=1 =2 =0" } else { "nonsense" };
            command.args(["-c", &format!("echo ready; read go; echo ended {harvest}")]);
            command
        });
        assert!(error.contains("process 1") && error.contains("understood"), "{error}");
    }
}
