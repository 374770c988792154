//! What cannot be read for a while: a file may be refused once, for lack of memory or by a fault of the kernel,
//! and that is no reason to let go of all tasks.

use anyhow::Result;
use numaherd_model::{Nanos, WorldError};

/// As long as nothing could be read the run goes on. Guessed: what is short lasts no longer.
const PATIENCE: Nanos = Nanos(60_000_000_000);

/// Reads that failed.
#[derive(Debug, Default)]
pub struct Misread {
    told: bool,
    /// Since when every turn has failed.
    since: Option<Nanos>,
    /// Since when nobody could tell whom to look after.
    unseen: Option<Nanos>,
}

impl Misread {
    /// A turn came to its end.
    pub fn turned(&mut self) {
        self.since = None;
    }

    /// A turn failed.
    ///
    /// # Errors
    /// It was not for lack of something to read, or has been so for long.
    pub fn failed(&mut self, error: WorldError, now: Nanos) -> Result<()> {
        if has_lasted(&mut self.since, now) {
            return Err(error.into());
        }
        self.passed_over(error)
    }

    /// Whom to look after, or nothing new where that could not be read.
    ///
    /// # Errors
    /// It has been so for long.
    pub fn looked<T>(&mut self, look: Result<Option<T>>, now: Nanos) -> Result<Option<T>> {
        let error = match look {
            Ok(whom) => {
                self.unseen = None;
                return Ok(whom);
            }
            Err(error) => error,
        };
        if has_lasted(&mut self.unseen, now) {
            return Err(error);
        }
        self.tell(&format!("{error:#}"));
        Ok(None)
    }

    /// What was to be known between two turns is not.
    ///
    /// # Errors
    /// It was not for lack of something to read.
    pub fn passed_over(&mut self, error: WorldError) -> Result<()> {
        if !matches!(error, WorldError::Read { .. }) {
            return Err(error.into());
        }
        self.tell(&error.to_string());
        Ok(())
    }

    fn tell(&mut self, problem: &str) {
        if !std::mem::replace(&mut self.told, true) {
            say!("numaherd: {problem}: it is tried again");
        }
    }
}

/// Whether what begins now, unless it has begun before, has lasted as long as is borne.
fn has_lasted(since: &mut Option<Nanos>, now: Nanos) -> bool {
    now.since(*since.get_or_insert(now)) >= PATIENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_to_look_after_may_be_unknown_for_a_minute() {
        let fails = || Err::<Option<u32>, _>(anyhow::anyhow!("too many open files"));
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let mut misread = Misread::default();
        assert_eq!(misread.looked(fails(), at(5)).unwrap(), None);
        assert_eq!(misread.looked(fails(), at(64)).unwrap(), None);
        assert_eq!(misread.looked(Ok(Some(7)), at(66)).unwrap(), Some(7));
        assert_eq!(misread.looked(fails(), at(67)).unwrap(), None);
        assert!(misread.looked(fails(), at(127)).is_err());
    }

    #[test]
    fn a_run_ends_once_nothing_could_be_read_for_a_minute() {
        let read = || WorldError::Read { what: "x".into(), source: std::io::Error::other("no") };
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let mut misread = Misread::default();
        assert!(misread.failed(read(), at(5)).is_ok() && misread.failed(read(), at(64)).is_ok());
        misread.turned();
        assert!(misread.failed(read(), at(65)).is_ok() && misread.failed(read(), at(124)).is_ok());
        assert!(misread.passed_over(read()).is_ok());
        assert!(misread.failed(read(), at(125)).is_err());
        let other = WorldError::Journal { source: std::io::Error::other("no") };
        assert!(Misread::default().failed(other, at(0)).is_err());
    }
}
