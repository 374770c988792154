//! Linux memory policies, as data: what a policy means, where its pages go, what a change of
//! the cpuset makes of it, and the texts in which people and the kernel write it. Pure: no system
//! call, file, clock or thread.
//!
//! | module | owns |
//! |---|---|
//! | [`mode`] | modes and flags, with the kernel's numbers |
//! | [`policy`] | a policy in its cpuset: what the kernel accepts, and rebinding |
//! | [`placing`] | which node a page goes to, and the order in which nodes stand in |
//! | [`scope`] | which policy counts: range or object, task, system; fork and exec |
//! | [`ranges`] | policies over ranges of a shared object |
//! | [`shared`] | the same, for readers that take neither lock nor reference |
//! | [`kernel_text`] | `bind=static:0-1`: tmpfs's `mpol=` and the words of numa_maps |
//! | [`numactl`] | numactl's options |
//! | [`intent`] | what they ask for |
//! | [`lists`] | numactl's lists of nodes and CPUs: `0,2-3`, `all`, `!0`, `+0-1` |
//!
//! Numbers and rules are those of Linux 6.12 (mm/mempolicy.c, mm/page_alloc.c, lib/bitmap.c);
//! where another version differs, the item says so.
//!
//! ```
//! use numaherd_mempolicy::{Flags, Mode, Policy, Request, Room};
//! // Interleave over the cpuset's first and second node; the cpuset has nodes 2 and 3.
//! let room = Room { allowed: "2-3".parse().unwrap(), memory: "0-3".parse().unwrap() };
//! let request = Request { mode: Mode::Interleave, flags: Flags::RELATIVE, nodes: "0-1".parse().unwrap() };
//! let policy = Policy::new(&request, &room).unwrap().unwrap();
//! assert_eq!(policy.to_string(), "interleave=relative:2-3");
//! ```

pub mod intent;
pub mod kernel_text;
pub mod lists;
pub mod mode;
pub mod nodes;
pub mod numactl;
pub mod placing;
pub mod policy;
pub mod ranges;
pub mod scope;
pub mod shared;

pub use mode::{Flags, Mode};
pub use policy::{Errno, Policy, PolicyError, Request, Room};
