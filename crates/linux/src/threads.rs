//! Work in threads of its own, as far as any can be had.

use std::sync::mpsc::{Receiver, Sender, channel};
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

/// A thread that answers questions, for as long as it is not kept from that.
#[derive(Debug)]
pub struct Answerer<Q, A> {
    questions: Sender<Q>,
    answers: Receiver<A>,
}

impl<Q: Send + 'static, A: Send + 'static> Answerer<Q, A> {
    /// One that answers so; `None` where no thread can be had.
    pub fn start(answer: impl Fn(Q) -> A + Send + 'static) -> Option<Answerer<Q, A>> {
        let ((questions, asked), (told, answers)) = (channel(), channel());
        let work = move || {
            while let Ok(question) = asked.recv() {
                // Nobody may be waiting any more.
                if told.send(answer(question)).is_err() {
                    return;
                }
            }
        };
        Builder::new().spawn(work).ok()?;
        Some(Answerer { questions, answers })
    }

    /// The answer, if there is one within that time. Else it is not to be asked again: the next answer would be to this.
    pub fn ask(&self, question: Q, limit: Duration) -> Option<A> {
        self.questions.send(question).ok()?;
        self.answers.recv_timeout(limit).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_in_time_is_not_waited_for() {
        let (keep, never) = channel::<u32>();
        let answer = move |hangs| if hangs { never.recv().ok() } else { Some(7) };
        let answerer = Answerer::start(answer).unwrap();
        for _ in 0..2 {
            assert_eq!(answerer.ask(false, Duration::from_secs(60)), Some(Some(7)));
        }
        assert_eq!(answerer.ask(true, Duration::from_millis(20)), None);
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
