//! A QEMU TCG plugin that makes remote memory of the emulated machine really slower.
//!
//! TCG runs a load from any node equally fast. This plugin watches every translation block and
//! every memory access of every vCPU and keeps a *virtual time* per vCPU, in guest picoseconds:
//! each instruction adds a fixed cost, each miss of the vCPU's own small cache adds the latency
//! from the vCPU's node to the node that holds the line. A vCPU whose virtual time runs ahead
//! of the guest's clock sleeps, so the guest, its kernel included, feels the distance.
//!
//! ```text
//!  hooks  QEMU's callbacks, the only FFI   ──► machine  switches, markers, snapshots
//!                    │ hot path                   │
//!                    ▼                            ▼
//!  vcpu   one CPU's account                    nodemap  which key range is which node
//!   ├─ translation  virtual page → frame       stats    the shared file, words of layout
//!   ├─ cache        set-associative, physical
//!   └─ pace, clock  ahead or behind, and sleeping
//! ```
//!
//! Invariants:
//! - Callbacks are attached to all code when it is translated, from power-on; one global word
//!   switches charging. So kernel code translated during the boot is charged later, too.
//! - The cache is tagged by physical address: a migrated page misses.
//! - An idle vCPU earns no credit; lateness it had when it went idle is counted, not forgotten.
//! - Nothing of the hot path locks or is written by two threads.
//!
//! Not modelled: coherence (a line written by another CPU stays in the cache), overlapping
//! misses, prefetching, bandwidth, page-table walks, instruction fetches, device DMA. An access
//! that straddles two lines counts for the first one.
//!
//! Units: `_ns` and `_ps` are guest time unless a name says `real`.

pub mod cache;
pub mod clock;
pub mod config;
#[cfg(not(test))] // its symbols exist inside QEMU only
mod hooks;
pub mod layout;
pub mod machine;
pub mod marker;
pub mod nodemap;
pub mod pace;
pub mod stats;
pub mod stopwatch;
pub mod translation;
pub mod vcpu;
