//! Memory: where a process's pages are, and how full the nodes are.

pub mod anonymous;
pub mod maps;
pub mod numa_maps;
pub mod residence;
pub mod vmstat;
pub mod zoneinfo;
