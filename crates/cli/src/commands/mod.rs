//! One module per command: from validated arguments to results.

pub mod lab;
