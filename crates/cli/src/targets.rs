//! Whom a balance looks after: processes it was named, those of control groups, or all that are
//! busy; the last two change while it runs.
//!
//! Whoever is found is known by its start time too from then on: a pid may be another's later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use numaherd_linux::process::TaskReader;
use numaherd_linux::sys::{affinity, clock};
use numaherd_linux::{ReadError, cgroup};
use numaherd_model::ProcessId;

use crate::strangers::NAME;

/// How often it is looked who is there. Guessed: a process that lives shorter is not worth it.
const LOOK: Duration = Duration::from_secs(2);
/// A process of `--all` must use so much of a CPU, per mille, to be looked after: herd places no
/// thread that is less than 250 per mille busy.
const BUSY_PERMILLE: u64 = 100;

/// The process of this id.
///
/// # Errors
/// There is none, or it is a thread of the kernel's, which has no memory of its own.
pub fn named(reader: &mut TaskReader, pid: u32) -> Result<ProcessId> {
    let stat = reader.stat(pid, pid)?.with_context(|| format!("no process {pid}"))?;
    ensure!(!stat.is_kernels, "process {pid} is the kernel's own, and nobody's to place");
    // The kernel has a folder for every thread as if it were a process, though it lists none of them; but what it tells
    // of faults is by process, and of that id there would be none for ever.
    if let Some(tgid) = reader.tgid(pid)?.filter(|tgid| *tgid != pid) {
        bail!("{pid} is a thread of process {tgid}: give that");
    }
    Ok(ProcessId { tgid: pid, start: stat.id.start })
}

/// A process that can be looked after: it exists and we may change its affinity.
///
/// # Errors
/// There is none, or it is not ours to place.
pub fn one(pid: u32) -> Result<ProcessId> {
    ensure!(
        pid != std::process::id(),
        "process {pid} is this very run: it does not look after itself"
    );
    let process = alive(&mut TaskReader::new("/".as_ref()), pid)?;
    affinity::may_set(pid).with_context(|| format!("process {pid} cannot be balanced"))?;
    Ok(process)
}

/// The same, if it has a thread that can be placed. The first may have ended before others.
///
/// # Errors
/// As [`named`] has them; or it has ended.
pub fn alive(reader: &mut TaskReader, pid: u32) -> Result<ProcessId> {
    let process = named(reader, pid)?;
    let mut alive = false;
    for tid in reader.threads(pid)?.unwrap_or_default() {
        let Some(stat) = reader.stat(pid, tid)? else { continue };
        alive |= !stat.is_dead();
    }
    ensure!(alive, "process {pid} has ended, though its parent has not taken note of that yet");
    Ok(process)
}

/// Who is to be looked after now.
#[derive(Debug, Default)]
pub struct Whom {
    /// Processes that were named, and members of groups: with all their descendants.
    pub named: Vec<ProcessId>,
    /// Busy ones: what others descend from them is none of theirs.
    pub busy: Vec<ProcessId>,
}

/// Whom.
pub struct Targets {
    named: Vec<ProcessId>,
    groups: Vec<PathBuf>,
    /// It was said that nobody is in any of them.
    deserted: bool,
    all: bool,
    reader: TaskReader,
    /// Of all processes those that are called as we are, but us and our children.
    namesakes: Vec<u32>,
    /// When it was last looked, and each process's CPU time in ticks then.
    last: Option<(Instant, BTreeMap<ProcessId, u64>)>,
}

impl Targets {
    /// Finds the groups. One that is named wrongly is an error.
    pub fn new(named: Vec<ProcessId>, groups: &[PathBuf], all: bool) -> Result<Targets> {
        let root = Path::new("/");
        let mut folders = Vec::new();
        for group in groups {
            let folder = cgroup::find(root, group)?;
            let none = || format!("no control group (version 2) {}", group.display());
            let folder = folder.with_context(none)?;
            if let Some(why) = is_empty(cgroup::processes(&folder)?.as_deref()) {
                bail!("no process in control group {}{why}", group.display());
            }
            folders.push(folder);
        }
        let reader = TaskReader::new(root);
        let (deserted, namesakes, last) = (false, Vec::new(), None);
        Ok(Targets { named, groups: folders, deserted, all, reader, namesakes, last })
    }

    /// Names one more process: a child of ours, whose pid is its own until we have waited for it.
    pub fn add(&mut self, child: u32) -> Result<()> {
        let process = self.reader.identify(child)?;
        self.named.push(process.with_context(|| format!("process {child} is gone"))?);
        Ok(())
    }

    /// Nobody is there any more. Whether somebody may come: a service that restarts leaves its group empty for a
    /// while, and systemd removes it and makes it anew. That it is waited for is said once each time; who looks
    /// `once` does not wait for it.
    pub fn waits(&mut self, once: bool) -> bool {
        let for_groups = !once && !self.groups.is_empty();
        if for_groups && !std::mem::replace(&mut self.deserted, true) {
            let groups: Vec<_> = self.groups.iter().map(|g| g.display().to_string()).collect();
            let groups = groups.join(", ");
            say!("numaherd: no process is left in control group {groups}: waiting for others");
        }
        self.all || for_groups
    }

    /// Who is to be looked after now; None when that is as it was, or was looked up just now.
    pub fn look(&mut self) -> Result<Option<Whom>> {
        let changes = self.all || !self.groups.is_empty();
        match &self.last {
            Some((at, _)) if !changes || at.elapsed() < LOOK => return Ok(None),
            _ => {}
        }
        let mut members: BTreeSet<u32> = BTreeSet::new();
        for group in &self.groups {
            members.extend(cgroup::processes(group)?.unwrap_or_default());
        }
        // The supervisor of this run, and we, in a group that is looked after.
        let ours: BTreeSet<u32> = self.reader.tree(std::process::id())?.into_iter().collect();
        let mut found = BTreeSet::new();
        for pid in members.difference(&ours) {
            found.extend(self.reader.identify(*pid)?);
        }
        self.deserted &= found.is_empty();
        found.extend(&self.named);
        let used = if self.all { self.cpu_ticks(&ours)? } else { BTreeMap::new() };
        let busy = self.busy(&used);
        self.last = Some((Instant::now(), used));
        Ok(Some(Whom { named: found.into_iter().collect(), busy }))
    }

    /// With all, processes that were called as we are when it was last looked.
    pub fn namesakes(&self) -> &[u32] {
        &self.namesakes
    }

    /// CPU time of every process but kernel threads and ours, of all its threads, ended ones too: in a program that
    /// starts a thread for each request nobody else has any.
    fn cpu_ticks(&mut self, ours: &BTreeSet<u32>) -> Result<BTreeMap<ProcessId, u64>> {
        let mut used = BTreeMap::new();
        self.namesakes.clear();
        for pid in self.reader.processes()? {
            let whole = ReadError::unless_refused(self.reader.process_stat(pid))?;
            let Some(whole) = whole else { continue };
            if !whole.is_kernels && !ours.contains(&pid) {
                used.insert(ProcessId { tgid: pid, start: whole.id.start }, whole.cpu_ticks);
                self.namesakes.extend((whole.comm == NAME).then_some(pid));
            }
        }
        Ok(used)
    }

    fn busy(&self, used: &BTreeMap<ProcessId, u64>) -> Vec<ProcessId> {
        let Some((at, before)) = &self.last else { return Vec::new() };
        let elapsed_ns = at.elapsed().as_nanos() as u64;
        let tick = clock::tick().0;
        let busy = |process: &ProcessId, now: u64| {
            let then = before.get(process).copied().unwrap_or(0);
            now.saturating_sub(then) * tick * 1000 >= elapsed_ns * BUSY_PERMILLE
        };
        used.iter()
            .filter(|(process, now)| busy(process, **now))
            .map(|(process, _)| *process)
            .collect()
    }
}

/// Whether a group has none of these processes, and what may be said of why. One that lists none at all may hold threads.
fn is_empty(processes: Option<&[u32]>) -> Option<&'static str> {
    match processes {
        Some([]) => Some(""),
        Some(_) => None,
        None => {
            Some(": it is of threads (cgroup.type), and a group above it lists their processes")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A group that a test makes up: any folder that lists processes.
    fn group(processes: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.procs"), processes).unwrap();
        folder
    }

    #[test]
    fn a_group_that_empties_is_waited_for_even_if_it_is_removed() {
        // Our parent is none of ours.
        let pid = std::os::unix::process::parent_id();
        let folder = group(&format!("{pid}\n"));
        // It has ended, and is named all the same.
        let ended = ProcessId { tgid: 1 << 30, start: 1 };
        let mut targets = Targets::new(vec![ended], &[folder.path().into()], false).unwrap();
        let found = |targets: &mut Targets| {
            targets.last = None;
            let named = targets.look().unwrap().unwrap().named;
            named.iter().filter(|one| **one != ended).map(|one| one.tgid).collect::<Vec<_>>()
        };
        assert_eq!(found(&mut targets), [pid]);
        fs::write(folder.path().join("cgroup.procs"), "").unwrap();
        assert_eq!(found(&mut targets), [0; 0]);
        assert!(targets.waits(false) && targets.deserted && !targets.waits(true));
        fs::remove_file(folder.path().join("cgroup.procs")).unwrap();
        assert_eq!(found(&mut targets), [0; 0]);
        assert!(targets.waits(false) && targets.deserted);
        fs::write(folder.path().join("cgroup.procs"), format!("{pid}\n")).unwrap();
        assert_eq!(found(&mut targets), [pid]);
        assert!(!targets.deserted, "the next time it is said again");
    }

    #[test]
    fn who_names_a_group_of_threads_is_told_where_their_processes_are() {
        assert_eq!([Some(&[7][..]), Some(&[])].map(is_empty), [None, Some("")]);
        assert!(is_empty(None).is_some_and(|why| why.contains("a group above it")));
    }

    #[test]
    fn a_group_is_no_reason_to_wait_for_processes_that_were_named() {
        let mut named = Targets::new(Vec::new(), &[], false).unwrap();
        let mut all = Targets::new(Vec::new(), &[], true).unwrap();
        assert!(!named.waits(false) && all.waits(false) && all.waits(true));
        let empty = group("");
        let error = Targets::new(Vec::new(), &[empty.path().into()], false).err().unwrap();
        assert!(error.to_string().contains("no process in control group"), "{error}");
    }

    #[test]
    fn who_has_ended_and_who_is_the_kernels_own_is_not_looked_after() {
        let root = tempfile::tempdir().unwrap();
        let put = |pid: u32, tid: u32, state: char, flags: u64| {
            let zeros = " 0".repeat(20);
            let stat = format!(
                "{tid} (x) {state} 1 7 7 0 -1 {flags} 0 0 0 0 5 0 0 0 20 0 1 0 99 0 0{zeros}"
            );
            fs::create_dir_all(root.path().join(format!("proc/{pid}/task/{tid}"))).unwrap();
            fs::write(
                root.path().join(format!("proc/{pid}/task/{tid}/stat")),
                stat + " 0 0 0 0 0 0 0\n",
            )
            .unwrap();
        };
        put(7, 7, 'Z', 0);
        put(8, 8, 'Z', 0);
        put(8, 9, 'S', 0);
        put(2, 2, 'S', 0x0020_0000);
        let mut reader = TaskReader::new(root.path());
        let mut told = |pid| match alive(&mut reader, pid) {
            Ok(process) => process.tgid.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(told(8), "8", "its first thread has ended, and not the other");
        assert!(told(7).contains("has ended") && told(2).contains("the kernel's own"));
        assert_eq!(told(3), "no process 3");
        // Nobody who only looks is shown an empty table.
        assert!(named(&mut reader, 2).is_err() && named(&mut reader, 7).is_ok());
    }

    #[test]
    fn time_of_threads_that_ended_makes_a_process_busy() {
        let root = tempfile::tempdir().unwrap();
        let stat = |ticks: u64| {
            format!(
                "7 (x) S 1 7 7 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 99 0 0{} 0 0 0 0 0 0 0\n",
                " 0".repeat(20)
            )
        };
        fs::create_dir_all(root.path().join("proc/7/task/7")).unwrap();
        fs::write(root.path().join("proc/7/task/7/stat"), stat(3)).unwrap();
        fs::write(root.path().join("proc/7/stat"), stat(5000)).unwrap();
        let mut targets = Targets::new(Vec::new(), &[], true).unwrap();
        targets.reader = TaskReader::new(root.path());
        let process = ProcessId { tgid: 7, start: 99 };
        let used = targets.cpu_ticks(&BTreeSet::new()).unwrap();
        assert_eq!(used, BTreeMap::from([(process, 5000)]));
        let before = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        targets.last = Some((before, BTreeMap::from([(process, 4000)])));
        assert_eq!(targets.busy(&used), [process]);
    }
}
