//! What the kernel refuses: placements and releases after they were written down, and moves of memory.

use std::cell::RefCell;
use std::rc::Rc;

use numaherd_linux::live::{LiveMachine, LiveOptions};
use numaherd_linux::undo::{Trail, undo_on};
use numaherd_model::{
    Action, Actuate, Bytes, CpuId, CpuSet, Nanos, NodeId, Observe, Outcome, Pages, ProcessId,
    Reason, RegionId, SkipReason, TaskId,
};
use numaherd_trace::LeftBehind;

use crate::kernel::{Kernel, TICK_NS};
use crate::system::{Faults, Shared};
use crate::{Story, begin, options, same_as_alone};

/// Two threads on two nodes of four CPUs, and the live machine that has looked at them once.
pub struct Bench {
    pub shared: Shared,
    pub machine: LiveMachine,
    journal: std::path::PathBuf,
    _folder: tempfile::TempDir,
    start: u64,
    /// Whether nobody wrote down anything on the same kernel before.
    first: bool,
}

impl Bench {
    pub fn new() -> Bench {
        let (shared, start) = Bench::kernel();
        let mut bench = Bench::on(shared, start);
        bench.machine.observe(&mut Vec::new()).unwrap();
        bench
    }

    fn kernel() -> (Shared, u64) {
        let mut kernel = Kernel::new(1, 2, 4, true);
        kernel.settings = crate::settings().map(|(path, text, _)| (path, text.into())).into();
        kernel.spawn(100, None, 1);
        kernel.clone_thread(101, 100);
        let start = kernel.now / TICK_NS;
        (Shared(Rc::new(RefCell::new(kernel))), start)
    }

    /// Another run on the same kernel, which has not looked yet.
    pub fn on(shared: Shared, start: u64) -> Bench {
        Bench::with(shared, start, |options| options)
    }

    /// One that the kernel tells of faults and births.
    pub fn hearing() -> Bench {
        let (shared, start) = Bench::kernel();
        let faults = Box::new(Faults(shared.clone()));
        let hears = |options| LiveOptions { faults: Some(faults), ..options };
        let mut bench = Bench::with(shared, start, hears);
        bench.machine.observe(&mut Vec::new()).unwrap();
        bench
    }

    fn with(shared: Shared, start: u64, more: impl FnOnce(LiveOptions) -> LiveOptions) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let first = shared.0.borrow().written.is_empty();
        let mortal = begin(&shared, folder.path());
        let journal = mortal.journal.path().to_path_buf();
        let targets = shared.0.borrow().processes();
        let options = more(options(targets, mortal));
        let machine = LiveMachine::on(Box::new(shared.clone()), options).unwrap();
        Bench { shared, machine, journal, _folder: folder, start, first }
    }

    pub fn task(&self, tid: u32) -> TaskId {
        TaskId { tid, start: self.start }
    }

    pub fn place(&mut self, tid: u32, node: u32) -> Outcome {
        self.place_on(tid, node, (4 * node..4 * node + 4).map(CpuId).collect())
    }

    /// The same of one that was born later.
    pub fn place_born(&mut self, tid: u32, node: u32) -> Outcome {
        let start = std::mem::replace(&mut self.start, self.shared.0.borrow().tasks[&tid].start);
        let outcome = self.place(tid, node);
        self.start = start;
        outcome
    }

    fn place_on(&mut self, tid: u32, node: u32, cpus: CpuSet) -> Outcome {
        let (task, node, reason) = (self.task(tid), NodeId(node), Reason::Balance);
        self.apply(&Action::PlaceTask { task, node, cpus, reason })
    }

    pub fn release(&mut self, tid: u32) -> Outcome {
        let (task, reason) = (self.task(tid), Reason::Balance);
        self.apply(&Action::ReleaseTask { task, cpus: CpuSet::default(), reason })
    }

    fn apply(&mut self, action: &Action) -> Outcome {
        self.machine.apply(&[action]).unwrap().remove(0)
    }

    /// What it wrote down, by the clock of the kernel where it is the first there.
    pub fn left(&self) -> LeftBehind {
        let mut left = LeftBehind::read(&self.journal).unwrap().unwrap();
        let kernel = self.shared.0.borrow();
        for (change, at) in left.changes.iter_mut().zip(&kernel.written).filter(|_| self.first) {
            change.0 = Nanos(at - left.start * TICK_NS);
        }
        left
    }

    /// Affinities put back, and left as somebody changed them since.
    pub fn undone(&self) -> (usize, usize) {
        self.undo(&self.left())
    }

    /// The same of what is said to be written down.
    pub fn undo(&self, left: &LeftBehind) -> (usize, usize) {
        let trail = Trail { changes: &left.changes, mark: None, since: left.start };
        let undone = undo_on(&mut self.shared.clone(), trail, false);
        (undone.affinities, undone.changed_since)
    }

    fn is_put_back(&self) {
        assert_eq!(self.undone(), (2, 0));
        self.is_as_alone();
    }

    /// Every task has what it would have if nobody had balanced, none excused.
    pub fn is_as_alone(&self) {
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

/// To one node, and to the other that its cpuset leaves out: the one does not suffer for the other.
#[test]
fn memory_that_may_not_be_on_a_node_is_told_apart_from_what_is_refused_for_now() {
    let mut bench = Bench::new();
    let process = ProcessId { tgid: 100, start: bench.start };
    (0..2).for_each(|node| bench.shared.0.borrow_mut().allocate(100, None, node, false));
    bench.shared.0.borrow_mut().mems.insert(100, "1".parse().unwrap());
    let start = |nth: usize| bench.shared.0.borrow().memory[&100][nth].start;
    let move_to = |nth: usize, node: u32| Action::MovePages {
        region: RegionId { process, start: start(nth) },
        len: Bytes(2 << 20),
        to: NodeId(node),
        pages: Pages(512),
        reason: Reason::Balance,
    };
    let actions = [move_to(0, 1), move_to(1, 0)];
    let outcomes = bench.machine.apply(&actions.each_ref()).unwrap();
    assert!(outcomes[0].moved().0 > 0, "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Skipped(SkipReason::Forbidden { node: NodeId(0) }));
    // The live machine asks for what is allowed now and then, and plans go by it.
    let allowed = |bench: &mut Bench| {
        let snapshot = bench.machine.observe(&mut Vec::new()).unwrap();
        [0, 1].map(|node| snapshot.allows_memory(process, NodeId(node)))
    };
    assert_eq!(allowed(&mut bench), [true; 2], "as was known a moment ago");
    bench.shared.0.borrow_mut().now += 5_000_000_000;
    assert_eq!(allowed(&mut bench), [false, true]);
}

/// As a container sees processes of others with which it shares the pids: what their cpusets leave them is put back.
#[test]
fn in_a_group_that_is_not_in_sight_what_may_run_where_is_what_its_owner_allowed() {
    let mut bench = Bench::new();
    let cpus: CpuSet = "0-2,4-5".parse().unwrap();
    bench.shared.0.borrow_mut().groups_unseen = true;
    bench.shared.0.borrow_mut().confine(1, cpus.clone());
    bench.shared.0.borrow_mut().owner_sets(101, &"1,4".parse().unwrap());
    let snapshot = bench.machine.observe(&mut Vec::new()).unwrap();
    let owner = |nth: usize| snapshot.tasks[nth].cpus_owner.to_string();
    assert_eq!([owner(0), owner(1)], ["0-2,4-5", "1,4"]);
    // What they may use of the node, as plans have it.
    for (tid, cpus) in [(100, "4-5"), (101, "4")] {
        let placed = bench.place_on(tid, 1, cpus.parse().unwrap());
        assert!(matches!(placed, Outcome::Done { .. }));
    }
    assert_eq!(bench.undone(), (2, 0));
    let now = |tid| bench.shared.0.borrow().affinity(tid).unwrap().to_string();
    assert_eq!([now(100), now(101)], ["0-2,4-5", "1,4"]);
}
