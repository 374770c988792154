//! The emulated machine with a real kernel, end to end: what a command in it sees, how it ends,
//! what is measured there, the workloads, and that a killed balancer leaves nothing changed.
//!
//! Needs QEMU, a kernel in the cache folder and the plugin beside the program (`make build`), and
//! takes minutes: `make lab-test`. Every guest has a temporary folder of its own, by which its
//! QEMU is recognised.

#[path = "../transcript/mod.rs"]
mod transcript;

mod balancing;
mod endings;
mod handed;
mod inside;
mod kernels;
mod killed;
mod latency;
mod machines;
mod measured;
mod policies;
mod privileges;
mod processes;
mod promise;
mod rest;
mod seeing;
mod terminal;
mod tools;
mod workloads;

use std::process::Command;

use tempfile::TempDir;

/// Ends a guest that hangs. What is asserted of how long something takes has figures of its own: hosts differ by a factor.
const HANGS: &str = "900";

/// A folder that is shared with the guest, one for the lab's own files, and the command that
/// starts it there.
struct Bench {
    shared: TempDir,
    lab: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { shared: tempfile::tempdir().unwrap(), lab: tempfile::tempdir().unwrap() }
    }

    /// `numaherd WORDS… -- COMMAND…` in the shared folder.
    fn command(&self, words: &[&str], command: &[&str]) -> Command {
        let mut numaherd = transcript::numaherd(words);
        if !command.is_empty() {
            numaherd.arg("--").args(command);
        }
        numaherd.current_dir(self.shared.path()).env("TMPDIR", self.lab.path());
        numaherd
    }

    /// What the guest left in the shared folder.
    fn shared(&self, name: &str) -> String {
        let path = self.shared.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Asserts that nothing of the lab is left: no QEMU, no file.
    #[track_caller]
    fn left_nothing(&self) {
        let lab = self.lab.path().to_str().unwrap();
        let left = processes::with_argument_containing(lab);
        assert!(left.is_empty(), "QEMU is left: {left:?}");
        let files: Vec<_> = std::fs::read_dir(lab).unwrap().flatten().map(|e| e.path()).collect();
        assert!(files.is_empty(), "left: {files:?}");
    }
}
