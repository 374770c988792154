//! Which task and which pages belong on which node. Snapshot in, plan out; no clock, no file,
//! no thread, no randomness.
//!
//! | module | owns |
//! |---|---|
//! | [`herd`] | our placement: holds the pieces below together, remembers what it placed when |
//! | [`demand`] | from a snapshot to an assignment problem in integers |
//! | [`search`] | a better assignment, by moves and swaps from today's |
//! | [`pages`] | which regions follow their users |

pub mod demand;
pub mod herd;
pub mod pages;
pub mod search;

pub use herd::Herd;
