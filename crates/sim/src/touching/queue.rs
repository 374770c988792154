//! Events in the order of their times, and of equal ones in that in which they came.
//!
//! Half of all events follow at once from the one before: these wait in line, the others in a heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// When, in whole picoseconds so that times have an order, the how manieth, and what.
type Entry<T> = (u64, u64, T);

/// See the module.
pub struct Queue<T> {
    later: BinaryHeap<Reverse<Entry<T>>>,
    /// In order. None is later than the event that was taken last.
    at_once: VecDeque<Entry<T>>,
    now: u64,
    number: u64,
}

impl<T: Ord> Queue<T> {
    /// Empty.
    pub fn new() -> Queue<T> {
        Queue { later: BinaryHeap::new(), at_once: VecDeque::new(), now: 0, number: 0 }
    }

    pub fn push(&mut self, at_ns: f64, what: T) {
        self.number += 1;
        let at = (at_ns * 1000.0) as u64;
        let entry = (at, self.number, what);
        // A time that was taken from here and is given back may be rounded down by one.
        let in_order = self.at_once.back().is_none_or(|(last, ..)| *last <= at);
        if at <= self.now && in_order {
            self.at_once.push_back(entry);
        } else {
            self.later.push(Reverse(entry));
        }
    }

    /// The next event, and its time in nanoseconds.
    pub fn pop(&mut self) -> Option<(f64, T)> {
        let waits = self.at_once.front().is_some_and(|(at, number, _)| {
            self.later.peek().is_none_or(|Reverse(later)| (*at, *number) < (later.0, later.1))
        });
        let next = match waits {
            true => self.at_once.pop_front(),
            false => self.later.pop().map(|Reverse(next)| next),
        };
        let (at, _, what) = next?;
        self.now = at;
        Some((at as f64 / 1000.0, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    /// However times come, each event is the first of those that wait.
    #[test]
    fn the_first_comes_first() {
        let (mut queue, mut waiting) = (Queue::new(), Vec::new());
        let mut random = Stream::new(1, "queue");
        let (mut now, mut number) = (0.0_f64, 0_u64);
        for round in 0..20_000 {
            for _ in 0..random.below(3) {
                let after = [0.0, 0.0, 0.3, 7.0, 1000.0 / 3.0][random.below(5) as usize];
                number += 1;
                queue.push(now + after, number);
                waiting.push((((now + after) * 1000.0) as u64, number));
            }
            if round % 3 == 0 {
                continue;
            }
            waiting.sort_unstable();
            let first = (!waiting.is_empty()).then(|| waiting.remove(0));
            let popped = queue.pop();
            assert_eq!(popped.map(|(_, number)| number), first.map(|(_, number)| number));
            if let Some((at, _)) = popped {
                now = at;
            }
        }
        assert!(number > 15_000);
    }
}
