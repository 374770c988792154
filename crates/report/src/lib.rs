//! Results → text, JSON, CSV, pictures.
//!
//! | module | owns |
//! |---|---|
//! | [`comparison`] | a workload side by side under several placements: the data and its JSON |
//! | [`spread`] | median, least and greatest of a few runs |
//! | [`text`] | the table and CSV |
//! | [`chart`] | the picture (SVG) and the page around it |
//! | [`matrix`] | a measured machine: latency and bandwidth, node by node |
//! | [`heat`] | its picture and page |

pub mod chart;
pub mod comparison;
pub mod heat;
pub mod matrix;
pub mod spread;
pub mod text;

pub use comparison::{Cell, Comparison, CpuCounts, PlacementResult, Throughput};
pub use matrix::{Figure, Matrices, Stated};
pub use spread::Spread;
