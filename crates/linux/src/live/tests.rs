//! The live machine on the running kernel: looking at children of ours.

use std::cell::RefCell;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use numaherd_model::{Access, AccessSource, Action, Bytes, Change, Outcome, Reason, RegionId};

use super::*;
use crate::process::TaskReader;

/// Nothing is changed.
struct NoJournal;

impl Journal for NoJournal {
    fn before(&mut self, _: &Change) -> std::io::Result<()> {
        Err(std::io::Error::other("looking changes nothing"))
    }
}

fn looking(targets: Vec<ProcessId>, faults: Option<Box<dyn FaultSource>>) -> LiveMachine {
    LiveMachine::new(LiveOptions {
        targets,
        faults,
        accesses: None,
        sampled: Sampled::default(),
        latencies: None,
        traffic: None,
        journal: Box::new(NoJournal),
        acts: false,
        coverage: true,
        objects: true,
        units: true,
        pause: Nanos(0),
        beat: Box::new(|| {}),
    })
    .unwrap()
}

/// A child that calls itself so, and waits until it is killed.
fn child(name: &str) -> (Child, ProcessId) {
    let script = format!("printf '{name}' > /proc/$$/comm; echo; read word");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    let process = TaskReader::new("/".as_ref()).identify(child.id()).unwrap().unwrap();
    (child, process)
}

#[test]
fn nothing_is_remembered_of_processes_that_ended() {
    let ((mut guest, its), (mut other, others)) = (child("CPU 0/KVM"), child("other"));
    let mut machine = looking(vec![its, others], None);
    machine.observe(&mut Vec::new()).unwrap();
    machine.mover.found_no_huge(its);
    machine.mover.found_no_huge(others);
    assert!(machine.guests.as_ref().is_some_and(|guests| guests.contains_key(&its)));
    guest.kill().unwrap();
    guest.wait().unwrap();
    machine.observe(&mut Vec::new()).unwrap();
    assert_eq!(machine.guests, Some(BTreeMap::new()));
    assert_eq!([its, others].map(|of| machine.mover.is_without_huge(of)), [false, true]);
    other.kill().unwrap();
    other.wait().unwrap();
}

/// Hears so many faults each time that it is asked, and notes whom it is to watch.
#[derive(Clone, Default)]
struct Heard {
    each: usize,
    watched: Rc<RefCell<Vec<u32>>>,
}

impl FaultSource for Heard {
    fn drain(&mut self, faults: &mut Vec<HintingFault>) -> std::io::Result<()> {
        faults.extend(std::iter::repeat_n(silence::tests::fault(0, 0, 0), self.each));
        Ok(())
    }

    fn watch(&mut self, tgids: &[u32]) -> std::io::Result<()> {
        *self.watched.borrow_mut() = tgids.to_vec();
        Ok(())
    }

    fn lost(&self) -> u64 {
        0
    }
}

/// While a group is empty, the kernel is not to tell of all others.
#[test]
fn where_nobody_is_left_nobody_is_watched() {
    let (mut child, its) = child("some");
    let heard = Heard::default();
    let watched = &heard.watched;
    let mut machine = looking(vec![its], Some(Box::new(heard.clone())));
    machine.observe(&mut Vec::new()).unwrap();
    assert_eq!(*watched.borrow(), [its.tgid]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(machine.observe(&mut Vec::new()), Err(WorldError::NoTasks)));
    assert_eq!(*watched.borrow(), [NOBODY]);
    // And where nobody has been there yet.
    watched.borrow_mut().clear();
    let mut machine = looking(Vec::new(), Some(Box::new(heard.clone())));
    assert!(matches!(machine.observe(&mut Vec::new()), Err(WorldError::NoTasks)));
    assert_eq!(*watched.borrow(), [NOBODY]);
}

#[test]
fn when_enough_was_heard_a_look_is_due_and_no_more_is_taken_until_then() {
    let (mut child, its) = child("loud");
    let heard = Heard { each: MOST_HEARD / 2, ..Heard::default() };
    let mut machine = looking(vec![its], Some(Box::new(heard)));
    let heard: Vec<_> =
        (0..3).map(|_| (machine.listen().unwrap().len(), machine.has_heard_enough())).collect();
    assert_eq!(heard, [(MOST_HEARD / 2, false), (MOST_HEARD, true), (MOST_HEARD, true)]);
    let mut faults = Vec::new();
    machine.observe(&mut faults).unwrap();
    assert!(faults.len() >= MOST_HEARD && !machine.has_heard_enough());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn whom_another_balancer_looks_after_is_left_to_it() {
    let ((mut one, its), (mut other, others)) = (child("one"), child("other"));
    let mut machine = looking(vec![its, others], None);
    let mut fixed = |theirs: &[(u32, &str)]| {
        let theirs = theirs.iter().map(|(tgid, why)| (*tgid, why.to_string())).collect();
        machine.leave_to_others(theirs);
        let tasks = machine.observe(&mut Vec::new()).unwrap().tasks;
        let fixed = tasks.iter().filter(|task| task.fixed).map(|task| task.process);
        (fixed.collect::<Vec<_>>(), machine.left_alone())
    };
    assert_eq!(fixed(&[]), (vec![], BTreeMap::new()));
    let alone = BTreeMap::from([(others, "run 7 looks after it".to_string())]);
    assert_eq!(fixed(&[(others.tgid, "run 7 looks after it"), (1, "x")]), (vec![others], alone));
    assert_eq!(fixed(&[]).0, []);
    for child in [&mut one, &mut other] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// A group that waits for a service to come back is looked at several times a second, and /proc/stat is dear.
#[test]
fn while_nobody_is_left_nobody_asks_how_busy_cpus_are() {
    let mut machine = looking(Vec::new(), None);
    assert!(matches!(machine.observe(&mut Vec::new()), Err(WorldError::NoTasks)));
    // Whoever reads that is told so.
    let root = tempfile::tempdir().unwrap();
    crate::testing::put(root.path(), "proc/stat", "cpu 1\ncpu0 no numbers\n");
    machine.system = Box::new(Running::new(root.path()));
    assert!(matches!(machine.observe(&mut Vec::new()), Err(WorldError::NoTasks)));
    // With the first who comes it is asked again, a look later.
    machine.others.found_nobody(false);
    assert!(matches!(machine.observe(&mut Vec::new()), Err(WorldError::Read { .. })));
}

/// Such as memory of CXL that is brought online.
#[test]
fn a_node_whose_memory_comes_later_is_seen() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| crate::testing::put(root.path(), path, text);
    let node = |id: u32, cpus: &str, kib: u64, distance: &str| {
        let folder = format!("sys/devices/system/node/node{id}");
        put(&format!("{folder}/cpulist"), &format!("{cpus}\n"));
        let memory = format!("Node {id} MemTotal: {kib} kB\nNode {id} MemFree: {kib} kB\n");
        put(&format!("{folder}/meminfo"), &memory);
        put(&format!("{folder}/distance"), distance);
    };
    put("sys/devices/system/cpu/online", "0-1\n");
    put("sys/devices/system/node/online", "0-1\n");
    put("sys/devices/system/node/has_memory", "0-1\n");
    node(0, "0", 4096, "10 20\n");
    node(1, "1", 4096, "20 10\n");
    let mut machine = looking(Vec::new(), None);
    machine.system = Box::new(Running::new(root.path()));
    machine.read_topology().unwrap();
    assert_eq!(machine.topology.nodes.len(), 2);
    // A node that is there but has nothing yet is none to speak of.
    put("sys/devices/system/node/online", "0-2\n");
    node(0, "0", 4096, "10 20 30\n");
    node(1, "1", 4096, "20 10 30\n");
    node(2, "", 8192, "30 30 10\n");
    machine.read_topology().unwrap();
    assert_eq!(machine.topology.nodes.len(), 2);
    put("sys/devices/system/node/has_memory", "0-2\n");
    machine.read_topology().unwrap();
    assert_eq!(machine.topology.nodes[2].memory, numaherd_model::Bytes(8 << 20));
}

/// Finds nothing, and notes whose accesses it is to sample.
struct Sampler(Rc<RefCell<Vec<u32>>>);

impl AccessSource for Sampler {
    fn watch(&mut self, tgids: &[u32], _: &CpuSet, _: Nanos) -> std::io::Result<()> {
        *self.0.borrow_mut() = tgids.to_vec();
        Ok(())
    }

    fn drain(&mut self, _: &mut Vec<Access>) {}
}

/// A sample interrupts whoever runs, and there is nobody whom it could tell of.
#[test]
fn where_nobody_is_left_nobody_is_sampled() {
    let (mut child, its) = child("some");
    let sampled = Rc::new(RefCell::new(Vec::new()));
    let mut machine = looking(vec![its], None);
    let source = Box::new(Sampler(Rc::clone(&sampled)));
    let whose = Sampled { reserve: true, ..Sampled::default() };
    machine.accesses = accesses::Accesses::new(Some(source), whose);
    machine.observe(&mut Vec::new()).unwrap();
    // As if most of its memory were huge pages of the reserve.
    machine.accesses.watch(&[its], &machine.topology.cpus());
    assert_eq!(*sampled.borrow(), [its.tgid]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(machine.observe(&mut Vec::new()), Err(WorldError::NoTasks)));
    assert_eq!(*sampled.borrow(), []);
}

/// Beside the kernel's scans: to know what is mapped where walks all base pages, and a sample is of a few.
#[test]
fn where_most_memory_is_in_base_pages_who_is_busy_is_sampled_only_where_nobody_scans() {
    let mut scene = numaherd_model::scene::Scene::two_by_four();
    scene.busy(1);
    scene.edit().tasks[0].age = Nanos(1_000_000_000);
    let tasks = scene.snapshot().tasks;
    let process = tasks[0].process;
    let root = tempfile::tempdir().unwrap();
    let sampled = |huge_kb: u64, base| {
        let text = format!("AnonPages: 4096 kB\nAnonHugePages: {huge_kb} kB\n");
        crate::testing::put(root.path(), "proc/meminfo", &text);
        let mut machine = looking(vec![process], None);
        machine.system = Box::new(Running::new(root.path()));
        let source = Box::new(Sampler(Rc::default()));
        let whose = Sampled { reserve: true, rest: true, base };
        machine.accesses = accesses::Accesses::new(Some(source), whose);
        machine.sampled_processes(&tasks)
    };
    assert_eq!(sampled(4096, false), [process]);
    assert_eq!(sampled(0, false), []);
    assert_eq!(sampled(0, true), [process]);
}

/// It would be forgotten what is known of the memory of a process whose first thread has ended.
#[test]
fn an_empty_map_tells_nothing_and_none_at_all_that_the_process_has_ended() {
    let root = tempfile::tempdir().unwrap();
    let process = ProcessId { tgid: 7, start: 1 };
    let mut machine = looking(vec![process], None);
    machine.system = Box::new(Running::new(root.path()));
    assert_eq!(machine.mapped(process), Some(Vec::new()));
    crate::testing::put(root.path(), "proc/7/maps", "");
    assert_eq!(machine.mapped(process), None);
    crate::testing::put(
        root.path(),
        "proc/7/maps",
        "1000-3000 rw-p 00000000 00:00 0 \n5000-6000 rw-p 00000000 00:00 0 \n",
    );
    assert_eq!(machine.mapped(process), Some(vec![0x1000..0x3000, 0x5000..0x6000]));
}

/// What several map is moved by way of one of them, and another may have locked it.
#[test]
fn shared_memory_stays_if_anybody_who_maps_it_has_it_stay() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| crate::testing::put(root.path(), path, text);
    let start = 0x7f00_0000_0000;
    for tgid in [7, 8] {
        put(
            &format!("proc/{tgid}/maps"),
            "7f0000000000-7f0000200000 rw-s 00000000 00:01 9 /dev/shm/x\n",
        );
    }
    let process = |tgid| ProcessId { tgid, start: 1 };
    let action = Action::MovePages {
        region: RegionId { process: process(7), start },
        len: Bytes(2 << 20),
        to: NodeId(1),
        pages: Pages(512),
        reason: Reason::UsersThere { permille: 1000 },
    };
    let left = |locked: u64, shared| {
        put("proc/8/status", &format!("VmLck:\t{locked} kB\nVmRSS:\t4096 kB\n"));
        let mut machine = looking(Vec::new(), None);
        machine.system = Box::new(Running::new(root.path()));
        let objects = machine.objects.as_mut().unwrap();
        let both = [7, 8].map(process).into();
        objects.common(machine.system.as_mut(), &both, Nanos(0)).unwrap();
        let mut outcomes = [Outcome::Done { moved: Pages(0) }];
        let to = migrate::Destination { node: NodeId(1), shared, reserve: false };
        let mut moves = BTreeMap::from([(to, vec![0])]);
        machine.leave_shared(&[&action], process(7), &mut moves, &mut outcomes);
        assert_eq!(moves[&to].is_empty(), outcomes[0] != Outcome::Done { moved: Pages(0) });
        outcomes[0].clone()
    };
    let told = format!("{:?}", left(4096, true));
    assert!(told.contains("process 8 maps it too: much of its memory is locked"), "{told}");
    let done = Outcome::Done { moved: Pages(0) };
    assert_eq!([left(0, true), left(4096, false)], [done.clone(), done]);
}
