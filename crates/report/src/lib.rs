//! Results → text, JSON, CSV, pictures.
//!
//! | module | owns |
//! |---|---|
//! | [`comparison`] | a workload side by side under several placements: the data and its JSON |
//! | [`faults`] | tables and plot of the page fault test |
//! | [`moving`] | tables, plots and call graphs of moving memory between nodes |
//! | [`spread`] | median, least and greatest of a few runs |
//! | [`interval`] | how sure a median is |
//! | [`against`] | a comparison beside an earlier one |
//! | [`bars`] | what herd is held to, and whether a comparison shows it |
//! | [`listing`] | rows of words: table and CSV |
//! | [`text`] | the table and CSV |
//! | [`chart`] | the picture (SVG) and the page around it |
//! | [`matrix`] | a measured machine: latency and bandwidth, node by node |
//! | [`heat`] | its picture and page |
//! | [`course`] | the picture of throughput over time |
//! | [`callgraph`] | where tasks spend their time, simulated or in the kernel |
//! | [`nodes`] | the page of a simulated run: nodes over time, moves with their reasons |

pub mod against;
pub mod bars;
pub mod callgraph;
pub mod chart;
pub mod comparison;
pub mod course;
pub mod faults;
pub mod heat;
pub mod interval;
pub mod listing;
pub mod matrix;
pub mod moving;
pub mod nodes;
pub mod parameters;
pub mod series;
pub mod spread;
pub mod text;

pub use against::Against;
pub use callgraph::CallGraph;
pub use comparison::{
    Cell, Comparison, CpuCounts, Percentiles, PlacementResult, Throughput, Until,
};
pub use listing::Listing;
pub use matrix::{Figure, Matrices, Stated};
pub use moving::Moving;
pub use parameters::Parameters;
pub use series::Series;
pub use spread::Spread;
