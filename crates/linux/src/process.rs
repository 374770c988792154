//! Tasks: who they are, what they do, where they may run, and who descends from whom.
//!
//! Made to be read ten times a second on a slow CPU: a task's stat costs three system calls and
//! no allocation. Times are in clock ticks as the kernel prints them ([`crate::sys::clock`] tells
//! how long one is), but for `schedstat`, which counts nanoseconds. What ends meanwhile is None.
//!
//! Source of the fields: the kernel's Documentation/filesystems/proc.rst.

mod kept;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use numaherd_model::{CpuId, CpuSet, Nanos, NodeSet, ProcessId, TaskId, TaskState};

use crate::file::{self, Buffer, ReadError};
use crate::threads::Answerer;
pub use kept::Kept;

/// What `/proc/PID/task/TID/stat` tells about a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStat {
    /// Thread id and start time in clock ticks since boot.
    pub id: TaskId,
    /// Name, at most 15 bytes.
    pub comm: String,
    /// The kernel's letter: R running or runnable, S sleeping, D waiting for a device, T stopped,
    /// Z zombie and so on.
    pub state: char,
    /// Parent of its process.
    pub ppid: u32,
    /// CPU time in user and kernel mode together, in clock ticks.
    pub cpu_ticks: u64,
    /// Of that, in kernel mode.
    pub kernel_ticks: u64,
    /// CPU it last ran on.
    pub last_cpu: CpuId,
    /// Whether the kernel lets nobody change its affinity, or it is the kernel's own.
    pub is_kernels: bool,
    /// Whether it is scheduled in real time or by deadline.
    pub is_real_time: bool,
    /// Of these, by deadline.
    pub is_by_deadline: bool,
    /// Where its program and its first stack begin, which are elsewhere once it has executed another; None where nobody may
    /// know, or it has no memory any more.
    pub program: Option<(u64, u64)>,
    /// Whether it is about to end, and will run no more of its program.
    pub is_exiting: bool,
}

/// Flags of a task (field 9): a kernel thread, and one whose affinity is nobody's to change.
/// Source: PF_KTHREAD and PF_NO_SETAFFINITY of the kernel's include/linux/sched.h (v6.12).
const KERNELS: u64 = 0x0020_0000 | 0x0400_0000;

/// Flag of a task on its way out: it is set long before its state tells so, where much memory is to be given back.
/// Source: PF_EXITING of the same file.
const EXITING: u64 = 0x4;

/// Scheduling policies (field 41) FIFO, RR and DEADLINE; sched(7).
const REAL_TIME: [u32; 3] = [1, 2, DEADLINE];
const DEADLINE: u32 = 6;

impl TaskStat {
    /// Whether it runs or wants to.
    #[must_use]
    pub fn task_state(&self) -> TaskState {
        if self.state == 'R' { TaskState::Runnable } else { TaskState::Sleeping }
    }

    /// Stopped by a signal or a debugger.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Waiting in the kernel for what no signal hurries: a device, a lock.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.state == 'D'
    }

    /// Whether it has ended, and at most gives back what it had or waits to be reaped.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.is_exiting || matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// What `/proc/PID/task/TID/schedstat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a CPU.
    pub run_time: Nanos,
    /// Time runnable but waiting for a CPU.
    pub wait_time: Nanos,
    /// Times it was put on a CPU.
    pub slices: u64,
}

impl SchedStat {
    /// None where nothing was counted: a kernel that could and does not prints zeroes for everybody (sched_info_on, v6.12),
    /// and who has not run yet has nothing to tell.
    fn counted(self) -> Option<SchedStat> {
        let nothing = self.run_time == Nanos(0) && self.wait_time == Nanos(0) && self.slices == 0;
        (!nothing).then_some(self)
    }
}

/// How long what one process was started with is waited for, and how long once several have let us wait. Guessed.
const MOST_WAITED: Duration = Duration::from_secs(1);
const LEAST_WAITED: Duration = Duration::from_millis(20);

/// Reads tasks below a root.
#[derive(Debug)]
pub struct TaskReader {
    proc: PathBuf,
    buffer: Buffer,
    /// How long it will wait yet for processes that let it wait.
    patience: Duration,
    /// Who reads what they were started with.
    starts: Option<Answerer<PathBuf, io::Result<Vec<u8>>>>,
}

impl TaskReader {
    /// A reader of `root`'s `proc`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        TaskReader {
            proc: root.join("proc"),
            buffer: Buffer::default(),
            patience: MOST_WAITED * 10,
            starts: None,
        }
    }

    /// All processes, ascending.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub fn processes(&self) -> Result<Vec<u32>, ReadError> {
        Ok(list_ids(&self.proc)?.unwrap_or_default())
    }

    /// The pid or thread id that was given out last, which is the next higher one that is free each time, until the
    /// highest; None where that cannot be told.
    pub fn newest_pid(&mut self) -> Option<u32> {
        let bytes = self.buffer.read_once(&self.proc.join("loadavg")).ok()??;
        String::from_utf8_lossy(bytes).split_ascii_whitespace().nth(4)?.parse().ok()
    }

    /// The threads of a process, ascending; None when it has ended.
    ///
    /// # Errors
    /// The folder cannot be listed for another reason.
    pub fn threads(&self, tgid: u32) -> Result<Option<Vec<u32>>, ReadError> {
        list_ids(&self.proc.join(format!("{tgid}/task")))
    }

    /// The process that has this pid now.
    ///
    /// # Errors
    /// As for [`TaskReader::stat`].
    pub fn identify(&mut self, pid: u32) -> Result<Option<ProcessId>, ReadError> {
        let process = |stat: TaskStat| ProcessId { tgid: pid, start: stat.id.start };
        Ok(self.stat(pid, pid)?.map(process))
    }

    /// A thread's stat.
    ///
    /// # Errors
    /// The file cannot be read, or is not a stat.
    pub fn stat(&mut self, tgid: u32, tid: u32) -> Result<Option<TaskStat>, ReadError> {
        self.read_stat(self.task_file(tgid, tid, "stat"))
    }

    /// A process's stat: that of its first thread, but for the CPU time, which is that of all its threads, those that
    /// have ended included.
    ///
    /// # Errors
    /// As for [`TaskReader::stat`].
    pub fn process_stat(&mut self, tgid: u32) -> Result<Option<TaskStat>, ReadError> {
        self.read_stat(self.proc.join(format!("{tgid}/stat")))
    }

    /// The stat of a process's first thread, for who looks at all that are listed: with `hidepid=1` /proc lists other users'
    /// and lets nobody look, and they are as good as not there.
    ///
    /// # Errors
    /// As for [`TaskReader::stat`].
    pub fn listed_stat(&mut self, tgid: u32) -> Result<Option<TaskStat>, ReadError> {
        ReadError::unless_refused(self.stat(tgid, tgid))
    }

    fn read_stat(&mut self, path: PathBuf) -> Result<Option<TaskStat>, ReadError> {
        let Some(bytes) = self.buffer.read_once(&path)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(bytes);
        let wrong = || ReadError::parse_file(&path, "the fields of a task's stat", &text);
        parse_stat(&text).map(Some).ok_or_else(wrong)
    }

    /// A thread's schedstat; None also where the kernel was built without it, or does not count.
    ///
    /// # Errors
    /// The file cannot be read, or is not three numbers.
    pub fn schedstat(&mut self, tgid: u32, tid: u32) -> Result<Option<SchedStat>, ReadError> {
        let path = self.task_file(tgid, tid, "schedstat");
        let Some(bytes) = self.buffer.read_once(&path)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(bytes);
        let wrong = || ReadError::parse_file(&path, "three numbers", &text);
        Ok(parse_schedstat(&text).ok_or_else(wrong)?.counted())
    }

    /// The CPUs a thread may run on, from its status. On the live machine
    /// [`crate::sys::affinity::get`] is cheaper, but hides CPUs that are offline.
    ///
    /// # Errors
    /// The file cannot be read, or holds no list of CPUs.
    pub fn cpus_allowed(&mut self, tgid: u32, tid: u32) -> Result<Option<CpuSet>, ReadError> {
        let path = self.task_file(tgid, tid, "status");
        self.of_status(path, "Cpus_allowed_list:", "a line 'Cpus_allowed_list: LIST'", |list| {
            list.parse().ok()
        })
    }

    /// The nodes that a process's memory may be on: those of its cpuset that have memory, whatever version its group
    /// is of and wherever that is mounted, if at all. None where it has ended, or the kernel was built without cpusets.
    ///
    /// # Errors
    /// The file cannot be read, or holds another list.
    pub fn mems_allowed(&mut self, tgid: u32) -> Result<Option<NodeSet>, ReadError> {
        let path = self.proc.join(format!("{tgid}/status"));
        let Some(bytes) = self.buffer.read(&path)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(bytes);
        let list = text.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
        let Some(list) = list else { return Ok(None) };
        let wrong = |_| ReadError::parse_file(&path, "a list of nodes such as 0-1", list);
        list.parse().map(Some).map_err(wrong)
    }

    /// The user by whose rights a process acts; None when it has ended.
    ///
    /// # Errors
    /// The file cannot be read, or names none.
    pub fn effective_user(&mut self, tgid: u32) -> Result<Option<u32>, ReadError> {
        let path = self.proc.join(format!("{tgid}/status"));
        // Real, effective, saved, and of the file system.
        let effective = |ids: &str| ids.split_ascii_whitespace().nth(1)?.parse().ok();
        self.of_status(path, "Uid:", "a line 'Uid: NUMBERS'", effective)
    }

    /// The thread group a thread belongs to, from its status.
    ///
    /// # Errors
    /// The file cannot be read, or names no group.
    pub fn tgid(&mut self, tid: u32) -> Result<Option<u32>, ReadError> {
        let path = self.proc.join(format!("{tid}/status"));
        self.of_status(path, "Tgid:", "a line 'Tgid: NUMBER'", |number| number.trim().parse().ok())
    }

    /// What a line of a `status` says that is in every one, after its name; None when its task has ended.
    fn of_status<T>(
        &mut self,
        path: PathBuf,
        name: &str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ReadError> {
        let Some(bytes) = self.buffer.read(&path)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(bytes);
        let found = text.lines().find_map(|line| line.strip_prefix(name)).and_then(parse);
        found.map(Some).ok_or_else(|| ReadError::parse_file(&path, expected, &text))
    }

    /// The process and its descendants, ascending. A child whose parent has ended is no longer
    /// among them: recognise those by a mark in their environment ([`Self::has_mark`]).
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub fn tree(&mut self, tgid: u32) -> Result<Vec<u32>, ReadError> {
        let mut tree = BTreeSet::from([tgid]);
        let mut generation = vec![tgid];
        while !generation.is_empty() {
            generation = self.children(&generation)?;
            generation.retain(|child| tree.insert(*child));
        }
        Ok(tree.into_iter().collect())
    }

    /// The children of these processes.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub fn children(&mut self, of: &[u32]) -> Result<Vec<u32>, ReadError> {
        let mut known = false;
        let mut children = Vec::new();
        for &parent in of {
            known |= self.add_children(parent, &mut children)?;
        }
        // built without CONFIG_PROC_CHILDREN: look at every process's parent instead
        if known { Ok(children) } else { self.children_by_parents(of) }
    }

    /// Adds the children of all of a process's threads; answers whether the kernel keeps such a list
    /// and the process lives.
    fn add_children(&mut self, tgid: u32, children: &mut Vec<u32>) -> Result<bool, ReadError> {
        let mut known = false;
        for tid in self.threads(tgid)?.unwrap_or_default() {
            let path = self.task_file(tgid, tid, "children");
            let Some(bytes) = self.buffer.read(&path)? else {
                continue;
            };
            known = true;
            let text = String::from_utf8_lossy(bytes);
            children.extend(text.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
        Ok(known)
    }

    fn children_by_parents(&mut self, of: &[u32]) -> Result<Vec<u32>, ReadError> {
        let mut children = Vec::new();
        for pid in self.processes()? {
            let stat = self.listed_stat(pid)?;
            children.extend(stat.filter(|stat| of.contains(&stat.ppid)).map(|_| pid));
        }
        Ok(children)
    }

    /// Whether the process was started with exactly this `NAME=value` in its environment; None
    /// when it has ended or we may not look.
    ///
    /// # Errors
    /// The file cannot be read for another reason.
    pub fn has_mark(&mut self, tgid: u32, mark: &str) -> Result<Option<bool>, ReadError> {
        match self.of_start(self.proc.join(format!("{tgid}/environ"))) {
            Ok(bytes) => Ok(Some(bytes.split(|&b| b == 0).any(|v| v == mark.as_bytes()))),
            Err(ReadError::Read { source, .. }) if file::is_absent(&source) => Ok(None),
            Err(error) if error.is_refused() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What a process was started with, as far as it says so itself, each word ended by a zero; None where it does not, or
    /// not in time.
    pub fn command_line(&mut self, tgid: u32) -> Option<Vec<u8>> {
        self.of_start(self.proc.join(format!("{tgid}/cmdline"))).ok()
    }

    /// What a process was started with. It decides what that takes: terabytes that it says are its environment, or its
    /// lock held for ever by a thread that waits for a file system of its own.
    fn of_start(&mut self, path: PathBuf) -> Result<Vec<u8>, ReadError> {
        let (begin, limit) = (Instant::now(), self.patience.min(MOST_WAITED));
        let answerer =
            self.starts.take().or_else(|| Answerer::start(|path: PathBuf| file::of_start(&path)));
        let answer = match &answerer {
            Some(answerer) => answerer.ask(path.clone(), limit),
            None => Some(file::of_start(&path)),
        };
        let Some(read) = answer else {
            self.patience = self.patience.saturating_sub(begin.elapsed()).max(LEAST_WAITED);
            let source = io::ErrorKind::TimedOut.into();
            return Err(ReadError::Read { path, source });
        };
        self.starts = answerer;
        read.map_err(|source| ReadError::Read { path, source })
    }

    /// An id of this boot, which a journal is valid for.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn boot_id(&self) -> Result<String, ReadError> {
        let path = self.proc.join("sys/kernel/random/boot_id");
        Ok(file::text(&path)?.trim().to_string())
    }

    fn task_file(&self, tgid: u32, tid: u32, name: &str) -> PathBuf {
        self.proc.join(format!("{tgid}/task/{tid}/{name}"))
    }
}

/// The numbered entries of a folder, ascending.
fn list_ids(folder: &Path) -> Result<Option<Vec<u32>>, ReadError> {
    let failed = |source| ReadError::Read { path: folder.to_path_buf(), source };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if file::is_absent(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut ids = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => {
                ids.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()))
            }
            Err(error) if file::is_absent(&error) => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
    }
    ids.sort_unstable();
    Ok(Some(ids))
}

fn parse_schedstat(text: &str) -> Option<SchedStat> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
    let mut next = || numbers.next().flatten();
    Some(SchedStat { run_time: Nanos(next()?), wait_time: Nanos(next()?), slices: next()? })
}

/// Parses a stat. The name stands in parentheses and may hold spaces and parentheses itself, so
/// the last `)` ends it; fields are counted from there (the state is field 3).
fn parse_stat(text: &str) -> Option<TaskStat> {
    let (tid, rest) = text.split_once(" (")?;
    let (comm, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let ppid = fields.next()?.parse().ok()?;
    // 9 flags, 14 utime, 15 stime, 22 starttime, 26 startcode, 28 startstack, 39 processor, 41 policy
    let flags: u64 = fields.nth(9 - 5)?.parse().ok()?;
    let user_ticks: u64 = fields.nth(14 - 10)?.parse().ok()?;
    let kernel_ticks: u64 = fields.next()?.parse().ok()?;
    let start = fields.nth(22 - 16)?.parse().ok()?;
    let code: u64 = fields.nth(26 - 23)?.parse().ok()?;
    let stack = fields.nth(28 - 27)?.parse().ok()?;
    let last_cpu = fields.nth(39 - 29)?.parse().ok()?;
    let policy: u32 = fields.nth(41 - 40)?.parse().ok()?;
    Some(TaskStat {
        id: TaskId { tid: tid.parse().ok()?, start },
        comm: comm.replace(char::is_control, "\u{fffd}"),
        state,
        ppid,
        cpu_ticks: user_ticks.saturating_add(kernel_ticks),
        kernel_ticks,
        last_cpu: CpuId(last_cpu),
        is_kernels: flags & KERNELS != 0,
        is_real_time: REAL_TIME.contains(&policy),
        is_by_deadline: policy == DEADLINE,
        // 1 stands for what is not told (do_task_stat, v6.12).
        program: (code > 1).then_some((code, stack)),
        is_exiting: flags & EXITING != 0,
    })
}

#[cfg(test)]
mod tests;
