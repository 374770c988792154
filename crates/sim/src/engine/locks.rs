//! Locks of a process: it goes on who asked first, and a lock that is given back goes to that task at once.

use std::borrow::Cow;
use std::collections::VecDeque;

use numaherd_model::ProcessId;

use super::{Event, Sim};
use crate::account::LockUse;

/// One of them.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    name: Cow<'static, str>,
    holder: Option<usize>,
    /// Who wants it, and since when.
    waiting: VecDeque<(usize, u64)>,
    /// Since when the holder has it.
    since: u64,
    used: LockUse,
}

impl Lock {
    pub(super) fn named(name: impl Into<Cow<'static, str>>) -> Lock {
        Lock { name: name.into(), ..Lock::default() }
    }

    pub(super) fn is_held_by(&self, t: usize) -> bool {
        self.holder == Some(t)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// How many wait for it.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A task no longer wants it.
    pub(super) fn forget(&mut self, t: usize) {
        self.waiting.retain(|(waiting, _)| *waiting != t);
    }

    fn take(&mut self, t: usize, asked: u64, now: u64) {
        self.holder = Some(t);
        self.used.take(now - asked);
        self.since = now;
    }

    /// Whether the task has it now; if not, it is the last of those that wait.
    pub(super) fn ask(&mut self, t: usize, now: u64) -> bool {
        if self.holder.is_some() {
            self.waiting.push_back((t, now));
            return false;
        }
        self.take(t, now, now);
        true
    }

    /// The task gives it back, if it has it. Answers who has it then.
    fn give_back(&mut self, t: usize, now: u64) -> Option<usize> {
        if !self.is_held_by(t) {
            return None;
        }
        self.used.held_ns += now - self.since;
        self.holder = None;
        let (next, asked) = self.waiting.pop_front()?;
        self.take(next, asked, now);
        Some(next)
    }
}

impl Sim {
    /// A task gives a lock of its process back, if it has it; who waits for it goes on.
    pub(super) fn release_lock(&mut self, t: usize, lock: usize) {
        let p = self.tasks[t].process;
        if let Some(next) = self.processes[p].locks[lock].give_back(t, self.now) {
            self.schedule(self.now, Event::Wake(next as u32));
        }
    }

    /// A task that ends gives back what it has.
    pub(super) fn release_locks(&mut self, t: usize) {
        for lock in 0..self.processes[self.tasks[t].process].locks.len() {
            self.release_lock(t, lock);
        }
    }

    /// Every process's locks: whose, which, and their use.
    pub fn locks(&self) -> impl Iterator<Item = (ProcessId, &str, &LockUse)> {
        self.processes.iter().flat_map(|process| {
            let own = process.locks.iter().map(|lock| (process.id, lock.name(), &lock.used));
            std::iter::once((process.id, "anon_vma mutex", &process.rmap.used)).chain(own)
        })
    }
}
