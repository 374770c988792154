//! Work that makes way for others, and work that others wait for.

/// How much nicer such work is: it has a quarter of a CPU where somebody else wants all of it.
const NICER: libc::c_int = 5;

/// How much less nice work is that others wait for: it has all of a CPU but a thirtieth.
const FIRST: libc::c_int = 15;

/// Does it on a thread of its own, whose priority is lower: one cannot go back up without privileges.
pub fn politely<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let polite = scope.spawn(|| {
            renice(NICER);
            work()
        });
        polite.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Has the calling thread, which is to be a short-lived one, go before whoever shares its CPU, as far as both are in
/// the same group of tasks (control groups and sessions have weights of their own); without the privilege
/// (CAP_SYS_NICE) it stays as it is. For work that holds what those wait for.
pub fn go_first() {
    renice(-FIRST);
}

/// Makes the calling thread so much nicer, where it may.
fn renice(by: libc::c_int) {
    // SAFETY: of numbers alone; in Linux, 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice() + by) };
}

/// How nice this thread is.
fn nice() -> libc::c_int {
    // SAFETY: of numbers alone; that of the calling thread can be read.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_work_is_nicer() {
        let before = nice();
        // 19 is the nicest.
        assert_eq!(politely(nice), (before + NICER).min(19));
        assert_eq!(nice(), before);
    }

    #[test]
    fn who_goes_first_is_less_nice_where_it_may_be() {
        let before = nice();
        let of_thread = |work: fn()| {
            let thread = std::thread::spawn(move || {
                work();
                nice()
            });
            thread.join().unwrap()
        };
        let may = of_thread(|| renice(-1)) < before;
        assert_eq!(of_thread(go_first), if may { (before - FIRST).max(-20) } else { before });
    }
}
