//! pft, the page fault test: how many page faults a second this machine handles.
//!
//! One region is split into equal pieces, one for each worker (a thread, or a process). All begin
//! together; each writes to every page of its piece, which faults it in. Small pages only. Faults
//! per CPU second = pages ÷ (user + system time of all workers); faults per wall second = pages ÷
//! (last end − first start). Pages are computed from the region; the kernel's own count of minor
//! faults stands beside them.
//!
//! After the test of Christoph Lameter and Lee Schermerhorn that the mempolicy rework of 2008 was
//! measured with; options and columns are theirs.

use std::sync::Barrier;
use std::time::Duration;

use crate::{WorkloadError, sys, system, team};

/// Bytes per cache line.
const LINE_BYTES: usize = 64;
/// How often it is looked whether processes that are to begin together are all there. Chosen: a process takes about as
/// long to start.
const LOOK: Duration = Duration::from_millis(1);

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pft {
    /// The region's size in bytes; whole pages for each worker are used.
    pub size_bytes: usize,
    /// Workers.
    pub workers: usize,
    /// Workers are processes, not threads.
    pub processes: bool,
    /// The region has a policy of its own: preferred with no nodes, which is local.
    pub range_policy: bool,
    /// System V shared memory instead of private memory.
    pub shared: bool,
    /// Cache lines written in each page.
    pub lines: usize,
    /// Each worker stays on a CPU of its own.
    pub pin: bool,
    /// Each worker locks its piece first: the faults happen there.
    pub lock: bool,
    /// Each page is zeroed whole.
    pub zero: bool,
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faulted {
    /// Pages written.
    pub pages: u64,
    /// User time of all workers, in seconds.
    pub user_seconds: f64,
    /// System time of all workers, in seconds.
    pub system_seconds: f64,
    /// From the first worker's start to the last one's end.
    pub wall_seconds: f64,
    /// Minor faults of the workers, as the kernel counted them.
    pub minor_faults: u64,
}

impl Faulted {
    /// Faults per second of CPU time.
    #[must_use]
    pub fn per_cpu_second(&self) -> f64 {
        self.pages as f64 / (self.user_seconds + self.system_seconds)
    }

    /// Faults per second on the clock.
    #[must_use]
    pub fn per_wall_second(&self) -> f64 {
        self.pages as f64 / self.wall_seconds
    }
}

/// One worker's share.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Share {
    start_ns: u64,
    end_ns: u64,
    user_ns: u64,
    system_ns: u64,
    minor_faults: u64,
    failed: u64,
}

/// Runs it on the CPUs given, for workers that stay on one.
///
/// # Errors
/// The region cannot be had, or a worker cannot be started or pinned.
pub fn run(pft: &Pft, cpus: &[u32]) -> Result<Faulted, WorkloadError> {
    let page = page_size();
    let each = pft.size_bytes / pft.workers.max(1) / page;
    let most_lines = page / LINE_BYTES;
    if pft.lines == 0 || pft.lines > most_lines {
        let problem = format!("{} cache lines: a page has 1 to {most_lines}", pft.lines);
        return Err(WorkloadError::Params { problem });
    }
    if pft.workers == 0 || each == 0 {
        let Pft { size_bytes, workers, .. } = pft;
        let problem =
            format!("{size_bytes} bytes: each of {workers} workers needs a page of {page}");
        return Err(WorkloadError::Params { problem });
    }
    let region = Region::new(each * pft.workers * page, pft.shared)?;
    if pft.range_policy {
        sys::bind_range(region.start..region.start + region.len, sys::MPOL_PREFERRED, &[])
            .map_err(system("cannot set the region's policy"))?;
    }
    let work = |worker: usize| {
        let piece = region.start + worker * each * page;
        let cpu = pft.pin.then(|| cpus.get(worker % cpus.len().max(1)).copied()).flatten();
        Work { pft: *pft, piece, pages: each, page, cpu }
    };
    let shares = if pft.processes { forked(pft, work)? } else { threaded(pft, work)? };
    if shares.iter().any(|share| share.failed != 0) {
        return Err(WorkloadError::Params {
            problem:
                "a worker could not be pinned to its CPU or could not lock its memory (ulimit -l)"
                    .into(),
        });
    }
    let sum = |field: fn(&Share) -> u64| shares.iter().map(field).sum::<u64>();
    let first = shares.iter().map(|share| share.start_ns).min().unwrap_or(0);
    let last = shares.iter().map(|share| share.end_ns).max().unwrap_or(0);
    Ok(Faulted {
        pages: (each * pft.workers) as u64,
        user_seconds: sum(|share| share.user_ns) as f64 / 1e9,
        system_seconds: sum(|share| share.system_ns) as f64 / 1e9,
        wall_seconds: (last - first) as f64 / 1e9,
        minor_faults: sum(|share| share.minor_faults),
    })
}

fn threaded(pft: &Pft, work: impl Fn(usize) -> Work) -> Result<Vec<Share>, WorkloadError> {
    let barrier = &Barrier::new(pft.workers);
    std::thread::scope(|scope| {
        let worker = |worker: usize| {
            let work = work(worker);
            move || {
                let ready = work.prepare();
                barrier.wait();
                work.share(ready)
            }
        };
        let started = team::start_all(scope, (0..pft.workers).map(worker))?;
        let ended = started.into_iter().map(|thread| thread.join().ok().flatten());
        Ok(ended.map(|share| share.unwrap_or(Share { failed: 1, ..Share::default() })).collect())
    })
}

/// Processes tell their shares, and wait for each other, in a shared page.
fn forked(pft: &Pft, work: impl Fn(usize) -> Work) -> Result<Vec<Share>, WorkloadError> {
    let board = Region::new((pft.workers + 1) * size_of::<Share>().max(64), true)?;
    // SAFETY: the board begins with a counter that all processes only change atomically; it is
    // aligned to a page and lives until they have ended.
    let arrived = unsafe { std::sync::atomic::AtomicU64::from_ptr(board.start as *mut u64) };
    let slot =
        |worker: usize| (board.start + (worker + 1) * size_of::<Share>().max(64)) as *mut Share;
    let mut children = Children(Vec::new());
    let parent = std::process::id();
    for worker in 0..pft.workers {
        // SAFETY: the child touches its memory, makes system calls and leaves by _exit; no thread
        // of ours holds a lock it could need.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // Nobody else ends it where the others never come.
            let is_tied =
                sys::end_with_parent().is_ok() && std::os::unix::process::parent_id() == parent;
            if !is_tied {
                // SAFETY: nothing of ours is left to do.
                unsafe { libc::_exit(1) };
            }
            let work = work(worker);
            let ready = work.prepare();
            arrived.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
            while arrived.load(std::sync::atomic::Ordering::Acquire) < pft.workers as u64 {
                std::hint::spin_loop();
            }
            let share = work.share(ready);
            // SAFETY: each worker has a slot of its own within the board.
            unsafe {
                slot(worker).write(share);
                libc::_exit(0);
            }
        }
        if child < 0 {
            return Err(system("cannot start a worker")(std::io::Error::last_os_error()));
        }
        children.0.push(Some(child));
    }
    // Whoever ends before all have arrived has the others wait for ever.
    while arrived.load(std::sync::atomic::Ordering::Acquire) < pft.workers as u64 {
        (0..pft.workers).try_for_each(|index| children.hear(index, libc::WNOHANG))?;
        std::thread::sleep(LOOK);
    }
    (0..pft.workers).try_for_each(|index| children.hear(index, 0))?;
    // SAFETY: every child wrote its slot before it ended with 0.
    Ok((0..pft.workers).map(|worker| unsafe { slot(worker).read() }).collect())
}

/// Processes by number, none for those that have ended; the others are ended when dropped.
struct Children(Vec<Option<libc::pid_t>>);

impl Children {
    /// An error if this one has ended with anything but 0; without `WNOHANG` its end is waited for.
    fn hear(&mut self, index: usize, flags: i32) -> Result<(), WorkloadError> {
        let Some(child) = self.0[index] else { return Ok(()) };
        let mut status = 0;
        // SAFETY: our own child; the status has room.
        if unsafe { libc::waitpid(child, &raw mut status, flags) } == 0 {
            return Ok(());
        }
        self.0[index] = None;
        if status == 0 {
            return Ok(());
        }
        let problem = format!("ended with status {status:#x}");
        Err(WorkloadError::Process { index, problem })
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in self.0.iter().flatten() {
            // SAFETY: our own child, whose end nobody has waited for.
            unsafe {
                libc::kill(*child, libc::SIGKILL);
                libc::waitpid(*child, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// What one worker does.
struct Work {
    pft: Pft,
    piece: usize,
    pages: usize,
    page: usize,
    cpu: Option<u32>,
}

impl Work {
    /// Goes to its CPU. Whether it got there.
    fn prepare(&self) -> bool {
        self.cpu.is_none_or(|cpu| sys::set_affinity(&[cpu]).is_ok())
    }

    fn share(&self, ready: bool) -> Share {
        let before = Usage::now();
        let start_ns = sys::monotonic_ns();
        let locked = !self.pft.lock || self.locked();
        for page in 0..self.pages {
            let address = self.piece + page * self.page;
            if self.pft.zero {
                // SAFETY: a page of our own piece, which nobody else writes.
                unsafe { std::ptr::write_bytes(address as *mut u8, 0, self.page) };
            }
            for line in 0..self.pft.lines {
                let word = (address + line * LINE_BYTES) as *mut u64;
                // SAFETY: as above; lines are aligned and fit the page, as `run` has checked.
                unsafe { word.write_volatile(1) };
            }
        }
        let end_ns = sys::monotonic_ns();
        let after = Usage::now();
        let (user_ns, system_ns) = after.since(&before);
        Share {
            start_ns,
            end_ns,
            user_ns,
            system_ns,
            minor_faults: after.minor_faults - before.minor_faults,
            failed: u64::from(!ready || !locked),
        }
    }

    fn locked(&self) -> bool {
        let piece = self.piece as *const libc::c_void;
        // SAFETY: our own piece; locking changes nothing in it.
        unsafe { libc::mlock(piece, self.pages * self.page) == 0 }
    }
}

/// What the calling thread has used.
struct Usage {
    /// All CPU time, to the nanosecond.
    cpu_ns: u64,
    /// User time as the kernel divides it at ticks.
    user_ns: u64,
    minor_faults: u64,
}

impl Usage {
    fn now() -> Usage {
        let cpu_ns = sys::thread_cpu_ns();
        // SAFETY: zeroes are a valid value, and the kernel fills the struct.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage
        };
        let user = usage.ru_utime;
        Usage {
            cpu_ns,
            user_ns: user.tv_sec as u64 * 1_000_000_000 + user.tv_usec as u64 * 1000,
            minor_faults: usage.ru_minflt as u64,
        }
    }

    /// User and system time since then. Their sum is exact; how it divides is known to a tick.
    fn since(&self, before: &Usage) -> (u64, u64) {
        let all = self.cpu_ns - before.cpu_ns;
        let user = self.user_ns.saturating_sub(before.user_ns).min(all);
        (user, all - user)
    }
}

fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// The region, private or shared, without huge pages.
struct Region {
    start: usize,
    len: usize,
    shared: bool,
}

impl Region {
    fn new(len: usize, shared: bool) -> Result<Region, WorkloadError> {
        let address = if shared { segment(len)? } else { private(len)? };
        // SAFETY: advice on our own mapping; kernels without huge pages refuse it.
        unsafe { libc::madvise(address as *mut libc::c_void, len, libc::MADV_NOHUGEPAGE) };
        Ok(Region { start: address, len, shared })
    }
}

fn private(len: usize) -> Result<usize, WorkloadError> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(system(&format!("cannot map {len} bytes"))(std::io::Error::last_os_error()));
    }
    Ok(address as usize)
}

/// A segment that is gone as soon as nobody has it any more.
fn segment(len: usize) -> Result<usize, WorkloadError> {
    let failed = |what: &str| system(what)(std::io::Error::last_os_error());
    // SAFETY: a new segment of our own, attached at an address of the kernel's choice, and marked
    // to go with the last who has it.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, len, libc::IPC_CREAT | 0o600);
        if id < 0 {
            return Err(failed(&format!("cannot make a segment of {len} bytes")));
        }
        let address = libc::shmat(id, std::ptr::null(), 0);
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        if address as isize == -1 {
            return Err(failed("cannot attach the segment"));
        }
        Ok(address as usize)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let address = self.start as *mut libc::c_void;
        // SAFETY: ours, and its users have ended.
        unsafe {
            if self.shared {
                libc::shmdt(address)
            } else {
                libc::munmap(address, self.len)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_user_and_system_time_is_exact() {
        let usage = |cpu_ns, user_ns| Usage { cpu_ns, user_ns, minor_faults: 0 };
        // 7 ms in all, of which ticks saw 4 ms in user mode; and 1 ms, in which a tick saw 4 ms
        assert_eq!(usage(9_000_000, 4_000_000).since(&usage(2_000_000, 0)), (4_000_000, 3_000_000));
        assert_eq!(usage(3_000_000, 4_000_000).since(&usage(2_000_000, 0)), (1_000_000, 0));
        let before = Usage::now();
        let (user, system) = Usage::now().since(&before);
        assert!(user + system > 0, "the clock stands still");
    }

    const PLAIN: Pft = Pft {
        size_bytes: 4 << 20,
        workers: 2,
        processes: false,
        range_policy: false,
        shared: false,
        lines: 1,
        pin: false,
        lock: false,
        zero: false,
    };

    #[test]
    fn the_kernel_counts_as_many_faults_as_there_are_pages() {
        for shared in [false, true] {
            for range_policy in [false, true] {
                for processes in [false, true] {
                    let pft = Pft { shared, range_policy, processes, ..PLAIN };
                    let faulted = run(&pft, &[]).unwrap();
                    // 4 MiB of 4 KiB pages
                    assert_eq!(faulted.pages, 1024);
                    // a process faults a few pages of its own code and stack
                    let more = faulted.minor_faults.saturating_sub(1024);
                    assert!(faulted.minor_faults >= 1024 && more < 64, "{pft:?} {faulted:?}");
                    assert!(faulted.wall_seconds > 0.0 && faulted.system_seconds >= 0.0);
                }
            }
        }
    }

    /// The others wait for it to arrive.
    #[test]
    fn a_process_that_is_killed_before_it_begins_ends_the_test() {
        let work = |worker: usize| {
            if worker == 1 {
                // SAFETY: this is the forked worker, which is to end.
                unsafe { libc::raise(libc::SIGKILL) };
            }
            Work { pft: PLAIN, piece: 0, pages: 0, page: 4096, cpu: None }
        };
        let error = forked(&Pft { workers: 3, ..PLAIN }, work).unwrap_err().to_string();
        assert!(error.contains("process 1") && error.contains("0x9"), "{error}");
    }

    #[test]
    fn pages_are_shared_out_whole() {
        // 10 pages for 3 workers: 3 each
        let faulted =
            run(&Pft { size_bytes: 10 << 12, workers: 3, zero: true, ..PLAIN }, &[]).unwrap();
        assert_eq!(faulted.pages, 9);
        assert_eq!(run(&Pft { pin: true, lines: 64, ..PLAIN }, &[0]).unwrap().pages, 1024);
        for wrong in [
            Pft { workers: 0, ..PLAIN },
            Pft { size_bytes: 4096, ..PLAIN },
            Pft { lines: 65, ..PLAIN },
        ] {
            assert!(run(&wrong, &[]).is_err(), "{wrong:?}");
        }
    }
}
