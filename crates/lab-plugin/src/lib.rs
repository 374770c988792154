//! A QEMU TCG plugin that makes remote memory of the emulated machine really slower.
//!
//! TCG runs a load from any node equally fast. This plugin watches every translation block and
//! every memory access of every vCPU and keeps a *virtual time* per vCPU, in guest picoseconds:
//! each instruction adds a fixed cost, each miss of the caches adds the latency from the vCPU's
//! node to where the line is and what it waits for bandwidth. A vCPU whose virtual time runs
//! ahead of the guest's clock sleeps, so the guest, its kernel included, feels the distance.
//!
//! ```text
//!  hooks  QEMU's callbacks; breakpoint     ──► machine  switches, markers, snapshots
//!                    │ hot path                   │
//!                    ▼                            ▼
//!  vcpu   one CPU's account                    nodemap  which key range is which node
//!   ├─ translation  virtual page → frame       stats    the shared file, words of layout
//!   ├─ pace, clock  ahead or behind, and sleeping
//!   └─ memory       what an access costs
//!       ├─ cache, tag     a vCPU's own         ─┐
//!       ├─ streams        runs of misses        ├ one vCPU's
//!       ├─ llc            last level           ─┐
//!       ├─ directory      who has which line    ├ shared, atomics only
//!       └─ fabric, bandwidth  memory and links ─┘
//! ```
//!
//! Invariants:
//! - Callbacks are attached to all code when it is translated, from power-on; one global word
//!   switches charging. So kernel code translated during the boot is charged later, too.
//! - The cache is tagged by physical address: a migrated page misses.
//! - An idle vCPU earns no credit; lateness it had when it went idle is counted, not forgotten.
//! - Nothing of the hot path locks. What two threads write is atomic, and a lost race blurs the
//!   counts of one line.
//!
//! Not modelled: page-table walks, instruction fetches, device DMA, misses of one CPU that
//! overlap without being neighbours. An access that straddles two lines counts for the first.
//!
//! Units: `_ns` and `_ps` are guest time unless a name says `real`.

pub mod bandwidth;
#[cfg(all(not(test), feature = "api-v1", target_arch = "x86_64"))] // QEMU 8.1 mended it
mod breakpoint;
pub mod cache;
pub mod clock;
pub mod config;
pub mod directory;
pub mod fabric;
#[cfg(not(test))] // its symbols exist inside QEMU only
mod hooks;
pub mod layout;
pub mod llc;
pub mod machine;
pub mod marker;
pub mod memory;
pub mod nodemap;
pub mod pace;
pub mod stats;
pub mod stopwatch;
pub mod streams;
pub mod tag;
pub mod translation;
pub mod vcpu;
