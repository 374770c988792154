//! Signals: ending a process that no longer answers, ending with a pipe, and ending with a word.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::SysError;

/// What is said at Ctrl-C.
const WORD: &str = "numaherd: interrupted\n";
/// The exit code is the signal's number and this, as shells have it.
const BY_A_SIGNAL: libc::c_int = 128;

/// Who says it: children that are forked inherit the handler.
static SPEAKER: AtomicI32 = AtomicI32::new(0);

/// Whether this process was started with SIGPIPE ignored, as units of systemd are. Rust's runtime ignores it anyway, so
/// that has to be asked before.
static BEGAN_WITHOUT_PIPES: AtomicBool = AtomicBool::new(false);

extern "C" fn note_pipes() {
    BEGAN_WITHOUT_PIPES.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

#[used]
// SAFETY: what the C library calls before main takes no arguments that it needs, and is called once.
#[unsafe(link_section = ".init_array")]
static AT_FIRST: extern "C" fn() = note_pipes;

/// Has a command begin with SIGPIPE as we did: Rust's commands begin with its default, and one that a unit starts would die
/// where it does not without us.
pub fn inherit_pipes(command: &mut Command) {
    if BEGAN_WITHOUT_PIPES.load(Ordering::Relaxed) {
        let ignore = || {
            // SAFETY: to ignore a signal may be asked between fork and exec.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
            Ok(())
        };
        // SAFETY: it calls nothing but that.
        unsafe { command.pre_exec(ignore) };
    }
}

/// Has a command told to end (SIGTERM) when the thread that starts it has ended, however that ends.
pub fn end_with_us(command: &mut Command) {
    let parent = std::process::id();
    let follow = move || end_with(parent);
    // SAFETY: it makes two system calls, which may be made between fork and exec.
    unsafe { command.pre_exec(follow) };
}

/// This process is told to end (SIGTERM) when whoever started it has ended from now on.
///
/// # Errors
/// The kernel refuses it.
pub fn end_with_parent() -> std::io::Result<()> {
    end_with(std::os::unix::process::parent_id())
}

fn end_with(parent: u32) -> std::io::Result<()> {
    // SAFETY: it reads no memory of ours.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    match std::os::unix::process::parent_id() == parent {
        true => Ok(()),
        false => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// Kills a process at once.
///
/// # Errors
/// It has ended, or belongs to someone else.
pub fn kill(pid: u32) -> Result<(), SysError> {
    send(pid, libc::SIGKILL)
}

/// Tells a process to end.
///
/// # Errors
/// It has ended, or belongs to someone else.
pub fn terminate(pid: u32) -> Result<(), SysError> {
    send(pid, libc::SIGTERM)
}

fn send(pid: u32, signal: libc::c_int) -> Result<(), SysError> {
    let failed = |source| SysError::from_io("kill", pid, source);
    let number =
        i32::try_from(pid).map_err(|_| failed(std::io::Error::from_raw_os_error(libc::ESRCH)))?;
    // SAFETY: kill touches no memory of ours; a positive number names one process only.
    let result = if number > 0 { unsafe { libc::kill(number, signal) } } else { -1 };
    if result == 0 { Ok(()) } else { Err(failed(std::io::Error::last_os_error())) }
}

/// Whether this process ignores a signal, by `nohup` for instance.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is set, and what is read is all of a sigaction; on failure it stays zeroed, which is one.
    let now = unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}

/// From now on this process ends, quietly, when what it prints to is closed (`| head -1`), as
/// programs in C do. Rust's begin with SIGPIPE ignored, and printing then panics. Not for a process
/// that has something to put back.
pub fn end_with_the_pipe() {
    // SAFETY: the default action has no handler that could run code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// From now on Ctrl-C and its kin end this process with one line and code 130 (or 143, 129), in the midst
/// of whatever it does. Not for a process that has something to put back. What is ignored (by nohup)
/// stays so.
pub fn end_with_a_word() {
    // SAFETY: getpid has no conditions.
    SPEAKER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    let handler = end as extern "C" fn(libc::c_int) as libc::sighandler_t;
    let ended_by = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    for signal in ended_by.into_iter().filter(|signal| !is_ignored(*signal)) {
        // SAFETY: the handler calls nothing but what a handler may call.
        unsafe { libc::signal(signal, handler) };
    }
}

extern "C" fn end(signal: libc::c_int) {
    // SAFETY: getpid, write and _exit may be called in a handler, and WORD is there for ever.
    unsafe {
        if libc::getpid() == SPEAKER.load(Ordering::Relaxed) {
            libc::write(libc::STDERR_FILENO, WORD.as_ptr().cast(), WORD.len());
        }
        libc::_exit(BY_A_SIGNAL + signal)
    }
}
