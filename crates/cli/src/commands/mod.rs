//! One module per command: from validated arguments to results.

pub mod balance;
pub mod bench;
pub mod cell;
pub mod compare;
pub mod lab;
pub mod machine;
pub mod measure;
pub mod reproduce;
pub mod restore;
pub mod shell;
pub mod simulate;
mod site;
pub mod topology;
pub mod tracing;
