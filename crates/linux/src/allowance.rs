//! What a task's affinity says of who set it, where cpusets and hotplug have a say too. Pure.
//!
//! `sched_setaffinity` leaves a mask with the task (its owner's, or ours), and the kernel lets the
//! task run on that mask's CPUs that are in its cpuset and online. Since Linux 6.2 the mask stays
//! when the cpuset changes, and counts again in full when the cpuset widens; earlier kernels forget
//! it then. Where mask and cpuset have nothing in common, the task may run on all of its cpuset.
//!
//! So a task whose cpuset shrank shows other CPUs than we set, and nobody changed its mask. And to
//! put back exactly the CPUs that were seen before would tie a task for ever to what its cpuset
//! happened to be: a task that was free to use all of its cpuset is given all CPUs there are.
//!
//! ```
//! # use numaherd_linux::allowance::{is_still, owners};
//! # use numaherd_model::CpuSet;
//! let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
//! // We set 0-3, and the cpuset was cut to 2-5.
//! assert!(is_still(&cpus("2-3"), &cpus("0-3"), &cpus("2-5")));
//! // Free to use its cpuset of 2-5 on a machine of eight CPUs.
//! assert_eq!(owners(&cpus("2-5"), &cpus("2-5"), &cpus("0-7")), cpus("0-7"));
//! ```
//!
//! Source: `__set_cpus_allowed_ptr` and `cpuset_cpus_allowed` (v6.12), `sched_setaffinity(2)`.

use numaherd_model::CpuSet;

/// Whether a task that may run on `current` still has the mask `set`, with `usable` the CPUs of its
/// cpuset that are online.
#[must_use]
pub fn is_still(current: &CpuSet, set: &CpuSet, usable: &CpuSet) -> bool {
    current == set || *current == effective(set, usable)
}

/// Whether a task that may run on `current` may have been born with the mask `set`, whose owner's is
/// `owner`. Where nothing of the mask can be seen, every task of the cpuset looks so: then only what was
/// born while we balanced of the process that we gave the mask (`kin`), for without us it would
/// have its owner's; of others only those from whom the owner's mask takes nothing away.
///
/// Example: a process was allowed 0-1,4-5, we set 0-1, a thread was born, and the cpuset became 4-7. The
/// thread shows 4-7, all of it; had we done nothing, it would show 4-5.
#[must_use]
pub fn is_inherited(
    current: &CpuSet,
    set: &CpuSet,
    owner: &CpuSet,
    usable: &CpuSet,
    kin: bool,
) -> bool {
    let seen = !set.intersection(usable).is_empty();
    is_still(current, set, usable) && (seen || kin || usable.is_subset(owner))
}

/// The CPUs that a mask amounts to.
#[must_use]
pub fn effective(set: &CpuSet, usable: &CpuSet) -> CpuSet {
    let both = set.intersection(usable);
    if both.is_empty() { usable.clone() } else { both }
}

/// The mask that puts back what the owner of a task allowed that may run on `current`: all
/// `possible` CPUs where that is its whole cpuset.
#[must_use]
pub fn owners(current: &CpuSet, usable: &CpuSet, possible: &CpuSet) -> CpuSet {
    if current == usable { possible.union(current) } else { current.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn a_cpuset_or_hotplug_that_took_cpus_away_is_no_change_by_the_owner() {
        for (current, set, usable, still) in [
            ("0-3", "0-3", "0-7", true),
            ("0-2", "0-3", "0-2,4-7", true), // CPU 3 went offline
            ("4-7", "0-3", "4-7", true),     // nothing is left of our mask
            ("0-7", "0-3", "0-7", false),    // somebody widened it, or an old kernel forgot it
            ("0-1", "0-3", "0-7", false),    // somebody narrowed it
        ] {
            let got = is_still(&cpus(current), &cpus(set), &cpus(usable));
            assert_eq!(got, still, "{current} {set} {usable}");
        }
    }

    #[test]
    fn a_mask_that_cannot_be_seen_is_inherited_only_where_that_does_no_harm() {
        let inherited = |current, set, owner, usable, kin| {
            is_inherited(&cpus(current), &cpus(set), &cpus(owner), &cpus(usable), kin)
        };
        assert!(inherited("2-3", "0-3", "1-7", "2-5", false));
        assert!(inherited("4-7", "0-3", "0-7", "4-7", false));
        assert!(!inherited("4-7", "0-3", "3-5", "4-7", false));
    }

    #[test]
    fn a_thread_of_the_process_has_inherited_though_nothing_of_the_mask_is_seen() {
        let kin = |current| {
            is_inherited(&cpus(current), &cpus("0-1"), &cpus("0-1,4-5"), &cpus("4-7"), true)
        };
        assert!(kin("4-7"));
        // Its owner's, or one that somebody set since.
        assert!(!kin("4-5") && !kin("4-6"));
    }

    #[test]
    fn only_who_was_free_gets_all_cpus() {
        assert_eq!(owners(&cpus("0-3"), &cpus("0-3"), &cpus("0-7")), cpus("0-7"));
        assert_eq!(owners(&cpus("0-1"), &cpus("0-3"), &cpus("0-7")), cpus("0-1"));
    }
}
