//! A policy in its cpuset: what the kernel makes of a request, and of a policy when the cpuset
//! changes.
//!
//! Invariants: a [`Policy`] that takes nodes has at least one, all of them of the cpuset it was
//! made in; "preferred" without nodes is "local"; there is no policy of mode default, only `None`.
//!
//! Source: mpol_new, mpol_set_nodemask, mpol_rebind_policy (mm/mempolicy.c, v6.12).
//!
//! ```
//! use numaherd_mempolicy::{Flags, Mode, Policy, Request, Room};
//! let room = Room { allowed: "0-1".parse().unwrap(), memory: "0-3".parse().unwrap() };
//! let bind = Request { mode: Mode::Bind, flags: Flags::NONE, nodes: "0".parse().unwrap() };
//! let mut policy = Policy::new(&bind, &room).unwrap().unwrap();
//! policy.rebind(&"2-3".parse().unwrap()); // the cpuset moves from 0-1 to 2-3: 0 becomes 2
//! assert_eq!(policy.to_string(), "bind:2");
//! ```

use std::fmt;

use numaherd_model::{NodeId, NodeSet};
use serde::{Deserialize, Serialize};

use crate::nodes;
use crate::{Flags, Mode};

/// What set_mempolicy and mbind are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Mode.
    pub mode: Mode,
    /// Flags.
    pub flags: Flags,
    /// Nodes, as the caller means them.
    pub nodes: NodeSet,
}

impl Request {
    /// A request without flags.
    #[must_use]
    pub fn plain(mode: Mode, nodes: NodeSet) -> Request {
        Request { mode, flags: Flags::NONE, nodes }
    }
}

/// Where a policy is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Nodes the cpuset allows (`Mems_allowed`).
    pub allowed: NodeSet,
    /// Nodes that have memory.
    pub memory: NodeSet,
}

impl Room {
    /// Nodes that can be had.
    #[must_use]
    pub fn usable(&self) -> NodeSet {
        self.allowed.intersection(&self.memory)
    }
}

/// The error number the kernel gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// EINVAL.
    Invalid,
    /// EOPNOTSUPP.
    NotSupported,
}

impl Errno {
    /// Its number.
    #[must_use]
    pub fn raw(self) -> i32 {
        match self {
            Errno::Invalid => 22,
            Errno::NotSupported => 95,
        }
    }
}

/// Why the kernel refuses a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Static and relative exclude each other.
    #[error("nodes cannot be static and relative at once")]
    StaticAndRelative,
    /// The balancing flag does not go with this mode.
    #[error("the balancing flag goes with bind and prefer (many) only, not with {mode}", mode = .mode.kernel_word())]
    BalancingNotHere {
        /// The mode.
        mode: Mode,
    },
    /// The mode takes no nodes.
    #[error("{mode} takes no nodes, {nodes} given", mode = .mode.kernel_word())]
    NodesNotWanted {
        /// The mode.
        mode: Mode,
        /// What was given.
        nodes: NodeSet,
    },
    /// The mode takes no static or relative nodes, or does so only with nodes.
    #[error("{mode} without nodes takes neither static nor relative", mode = .mode.kernel_word())]
    FlagsNotWanted {
        /// The mode.
        mode: Mode,
    },
    /// The mode needs nodes.
    #[error("{mode} needs nodes", mode = .mode.kernel_word())]
    NodesMissing {
        /// The mode.
        mode: Mode,
    },
    /// None of the nodes can be had.
    #[error(
        "none of nodes {nodes} has memory that may be used here (those with memory in the cpuset: {usable})"
    )]
    NoneUsable {
        /// What was given.
        nodes: NodeSet,
        /// What could have been.
        usable: NodeSet,
    },
    /// A home node goes with bind and preferred-many only.
    #[error("a home node goes with bind and prefer (many) only, not with {mode}", mode = .mode.kernel_word())]
    HomeNotHere {
        /// The mode.
        mode: Mode,
    },
    /// The home node is not online.
    #[error("home node {home} is not online")]
    HomeNotOnline {
        /// The node.
        home: NodeId,
    },
}

impl PolicyError {
    /// The kernel's error number.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            PolicyError::HomeNotHere { .. } => Errno::NotSupported,
            _ => Errno::Invalid,
        }
    }
}

/// A policy as the kernel keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    mode: Mode,
    flags: Flags,
    /// The nodes in force.
    nodes: NodeSet,
    /// With flags, the nodes as they were asked for; without, the cpuset the policy was last fitted
    /// to. One field, as in the kernel, whose rebinding mixes the two: see [`Policy::rebind`].
    remembered: NodeSet,
    home: Option<NodeId>,
}

impl Policy {
    /// What the kernel makes of a request; `None` is "default".
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn new(request: &Request, room: &Room) -> Result<Option<Policy>, PolicyError> {
        let Some(mode) = accepted_mode(request)? else { return Ok(None) };
        let Request { flags, nodes, .. } = request;
        let mut policy = Policy {
            mode,
            flags: *flags,
            nodes: NodeSet::new(),
            remembered: NodeSet::new(),
            home: None,
        };
        if mode == Mode::Local {
            return Ok(Some(policy));
        }
        let usable = room.usable();
        let fitted = if flags.has(Flags::RELATIVE) {
            nodes::relative(nodes, &usable)
        } else {
            nodes.intersection(&usable)
        };
        if fitted.is_empty() {
            return Err(PolicyError::NoneUsable { nodes: nodes.clone(), usable });
        }
        policy.nodes =
            if mode == Mode::Preferred { fitted.first().into_iter().collect() } else { fitted };
        policy.remembered = if flags.any() { nodes.clone() } else { room.allowed.clone() };
        Ok(Some(policy))
    }

    /// Gives the range's policy a home: the node that is tried first.
    ///
    /// # Errors
    /// The mode has none, or the node is not `online`.
    pub fn set_home(&mut self, home: NodeId, online: &NodeSet) -> Result<(), PolicyError> {
        // the kernel looks at the node before it looks at the range
        if !online.contains(home) {
            return Err(PolicyError::HomeNotOnline { home });
        }
        if !matches!(self.mode, Mode::Bind | Mode::PreferredMany) {
            return Err(PolicyError::HomeNotHere { mode: self.mode });
        }
        self.home = Some(home);
        Ok(())
    }

    /// Fits the policy to the cpuset's new nodes, which must have memory.
    ///
    /// Plain nodes move to the same positions of the new cpuset, static ones are cut down to it,
    /// relative ones are counted in it again; what would be empty becomes all of it. Three things
    /// are the kernel's and look like oversights: preferred nodes stay where they are (since
    /// Linux 5.14) though they may lie outside; with flags, what get_mempolicy tells of them
    /// becomes the cpuset; and a policy whose only flag is balancing is remapped from the nodes
    /// asked for instead of the old cpuset.
    pub fn rebind(&mut self, allowed: &NodeSet) {
        if self.mode == Mode::Local || !self.flags.any() && self.remembered == *allowed {
            return;
        }
        if matches!(self.mode, Mode::Preferred | Mode::PreferredMany) {
            self.remembered = allowed.clone();
            return;
        }
        let fitted = if self.flags.has(Flags::STATIC) {
            self.remembered.intersection(allowed)
        } else if self.flags.has(Flags::RELATIVE) {
            nodes::relative(&self.remembered, allowed)
        } else {
            let old = std::mem::replace(&mut self.remembered, allowed.clone());
            nodes::remap(&self.nodes, &old, allowed)
        };
        self.nodes = if fitted.is_empty() { allowed.clone() } else { fitted };
    }

    /// Mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Flags.
    #[must_use]
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// The nodes in force.
    #[must_use]
    pub fn nodes(&self) -> &NodeSet {
        &self.nodes
    }

    /// The home node, if one was set.
    #[must_use]
    pub fn home(&self) -> Option<NodeId> {
        self.home
    }

    /// The nodes get_mempolicy tells: with flags those asked for, else those in force.
    #[must_use]
    pub fn told_nodes(&self) -> &NodeSet {
        if self.flags.any() { &self.remembered } else { &self.nodes }
    }
}

/// The mode the kernel ends with: preferred without nodes is local, default is none.
fn accepted_mode(request: &Request) -> Result<Option<Mode>, PolicyError> {
    let Request { mode, flags, nodes } = request;
    if flags.has(Flags::STATIC) && flags.has(Flags::RELATIVE) {
        return Err(PolicyError::StaticAndRelative);
    }
    if flags.has(Flags::BALANCING) && !matches!(mode, Mode::Bind | Mode::PreferredMany) {
        return Err(PolicyError::BalancingNotHere { mode: *mode });
    }
    match mode {
        Mode::Default | Mode::Local if !nodes.is_empty() => {
            Err(PolicyError::NodesNotWanted { mode: *mode, nodes: nodes.clone() })
        }
        Mode::Default => Ok(None),
        Mode::Local | Mode::Preferred if nodes.is_empty() => {
            if flags.fixes_nodes() {
                return Err(PolicyError::FlagsNotWanted { mode: *mode });
            }
            Ok(Some(Mode::Local))
        }
        _ if nodes.is_empty() => Err(PolicyError::NodesMissing { mode: *mode }),
        _ => Ok(Some(*mode)),
    }
}

impl fmt::Display for Policy {
    /// As the kernel writes it in numa_maps: `bind=static:0-1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mode.kernel_word())?;
        if self.flags.any() {
            write!(f, "={}", self.flags)?;
        }
        if self.nodes.is_empty() { Ok(()) } else { write!(f, ":{}", self.nodes) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
