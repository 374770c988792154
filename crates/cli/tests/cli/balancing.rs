//! `balance` on this host, to which a machine of two nodes is shown: its first CPU, and all others. No page can be moved
//! there, so only what goes round that is looked at.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use numaherd_model::CpuSet;
use serde_json::Value;
use tempfile::TempDir;

use crate::transcript::{Transcript, program, run};
use crate::{is_root, skip};

const NODES: &str = "/sys/devices/system/node";

/// Two nodes in a folder, and a folder for journals.
struct Host(TempDir);

impl Host {
    /// None where they cannot be shown in place of this host's own: that takes root, and two CPUs.
    fn of_two_nodes() -> Option<Host> {
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let cpus: CpuSet = cpus.trim().parse().unwrap();
        let first = cpus.first().unwrap();
        let others: CpuSet = cpus.iter().filter(|&cpu| cpu != first).collect();
        let memory = std::fs::read_to_string(format!("{NODES}/node0/meminfo"));
        let mount = ["-m", "mount", "--bind", NODES, NODES];
        let mounts = Command::new("unshare").args(mount).stderr(Stdio::null()).status();
        let (Ok(memory), false, true) =
            (memory, others.is_empty(), is_root() && mounts.is_ok_and(|status| status.success()))
        else {
            skip("needs root, two CPUs, a kernel with nodes, and leave to mount");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        for (node, cpus) in [first.to_string(), others.to_string()].iter().enumerate() {
            let folder = dir.path().join(format!("nodes/node{node}"));
            std::fs::create_dir_all(&folder).unwrap();
            let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
            put("cpulist", cpus);
            put("distance", ["10 20\n", "20 10\n"][node]);
            put("meminfo", &memory.replace("Node 0 ", &format!("Node {node} ")));
        }
        for name in ["online", "possible", "has_cpu", "has_memory", "has_normal_memory"] {
            std::fs::write(dir.path().join("nodes").join(name), "0-1\n").unwrap();
        }
        Some(Host(dir))
    }

    fn balance(&self, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        let script = r#"mount --bind "$0" "$1" && shift && exec "$@""#;
        command.args(["-m", "sh", "-c", script]).arg(self.0.path().join("nodes"));
        command.args([NODES, program(), "balance", "--no-bpf"]).args(words);
        command.env("NUMAHERD_STATE", self.state()).env("XDG_CACHE_HOME", self.0.path());
        command
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn left_nothing(&self) {
        assert_eq!(std::fs::read_dir(self.state()).unwrap().count(), 0);
    }
}

/// A process that does nothing; it ends with the test.
struct Idle(Child);

impl Idle {
    fn start() -> Idle {
        Idle(Command::new("sleep").arg("300").spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What it took to begin is CPU time too.
#[test]
fn a_run_that_ends_before_its_first_turn_tells_what_it_used() {
    let Some(host) = Host::of_two_nodes() else { return };
    let summary = host.0.path().join("summary");
    let words = ["--summary", summary.to_str().unwrap(), "--", "true"];
    run(&mut host.balance(&words)).ends_with(0).tells(&["placed 0 tasks"]);
    let told: Value = serde_json::from_slice(&std::fs::read(&summary).unwrap()).unwrap();
    assert!(told["cpu_ns"].as_u64() > Some(0), "{told}");
    host.left_nothing();
}

/// Of two that begin in one instant the second sees the first.
#[test]
fn a_process_is_looked_after_by_one_run() {
    let Some(host) = Host::of_two_nodes() else { return };
    let idle = Idle::start();
    let words = ["-p", &idle.pid()];
    let begin = |_| {
        let mut command = host.balance(&words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        (format!("{command:?}"), child)
    };
    let mut begun: Vec<(String, Child)> = (0..4).map(begin).collect();
    // All but one end by themselves.
    while begun.len() > 1 {
        let ended = begun.iter_mut().position(|(_, child)| child.try_wait().unwrap().is_some());
        match ended {
            Some(ended) => {
                let (command, child) = begun.swap_remove(ended);
                Transcript::of(command, &child.wait_with_output().unwrap())
                    .refuses(1, &["looked after by run", "already: end that first"]);
            }
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    }
    let (command, child) = begun.remove(0);
    let pid = child.id().to_string();
    run(Command::new("kill").args(["-TERM", &pid])).ends_with(0);
    let ended = Transcript::of(command, &child.wait_with_output().unwrap());
    ended.ends_with(143).tells(&["evidence: ", "put back 0 affinities"]);
    host.left_nothing();
}

/// With nobody placed nothing is to be put back one day.
#[test]
fn a_run_that_places_nobody_keeps_nothing() {
    let Some(host) = Host::of_two_nodes() else { return };
    let told = run(&mut host.balance(&["--keep", "--", "true"])).ends_with(0);
    let told = told.tells(&["put back 0 affinities and 0 settings"]);
    assert!(!told.stderr.contains("are kept"), "{told}");
    host.left_nothing();
}

/// As any other file that cannot be written.
#[test]
fn a_log_that_cannot_be_written_is_named() {
    let Some(host) = Host::of_two_nodes() else { return };
    let words = ["--log", "/no/such/log", "--", "true"];
    run(&mut host.balance(&words)).refuses(1, &["cannot write the log /no/such/log"]);
    host.left_nothing();
}
