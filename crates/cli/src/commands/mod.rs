//! One module per command: from validated arguments to results.

pub mod balance;
pub mod bench;
pub mod cell;
pub mod compare;
pub mod lab;
pub mod manual;
pub mod memtoy;
pub mod pft;
pub mod policy;
pub mod restore;
pub mod run;
mod site;
pub mod topology;
