//! The loop: observe → decide → check → apply. Written once for simulated and live machines.
//!
//! | module | owns |
//! |---|---|
//! | [`awake`] | whether how busy tasks were says what they do now |
//! | [`evidence`] | who touched which memory, summed up from hinting faults |
//! | [`region`] | the same of one region, page by page |
//! | [`unmapped`] | memory that its process has given back |
//! | [`gaps`] | what page tables tell while faults do not |
//! | [`refusals`] | which memory could not be moved of late |
//! | [`watch`] | whether faults tell of another phase |
//! | [`controller`] | one turn of the loop, and what came of it |
//! | [`exits`] | whether tasks that end are worth a look |
//! | [`fewer`] | whether a process has fewer busy tasks than before, since some ended |
//! | [`pace`] | how long to wait until the next turn |
//! | [`calm`] | whether little is left to find out |
//!
//! No clock and no thread: the caller sleeps and records.

pub mod awake;
pub mod calls;
pub mod calm;
pub mod controller;
pub mod convergence;
pub mod evidence;
pub mod fewer;
pub mod gaps;
pub mod pace;
pub mod refusals;
pub mod region;
pub mod unmapped;
pub mod watch;

pub use calm::Calm;
pub use controller::{Controller, Turn};
pub use convergence::Convergence;
pub use pace::{Found, Pace};
