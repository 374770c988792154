//! Made-up and live tasks.

use super::*;
use crate::testing::{FIELDS, put};
use proptest::prelude::*;

#[test]
fn a_stat_is_read_whatever_the_name() {
    for comm in ["numa02", "a b", ") R 1 (", "((", "", "x) S 9 9"] {
        let stat = parse_stat(&format!("1234 ({comm}) {FIELDS}\n")).unwrap();
        let expected = TaskStat {
            id: TaskId { tid: 1234, start: 424_242 },
            comm: comm.to_string(),
            state: 'R',
            ppid: 7,
            cpu_ticks: 42,
            kernel_ticks: 12,
            last_cpu: CpuId(5),
            is_kernels: false,
            is_real_time: false,
            is_by_deadline: false,
            program: None,
            is_exiting: false,
        };
        assert_eq!(stat, expected);
        assert_eq!(stat.task_state(), TaskState::Runnable);
    }
}

#[test]
fn what_a_name_would_do_to_a_terminal_is_taken_out() {
    let stat = parse_stat(&format!("1234 (a\x1b[31m|b\nc) {FIELDS}\n")).unwrap();
    assert_eq!(stat.comm, "a\u{fffd}[31m|b\u{fffd}c");
}

#[test]
fn kernel_threads_and_real_time_tasks_are_told_apart() {
    let of = |flags: &str, policy: &str| {
        let fields =
            FIELDS.replace("4194304", flags).replace("17 5 0 0", &format!("17 5 0 {policy}"));
        let stat = parse_stat(&format!("1 (x) {fields}")).unwrap();
        (stat.is_kernels, stat.is_real_time)
    };
    assert_eq!(of("4194304", "0"), (false, false));
    assert_eq!(of("69238880", "0"), (true, false)); // a kworker: 0x4208060
    for (policy, real_time) in [("1", true), ("2", true), ("3", false), ("5", false), ("6", true)] {
        assert_eq!(of("4194304", policy), (false, real_time), "{policy}");
    }
}

/// Exits are counted when this flag is set; a look that follows must not find who was counted.
#[test]
fn who_is_on_its_way_out_is_dead_whatever_its_state_says() {
    let of = |flags: &str, state: &str| {
        let fields = FIELDS.replace("4194304", flags).replacen('R', state, 1);
        parse_stat(&format!("1 (x) {fields}")).unwrap().is_dead()
    };
    assert!(!of("4194304", "R") && of("4194308", "R") && of("4194308", "D"));
    assert!(of("4194304", "Z") && of("4194304", "X") && !of("4194304", "T"));
}

#[test]
fn what_is_no_stat_is_an_error_naming_the_file() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "proc/9/task/9/stat", "9 (x) R 1\n");
    let error = TaskReader::new(root.path()).stat(9, 9).unwrap_err().to_string();
    assert!(error.ends_with("line 1: expected the fields of a task's stat, found '9 (x) R 1'"));
}

/// A kernel with the file whose counting is off, and nobody would ever be busy.
#[test]
fn zeroes_for_all_times_are_no_times() {
    let root = tempfile::tempdir().unwrap();
    let mut tasks = TaskReader::new(root.path());
    let mut told = |text: &str| {
        put(root.path(), "proc/9/task/9/schedstat", text);
        let kept = kept::Kept::default().schedstat(&tasks, (9, 9)).unwrap();
        let read = tasks.schedstat(9, 9).unwrap();
        assert_eq!(kept, read);
        read.map(|stat| (stat.run_time.0, stat.wait_time.0, stat.slices))
    };
    assert_eq!([told("0 0 0\n"), told("0 7 0\n")], [None, Some((0, 7, 0))]);
}

#[test]
fn what_is_gone_is_none() {
    let root = tempfile::tempdir().unwrap();
    let mut tasks = TaskReader::new(root.path());
    assert_eq!(tasks.stat(9, 9).unwrap(), None);
    assert_eq!(tasks.threads(9).unwrap(), None);
    assert_eq!(tasks.schedstat(9, 9).unwrap(), None);
    assert_eq!(tasks.cpus_allowed(9, 9).unwrap(), None);
    assert_eq!(tasks.has_mark(9, "A=1").unwrap(), None);
    assert_eq!(tasks.tree(9).unwrap(), [9]);
}

#[test]
fn a_tree_is_found_by_children_and_by_parents_alike() {
    // 10 has the children 11 (by its thread 12) and 20; 20 has 21; 30 is someone else's
    let by_children = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("proc/10/task/10/children", "20 "),
        ("proc/10/task/12/children", "11 "),
        ("proc/11/task/11/children", ""),
        ("proc/20/task/20/children", "21 "),
        ("proc/21/task/21/children", ""),
        ("proc/30/task/30/children", ""),
    ] {
        put(by_children.path(), path, text);
    }
    let by_parents = tempfile::tempdir().unwrap();
    for (pid, ppid) in [(10, 1), (11, 10), (20, 10), (21, 20), (30, 1)] {
        let fields = FIELDS.replacen(" 7 ", &format!(" {ppid} "), 1);
        put(
            by_parents.path(),
            &format!("proc/{pid}/task/{pid}/stat"),
            &format!("{pid} (x) {fields}"),
        );
    }
    for root in [by_children, by_parents] {
        let mut tasks = TaskReader::new(root.path());
        assert_eq!(tasks.tree(10).unwrap(), [10, 11, 20, 21]);
        assert_eq!(tasks.tree(30).unwrap(), [30]);
    }
}

#[test]
fn a_mark_is_a_whole_variable() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "proc/5/environ", "HOME=/\0MARK=12\0");
    let mut tasks = TaskReader::new(root.path());
    for (mark, found) in [("MARK=12", true), ("MARK=1", false), ("ARK=12", false)] {
        assert_eq!(tasks.has_mark(5, mark).unwrap(), Some(found), "{mark}");
    }
}

#[test]
fn this_process_is_read_from_the_live_machine() {
    let mut tasks = TaskReader::new("/".as_ref());
    let me = std::process::id();
    let stat = tasks.stat(me, me).unwrap().unwrap();
    assert_eq!((stat.id.tid, stat.ppid), (me, std::os::unix::process::parent_id()));
    assert!(stat.id.start > 0 && !stat.is_dead());
    assert!(tasks.threads(me).unwrap().unwrap().contains(&me));
    assert_eq!(tasks.tgid(me).unwrap(), Some(me));
    assert!(!tasks.cpus_allowed(me, me).unwrap().unwrap().is_empty());
    assert_eq!(tasks.boot_id().unwrap().len(), 36);
    assert!(tasks.processes().unwrap().contains(&me));
    let mut child = std::process::Command::new("sleep")
        .arg("100")
        .env("NUMAHERD_TEST_MARK", "7")
        .spawn()
        .unwrap();
    let tree = tasks.tree(me).unwrap();
    // until exec is done the child still shows our own environment
    let marked = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        tasks.has_mark(child.id(), "NUMAHERD_TEST_MARK=7").unwrap() == Some(true)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(tree.contains(&child.id()), "{tree:?} lacks {}", child.id());
    assert!(marked);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[0-9 ()RS-]{0,80}") {
        let _ = parse_stat(&text);
    }
}

#[test]
fn the_nodes_that_memory_may_be_on_are_known_in_every_group_and_container() {
    let root = tempfile::tempdir().unwrap();
    // Of a group that is not in sight from here.
    put(root.path(), "proc/9/cgroup", "0::/../../elsewhere\n");
    put(root.path(), "proc/9/status", "Name:\tx\nMems_allowed:\t5\nMems_allowed_list:\t0,2\n");
    put(root.path(), "proc/10/status", "Name:\tbuilt without cpusets\n");
    put(root.path(), "proc/11/status", "Mems_allowed_list:\tall\n");
    let mut tasks = TaskReader::new(root.path());
    let mut told = |tgid| tasks.mems_allowed(tgid).map(|nodes| nodes.map(|set| set.to_string()));
    assert_eq!(told(9).unwrap().as_deref(), Some("0,2"));
    assert_eq!((told(10).unwrap(), told(12).unwrap()), (None, None));
    assert!(told(11).unwrap_err().to_string().contains("a list of nodes"));
    let own = TaskReader::new("/".as_ref()).mems_allowed(std::process::id()).unwrap();
    assert!(own.is_none_or(|nodes| !nodes.is_empty()));
}

#[test]
fn by_whose_rights_a_process_acts_is_told() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "proc/7/status", "Name:\tx\nUid:\t1000\t33\t0\t33\nGid:\t5\t6\t7\t8\n");
    put(root.path(), "proc/8/status", "Name:\tx\n");
    let mut reader = TaskReader::new(root.path());
    assert_eq!(reader.effective_user(7).unwrap(), Some(33));
    assert!(reader.effective_user(8).is_err());
    assert_eq!(reader.effective_user(9).unwrap(), None);
    let own = TaskReader::new("/".as_ref()).effective_user(std::process::id()).unwrap();
    assert_eq!(own, Some(crate::sys::identity::effective_user()));
}
