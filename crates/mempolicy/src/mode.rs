//! Modes and flags of policies, with their numbers in include/uapi/linux/mempolicy.h.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A policy's mode. The order is that of the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(i32)]
pub enum Mode {
    /// No policy of its own: what the next outer scope says.
    Default = 0,
    /// One node first, others when it is full.
    Preferred = 1,
    /// These nodes only.
    Bind = 2,
    /// Pages in turn over these nodes.
    Interleave = 3,
    /// The node of the CPU that touches first (as a mode of its own since Linux 3.8).
    Local = 4,
    /// These nodes first, others when they are full (Linux 5.15).
    PreferredMany = 5,
    /// Pages in turn, by the nodes' weights (Linux 6.9).
    WeightedInterleave = 6,
}

impl Mode {
    /// All modes, in the order of their numbers.
    pub const ALL: [Mode; 7] = [
        Mode::Default,
        Mode::Preferred,
        Mode::Bind,
        Mode::Interleave,
        Mode::Local,
        Mode::PreferredMany,
        Mode::WeightedInterleave,
    ];

    /// The kernel's number.
    #[must_use]
    pub fn raw(self) -> i32 {
        self as i32
    }

    /// From the kernel's number, without flags; None for a mode newer than this program.
    #[must_use]
    pub fn from_raw(raw: i32) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.raw() == raw)
    }

    /// The kernel's word, in numa_maps and `mpol=`.
    #[must_use]
    pub fn kernel_word(self) -> &'static str {
        match self {
            Mode::Default => "default",
            Mode::Preferred => "prefer",
            Mode::Bind => "bind",
            Mode::Interleave => "interleave",
            Mode::Local => "local",
            Mode::PreferredMany => "prefer (many)",
            Mode::WeightedInterleave => "weighted interleave",
        }
    }

    /// The word in `numactl --show`.
    #[must_use]
    pub fn numactl_word(self) -> &'static str {
        match self {
            Mode::Default => "default",
            Mode::Preferred => "preferred",
            Mode::Bind => "bind",
            Mode::Interleave => "interleave",
            Mode::Local => "local",
            Mode::PreferredMany => "preferred-many",
            Mode::WeightedInterleave => "weighted-interleave",
        }
    }

    /// Whether pages go round over several nodes.
    #[must_use]
    pub fn takes_turns(self) -> bool {
        matches!(self, Mode::Interleave | Mode::WeightedInterleave)
    }
}

/// Bits that go with a mode.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Flags(i32);

impl Flags {
    /// None.
    pub const NONE: Flags = Flags(0);
    /// Nodes are numbers of the machine, whatever the cpuset becomes.
    pub const STATIC: Flags = Flags(1 << 15);
    /// Nodes count within the cpuset: 0 is its first.
    pub const RELATIVE: Flags = Flags(1 << 14);
    /// Bound memory takes part in the kernel's balancing all the same (Linux 5.12; for
    /// preferred-many since 6.10).
    pub const BALANCING: Flags = Flags(1 << 13);

    /// The kernel's bits.
    #[must_use]
    pub fn raw(self) -> i32 {
        self.0
    }

    /// Splits what the kernel calls a policy's mode into its number and the flags.
    #[must_use]
    pub fn split(raw: i32) -> (i32, Flags) {
        let all = Flags::STATIC.0 | Flags::RELATIVE.0 | Flags::BALANCING.0;
        (raw & !all, Flags(raw & all))
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    #[must_use]
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any is set.
    #[must_use]
    pub fn any(self) -> bool {
        self.0 != 0
    }

    /// Whether nodes are static or relative.
    #[must_use]
    pub fn fixes_nodes(self) -> bool {
        self.has(Flags::STATIC) || self.has(Flags::RELATIVE)
    }
}

impl fmt::Display for Flags {
    /// As the kernel writes them behind the mode: `static`, `relative|balancing`, or nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let named = [
            (Flags::STATIC, "static"),
            (Flags::RELATIVE, "relative"),
            (Flags::BALANCING, "balancing"),
        ];
        for (flag, name) in named {
            if self.has(flag) {
                f.write_str(if first { "" } else { "|" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        for (number, mode) in Mode::ALL.into_iter().enumerate() {
            assert_eq!(mode.raw(), number as i32);
            assert_eq!(Mode::from_raw(mode.raw()), Some(mode));
        }
        assert_eq!(Mode::from_raw(7), None);
        // 0x8002 is what get_mempolicy gives for bind with static nodes
        assert_eq!(Flags::split(0x8002), (2, Flags::STATIC));
        assert_eq!(Flags::RELATIVE.with(Flags::BALANCING).to_string(), "relative|balancing");
    }
}
