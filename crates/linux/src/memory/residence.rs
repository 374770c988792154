//! A process's own memory by node, and what of it the kernel takes no hinting faults on.
//!
//! Own memory is anonymous memory, shared memory and huge pages of the reserve; pages of files
//! (programs, libraries) are not, since many processes use them. Not every page can fault: the
//! kernel's scan passes over hugetlb and over mappings with an explicit policy (source:
//! `task_numa_work` and `vma_policy_mof`, v6.12).
//!
//! Example: 6 MiB of default policy on node 0 and 2 MiB bound to node 1 are 8 MiB of own memory,
//! of which 75 % can fault.

use std::collections::BTreeMap;

use numaherd_model::{Bytes, NodeId};

use super::numa_maps::Mapping;

/// Why pages never fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unseen {
    /// Huge pages of the kernel's reserve.
    Hugetlb,
    /// Their owner gave them a memory policy.
    Policy,
    /// They never did, and their mapping is too long to be asked for its policy.
    Silent,
}

impl Unseen {
    /// In words.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Unseen::Hugetlb => "huge pages of the reserve",
            Unseen::Policy => "memory with a policy of its owner's",
            Unseen::Silent => {
                "in a mapping that took no faults, as with a policy of its owner's, and is too long to be asked for it"
            }
        }
    }
}

/// A process's own memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residence {
    /// All of it by node, ascending.
    pub nodes: Vec<(NodeId, Bytes)>,
    /// What can fault, by node, ascending.
    pub seen: Vec<(NodeId, Bytes)>,
    /// What cannot, by cause, ascending.
    pub unseen: Vec<(Unseen, Bytes)>,
}

impl Residence {
    /// Sums up mappings.
    #[must_use]
    pub fn of(mappings: &[Mapping]) -> Residence {
        let (mut nodes, mut seen, mut unseen) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for mapping in mappings.iter().filter(|mapping| is_own(mapping)) {
            let cause = cause(mapping);
            for &(node, Bytes(bytes)) in &mapping.nodes {
                *nodes.entry(node).or_insert(0) += bytes;
                match cause {
                    Some(cause) => *unseen.entry(cause).or_insert(0) += bytes,
                    None => *seen.entry(node).or_insert(0) += bytes,
                }
            }
        }
        let list = |map: BTreeMap<NodeId, u64>| map.into_iter().map(|(n, b)| (n, Bytes(b)));
        Residence {
            nodes: list(nodes).collect(),
            seen: list(seen).collect(),
            unseen: unseen.into_iter().map(|(cause, bytes)| (cause, Bytes(bytes))).collect(),
        }
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.nodes.iter().map(|(_, bytes)| bytes.0).sum())
    }

    /// What most of the memory is that cannot fault.
    #[must_use]
    pub fn main_cause(&self) -> Option<Unseen> {
        let first_largest = |&&(cause, bytes): &&(Unseen, Bytes)| (bytes, std::cmp::Reverse(cause));
        self.unseen.iter().max_by_key(first_largest).map(|(cause, _)| *cause)
    }

    /// The share of it that can fault, per mille; None where there is no memory.
    #[must_use]
    pub fn coverage_permille(&self) -> Option<u32> {
        let all = self.bytes().0;
        let seen: u64 = self.seen.iter().map(|(_, bytes)| bytes.0).sum();
        (all > 0).then(|| (u128::from(seen) * 1000 / u128::from(all)) as u32)
    }
}

/// Shared memory has a name like a file's.
const SHARED: [&str; 4] = ["/dev/zero", "/dev/shm/", "/memfd:", "/SYSV"];

fn is_own(mapping: &Mapping) -> bool {
    let Some(file) = &mapping.file else { return true };
    // A private mapping of a file all of whose pages were written to is memory like any other.
    mapping.huge
        || mapping.anonymous == mapping.resident()
        || SHARED.iter().any(|name| file.starts_with(name))
}

/// Why none of a mapping of a process's own takes hinting faults, if none does.
#[must_use]
pub fn unseen(mapping: &Mapping) -> Option<Unseen> {
    cause(mapping).filter(|_| is_own(mapping))
}

fn cause(mapping: &Mapping) -> Option<Unseen> {
    if mapping.huge {
        return Some(Unseen::Hugetlb);
    }
    let explicit = mapping.policy != "default" && !mapping.policy.contains("balancing");
    explicit.then_some(Unseen::Policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::numa_maps::parse;

    fn residence(lines: &[&str]) -> Residence {
        Residence::of(&lines.iter().map(|line| parse(line).unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn files_are_nobodys_own_and_policies_and_the_reserve_never_fault() {
        let mib = |n: u64| Bytes(n << 20);
        let got = residence(&[
            "1000 default anon=1536 dirty=1536 N0=1280 N1=256 kernelpagesize_kB=4",
            "2000 bind:1 anon=256 dirty=256 N1=256 kernelpagesize_kB=4",
            "3000 bind=balancing:1 anon=256 dirty=256 N1=256 kernelpagesize_kB=4",
            "4000 default file=/anon_hugepage huge anon=1 dirty=1 N0=1 kernelpagesize_kB=2048",
            "5000 default file=/usr/lib/libc.so mapped=256 N0=256 kernelpagesize_kB=4",
            "6000 default file=/dev/shm/ring mapped=256 dirty=256 N1=256 kernelpagesize_kB=4",
            "7000 default file=/usr/bin/x anon=256 dirty=256 N0=256 kernelpagesize_kB=4",
            "8000 default",
        ]);
        // node 0: 5 + 2 of the reserve + 1 of x; node 1: 1 + 1 bound + 1 balanced + 1 shared
        assert_eq!(got.nodes, [(NodeId(0), mib(8)), (NodeId(1), mib(4))]);
        assert_eq!(got.seen, [(NodeId(0), mib(6)), (NodeId(1), mib(3))]);
        assert_eq!(got.unseen, [(Unseen::Hugetlb, mib(2)), (Unseen::Policy, mib(1))]);
        // 9 of 12 MiB
        assert_eq!((got.bytes(), got.coverage_permille()), (mib(12), Some(750)));
    }

    #[test]
    fn no_memory_has_no_coverage() {
        assert_eq!(residence(&[]).coverage_permille(), None);
        assert_eq!(residence(&["8000 default"]), Residence::default());
    }
}
