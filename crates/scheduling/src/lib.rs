//! Which CPU runs what next. Pure: no clock, no file, no thread, no randomness.
//!
//! | module | owns |
//! |---|---|
//! | [`domains`] | from a topology to the kernel's scheduling domains |
//! | [`queue`] | one CPU's fair queue: who is next, and for how long |
//! | [`balance`] | where a new or woken task goes, and who pulls from whom |
//!
//! CPUs, tasks and nodes are dense indices here: whoever calls keeps the ids. Times are
//! nanoseconds. What is modelled is the part of Linux's fair class that decides *where* CPU-bound
//! tasks run; weights (nice levels), bandwidth limits and deadlines are not.

pub mod balance;
pub mod domains;
pub mod queue;

pub use balance::{Fair, Fair6, Scheduling};
pub use domains::{Domains, Flags, Level, Place};
pub use queue::Queue;
