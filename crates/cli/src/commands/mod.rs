//! One module per command: from validated arguments to results.

pub mod bench;
pub mod lab;
pub mod topology;
