//! Signals: ending a process that no longer answers, and ending with a pipe.

use super::SysError;

/// Kills a process at once.
///
/// # Errors
/// It has ended, or belongs to someone else.
pub fn kill(pid: u32) -> Result<(), SysError> {
    let failed = |source| SysError::from_io("kill", pid, source);
    let number =
        i32::try_from(pid).map_err(|_| failed(std::io::Error::from_raw_os_error(libc::ESRCH)))?;
    // SAFETY: kill touches no memory of ours; a positive number names one process only.
    let result = if number > 0 { unsafe { libc::kill(number, libc::SIGKILL) } } else { -1 };
    if result == 0 { Ok(()) } else { Err(failed(std::io::Error::last_os_error())) }
}

/// From now on this process ends, quietly, when what it prints to is closed (`| head -1`), as
/// programs in C do. Rust's begin with SIGPIPE ignored, and printing then panics. Not for a process
/// that has something to put back.
pub fn end_with_the_pipe() {
    // SAFETY: the default action has no handler that could run code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
