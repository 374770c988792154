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
//! more wait for it, since all of them fetch its line again: half of them, on average, before the
//! next one. (Published: Boyd-Wickizer, Kaashoek, Morris and Zeldovich, "Non-scalable locks are
//! dangerous", 2012.)
//!
//! Worked example: two threads on different nodes that each write one line a fault, 100 ns apart,
//! and do nothing else for 1000 ns: each waits for the line once a fault, so a fault takes 1100 ns.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use numaherd_scheduling::{Fair, Scheduling};

use crate::machine::{LINE_BYTES, Machine};
use crate::random::Stream;

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
/// Lines of data: the object's counters; the tree's root and the node inserted into.
const OBJECT_LINES: u32 = 1;
const TREE_LINES: u32 = 2;
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
const LOCKS: usize = 3;

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
    if !touched.shared {
        add(Stage::Clear);
    }
    times.for_each(|_| add(counted(touched.reads_before_down())));
    if touched.shared {
        add(Stage::Lock(
            OBJECT,
            OBJECT_HOLD_NS + TREE_HOLD_NS,
            OBJECT_LINES + TREE_LINES,
            Some(TREE),
        ));
        add(Stage::Clear);
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
    machine.line_ns(node, node, false).max(full_ns)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The thread enters its stage.
    Enter,
    /// It gives up the lock of its stage.
    Release,
    /// It has cleared its page.
    Cleared,
}

struct Lock {
    held: bool,
    last: Option<usize>,
    waiting: VecDeque<usize>,
}

struct Kernel<'a> {
    machine: &'a Machine,
    stages: Vec<Stage>,
    own_ns: f64,
    /// Node of each thread, its stage, and faults to go.
    node: Vec<usize>,
    at: Vec<usize>,
    left: Vec<u64>,
    lines: [(Option<usize>, f64); LINES],
    locks: Vec<Lock>,
    /// Who clears pages in each node's memory, with lines to go as of some time.
    clearing: Vec<Vec<(usize, f64)>>,
    as_of_ns: Vec<f64>,
    heap: BinaryHeap<Reverse<(u64, u64, usize, What)>>,
    number: u64,
    /// Of each thread's only event that counts: put off, it stands in the queue twice.
    counts: Vec<u64>,
    jitter: Stream,
}

impl<'a> Kernel<'a> {
    fn new(
        machine: &'a Machine,
        stages: Vec<Stage>,
        own_ns: f64,
        threads: usize,
        seed: u64,
    ) -> Self {
        let domains = machine.domains();
        let node_of = machine.node_of_cpus();
        let mut load = vec![0; machine.cpus()];
        let node = (0..threads)
            .map(|_| {
                let cpu = Fair.fork(&domains, &load, 0, &|_| true);
                load[cpu] += 1;
                node_of[cpu]
            })
            .collect();
        let lock = || Lock { held: false, last: None, waiting: VecDeque::new() };
        let mut kernel = Kernel {
            machine,
            stages,
            own_ns,
            node,
            at: vec![0; threads],
            left: vec![FAULTS; threads],
            lines: [(None, 0.0); LINES],
            locks: (0..LOCKS).map(|_| lock()).collect(),
            clearing: vec![Vec::new(); machine.node.len()],
            as_of_ns: vec![0.0; machine.node.len()],
            heap: BinaryHeap::new(),
            number: 0,
            counts: vec![0; threads],
            jitter: Stream::new(seed, "faults"),
        };
        (0..threads).for_each(|thread| kernel.schedule(0.0, thread, What::Enter));
        kernel
    }

    /// Times are whole picoseconds in the queue, so that they have an order.
    fn schedule(&mut self, at_ns: f64, thread: usize, what: What) {
        self.number += 1;
        self.counts[thread] = self.number;
        let at = (at_ns * 1000.0) as u64;
        self.heap.push(Reverse((at, self.number, thread, what)));
    }

    /// When each thread ended.
    fn run(&mut self) -> Vec<f64> {
        let mut ends = vec![0.0; self.at.len()];
        while let Some(Reverse((at, number, thread, what))) = self.heap.pop() {
            if number != self.counts[thread] {
                continue;
            }
            let now = at as f64 / 1000.0;
            match what {
                What::Enter => {}
                What::Release => self.release(now, thread),
                What::Cleared => self.cleared(now, thread),
            }
            if self.at[thread] == self.stages.len() {
                self.at[thread] = 0;
                self.left[thread] -= 1;
                if self.left[thread] == 0 {
                    ends[thread] = now;
                    continue;
                }
            }
            self.enter(now, thread);
        }
        ends
    }

    fn enter(&mut self, now: f64, thread: usize) {
        match self.stages[self.at[thread]] {
            Stage::Own => {
                let own_ns = self.own_ns * self.jitter.around_one(JITTER_PERMILLE);
                self.next(now + own_ns, thread);
            }
            Stage::Line(line) => self.write(now, thread, line, 1.0),
            Stage::Update(line) => self.write(now, thread, line, 2.0),
            Stage::Lock(lock, ..) => {
                if self.locks[lock].held {
                    self.locks[lock].waiting.push_back(thread);
                } else {
                    self.acquire(now, thread);
                }
            }
            Stage::Clear => {
                let lines = PAGE_LINES * self.jitter.around_one(JITTER_PERMILLE);
                self.clear(now, self.node[thread], |clearing| clearing.push((thread, lines)));
            }
        }
    }

    fn next(&mut self, at_ns: f64, thread: usize) {
        self.at[thread] += 1;
        self.schedule(at_ns, thread, What::Enter);
    }

    /// Changes who clears pages in a node's memory, which changes when all of them are done.
    fn clear(&mut self, now: f64, node: usize, change: impl FnOnce(&mut Vec<(usize, f64)>)) {
        let mut clearing = std::mem::take(&mut self.clearing[node]);
        let since_ns = now - std::mem::replace(&mut self.as_of_ns[node], now);
        let cleared = since_ns / clear_ns(self.machine, node, clearing.len());
        clearing.iter_mut().for_each(|(_, left)| *left = (*left - cleared).max(0.0));
        change(&mut clearing);
        let line_ns = clear_ns(self.machine, node, clearing.len());
        for (thread, left) in &clearing {
            self.schedule(now + left * line_ns, *thread, What::Cleared);
        }
        self.clearing[node] = clearing;
    }

    fn cleared(&mut self, now: f64, thread: usize) {
        self.clear(now, self.node[thread], |clearing| {
            clearing.retain(|(other, _)| *other != thread)
        });
        self.at[thread] += 1;
    }

    /// Fetches a line, so often, and has it until then.
    fn write(&mut self, now: f64, thread: usize, line: usize, times: f64) {
        let (owner, free) = self.lines[line];
        let end = now.max(free) + self.fetch_ns(owner, thread) * times;
        self.lines[line] = (Some(thread), end);
        self.next(end, thread);
    }

    /// What it takes to fetch a line that another thread wrote last.
    fn fetch_ns(&self, owner: Option<usize>, thread: usize) -> f64 {
        let from = owner.filter(|owner| *owner != thread);
        from.map_or(0.0, |from| self.machine.transfer_ns[self.node[thread]][self.node[from]])
    }

    fn acquire(&mut self, now: f64, thread: usize) {
        let Stage::Lock(lock, hold_ns, data, line) = self.stages[self.at[thread]] else { return };
        let fetch_ns = self.fetch_ns(self.locks[lock].last, thread) * f64::from(1 + data);
        self.locks[lock].held = true;
        self.locks[lock].last = Some(thread);
        let mut end = now + fetch_ns + hold_ns;
        if let Some(line) = line {
            let (owner, free) = self.lines[line];
            end = end.max(free + hold_ns) + self.fetch_ns(owner, thread);
            self.lines[line] = (Some(thread), end);
        }
        self.schedule(end, thread, What::Release);
    }

    fn release(&mut self, now: f64, thread: usize) {
        let Stage::Lock(lock, ..) = self.stages[self.at[thread]] else { return };
        self.at[thread] += 1;
        self.locks[lock].held = false;
        let others = self.locks[lock].waiting.len().saturating_sub(1) as f64;
        if let Some(next) = self.locks[lock].waiting.pop_front() {
            let again_ns = self.fetch_ns(Some(thread), next) * others / 2.0;
            self.acquire(now + again_ns, next);
        }
    }
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
        // 200 ns a line, three lines a fault, and a memory each: 20,000 + 600 ns, as far as the other
        // has written the line meanwhile, which at two of its three places it mostly has.
        let rates = rates(&small(), ANON, 2, 20_000.0, 1);
        let ns = 1e9 / rates.per_cpu_second;
        assert!((20_350.0..20_700.0).contains(&ns), "{ns}");
    }

    #[test]
    fn who_reads_before_writing_fetches_twice() {
        // Of a range's policy two references are counted: up after it was read, 400 ns, and down, 200 ns,
        // as far as the other thread has had the line meanwhile.
        let policy = Touched { policy: true, ..ANON };
        let ns = |touched| 1e9 / rates(&small(), touched, 2, 20_000.0, 1).per_cpu_second;
        let more = ns(policy) - ns(ANON);
        assert!((400.0..600.0).contains(&more), "{more}");
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
        assert!(gain(Touched { shared: true, ..ANON }) < 6.0 && gain(ANON) > 6.0);
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
    fn the_rework_takes_no_more_references_anywhere() {
        for (shared, policy) in [(false, false), (false, true), (true, false), (true, true)] {
            let of = |rework| Touched { shared, policy, rework }.references();
            assert!(of(true) <= of(false));
        }
    }
}
