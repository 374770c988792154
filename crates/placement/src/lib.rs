//! Which task and which pages belong on which node. Snapshot in, plan out; no clock, no file,
//! no thread, no randomness.
//!
//! | module | owns |
//! |---|---|
//! | [`herd`] | our placement: holds the pieces below together, remembers what it placed when |
//! | [`demand`] | from a snapshot to an assignment problem in integers |
//! | [`bundles`] | its larger half: who uses which memory |
//! | [`assignment`] | an assignment and what it costs, kept up to date |
//! | [`search`] | a better assignment, by moves and swaps from today's |
//! | [`exact`] | the best one, where the problem is small |
//! | [`pages`] | which regions follow their users |
//! | [`kernels`] | the NUMA balancing of kernels, for the simulator |

pub mod assignment;
pub mod bundles;
pub mod demand;
pub mod exact;
pub mod herd;
pub mod kernels;
pub mod nodeset;
pub mod pages;
pub mod search;

pub use herd::Herd;
