//! Placements and releases that the kernel refuses after they were written down.

use std::cell::RefCell;
use std::rc::Rc;

use numaherd_linux::live::LiveMachine;
use numaherd_linux::undo::{Trail, undo_on};
use numaherd_model::{Action, Actuate, CpuId, CpuSet, NodeId, Observe, Outcome, Reason, TaskId};
use numaherd_trace::LeftBehind;

use crate::kernel::{Kernel, TICK_NS};
use crate::system::Shared;
use crate::{Story, begin, options, same_as_alone};

/// Two threads on two nodes of four CPUs, and the live machine that has looked at them once.
struct Bench {
    shared: Shared,
    machine: LiveMachine,
    journal: std::path::PathBuf,
    _folder: tempfile::TempDir,
    start: u64,
}

impl Bench {
    fn new() -> Bench {
        let mut kernel = Kernel::new(1, 2, 4, true);
        kernel.settings = crate::settings().map(|(path, text, _)| (path, text.into())).into();
        kernel.spawn(100, None, 1);
        kernel.clone_thread(101, 100);
        let start = kernel.now / TICK_NS;
        let shared = Shared(Rc::new(RefCell::new(kernel)));
        let folder = tempfile::tempdir().unwrap();
        let mortal = begin(&shared, folder.path());
        let journal = mortal.journal.path().to_path_buf();
        let targets = shared.0.borrow().processes();
        let machine = LiveMachine::on(Box::new(shared.clone()), options(targets, mortal)).unwrap();
        let mut bench = Bench { shared, machine, journal, _folder: folder, start };
        bench.machine.observe(&mut Vec::new()).unwrap();
        bench
    }

    fn task(&self, tid: u32) -> TaskId {
        TaskId { tid, start: self.start }
    }

    fn place(&mut self, tid: u32, node: u32) -> Outcome {
        let cpus: CpuSet = (4 * node..4 * node + 4).map(CpuId).collect();
        let (task, node, reason) = (self.task(tid), NodeId(node), Reason::Balance);
        self.apply(&Action::PlaceTask { task, node, cpus, reason })
    }

    fn release(&mut self, tid: u32) -> Outcome {
        let (task, reason) = (self.task(tid), Reason::Balance);
        self.apply(&Action::ReleaseTask { task, cpus: CpuSet::default(), reason })
    }

    fn apply(&mut self, action: &Action) -> Outcome {
        self.machine.apply(&[action]).unwrap().remove(0)
    }

    fn is_put_back(&self) {
        let left = LeftBehind::read(&self.journal).unwrap().unwrap();
        let trail = Trail { changes: &left.changes, mark: None, since: left.start };
        let undone = undo_on(&mut self.shared.clone(), trail, false);
        assert_eq!((undone.affinities, undone.changed_since), (2, 0), "{undone:?}");
        self.shared.0.borrow_mut().tasks.values_mut().for_each(|task| task.excused = false);
        same_as_alone(0, "", &self.shared, &mut Story::default());
    }
}

/// All CPUs of the other node went offline since the plan was made.
#[test]
fn a_task_that_could_not_go_to_another_node_is_put_back_from_the_first() {
    let mut bench = Bench::new();
    assert!(matches!(bench.place(100, 0), Outcome::Done { .. }));
    (4..8).for_each(|cpu| bench.shared.0.borrow_mut().plug(CpuId(cpu), false));
    assert!(matches!(bench.place(100, 1), Outcome::Skipped(_)));
    assert!(matches!(bench.place(101, 0), Outcome::Done { .. }));
    (4..8).for_each(|cpu| bench.shared.0.borrow_mut().plug(CpuId(cpu), true));
    bench.is_put_back();
}

#[test]
fn a_task_that_could_not_be_released_is_put_back_in_the_end() {
    let mut bench = Bench::new();
    assert!(matches!(bench.place(100, 0), Outcome::Done { .. }));
    bench.shared.0.borrow_mut().untouchable = Some(100);
    assert!(matches!(bench.release(100), Outcome::Skipped(_)));
    assert!(matches!(bench.place(101, 0), Outcome::Done { .. }));
    bench.shared.0.borrow_mut().untouchable = None;
    bench.is_put_back();
}
