//! A heap from which the first is taken, and into which another comes mostly right after that: it takes the first's
//! place, which is half of the work of taking one out and putting another in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Firsts<T: Ord> {
    heap: BinaryHeap<Reverse<T>>,
    /// The first is not there any more.
    taken: bool,
}

impl<T: Ord + Copy> Firsts<T> {
    /// Empty.
    pub fn new() -> Firsts<T> {
        Firsts { heap: BinaryHeap::new(), taken: false }
    }

    pub fn push(&mut self, one: T) {
        if std::mem::take(&mut self.taken)
            && let Some(mut first) = self.heap.peek_mut()
        {
            *first = Reverse(one);
            return;
        }
        self.heap.push(Reverse(one));
    }

    /// The first, which stays.
    pub fn first(&mut self) -> Option<T> {
        if std::mem::take(&mut self.taken) {
            self.heap.peek_mut().map(PeekMut::pop);
        }
        self.heap.peek().map(|Reverse(first)| *first)
    }

    /// Takes the first out.
    pub fn take(&mut self) -> Option<T> {
        let first = self.first();
        self.taken = first.is_some();
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn the_first_is_the_least_whatever_comes_when() {
        let (mut firsts, mut all) = (Firsts::new(), Vec::new());
        let mut random = Stream::new(1, "firsts");
        for _ in 0..20_000 {
            match random.below(5) {
                0 | 1 => {
                    let one = random.below(1000);
                    firsts.push(one);
                    all.push(one);
                    all.sort_unstable_by(|a, b| b.cmp(a));
                }
                2 => assert_eq!(firsts.first(), all.last().copied()),
                _ => assert_eq!(firsts.take(), all.pop()),
            }
        }
    }
}
