//! The page fault test: threads of one process that touch memory for the first time, page by page,
//! and meet in the kernel. Not part of a run of [`crate::engine`]: what counts here are cache lines
//! and locks, of which that knows nothing.
//!
//! A fault is a way through stages. Time of its own; cache lines that all threads read and write (the
//! counters of the address space, a policy's reference count), which each has to fetch from whoever wrote
//! them last; locks (that of the address space's semaphore, and of shared memory those of the object), each
//! on a line, some with data on it or on others. And the page is cleared, in memory that those who clear at
//! once share. Who waits for a line or a lock spends CPU time.
//!
//! A core that writes to its memory asks for less than that carries, and two ask for more. (Published:
//! AMD, "Performance Guidelines for AMD Athlon 64 and AMD Opteron ccNUMA Multiprocessor Systems", 40555,
//! 2006: one core of four dual-core Opterons loads its node's memory with 2.98 GB/s, fetching lines and
//! writing them back, and two cores load it with 4.5 GB/s, of the 6.4 that it peaks at.)
//!
//! A line comes in the time that the machine takes to fetch it from another CPU's cache (published:
//! McKenney, "Is Parallel Programming Hard": 139.5 ns on four Opterons). Who wrote it last has it until
//! another asks for it; who only read it has a copy until somebody writes. So who reads it before writing it
//! goes twice: to fetch it, and to have others drop their copies (306 ns there). Requests for a line go to
//! the node that its memory is of, which asks all other nodes and gathers what they say. (Published: AMD
//! 40555, A.2.1.) Another request for the same line waits for that. (Guessed: something has to keep them
//! apart.) And a node answers two requests at once, for all lines of its memory.
//!
//! Spin locks are ticket locks, as on x86 from Linux 2.6.25 on: who takes one draws a number, which is a write to
//! its line, and looks at that line until it is its turn. Each such write, and that of who gives the lock up,
//! takes the copies of all who wait, and all fetch the line again, in any order: half of them, on average,
//! before the next one has it, and the others before the next write. (Published: Boyd-Wickizer, Kaashoek,
//! Morris and Zeldovich, "Non-scalable locks are dangerous", 2012.) Who gives one up goes on before that write
//! is done, but not past an instruction with a lock prefix. (Published: the x86 memory model.)
//!
//! Every page is charged to a group of processes, as Linux 2.6.25 does if it is built to: the group's
//! count is one for all, and each node has a list of the group's pages, under a lock. Whether the
//! kernel of the published tests was built so is guessed.
//!
//! Worked example: two threads on different nodes that each write one line a fault, 100 ns apart,
//! and do nothing else for 1000 ns: each waits for the line once a fault, so a fault takes 1100 ns.

use crate::layout::Tie;
use crate::machine::{LINE_BYTES, Machine};

mod kernel;
mod line;
mod queue;

use kernel::Kernel;
use line::How::{self, InTurn, Reading, Writing};

/// Requests that a node answers at once for lines of its memory. Published: a memory controller of these Opterons has
/// two buffers for what it asks the other nodes (AMD, "Revision Guide", 25759, erratum 153: as it recommends for
/// fourteen cores and more; of eight it says nothing). Guessed: each is taken until they have answered.
const AT_ONCE: usize = 2;
/// Faults of each thread. Enough: rates change by less than 0.3 % with twice as many (of three seeds, the median).
const FAULTS: u64 = 2_500;
/// By how much each piece of a thread's time varies, clearing too, per mille either way. Guessed, since every 14th
/// page a list is drained and every 31st one is filled. With 100 threads fall into step at their locks;
/// from 300 on, figures hardly change.
const JITTER_PERMILLE: f64 = 500.0;
/// To take the address space's semaphore or to give it up takes a spin lock beside its count. Published:
/// lib/rwsem-spinlock.c, which x86-64 used up to 2.6.33. How long, guessed: two locked instructions.
const SEMAPHORE_HOLD_NS: f64 = 30.0;
/// How long the object's lock of shared memory is held while nobody else wants it: to look the page up,
/// and to insert it into the page tree besides. That is done under the tree's own lock within the object's,
/// so what is fetched there adds to how long the latter is held. Published: `shmem_getpage` of Linux
/// 2.6.25. Guessed: some tens of cached accesses; the insertion is the longest.
const OBJECT_HOLD_NS: f64 = 100.0;
const TREE_HOLD_NS: f64 = 300.0;
/// And the tree's, to look the page up in it. Guessed: a few cached accesses.
const FIND_HOLD_NS: f64 = 50.0;
/// How long a group's count is held to charge a page to it, guessed as for the semaphore, and its pages'
/// list, guessed. Published: `mem_cgroup_charge_common` of Linux 2.6.25.
const COUNT_HOLD_NS: f64 = 30.0;
const LIST_HOLD_NS: f64 = 50.0;
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
    /// Time with a lock held.
    Held(f64),
    /// To read a line that others write, and to write one.
    Read(usize),
    Write(usize),
    /// To take the lock on a line, and to give it up.
    Take(usize, How),
    Leave(usize, How),
    /// Clearing the page.
    Clear,
}

impl Stage {
    /// Whether that takes an instruction with a lock prefix, which waits for all that its CPU wrote
    /// before. A ticket lock is given up without one. Published: asm-x86/spinlock.h of Linux 2.6.25.
    fn is_locked(self) -> bool {
        match self {
            Stage::Write(_) | Stage::Take(..) => true,
            Stage::Leave(_, how) => how != InTurn,
            Stage::Own | Stage::Held(_) | Stage::Read(_) | Stage::Clear => false,
        }
    }
}

/// Lines that threads fetch from each other. Published: `mm_struct`, `shmem_inode_info`, `address_space`,
/// `shared_policy`, `mem_cgroup` and `mem_cgroup_per_zone` of Linux 2.6.25.
///
/// The semaphore, with the page directory before it.
const SEMAPHORE: usize = 0;
const COUNTERS: usize = 1;
const POLICY: usize = 2;
/// The object's lock, with its counters; the page tree's root and lock; how many pages are in it.
const OBJECT: usize = 3;
const TREE: usize = 4;
const HOW_MANY: usize = 5;
/// The shared policies of an object, and their lock.
const LOOKUP: usize = 6;
/// What a group is, its count, and that's lock.
const COUNT: usize = 7;
/// Of each node: the group's pages and their lock, and the entry added last.
const LIST: usize = 8;
const ENTRY: usize = 9;
const LINES: usize = 10;

/// Taking a spin lock, what is done under it, and giving it up.
fn under(lock: usize, hold_ns: f64, inner: &[Stage]) -> Vec<Stage> {
    let outer = [Stage::Take(lock, InTurn), Stage::Held(hold_ns), Stage::Leave(lock, InTurn)];
    [&outer[..2], inner, &outer[2..]].concat()
}

/// The way of a fault. Published: `do_page_fault`, `do_anonymous_page`, `alloc_page_vma`, `shmem_getpage`,
/// `add_to_page_cache` and `mem_cgroup_charge_common` of Linux 2.6.25.
fn way(touched: Touched) -> Vec<Stage> {
    let semaphore = under(SEMAPHORE, SEMAPHORE_HOLD_NS, &[]);
    let counted = under(COUNT, COUNT_HOLD_NS, &[]);
    let charge = [
        [&[Stage::Read(COUNT)], &counted[..]].concat(),
        under(LIST, LIST_HOLD_NS, &[Stage::Write(ENTRY)]),
    ];
    let mut parts = vec![semaphore.clone(), vec![], vec![Stage::Read(SEMAPHORE)]];
    if touched.shared {
        let found = [Stage::Take(TREE, Reading), Stage::Held(FIND_HOLD_NS)];
        parts.push([&found[..], &[Stage::Leave(TREE, Reading)]].concat());
        parts.push(under(OBJECT, OBJECT_HOLD_NS, &[Stage::Read(HOW_MANY)]));
    }
    parts.extend(allocation(touched));
    if touched.shared {
        parts.extend(charge);
        let insert = [
            Stage::Take(TREE, Writing),
            Stage::Held(TREE_HOLD_NS),
            Stage::Read(HOW_MANY),
            Stage::Write(HOW_MANY),
            Stage::Leave(TREE, Writing),
        ];
        parts.extend([under(OBJECT, OBJECT_HOLD_NS, &insert), vec![Stage::Clear]]);
    } else {
        parts.extend(charge);
    }
    parts.extend([vec![Stage::Write(COUNTERS)], semaphore]);
    let own = |part: Vec<Stage>| [vec![Stage::Own], part].concat();
    parts.into_iter().chain([vec![]]).flat_map(own).collect()
}

/// Allocating a page, under a policy that is counted for as long as that takes: x86 clears an anonymous page
/// within it. A policy is looked at before it is counted up at its use, whether it is the default, but not
/// where a shared one is looked up, under a lock. Before it is counted down it is looked at after the
/// rework, whether it was counted at all. Published: `get_vma_policy`, `mpol_shared_policy_lookup` and
/// `alloc_zeroed_user_highpage` of Linux 2.6.25, `mpol_cond_put` of 2.6.26.
fn allocation(touched: Touched) -> Vec<Vec<Stage>> {
    let times = touched.references() / 2;
    let mut uses = times;
    let mut parts = vec![];
    if touched.shared && touched.policy {
        let looked_up = under(LOOKUP, POLICY_HOLD_NS, &[Stage::Write(POLICY)]);
        parts.push([&[Stage::Read(LOOKUP)], &looked_up[..]].concat());
        uses -= 1;
    }
    let up = match touched.policy {
        true => vec![Stage::Read(POLICY), Stage::Write(POLICY)],
        false => vec![Stage::Write(POLICY)],
    };
    let down = match touched.rework {
        true => vec![Stage::Read(POLICY), Stage::Write(POLICY)],
        false => vec![Stage::Write(POLICY)],
    };
    parts.extend(std::iter::repeat_n(up, uses));
    if !touched.shared {
        parts.push(vec![Stage::Clear]);
    }
    parts.extend(std::iter::repeat_n(down, times));
    parts
}

/// Rates of so many threads, where one alone takes `alone_ns` a fault, with pages where `tie` has them: free or bound
/// on a thread's own node, or mirrored, or interleaved.
#[must_use]
pub fn rates(
    machine: &Machine,
    touched: Touched,
    tie: Tie,
    threads: usize,
    alone_ns: f64,
    seed: u64,
) -> Rates {
    let stages = way(touched);
    let fixed_ns = least_ns(machine, touched);
    let own = stages.iter().filter(|stage| matches!(stage, Stage::Own)).count() as f64;
    let own_ns = (alone_ns - fixed_ns).max(0.0) / own;
    let mut kernel = Kernel::new(machine, stages, own_ns, threads, tie, seed);
    let ends_ns = kernel.run();
    let last = ends_ns.iter().copied().fold(0.0, f64::max);
    let faults = threads as f64 * FAULTS as f64;
    Rates {
        per_cpu_second: faults / ends_ns.iter().sum::<f64>() * 1e9,
        per_second: faults / last * 1e9,
    }
}

/// What a fault takes at the least on a machine: clearing the page, and what is done under locks.
#[must_use]
pub fn least_ns(machine: &Machine, touched: Touched) -> f64 {
    let taken = |stage: Stage| match stage {
        Stage::Held(hold_ns) => hold_ns,
        Stage::Clear => PAGE_LINES * clear_ns(machine, 0, 0, 1),
        _ => 0.0,
    };
    way(touched).into_iter().map(taken).sum()
}

/// What a fault takes alone on a machine if it takes so long on another. Guessed: clearing the page takes what the
/// machines' files say, all else as long as there.
#[must_use]
pub fn carried_over(alone_ns: f64, from: &Machine, to: &Machine) -> f64 {
    let clear = |machine: &Machine| {
        let home = machine.node.iter().position(|node| node.is_home()).unwrap_or(0);
        PAGE_LINES * clear_ns(machine, home, home, 1)
    };
    alone_ns + (clear(to) - clear(from))
}

/// What it takes a thread of one node to clear a line of another's memory where so many threads clear at once: as long
/// as a core takes that writes there alone, or, once they ask for more than the memory carries, an equal part of that.
/// What links carry is not looked at.
fn clear_ns(machine: &Machine, from: usize, node: usize, clearing: usize) -> f64 {
    let full_ns = clearing as f64 * CLEARED_BYTES * 1000.0 / machine.memory_mb_s[node];
    machine.line_ns(from, node, 1).max(full_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::small;

    const ANON: Touched = Touched { shared: false, policy: false, rework: false };

    #[test]
    fn one_thread_takes_as_long_as_it_is_told_and_spends_all_of_it_itself() {
        let rates = rates(&small(), ANON, Tie::Free, 1, 5000.0, 1);
        assert!((rates.per_cpu_second / 200_000.0 - 1.0).abs() < 0.01, "{rates:?}");
        assert_eq!(rates.per_cpu_second, rates.per_second);
    }

    #[test]
    fn two_threads_fetch_each_line_from_each_other() {
        // 200 ns a line, three lines of the address space and two of the group's count a fault, and a memory
        // each: 20,000 + 1000 ns, as far as the other has written the line meanwhile, which at four of
        // the five places it mostly has.
        let rates = rates(&small(), ANON, Tie::Free, 2, 20_000.0, 1);
        let ns = 1e9 / rates.per_cpu_second;
        assert!((20_750.0..21_100.0).contains(&ns), "{ns}");
    }

    #[test]
    fn who_reads_before_writing_fetches_twice() {
        // A range's policy is counted up after it was read, 400 ns, and down when the page is cleared, 200 ns,
        // where the other thread has had the line meanwhile, which it has about every other time.
        let policy = Touched { policy: true, ..ANON };
        let ns = |touched| 1e9 / rates(&small(), touched, Tie::Free, 2, 20_000.0, 1).per_cpu_second;
        let more = ns(policy) - ns(ANON);
        assert!((450.0..560.0).contains(&more), "{more}");
    }

    #[test]
    fn lines_come_as_the_machine_hands_them_over() {
        let (near, mut far) = (small(), small());
        far.transfer_ns.iter_mut().flatten().for_each(|ns| *ns *= 2.0);
        // Faults so long that nobody waits for a line.
        let alone_ns = 50_000.0;
        let ns = |machine| {
            1e9 / rates(machine, ANON, Tie::Free, 2, alone_ns, 1).per_cpu_second - alone_ns
        };
        let ratio = ns(&far) / ns(&near);
        assert!((1.9..2.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn locks_end_what_more_threads_bring() {
        let machine = Machine::built_in("proliant-585").unwrap().unwrap();
        let gain = |touched| {
            let of = |threads| rates(&machine, touched, Tie::Free, threads, 6600.0, 1).per_second;
            of(7) / of(1)
        };
        // Seven threads do seven times as much, less what lines take; locks take more.
        let gains = [gain(Touched { shared: true, ..ANON }), gain(ANON)];
        assert!(gains[0] < 5.0 && gains[1] > 5.0, "{gains:?}");
    }

    #[test]
    fn a_page_elsewhere_takes_longer_to_clear() {
        // A line takes 200 ns on one's own node and 400 on the other (`small`), a page has 64: 12,800 ns more, and of
        // interleaved pages every other.
        let ns = |tie| 1e9 / rates(&small(), ANON, tie, 1, 50_000.0, 1).per_cpu_second;
        let more = |tie| ns(tie) - ns(Tie::Free);
        let line_ns = |to| small().line_ns(0, to, 1);
        let page = 64.0 * (line_ns(1) - line_ns(0));
        let near = |more: f64, page: f64| (more / page - 1.0).abs() < 0.02;
        assert_eq!(more(Tie::Bind), 0.0);
        assert!(near(more(Tie::Inverse), page), "{} of {page}", more(Tie::Inverse));
        assert!(near(more(Tie::Interleave), page / 2.0), "{} of {page}", more(Tie::Interleave));
    }

    #[test]
    fn all_but_clearing_takes_as_long_on_another_machine() {
        let (slow, mut fast) = (small(), small());
        fast.cpu.stream_mb_s *= 2.0;
        let clears = |machine: &Machine| 64.0 * clear_ns(machine, 0, 0, 1);
        let found = carried_over(50_000.0, &slow, &fast);
        assert!((found - (50_000.0 - clears(&slow) + clears(&fast))).abs() < 1e-6, "{found}");
        assert_eq!(carried_over(50_000.0, &slow, &slow), 50_000.0);
    }

    #[test]
    fn two_cores_that_clear_at_once_share_what_their_memory_carries() {
        // 43 ns a line alone, 57 ns together: 0.9 µs a page, as far as the other clears meanwhile, a quarter of
        // the time.
        let machine = Machine::built_in("proliant-585").unwrap().unwrap();
        let mut ample = Machine::built_in("proliant-585").unwrap().unwrap();
        ample.memory_mb_s.iter_mut().for_each(|mb_s| *mb_s *= 10.0);
        assert!((clear_ns(&machine, 0, 0, 2) / clear_ns(&machine, 0, 0, 1) - 1.325).abs() < 0.01);
        let more_ns = |threads| {
            let ns = |machine| {
                1e9 / rates(machine, ANON, Tie::Free, threads, 10_000.0, 1).per_cpu_second
            };
            ns(&machine) - ns(&ample)
        };
        // Four threads have a memory each; of eight, all share one.
        assert!(more_ns(4).abs() < 20.0 && (120.0..300.0).contains(&more_ns(8)), "{}", more_ns(8));
    }

    #[test]
    fn who_shares_a_node_shares_its_list_of_pages() {
        // Its lock's line and that of the entry added last, 120 ns each; other lines come from nearer by then, and
        // are waited for a little longer, each by itself and at the node that answers for them.
        let mut machine = Machine::built_in("proliant-585").unwrap().unwrap();
        machine.memory_mb_s.iter_mut().for_each(|mb_s| *mb_s *= 10.0);
        let ns =
            |threads| 1e9 / rates(&machine, ANON, Tie::Free, threads, 100_000.0, 1).per_cpu_second;
        let more = ns(8) - ns(4);
        assert!((270.0..370.0).contains(&more), "{more}");
    }

    #[test]
    fn the_rework_takes_no_more_references_anywhere() {
        for (shared, policy) in [(false, false), (false, true), (true, false), (true, true)] {
            let of = |rework| Touched { shared, policy, rework }.references();
            assert!(of(true) <= of(false));
        }
    }
}
