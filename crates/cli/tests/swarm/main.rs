//! The swarm: the live machine, the loop, herd, the journal and the undoing, all as they are, on
//! made-up kernels in which everything goes wrong that can. Whatever happens, no page is lost, no
//! node is brought below its watermark, and in the end every task has the affinity, and every
//! setting the value, that it would have if nobody had balanced: today, and when all cpusets are
//! widened and all CPUs back.
//!
//! `SEED=N` runs one machine, `SWARM=N` so many (`make swarm`: 20000), both so many from that one on. A
//! failure names its seed.

mod faults;
mod handed;
mod kept;
mod kernel;
mod refused;
mod system;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use numaherd_control::Controller;
use numaherd_linux::live::{LiveMachine, LiveOptions, Sampled};
use numaherd_linux::system::Machine as _;
use numaherd_linux::undo::{Trail, in_force_on, undo_on};
use numaherd_model::{
    Action, Change, CpuId, CpuSet, Journal, Nanos, Outcome, ProcessId, TaskId, WorldError,
};
use numaherd_placement::Herd;
use numaherd_trace::{Event, FileJournal, LeftBehind};

use kernel::Kernel;
use system::{Faults, Shared};

/// Machines without `SWARM`: together they see far more than the 500 faults that are asked for, and enough for
/// the shares below.
const MACHINES: u64 = 600;
const TURNS: u32 = 40;
const TURN_NS: u64 = 300_000_000;

/// A journal of ours that a killed balancer no longer writes, but for half a line.
struct Mortal {
    journal: FileJournal,
    kernel: Shared,
    /// Lines after which it is shortened.
    bound: usize,
}

impl Journal for Mortal {
    fn before(&mut self, change: &Change) -> io::Result<()> {
        let was_dead = self.kernel.0.borrow().killed;
        if self.kernel.0.borrow_mut().may_act() {
            self.shorten()?;
            let mut kernel = self.kernel.0.borrow_mut();
            let now = kernel.now;
            kernel.written.push(now);
            return self.journal.before(change);
        }
        if !was_dead {
            let mut file = OpenOptions::new().append(true).open(self.journal.path())?;
            file.write_all(b"{\"v\":1,\"t\":7,\"event\":\"before\",\"change\":\"affin")?;
        }
        Err(io::Error::other("killed"))
    }
}

impl Mortal {
    /// Every few lines, and not every thousands: whatever was left out is missed soon.
    fn shorten(&mut self) -> io::Result<()> {
        let mut system = self.kernel.clone();
        let written = std::mem::take(&mut self.kernel.0.borrow_mut().written);
        let mut kept = written.clone();
        if written.len() > self.bound {
            self.journal.shorten(|changes| {
                // Lines have the host's time, and are told by it.
                let at: Vec<Nanos> = changes.iter().map(|(at, _)| *at).collect();
                let needed = in_force_on(&mut system, changes);
                let line = |at_: &Nanos| at.binary_search(at_).expect("a line of these");
                kept = needed.iter().map(|(at, _)| written[line(at)]).collect();
                needed
            })?;
            self.bound = kept.len() + 5;
            self.kernel.0.borrow_mut().dropped += (written.len() - kept.len()) as u64;
        }
        self.kernel.0.borrow_mut().written = kept;
        Ok(())
    }
}

/// What a machine has been through.
#[derive(Debug, Default)]
struct Story {
    faults: BTreeMap<&'static str, u64>,
    placed: u64,
    moved: u64,
    refused: u64,
    killed: u64,
    put_back: u64,
    checked: u64,
    excused: u64,
    coincidences: u64,
    dropped: u64,
}

impl Story {
    fn add(&mut self, other: &Story) {
        for (what, times) in &other.faults {
            *self.faults.entry(what).or_default() += times;
        }
        self.placed += other.placed;
        self.moved += other.moved;
        self.refused += other.refused;
        self.killed += other.killed;
        self.put_back += other.put_back;
        self.checked += other.checked;
        self.excused += other.excused;
        self.coincidences += other.coincidences;
        self.dropped += other.dropped;
    }
}

fn settings() -> [(PathBuf, &'static str, &'static str); 2] {
    let path = |name: &str| PathBuf::from("/sys/kernel/debug/sched").join(name);
    [(path("scan_delay_ms"), "1000", "300"), (path("scan_period_min_ms"), "1000", "100")]
}

/// A machine with two to four processes of several threads each, their memory anywhere.
fn machine(seed: u64) -> Kernel {
    let mut random = fastrand::Rng::with_seed(seed);
    let (nodes, cpus) = ([2, 2, 4][random.usize(..3)], [2, 4][random.usize(..2)]);
    let mut kernel = Kernel::new(seed, nodes, cpus, random.u8(..4) > 0);
    kernel.settings = settings().into_iter().map(|(path, text, _)| (path, text.into())).collect();
    let processes = random.u32(2..5);
    for nth in 0..processes {
        let pid = 100 * (nth + 1);
        kernel.spawn(pid, None, random.usize(..3));
        // Started by the run, or before it.
        if random.bool() {
            kernel.marked.insert(pid);
        }
        let threads = random.u32(1..=cpus);
        (1..threads).for_each(|thread| kernel.clone_thread(pid + thread, pid));
        let shared = random.bool();
        for region in 0..3 * threads {
            let owner = (!shared).then_some(pid + region % threads);
            kernel.allocate(pid, owner, random.u32(..nodes), random.u8(..20) == 0);
        }
    }
    kernel.now += 5_000_000_000;
    kernel
}

/// The journal of a machine, and what the balancer sets at its start.
fn begin(shared: &Shared, folder: &Path) -> Mortal {
    let begin = Event::Begin {
        run: "swarm".into(),
        boot: "b".into(),
        pid: 1,
        start: shared.0.borrow().now / kernel::TICK_NS,
        about: "swarm".into(),
        tunes: true,
    };
    let user = numaherd_linux::sys::identity::effective_user();
    let journal = FileJournal::create(folder, user, "swarm", begin).unwrap();
    let mut mortal = Mortal { journal, kernel: shared.clone(), bound: 5 };
    for (path, before, after) in settings() {
        let (before, after) = (before.to_string(), after.to_string());
        let change = Change::Knob { path: path.clone(), before, after: after.clone() };
        mortal.before(&change).unwrap();
        shared.clone().set_setting(&path, &after).unwrap();
    }
    mortal
}

/// A live machine that does all there is, without faults.
fn options(targets: Vec<ProcessId>, journal: Mortal) -> LiveOptions {
    LiveOptions {
        targets,
        faults: None,
        accesses: None,
        sampled: Sampled::default(),
        latencies: None,
        traffic: None,
        journal: Box::new(journal),
        acts: true,
        coverage: true,
        objects: true,
        units: true,
        pause: Nanos(2_000_000),
        beat: Box::new(|| {}),
    }
}

/// One machine from its beginning to the last undoing.
fn live(seed: u64) -> Story {
    let mut story = Story::default();
    let shared = Shared(Rc::new(RefCell::new(machine(seed))));
    let folder = tempfile::tempdir().unwrap();
    let journal = begin(&shared, folder.path());
    let path = journal.journal.path().to_path_buf();
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5a5a);
    // Some are killed: at any of their actions, or of those of putting things back.
    if random.bool() {
        shared.0.borrow_mut().fuse = Some(random.u64(1..60));
    }
    // BPF is refused to some.
    let faults = (random.u8(..5) > 0).then(|| Box::new(Faults(shared.clone())) as _);
    *story.faults.entry("BPF is refused").or_default() += u64::from(faults.is_none());
    // A process may end between being named and being found, and its pid be another's by then.
    let targets = shared.0.borrow().processes();
    if random.u8(..4) == 0
        && let Some(what) = faults::reuse_pid(&mut shared.0.borrow_mut())
    {
        *story.faults.entry(what).or_default() += 1;
    }
    let options = LiveOptions { faults, ..options(targets, journal) };
    let mut machine = LiveMachine::on(Box::new(shared.clone()), options).unwrap();
    let mut controller = Controller::new(Herd::new());
    for _ in 0..TURNS {
        shared.0.borrow_mut().run(TURN_NS);
        if random.u8(..2) == 0
            && let Some(what) = faults::make(&mut shared.0.borrow_mut())
        {
            *story.faults.entry(what).or_default() += 1;
        }
        let pages = shared.0.borrow().pages();
        match controller.turn(&mut machine) {
            Ok(turn) => {
                for (action, outcome) in turn.plan.actions.iter().zip(&turn.outcomes) {
                    let done = !matches!(outcome, Outcome::Skipped(_));
                    let places = matches!(action, Action::PlaceTask { .. });
                    story.placed += u64::from(places && done);
                    story.refused += u64::from(!done);
                }
                story.moved += turn.moved().0;
            }
            Err(WorldError::NoTasks) => break,
            Err(_) if shared.0.borrow().killed => break,
            Err(error) => panic!("SEED={seed}: {error}"),
        }
        let after = shared.0.borrow().pages();
        for (tgid, count) in &after {
            assert_eq!(pages.get(tgid), Some(count), "SEED={seed}: pages of {tgid} got lost");
        }
    }
    drop(machine);
    story.killed = u64::from(shared.0.borrow().killed);
    *story.faults.entry("the balancer is killed").or_default() += story.killed;
    // Whatever happens between the end and its undoing.
    for _ in 0..random.usize(..4) {
        shared.0.borrow_mut().run(TURN_NS);
        if let Some(what) = faults::make(&mut shared.0.borrow_mut()) {
            *story.faults.entry(what).or_default() += 1;
        }
    }
    put_back(seed, &shared, &path, &mut random, &mut story);
    story
}

/// Undoes, after an attempt that was killed in its midst or found a kernel locked down, and checks
/// what there is then.
fn put_back(
    seed: u64,
    shared: &Shared,
    path: &Path,
    random: &mut fastrand::Rng,
    story: &mut Story,
) {
    let mut left = LeftBehind::read(path).unwrap().expect("the first line was written whole");
    // By the clock of the kernel.
    assert_eq!(left.changes.len(), shared.0.borrow().written.len(), "SEED={seed}");
    for (change, at) in left.changes.iter_mut().zip(&shared.0.borrow().written) {
        change.0 = Nanos(at - left.start * kernel::TICK_NS);
    }
    let mark = Some("NUMAHERD_RUN=swarm");
    let trail = Trail { changes: &left.changes, mark, since: left.start };
    shared.0.borrow_mut().killed = false;
    shared.0.borrow_mut().undoing = true;
    match random.u8(..3) {
        0 => {
            shared.0.borrow_mut().fuse = Some(random.u64(..8));
            undo_on(&mut shared.clone(), trail, false);
            *story.faults.entry("undoing is killed").or_default() += 1;
        }
        1 => {
            shared.0.borrow_mut().fuse = None;
            shared.0.borrow_mut().locked = true;
            let undone = undo_on(&mut shared.clone(), trail, false);
            assert_eq!(undone.failed.len(), 2, "SEED={seed}: a locked setting is told");
            shared.0.borrow_mut().locked = false;
            *story.faults.entry("debugfs is locked").or_default() += 1;
        }
        _ => {}
    }
    let (mut kernel_killed, mut fuse) = (false, None);
    std::mem::swap(&mut shared.0.borrow_mut().killed, &mut kernel_killed);
    std::mem::swap(&mut shared.0.borrow_mut().fuse, &mut fuse);
    let undone = undo_on(&mut shared.clone(), trail, false);
    assert_eq!(undone.failed, Vec::<String>::new(), "SEED={seed}");
    story.put_back = undone.affinities as u64;
    story.coincidences = shared.0.borrow().coincidences;
    story.dropped = shared.0.borrow().dropped;
    assert_eq!(shared.0.borrow().pressed, 0, "SEED={seed}: a node went below its watermark");
    let strangers = shared.0.borrow().strangers_touched;
    assert_eq!(strangers, 0, "SEED={seed}: a process was taken for one that had its pid before");
    for (path, before, _) in settings() {
        assert_eq!(shared.clone().setting(&path).unwrap(), before, "SEED={seed}");
    }
    same_as_alone(seed, "", shared, story);
    // And in the days to come.
    let all = shared.0.borrow().possible();
    for cpu in all.iter().filter(|cpu| !shared.0.borrow().online.contains(*cpu)).collect::<Vec<_>>()
    {
        shared.0.borrow_mut().plug(cpu, true);
    }
    (1..3).for_each(|group| shared.0.borrow_mut().confine(group, all.clone()));
    same_as_alone(seed, " once all cpusets are wide", shared, story);
}

fn same_as_alone(seed: u64, when: &str, shared: &Shared, story: &mut Story) {
    let kernel = shared.0.borrow();
    for (tid, task) in &kernel.tasks {
        if task.excused {
            story.excused += 1;
            continue;
        }
        story.checked += 1;
        let (is, should) = (kernel.affinity(*tid), kernel.affinity_alone(*tid));
        assert_eq!(is, should, "SEED={seed}: task {tid} was not put back{when}: {task:?}");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn whatever_happens_nothing_is_lost_and_everything_is_put_back() {
    let seeds = match (number("SEED"), number("SWARM")) {
        (Some(seed), many) => seed..seed + many.unwrap_or(1),
        (None, many) => 0..many.unwrap_or(MACHINES),
    };
    let machines = seeds.end - seeds.start;
    let mut all = Story::default();
    for seed in seeds {
        all.add(&live(seed));
    }
    let faults: u64 = all.faults.values().sum();
    println!("{machines} machines, {faults} faults: {all:#?}");
    if machines >= MACHINES {
        assert!(faults >= 500, "only {faults} faults");
        assert!(all.placed > 100 && all.moved > 10_000 && all.killed > 5 && all.put_back > 50);
        assert!(all.dropped > 500, "only {} lines of journals were dropped", all.dropped);
        // Cpusets cut an owner's mask and ours to the same CPUs: hardly ever.
        assert!(all.coincidences * 100 < all.checked, "{} coincidences", all.coincidences);
        // Whose owner's mask was nowhere to be had: few.
        assert!(all.excused * 4 < all.checked, "{} of {}", all.excused, all.checked);
    }
}

/// The owner of a process allows it 0-1 and 4-5, we set 0-1, a thread is born, and the cpuset becomes
/// 4-7: the thread shows all of that, and would be tied to 0-1 once the cpuset is wide again. One that
/// was there before is let be: whoever gave it another mask, it was not us.
#[test]
fn a_thread_born_with_a_mask_that_nothing_is_seen_of_is_put_back() {
    let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
    let mut kernel = Kernel::new(1, 2, 4, true);
    let (all, owner, ours) = (kernel.possible(), cpus("0-1,4-5"), cpus("0-1"));
    kernel.spawn(100, None, 1);
    kernel.clone_thread(101, 100);
    kernel.owner_sets(100, &owner);
    kernel.owner_sets(101, &cpus("2-3"));
    kernel.now += kernel::TICK_NS;
    let since = kernel.now / kernel::TICK_NS;
    assert!(kernel.tasks.get_mut(&100).unwrap().real.set(&ours, &all, &all));
    kernel.clone_thread(102, 100);
    kernel.confine(1, cpus("4-7"));
    let process = kernel.processes()[0];
    let task = TaskId { tid: 100, start: process.start };
    let change = Change::Affinity { task, process, before: owner, after: ours };
    let changes = [(Nanos(0), change)];
    let shared = Shared(Rc::new(RefCell::new(kernel)));
    assert_eq!(shared.0.borrow().affinity(102), Some(cpus("4-7")));
    let trail = Trail { changes: &changes, mark: None, since };
    let undone = undo_on(&mut shared.clone(), trail, false);
    assert_eq!((undone.affinities, undone.inherited), (2, 1));
    shared.0.borrow_mut().tasks.values_mut().for_each(|task| task.excused = false);
    same_as_alone(0, "", &shared, &mut Story::default());
    shared.0.borrow_mut().confine(1, all);
    same_as_alone(0, " once all cpusets are wide", &shared, &mut Story::default());
}

/// A process that was there before us and was never touched is in a cpuset of 1-2 whose CPU 1 is offline:
/// it shows 2, and so does its child, as another does that we gave just that. Both are let be; a child of
/// the other is not.
#[test]
fn what_a_cpuset_left_is_not_taken_for_a_mask_of_ours() {
    let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
    let mut kernel = Kernel::new(1, 2, 2, true);
    let all = kernel.possible();
    kernel.spawn(100, None, 1);
    kernel.spawn(200, None, 0);
    kernel.now += kernel::TICK_NS;
    let since = kernel.now / kernel::TICK_NS;
    kernel.marked.extend([100, 200]);
    assert!(kernel.tasks.get_mut(&200).unwrap().real.set(&cpus("2"), &all, &all));
    kernel.spawn(300, Some(200), 0);
    kernel.spawn(400, Some(100), 1);
    let process = kernel.processes()[1];
    kernel.confine(1, cpus("1-2"));
    kernel.plug(CpuId(1), false);
    let task = TaskId { tid: 200, start: process.start };
    let change = Change::Affinity { task, process, before: cpus("1-3"), after: cpus("2") };
    let changes = [(Nanos(0), change)];
    let shared = Shared(Rc::new(RefCell::new(kernel)));
    let seen = [100, 300, 400].map(|tid| shared.0.borrow().affinity(tid).unwrap());
    assert!(seen.iter().all(|cpus| *cpus == "2".parse().unwrap()), "{seen:?}");
    let trail = Trail { changes: &changes, mark: Some("NUMAHERD_RUN=swarm"), since };
    let undone = undo_on(&mut shared.clone(), trail, false);
    assert_eq!((undone.affinities, undone.inherited), (2, 1));
    for tid in [200, 300] {
        assert_eq!(shared.0.borrow().tasks[&tid].real.set, Some(cpus("1-3")));
    }
    shared.0.borrow_mut().plug(CpuId(1), true);
    shared.0.borrow_mut().confine(1, all.clone());
    for tid in [100, 400] {
        assert_eq!(shared.0.borrow().affinity(tid), Some(all.clone()));
    }
}

/// A canary: an undoing that puts back what was seen, and not what the owner had set, is caught.
#[test]
fn a_mask_put_back_as_it_was_seen_is_caught_when_the_cpuset_widens() {
    let mut kernel = Kernel::new(1, 2, 4, true);
    let half = (2..6).map(CpuId).collect();
    kernel.confine(1, half);
    kernel.spawn(100, None, 1);
    let seen = kernel.affinity(100).unwrap();
    let task = kernel.tasks.get_mut(&100).unwrap();
    let all = (0..8).map(CpuId).collect();
    assert!(task.real.set(&seen, &seen, &all));
    assert_eq!(kernel.affinity(100), kernel.affinity_alone(100));
    kernel.confine(1, all);
    assert_ne!(kernel.affinity(100), kernel.affinity_alone(100));
}
