//! A stretch of time in which we change things on this machine, and the promise to put them
//! back.
//!
//! A session writes every change down before it makes it, and has a supervisor: a process of
//! its own that puts everything back when we are killed, or hang. What nobody could put back
//! (both were killed) is put back when the next session begins, or by `numaherd restore`.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use numaherd_linux::knobs::{self, Knob, KnobError};
use numaherd_linux::process::TaskReader;
use numaherd_linux::reserve;
use numaherd_linux::sys::identity;
use numaherd_linux::undo::{Trail, Undone, in_force, undo};
use numaherd_model::{Change, Journal, counted};
use numaherd_trace::journal::{remove, state_dir, take_turn};
use numaherd_trace::{Event, FileJournal, Found, LeftBehind};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

use crate::living::{living, told};

/// What descendants of a session carry in their environment, with the run's id.
pub const MARK: &str = "NUMAHERD_RUN";

/// Between two signs of life to the supervisor.
const BEAT: Duration = Duration::from_millis(150);

/// Between two tries to start another supervisor, where that fails.
const RETRY: Duration = Duration::from_secs(10);

/// Longest that another session may take to begin: for that it puts back what dead ones left. Guessed.
const TURN: Duration = Duration::from_secs(10);

/// The number of the supervisor's pipe, where the limit on open files lets us have it. The kernel's table of a
/// process's files is as long as its highest number, eight bytes each. Guessed: more than we ever open.
const HIGHEST_FILE: u64 = 16383;

/// To the supervisor: we live.
pub const BEATS: u8 = b'b';
/// To the supervisor: we are putting things back ourselves, be patient.
pub const CLOSING: u8 = b'c';
/// To the supervisor: all is put back, go.
pub const DONE: u8 = b'q';

/// The folder for journals of this user.
pub fn journals() -> PathBuf {
    state_dir(identity::effective_user())
}

/// A session; changes are put back when it is finished.
pub struct Session {
    run: String,
    opening: Event,
    journal: Shared,
    path: PathBuf,
    pulse: Pulse,
}

/// The journal, written by the machine and by us.
#[derive(Clone)]
struct Shared(Rc<RefCell<FileJournal>>);

impl Journal for Shared {
    fn before(&mut self, change: &Change) -> std::io::Result<()> {
        let mut journal = self.0.borrow_mut();
        if journal.is_long() {
            // Where that fails it grows on, and is tried again when it is twice as long.
            let _ = journal.shorten(|changes| in_force("/".as_ref(), changes));
        }
        journal.before(change)
    }
}

impl Session {
    /// Puts back what dead sessions left, begins a journal and starts the supervisor, if `alone` finds no other session
    /// in the way. One that `tunes` sets knobs of the kernel.
    pub fn begin(about: &str, tunes: bool, alone: impl FnOnce() -> Result<()>) -> Result<Session> {
        let dir = journals();
        let mut reader = TaskReader::new("/".as_ref());
        let pid = std::process::id();
        let start = reader.stat(pid, pid)?.map_or(0, |stat| stat.id.start);
        let run = format!("{pid}-{start}");
        let boot = reader.boot_id()?;
        let opening =
            Event::Begin { run: run.clone(), boot, pid, start, about: about.into(), tunes };
        let journal = write_down(&dir, &run, opening.clone(), || {
            alone()?;
            for (left, undone) in restore_dead(&dir, false)? {
                say!("numaherd: put back what run {} had left: {}", left.run, tell(&undone));
            }
            if tunes { alone_at_the_knobs(&dir, &run, &mut reader) } else { Ok(()) }
        })?;
        let path = journal.path().to_path_buf();
        let pulse = Pulse::start(&path)?;
        Ok(Session { run, opening, journal: Shared(Rc::new(RefCell::new(journal))), path, pulse })
    }

    /// The run's id.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// What the journal, and every log of the run, begins with.
    pub fn opening(&self) -> Event {
        self.opening.clone()
    }

    /// The journal, for whoever makes changes.
    pub fn journal(&self) -> Box<dyn Journal> {
        Box::new(self.journal.clone())
    }

    /// Signs of life.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Sets a knob of the kernel; does nothing if it has that value or does not exist.
    pub fn set_knob(&mut self, knob: Knob, value: &str) -> Result<()> {
        let root = Path::new("/");
        let Some(before) = knobs::read(root, knob)? else { return Ok(()) };
        if before == value {
            return Ok(());
        }
        let found = knob.paths().iter().map(|path| root.join(path)).find(|path| path.exists());
        let Some(path) = found else { return Ok(()) };
        self.change_knob(path, before, value.into(), || knobs::write(root, knob, value))
    }

    /// Writes down what is about to become of a knob, and has it written; where that is refused, also that it stays.
    fn change_knob(
        &mut self,
        path: PathBuf,
        before: String,
        after: String,
        write: impl FnOnce() -> Result<(), KnobError>,
    ) -> Result<()> {
        const DOING: &str = "cannot write the undo journal";
        let (stays, refused) = (before.clone(), after.clone());
        let change = Change::Knob { path: path.clone(), before, after };
        self.journal.before(&change).context(DOING)?;
        let Err(error) = write() else { return Ok(()) };
        let change = Change::Knob { path, before: refused, after: stays };
        self.journal.before(&change).context(DOING)?;
        Err(error.into())
    }

    /// Writes down that somebody we start is about to give a setting this value.
    pub fn will_be_set(&mut self, path: &Path, value: &str) -> Result<()> {
        let Ok(before) = std::fs::read_to_string(path) else { return Ok(()) };
        let before = before.trim_end().to_string();
        if before == value {
            return Ok(());
        }
        let change = Change::Knob { path: path.into(), before, after: value.into() };
        self.journal.before(&change).context("cannot write the undo journal")
    }

    /// Sees to it that a node has this many free huge pages of 2 MiB in reserve.
    pub fn reserve_huge_pages(&mut self, node: u32, pages: u64) -> Result<()> {
        let root = Path::new("/");
        let state = || reserve::read(root, node)?.context("this kernel has no huge pages");
        let (before, free) = state()?;
        if free >= pages {
            return Ok(());
        }
        let after = before + pages - free;
        let path = reserve::path(root, node);
        let change = Change::Knob { path, before: before.to_string(), after: after.to_string() };
        self.journal.before(&change).context("cannot write the undo journal")?;
        let doing = || format!("cannot reserve {pages} huge pages on node {node}");
        reserve::write(root, node, after).with_context(doing)?;
        let (reserved, free) = state()?;
        if free < pages {
            // The journal knows the value we wrote, not the one the kernel made of it.
            reserve::write(root, node, before).with_context(doing)?;
            bail!("node {node} has room for {} of {pages} huge pages", reserved - before);
        }
        Ok(())
    }

    /// Whether affinities were changed; where the journal cannot be read they may have been.
    pub fn has_placed(&self) -> bool {
        let placed = |left: LeftBehind| {
            left.changes.iter().any(|(_, change)| matches!(change, Change::Affinity { .. }))
        };
        self.journal.0.borrow().left().map_or(true, |left| left.is_some_and(placed))
    }

    /// Puts everything back, or settings only and leaves affinities for `restore`; ends the
    /// supervisor.
    pub fn finish(self, keep: bool) -> Result<Undone> {
        self.pulse.closing();
        let left = self.journal.0.borrow().left().context("cannot read the undo journal")?;
        let left = if keep { left.map(LeftBehind::settings) } else { left };
        let undone = left.map_or_else(Undone::default, |left| undo_left(&left, false));
        if keep {
            let mut journal = self.journal.0.borrow_mut();
            journal.keep().context("cannot write the undo journal")?;
            // From here on the supervisor is not to put back what stays.
            if undone.failed.is_empty()
                && let Err(error) = journal.forget_settings()
            {
                say!(
                    "numaherd: settings that were put back are still in {}, and 'restore' would put them \
                     back again: {error}",
                    journal.path().display()
                );
            }
        }
        self.pulse.end();
        if !keep && undone.failed.is_empty() {
            remove(&self.path).context("cannot remove the undo journal")?;
        }
        Ok(undone)
    }
}

/// Begins a journal once `before` has nothing against it, in one turn: of two sessions that begin at once and must not be
/// both, the second sees the first's journal.
fn write_down(
    dir: &Path,
    run: &str,
    opening: Event,
    before: impl FnOnce() -> Result<()>,
) -> Result<FileJournal> {
    let doing =
        || format!("cannot write the undo journal in {}, so nothing is changed", dir.display());
    let user = identity::effective_user();
    let _turn = take_turn(dir, user, TURN).with_context(doing)?;
    before()?;
    FileJournal::create(dir, user, run, opening).with_context(doing)
}

/// Signs of life to the supervisor, no more often than needed.
#[derive(Clone)]
pub struct Pulse(Rc<RefCell<Supervisor>>);

struct Supervisor {
    child: Child,
    journal: PathBuf,
    last: Option<Instant>,
    /// When a try to start another failed last.
    failed: Option<Instant>,
}

impl Pulse {
    fn start(journal: &Path) -> Result<Pulse> {
        let child = supervise(journal)?;
        let supervisor = Supervisor { child, journal: journal.into(), last: None, failed: None };
        Ok(Pulse(Rc::new(RefCell::new(supervisor))))
    }

    /// We live. From the first call on, silence counts as a hang.
    pub fn beat(&self) {
        self.0.borrow_mut().beat(supervise);
    }

    fn closing(&self) {
        let mut supervisor = self.0.borrow_mut();
        // If it is gone, we put things back all the same.
        let _ = supervisor.child.stdin.as_mut().map(|pipe| pipe.write_all(&[CLOSING]));
    }

    fn end(&self) {
        let mut supervisor = self.0.borrow_mut();
        if let Some(mut pipe) = supervisor.child.stdin.take() {
            // If it is gone there is nobody to tell.
            let _ = pipe.write_all(&[DONE]);
        }
        let _ = supervisor.child.wait();
    }
}

impl Supervisor {
    /// Tells it that we live; if it was killed, another takes its place.
    fn beat(&mut self, start: impl FnOnce(&Path) -> Result<Child>) {
        if self.last.is_some_and(|last| last.elapsed() < BEAT) {
            return;
        }
        self.last = Some(Instant::now());
        let pipe = self.child.stdin.as_mut();
        if pipe.is_some_and(|pipe| pipe.write_all(&[BEATS]).is_ok())
            || self.failed.is_some_and(|at| at.elapsed() < RETRY)
        {
            return;
        }
        // Dead or about to be; and nobody else takes note of its end.
        let _ = self.child.kill();
        let _ = self.child.wait();
        match start(&self.journal) {
            Ok(child) => {
                say!("numaherd: the supervisor was killed, and another takes its place");
                (self.child, self.failed) = (child, None);
            }
            Err(error) => {
                if self.failed.is_none() {
                    say!(
                        "numaherd: the supervisor was killed, and another cannot be started: {error:#}: until \
                         one can, nobody puts things back if we are killed"
                    );
                }
                self.failed = Some(Instant::now());
            }
        }
    }
}

/// Our own program as the supervisor. By the kernel's link to it: an upgrade since may have removed what
/// we were started from, or put another version in its place.
fn supervisor(journal: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(std::env::args_os().next().unwrap_or_else(|| "numaherd".into()));
    command.arg("supervise").arg("--journal").arg(journal);
    command.args(["--pid", &std::process::id().to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // A group of its own: Ctrl-C is for us, and must not reach it.
    command.process_group(0);
    command
}

/// The pipe under a number above all others. When we are killed the kernel lets go of our files one after another,
/// those with the highest numbers first (task_work_run, since its commit c82199061009), and taking BPF off a busy
/// machine's kernel can take seconds; our tasks should not wait for that. Where no such number is to be had, they do.
fn closed_first(pipe: ChildStdin) -> ChildStdin {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let high = limit.saturating_sub(1).min(HIGHEST_FILE);
    let moved = i32::try_from(high).ok().and_then(|high| fcntl_dupfd_cloexec(&pipe, high).ok());
    moved.map_or(pipe, ChildStdin::from)
}

fn supervise(journal: &Path) -> Result<Child> {
    started(supervisor(journal))
}

/// Starts it, and hears it say that it is ready.
fn started(mut command: Command) -> Result<Child> {
    let mut child = command.spawn().context("cannot start the supervisor")?;
    child.stdin = child.stdin.take().map(closed_first);
    let mut line = String::new();
    let output = child.stdout.take();
    let heard = output.map_or(Ok(0), |output| BufReader::new(output).read_line(&mut line));
    let ready = heard.context("cannot hear the supervisor").and_then(|_| {
        anyhow::ensure!(line.trim() == "ready", "the supervisor does not start");
        Ok(())
    });
    if let Err(error) = ready {
        // Nobody else takes note of its end, and it is tried again and again.
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    Ok(child)
}

/// Refuses to set knobs beside another session that does: each would take the other's values for those
/// to put back, and turn its knobs back under it. Sessions that started ours end after it, so we put
/// back theirs first.
fn alone_at_the_knobs(dir: &Path, ours: &str, reader: &mut TaskReader) -> Result<()> {
    let above = ancestors(reader);
    for left in living(dir)? {
        if left.tunes && left.run != ours && !above.contains(&left.pid) {
            bail!(
                "{} sets the kernel's knobs already, and two would undo each other's settings: end that first, \
                 or balance without --tune-kernel",
                told(&left)
            );
        }
    }
    Ok(())
}

/// Those who started us, nearest first.
fn ancestors(reader: &mut TaskReader) -> Vec<u32> {
    let parent = |&pid: &u32| reader.stat(pid, pid).ok().flatten().map(|stat| stat.ppid);
    std::iter::successors(Some(std::process::id()), parent).take_while(|pid| *pid > 0).collect()
}

/// Puts back what sessions left whose process is dead, but for what was kept on purpose. Journals of
/// another boot are removed: nothing of them is left.
pub fn restore_dead(dir: &Path, dry_run: bool) -> Result<Vec<(LeftBehind, Undone)>> {
    let mut reader = TaskReader::new("/".as_ref());
    let boot = reader.boot_id()?;
    let mut restored = Vec::new();
    for left in readable(dir)? {
        if left.boot == boot && (is_alive(&left, &mut reader)? || left.kept) {
            continue;
        }
        if left.boot == boot {
            let undone = undo_left(&left, dry_run);
            if !dry_run && undone.failed.is_empty() {
                remove_of(&left)?;
            }
            restored.push((left, undone));
        } else if !dry_run {
            remove_of(&left)?;
        }
    }
    Ok(restored)
}

/// All journals of this user.
pub fn left_behind(dir: &Path) -> Result<Found> {
    let found = LeftBehind::find(dir, identity::effective_user());
    found.with_context(|| format!("cannot read {}", dir.display()))
}

/// Those that can be read; which cannot is told.
pub fn readable(dir: &Path) -> Result<Vec<LeftBehind>> {
    let found = left_behind(dir)?;
    for (path, error) in &found.unreadable {
        say!("numaherd: cannot read {}: {error}: what it holds is not put back", path.display());
    }
    Ok(found.journals)
}

/// Whether the session that wrote it, of this boot, still runs. One that was killed is there until whoever started it
/// takes note, which may be never.
pub fn is_alive(left: &LeftBehind, reader: &mut TaskReader) -> Result<bool> {
    let stat = reader.stat(left.pid, left.pid)?;
    Ok(stat.is_some_and(|stat| stat.id.start == left.start && !stat.is_dead()))
}

/// Undoes what one journal holds.
pub fn undo_left(left: &LeftBehind, dry_run: bool) -> Undone {
    let mark = format!("{MARK}={}", left.run);
    let trail = Trail { changes: &left.changes, mark: Some(&mark), since: left.start };
    let mut undone = undo("/".as_ref(), trail, dry_run);
    let lost = |line: &usize| {
        format!(
            "{} line {line}: it cannot be read, and what it changed is not put back",
            left.path.display()
        )
    };
    undone.failed.extend(left.unreadable.iter().map(lost));
    undone
}

/// Removes the journal of a session that is put back.
pub fn remove_of(left: &LeftBehind) -> Result<()> {
    remove(&left.path).with_context(|| format!("cannot remove {}", left.path.display()))
}

/// What was put back, in words.
pub fn tell(undone: &Undone) -> String {
    let mut text = format!(
        "{} and {}",
        counted(undone.affinities, "affinity"),
        counted(undone.knobs, "setting")
    );
    if undone.widened > 0 {
        text += &format!(
            ", {} of them given all of a cpuset that has none of the CPUs they had",
            undone.widened
        );
    }
    if undone.changed_since > 0 {
        text += &format!(", {} changed since by others and left", undone.changed_since);
    }
    for failed in &undone.failed {
        text += &format!("; could not: {failed}");
    }
    text
}

#[cfg(test)]
mod tests;
