//! The diagnosis, by table: each fact that is missing is named with what to do about it.

use super::diagnosis::{Facts, Rights, State};
use numaherd_bpf::Choice;
use numaherd_linux::host::Host;
use numaherd_model::scene::Scene;

fn good() -> Facts {
    let mut scene = Scene::two_by_four();
    Facts {
        host: Host {
            release: "6.12.1".into(),
            numa_maps: true,
            schedstat: true,
            task_counts: true,
            cgroup2: true,
            ..Host::default()
        },
        topology: scene.edit().topology.clone(),
        root: true,
        rights: Rights {
            read: true,
            ptrace: true,
            nice: true,
            bpf: true,
            perfmon: true,
            admin: true,
        },
        numa_balancing: Some(1),
        faults: Choice::WithAddresses {
            cpu_bits: Some(13),
            functions: [1, 2],
            exits: None,
            births: None,
        },
        opened: Some(Ok(())),
        sampling: Ok(()),
        sampling_takes_admin: false,
        traffic: Ok("by counters of CPUs"),
        scan_periods: true,
        journals: ("/run/numaherd".into(), None),
        left: Vec::new(),
        unreadable: Vec::new(),
        living: Vec::new(),
        lab: Ok("6.12.1".into()),
    }
}

fn with(change: impl Fn(&mut Facts)) -> Facts {
    let mut facts = good();
    change(&mut facts);
    facts
}

#[test]
fn a_good_machine_has_nothing_to_complain_of() {
    let facts = good();
    let bad: Vec<_> = facts.findings().into_iter().filter(|f| f.state != State::Ok).collect();
    assert_eq!(bad, []);
    assert!(facts.privileges().iter().all(|privilege| privilege.held));
    assert!(facts.abilities().iter().all(|ability| ability.state == State::Ok));
}

#[test]
fn a_balance_that_rests_is_no_complaint() {
    let facts = with(|f| {
        f.numa_balancing = Some(0);
        f.living = vec![("run 5-1 of process 5 (sleep 9)".into(), true)];
    });
    let found = facts.findings();
    let about = |topic: &str| found.iter().find(|finding| finding.topic == topic).unwrap();
    assert_eq!(about("kernel balancing").state, State::Ok);
    assert!(
        about("kernel balancing").found.contains("switched off by run 5-1 of process 5 (sleep 9)")
    );
    assert!(about("balance").found.contains("run 5-1 of process 5 (sleep 9) is under way"));
    // One that goes on and has not done it is not what it is off by.
    let facts = with(|f| {
        f.numa_balancing = Some(0);
        f.living = vec![("run 5-1 of process 5 (sleep 9)".into(), false)];
    });
    let found = facts.findings();
    let balancing = found.iter().find(|finding| finding.topic == "kernel balancing").unwrap();
    assert_eq!(balancing.state, State::Limited);
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    let denied = "loading BPF programs needs CAP_BPF and CAP_PERFMON: run as root";
    let table: Vec<(Facts, &str, State, &str, &str)> = vec![
        (
            with(|f| f.sampling = Err("Permission denied".into())),
            "samples of accesses",
            State::Limited,
            "none (Permission denied)",
            "perf_event_paranoid=2",
        ),
        (
            with(|f| {
                f.sampling = Err("Permission denied".into());
                f.rights.perfmon = false;
            }),
            "samples of accesses",
            State::Limited,
            "none (Permission denied)",
            "CAP_PERFMON",
        ),
        (
            with(|f| f.traffic = Err("this CPU shows no counters".into())),
            "memory traffic",
            State::Limited,
            "not counted (this CPU shows no counters)",
            "bare metal",
        ),
        (
            with(|f| {
                f.traffic = Err("counters are refused: Permission denied".into());
                f.rights.perfmon = false;
            }),
            "memory traffic",
            State::Limited,
            "is no limit",
            "CAP_PERFMON",
        ),
        (
            with(|f| f.topology.nodes.truncate(1)),
            "nodes",
            State::Limited,
            "nothing to balance",
            "lab run",
        ),
        (
            with(|f| f.topology.distances.clear()),
            "distances",
            State::Limited,
            "10 and 20",
            "firmware",
        ),
        (
            with(|f| f.numa_balancing = Some(0)),
            "kernel balancing",
            State::Limited,
            "off",
            "sysctl kernel.numa_balancing=1",
        ),
        (
            with(|f| f.numa_balancing = Some(2)),
            "kernel balancing",
            State::Limited,
            "tiers",
            "sysctl",
        ),
        (
            with(|f| f.numa_balancing = None),
            "kernel balancing",
            State::Missing,
            "none",
            "CONFIG_NUMA_BALANCING=y",
        ),
        (
            with(|f| f.faults = Choice::Unavailable { reason: denied.into() }),
            "hinting faults",
            State::Missing,
            "CAP_PERFMON",
            "run as root",
        ),
        (
            with(|f| f.opened = Some(Err("cannot load the BPF program: not permitted".into()))),
            "hinting faults",
            State::Missing,
            "cannot load",
            "not permitted",
        ),
        (
            with(|f| f.scan_periods = false),
            "scan periods",
            State::Limited,
            "not to be seen",
            "mount debugfs",
        ),
        (
            with(|f| f.rights = Rights::default()),
            "other users' processes",
            State::Limited,
            "only your own",
            "CAP_SYS_PTRACE",
        ),
        (
            with(|f| f.host.rivals = vec![("numad".into(), 7)]),
            "rivals",
            State::Limited,
            "process 7",
            "stop numad",
        ),
        (
            with(|f| f.host.schedstat = false),
            "waiting",
            State::Limited,
            "is not counted",
            "kernel.task_delayacct",
        ),
        (
            with(|f| f.host.cgroup2 = false),
            "control groups",
            State::Limited,
            "no version 2",
            "systemd.unified",
        ),
        (
            with(|f| f.journals.1 = Some("Permission denied".into())),
            "undo",
            State::Missing,
            "Permission denied",
            "NUMAHERD_STATE",
        ),
        (with(|f| f.left = vec!["9-8".into()]), "undo", State::Limited, "9-8", "numaherd restore"),
        (
            with(|f| f.unreadable = vec!["/run/numaherd/1-2.journal".into()]),
            "undo",
            State::Limited,
            "cannot be read, so what it holds is not put back: /run/numaherd/1-2.journal",
            "'restore' of the numaherd that wrote",
        ),
        (with(|f| f.lab = Err("no QEMU".into())), "lab", State::Missing, "no QEMU", "make build"),
    ];
    for (facts, topic, state, found, remedy) in table {
        let findings = facts.findings();
        let finding = findings.iter().find(|finding| finding.topic == topic);
        let finding = finding.unwrap_or_else(|| panic!("no finding on {topic}"));
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(finding.found.contains(found), "{finding:?} lacks '{found}'");
        let told = finding.remedy.as_deref().unwrap_or_default();
        assert!(told.contains(remedy), "{finding:?} lacks '{remedy}'");
    }
}

#[test]
fn what_commands_can_do_follows_from_the_facts() {
    let balance = |facts: &Facts| facts.abilities().remove(2);
    assert_eq!(balance(&with(|f| f.topology.nodes.truncate(1))).state, State::Missing);
    let no_bpf = with(|f| f.faults = Choice::Unavailable { reason: "x: y".into() });
    assert!(balance(&no_bpf).uses.contains("sampled accesses"), "{:?}", balance(&no_bpf));
    let neither = with(|f| {
        f.faults = Choice::Unavailable { reason: "x: y".into() };
        f.sampling = Err("no".into());
    });
    assert!(balance(&neither).uses.contains("whole processes"), "{:?}", balance(&neither));
    assert!(balance(&with(|f| f.numa_balancing = Some(3))).uses.contains("no pages"));
    // Without a lab, others than it are compared all the same.
    let lab = with(|f| f.lab = Err("no QEMU".into())).abilities().remove(3);
    assert_eq!((lab.command, lab.state), ("lab, compare --on lab", State::Missing));
    let status = no_bpf.abilities().remove(1);
    assert!(status.state == State::Limited && status.uses.contains("own counts"), "{status:?}");
}
