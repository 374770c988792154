//! A cache line that threads fetch from each other, with the lock that lies on it. Requests for a line are
//! answered one by one, by the node that its memory is of.

use std::collections::VecDeque;

/// What follows once a line is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The thread goes on.
    GoOn,
    /// A waiting thread looks whether it is its turn.
    Look,
    /// A lock that was given up is free.
    Free(How),
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A ticket lock, which is had in the order in which it was asked for.
    InTurn,
    /// A lock for reading and writing, held by a reader.
    Reading,
    /// By a writer.
    Writing,
}

/// A thread asks for a line.
#[derive(Clone, Copy)]
pub struct Request {
    pub thread: usize,
    /// To write it, so that nobody else keeps a copy.
    pub writes: bool,
    pub then: Then,
}

#[derive(Clone, Default)]
pub struct Line {
    /// What is being answered, and what waits for that.
    answered: Option<Request>,
    asked: VecDeque<Request>,
    /// Who wrote it last, and who has a copy.
    owner: Option<usize>,
    copies: Vec<usize>,
    /// Of a ticket lock: whose turn it is, and the number that is drawn next.
    turn: u64,
    drawn: u64,
    readers: usize,
    written: bool,
    /// Who waits for the lock, with the numbers drawn.
    waiting: Vec<(usize, u64)>,
}

impl Line {
    pub fn ask(&mut self, request: Request) {
        self.asked.push_back(request);
    }

    /// Who asks next, if nothing is being answered, and whom the line comes from; from nobody if the thread has
    /// what it asks for.
    pub fn next(&self) -> Option<(usize, Option<usize>)> {
        if self.answered.is_some() {
            return None;
        }
        let request = self.asked.front()?;
        let others = || self.copies.iter().copied().find(|other| *other != request.thread);
        let from = match self.owner {
            // Who has it must be told when others have copies.
            Some(owner) if owner == request.thread && request.writes => others(),
            Some(owner) if owner == request.thread => None,
            _ if !request.writes && self.copies.contains(&request.thread) => None,
            owner => owner,
        };
        Some((request.thread, from))
    }

    /// That request is answered now.
    pub fn answer(&mut self) {
        self.answered = self.asked.pop_front();
    }

    /// The line is there: what was asked, and who waits for the lock and lost a copy.
    pub fn arrived(&mut self) -> Option<(Request, Vec<usize>)> {
        let request = self.answered.take()?;
        let mut lost = Vec::new();
        if request.writes {
            let waits = |thread: &usize| self.waiting.iter().any(|(other, _)| other == thread);
            lost = std::mem::take(&mut self.copies);
            lost.retain(|thread| *thread != request.thread && waits(thread));
        }
        if request.writes || self.owner.is_none() {
            self.owner = Some(request.thread);
        }
        if !self.copies.contains(&request.thread) {
            self.copies.push(request.thread);
        }
        Some((request, lost))
    }

    /// Takes the lock for a thread that has the line, or lets it wait: whether it has the lock.
    pub fn take(&mut self, thread: usize, how: How) -> bool {
        let number = self.drawn;
        if how == How::InTurn {
            self.drawn += 1;
        }
        let free = self.is_free(how, number);
        if free {
            self.hold(how);
        } else {
            self.waiting.push((thread, number));
        }
        free
    }

    /// Whether a thread that waited finds that it waits no more. Who waited for its turn has the lock then;
    /// others have to take it.
    pub fn look(&mut self, thread: usize, how: How) -> bool {
        let Some(at) = self.waiting.iter().position(|(other, _)| *other == thread) else {
            return false;
        };
        let free = self.is_free(how, self.waiting[at].1);
        if free {
            self.waiting.remove(at);
        }
        free
    }

    pub fn free(&mut self, how: How) {
        match how {
            How::InTurn => self.turn += 1,
            How::Reading => self.readers -= 1,
            How::Writing => self.written = false,
        }
    }

    fn is_free(&self, how: How, number: u64) -> bool {
        match how {
            How::InTurn => self.turn == number,
            How::Reading => !self.written,
            How::Writing => !self.written && self.readers == 0,
        }
    }

    fn hold(&mut self, how: How) {
        match how {
            How::InTurn => {}
            How::Reading => self.readers += 1,
            How::Writing => self.written = true,
        }
    }
}
