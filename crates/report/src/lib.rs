//! Results → text, JSON, CSV, pictures.
//!
//! | module | owns |
//! |---|---|
//! | [`comparison`] | a workload side by side under several placements: the data and its JSON |
//! | [`faults`] | tables and plot of the page fault test |
//! | [`spread`] | median, least and greatest of a few runs |
//! | [`text`] | the table and CSV |
//! | [`chart`] | the picture (SVG) and the page around it |

pub mod chart;
pub mod comparison;
pub mod faults;
pub mod spread;
pub mod text;

pub use comparison::{Cell, Comparison, CpuCounts, PlacementResult, Throughput};
pub use spread::Spread;
