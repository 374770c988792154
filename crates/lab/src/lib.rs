//! The emulated machine: a stock Debian kernel under QEMU's TCG, with the nodes, CPUs and
//! distances of a machine file, whose remote memory really is slower.
//!
//! | module | owns |
//! |---|---|
//! | [`machine`] | machine files: nodes, CPUs, latencies, with their provenance |
//! | [`memory`] | the part of them that says how memory behaves; routes |
//! | [`synthetic`], [`hwloc`] | machines described by hwloc's one line or XML |
//! | [`derived`] | a machine to boot, made from a topology |
//! | [`kernel`] | kernel images in the cache folder |
//! | [`capacity`] | what this host can carry, and the dilation of time that follows |
//! | [`counters`] | what the latency plugin counted |
//! | [`guest`] | one booted machine: run commands in it, end it |
//! | [`agent`] | the other end, inside the guest |
//! | [`tracefs`], [`timeline`] | who ran where: the guest's trace, and the page made of it |
//! | [`wire`] | what the two say to each other |
//!
//! Time in the guest is dilated: one guest second takes `dilation` seconds here, so that the
//! host carries all emulated CPUs at their full speed.

pub mod agent;
pub mod capacity;
mod charge;
pub mod counters;
pub mod derived;
mod firmware;
pub mod guest;
pub mod hwloc;
mod initramfs;
pub mod kernel;
pub mod machine;
pub mod memory;
mod qemu;
mod standing;
pub mod synthetic;
mod terminal;
pub mod timeline;
pub mod tools;
pub mod tracefs;
pub mod wire;

pub use guest::{BootOptions, Exec, Exit, Guest, Share};
pub use kernel::Kernel;
pub use machine::Machine;
pub use wire::TerminalSize;

use std::path::PathBuf;

use numaherd_model::places::visible;

/// What can go wrong with a lab; each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No machine of that name or path.
    #[error(
        "no machine '{name}': known are {known}; or give host for this one, a .toml file, \
         hwloc's .xml, topology's .json, a captured folder, or a text such as \"node:2 core:4\""
    )]
    UnknownMachine {
        /// What was asked for.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// A machine file that makes no sense.
    #[error("machine file {}: {}", visible(path), visible(problem))]
    Machine {
        /// Which file.
        path: String,
        /// What is wrong, and where.
        problem: String,
    },
    /// A synthetic text that makes no sense.
    #[error("machine \"{text}\": {problem}")]
    Synthetic {
        /// The text.
        text: String,
        /// What is wrong, and where.
        problem: String,
    },
    /// A program or library the lab needs is not installed.
    #[error("{what} is missing: install the package {package} (make deps does)")]
    MissingTool {
        /// What was looked for.
        what: String,
        /// Debian's package.
        package: String,
    },
    /// No kernel to boot.
    #[error("{problem}: run scripts/fetch-kernel (make deps does), or give --kernel an image")]
    Kernel {
        /// What is missing, and where it was looked for.
        problem: String,
    },
    /// The plugin was not built.
    #[error("the latency plugin {path} is missing: build it with 'cargo build --release'")]
    MissingPlugin {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// QEMU ended, or the guest panicked, before it was told to.
    #[error("the emulated machine stopped: {reason} (console log: {console})")]
    GuestDied {
        /// The line that says most.
        reason: String,
        /// Log that is kept.
        console: PathBuf,
    },
    /// Nothing heard in time.
    #[error("no result within {seconds} s (--timeout); the emulated machine was ended")]
    Timeout {
        /// The limit.
        seconds: u64,
    },
    /// It did not say in time that all is carried over.
    #[error(
        "after {seconds} s the emulated machine had not carried over all that was written to its shares, and was ended: \
         files there may be cut short"
    )]
    Unwritten {
        /// Waited.
        seconds: u64,
    },
    /// No turn in time.
    #[error(
        "another emulated machine was being timed for {seconds} s (--timeout); none was booted"
    )]
    WaitTimeout {
        /// The limit.
        seconds: u64,
    },
    /// The user asked to stop.
    #[error("interrupted; the emulated machine was ended")]
    Interrupted,
    /// The user asked to stop before anything was begun.
    #[error("interrupted while waiting for {path}")]
    WaitInterrupted {
        /// The file.
        path: String,
    },
    /// The other side said something unexpected.
    #[error("the agent in the guest: {problem}")]
    Agent {
        /// What it said.
        problem: String,
    },
    /// Files, sockets, processes.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl LabError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::Io { what, source }
    }
}
