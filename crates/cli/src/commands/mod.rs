//! One module per command: from validated arguments to results.

pub mod balance;
pub mod bench;
pub mod cell;
pub mod compare;
pub mod lab;
pub mod measure;
pub mod restore;
mod site;
pub mod topology;
