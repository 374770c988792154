//! How long a session has been silent of its own doing, as its supervisor sees it.
//!
//! Silence is counted from look to look. Time in which the session waited for a CPU is none, nor what
//! the kernel took on its behalf, which to read what a process of 500 GiB maps is seconds, and longer where
//! that process holds a lock: only for much longer does that count too. And of a long time between two
//! looks little counts, for then we did not run ourselves: what stops both of us (a container that is
//! paused, a virtual machine) is not the session's. What it does itself takes the longer the more it knows, and grows with
//! that: it hangs when it is silent for several times as long as it ever was.

use std::time::{Duration, Instant};

use numaherd_linux::process::TaskReader;
use numaherd_linux::sys::clock;
use numaherd_model::Nanos;

/// A stopped session is taken to hang when it has been silent this long.
const STOPPED: Duration = Duration::from_millis(650);
/// Any other, not counting time in which it waited for a CPU or the kernel. Guessed: nothing it does itself
/// between two signs of life takes a tenth of it, but a virtual machine's CPU may stand still unseen.
const OWN: Duration = Duration::from_secs(5);
/// And so many times as long as it was silent before. Guessed.
const LONGER: u32 = 4;
/// The same while the session puts things back itself.
const CLOSING: Duration = Duration::from_secs(10);
/// The same with time that it spent in the kernel. Guessed: to walk 12 TiB in base pages takes that.
const IN_KERNEL: Duration = Duration::from_secs(120);
/// How often silence is looked at.
pub const LOOK: Duration = Duration::from_millis(100);
/// Most that is counted between two looks.
const MOST: Duration = Duration::from_millis(200);
/// Shorter silence is usual, and nobody asks what the session does.
const USUAL: Duration = Duration::from_millis(250);

/// What a session has done until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doing {
    /// How long its main thread has waited for a CPU.
    waited: Duration,
    /// How long its threads ran in the kernel.
    in_kernel: Duration,
    /// Whether one waits in there, for what no signal hurries.
    blocked: bool,
    /// Whether its main thread is stopped.
    stopped: bool,
}

impl Doing {
    /// Of this process; nothing if it has ended.
    pub fn of(reader: &mut TaskReader, pid: u32) -> Doing {
        let waited = reader.schedstat(pid, pid).ok().flatten();
        let mut doing = Doing {
            waited: Duration::from_nanos(waited.map_or(Nanos(0), |stat| stat.wait_time).0),
            ..Doing::default()
        };
        for tid in reader.threads(pid).ok().flatten().unwrap_or_default() {
            let Some(stat) = reader.stat(pid, tid).ok().flatten() else { continue };
            doing.in_kernel += Duration::from_nanos(stat.kernel_ticks * clock::tick().0);
            doing.blocked |= stat.is_blocked();
            doing.stopped |= tid == pid && stat.is_stopped();
        }
        doing
    }
}

/// See the module.
#[derive(Debug)]
pub struct Silence {
    /// When it was looked, or a sign of life came, last.
    at: Instant,
    /// What the session had done then, once that was asked.
    before: Option<Doing>,
    /// Silence but for waiting for a CPU, and for the kernel.
    awake: Duration,
    own: Duration,
    /// Time in the kernel that is not accounted for yet: it is counted in ticks.
    carried: Duration,
    closing: bool,
    /// The longest silence of its own that ended.
    longest: Duration,
}

impl Silence {
    /// From a first sign of life on.
    pub fn since(now: Instant) -> Silence {
        let zero = Duration::ZERO;
        Silence {
            at: now,
            before: None,
            awake: zero,
            own: zero,
            carried: zero,
            closing: false,
            longest: zero,
        }
    }

    /// A sign of life.
    pub fn ends(&mut self, now: Instant) {
        let longest =
            if self.own > self.most() { self.longest } else { self.longest.max(self.own) };
        *self = Silence { closing: self.closing, longest, ..Silence::since(now) };
    }

    /// From now on the session puts things back.
    pub fn closes(&mut self, now: Instant) {
        *self = Silence { closing: true, longest: self.longest, ..Silence::since(now) };
    }

    /// How long its own may be.
    fn most(&self) -> Duration {
        let most = if self.closing { CLOSING } else { OWN };
        most.max(self.longest * LONGER)
    }

    /// Whether it has gone on for so long that the session hangs; asks what that does only if it may.
    pub fn is_hang(&mut self, now: Instant, doing: impl FnOnce() -> Doing) -> bool {
        let elapsed = now.saturating_duration_since(self.at);
        self.at = now;
        let Some(before) = self.before else {
            self.awake += elapsed.min(MOST);
            self.own = self.awake;
            self.before = (self.awake >= USUAL).then(doing);
            return false;
        };
        let doing = doing();
        self.before = Some(doing);
        let awake = elapsed.saturating_sub(doing.waited.saturating_sub(before.waited));
        let in_kernel = match doing.blocked {
            true => awake,
            false => self.carried + doing.in_kernel.saturating_sub(before.in_kernel),
        };
        self.carried = in_kernel.saturating_sub(awake).min(LOOK);
        self.awake += awake.min(MOST);
        self.own += awake.saturating_sub(in_kernel).min(MOST);
        self.own > self.most() || self.awake > IN_KERNEL || doing.stopped && self.awake > STOPPED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many looks, so long apart, it takes until somebody hangs who does so much from one to the next.
    fn looks(apart: Duration, mut does: impl FnMut(&mut Doing)) -> usize {
        let (mut now, mut doing) = (Instant::now(), Doing::default());
        let mut silence = Silence::since(now);
        let hangs = |_: &usize| {
            now += apart;
            does(&mut doing);
            silence.is_hang(now, || doing)
        };
        (1..2_000).find(hangs).unwrap_or(usize::MAX)
    }

    #[test]
    fn silence_counts_but_for_waiting_and_for_the_kernel() {
        assert_eq!(looks(LOOK, |_| {}), 51);
        assert_eq!(looks(LOOK, |doing| doing.stopped = true), 7);
        assert_eq!(looks(LOOK, |doing| doing.waited += LOOK), usize::MAX);
        // The first three are before anybody asks.
        assert_eq!(looks(LOOK, |doing| doing.waited += LOOK / 2), 3 + 95);
        assert_eq!(looks(LOOK, |doing| doing.in_kernel += LOOK), 1201);
        assert_eq!(looks(LOOK, |doing| doing.blocked = true), 1201);
        // A large process is read: seconds.
        let mut nth = 0;
        let reads = |doing: &mut Doing| {
            nth += 1;
            doing.in_kernel += if nth <= 100 { LOOK } else { Duration::ZERO };
        };
        assert_eq!(looks(LOOK, reads), 100 + 48);
    }

    #[test]
    fn ticks_that_come_early_are_not_lost() {
        // Nine and eleven ticks of 10 ms in turn.
        let mut more = false;
        let ticks = |doing: &mut Doing| {
            more = !more;
            doing.in_kernel += Duration::from_millis(if more { 110 } else { 90 });
        };
        assert_eq!(looks(LOOK, ticks), 1201);
    }

    #[test]
    fn what_stopped_the_supervisor_too_is_not_the_sessions() {
        let (mut now, mut silence) = (Instant::now(), Silence::since(Instant::now()));
        for _ in 0..10 {
            now += Duration::from_secs(7);
            assert!(!silence.is_hang(now, Doing::default));
            // It runs again, and says so.
            now += LOOK;
            silence.ends(now);
        }
        // Where the supervisor seldom runs, it is noticed later, and still.
        assert_eq!(looks(Duration::from_secs(1), |_| {}), 26);
    }

    /// With as much as it knows grows what a turn takes.
    #[test]
    fn who_was_silent_for_long_and_spoke_again_may_be_for_longer() {
        let mut now = Instant::now();
        let mut silence = Silence::since(now);
        let mut silent = |silence: &mut Silence, looks: usize| {
            let mut hangs = false;
            for _ in 0..looks {
                now += LOOK;
                hangs |= silence.is_hang(now, Doing::default);
            }
            silence.ends(now);
            hangs
        };
        assert!(!silent(&mut silence, 45));
        assert!(!silent(&mut silence, 170) && !silent(&mut silence, 600));
        assert!(silent(&mut silence, 2_500));
        // Without a first step it would not have gone so far.
        assert!(silent(&mut Silence::since(Instant::now()), 170));
    }

    #[test]
    fn who_puts_things_back_has_longer() {
        let mut now = Instant::now();
        let mut silence = Silence::since(now);
        for begins in [Silence::closes, Silence::ends] {
            begins(&mut silence, now);
            let hangs = |_: &usize| {
                now += LOOK;
                silence.is_hang(now, Doing::default)
            };
            assert_eq!((1..1_000).find(hangs), Some(101));
        }
    }

    #[test]
    fn what_a_live_process_does_is_read() {
        let mut reader = TaskReader::new("/".as_ref());
        let me = std::process::id();
        let before = Doing::of(&mut reader, me);
        assert!(!before.stopped);
        // Text of zeroes costs the kernel only.
        let mut zeroes = vec![0; 64 << 20];
        let begin = Instant::now();
        while Doing::of(&mut reader, me).in_kernel == before.in_kernel {
            let read = std::fs::File::open("/dev/zero").unwrap();
            std::io::Read::read_exact(&mut { read }, &mut zeroes).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(Doing::of(&mut reader, 0), Doing::default());
    }
}
