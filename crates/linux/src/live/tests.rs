//! The live machine on the running kernel: looking at children of ours.

use std::process::{Child, Command, Stdio};

use numaherd_model::Change;

use super::*;
use crate::process::TaskReader;

/// Nothing is changed.
struct NoJournal;

impl Journal for NoJournal {
    fn before(&mut self, _: &Change) -> std::io::Result<()> {
        Err(std::io::Error::other("looking changes nothing"))
    }
}

fn looking(targets: Vec<ProcessId>) -> LiveMachine {
    LiveMachine::new(LiveOptions {
        targets,
        faults: None,
        accesses: None,
        latencies: None,
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
    let mut machine = looking(vec![its, others]);
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
