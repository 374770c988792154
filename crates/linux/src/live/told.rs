//! Of which of a process's mappings accesses are told, and how much of its memory that is.

use std::ops::Range;

use numaherd_model::Bytes;

use super::huge;
use crate::memory::maps::{AnonymousRange, Layout};
use crate::memory::numa_maps::Mapping;

/// A thread's own policy is looked at where that costs the kernel a walk over no more pages than that: those of the
/// process's first mapping, which mostly is the program's code. Guessed: 0.1 ms.
const MOST_WALKED: u64 = 1024;

/// A mapping of which accesses are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub range: Range<u64>,
    pub kind: Kind,
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of the reserve.
    Moves,
    /// Of the reserve, and to stay where it is.
    Stays,
    /// Memory that faults.
    Faults,
    /// The same where no huge page fits into the mapping: a stack, or an edge.
    Edge,
}

impl Kind {
    /// Whether memory of it takes hinting faults.
    pub fn faults(self) -> bool {
        matches!(self, Kind::Faults | Kind::Edge)
    }
}

/// What a process has resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// In mappings of which accesses are told.
    pub told: Bytes,
    /// Of which somebody could tell: all but files that are only read, such as a program's code, over which the
    /// kernel's scans pass (`task_numa_work`, v6.12).
    pub tellable: Bytes,
    /// All of it.
    pub all: Bytes,
}

impl Resident {
    /// Where nothing is known of memory that there is.
    pub const UNKNOWN: Resident = Resident { told: Bytes(0), tellable: Bytes(1), all: Bytes(1) };

    /// Sums up mappings, of some of which accesses are told.
    pub fn of(mappings: &[Mapping], told: &[Told], layout: &Layout) -> Resident {
        let sum = |counts: &dyn Fn(u64) -> bool| {
            let counted = mappings.iter().filter(|mapping| counts(mapping.start));
            Bytes(counted.map(|mapping| mapping.resident().0).sum())
        };
        Resident {
            told: sum(&|start| told.binary_search_by_key(&start, |told| told.range.start).is_ok()),
            tellable: sum(&|start| layout.read_only.binary_search(&start).is_err()),
            all: sum(&|_| true),
        }
    }

    /// What of memory accesses are told to, per mille; all where there is none.
    pub fn told_permille(&self, of: Bytes) -> u32 {
        let permille = self.told.0.saturating_mul(1000).checked_div(of.0);
        permille.map_or(1000, |permille| permille as u32)
    }
}

/// Mappings of which accesses are told, ascending. Where one of the reserve ends is known by where the next begins.
pub fn told(mappings: &[Mapping], own: &[AnonymousRange]) -> Vec<Told> {
    let end = |start: u64| {
        let at = own.binary_search_by_key(&start, |range| range.start).ok()?;
        Some(start + own[at].len.0)
    };
    let nexts = mappings.iter().skip(1).map(|next| next.start).chain([u64::MAX]);
    let one = |(mapping, next): (&Mapping, u64)| {
        let kind = kind(mapping)?;
        let end = if kind == Kind::Faults { end(mapping.start)? } else { next };
        Some(Told { range: mapping.start..end, kind })
    };
    mappings.iter().zip(nexts).filter_map(one).collect()
}

/// Whether of a process with this first mapping each thread's own policy can be told at little cost.
pub fn shows(first: &Mapping) -> bool {
    first.policy == "default" && first.resident().0 <= MOST_WALKED * first.page_size.0
}

fn kind(mapping: &Mapping) -> Option<Kind> {
    if !mapping.huge {
        return (mapping.policy == "default" && !mapping.stack).then_some(Kind::Faults);
    }
    let moves = mapping.policy == "default"
        && mapping.anonymous == mapping.resident()
        && mapping.page_size.0 == huge::BYTES;
    Some(if moves { Kind::Moves } else { Kind::Stays })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::numa_maps::parse;

    #[test]
    fn only_private_huge_pages_of_2_mib_without_a_policy_move() {
        let of = |line: &str| kind(&parse(line).unwrap());
        let huge = "file=/anon_hugepage huge";
        let own = |policy| format!("1000 {policy} {huge} anon=3 dirty=3 N0=2 N1=1");
        assert_eq!(of(&(own("default") + " kernelpagesize_kB=2048")), Some(Kind::Moves));
        assert_eq!(of(&(own("default") + " kernelpagesize_kB=1048576")), Some(Kind::Stays));
        assert_eq!(of(&(own("bind:0") + " kernelpagesize_kB=2048")), Some(Kind::Stays));
        let shared = "1000 default file=/SYSV00000000 huge dirty=3 N0=3 kernelpagesize_kB=2048";
        assert_eq!(of(shared), Some(Kind::Stays));
        assert_eq!(of("1000 default anon=3 dirty=3 N0=3 kernelpagesize_kB=4"), Some(Kind::Faults));
        assert_eq!(of("1000 bind:0 anon=3 dirty=3 N0=3 kernelpagesize_kB=4"), None);
        assert_eq!(of("1000 default stack anon=3 dirty=3 N0=3 kernelpagesize_kB=4"), None);
    }

    #[test]
    fn a_threads_policy_is_looked_at_where_the_first_mapping_has_none_and_is_small() {
        let of = |line: &str| shows(&parse(line).unwrap());
        assert!(of("1000 default file=/bin/x") && !of("1000 bind:0 file=/bin/x"));
        assert!(of("1000 default anon=1024 N0=1000 N1=24 kernelpagesize_kB=4"));
        assert!(!of("1000 default anon=1025 N0=1025 kernelpagesize_kB=4"));
        assert!(of("1000 default anon=1024 N0=1024 kernelpagesize_kB=2048"));
    }

    /// A program of 4 MiB of code with 40 MiB of its own is told as whole as one without.
    #[test]
    fn code_of_which_no_fault_tells_either_is_not_missed_but_is_part_of_all() {
        let line = |line: &str| parse(line).unwrap();
        let mappings = [
            line("1000 default file=/bin/x mapped=1000 N0=1000 kernelpagesize_kB=4"),
            line("9000000 default anon=9900 dirty=9900 N0=9900 kernelpagesize_kB=4"),
            line("f000000 bind:0 anon=100 dirty=100 N0=100 kernelpagesize_kB=4"),
        ];
        let range = AnonymousRange { start: 0x900_0000, len: Bytes(9900 << 12) };
        let told = told(&mappings, &[range]);
        let layout = Layout { read_only: vec![0x1000], ..Layout::default() };
        let known = Resident::of(&mappings, &told, &layout);
        let pages = |pages: u64| Bytes(pages << 12);
        let expected = Resident { told: pages(9900), tellable: pages(10_000), all: pages(11_000) };
        assert_eq!(known, expected);
        assert_eq!(
            (known.told_permille(known.tellable), known.told_permille(known.all)),
            (990, 900)
        );
        let (none, unknown) = (Resident::default(), Resident::UNKNOWN);
        assert_eq!((none.told_permille(none.all), unknown.told_permille(unknown.all)), (1000, 0));
    }
}
