//! Memory policies from the command line: `run`, `policy`, `memtoy`, `bench pft`, and the names
//! of numactl's tools beside the originals, where those are installed.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::skip;
use crate::transcript::{Transcript, feed, numaherd, program, run};

/// A folder with links to the program under the names of other tools.
fn links() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for tool in ["numactl", "numastat", "migratepages", "memhog", "numad"] {
        symlink(program(), folder.path().join(tool)).unwrap();
    }
    folder
}

fn tool(links: &tempfile::TempDir, name: &str, words: &[&str]) -> Transcript {
    run(Command::new(links.path().join(name)).args(words))
}

/// The same words to the original; None where it is not installed.
fn original(name: &str, words: &[&str]) -> Option<Transcript> {
    let path = format!("/usr/bin/{name}");
    std::path::Path::new(&path).exists().then(|| run(Command::new(path).args(words)))
}

/// Called as numactl, it prints and ends as numactl does.
#[test]
fn under_numactls_name_it_behaves_as_numactl() {
    let links = links();
    for words in [
        &["-s"][..],
        &["-C", "0", "-s"],
        &["-l", "-s"],
        &["-m", "0", "-s"],
        &["-i", "all", "--show", "--nonsense"],
        &["-m", "99", "true"],
        &["-m", "0", "-i", "0", "true"],
        &["--pref=0", "true"],
        &["-m", "0"],
        &["-C", "0", "sh", "-c", "grep Cpus_allowed_list /proc/self/status; exit 7"],
        &["/no/such/command"],
        &["--length=4096", "true"],
    ] {
        let ours = tool(&links, "numactl", words);
        let Some(theirs) = original("numactl", words) else { return skip("numactl is missing") };
        // Before its usage the original prints an empty line, where a program would read results.
        let result = |of: &Transcript| (of.code, of.stdout.trim_start().to_string());
        assert_eq!(result(&ours), result(&theirs), "{ours}\n{theirs}");
    }
}

/// numastat's layouts are the original's: the same lines, figures apart.
#[test]
fn under_numastats_name_the_layout_is_numastats() {
    let links = links();
    let pid = std::process::id().to_string();
    let shape = |transcript: &Transcript| -> Vec<String> {
        let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
        // widths of columns matter, and figures move between two looks
        transcript.stdout.lines().map(|line| line.chars().map(digits).collect()).collect()
    };
    for words in [&[][..], &["-n"], &["-p", &pid]] {
        let ours = tool(&links, "numastat", words).ends_with(0);
        let Some(theirs) = original("numastat", words) else { return skip("numastat is missing") };
        let (ours, theirs) = (shape(&ours), shape(&theirs));
        assert_eq!(ours.len(), theirs.len(), "{ours:#?}\n{theirs:#?}");
        for (our, their) in ours.iter().zip(&theirs) {
            let name = |line: &str| line.split_whitespace().next().map(str::to_string);
            assert_eq!(
                (our.len(), name(our)),
                (their.len(), name(their)),
                "{ours:#?}\n{theirs:#?}"
            );
        }
    }
}

/// The other tools do their work, and refuse with exit code 1.
#[test]
fn the_other_tools_do_their_work() {
    let links = links();
    let hog = tool(&links, "memhog", &["-H", "21m", "membind", "0"]).ends_with(0);
    assert_eq!(hog.stdout, "...\n", "10 MiB a dot: {hog}");
    tool(&links, "memhog", &["1m", "interleave"]).ends_with(1);
    let me = std::process::id().to_string();
    tool(&links, "migratepages", &[&me, "0", "0"]).ends_with(0);
    tool(&links, "migratepages", &["999999999", "0", "0"]).ends_with(1);
    tool(&links, "migratepages", &[&me, "0"]).ends_with(1);
    let advice = tool(&links, "numad", &["-w", "1:1"]).ends_with(0);
    assert!(advice.stdout.trim().parse::<numaherd_model::NodeSet>().is_ok(), "{advice}");
    tool(&links, "numad", &["-i", "15"]).ends_with(1);
}

/// `run` starts the command under the policy and ends with its code; its own errors are one line.
#[test]
fn run_is_numactl_with_errors_of_our_own() {
    let script = "grep -q 'bind:0' /proc/self/numa_maps && exit 5";
    run(&mut numaherd(&["run", "-m", "0", "--", "sh", "-c", script])).ends_with(5);
    run(&mut numaherd(&["run", "-C", "0", "true"])).ends_with(0);
    // As numactl has it: no policy.
    let script = "grep -q ' default ' /proc/self/numa_maps && exit 5";
    run(&mut numaherd(&["run", "--interleave=", "sh", "-c", script])).ends_with(5);
    run(&mut numaherd(&["run", "-m", "!all", "true"])).refuses(2, &["'!all' names no node"]);
    // Of which the kernel makes nothing, under numactl's name either.
    run(&mut numaherd(&["run", "--membind=", "true"])).refuses(2, &["'' names no node"]);
    run(&mut numaherd(&["run", "/no/such/command"])).refuses(127, &["/no/such/command"]);
    run(&mut numaherd(&["run", "-m", "0"])).refuses(2, &["command is missing"]);
    run(&mut numaherd(&["run", "-m", "77", "true"])).refuses(2, &["77", "out of range"]);
    run(&mut numaherd(&["run", "-m", "0", "--home-node=0", "true"]))
        .refuses(2, &["--shm or --file"]);
    run(&mut numaherd(&["run", "--weights", "0=0", "true"])).refuses(2, &["0=3,1=1"]);
    let explained = run(&mut numaherd(&["run", "--explain", "-m", "0"])).ends_with(0);
    assert!(explained.stdout.contains("bind:0") && explained.stdout.contains("node 0   ####"));
    let help = run(&mut numaherd(&["run", "--help"])).ends_with(0);
    assert!(
        help.stdout.contains("numaherd run") && help.stdout.contains("--preferred-many"),
        "{help}"
    );
}

/// A policy on shared memory is set, dumped and verified.
#[test]
fn shared_memory_gets_a_policy() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = folder.path().join("memory");
    let file = format!("--file={}", file.display());
    let words = ["run", "--length=64k", &file, "--membind=0", "--verify", "--dump"];
    let set = run(&mut numaherd(&words)).ends_with(0);
    let dump = "0000000000000000-0000000000010000: bind : 0 \n";
    assert_eq!(set.stdout, dump, "{set}");
    let nodes = run(&mut numaherd(&["run", &file, "--dump-nodes"])).ends_with(0);
    assert_eq!(nodes.stdout, "0000000000000000-0000000000010000: 0\n", "{nodes}");
    run(&mut numaherd(&["run", &file, "--touch", "true"])).ends_with(2);
    run(&mut numaherd(&["run", "--touch", &file])).refuses(2, &["after shared memory"]);
    let absent = format!("--file={}", folder.path().join("none").display());
    run(&mut numaherd(&["run", &absent])).refuses(1, &["--length"]);
}

/// What cannot be so long is told once, and is as it was: what was made goes, what was there keeps its length.
#[test]
fn a_file_that_cannot_be_so_long_is_as_it_was() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("memory");
    let file = format!("--file={}", path.display());
    // Of tmpfs, and more than can be mapped.
    let longest = format!("--length={}", i64::MAX);
    let too_long = || {
        let told = run(&mut numaherd(&["run", &longest, &file, "-m", "0"]));
        let told = told.refuses(1, &["Cannot allocate memory", "memory"]);
        assert_eq!(told.stderr.matches("os error").count(), 1, "{told}");
    };
    too_long();
    assert!(!path.exists());
    std::fs::write(&path, "old").unwrap();
    too_long();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    for length in ["99999999999999g", "18446744073709551615"] {
        let words = ["run", "--offset=4k", "--length", length, &file, "-m", "0"];
        run(&mut numaherd(&words)).refuses(2, &["--length", "more bytes than"]);
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
}

/// What is wrong with a segment is told by whoever was called, in one line, and no key file is left.
#[test]
fn a_segment_that_cannot_be_made_is_told_under_the_name_called() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (key, links) = (path("key"), links());
    let ours = |words: &[&str]| run(&mut numaherd(&[&["run"], words].concat()));
    let told = ours(&["--shm", &key]).refuses(1, &["--length"]);
    assert!(told.stderr.starts_with("numaherd: "), "{told}");
    let beyond = path("no/key");
    let told = ours(&["--length=4k", "--shm", &beyond]).refuses(1, &[&beyond, "No such file"]);
    assert!(told.stderr.starts_with("numaherd: "), "{told}");
    let told = tool(&links, "numactl", &["--shm", &key]).refuses(1, &["--length"]);
    assert!(told.stderr.starts_with("numactl: "), "{told}");
    let longest = format!("--length={}", i64::MAX);
    ours(&[&longest, "--shm", &key]).ends_with(1);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "a key file is left");
}

/// A policy is explained before it is applied, on machines that are not here too.
#[test]
fn a_policy_is_explained() {
    let words = ["policy", "mpol=interleave=relative:0-1", "--machine", "2x4", "--cpuset", "1"];
    let json = run(&mut numaherd(&[&words[..], &["-o", "json"]].concat())).ends_with(0).json();
    assert_eq!(json["kernel"], "interleave=relative:1");
    assert_eq!(json["mount"], "interleave=relative:0-1");
    let refused = ["policy", "-m 0", "--machine", "2x4", "--cpuset", "7"];
    run(&mut numaherd(&refused)).refuses(2, &["--cpuset", "7 is out of range"]);
    let wrong = |more: &[&str], told: &[&str]| {
        run(&mut numaherd(&[&["policy", "--machine", "2x4"], more].concat())).refuses(2, told);
    };
    wrong(&["nonsense"], &["mpol="]);
    wrong(&["-m 9"], &["9 is out of range"]);
    wrong(&["-m 0 ls"], &["'ls' is no option"]);
    wrong(&["-w 0 --weights x"], &["0=3,1=1"]);
    wrong(&["-l", "--on", "7"], &["--on 7"]);
    wrong(&["-l", "--then", "7"], &["--then", "7 is out of range"]);
    let einval =
        run(&mut numaherd(&["policy", "mpol=bind:1", "--machine", "2x4", "--cpuset", "0"]));
    assert!(einval.stdout.contains("EINVAL"), "{einval}");
    let told: Vec<&str> = einval.stderr.lines().collect();
    assert!(einval.code == 1 && told.len() == 1 && told[0].contains("EINVAL"), "{einval}");
}

/// memtoy's sessions can be scripts; a line that fails is named.
#[test]
fn memtoy_runs_a_script() {
    let session = "anon a 16p\nbind a bind:0\ntouch a\nwhere a\nquit\nnot reached\n";
    let told = feed(&mut numaherd(&["memtoy"]), session).ends_with(0);
    assert!(told.stdout.contains("16 pages on node 0"), "{told}");
    assert!(told.stdout.contains("pages 0-15: bind:0"), "{told}");
    let wrong = feed(&mut numaherd(&["memtoy", "--strict"]), "show\ntouch b\n").ends_with(1);
    assert_eq!(wrong.stderr, "numaherd: memtoy line 2: there is no segment b\n");
}

/// pft counts a fault for each page.
#[test]
fn pft_counts_a_fault_for_each_page() {
    for words in [&[][..], &["-S"], &["-p", "-n", "2"]] {
        let words = [&["bench", "pft", "-m", "4m", "-o", "json"][..], words].concat();
        let json = run(&mut numaherd(&words)).ends_with(0).json();
        assert_eq!(json["pages"], 1024);
        let faults = json["minor_faults"].as_u64().unwrap();
        assert!((1024..1100).contains(&faults), "{json}");
    }
    let table = run(&mut numaherd(&["bench", "pft", "-m", "1m", "--tables", "2"])).ends_with(0);
    assert_eq!(table.stdout.matches("flt/cpu/s").count(), 4, "{table}");
    let columns = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let rows = table.stdout.lines().map(columns).filter(|row| row.len() == 4 && row[0] != "N");
    let counted: Vec<f64> = rows.map(|row| row[3].parse().unwrap()).collect();
    // four tables of two rows; 256 pages, and at most a few of the workers' own
    assert!(counted.len() == 8 && counted.iter().all(|n| (1.0..1.05).contains(n)), "{table}");
    for (words, code, problem) in [
        (["-c", "65"], 1, "1 to 64"),
        (["-m", "0"], 1, "needs a page"),
        (["-m", "x"], 2, "no size such as"),
        (["-t", "0"], 2, "1 to 4096"),
        (["--svg", "x"], 2, "--tables"),
    ] {
        let words = [&["bench", "pft"][..], &words].concat();
        run(&mut numaherd(&words)).refuses(code, &[problem]);
    }
}

/// Moving memory takes two nodes, which it says before it does anything.
#[test]
fn migration_tells_what_it_cannot_measure() {
    fn migration(more: &[&str]) -> Command {
        numaherd(&[&["bench", "migration"][..], more].concat())
    }
    for (more, code, problem) in [
        (&["-t", "0"][..], 2, "1 to 4096"),
        (&["-m", "x"], 2, "no size such as"),
        (&["-m", "0"], 2, "a page at least"),
        (&["--pages", "gigantic"], 2, "huge"),
        (&["--callgraph", "-o", "csv"], 2, "--callgraph is a tree"),
    ] {
        run(&mut migration(more)).refuses(code, &[problem]);
    }
    let nodes = std::fs::read_to_string("/sys/devices/system/node/has_memory");
    if nodes.is_ok_and(|nodes| nodes.trim() != "0") {
        return skip("several nodes");
    }
    run(&mut migration(&[])).refuses(1, &["one node", "lab run"]);
}

/// As units of systemd are started; a daemon that lives with it would die of a closed connection.
#[test]
fn a_command_begins_with_sigpipe_ignored_where_we_did() {
    let ignored = |trap: &str, words: &str| {
        let words = format!("{trap} exec {} {words} grep SigIgn /proc/self/status", program());
        let told = run(Command::new("sh").args(["-c", &words])).ends_with(0);
        let mask = told.stdout.trim().rsplit('\t').next().unwrap().to_string();
        u64::from_str_radix(&mask, 16).unwrap() & 1 << 12 != 0
    };
    for words in ["run -m 0", "balance --"] {
        assert_eq!([ignored("trap '' PIPE;", words), ignored("", words)], [true, false], "{words}");
    }
    run(&mut numaherd(&["balance", "--", "/no/such/command"])).ends_with(127);
    run(&mut numaherd(&["balance", "--", "/"])).ends_with(126);
}

#[test]
fn a_length_that_is_none_is_refused() {
    for length in ["1T", "4x", "junk"] {
        let words = ["run", "-L", length, "-f", "/nowhere/at/all", "-m", "0"];
        run(&mut numaherd(&words)).refuses(2, &[length, "no size"]);
    }
}

/// A reader that has seen enough ends the tools as it ends those of C: by SIGPIPE, without a word.
#[test]
fn a_closed_pipe_is_no_panic() {
    use std::os::unix::process::ExitStatusExt;
    let links = links();
    let numactl = links.path().join("numactl");
    let numastat = links.path().join("numastat");
    for (program, words) in [
        (numactl.as_path(), &["-H"][..]),
        (numastat.as_path(), &["-m"]),
        (program().as_ref(), &["run", "--show"]),
        (program().as_ref(), &["policy", "-m 0"]),
        (program().as_ref(), &["bench", "pft", "-m", "1m"]),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(program);
        command.args(words).stdout(writer).stderr(std::process::Stdio::piped());
        let ended = command.spawn().unwrap().wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        // 13 is SIGPIPE
        assert_eq!((ended.status.signal(), told.as_ref()), (Some(13), ""), "{words:?}");
    }
}
