//! How a machine is switched off: not before what was written to its shares is here.

use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};

use super::Guest;
use crate::LabError;
use crate::agent::HEARTBEAT;
use crate::wire::{Kind, ToGuest, ToHost, write_message};

/// How long a guest may take to hear of its end where the user wants one, or the time is over.
const HASTY_PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at what it says.
const LOOK: Duration = Duration::from_millis(20);

/// How long a guest that is told to switch itself off is waited for.
struct Waits {
    /// While nothing is heard of it.
    silent: Duration,
    /// Once the user wants an end, or the time is over.
    hasty: Duration,
    /// However much it says that it goes on.
    most: Duration,
    /// From when on the user is told.
    untold: Duration,
}

/// Guessed; the slowest disk carries some GiB in that time.
const WAITS: Waits = Waits {
    silent: Duration::from_secs(30),
    hasty: HASTY_PATIENCE,
    most: Duration::from_secs(600),
    untold: Duration::from_secs(3),
};

/// What a guest says of its shares.
enum Shares {
    /// Nothing yet.
    Unknown,
    /// So many KiB are still to be carried over.
    Left(u64),
    /// All is here.
    Written,
}

impl Guest {
    /// Switches the machine off and waits until it is, as long as it goes on carrying over what was written to its shares;
    /// `story` hears of a long wait.
    ///
    /// # Errors
    /// It cannot be told, or not all that was written to its shares is here; it is ended all the same.
    pub fn shutdown(mut self, story: &dyn Fn(&str)) -> Result<(), LabError> {
        self.say(&ToGuest::Shutdown)?;
        // Its clock is slow: so are its signs of life.
        let silent = WAITS.silent + HEARTBEAT.mul_f64(10.0 * self.dilation);
        self.wait_until_off(&Waits { silent, ..WAITS }, story)
    }

    /// Gives the guest a moment to carry over what was written to its shares, before it is ended.
    pub(super) fn shut_down_in_haste(&mut self) {
        // Held by whoever feeds a command that does not read: the agent would not hear us either.
        let told = self.to.try_lock().is_ok_and(|mut to| {
            to.set_write_timeout(Some(HASTY_PATIENCE)).is_ok()
                && write_message(&mut *to, &ToGuest::Shutdown).is_ok()
        });
        let begin = Instant::now();
        while told && begin.elapsed() < HASTY_PATIENCE && self.is_on() {
            thread::sleep(LOOK);
        }
    }

    fn is_on(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn wait_until_off(&mut self, waits: &Waits, story: &dyn Fn(&str)) -> Result<(), LabError> {
        let begin = Instant::now();
        let (mut heard, mut hurried, mut told) = (begin, None, false);
        let mut shares = Shares::Unknown;
        while self.is_on() {
            if let Some(said) = self.said_of_shares() {
                (shares, heard) = (said, Instant::now());
            }
            if let Shares::Left(kib) = shares
                && !told
                && begin.elapsed() > waits.untold
            {
                told = true;
                story(&format!(
                    "what was written to shares is being carried over, {} MiB are left (Ctrl-C ends that)",
                    kib >> 10
                ));
            }
            let wanted = self.check_wanted();
            let until = match wanted {
                Ok(()) => (heard + waits.silent).min(begin + waits.most),
                Err(LabError::Interrupted) => {
                    *hurried.get_or_insert_with(Instant::now) + waits.hasty
                }
                // The command was in time: its guest has as long as any that says nothing.
                Err(_) => (begin + waits.silent)
                    .max(self.deadline.map_or(begin, |(at, _)| at) + waits.hasty),
            };
            if Instant::now() < until {
                continue;
            }
            if self.shares.is_empty() || matches!(shares, Shares::Written) {
                return Ok(());
            }
            let seconds = begin.elapsed().as_secs();
            return wanted.and(Err(LabError::Unwritten { seconds }));
        }
        Ok(())
    }

    /// What it says next of its shares, if it says something before the next look.
    fn said_of_shares(&self) -> Option<Shares> {
        match self.from.recv_timeout(LOOK) {
            Ok((Kind::Message, bytes)) => match serde_json::from_slice(&bytes) {
                Ok(ToHost::Writing { kib }) => Some(Shares::Left(kib)),
                Ok(ToHost::Written) => Some(Shares::Written),
                _ => None,
            },
            // Output of whoever a command left behind.
            Ok(_) | Err(RecvTimeoutError::Timeout) => None,
            // QEMU closed the port: it is ending.
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(LOOK);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Mutex};

    use super::super::Share;
    use super::*;

    /// Short, but for what a test does not ask.
    const WAITS: Waits = Waits {
        silent: Duration::from_secs(1),
        hasty: Duration::from_millis(100),
        most: Duration::from_secs(60),
        untold: Duration::from_millis(200),
    };

    type Said = (Kind, Vec<u8>);

    /// A process that ends by itself after so long, and what it says.
    fn guest(seconds: &str) -> (Guest, Sender<Said>) {
        let (to, _) = UnixStream::pair().unwrap();
        let (sender, from) = channel();
        let dir = tempfile::tempdir().unwrap();
        let guest = Guest {
            child: Command::new("sleep").arg(seconds).stdin(Stdio::null()).spawn().unwrap(),
            to: Arc::new(Mutex::new(to)),
            from,
            counters: None,
            charged_since: Instant::now(),
            dilation: 1.0,
            release: String::new(),
            log_dir: dir.path().into(),
            dir,
            deadline: None,
            interrupted: Arc::new(AtomicBool::new(false)),
            shares: vec![Share("/srv".into())],
            input: None,
        };
        (guest, sender)
    }

    /// Goes on saying that so much is left, until nobody listens.
    fn write_on(sender: Sender<Said>) {
        let frame = (Kind::Message, serde_json::to_vec(&ToHost::Writing { kib: 7 << 10 }).unwrap());
        thread::spawn(move || {
            while sender.send(frame.clone()).is_ok() {
                thread::sleep(LOOK);
            }
        });
    }

    #[test]
    fn a_guest_is_waited_for_as_long_as_it_carries_over_what_was_written_and_that_is_told_once() {
        let (mut guest, sender) = guest("3");
        write_on(sender);
        let told = Mutex::new(Vec::new());
        let story = |line: &str| told.lock().unwrap().push(line.to_string());
        guest.wait_until_off(&WAITS, &story).unwrap();
        assert!(guest.child.try_wait().unwrap().is_some_and(|status| status.success()));
        let told = told.into_inner().unwrap();
        assert!(told.len() == 1 && told[0].contains("7 MiB are left"), "{told:?}");
    }

    #[test]
    fn a_guest_that_did_not_carry_over_what_was_written_is_an_error() {
        let (mut silent, _sender) = guest("600");
        let error = silent.wait_until_off(&WAITS, &|_| {}).unwrap_err();
        assert!(matches!(error, LabError::Unwritten { seconds: 1.. }), "{error}");
        let (mut endless, sender) = guest("600");
        write_on(sender);
        let waits = Waits { most: Duration::from_secs(2), ..WAITS };
        let error = endless.wait_until_off(&waits, &|_| {}).unwrap_err();
        assert!(matches!(error, LabError::Unwritten { seconds: 2.. }), "{error}");
    }

    #[test]
    fn a_guest_that_stays_on_with_nothing_left_to_write_is_none() {
        let (mut done, sender) = guest("600");
        sender.send((Kind::Message, serde_json::to_vec(&ToHost::Written).unwrap())).unwrap();
        done.wait_until_off(&WAITS, &|_| {}).unwrap();
        let (mut alone, _sender) = guest("600");
        alone.shares.clear();
        alone.wait_until_off(&WAITS, &|_| {}).unwrap();
    }

    #[test]
    fn ctrl_c_and_timeout_end_that_wait() {
        let (mut interrupted, sender) = guest("600");
        write_on(sender);
        let flag = Arc::clone(&interrupted.interrupted);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(500));
            flag.store(true, Ordering::Relaxed);
        });
        let error = interrupted.wait_until_off(&WAITS, &|_| {}).unwrap_err();
        assert!(matches!(error, LabError::Interrupted), "{error}");
        let (mut late, sender) = guest("600");
        write_on(sender);
        late.deadline = Some((Instant::now(), 5));
        let error = late.wait_until_off(&WAITS, &|_| {}).unwrap_err();
        assert!(matches!(error, LabError::Timeout { seconds: 5 }), "{error}");
    }
}
