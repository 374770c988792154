//! Work in threads of its own, as far as any can be had.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

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

/// What a call comes to if it is over within that time; `None` if it is not: it goes on then, in its thread, for as long as
/// it likes. Where no thread can be had it is waited for.
pub fn within<T: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, answer) = channel();
    let call = Arc::new(Mutex::new(Some(call)));
    let take = |call: &Mutex<Option<_>>| call.lock().ok().and_then(|mut call| call.take());
    let its = Arc::clone(&call);
    let work = move || {
        if let Some(call) = take(&its) {
            // Nobody may be waiting any more.
            _ = sender.send(call());
        }
    };
    match Builder::new().spawn(work) {
        Ok(_) => answer.recv_timeout(limit).ok(),
        Err(_) => take(&call).map(|call| call()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_never_ends_is_not_waited_for() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let (keep, never) = channel::<u32>();
        assert_eq!(within(Duration::from_millis(20), move || never.recv().ok()), None);
        drop(keep);
    }

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
