//! An open event of perf's.

use std::io;
use std::os::fd::RawFd;

use numaherd_model::Nanos;

/// `PERF_EVENT_IOC_PERIOD`: `_IOW('$', 4, __u64)` (include/uapi/linux/perf_event.h).
const SET_PERIOD: libc::Ioctl = 0x4008_2404u32 as libc::Ioctl;

/// Has an event of the CPU clock interrupt once in so long, counted from now. It was opened with a period, and not with
/// a frequency.
///
/// # Errors
/// The kernel's: it is no event that samples, or there is no such period.
pub fn set_period(event: RawFd, every: Nanos) -> io::Result<()> {
    // SAFETY: the kernel only reads the number that it is given the address of; files that are no event of perf's do not
    // know this request.
    let answer = unsafe { libc::ioctl(event, SET_PERIOD, &raw const every.0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn what_is_no_event_has_no_period() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = set_period(file.as_raw_fd(), Nanos(1)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(set_period(-1, Nanos(1)).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
