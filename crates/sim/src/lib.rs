//! The simulated machine. One thread, one queue of events ordered by time and number: the same
//! seed gives the same bytes.
//!
//! | module | owns |
//! |---|---|
//! | [`machine`] | machine files |
//! | [`workload`] | workload files: processes, threads, phases; rt-app's |
//! | [`fabric`] | memory controllers and links, and the waiting there |
//! | [`initial`] | how long memory is touched before that |
//! | [`layout`] | which memory and which CPUs each thread begins with |
//! | [`engine`] | tasks, CPUs, memory and the queue of events |
//! | [`kernel`] | hinting faults, page moves, and what they cost |
//! | [`touching`] | the page fault test: lines and locks that faults meet at |
//! | [`account`] | where tasks spend their time: the call graph |
//! | [`world`] | the machine as `control` sees it: `Observe` and `Actuate` |
//!
//! Memory is taken in blocks of 2 MiB: a huge page, or the 512 small pages that a thread touches
//! together as it sweeps by. A task's progress is computed block by block, not ticked: how long a
//! block takes follows from where it is and who else uses that memory and those links.

pub mod account;
mod cpus;
pub mod engine;
pub mod fabric;
pub mod initial;
pub mod kernel;
pub mod layout;
pub mod machine;
mod random;
mod rmap;
pub mod touching;
pub mod workload;
pub mod world;
mod wrong;

pub use engine::{Options, Run, Sim};
pub use layout::Tie;
pub use machine::Machine;
pub use workload::{Parameters, Workload};
pub use wrong::text;

use numaherd_model::places::visible;

/// Why nothing was simulated. What is told of a file is shown so that it does nothing to a terminal.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A file is wrong.
    #[error("{}:{line}: expected {}", visible(path), visible(expected))]
    Parse {
        /// Which file.
        path: String,
        /// Where in it, from 1.
        line: usize,
        /// The field, and what it should have been.
        expected: String,
    },
    /// The workload does not go with the machine.
    #[error("{}", visible(problem))]
    Unfit {
        /// Why, and what would help.
        problem: String,
    },
}
