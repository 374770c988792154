//! Which task and which pages belong on which node. Snapshot in, plan out; no clock, no file,
//! no thread, no randomness.
//!
//! | module | owns |
//! |---|---|
//! | [`herd`] | our placement: holds the pieces below together, remembers what it placed when |
//! | [`demand`] | from a snapshot to an assignment problem in integers |
//! | [`bundles`] | its larger half: who uses which memory |
//! | [`horizon`] | how long memory is taken to be used |
//! | [`teams`] | which tasks of a process share memory |
//! | [`sharing`] | what follows if those share all of it of whom that is not known |
//! | [`strangers`] | where those have their memory of whom nothing is known yet |
//! | [`early`] | where tasks belong before that is known |
//! | [`tables`] | what page tables tell before faults do |
//! | [`whole`] | where nothing else does: who is placed whole, and who is left alone |
//! | [`objects`] | which memory of several processes is the same |
//! | [`units`] | tasks that belong together whatever they use |
//! | [`assignment`] | an assignment and what it costs, kept up to date |
//! | [`cores`] | what it costs that tasks share cores |
//! | [`bandwidth`] | what the memory of each node may be given |
//! | [`search`] | a better assignment, by moves and swaps from today's |
//! | [`exact`] | the best one, where the problem is small |
//! | [`level`] | whose memory comes to it where it would crowd that node |
//! | [`outlook`] | what an assignment means for memory |
//! | [`pages`] | which regions follow their users |
//! | [`interleave`] | which regions are shared out over the nodes that use them |
//! | [`turns`] | who of a team that does not fit its node is away, and for how long |
//! | [`relief`] | which placed tasks wait for a CPU that they could have elsewhere |
//! | [`mechanisms`] | which parts of herd are in |
//! | [`scan`] | how fast the kernel is to scan for herd |
//! | [`kernels`] | the NUMA balancing of kernels, for the simulator |

pub mod assignment;
pub mod bandwidth;
pub mod bundles;
pub mod cores;
pub mod demand;
pub mod early;
pub mod exact;
pub mod herd;
pub mod horizon;
pub mod interleave;
pub mod kernels;
pub mod leaders;
pub mod level;
pub mod lost;
pub mod mechanisms;
pub mod nodeset;
pub mod objects;
pub mod outlook;
pub mod pages;
pub mod part;
pub mod relief;
pub mod scan;
pub mod search;
pub mod sharing;
mod spread;
pub mod strangers;
pub mod tables;
pub mod teams;
pub mod turns;
pub mod units;
pub mod whole;

pub use herd::Herd;
pub use mechanisms::Mechanisms;
pub use scan::{Scan, Seen, is_told};
