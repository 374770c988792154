//! `balance` on a live kernel, where `compare` does not look.

use serde_json::Value;

use crate::Bench;
use crate::transcript::{program, run};

/// Without hinting faults and without BPF: two processes whose memory is all on one node are each
/// brought together with it, on a node of their own.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn without_bpf_processes_and_their_memory_are_brought_together() {
    let bench = Bench::new();
    let script = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing
         {0} balance --no-bpf --log log -- \
             {0} bench numa01 --start one-node --size 16M --seconds 8 > /dev/null",
        program()
    );
    let words = ["lab", "run", "--no-distance", "--timeout", crate::HANGS];
    run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
    let log = bench.shared("log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let strongest = lines.iter().filter_map(|line| line["strength_permille"].as_u64()).max();
    assert!(strongest >= Some(900), "{log}");
    // Half of 2 x 16 MiB was on the wrong node for good; whether in small pages or huge ones.
    let moved = |line: &Value| line["outcome"]["moved"].as_u64();
    assert!(lines.iter().filter_map(moved).sum::<u64>() >= 3000, "{log}");
    let pages_moved = lines.iter().any(|line| line["action"]["do"] == "move-pages");
    assert!(pages_moved, "{log}");
    bench.left_nothing();
}

/// The kernel's balancing is off, as databases want it, and stays off: sampled accesses tell which thread uses which part
/// of memory that is all on one node, and it is brought to them.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn where_the_kernel_does_not_balance_accesses_tell_who_uses_what() {
    let bench = Bench::new();
    let script = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing; grep numa_hint_faults /proc/vmstat > before
         {0} balance --log log -- \
             {0} bench numa02 --start one-node --size 32M --seconds 8 2>&1 > /dev/null | tee told
         cat /proc/sys/kernel/numa_balancing > mode; grep numa_hint_faults /proc/vmstat > faults",
        program()
    );
    let words = ["lab", "run", "--no-distance", "--timeout", crate::HANGS];
    run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
    let log = bench.shared("log");
    assert_eq!(bench.shared("mode").trim(), "0");
    assert_eq!(bench.shared("faults"), bench.shared("before"), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let states = lines.iter().filter(|line| line["event"] == "state");
    assert!(states.clone().all(|line| line["faults"] == 0), "{log}");
    let of = |what: &str| states.clone().filter_map(|line| line[what].as_u64()).max();
    assert!(of("samples") > Some(0) && of("strength_permille") >= Some(900), "{log}");
    // Half of 32 MiB is used on the other node; a few pieces are of the threads on either side of where that ends.
    let moved = lines.iter().filter_map(|line| line["outcome"]["moved"].as_u64()).sum::<u64>();
    assert!(moved >= 3000, "{moved} {log}");
    bench.left_nothing();
}

/// Huge pages of the reserve take no hinting faults: their accesses are sampled, and threads come to their
/// memory or it to them. Also by who gives up what it need not have, where the kernel asks for more than usual.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn who_uses_huge_pages_of_the_reserve_is_found_by_sampling() {
    let bench = Bench::new();
    let script = format!(
        "{} cell --placement herd --reserve 8 --log log -- \
             hugetlb --size 16M --seconds 20 > result; \
         for reserve in /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages; do \
             echo 8 > $reserve; done; \
         {} balance -- {} bench hugetlb --size 16M --seconds 10 2> told",
        program(),
        program(),
        program()
    );
    let words = ["lab", "run", "--no-distance", "--timeout", crate::HANGS];
    let lab = run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
    lab.tells(&["its accesses are sampled"]);
    let result: Value = serde_json::from_str(&bench.shared("result")).unwrap();
    // None of them the kernel's: it arms no such memory.
    assert!(result["balance"]["tasks_placed"].as_u64() >= Some(8), "{result}");
    let log = bench.shared("log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // With all its threads: once those have ended, a look may find the first one only, of which nothing is known.
    let whole = lines.iter().rev().find(|line| line["tasks"].as_u64() >= Some(9));
    let last = whole.and_then(|line| line["strength_permille"].as_u64());
    assert!(last >= Some(900), "{log}");
    let told = bench.shared("told");
    assert!(told.contains("its accesses are sampled"), "{told}");
    bench.left_nothing();
}

/// A service whose group may have memory on node 0 only, and CPUs everywhere: none of it goes to node 1, though
/// half of its tasks run there. It restarts; and a SIGTERM ends balance with 143.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn memory_stays_within_its_cpuset_and_a_group_that_restarts_is_waited_for() {
    let bench = Bench::new();
    let script = format!(
        "cd /sys/fs/cgroup; echo +cpuset > cgroup.subtree_control; mkdir service
         echo 0 > service/cpuset.mems; cd $OLDPWD
         start() {{
             sh -c 'echo $$ > /sys/fs/cgroup/service/cgroup.procs
                 exec {0} bench numa01 --start one-node --size 16M --seconds 100' > /dev/null & load=$!
             sleep 3
         }}
         within() {{ for second in $(seq 60); do grep -q \"$1\" told && break; sleep 1; done; }}
         all() {{
             for second in $(seq 60); do
                 tail -n +$1 log | grep -qE '\"tasks\":([89]|[1-9][0-9])' && break; sleep 1
             done
         }}
         start; {0} balance --no-bpf --log log --cgroup service 2> told & balance=$!
         all 1; sleep 5; kill $load; within 'waiting for others'
         begun=$(wc -l < log); start; all $((begun + 1))
         echo $begun > begun; kill $balance; wait $balance; echo $? > code
         kill $load; wait; true",
        program()
    );
    let words = ["lab", "run", "--no-distance", "--timeout", crate::HANGS];
    run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
    let log = bench.shared("log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let goes = |line: &&Value| {
        line["action"]["do"] == "move-pages" && line["action"]["to"].as_u64() == Some(1)
    };
    let away: Vec<&Value> = lines.iter().filter(goes).collect();
    assert!(away.is_empty(), "{away:?}");
    let (told, begun) = (bench.shared("told"), bench.shared("begun"));
    let begun: usize = begun.trim().parse().unwrap();
    let looked = |lines: &[Value]| lines.iter().any(|line| line["tasks"].as_u64() >= Some(8));
    assert!(
        looked(&lines[..begun]) && looked(&lines[begun..]),
        "{begun} of {}: {told}",
        lines.len()
    );
    assert!(told.contains("no process is left in control group"), "{told}");
    assert_eq!(bench.shared("code").trim(), "143", "{told}");
    bench.left_nothing();
}

/// Once all rests the kernel's balancing is off, and at the end it is as it was.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn nothing_is_scanned_while_all_rests() {
    let bench = Bench::new();
    let script = format!(
        "knob=/proc/sys/kernel/numa_balancing; echo 1 > $knob
         {0} bench numa02 --threads 7 --start one-node --size 56M --seconds 300 > /dev/null & load=$!
         sleep 2; {0} balance --tune-kernel -p $load --log log 2> told & balance=$!
         # Programs that look at it count as others that compute.
         for round in $(seq 40); do read mode < $knob; test $mode = 0 && break; sleep 3; done
         cat $knob > resting; {0} doctor > doctor; {0} status > status
         kill -INT $balance; wait $balance; cat $knob > after; kill $load; wait; true",
        program()
    );
    let words = ["lab", "run", "--no-distance", "--dilation", "2", "--timeout", crate::HANGS];
    run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
    let modes = ["resting", "after"].map(|name| bench.shared(name).trim().to_string());
    assert_eq!(modes, ["0", "1"], "{}{}", bench.shared("told"), bench.shared("log"));
    let (doctor, status) = (bench.shared("doctor"), bench.shared("status"));
    assert!(doctor.contains("kernel balancing: switched off by run"), "{doctor}");
    assert!(
        status.contains("is under way, and has switched kernel.numa_balancing off"),
        "{status}"
    );
    bench.left_nothing();
}

/// Four threads that share memory fit on the four CPUs of a node, and would be gathered there; but its memory carries no
/// more than two of them ask for. With that measured, and traffic counted, they come apart again and stay so.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn who_asks_for_more_than_a_nodes_memory_carries_is_spread() {
    let bench = Bench::new();
    let script = format!(
        "{0} topology --measure --own --samples 3 -o json > measured || exit 1
         balance() {{
             name=$1; shift
             {0} balance --measured measured --tune-kernel --log $name \"$@\" -- \
                 {0} bench shared --threads 4 --seconds 8 > /dev/null 2> told-$name || exit 1
         }}
         balance gathered --without bandwidth; balance spread",
        program()
    );
    // As slow as this host can keep up with.
    let words = ["lab", "run", "--machine", "2x4-narrow", "--timeout", crate::HANGS];
    run(&mut bench.command(&words, &["sh", "-c", &script])).ends_with(0);
    let measured: Value = serde_json::from_str(&bench.shared("measured")).unwrap();
    let own = measured["own_read_mb_s"].as_array().unwrap();
    let near = |figure: &Value| (2200.0..2600.0).contains(&figure["median"].as_f64().unwrap());
    assert!(own.len() == 2 && own.iter().all(near), "{measured}");
    // Why tasks were placed, until the first of the four that work had ended.
    let reasons = |name: &str| {
        let log = bench.shared(name);
        let lines: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let has_all = |line: &Value| line["tasks"].as_u64() >= Some(5);
        let last = lines.iter().rposition(has_all).unwrap();
        let actions = lines[..last].iter().map(|line| &line["action"]);
        let placed = actions.filter(|action| action["do"] == "place-task");
        placed.map(|action| action["why"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let (gathered, spread) = (reasons("gathered"), reasons("spread"));
    assert!(!gathered.is_empty() && !gathered.contains(&"bandwidth".into()), "{gathered:?}");
    assert!(spread.ends_with(&["bandwidth".into()]), "{spread:?}");
    let told = bench.shared("told-spread");
    assert!(told.contains("what memory carries is counted by the emulated machine"), "{told}");
    assert!(!bench.shared("told-gathered").contains("what memory carries"));
    bench.left_nothing();
}
