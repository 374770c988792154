//! Who has which line: coherence of the caches, one word for each line of the guest's memory.
//!
//! ```text
//! bit   31 … 20    19 … 14   13       12       11 … 0
//!       version    unused    shared   dirty    owner + 1, 0 for nobody
//! ```
//!
//! A line is nobody's, one CPU's alone (*owned*), or shared. Writing makes it the writer's and
//! gives it the next version, unless it was the writer's already: all other copies are stale
//! from then on, which their holders find out when they look at this word. So a line written
//! elsewhere misses, and nobody is told when it is written.
//!
//! Words are read and written without locking. Two CPUs that write one line at the same host
//! instant may both believe that they own it until the next access; counts blur, nothing breaks.
//!
//! ```text
//! CPU 0 reads → owned by 0     CPU 1 reads → shared     CPU 1 writes → version + 1, owned by 1
//! ```

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::tag::VERSION_MASK;

const VERSION_SHIFT: u32 = 20;
const SHARED: u32 = 1 << 13;
const DIRTY: u32 = 1 << 12;
const OWNER_MASK: u32 = (1 << 12) - 1;
/// CPUs that can own a line.
pub const MAX_CPUS: usize = OWNER_MASK as usize;

/// What is known of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State(u32);

impl State {
    /// Nobody's, never written.
    pub const NOTHING: State = State(0);

    /// Number of the line's present content.
    #[inline(always)]
    #[must_use]
    pub fn version(self) -> u32 {
        self.0 >> VERSION_SHIFT & VERSION_MASK
    }

    /// The CPU that has it alone, or had it before it was shared.
    #[inline(always)]
    #[must_use]
    pub fn owner(self) -> Option<usize> {
        (self.0 & OWNER_MASK).checked_sub(1).map(|cpu| cpu as usize)
    }

    /// Whether more than one CPU may have a copy.
    #[inline(always)]
    #[must_use]
    pub fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    /// Whether the owner has written it and memory has not seen that.
    #[inline(always)]
    #[must_use]
    pub fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Whether `cpu` may write without asking anybody.
    #[inline(always)]
    #[must_use]
    pub fn is_alone(self, cpu: usize) -> bool {
        self.0 & (OWNER_MASK | SHARED) == cpu as u32 + 1
    }

    /// Whether `cpu` may write without asking and has done so.
    #[inline(always)]
    #[must_use]
    pub fn is_written_by(self, cpu: usize) -> bool {
        self.0 & (OWNER_MASK | SHARED | DIRTY) == DIRTY | (cpu as u32 + 1)
    }

    /// After `cpu` has read it.
    #[must_use]
    pub fn read_by(self, cpu: usize) -> State {
        match self.owner() {
            None if !self.is_shared() => State(self.0 & !OWNER_MASK | (cpu as u32 + 1)),
            Some(owner) if owner == cpu => self,
            // What the owner had written goes to memory on this occasion.
            _ => State((self.0 | SHARED) & !DIRTY),
        }
    }

    /// After `cpu` has written it: a new version, unless nobody else can have a copy.
    #[must_use]
    pub fn written_by(self, cpu: usize) -> State {
        let nobody = self.owner().is_none() && !self.is_shared();
        let next = u32::from(!nobody && !self.is_alone(cpu));
        let version = (self.version() + next) & VERSION_MASK;
        State(version << VERSION_SHIFT | DIRTY | (cpu as u32 + 1))
    }

    /// After its content went to memory and the caches forgot it.
    #[must_use]
    pub fn forgotten(self) -> State {
        State(self.version() << VERSION_SHIFT)
    }
}

/// The words of all lines.
pub struct Directory(Box<[AtomicU32]>);

impl Directory {
    /// For lines below `lines`. Pages of it that are never touched cost the host nothing.
    #[must_use]
    pub fn new(lines: u64) -> Directory {
        // Zeroed memory fresh from the system, which iterating over atomics would touch.
        let words = Box::into_raw(vec![0u32; lines as usize].into_boxed_slice());
        // SAFETY: an AtomicU32 has the size, alignment and valid values of a u32, and the box
        // is ours alone.
        Directory(unsafe { Box::from_raw(words as *mut [AtomicU32]) })
    }

    /// What is known of a line. One beyond the end is nobody's.
    #[inline(always)]
    #[must_use]
    pub fn state(&self, line: u64) -> State {
        self.0.get(line as usize).map_or(State(0), |word| State(word.load(Relaxed)))
    }

    /// Remembers it.
    #[inline(always)]
    pub fn set(&self, line: u64, state: State) {
        if let Some(word) = self.0.get(line as usize) {
            word.store(state.0, Relaxed);
        }
    }

    /// Forgets everything. Reads all words, and writes only those that say something.
    pub fn clear(&self) {
        self.0
            .iter()
            .filter(|word| word.load(Relaxed) != 0)
            .for_each(|word| word.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_from_hand_to_hand() {
        let read = State::default().read_by(0);
        assert!(read.is_alone(0) && !read.is_dirty());
        let written = read.written_by(0);
        // Nobody else had it: no new version, nobody to ask.
        assert_eq!((written.version(), written.is_written_by(0)), (0, true));
        let shared = written.read_by(1);
        assert!(shared.is_shared() && !shared.is_dirty() && !shared.is_alone(0));
        assert_eq!(shared.version(), 0, "both copies are good");
        let taken = shared.written_by(1);
        assert_eq!((taken.version(), taken.owner()), (1, Some(1)));
        assert!(taken.is_written_by(1));
        let back = taken.written_by(0);
        assert_eq!((back.version(), back.owner()), (2, Some(0)));
        assert_eq!(back.forgotten().owner(), None);
        assert_eq!(back.forgotten().version(), 2, "an old copy does not come back to life");
    }

    #[test]
    fn writing_what_is_nobodys_needs_no_new_version() {
        let written = State::default().written_by(3);
        assert_eq!((written.version(), written.is_written_by(3)), (0, true));
    }

    #[test]
    fn versions_start_again_and_touch_nothing_else() {
        let mut state = State::default().read_by(0);
        for _ in 0..=VERSION_MASK {
            state = state.written_by(1).written_by(0);
        }
        assert!(state.is_written_by(0) && !state.is_shared());
    }

    #[test]
    fn lines_beyond_the_end_are_nobodys() {
        let directory = Directory::new(4);
        directory.set(3, State::default().read_by(1));
        directory.set(4, State::default().read_by(1));
        assert_eq!(directory.state(3).owner(), Some(1));
        assert_eq!(directory.state(4).owner(), None);
        directory.clear();
        assert_eq!(directory.state(3).owner(), None);
    }
}
