//! The kernel's stream of NUMA hinting faults, by BPF.
//!
//! In three steps, each on its own: [`probe`] collects facts, [`choose`] decides from facts alone
//! what can be had, [`FaultStream::open`] does it.
//!
//! ```no_run
//! use numaherd_bpf::{FaultStream, choose, probe};
//! use numaherd_model::FaultSource;
//!
//! let choice = choose(&probe("/".as_ref()));
//! let mut stream = FaultStream::open(&choice)?;
//! stream.watch(&[1234])?;
//! let mut faults = Vec::new();
//! stream.drain(&mut faults)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Owns `faults.bpf.c`, which counts and forwards, and the layout of its event. What the faults
//! mean is for others. Faults exist only while `kernel.numa_balancing` is 1: the kernel arms the
//! pages, this only listens.

mod attach;
mod btf;
mod event;
mod filter;
mod probe;
mod stream;

pub use btf::{Function, TaskIds};
pub use event::{LastAccess, decode_last_access};
pub use probe::{Births, Choice, Probe, choose, probe};
pub use stream::{BpfError, FaultStream};
