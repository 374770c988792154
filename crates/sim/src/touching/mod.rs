//! The page fault test: threads of one process that touch memory for the first time, page by page,
//! and meet in the kernel. Not part of a run of [`crate::engine`]: what counts here are cache lines
//! and locks, of which that knows nothing.
//!
//! A fault is a way through stages. Time of its own; cache lines that all threads write (the counters
//! of the address space, a policy's reference count), which each has to fetch from whoever wrote them
//! last; locks (that of the address space's semaphore, and of shared memory that of the object), each
//! with a line of its own and some of data. One has such a line or lock at a time; the others wait, and
//! waiting is CPU time. And the page is cleared, in memory that those who clear at once share.
//!
//! A core that writes to its memory asks for less than that carries, and two ask for more. (Published:
//! AMD, "Performance Guidelines for AMD Athlon 64 and AMD Opteron ccNUMA Multiprocessor Systems", 40555,
//! 2006: one core of four dual-core Opterons loads its node's memory with 2.98 GB/s, fetching lines and
//! writing them back, and two cores load it with 4.5 GB/s, of the 6.4 that it peaks at.)
//!
//! A line comes in the time that the machine takes to fetch it from another CPU's cache. Who reads it
//! before writing it goes twice: to fetch it, and to have others drop their copies. (Published: McKenney,
//! "Is Parallel Programming Hard": 139.5 ns, and 306 ns for an operation that looks at the old value
//! first, on four Opterons.) A ticket lock is handed on the slower the
//! more wait for it: they look at its line, so that whoever gives it up has to get that back, and then
//! all of them fetch it again, half of them, on average, before the
//! next one. (Published: Boyd-Wickizer, Kaashoek, Morris and Zeldovich, "Non-scalable locks are
//! dangerous", 2012.)
//!
//! Every page is charged to a group of processes, as Linux 2.6.25 does if it is built to: the group's
//! count is one for all, and each node has a list of the group's pages, under a lock. Whether the
//! kernel of the published tests was built so is guessed.
//!
//! Worked example: two threads on different nodes that each write one line a fault, 100 ns apart,
//! and do nothing else for 1000 ns: each waits for the line once a fault, so a fault takes 1100 ns.

use crate::machine::{LINE_BYTES, Machine};

mod kernel;

use kernel::Kernel;

/// Faults of each thread. Enough: rates change by less than 0.5 % with ten times as many.
const FAULTS: u64 = 10_000;
/// By how much each piece of a thread's time varies, clearing too, per mille either way. Guessed, since every 14th
/// page a list is drained and every 31st one is filled. With 100 threads fall into step at their locks;
/// from 300 on, figures hardly change.
const JITTER_PERMILLE: f64 = 500.0;
/// Times that a fault writes the address space's counters. Published: the fault path of Linux 2.6.25.
const COUNTER_WRITES: usize = 1;
/// To take the address space's semaphore or to give it up takes a spin lock beside its count. Published:
/// lib/rwsem-spinlock.c, which x86-64 used up to 2.6.33. How long, guessed: two locked instructions.
const SEMAPHORE_HOLD_NS: f64 = 30.0;
/// How long the object's lock of shared memory is held while nobody else wants it: to look the page up,
/// and to insert it into the page tree besides. That is done under the tree's own lock within the object's,
/// so what is fetched there adds to how long the latter is held. Published: `shmem_getpage` of Linux
/// 2.6.25. Guessed: some tens of cached accesses; the insertion is the longest.
const OBJECT_HOLD_NS: f64 = 100.0;
const TREE_HOLD_NS: f64 = 300.0;
/// Lines of data under it: how many pages there are, looked at first and counted up at the end. The
/// object's other counters are on the lock's own line, the tree's node is a thread's own, and its root is
/// with the tree's lock. Published: `shmem_inode_info` and `address_space` of Linux 2.6.25.
const OBJECT_LINES: u32 = 1;
/// How long a group's count is held to charge a page to it, guessed as for the semaphore, and its pages'
/// list, guessed. Published: `mem_cgroup_charge_common` of Linux 2.6.25. What the group is is looked at
/// first, on the line of the count's lock; of the list the entry added last is written too.
const COUNT_HOLD_NS: f64 = 30.0;
const COUNT_LINES: u32 = 1;
const LIST_HOLD_NS: f64 = 50.0;
const LIST_LINES: u32 = 1;
/// And the lock under which a shared policy is looked up. Guessed.
const POLICY_HOLD_NS: f64 = 50.0;
/// Lines of a page, and bytes that clearing one moves: it is fetched and written back.
const PAGE_LINES: f64 = 4096.0 / LINE_BYTES;
const CLEARED_BYTES: f64 = 2.0 * LINE_BYTES;

/// What is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// SysV shared memory, rather than anonymous.
    pub shared: bool,
    /// Under a policy of its own, rather than the system's default.
    pub policy: bool,
    /// By the kernel after the rework of 2008, which takes fewer references.
    pub rework: bool,
}

/// Faults per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Of CPU time.
    pub per_cpu_second: f64,
    /// From the first thread's start to the last one's end.
    pub per_second: f64,
}

impl Touched {
    /// Whether a policy is looked at before its references are counted up for the so many-th time: at its
    /// use, whether it is the default, but not where a shared one is looked up. Published: `get_vma_policy`
    /// and `mpol_shared_policy_lookup` of Linux 2.6.25.
    fn reads_before_up(self, time: usize) -> bool {
        !self.shared || time > 0
    }

    /// And before they are counted down: after the rework, whether they are counted at all. Published:
    /// `mpol_cond_put` of Linux 2.6.26.
    fn reads_before_down(self) -> bool {
        self.rework
    }

    /// Times that a fault writes the reference count of a policy. Published: before the rework a
    /// policy was referenced and released, the default one too where shared memory fell back to it,
    /// and a shared one both at its look-up and at its use; after it only a shared one is, once.
    fn references(self) -> usize {
        match (self.shared, self.policy, self.rework) {
            (true, true, false) => 4,
            (false, true, false) | (true, false, false) | (true, true, true) => 2,
            (false, false, _) | (_, false, true) | (false, true, true) => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Time of its own, as a share of all.
    Own,
    /// A write to a line.
    Line(usize),
    /// To read a line, and to write it then.
    Update(usize),
    /// A lock, how long it is held, the lines of data under it, and a line that is written under other
    /// locks too: nobody else gets that until this one is given up.
    Lock(usize, f64, u32, Option<usize>),
    /// Clearing the page.
    Clear,
}

/// Lines that all write, and locks.
const COUNTERS: usize = 0;
const POLICY: usize = 1;
const TREE: usize = 2;
const LINES: usize = 3;
const SEMAPHORE: usize = 0;
const OBJECT: usize = 1;
const LOOKUP: usize = 2;
const COUNT: usize = 3;
/// The first of as many as there are nodes.
const PAGES: usize = 4;

fn way(touched: Touched) -> Vec<Stage> {
    let mut stages = vec![Stage::Own];
    let mut add = |stage| stages.extend([stage, Stage::Own]);
    add(Stage::Lock(SEMAPHORE, SEMAPHORE_HOLD_NS, 0, None));
    if touched.shared {
        // Whether the page is there already is looked up under the tree's lock, as one of many.
        add(Stage::Line(TREE));
        add(Stage::Lock(OBJECT, OBJECT_HOLD_NS, OBJECT_LINES, None));
    }
    if touched.shared && touched.policy {
        add(Stage::Lock(LOOKUP, POLICY_HOLD_NS, 1, None));
    }
    let counted =
        |reads_first| if reads_first { Stage::Update(POLICY) } else { Stage::Line(POLICY) };
    let times = 0..touched.references() / 2;
    times.clone().for_each(|time| add(counted(touched.reads_before_up(time))));
    times.for_each(|_| add(counted(touched.reads_before_down())));
    let charge = [
        Stage::Lock(COUNT, COUNT_HOLD_NS, COUNT_LINES, None),
        Stage::Lock(PAGES, LIST_HOLD_NS, LIST_LINES, None),
    ];
    if touched.shared {
        charge.into_iter().for_each(&mut add);
        let hold_ns = OBJECT_HOLD_NS + TREE_HOLD_NS;
        add(Stage::Lock(OBJECT, hold_ns, OBJECT_LINES, Some(TREE)));
        add(Stage::Clear);
    } else {
        add(Stage::Clear);
        charge.into_iter().for_each(&mut add);
    }
    (0..COUNTER_WRITES).for_each(|_| add(Stage::Line(COUNTERS)));
    add(Stage::Lock(SEMAPHORE, SEMAPHORE_HOLD_NS, 0, None));
    stages
}

/// Rates of so many threads, where one alone takes `alone_ns` a fault.
#[must_use]
pub fn rates(
    machine: &Machine,
    touched: Touched,
    threads: usize,
    alone_ns: f64,
    seed: u64,
) -> Rates {
    let stages = way(touched);
    let fixed_ns: f64 = stages
        .iter()
        .map(|stage| match stage {
            Stage::Own | Stage::Line(_) | Stage::Update(_) => 0.0,
            Stage::Lock(_, hold_ns, ..) => *hold_ns,
            Stage::Clear => PAGE_LINES * clear_ns(machine, 0, 1),
        })
        .sum();
    let own = stages.iter().filter(|stage| matches!(stage, Stage::Own)).count() as f64;
    let own_ns = (alone_ns - fixed_ns).max(0.0) / own;
    let mut kernel = Kernel::new(machine, stages, own_ns, threads, seed);
    let ends_ns = kernel.run();
    let last = ends_ns.iter().copied().fold(0.0, f64::max);
    let faults = threads as f64 * FAULTS as f64;
    Rates {
        per_cpu_second: faults / ends_ns.iter().sum::<f64>() * 1e9,
        per_second: faults / last * 1e9,
    }
}

/// What it takes to clear a line where so many threads clear at once: as long as a core takes that
/// writes to its memory alone, or, once they ask for more than the memory carries, an equal part of that.
fn clear_ns(machine: &Machine, node: usize, clearing: usize) -> f64 {
    let full_ns = clearing as f64 * CLEARED_BYTES * 1000.0 / machine.memory_mb_s[node];
    machine.line_ns(node, node, 1).max(full_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::small;

    const ANON: Touched = Touched { shared: false, policy: false, rework: false };

    #[test]
    fn one_thread_takes_as_long_as_it_is_told_and_spends_all_of_it_itself() {
        let rates = rates(&small(), ANON, 1, 5000.0, 1);
        assert!((rates.per_cpu_second / 200_000.0 - 1.0).abs() < 0.01, "{rates:?}");
        assert_eq!(rates.per_cpu_second, rates.per_second);
    }

    #[test]
    fn two_threads_fetch_each_line_from_each_other() {
        // 200 ns a line, three lines of the address space and two of the group's count a fault, and a memory
        // each: 20,000 + 1000 ns, as far as the other has written the line meanwhile, which at four of
        // the five places it mostly has.
        let rates = rates(&small(), ANON, 2, 20_000.0, 1);
        let ns = 1e9 / rates.per_cpu_second;
        assert!((20_750.0..21_100.0).contains(&ns), "{ns}");
    }

    #[test]
    fn who_reads_before_writing_fetches_twice() {
        // Of a range's policy two references are counted: up after it was read, 400 ns, and down soon after,
        // 200 ns, where the other thread has had the line meanwhile, which it hardly ever has.
        let policy = Touched { policy: true, ..ANON };
        let ns = |touched| 1e9 / rates(&small(), touched, 2, 20_000.0, 1).per_cpu_second;
        let more = ns(policy) - ns(ANON);
        assert!((380.0..500.0).contains(&more), "{more}");
    }

    #[test]
    fn lines_come_as_the_machine_hands_them_over() {
        let (near, mut far) = (small(), small());
        far.transfer_ns.iter_mut().flatten().for_each(|ns| *ns *= 2.0);
        // Faults so long that nobody waits for a line.
        let alone_ns = 50_000.0;
        let ns = |machine| 1e9 / rates(machine, ANON, 2, alone_ns, 1).per_cpu_second - alone_ns;
        let ratio = ns(&far) / ns(&near);
        assert!((1.9..2.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn locks_end_what_more_threads_bring() {
        let machine = Machine::built_in("proliant-585").unwrap().unwrap();
        let gain = |touched| {
            let of = |threads| rates(&machine, touched, threads, 6600.0, 1).per_second;
            of(7) / of(1)
        };
        // Seven threads do seven times as much, less what lines take; locks take more.
        let gains = [gain(Touched { shared: true, ..ANON }), gain(ANON)];
        assert!(gains[0] < 5.0 && gains[1] > 5.0, "{gains:?}");
    }

    #[test]
    fn two_cores_that_clear_at_once_share_what_their_memory_carries() {
        // 43 ns a line alone, 57 ns together: 0.9 µs a page, as far as the other clears meanwhile.
        let machine = Machine::built_in("proliant-585").unwrap().unwrap();
        let mut ample = Machine::built_in("proliant-585").unwrap().unwrap();
        ample.memory_mb_s.iter_mut().for_each(|mb_s| *mb_s *= 10.0);
        assert!((clear_ns(&machine, 0, 2) / clear_ns(&machine, 0, 1) - 1.325).abs() < 0.01);
        let more_ns = |threads| {
            let ns = |machine| 1e9 / rates(machine, ANON, threads, 5500.0, 1).per_cpu_second;
            ns(&machine) - ns(&ample)
        };
        // Four threads have a memory each; of eight, all share one.
        assert!(more_ns(4).abs() < 20.0 && (250.0..700.0).contains(&more_ns(8)), "{}", more_ns(8));
    }

    #[test]
    fn who_shares_a_node_shares_its_list_of_pages() {
        // Its lock's line and that of the entry added last, 120 ns each; other lines come from nearer by then.
        let mut machine = Machine::built_in("proliant-585").unwrap().unwrap();
        machine.memory_mb_s.iter_mut().for_each(|mb_s| *mb_s *= 10.0);
        let ns = |threads| 1e9 / rates(&machine, ANON, threads, 100_000.0, 1).per_cpu_second;
        let more = ns(8) - ns(4);
        assert!((180.0..260.0).contains(&more), "{more}");
    }

    #[test]
    fn the_rework_takes_no_more_references_anywhere() {
        for (shared, policy) in [(false, false), (false, true), (true, false), (true, true)] {
            let of = |rework| Touched { shared, policy, rework }.references();
            assert!(of(true) <= of(false));
        }
    }
}
