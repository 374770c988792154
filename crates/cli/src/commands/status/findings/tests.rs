//! What is said of whom, and the command that is given with it.

use super::*;
use crate::commands::status::look::{Faults, Task};
use numaherd_linux::memory::residence::Residence;
use numaherd_model::Bytes;
use numaherd_model::scene::Scene;

const MIB: u64 = 1 << 20;

/// Threads as (node, CPU time of the second), and memory on nodes 0 and 1 in MiB.
fn process(pid: u32, threads: &[(u32, f64)], memory: [u64; 2]) -> Process {
    let task = |&(node, cpu): &(u32, f64)| Task {
        ran: vec![(NodeId(node), (cpu * 1e9) as u64)],
        counts: None,
        faults: Faults::default(),
    };
    let nodes = vec![(NodeId(0), Bytes(memory[0] * MIB)), (NodeId(1), Bytes(memory[1] * MIB))];
    let residence = Residence { nodes: nodes.clone(), seen: nodes, unseen: Vec::new() };
    let tasks = threads.iter().map(task).collect();
    Process { pid, command: "load".into(), residence: Ok(residence), tasks }
}

fn seen(processes: Vec<Process>) -> Seen {
    let scene = Scene::two_by_four().snapshot();
    Seen {
        topology: scene.topology,
        nodes: scene.nodes,
        page_size: scene.page_size,
        seconds: 1.0,
        cpus_used: None,
        processes,
        others: 0,
        no_faults: None,
    }
}

fn told(seen: &Seen, machine: &Machine) -> Vec<(String, Option<String>)> {
    let found = findings(seen, &rows(seen), machine);
    found.into_iter().map(|finding| (finding.text, finding.command)).collect()
}

fn root() -> Machine {
    Machine { numa_balancing: Some(1), root: true, ..Machine::default() }
}

#[test]
fn the_costliest_comes_first_with_what_cures_it() {
    // Process 10 runs on node 0 where its memory is; 20 on node 1, all memory on node 0.
    let seen = seen(vec![
        process(10, &[(0, 1.0), (0, 1.0)], [64, 0]),
        process(20, &[(1, 1.0), (1, 1.0)], [64, 0]),
    ]);
    let rows = rows(&seen);
    assert_eq!(rows.iter().map(|row| row.process.pid).collect::<Vec<_>>(), [20, 10]);
    // ρ = 2.1, r = 1, b up to 1: x = 1.1, lost up to 1.1 ÷ 2.1 = 0.524
    assert!((rows[0].lost.unwrap().high - 0.5238).abs() < 1e-3, "{rows:?}");
    assert_eq!(rows[1].lost.unwrap().high, 0.0);
    let told = told(&seen, &root());
    assert!(told[0].0.contains("load (20): only 0 % of its memory use is local"), "{told:?}");
    assert!(told[0].0.contains("runs on node 1 and its memory is on node 0"), "{told:?}");
    assert!(told[0].0.contains("up to 52 %"), "{told:?}");
    assert_eq!(told[0].1.as_deref(), Some("numaherd balance -p 20"));
    assert!(told[1].0.contains("load (10) is well placed") && told[1].1.is_none(), "{told:?}");
    // An ordinary user, and a kernel whose balancing is off
    let machine = Machine { numa_balancing: Some(0), root: false, ..Machine::default() };
    let command = &self::told(&seen, &machine)[0].1;
    assert_eq!(command.as_deref(), Some("sudo numaherd balance --tune-kernel -p 20"));
}

#[test]
fn what_is_not_known_is_said_with_how_to_know() {
    let spread = || process(30, &[(0, 1.0), (1, 1.0)], [32, 32]);
    let quiet = seen(vec![spread()]);
    let found = &told(&quiet, &root())[0];
    assert!(found.0.contains("between 0 % and 100 %"), "{found:?}");
    assert_eq!(found.1.as_deref(), Some("numaherd status -p 30 --sample 10"));
    let refused = Seen { no_faults: Some("no BTF: boot another".into()), ..seen(vec![spread()]) };
    let found = &told(&refused, &root())[0];
    assert!(found.0.contains("no BTF: boot another") && found.1.is_none(), "{found:?}");
    let machine = Machine { numa_balancing: Some(0), ..root() };
    let found = &told(&quiet, &machine)[0];
    assert_eq!(found.1.as_deref(), Some("numaherd balance --tune-kernel -p 30"));
    // With nothing to sample the cure is the same, whether sampling was tried or not.
    let tried = Seen { no_faults: Some("balancing is off".into()), ..seen(vec![spread()]) };
    assert_eq!(&self::told(&tried, &machine)[0], found);
    let found = &told(&quiet, &Machine { sampled: Some(20.0), ..root() })[0];
    assert!(found.0.contains("too few faults"), "{found:?}");
    assert_eq!(found.1.as_deref(), Some("numaherd status -p 30 --sample 60"));
}

/// Memory without CPUs is remote, and balance has nothing to do there.
#[test]
fn where_all_cpus_are_on_one_node_no_balance_is_offered() {
    let seen = seen(vec![process(20, &[(1, 1.0), (1, 1.0)], [64, 0])]);
    let told = told(&seen, &Machine { one_node_runs: true, ..root() });
    assert!(told[0].0.contains("all CPUs are on one node"), "{told:?}");
    assert!(told[1].0.contains("load (20): only 0 % of its memory use is local"), "{told:?}");
    assert!(told.iter().all(|(_, command)| command.is_none()), "{told:?}");
}

#[test]
fn who_is_looked_after_is_not_to_be_balanced_once_more() {
    let under_way = UnderWay {
        run: "5-1".into(),
        told: "run 5-1 of process 5 (process 20, process 30)".into(),
        looks_after: [20, 30].into(),
        switched_off: true,
    };
    let machine = Machine { numa_balancing: Some(0), balances: vec![under_way], ..root() };
    let seen = seen(vec![
        process(20, &[(1, 1.0), (1, 1.0)], [64, 0]),
        process(30, &[(0, 1.0), (1, 1.0)], [32, 32]),
        process(40, &[(1, 1.0), (1, 1.0)], [64, 0]),
    ]);
    let found = told(&seen, &machine);
    let (text, command) = &found[0];
    assert!(text.contains("(process 20, process 30) is under way"), "{text}");
    assert!(text.contains("has switched kernel.numa_balancing off"), "{text}");
    assert_eq!(command.as_deref(), Some("numaherd explain 5-1"));
    let about = |pid: &str| found.iter().find(|(text, _)| text.contains(pid)).unwrap();
    for looked_after in ["(20)", "(30)"] {
        let (text, command) = about(looked_after);
        assert!(text.ends_with("run 5-1 looks after it") && command.is_none(), "{found:?}");
    }
    assert!(about("(40)").1.is_some());
    // Switched on again, and by a run that does not touch it
    let machine = Machine { numa_balancing: Some(1), ..machine };
    assert!(told(&seen, &machine)[0].0.ends_with("is under way"));
}

#[test]
fn who_hardly_runs_or_is_hidden_gets_no_command() {
    let mut hidden = process(50, &[(0, 1.0), (1, 1.0)], [1, 1]);
    hidden.residence = Err("another user's: run as root".into());
    let seen = seen(vec![process(40, &[(1, 0.02)], [64, 0]), hidden]);
    let told = told(&seen, &root());
    let about = |pid: &str| told.iter().find(|(text, _)| text.contains(pid)).unwrap();
    assert!(about("(40)").0.contains("hardly runs") && about("(40)").1.is_none());
    assert!(about("(50)").0.contains("run as root") && about("(50)").1.is_none());
}

#[test]
fn the_machine_speaks_first() {
    let mut seen = seen(Vec::new());
    seen.nodes[1].free = seen.nodes[1].high_watermark;
    let machine = Machine { numa_balancing: Some(2), rivals: vec![("numad".into(), 7)], ..root() };
    let told = told(&seen, &machine);
    let words = ["numad (process 7)", "tiers", "node 1 is nearly full: 0 MiB", "no process"];
    for (text, word) in told.iter().zip(words) {
        assert!(text.0.contains(word), "{told:?}");
    }
    seen.topology.nodes.truncate(1);
    let told = self::told(&seen, &machine);
    assert!(told.len() == 1 && told[0].0.contains("one memory node"), "{told:?}");
    // Who sleeps there has all of its memory near, too.
    seen.processes = vec![process(60, &[], [64, 0])];
    assert_eq!(rows(&seen)[0].local.unwrap().value, Some(1.0));
}
