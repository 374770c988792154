//! `restore` on this host: what a dead session's journal holds is put back, once, and only where
//! it still is what that session wrote.
//!
//! The journals here are written by hand: their lines are a format that outlives a version.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::transcript::{Transcript, numaherd, run};

/// A process whose affinity is changed; it ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        Sleeper(Command::new("sleep").arg("300").spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ticks from boot to its start, field 22 of its stat; its name has no blanks.
    fn start_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        stat.split(' ').nth(21).unwrap().parse().unwrap()
    }

    fn cpus(&self) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_string()
    }

    fn allow(&self, cpus: &str) {
        let pid = self.pid().to_string();
        run(Command::new("taskset").args(["-cp", cpus, &pid])).ends_with(0);
        assert_eq!(self.cpus(), cpus);
    }

    /// A journal's line: its CPUs were `before` and were about to become `after`.
    fn changed(&self, before: &str, after: &str) -> String {
        let (pid, start) = (self.pid(), self.start_ticks());
        format!(
            r#"{{"v":1,"t":2,"event":"before","change":"affinity","task":{{"tid":{pid},"start":{start}}},"process":{{"tgid":{pid},"start":{start}}},"before":"{before}","after":"{after}"}}"#
        )
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder for journals, and the commands that look there.
struct State(TempDir);

impl State {
    fn new() -> State {
        State(tempfile::tempdir().unwrap())
    }

    /// A journal of a session that is dead: no process of this id has started at tick 1.
    fn journal(&self, run: &str, boot: &str, changes: &[String]) -> PathBuf {
        let begin = format!(
            r#"{{"v":1,"t":1,"event":"begin","run":"{run}","boot":"{boot}","pid":{},"start":1,"about":"a test"}}"#,
            std::process::id()
        );
        let path = self.0.path().join(format!("{run}.journal"));
        std::fs::write(&path, format!("{begin}\n{}\n", changes.join("\n"))).unwrap();
        path
    }

    /// One of a session that lives: its process is the sleeper itself.
    fn journal_of(&self, sleeper: &Sleeper, run: &str, changes: &[String]) -> PathBuf {
        let path = self.journal(run, &this_boot(), changes);
        let text = std::fs::read_to_string(&path).unwrap();
        let (pid, start) = (sleeper.pid(), sleeper.start_ticks());
        let dead = format!(r#""pid":{},"start":1,"#, std::process::id());
        assert!(text.contains(&dead));
        std::fs::write(&path, text.replace(&dead, &format!(r#""pid":{pid},"start":{start},"#)))
            .unwrap();
        path
    }

    fn restore(&self, words: &[&str]) -> Transcript {
        let words: Vec<&str> = ["restore"].iter().chain(words).copied().collect();
        run(numaherd(&words).env("NUMAHERD_STATE", self.0.path()))
    }
}

/// A line of a journal: a setting was about to be changed.
fn changed_knob(path: &Path, before: &str, after: &str) -> String {
    let path = path.display();
    format!(
        r#"{{"v":1,"t":2,"event":"before","change":"knob","path":"{path}","before":"{before}","after":"{after}"}}"#
    )
}

fn this_boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_string()
}

/// All CPUs, and one of them; None on a machine with one, where nothing can be told apart.
fn masks(sleeper: &Sleeper) -> Option<(String, String)> {
    let all = sleeper.cpus();
    let first = all.split([',', '-']).next().unwrap().to_string();
    if first == all {
        eprintln!("skipped: one CPU");
        return None;
    }
    Some((all, first))
}

fn exists(path: &Path) -> bool {
    path.exists()
}

#[test]
fn nothing_left_is_nothing_to_put_back() {
    let state = State::new();
    let transcript = state.restore(&[]).ends_with(0);
    assert_eq!(
        (transcript.stdout.as_str(), transcript.stderr.as_str()),
        ("nothing to put back\n", "")
    );
    let nowhere = state.0.path().join("never/made");
    run(numaherd(&["restore"]).env("NUMAHERD_STATE", nowhere)).ends_with(0);
}

#[test]
fn a_dry_run_changes_nothing_and_a_real_one_puts_it_back_once() {
    let (state, sleeper) = (State::new(), Sleeper::start());
    let Some((all, one)) = masks(&sleeper) else { return };
    sleeper.allow(&one);
    let journal = state.journal("dead", &this_boot(), &[sleeper.changed(&all, &one)]);

    let dry = state.restore(&["--dry-run"]).ends_with(0);
    assert!(dry.stdout.contains("would put back 1 affinity"), "{dry}");
    assert_eq!((sleeper.cpus(), exists(&journal)), (one, true), "{dry}");

    let real = state.restore(&[]).ends_with(0);
    assert!(real.stdout.contains("put back 1 affinity"), "{real}");
    assert_eq!((sleeper.cpus(), exists(&journal)), (all, false), "{real}");
    assert_eq!(state.restore(&[]).stdout, "nothing to put back\n");
}

#[test]
fn what_somebody_changed_since_stays() {
    let (state, sleeper) = (State::new(), Sleeper::start());
    let Some((all, one)) = masks(&sleeper) else { return };
    // The journal says that it was to be limited; its owner has freed it since, or limited it.
    let cpus: numaherd_model::CpuSet = all.parse().unwrap();
    let other = cpus.iter().last().unwrap().to_string();
    let journal = state.journal("dead", &this_boot(), &[sleeper.changed(&one, &other)]);
    let transcript = state.restore(&[]).ends_with(0);
    assert!(transcript.stdout.contains("1 changed since by others"), "{transcript}");
    assert_eq!((sleeper.cpus(), exists(&journal)), (all, false), "{transcript}");
}

#[test]
fn settings_go_back_to_what_they_were_before_the_first_change() {
    let state = State::new();
    let knob = state.0.path().join("knob");
    std::fs::write(&knob, "100\n").unwrap();
    let change = |before, after| changed_knob(&knob, before, after);
    // 1000, then 4000, then 100; the last line is torn: that change was never made.
    let torn = change("100", "7")[..50].to_string();
    let lines = [change("1000", "4000"), change("4000", "100"), torn];
    let journal = state.journal("dead", &this_boot(), &lines);
    // Whoever is killed in the midst of a line has not written its end.
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, text.trim_end()).unwrap();
    let transcript = state.restore(&[]).ends_with(0);
    assert!(transcript.stdout.contains("1 setting"), "{transcript}");
    assert_eq!(std::fs::read_to_string(&knob).unwrap().trim(), "1000", "{transcript}");
}

/// What it changed is nowhere else.
#[test]
fn a_journal_with_a_damaged_line_is_carried_out_as_far_as_it_goes_and_stays() {
    let state = State::new();
    let [whole, lost] = ["whole", "lost"].map(|name| state.0.path().join(name));
    let setting = |knob: &Path| std::fs::read_to_string(knob).unwrap().trim().to_string();
    for damage in
        [|line: &str| line[1..].to_string(), |line: &str| line.replace("\"v\":1", "\"v\":9")]
    {
        [&whole, &lost].into_iter().for_each(|knob| std::fs::write(knob, "7\n").unwrap());
        let lines = [damage(&changed_knob(&lost, "1", "7")), changed_knob(&whole, "1", "7")];
        let journal = state.journal("dead", &this_boot(), &lines);
        let transcript = state.restore(&[]).ends_with(1);
        assert!(transcript.stdout.contains("line 2: it cannot be read"), "{transcript}");
        assert_eq!([setting(&whole), setting(&lost)], ["1", "7"], "{transcript}");
        assert!(exists(&journal), "{transcript}");
        std::fs::remove_file(journal).unwrap();
    }
}

/// As where debugfs is not mounted for a while: only the journal knows what there was.
#[test]
fn a_setting_that_cannot_be_read_keeps_its_journal() {
    let state = State::new();
    let knob = state.0.path().join("mount/knob");
    let journal = state.journal("dead", &this_boot(), &[changed_knob(&knob, "1000", "100")]);
    let transcript = state.restore(&[]).ends_with(1);
    assert!(transcript.stdout.contains("could not"), "{transcript}");
    assert!(!transcript.stdout.contains("changed since"), "{transcript}");
    assert!(exists(&journal), "{transcript}");
    std::fs::create_dir(knob.parent().unwrap()).unwrap();
    std::fs::write(&knob, "100\n").unwrap();
    let transcript = state.restore(&[]).ends_with(0);
    assert!(transcript.stdout.contains("1 setting"), "{transcript}");
    assert_eq!(std::fs::read_to_string(&knob).unwrap().trim(), "1000", "{transcript}");
    assert!(!exists(&journal), "{transcript}");
}

#[test]
fn a_journal_of_another_boot_is_removed_and_nothing_is_changed() {
    let (state, sleeper) = (State::new(), Sleeper::start());
    let Some((all, one)) = masks(&sleeper) else { return };
    sleeper.allow(&one);
    let before_reboot = "00000000-0000-4000-8000-000000000000";
    let journal = state.journal("old", before_reboot, &[sleeper.changed(&all, &one)]);
    state.restore(&["--dry-run"]).ends_with(0);
    assert!(exists(&journal), "a dry run removes nothing");
    let transcript = state.restore(&[]).ends_with(0);
    assert_eq!((sleeper.cpus(), exists(&journal)), (one, false), "{transcript}");
}

#[test]
fn what_was_kept_on_purpose_is_put_back_by_name_only() {
    let (state, sleeper) = (State::new(), Sleeper::start());
    let Some((all, one)) = masks(&sleeper) else { return };
    sleeper.allow(&one);
    let kept = r#"{"v":1,"t":3,"event":"end","kept":true}"#.to_string();
    let journal = state.journal("kept", &this_boot(), &[sleeper.changed(&all, &one), kept]);
    let transcript = state.restore(&[]).ends_with(0);
    assert_eq!((sleeper.cpus(), exists(&journal)), (one, true), "{transcript}");
    let transcript = state.restore(&["--run", "kept"]).ends_with(0);
    assert_eq!((sleeper.cpus(), exists(&journal)), (all, false), "{transcript}");
}

/// By name too, or what it changes later would be written down nowhere.
#[test]
fn a_session_that_lives_or_was_before_the_boot_is_refused_by_name() {
    let (state, sleeper) = (State::new(), Sleeper::start());
    let Some((all, one)) = masks(&sleeper) else { return };
    sleeper.allow(&one);
    let path = state.journal_of(&sleeper, "live", &[sleeper.changed(&all, &one)]);
    let pid = sleeper.pid().to_string();
    state.restore(&["--run", "live"]).refuses(1, &["run live goes on", &pid]);
    let before_reboot = "00000000-0000-4000-8000-000000000000";
    state.journal("old", before_reboot, &[sleeper.changed(&all, &one)]);
    state.restore(&["--run", "old"]).refuses(1, &["run old", "last boot"]);
    assert_eq!((sleeper.cpus(), exists(&path)), (one, true));
}

/// A journal says what to write where: only our own are believed.
#[test]
fn a_journal_of_somebody_else_is_not_believed() {
    if !crate::is_root() {
        return crate::skip("only root can give a file away");
    }
    let state = State::new();
    let knob = state.0.path().join("knob");
    std::fs::write(&knob, "theirs\n").unwrap();
    let change = changed_knob(&knob, "evil", "theirs");
    let path = state.journal("planted", &this_boot(), &[change]);
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    assert_eq!(state.restore(&[]).ends_with(0).stdout, "nothing to put back\n");
    state.restore(&["--run", "planted"]).refuses(1, &["no run 'planted'"]);
    assert_eq!(std::fs::read_to_string(&knob).unwrap(), "theirs\n");
}

/// The names in JSON and CSV are part of the contract.
#[test]
fn what_was_put_back_is_told_to_programs() {
    let state = State::new();
    let nothing = state.restore(&["-o", "json"]).ends_with(0).json();
    assert_eq!(
        nothing,
        serde_json::json!({"dry_run": false, "kept": [], "unreadable": [], "runs": []})
    );
    let knob = state.0.path().join("knob");
    std::fs::write(&knob, "2\n").unwrap();
    state.journal("dead", &this_boot(), &[changed_knob(&knob, "1", "2")]);
    let csv = state.restore(&["--dry-run", "-o", "csv"]).ends_with(0);
    assert_eq!(csv.stdout, "run,affinities,settings,changed_since,failed\ndead,0,1,0,0\n", "{csv}");
    let json = state.restore(&["-o", "json"]).ends_with(0).json();
    let run = serde_json::json!({
        "run": "dead", "about": "a test", "affinities": 0, "settings": 1, "widened": 0,
        "changed_since": 0, "failed": [],
    });
    let all = serde_json::json!({"dry_run": false, "kept": [], "unreadable": [], "runs": [run]});
    assert_eq!(json, all);
}

/// There may be something to put back: neither says that there is nothing.
#[test]
fn a_journal_that_cannot_be_read_is_told() {
    let state = State::new();
    let path = state.journal("odd", &this_boot(), &[]);
    let text = std::fs::read_to_string(&path).unwrap();
    for text in ["garbage\n".to_string(), text.replace("\"v\":1", "\"v\":9")] {
        std::fs::write(&path, text).unwrap();
        let transcript = state.restore(&[]).ends_with(1);
        assert!(transcript.stdout.contains("odd.journal: not put back"), "{transcript}");
        assert!(!transcript.stdout.contains("nothing to put back"), "{transcript}");
        let json = state.restore(&["-o", "json"]).ends_with(1).json();
        assert_eq!(json["unreadable"][0]["journal"], path.display().to_string(), "{json}");
        let doctor = run(numaherd(&["doctor"]).env("NUMAHERD_STATE", state.0.path())).ends_with(0);
        assert!(doctor.stdout.contains("limited  undo: cannot be read"), "{doctor}");
        assert!(!doctor.stdout.contains("nothing is left"), "{doctor}");
        assert!(exists(&path));
    }
}

#[test]
fn a_session_that_lives_is_left_alone() {
    let (state, sleeper) = (State::new(), Sleeper::start());
    let Some((all, one)) = masks(&sleeper) else { return };
    sleeper.allow(&one);
    let path = state.journal_of(&sleeper, "live", &[sleeper.changed(&all, &one)]);
    let transcript = state.restore(&[]).ends_with(0);
    assert_eq!((sleeper.cpus(), exists(&path)), (one, true), "{transcript}");
}

/// Who balances with `nohup` and logs out loses `$XDG_RUNTIME_DIR`, with the journal in it; it may have become long and have
/// been written anew before.
#[test]
fn a_supervisor_whose_journals_folder_is_gone_puts_everything_back() {
    for anew in [false, true] {
        let state = State::new();
        let outside = tempfile::tempdir().unwrap();
        let knob = outside.path().join("knob");
        std::fs::write(&knob, "2\n").unwrap();
        let changed = changed_knob(&knob, "1", "2");
        let first = if anew { vec![] } else { vec![changed.clone()] };
        let journal = state.journal("killed", &this_boot(), &first);
        let me = std::process::id().to_string();
        let mut command =
            numaherd(&["supervise", "--journal", journal.to_str().unwrap(), "--pid", &me]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut supervisor = command.spawn().unwrap();
        let mut ready = [0; 6];
        supervisor.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        if anew {
            std::fs::remove_file(&journal).unwrap();
            state.journal("killed", &this_boot(), &[changed]);
            // Its session lives.
            supervisor.stdin.as_mut().unwrap().write_all(b"b").unwrap();
            while holds_what_is_gone(supervisor.id()) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        std::fs::remove_dir_all(state.0.path()).unwrap();
        // It is killed.
        drop(supervisor.stdin.take());
        let ended = Transcript::of("supervise".into(), &supervisor.wait_with_output().unwrap());
        let ended = ended.ends_with(0).tells(&["run killed was killed", "1 setting"]);
        assert_eq!(std::fs::read_to_string(&knob).unwrap().trim(), "1", "{ended}");
    }
}

/// Whether the process has a file open that has lost its name.
fn holds_what_is_gone(pid: u32) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| link.to_string_lossy().ends_with(".journal (deleted)"))
}
