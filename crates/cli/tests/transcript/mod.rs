//! One command line and what became of it, as a user sees it: exit code, stdout, stderr.
//!
//! Every assertion shows the command, so that a failure can be tried by hand.

use std::fmt;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The program under test.
pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_numaherd")
}

/// The program with these words.
pub fn numaherd(words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(words);
    command
}

/// What a command came to.
pub struct Transcript {
    /// The command, to be tried by hand.
    pub command: String,
    /// 128 + the signal where one ended it, as a shell has it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs it to its end, with nothing on its standard input.
pub fn run(command: &mut Command) -> Transcript {
    feed(command, "")
}

/// Runs it to its end, with this on its standard input.
pub fn feed(command: &mut Command, input: &str) -> Transcript {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = format!("{command:?}");
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
    // It may end without reading any.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    Transcript::of(shown, &child.wait_with_output().unwrap())
}

impl Transcript {
    /// Of a command that ended.
    pub fn of(command: String, output: &Output) -> Transcript {
        use std::os::unix::process::ExitStatusExt;
        let code = output.status.code().or(output.status.signal().map(|signal| 128 + signal));
        Transcript {
            command,
            code: code.unwrap(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// It ended with this code.
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Transcript {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// It could not do it: this code, nothing on stdout, one line on stderr with all of `words`.
    #[track_caller]
    pub fn refuses(self, code: i32, words: &[&str]) -> Transcript {
        let transcript = self.ends_with(code);
        let lines = transcript.stderr.lines().count();
        assert_eq!(lines, 1, "{lines} lines on stderr: {transcript}");
        assert_eq!(transcript.stdout, "", "{transcript}");
        transcript.tells(words)
    }

    /// Its stderr has all of `words`.
    #[track_caller]
    pub fn tells(self, words: &[&str]) -> Transcript {
        for word in words {
            assert!(self.stderr.contains(word), "stderr lacks '{word}': {self}");
        }
        self
    }

    /// Its standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transcript { command, code, stdout, stderr } = self;
        write!(f, "{command}\nended with {code}\nstdout:\n{stdout}\nstderr:\n{stderr}")
    }
}

/// Asserts that two texts in numactl's layout are equal, but for free memory, which moves
/// between the two looks: within one percent of the node's size, or 4 MB of a small node.
#[track_caller]
pub fn same_hardware(ours: &str, numactls: &str) {
    assert!(is_same_hardware(ours, numactls), "ours:\n{ours}\nnumactl's:\n{numactls}");
}

/// Whether they are.
pub fn is_same_hardware(ours: &str, numactls: &str) -> bool {
    let mut size_mb = 0.0;
    let mut is_same = |(our, their): (&str, &str)| {
        let figure = |line: &str, name: &str| -> Option<f64> {
            line.split_once(name)?.1.trim().strip_suffix(" MB")?.parse().ok()
        };
        size_mb = figure(our, " size:").unwrap_or(size_mb);
        match (figure(our, " free:"), figure(their, " free:")) {
            (Some(a), Some(b)) => (a - b).abs() <= (size_mb / 100.0).max(4.0),
            _ => our == their,
        }
    };
    ours.lines().count() == numactls.lines().count()
        && ours.lines().zip(numactls.lines()).all(&mut is_same)
}
