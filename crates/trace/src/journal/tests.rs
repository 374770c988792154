//! Journals in folders of our own.

use numaherd_model::{ProcessId, TaskId};

use super::*;

/// Whoever makes files here.
fn me(dir: &tempfile::TempDir) -> u32 {
    std::fs::metadata(dir.path()).unwrap().uid()
}

fn begin() -> Event {
    let (run, boot, about) = ("r1".into(), "b".into(), "sleep".into());
    Event::Begin { run, boot, pid: 7, start: 8, about, tunes: true }
}

fn knob(after: &str) -> Change {
    Change::Knob { path: "/proc/sys/x".into(), before: "0".into(), after: after.into() }
}

fn find(dir: &Path, user: u32) -> Vec<LeftBehind> {
    let found = LeftBehind::find(dir, user).unwrap();
    assert!(found.unreadable.is_empty(), "{found:?}");
    found.journals
}

/// Without when they were written down.
fn changes(left: &LeftBehind) -> Vec<Change> {
    left.changes.iter().map(|(_, change)| change.clone()).collect()
}

#[test]
fn what_was_written_before_a_kill_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let user = me(&dir);
    let mut journal = FileJournal::create(dir.path(), user, "r1", begin()).unwrap();
    journal.before(&knob("1")).unwrap();
    journal.before(&knob("2")).unwrap();
    assert!(!find(dir.path(), user)[0].kept);
    journal.keep().unwrap();
    assert!(find(dir.path(), user)[0].kept);
    let mut torn = OpenOptions::new().append(true).open(journal.path()).unwrap();
    torn.write_all(b"{\"v\":1,\"t\":3,\"ev").unwrap();
    let found = find(dir.path(), user);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].pid, changes(&found[0])), (7, vec![knob("1"), knob("2")]));
    assert!(found[0].tunes);
    assert!(found[0].changes[0].0 <= found[0].changes[1].0, "{found:?}");
    assert!(FileJournal::create(dir.path(), user, "r1", begin()).is_err());
}

/// Whoever reads it passes over a file without a first line, and so nobody would put it away.
#[test]
fn a_journal_that_cannot_be_begun_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r1.journal");
    create_file(&path).unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = FileJournal::begun(path.clone(), full, begin()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(!path.exists());
    let user = me(&dir);
    assert!(FileJournal::create(dir.path(), user, "r1", begin()).is_ok(), "room again");
}

#[test]
fn a_turn_at_the_folder_is_one_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, user) = (dir.path().join("user"), me(&dir));
    let turn = || take_turn(&folder, user, Duration::from_millis(20));
    let first = turn().unwrap();
    let error = turn().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(first);
    turn().unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "no file stays");
}

#[test]
fn a_journal_whose_folder_is_gone_still_tells_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, user) = (dir.path().join("user"), me(&dir));
    let mut journal = FileJournal::create(&folder, user, "r1", begin()).unwrap();
    journal.before(&knob("1")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    journal.before(&knob("2")).unwrap();
    assert!(LeftBehind::read(journal.path()).is_err());
    assert_eq!(changes(&journal.left().unwrap().unwrap()), [knob("1"), knob("2")]);
}

#[test]
fn what_somebody_else_put_there_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let user = me(&dir);
    let journal = FileJournal::create(dir.path(), user, "r1", begin()).unwrap();
    assert_eq!(find(dir.path(), user).len(), 1);
    assert_eq!(find(dir.path(), user + 1), []);
    let error = FileJournal::create(dir.path(), user + 1, "r2", begin()).unwrap_err();
    assert!(error.to_string().contains("NUMAHERD_STATE"), "{error}");
    // Nor what a link names: it may be somebody else's in a moment.
    std::os::unix::fs::symlink(journal.path(), dir.path().join("r3.journal")).unwrap();
    std::fs::create_dir(dir.path().join("r4.journal")).unwrap();
    assert_eq!(find(dir.path(), user).len(), 1);
}

#[test]
fn a_folder_that_is_made_is_closed_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("numaherd");
    make_folder(&folder, me(&dir)).unwrap();
    assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn settings_are_told_from_affinities() {
    let task = TaskId { tid: 7, start: 8 };
    let affinity = Change::Affinity {
        task,
        process: ProcessId { tgid: 7, start: 8 },
        before: "0-3".parse().unwrap(),
        after: "0".parse().unwrap(),
    };
    let dir = tempfile::tempdir().unwrap();
    let mut journal = FileJournal::create(dir.path(), me(&dir), "r1", begin()).unwrap();
    journal.before(&affinity).unwrap();
    journal.before(&knob("1")).unwrap();
    let left = LeftBehind::read(journal.path()).unwrap().unwrap();
    assert_eq!(left.changes.len(), 2);
    assert_eq!(changes(&left.settings()), [knob("1")]);
}

#[test]
fn no_folder_means_nothing_left_and_an_empty_journal_changed_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let user = me(&dir);
    assert_eq!(find(&dir.path().join("none"), user), []);
    std::fs::write(dir.path().join("x.journal"), "").unwrap();
    assert_eq!(find(dir.path(), user), []);
}

/// A run may end between the look into the folder and the look at its journal.
#[test]
fn one_that_is_gone_or_cannot_be_read_does_not_hide_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let journal = FileJournal::create(dir.path(), me(&dir), "r2", begin()).unwrap();
    let paths = [dir.path().join("r1.journal"), dir.path().into(), journal.path().into()];
    let found = Found::read(paths.into());
    assert_eq!(found.journals.len(), 1);
    assert_eq!(found.unreadable.len(), 1);
    assert_eq!(found.unreadable[0].0, dir.path());
    remove(journal.path()).unwrap();
    remove(journal.path()).unwrap();
    assert!(remove(dir.path()).is_err());
}

#[test]
fn a_long_journal_is_replaced_by_what_is_needed_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let user = me(&dir);
    let mut journal = FileJournal::create(dir.path(), user, "r1", begin()).unwrap();
    journal.before(&knob("0")).unwrap();
    let mut before = 0;
    while !journal.is_long() {
        before += 1;
        journal.before(&knob(&before.to_string())).unwrap();
    }
    assert!(std::fs::metadata(journal.path()).unwrap().len() > LONG);
    // A run that was killed while it did this has left half a file.
    let new = journal.path().with_extension(ENDING_NEW);
    std::fs::write(&new, "{").unwrap();
    let old = find(dir.path(), user).remove(0);
    journal.shorten(|all| vec![all[0].clone(), all[before].clone()]).unwrap();
    assert!(!journal.is_long() && !new.exists());
    journal.before(&knob("last")).unwrap();
    let found = find(dir.path(), user).remove(0);
    assert_eq!(changes(&found), [knob("0"), knob(&before.to_string()), knob("last")]);
    assert_eq!(found.changes[..2], [old.changes[0].clone(), old.changes[before].clone()]);
    assert!(found.changes[1].0 <= found.changes[2].0);
    let who = |left: &LeftBehind| (left.run.clone(), left.boot.clone(), left.pid, left.start);
    assert_eq!(who(&found), who(&old));
    assert_eq!(std::fs::metadata(journal.path()).unwrap().mode() & 0o777, 0o600);
    journal.keep().unwrap();
    assert!(find(dir.path(), user)[0].kept);
}

/// Killed at any moment, there is a whole journal: what is written first has another name, and is removed
/// with it.
#[test]
fn a_journal_that_cannot_be_replaced_goes_on_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let user = me(&dir);
    let mut journal = FileJournal::create(dir.path(), user, "r1", begin()).unwrap();
    journal.before(&knob("1")).unwrap();
    let new = journal.path().with_extension(ENDING_NEW);
    // Nothing can be written there.
    std::fs::create_dir(&new).unwrap();
    assert!(journal.shorten(|_| Vec::new()).is_err());
    journal.before(&knob("2")).unwrap();
    assert_eq!(changes(&find(dir.path(), user)[0]), [knob("1"), knob("2")]);
    std::fs::remove_dir(&new).unwrap();
    std::fs::write(&new, "{").unwrap();
    remove(journal.path()).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn of_a_run_that_is_kept_no_setting_is_left_that_was_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let user = me(&dir);
    let (task, process) = (TaskId { tid: 9, start: 1 }, ProcessId { tgid: 9, start: 1 });
    let (before, after) = ("0-3".parse().unwrap(), "0-1".parse().unwrap());
    let placed = Change::Affinity { task, process, before, after };
    for (undone, left) in [(true, vec![placed.clone()]), (false, vec![knob("1"), placed.clone()])] {
        let run = if undone { "undone" } else { "not undone" };
        let mut journal = FileJournal::create(dir.path(), user, run, begin()).unwrap();
        journal.before(&knob("1")).unwrap();
        journal.before(&placed).unwrap();
        journal.keep().unwrap();
        if undone {
            journal.forget_settings().unwrap();
        }
        let found = LeftBehind::read(journal.path()).unwrap().unwrap();
        assert_eq!((found.kept, changes(&found)), (true, left));
    }
}
