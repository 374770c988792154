//! The live machine: readers of `/proc` and `/sys`, the knobs below them, and the system calls.
//!
//! Every reader takes a root path, so that it reads a captured tree (`fixtures/`) as well as the
//! machine it runs on. What ends while it is being read (a thread, a process) is `None`, not an
//! error; what the kernel does not offer is `None` too. What is printed in a form not expected is
//! a [`ReadError`] with the path and what was expected there; nothing panics on it.
//!
//! ```
//! let topology = numaherd_linux::topology::read("/".as_ref()).unwrap();
//! print!("{}", numaherd_linux::numactl::hardware(&topology));
//! ```

pub mod allowance;
pub mod cgroup;
pub mod cpu_time;
pub mod devices;
mod file;
pub mod host;
pub mod knobs;
pub mod live;
pub mod memory;
pub mod numactl;
pub mod process;
pub mod reserve;
pub mod respect;
pub mod rotation;
pub mod symbols;
pub mod sys;
pub mod system;
pub mod task_counts;
#[cfg(test)]
mod testing;
mod threads;
pub mod topology;
pub mod undo;
pub mod universe;
pub mod vm;
pub mod weights;

pub use file::ReadError;
