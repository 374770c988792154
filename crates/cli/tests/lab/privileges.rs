//! `balance` with exactly the capabilities that the service grants it, which are those that `doctor` names.

use serde_json::Value;

use crate::Bench;
use crate::transcript::{program, run};

/// What is installed.
const UNIT: &str = include_str!("../../../../packaging/numaherd.service");

/// A line of the unit, without its name.
fn unit(name: &str) -> &'static str {
    let value = |line: &'static str| line.strip_prefix(name)?.strip_prefix('=');
    UNIT.lines().find_map(value).unwrap_or_else(|| panic!("no {name} in {UNIT}"))
}

/// A command of the unit's, by a copy of the program that everybody may read.
fn command(name: &str) -> String {
    unit(name).replace("/usr/bin/numaherd", "/run/numaherd-copy")
}

/// Who looks after another user's program, as the script has written it down.
struct Run<'a> {
    bench: &'a Bench,
    who: &'a str,
}

impl Run<'_> {
    fn text(&self, name: &str) -> String {
        self.bench.shared(&format!("{}.{name}", self.who))
    }

    fn json(&self, name: &str) -> Value {
        let text = self.text(name);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{} {name}: {e}: {text}", self.who))
    }

    /// It has the unit's capabilities and can get no others, and so has its supervisor.
    fn has_no_more(&self) {
        let (granted, mask) = (granted(), self.text("capabilities"));
        let lines: Vec<(&str, u64)> = mask.lines().filter_map(set).collect();
        let of = |name| lines.iter().filter(move |(of, _)| *of == name).map(|(_, bits)| *bits);
        for name in ["CapPrm", "CapEff", "CapBnd"] {
            let sets: Vec<u64> = of(name).collect();
            assert_eq!(sets.len(), 2, "{}: balance and its supervisor: {mask}", self.who);
            let count = sets.iter().map(|bits| bits.count_ones() as usize);
            assert!(count.clone().all(|count| count == granted.len()), "{}: {mask}", self.who);
        }
    }

    /// What doctor says that it has is what it was granted, and what it has not is for what the unit does not do.
    fn doctor_agrees(&self) {
        let doctor = self.json("doctor");
        let rows = doctor["privileges"].as_array().unwrap();
        let (held, lacks): (Vec<&Value>, Vec<&Value>) =
            rows.iter().partition(|row| row["held"] == true);
        let mut held: Vec<&str> =
            held.iter().map(|row| row["capability"].as_str().unwrap()).collect();
        held.sort_unstable();
        assert_eq!(held, granted(), "{}: {doctor}", self.who);
        let tunes = |row: &&Value| row["needed_for"].as_str().unwrap().starts_with("--tune-kernel");
        assert!(lacks.iter().all(tunes), "{}: {doctor}", self.who);
        let findings = doctor["findings"].as_array().unwrap();
        for topic in ["hinting faults", "other users' processes", "undo"] {
            let found = findings.iter().find(|finding| finding["topic"] == topic);
            assert_eq!(found.unwrap()["state"], "ok", "{} {topic}: {doctor}", self.who);
        }
    }

    /// It heard faults, placed the tasks and had them beside their memory.
    fn brought_together(&self) {
        let said = self.text("said");
        let log = self.text("log");
        let lines: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let faults: u64 = lines.iter().filter_map(|line| line["faults"].as_u64()).sum();
        assert!(faults > 0, "{}: {said}{log}", self.who);
        // Whether pages were left for it to move is up to the kernel; nothing that it tried was refused for want of rights.
        assert!(!log.contains("not permitted"), "{}: {log}", self.who);
        let told = self.json("told");
        let placed = |action: &&Value| {
            let did = action["action"].as_str().unwrap();
            did.starts_with("place task ") && action["outcome"] == "done"
        };
        let placed = told["actions"].as_array().unwrap().iter().filter(placed).count();
        assert!(placed >= 4, "{}: {placed} of {told}", self.who);
        let held = self.text("held");
        let on = |cpus: &str| held.lines().filter(|line| *line == cpus).count();
        assert_eq!([on("0-1"), on("2-3")], [2, 2], "{}: {held}\n{said}", self.who);
        let after = self.json("after");
        let share = after["processes"][0]["local_share"].as_f64().unwrap();
        assert!(share >= 0.9, "{}: {after}\n{said}", self.who);
    }

    /// Its end put everything back, and the unit's `ExecStopPost` found nothing left.
    fn put_back(&self) {
        let (freed, said) = (self.text("freed"), self.text("said"));
        assert!(freed.lines().count() >= 5, "{}: {freed}", self.who);
        assert!(freed.lines().all(|line| line == "0-3"), "{}: {freed}\n{said}", self.who);
        assert_eq!(self.text("code").trim(), "130", "{}: {said}", self.who);
        assert_eq!(self.text("restored"), "nothing to put back\n", "{}: {said}", self.who);
    }
}

/// A line of `/proc/PID/status` that is a set of capabilities.
fn set(line: &str) -> Option<(&str, u64)> {
    let (name, bits) = line.split_once(':')?;
    Some((name, u64::from_str_radix(bits.trim(), 16).ok()?))
}

/// The unit's capabilities, in order.
fn granted() -> Vec<&'static str> {
    let mut granted: Vec<&str> = unit("CapabilityBoundingSet").split_ascii_whitespace().collect();
    granted.sort_unstable();
    granted
}

/// A program of another user's, with a task for every CPU and all its memory on one node, is balanced by user root
/// with the unit's capabilities, and by a user who has nothing but those.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn the_units_capabilities_are_enough_and_those_that_doctor_names() {
    let bench = Bench::new();
    assert_eq!(unit("NoNewPrivileges"), "yes");
    let names = granted().into_iter().map(|name| name.trim_start_matches("CAP_").to_lowercase());
    let list = names.fold("-all".to_string(), |list, name| format!("{list},+{name}"));
    let environment: Vec<&str> =
        UNIT.lines().filter_map(|line| line.strip_prefix("Environment=")).collect();
    let script = format!(
        "cp {program} /run/numaherd-copy; mkdir -p -m 700 /run/numaherd /run/cache /run/theirs
         chown 65533:65533 /run/theirs; shared=$PWD; cd /
         unit='setpriv --no-new-privs --bounding-set {list} --inh-caps -all env {environment}'
         user='setpriv --reuid 65533 --regid 65533 --clear-groups --no-new-privs --bounding-set {list}
             --inh-caps {list} --ambient-caps {list} env HOME=/run/theirs TMPDIR=/run/theirs'
         affinities() {{ grep -h Cpus_allowed_list /proc/$load/task/*/status | cut -f 2; }}
         look_after() {{
             out=$shared/$1; cache=$2; shift 2
             $* /run/numaherd-copy doctor -o json > $out.doctor
             setpriv --reuid 65534 --regid 65534 --clear-groups /run/numaherd-copy \
                 bench numa02 --threads 4 --size 16M --seconds 1000 --start one-node > /dev/null & load=$!
             while [ $(ls /proc/$load/task | wc -l) -lt 5 ]; do sleep 0.2; done
             $* {start} 2> $out.said & balance=$!
             for half in $(seq 60); do
                 grep -q '\"converged\":true' $cache/numaherd/runs/*.jsonl && break; sleep 0.5
             done
             for pid in $balance $(cat /proc/$balance/task/$balance/children); do
                 cat /proc/$pid/status; done > $out.capabilities
             affinities > $out.held
             # All may be together before the kernel has counted a fault of each thread, and it forgets those of before
             # with each scan.
             for half in $(seq 60); do
                 numaherd status -p $load -o json > $out.after
                 grep -qE '\"local_share\": *(0\\.9|1)' $out.after && break; sleep 0.5
             done
             kill -INT $balance; wait $balance; echo $? > $out.code; affinities > $out.freed
             $* {stop} > $out.restored; $* /run/numaherd-copy explain last -o json > $out.told
             cat $cache/numaherd/runs/*.jsonl > $out.log; kill $load; wait $load
         }}
         PATH=/run/bin:$PATH; mkdir /run/bin; ln -s /run/numaherd-copy /run/bin/numaherd
         look_after unit /run/cache $unit; look_after user /run/theirs/.cache $user; true",
        program = program(),
        // Where no older run's log lies.
        environment = environment.join(" ").replace("/var/cache", "/run/cache"),
        start = command("ExecStart"),
        stop = command("ExecStopPost"),
    );
    // Few CPUs, that a small host carries them: what is tested here asks for no more.
    let machine = ["--machine", "node:2 pu:2", "--no-distance", "--dilation", "2"];
    let words = [&["lab", "run"][..], &machine, &["--timeout", crate::HANGS]].concat();
    let mut command = bench.command(&words, &["sh", "-c", &script]);
    run(command.env_remove("NUMAHERD_CACHE").env_remove("XDG_CACHE_HOME")).ends_with(0);
    for who in ["unit", "user"] {
        let run = Run { bench: &bench, who };
        run.doctor_agrees();
        run.has_no_more();
        run.brought_together();
        run.put_back();
    }
    bench.left_nothing();
}
