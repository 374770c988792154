//! Ending a process that no longer answers.

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
