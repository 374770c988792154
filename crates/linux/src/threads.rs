//! Work in threads of its own, as far as any can be had.

use std::thread::{Builder, ScopedJoinHandle};

use crate::sys::priority;

/// What is at work, or has been done already.
enum Worker<'a, R> {
    Thread(ScopedJoinHandle<'a, R>),
    Done(R),
}

/// Does this for each at once, each in a short-lived thread that goes before others; where no thread can be
/// made, in this one.
pub fn at_once<A: Sync, R: Send>(
    each: &[A],
    builder: impl Fn() -> Builder,
    work: impl Fn(&A) -> R + Sync,
) -> Vec<R> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |of| {
            let thread = builder().spawn_scoped(scope, move || {
                priority::go_first();
                work(of)
            });
            thread.map_or_else(|_| Worker::Done(work(of)), Worker::Thread)
        };
        let workers: Vec<_> = each.iter().map(start).collect();
        let answer = |worker| match worker {
            Worker::Done(answer) => answer,
            Worker::Thread(thread) => {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        };
        workers.into_iter().map(answer).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_thread_can_be_made_the_work_is_done_all_the_same() {
        let here = std::thread::current().id();
        let work = |number: &u32| (*number, std::thread::current().id() == here);
        assert_eq!(at_once(&[1, 2], Builder::new, work), [(1, false), (2, false)]);
        // No address space has room for such a stack.
        let none = || Builder::new().stack_size(1 << 60);
        assert_eq!(at_once(&[1, 2], none, work), [(1, true), (2, true)]);
    }
}
