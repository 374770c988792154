//! Sessions with journals in folders of our own, and supervisors that are none.

use super::*;

fn begun(
    dir: &Path,
    reader: &mut TaskReader,
    run: &str,
    pid: u32,
    tunes: bool,
) -> (Event, FileJournal) {
    let start = reader.stat(pid, pid).unwrap().unwrap().id.start;
    let (run, about, boot) = (run.to_string(), "a test".into(), reader.boot_id().unwrap());
    let begin = Event::Begin { run: run.clone(), boot, pid, start, about, tunes };
    let user = identity::effective_user();
    (begin.clone(), FileJournal::create(dir, user, &run, begin).unwrap())
}

#[test]
fn one_session_at_a_time_sets_knobs_but_for_those_that_started_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut reader = TaskReader::new("/".as_ref());
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let parent = reader.stat(std::process::id(), std::process::id()).unwrap().unwrap().ppid;
    let mut begun = |run, pid, tunes| begun(dir.path(), &mut reader, run, pid, tunes);
    begun("parent", parent, true);
    begun("ours", other.id(), true);
    begun("places", other.id(), false);
    let alone = || {
        let mut reader = TaskReader::new("/".as_ref());
        alone_at_the_knobs(dir.path(), "ours", &mut reader).map_err(|error| error.to_string())
    };
    assert_eq!(alone(), Ok(()));
    begun("tunes", other.id(), true);
    let refused = alone().unwrap_err();
    let says = |what: &str| assert!(refused.contains(what), "{what}: {refused}");
    says("run tunes of process");
    says(&other.id().to_string());
    says("end that first");
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(alone(), Ok(()), "nobody is there any more");
}

/// Each looks at who is there, takes its time, and begins if nobody is: one of them does.
#[test]
fn of_sessions_that_begin_at_once_the_later_see_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let gate = std::sync::Barrier::new(4);
    let begin = |run: String| {
        let opening = Event::Begin {
            run: run.clone(),
            boot: "b".into(),
            pid: 1,
            start: 1,
            about: "process 7".into(),
            tunes: false,
        };
        gate.wait();
        let begun = write_down(dir.path(), &run, opening, || {
            let others = left_behind(dir.path())?.journals.len();
            std::thread::sleep(Duration::from_millis(50));
            anyhow::ensure!(others == 0, "looked after already");
            Ok(())
        });
        begun.is_ok()
    };
    let begun: Vec<bool> = std::thread::scope(|scope| {
        let begin = &begin;
        let each = (0..4).map(|run| scope.spawn(move || begin(run.to_string())));
        let each: Vec<_> = each.collect();
        each.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(begun.iter().filter(|begun| **begun).count(), 1, "{begun:?}");
    assert_eq!(left_behind(dir.path()).unwrap().journals.len(), 1);
}

/// Whoever started it may never take note of its end, as the first process of many a container; what it left is to be
/// put back all the same.
#[test]
fn a_session_that_was_killed_and_is_not_buried_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let mut reader = TaskReader::new("/".as_ref());
    let mut killed = Command::new("sleep").arg("60").spawn().unwrap();
    begun(dir.path(), &mut reader, "killed", killed.id(), false);
    let left = left_behind(dir.path()).unwrap().journals.remove(0);
    assert!(is_alive(&left, &mut reader).unwrap());
    killed.kill().unwrap();
    while !reader.stat(killed.id(), killed.id()).unwrap().unwrap().is_dead() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!is_alive(&left, &mut reader).unwrap());
    killed.wait().unwrap();
}

/// A process that hears all it is told, or ends at once.
fn child(hears: bool) -> Child {
    let mut command = Command::new(if hears { "cat" } else { "true" });
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_supervisor_that_was_killed_is_buried_and_another_started() {
    let dead = child(false);
    let pid = dead.id();
    // Ended, and nobody has taken note of it.
    let is_there = || std::fs::read_to_string(format!("/proc/{pid}/stat"));
    while !is_there().unwrap().contains(") Z ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut supervisor =
        Supervisor { child: dead, journal: "journal".into(), last: None, failed: None };
    let mut tries = 0;
    for _ in 0..2 {
        supervisor.last = None;
        supervisor.beat(|_| {
            tries += 1;
            bail!("no")
        });
    }
    assert_eq!(tries, 1, "not with each sign of life");
    assert!(is_there().is_err(), "a zombie");
    supervisor.failed = Instant::now().checked_sub(RETRY);
    for _ in 0..2 {
        supervisor.last = None;
        supervisor.beat(|journal| {
            assert_eq!(journal, Path::new("journal"));
            tries += 1;
            Ok(child(true))
        });
    }
    assert_eq!((tries, supervisor.failed), (2, None));
    supervisor.child.kill().unwrap();
    supervisor.child.wait().unwrap();
}

#[test]
fn a_supervisor_that_does_not_get_ready_is_ended_and_buried() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    for says in ["echo no", "printf '\\377\\n'"] {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("echo $$ > {}; {says}; exec sleep 60", pid.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        started(command).unwrap_err();
        let pid = std::fs::read_to_string(&pid).unwrap();
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "{says}");
    }
}

#[test]
fn a_supervisor_is_this_very_program_whatever_has_become_of_its_file() {
    let command = supervisor(Path::new("journal"));
    assert_eq!(command.get_program(), "/proc/self/exe");
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    assert_eq!(words[..3], ["supervise", "--journal", "journal"]);
}

/// A session about to end, and the file that its supervisor's pipe is written to.
fn ending(dir: &Path, run: &str) -> (Session, PathBuf) {
    let (mut reader, me) = (TaskReader::new("/".as_ref()), std::process::id());
    let (opening, journal) = begun(dir, &mut reader, run, me, true);
    let path = journal.path().to_path_buf();
    let told = dir.with_extension("told");
    let mut listener = Command::new("cat");
    listener.stdin(Stdio::piped()).stdout(std::fs::File::create(&told).unwrap());
    let child = listener.spawn().unwrap();
    let supervisor = Supervisor { child, journal: path.clone(), last: None, failed: None };
    let pulse = Pulse(Rc::new(RefCell::new(supervisor)));
    let journal = Shared(Rc::new(RefCell::new(journal)));
    (Session { run: run.into(), opening, journal, path, pulse }, told)
}

/// Else it would put back what is to stay, as of one that was killed.
#[test]
fn where_settings_cannot_be_forgotten_the_supervisor_hears_all_the_same_that_all_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let (session, told) = ending(&dir.path().join("kept"), "kept");
    let path = session.path.clone();
    // Nothing can be written in its place.
    std::fs::create_dir(path.with_extension("new")).unwrap();
    session.finish(true).unwrap();
    assert_eq!(std::fs::read(told).unwrap(), [CLOSING, DONE]);
    assert!(LeftBehind::read(&path).unwrap().unwrap().kept);
}

/// Else `restore --run` would be named for nothing, and a journal of nothing stay for ever.
#[test]
fn only_a_session_that_has_placed_somebody_has_something_to_keep() {
    use numaherd_model::{ProcessId, TaskId};
    let dir = tempfile::tempdir().unwrap();
    let (session, _told) = ending(&dir.path().join("placed"), "placed");
    let knob = Change::Knob { path: "/no/such".into(), before: "1".into(), after: "2".into() };
    session.journal().before(&knob).unwrap();
    assert!(!session.has_placed());
    let affinity = Change::Affinity {
        task: TaskId { tid: 9, start: 1 },
        process: ProcessId { tgid: 9, start: 1 },
        before: Default::default(),
        after: Default::default(),
    };
    session.journal().before(&affinity).unwrap();
    assert!(session.has_placed());
    session.pulse.end();
}

/// Else others would be told that the kernel's balancing is switched off.
#[test]
fn a_knob_that_was_refused_is_not_told_of_as_set() {
    let dir = tempfile::tempdir().unwrap();
    let (mut session, _told) = ending(&dir.path().join("refused"), "refused");
    let path = PathBuf::from("/proc/sys/kernel/numa_balancing");
    let mut change = |written: std::io::Result<()>| {
        let write = || {
            let (path, value) = (path.clone(), "0".into());
            written.map_err(|source| KnobError::Refused { path, value, source })
        };
        let changed = session.change_knob(path.clone(), "1".into(), "0".into(), write);
        let left = session.journal.0.borrow().left().unwrap().unwrap();
        (changed.is_ok(), crate::living::has_switched_off(&left))
    };
    assert_eq!(change(Err(std::io::ErrorKind::PermissionDenied.into())), (false, false));
    assert_eq!(change(Ok(())), (true, true));
    session.pulse.end();
}

/// Who balances with `nohup` and logs out loses the folder that the journal is in.
#[test]
fn a_session_whose_journals_folder_is_gone_puts_everything_back() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, setting) = (dir.path().join("user"), dir.path().join("setting"));
    let (session, told) = ending(&folder, "gone");
    let change = Change::Knob { path: setting.clone(), before: "1".into(), after: "2".into() };
    session.journal().before(&change).unwrap();
    std::fs::write(&setting, "2").unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(session.finish(false).unwrap().knobs, 1);
    assert_eq!(std::fs::read_to_string(&setting).unwrap(), "1");
    assert_eq!(std::fs::read(told).unwrap(), [CLOSING, DONE]);
}
