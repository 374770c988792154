//! Where threads wait for each other, and for nobody who has gone: a barrier waits for ever for a thread that
//! could not be started or has panicked.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A barrier that is waited at again and again, and that threads may leave for good.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Debug)]
struct State {
    /// Who is still to come each time.
    threads: usize,
    waiting: usize,
    /// How often it has opened.
    times: u64,
}

impl Gate {
    /// For so many threads.
    pub fn new(threads: usize) -> Gate {
        let state = Mutex::new(State { threads, waiting: 0, times: 0 });
        Gate { state, opened: Condvar::new() }
    }

    /// For one of the threads, as long as it lives. To be made before the thread is started: if it is not, what
    /// is dropped leaves.
    pub fn pass(&self) -> Pass<'_> {
        Pass(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nobody panics in the midst of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_if_all_are_there(&self, state: &mut State) {
        if state.waiting >= state.threads {
            state.waiting = 0;
            state.times += 1;
            self.opened.notify_all();
        }
    }
}

/// One thread's place at the gate.
#[derive(Debug)]
pub struct Pass<'a>(&'a Gate);

impl Pass<'_> {
    /// Waits until all who have not left wait.
    pub fn wait(&self) {
        let mut state = self.0.state();
        state.waiting += 1;
        let times = state.times;
        self.0.open_if_all_are_there(&mut state);
        let shut = |state: &mut State| state.times == times;
        drop(self.0.opened.wait_while(state, shut).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.threads -= 1;
        self.0.open_if_all_are_there(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn it_opens_when_all_have_come_each_time() {
        let (gate, came) = (Gate::new(3), AtomicUsize::new(0));
        thread::scope(|scope| {
            for pass in [gate.pass(), gate.pass(), gate.pass()] {
                let came = &came;
                scope.spawn(move || {
                    for round in 1..=100 {
                        came.fetch_add(1, Ordering::Relaxed);
                        pass.wait();
                        assert!(came.load(Ordering::Relaxed) >= 3 * round);
                        pass.wait();
                    }
                });
            }
        });
        assert_eq!(came.into_inner(), 300);
    }

    #[test]
    fn who_leaves_is_not_waited_for() {
        let gate = Gate::new(3);
        let [first, second, third] = [gate.pass(), gate.pass(), gate.pass()];
        drop(first);
        thread::scope(|scope| {
            scope.spawn(move || {
                second.wait();
                second.wait();
            });
            third.wait();
            // While the other waits, or before.
            drop(third);
        });
    }
}
