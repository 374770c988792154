//! One CPU's fair queue: the runnable task with the least virtual runtime is next.
//!
//! All tasks weigh the same, so virtual runtime is CPU time, counted from where the queue is
//! when a task joins it. Invariant: `floor` never goes back, and no waiting task starves, since
//! whoever runs overtakes it.
//!
//! ```
//! use numaherd_scheduling::Queue;
//! let mut queue = Queue::default();
//! queue.push(7, 0);
//! queue.push(8, 5);
//! assert_eq!(queue.pop(), Some((7, 0)));
//! queue.push(7, 6); // it ran for 6 ns
//! assert_eq!(queue.pop(), Some((8, 5)));
//! ```
//!
//! Kept as a sorted ring: who ran last comes in near the end, so that few others move, and what
//! is touched lies together.

use std::collections::VecDeque;

/// The period within which each of a few runnable tasks gets a turn. Published: 6 ms × (1 +
/// log2 of the CPUs, at most 3), which is 24 ms from eight CPUs on.
const LATENCY_NS: u64 = 24_000_000;
/// Shortest turn, however many wait. Published: 0.75 ms × 4 likewise.
const GRANULARITY_NS: u64 = 3_000_000;

/// So many entries at the end are looked through before the ring is halved: those of two cache lines.
const NEAR: usize = 8;

/// Runnable tasks that wait for this CPU.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Ascending.
    waiting: VecDeque<(u64, usize)>,
    floor: u64,
}

impl Queue {
    /// A task joins with its virtual runtime.
    pub fn push(&mut self, task: usize, vruntime: u64) {
        let entry = (vruntime, task);
        let behind = self.waiting.iter().rev().take(NEAR).take_while(|other| **other >= entry);
        let at = match behind.count() {
            NEAR => self.waiting.partition_point(|other| *other < entry),
            behind => self.waiting.len() - behind,
        };
        if self.waiting.get(at) != Some(&entry) {
            self.waiting.insert(at, entry);
        }
    }

    /// The next task and its virtual runtime; it leaves the queue.
    pub fn pop(&mut self) -> Option<(usize, u64)> {
        let (vruntime, task) = self.waiting.pop_front()?;
        self.floor = self.floor.max(vruntime);
        Some((task, vruntime))
    }

    /// Takes this task out, if it waits here.
    pub fn remove(&mut self, task: usize, vruntime: u64) -> bool {
        let found = self.waiting.binary_search(&(vruntime, task));
        found.is_ok_and(|at| self.waiting.remove(at).is_some())
    }

    /// The virtual runtime with which a task that was not here starts: it neither owes nor is
    /// owed anything.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Those that wait, the next first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> + '_ {
        self.waiting.iter().map(|&(vruntime, task)| (task, vruntime))
    }

    /// How long whoever runs now may go on beside those that wait.
    #[must_use]
    pub fn turn_ns(&self) -> u64 {
        (LATENCY_NS / (self.len() as u64 + 1)).max(GRANULARITY_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_tasks_share_a_cpu_evenly() {
        let mut queue = Queue::default();
        let mut ran = [0u64; 3];
        (0..3).for_each(|task| queue.push(task, 0));
        for _ in 0..300 {
            let (task, vruntime) = queue.pop().unwrap();
            // Two wait while one runs: 24 ms / 3 = 8 ms.
            let turn = queue.turn_ns();
            assert_eq!(turn, 8_000_000);
            ran[task] += turn;
            queue.push(task, vruntime + turn);
        }
        assert_eq!(ran, [800_000_000; 3]);
    }

    #[test]
    fn a_newcomer_at_the_floor_does_not_starve_the_others() {
        let mut queue = Queue::default();
        queue.push(0, 1_000);
        assert_eq!(queue.pop(), Some((0, 1_000)));
        queue.push(1, queue.floor());
        assert_eq!(queue.pop(), Some((1, 1_000)));
        assert!(queue.is_empty());
    }
}
