//! How many files we may have open: a thousand usually, and a large machine takes one a CPU.

use std::os::fd::RawFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are left for all else that we open, or a quarter of what there may be. Guessed: twice what the live machine
/// keeps open.
const SPARE: u64 = 256;

/// Whether enough may be opened beside this file, which has the lowest number that was free; more are allowed if that
/// helps.
pub fn leaves_some(file: RawFd) -> bool {
    let allowed = || getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let file = u64::try_from(file).unwrap_or(0);
    is_low(file, allowed()) || allow_more() && is_low(file, allowed())
}

fn is_low(file: u64, allowed: u64) -> bool {
    file < allowed - SPARE.min(allowed / 4)
}

/// Allows us twice as many files, as far as we may; whether that is more. Whoever starts a program that should not have
/// as many does so before.
pub fn allow_more() -> bool {
    let limit = getrlimit(Resource::Nofile);
    let more = doubled(limit);
    more.is_some_and(|more| setrlimit(Resource::Nofile, more).is_ok())
}

/// `None` where that is no more.
fn doubled(limit: Rlimit) -> Option<Rlimit> {
    let current = limit.current?;
    let more = current.saturating_mul(2).min(limit.maximum.unwrap_or(u64::MAX));
    (more > current).then_some(Rlimit { current: Some(more), ..limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_left_for_others() {
        assert!(is_low(767, 1024) && !is_low(768, 1024));
        assert!(is_low(29, 40) && !is_low(30, 40));
        assert!(is_low(1 << 31, u64::MAX) && !is_low(0, 0));
    }

    #[test]
    fn as_many_as_may_be_and_no_more() {
        let limit = |current, maximum| Rlimit { current, maximum };
        let of = |current, maximum| doubled(limit(current, maximum)).map(|limit| limit.current);
        assert_eq!(of(Some(1024), Some(4096)), Some(Some(2048)));
        assert_eq!(of(Some(1024), Some(1500)), Some(Some(1500)));
        assert_eq!(of(Some(1024), None), Some(Some(2048)));
        assert_eq!([of(Some(1500), Some(1500)), of(None, None)], [None, None]);
        let more = doubled(limit(Some(1024), Some(4096)));
        assert_eq!(more.and_then(|more| more.maximum), Some(4096));
    }
}
