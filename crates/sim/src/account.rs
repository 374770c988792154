//! Where tasks spend their time: in the work itself, in the kernel on their behalf, blocked, or
//! runnable without a CPU.
//!
//! Times are nanoseconds, counted where the engine spends them; a place's count is how often a
//! task came there. Invariant: over a finished run without scans, all places together are the
//! tasks' lives from their beginning to their end.
//!
//! Names follow the kernels of 2012, whose call graphs they stand beside. What is blocked is what
//! leaves the CPU until something else happens: those are the points at which a kernel schedules.
//!
//! ```
//! use numaherd_sim::account::{Account, Place};
//! let mut account = Account::default();
//! account.add(Place::RmapWalk, 30);
//! account.add(Place::PageLock, 10);
//! account.add(Place::Computing, 60);
//! assert_eq!((account.total_ns(), account.ns(Place::RmapWalk)), (100, 30));
//! assert!(Place::RmapWalk.blocks() && !Place::Computing.blocks());
//! ```

use serde::Serialize;

/// A place where time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its work, as fast as it goes while nobody else uses that memory.
    Computing,
    /// Waiting for a memory or link that is full.
    Full,
    /// Memory touched first, in the time of the run.
    Clearing,
    /// Hinting faults, what they move apart.
    Fault,
    /// Unmapping pages that move.
    Unmapping,
    /// Waiting for the anon_vma mutex, to unmap.
    PageLock,
    /// Flushing TLBs of pages that move.
    Flushing,
    /// Copying pages.
    Copying,
    /// Mapping small pages again.
    Mapping,
    /// Waiting for the anon_vma mutex, to map again.
    RmapWalk,
    /// Copying once more, to rebuild a huge page that was split.
    Rebuilding,
    /// Arming pages for hinting faults.
    Arming,
    /// numaherd, which moves pages where this task runs.
    Ours,
    /// Runnable, and another runs.
    Queue,
    /// Blocked: others of the process have not come.
    Barrier,
    /// Blocked: another has the process's lock.
    Lock,
    /// Blocked: nobody has told that it may go on.
    Condition,
    /// Blocked: nothing to read, or nowhere to write.
    Pipe,
    /// Asleep as the workload has it.
    Sleeping,
}

/// How many there are.
const PLACES: usize = Place::ALL.len();

impl Place {
    /// All of them.
    pub const ALL: [Place; 19] = [
        Place::Computing,
        Place::Full,
        Place::Clearing,
        Place::Fault,
        Place::Unmapping,
        Place::PageLock,
        Place::Flushing,
        Place::Copying,
        Place::Mapping,
        Place::RmapWalk,
        Place::Rebuilding,
        Place::Arming,
        Place::Ours,
        Place::Queue,
        Place::Barrier,
        Place::Lock,
        Place::Condition,
        Place::Pipe,
        Place::Sleeping,
    ];

    /// From the outermost function to the place itself.
    #[must_use]
    pub fn path(self) -> &'static [&'static str] {
        match self {
            Place::Computing => &["user code", "at its own speed"],
            Place::Full => &["user code", "waits at full memory or links"],
            Place::Clearing => &["page_fault", "clear_page"],
            Place::Fault => &["page_fault", "do_numa_page", "fault"],
            Place::Unmapping => &["page_fault", "do_numa_page", "migrate_pages", "try_to_unmap"],
            Place::PageLock => {
                &["page_fault", "do_numa_page", "migrate_pages", "page_lock_anon_vma (waits)"]
            }
            Place::Flushing => &["page_fault", "do_numa_page", "migrate_pages", "flush_tlb_page"],
            Place::Copying => &["page_fault", "do_numa_page", "migrate_pages", "copy_page"],
            Place::Mapping => {
                &["page_fault", "do_numa_page", "migrate_pages", "remove_migration_ptes"]
            }
            Place::RmapWalk => {
                &["page_fault", "do_numa_page", "migrate_pages", "rmap_walk (waits)"]
            }
            Place::Rebuilding => {
                &["page_fault", "do_numa_page", "migrate_pages", "collapse_huge_page"]
            }
            Place::Arming => &["task_numa_work", "change_protection"],
            Place::Ours => &["numaherd", "move_pages"],
            Place::Queue => &["runnable", "waits for a CPU"],
            Place::Barrier => &["futex_wait", "barrier"],
            Place::Lock => &["futex_wait", "lock"],
            Place::Condition => &["futex_wait", "condition"],
            Place::Pipe => &["pipe_wait", "peer"],
            Place::Sleeping => &["nanosleep", "sleeps"],
        }
    }

    /// The last function of its path, without remarks.
    #[must_use]
    pub fn name(self) -> &'static str {
        let last = self.path().last().copied().unwrap_or_default();
        last.split(" (").next().unwrap_or_default()
    }

    /// Whether the task gives up its CPU there until something happens: a point of scheduling.
    /// Sleep as the workload has it is none, nor is a turn that is over.
    #[must_use]
    pub fn blocks(self) -> bool {
        matches!(
            self,
            Place::PageLock
                | Place::RmapWalk
                | Place::Barrier
                | Place::Lock
                | Place::Condition
                | Place::Pipe
        )
    }
}

/// Time and visits by place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    ns: [u64; PLACES],
    times: [u64; PLACES],
}

impl Default for Account {
    fn default() -> Self {
        Account { ns: [0; PLACES], times: [0; PLACES] }
    }
}

impl Account {
    /// A visit of so long.
    pub fn add(&mut self, place: Place, ns: u64) {
        self.add_times(place, ns, 1);
    }

    /// So many visits of so long together.
    pub fn add_times(&mut self, place: Place, ns: u64, times: u64) {
        self.ns[place as usize] += ns;
        self.times[place as usize] += times;
    }

    /// Time there.
    #[must_use]
    pub fn ns(&self, place: Place) -> u64 {
        self.ns[place as usize]
    }

    /// Visits.
    #[must_use]
    pub fn times(&self, place: Place) -> u64 {
        self.times[place as usize]
    }

    /// Time everywhere.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.ns.iter().sum()
    }

    /// Of all times that a task was blocked, the share of this place; 0 if none ever was.
    #[must_use]
    pub fn share_of_blocks(&self, place: Place) -> f64 {
        let all: u64 = Place::ALL.iter().filter(|p| p.blocks()).map(|&p| self.times(p)).sum();
        if all == 0 { 0.0 } else { self.times(place) as f64 / all as f64 }
    }
}

/// One lock over a run, as lock meters tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LockUse {
    /// How often it was taken.
    pub taken: u64,
    /// How often the taker had to wait.
    pub waited: u64,
    /// How long it was held, all together.
    pub held_ns: u64,
    /// How long takers waited, all together.
    pub wait_ns: u64,
    /// The longest wait.
    pub longest_wait_ns: u64,
}

impl LockUse {
    /// It is taken after this wait.
    pub fn take(&mut self, wait_ns: u64) {
        self.take_times(wait_ns, 1);
    }

    /// It is taken so many times, after waits of so long together.
    pub fn take_times(&mut self, wait_ns: u64, times: u64) {
        self.taken += times;
        self.waited += if wait_ns > 0 { times } else { 0 };
        self.wait_ns += wait_ns;
        self.longest_wait_ns = self.longest_wait_ns.max(wait_ns / times.max(1));
    }

    /// Somebody who waited for it so many times, so long together, leaves without it.
    pub fn leave(&mut self, wait_ns: u64, times: u64) {
        self.take_times(wait_ns, times);
        self.taken -= times;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_listed_in_their_own_order_and_have_paths_of_their_own() {
        for (index, place) in Place::ALL.into_iter().enumerate() {
            assert_eq!(place as usize, index, "{place:?}");
        }
        let mut paths: Vec<_> = Place::ALL.iter().map(|place| place.path()).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), Place::ALL.len());
    }

    #[test]
    fn shares_are_of_what_blocks() {
        let mut account = Account::default();
        assert_eq!(account.share_of_blocks(Place::RmapWalk), 0.0);
        account.add_times(Place::RmapWalk, 5, 3);
        account.add_times(Place::PageLock, 50, 1);
        account.add_times(Place::Computing, 500, 1000);
        assert_eq!(account.share_of_blocks(Place::RmapWalk), 0.75);
    }

    #[test]
    fn a_lock_knows_its_longest_wait() {
        let mut lock = LockUse::default();
        [0, 7, 3].into_iter().for_each(|wait| lock.take(wait));
        assert_eq!((lock.taken, lock.waited, lock.wait_ns, lock.longest_wait_ns), (3, 2, 10, 7));
        lock.leave(4, 2);
        assert_eq!((lock.taken, lock.waited, lock.wait_ns, lock.longest_wait_ns), (3, 4, 14, 7));
    }
}
