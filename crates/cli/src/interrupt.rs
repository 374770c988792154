//! Ctrl-C and its kin as a flag that long work looks at, and as the exit code that they ask for.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use numaherd_linux::sys::signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The last that came: what a signal does is one thing for the whole process.
static CAME: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// A flag that is set when the user wants us to stop. A hangup that is ignored (by `nohup`) stays so.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let ignored = |signal: &i32| *signal == SIGHUP && signal::is_ignored(SIGHUP);
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored(signal)) {
        // In this order: who sees the flag finds which it was.
        signal_hook::flag::register_usize(signal, Arc::clone(&CAME), signal as usize)?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Whether one came since there is such a flag.
pub fn came() -> bool {
    CAME.load(Ordering::Relaxed) != 0
}

/// The code to end with after that, as shells have it: 130 after Ctrl-C, 143 after SIGTERM, 129 after a hangup.
pub fn code() -> ExitCode {
    ExitCode::from(number(CAME.load(Ordering::Relaxed)))
}

/// The same, if one came that ended a look early: what was seen until then is printed all the same.
pub fn ended(flag: &AtomicBool) -> Option<ExitCode> {
    flag.load(Ordering::Relaxed).then(code)
}

fn number(signal: usize) -> u8 {
    let signal = if signal == 0 { SIGINT as usize } else { signal };
    128 + (signal & 0x7f) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_tells_the_signal() {
        let flag = flag().unwrap();
        for (signal, code) in [(SIGTERM, 143), (SIGHUP, 129), (SIGINT, 130)] {
            if signal::is_ignored(signal) {
                continue;
            }
            signal_hook::low_level::raise(signal).unwrap();
            assert!(flag.swap(false, Ordering::Relaxed));
            assert_eq!(number(CAME.load(Ordering::Relaxed)), code);
        }
    }

    /// systemd ends it by SIGTERM, and is not to take that for a failure.
    #[test]
    fn the_service_takes_a_sigterm_for_a_clean_end() {
        let service = include_str!("../../../packaging/numaherd.service");
        let clean = format!("SuccessExitStatus={}", number(SIGTERM as usize));
        assert!(service.lines().any(|line| line == clean), "{service}");
    }
}
