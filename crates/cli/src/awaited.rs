//! A command whose output is waited for, and which ends with us: when we are told to end, and when we are gone.

use std::io::Read as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use numaherd_lab::LabError;
use numaherd_linux::sys::signal;

/// Longest sleep between two looks at whether we are to end: seldom, for workloads are measured meanwhile.
const NAP: Duration = Duration::from_millis(250);
/// How long one that is told to end may take to put back what it has set. Guessed. One that waits for a command of its own
/// meanwhile has longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs it to its end, or until we are interrupted: then it is told to end, and waited for, no longer than our patience.
/// Standard error is ours, unless the command has another.
pub fn output(
    command: &mut Command,
    interrupted: &AtomicBool,
    patience: Duration,
) -> Result<Output> {
    let is_over = || interrupted.load(Ordering::Relaxed);
    if is_over() {
        return Err(LabError::Interrupted.into());
    }
    signal::end_with_us(command);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let (sender, read) = channel();
    if let Some(mut out) = child.stdout.take() {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // Whoever was interrupted no longer listens.
            let _ = sender.send(out.read_to_end(&mut bytes).map(|_| bytes));
        });
    }
    loop {
        let heard = read.recv_timeout(NAP);
        if is_over() {
            end(&mut child, patience)?;
            return Err(LabError::Interrupted.into());
        }
        if let Ok(stdout) = heard {
            let status = child.wait()?;
            return Ok(Output { status, stdout: stdout?, stderr: Vec::new() });
        }
    }
}

fn end(child: &mut Child, patience: Duration) -> Result<()> {
    let begin = Instant::now();
    // If it has ended by itself there is nobody to tell.
    let _ = signal::terminate(child.id());
    while child.try_wait()?.is_none() {
        if begin.elapsed() > patience {
            child.kill()?;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_it_says_and_how_it_ends_is_told() {
        let output =
            output(&mut shell("echo well; exit 3"), &AtomicBool::new(false), PATIENCE).unwrap();
        assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"well\n"[..], Some(3)));
    }

    /// It puts back what it has set, and is over before we go on.
    #[test]
    fn when_we_are_to_end_it_is_told_and_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (begun, back) = (dir.path().join("begun"), dir.path().join("back"));
        let script = "trap 'kill $!; echo > \"$1\"; exit 1' TERM; sleep 600 & echo > \"$0\"; wait";
        let interrupted = Arc::new(AtomicBool::new(false));
        let (flag, seen) = (Arc::clone(&interrupted), begun.clone());
        let user = thread::spawn(move || {
            while !seen.exists() {
                thread::sleep(Duration::from_millis(1));
            }
            flag.store(true, Ordering::Relaxed);
        });
        let error =
            output(shell(script).arg(&begun).arg(&back), &interrupted, PATIENCE).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(LabError::Interrupted)), "{error}");
        assert!(back.exists());
        user.join().unwrap();
        // And nothing more is begun.
        assert!(
            output(&mut shell(&format!("rm {}", back.display())), &interrupted, PATIENCE).is_err()
        );
        assert!(back.exists());
    }

    /// It waits for a command of its own meanwhile, as a cell does.
    #[test]
    fn one_that_is_told_to_end_has_as_long_as_our_patience() {
        let dir = tempfile::tempdir().unwrap();
        let ended = |name: &str, patience| {
            let (begun, back) = (dir.path().join(format!("{name} begun")), dir.path().join(name));
            let script = "trap 'sleep 2; echo > \"$1\"; exit 1' TERM; echo > \"$0\"; while :; do sleep 0.1; done";
            let mut child = shell(script).arg(&begun).arg(&back).spawn().unwrap();
            while !begun.exists() {
                thread::sleep(Duration::from_millis(1));
            }
            end(&mut child, patience).unwrap();
            back.exists()
        };
        assert!(ended("long enough", PATIENCE));
        assert!(!ended("too short", Duration::from_millis(100)));
    }

    /// The thread that started it is gone, however that ended.
    #[test]
    fn when_we_are_gone_it_is_told_to_end() {
        use std::os::unix::process::ExitStatusExt;
        let start = || {
            let mut command = Command::new("sleep");
            signal::end_with_us(&mut command);
            command.arg("600").spawn().unwrap()
        };
        let mut child = thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
    }
}
