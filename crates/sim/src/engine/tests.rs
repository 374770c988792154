//! Worked examples and properties of whole runs.

use std::cell::RefCell;
use std::rc::Rc;

use numaherd_model::{Balancing, Cause, CpuId};

use super::*;
use crate::Tie;
use crate::machine::tests::{SMALL, small};
use crate::workload::tests::slices;
use proptest::prelude::*;

fn options(tie: Tie) -> Options {
    Options { tie, trace: true, ..Options::default() }
}

fn seconds(threads: u32, mib: u64, times: u32, tie: Tie) -> f64 {
    let workload = slices(threads, mib, times);
    Sim::new(&small(), &workload, options(tie)).unwrap().finish().seconds
}

/// Within 1 %: jitter averages out.
fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.01, "{found} instead of {expected}");
}

#[test]
fn a_thread_alone_on_its_node_streams_at_its_speed() {
    // 32 MiB × 100 at 1000 MB/s = 3.355 s; remote takes twice as long.
    close(seconds(2, 64, 100, Tie::Bind), 3.355);
    close(seconds(2, 64, 100, Tie::Inverse), 6.711);
    // So do they for one that has both nodes to itself.
    close(seconds(1, 32, 100, Tie::Bind), 3.355);
    close(seconds(1, 32, 100, Tie::Inverse), 6.711);
}

#[test]
fn four_threads_share_two_memories() {
    // A node's two threads want 2 × 1 GB/s × 2 lines a line = 4 GB/s of 3: 0.75 GB/s each. So
    // 8 MiB × 100 in 1.118 s. Mirrored, two remote threads of 0.5 GB/s want 2 GB/s: nobody waits,
    // and 8 MiB × 100 at 0.5 GB/s take 1.678 s.
    close(seconds(4, 32, 100, Tie::Bind), 1.118);
    close(seconds(4, 32, 100, Tie::Inverse), 1.678);
}

#[test]
fn twice_as_many_threads_as_cpus_take_turns() {
    // 8 slices of 4 MiB × 200: the same bytes as 4 of 8 MiB × 200, on the same CPUs.
    close(seconds(8, 32, 200, Tie::Bind), 2.236);
}

#[test]
fn a_full_node_falls_back_to_the_next() {
    // 96 MiB, all first touched on node 0, which holds 64.
    let sim = Sim::new(&small(), &slices(1, 96, 1), Options::default()).unwrap();
    let on = |node| sim.processes[0].blocks.iter().filter(|block| block.home == node).count();
    assert_eq!((on(0), on(1)), (32, 16));
    assert!(Sim::new(&small(), &slices(1, 256, 1), Options::default()).is_err());
}

#[test]
fn siblings_slow_each_other() {
    // Two threads of a core together do 125 % of one alone; 1000 MB/s is what each does then.
    let text = SMALL.replace("[cpu]", "[cpu]\nthreads_per_core = 2\nsmt_speedup_percent = 125");
    let machine = Machine::parse("x", "x", &text.replace("= 3000", "= 30000")).unwrap();
    let run = |threads| {
        let workload = slices(threads, 16 * u64::from(threads), 100);
        Sim::new(&machine, &workload, options(Tie::Bind)).unwrap().finish().seconds
    };
    // 16 MiB × 100 at 1 GB/s = 1.678 s with the sibling busy, at 1.6 GB/s = 1.049 s alone.
    close(run(4), 1.678);
    close(run(2), 1.049);
}

#[test]
fn threads_wait_for_each_other_at_a_barrier_and_sleep() {
    let text = "title = \"t\"\n[[process]]\nthreads = 2\nmemory_mib = 8\n[[process.phase]]\n\
        memory = \"slice\"\ntimes = 1\nbarrier = true\nsleep_ms = 100\n[[process.phase]]\n\
        memory = \"slice\"\ntimes = 1\n";
    let workload = Workload::parse("t", "t", text).unwrap();
    let run = Sim::new(&small(), &workload, options(Tie::Bind)).unwrap().finish();
    // 2 × 4 MiB at 1 GB/s are 8 ms; and 100 ms of sleep.
    close(run.seconds, 0.1085);
    assert_eq!(run.thread_seconds.len(), 2);
}

#[test]
fn a_lock_lets_one_thread_in_at_a_time() {
    let text = "title = \"t\"\n[[process]]\nthreads = 4\nmemory_mib = 32\n[[process.phase]]\n\
        memory = \"slice\"\ntimes = 10\nlock = true\n";
    let workload = Workload::parse("t", "t", text).unwrap();
    let run = Sim::new(&small(), &workload, options(Tie::Bind)).unwrap().finish();
    // 4 × 8 MiB × 10 at 1 GB/s, one after the other.
    close(run.seconds, 0.3355);
}

#[test]
fn processes_come_when_others_end() {
    let text = "title = \"t\"\n[[process]]\ncopies = 10\nat_once = 2\nthreads = 1\nmemory_mib = 16\n\
        start = \"own-thread\"\n[[process.phase]]\nmemory = \"all\"\ntimes = 10\n";
    let workload = Workload::parse("t", "t", text).unwrap();
    let mut sim = Sim::new(&small(), &workload, options(Tie::Free)).unwrap();
    let memory = sim.memory();
    let run = sim.finish();
    // Five after each other on each node, each 16 MiB × (10 and once to clear them) at 1 GB/s.
    close(run.seconds, 5.0 * 11.0 * 16.0 * 1.048_576e-3);
    assert_eq!((run.thread_seconds.len(), sim.memory()), (10, memory));
}

/// What is linked comes as soon as what it is made of is there, and in the places of that.
#[test]
fn processes_come_after_those_that_they_wait_for() {
    let process = |more: &str, mib: u32| {
        format!(
            "[[process]]\n{more}\nthreads = 1\nmemory_mib = {mib}\nstart = \"own-thread\"\n\
             [[process.phase]]\nmemory = \"all\"\ntimes = 10\n"
        )
    };
    let seconds = |after: &str| {
        let text = format!(
            "title = \"t\"\n{}{}{}",
            process("name = \"cc\"\ncopies = 8\nat_once = 2", 16),
            process(&format!("name = \"ld\"\nafter = \"cc\"\n{after}"), 16),
            process("after = \"ld\"", 32),
        );
        let workload = Workload::parse("t", "t", &text).unwrap();
        let run = Sim::new(&small(), &workload, options(Tie::Free)).unwrap().finish();
        let all = workload.process.iter().map(|process| process.copies as usize).sum::<usize>();
        assert_eq!(run.thread_seconds.len(), all);
        // In times of one of 16 MiB: 10 passes, and one to clear it, at 1 GB/s.
        run.seconds / (11.0 * 16.0 * 1.048_576e-3)
    };
    // Four pairs, and then one after the other: 1 and 2.
    close(seconds(""), 4.0 + 1.0 + 2.0);
    // One for each two takes a place of the two: cc cc, cc ld, cc cc, ld cc, cc ld, cc, ld.
    close(seconds("copies = 4\neach = 2"), 7.0 + 2.0);
    // The last of three is of what is left, two of eight: cc cc, cc cc, ld cc, cc cc, ld cc, ld.
    close(seconds("copies = 3\neach = 3"), 6.0 + 2.0);
}

#[test]
fn more_threads_than_can_be_simulated_are_refused() {
    let text = "title = \"t\"\n[[process]]\ncopies = 3000\nthreads_per_cpu = 100\nmemory_mib = 16\n\
        [[process.phase]]\nmemory = \"all\"\ntimes = 1\n";
    let workload = Workload::parse("t", "t", text).unwrap();
    let refused = Sim::new(&small(), &workload, options(Tie::Free)).err().unwrap().to_string();
    assert!(refused.contains("1200000 threads on 4 CPUs: at most 1000000"), "{refused}");
}

#[test]
fn processes_that_come_later_take_the_places_of_those_that_ended() {
    let text = "title = \"t\"\n[[process]]\ncopies = 40\nat_once = 4\nthreads = 1\nmemory_mib = 16\n\
        start = \"own-thread\"\n[[process.phase]]\nmemory = \"all\"\ntimes = 10\n";
    let workload = Workload::parse("t", "t", text).unwrap();
    let of = |tie| Sim::new(&small(), &workload, options(tie)).unwrap().finish();
    let [free, bind] = [Tie::Free, Tie::Bind].map(of);
    // Two on each node at any time, whether they are tied or not.
    close(bind.seconds / free.seconds, 1.0);
    assert!(bind.local_share > 0.999 && bind.thread_seconds.len() == 40);
}

/// A process of four threads and 32 MiB, two on each of two nodes.
fn four(process: &str, phases: &str) -> Workload {
    let text =
        format!("title = \"t\"\n[[process]]\nthreads = 4\nmemory_mib = 32\n{process}\n{phases}");
    Workload::parse("t", "t", &text).unwrap()
}

/// On a machine whose memory and links make nobody wait.
fn run_wide(workload: &Workload, tie: Tie) -> Run {
    let text = SMALL.replace("= 3000", "= 300000").replace("= 10000", "= 300000");
    let machine = Machine::parse("x", "x", &text).unwrap();
    let run = Sim::new(&machine, workload, options(tie)).unwrap().finish();
    assert!((run.bytes / workload.bytes(4) - 1.0).abs() < 1e-9, "{} bytes", run.bytes);
    run
}

#[test]
fn what_all_threads_use_is_interleaved_and_slices_are_not() {
    let phases = "[[process.phase]]\nmemory = \"slice\"\ntimes = 1\n[[process.phase]]\n\
        memory = \"shared-part\"\ntimes = 1\n";
    let workload = four("shared = 0.5\nrounds = 100", phases);
    // 4 MiB of a slice and 4 MiB of what all use, a hundred times: local, and half of it remote.
    let [bind, inverse] = [Tie::Bind, Tie::Inverse].map(|tie| run_wide(&workload, tie));
    close(bind.seconds, 100.0 * 4.0 * 1.048_576e-3 * (1.0 + 1.5));
    close(inverse.seconds, 100.0 * 4.0 * 1.048_576e-3 * (2.0 + 1.5));
    assert_eq!((bind.local_share, inverse.local_share), (0.75, 0.25));
}

#[test]
fn groups_have_one_slice_and_the_next_slice_is_another_s() {
    let phases = |memory: &str, times: u32| {
        format!("[[process.phase]]\nmemory = \"{memory}\"\ntimes = {times}\n")
    };
    let groups = four("groups = [1, 3]", &phases("slice", 100));
    let bind = run_wide(&groups, Tie::Bind);
    assert_eq!(bind.local_share, 1.0);
    // One goes over its half of memory alone; three share two CPUs.
    close(bind.thread_seconds[0], 100.0 * 16.0 * 1.048_576e-3);
    close(bind.seconds, 1.5 * 100.0 * 16.0 * 1.048_576e-3);
    // Of four threads in a ring two pass a slice on to the other node.
    let ring = four("", &(phases("slice", 10) + &phases("next-slice", 10)));
    assert_eq!(run_wide(&ring, Tie::Bind).local_share, 0.75);
}

#[test]
fn a_placed_start_ties_nobody() {
    for (start, tie) in [("placed", Tie::Bind), ("inverse", Tie::Inverse)] {
        let phase = "[[process.phase]]\nmemory = \"slice\"\ntimes = 10\n";
        let workload = four(&format!("start = \"{start}\""), phase);
        let mut sim = Sim::new(&small(), &workload, options(Tie::Free)).unwrap();
        assert!(sim.rest.iter().all(|task| task.allowed.iter().count() == 4), "{start}");
        let (tied, run) = (run_wide(&workload, tie), sim.finish());
        assert_eq!(run.local_share, tied.local_share, "{start}");
    }
}

#[test]
fn what_reads_or_computes_less_is_faster_where_the_machine_says_so() {
    let text = SMALL.replace("[sim]\nstream_mb_s = 1000\n", "");
    assert_ne!(text, SMALL);
    // A line: ten instructions of 5 ns; 100 ns of memory to write, half of that to read.
    let text = text.replace("[cpu]", "[cpu]\ninstructions_per_second = 200_000_000");
    let machine = Machine::parse("x", "x", &(text + "[prefetch]\nload_overlap = 2\n")).unwrap();
    let of = |phase: &str| {
        let phase = format!("[[process.phase]]\nmemory = \"slice\"\ntimes = 100\n{phase}");
        let run = Sim::new(&machine, &four("", &phase), options(Tie::Bind)).unwrap().finish();
        run.seconds * 1e9 / (100.0 * 8.0 * 16384.0)
    };
    close(of(""), 150.0);
    close(of("writes = false"), 100.0);
    close(of("work = 0.2"), 110.0);
    close(of("writes = false\nrange = [0.25, 0.75]"), 50.0);
}

#[test]
fn operations_and_whole_times_are_passes() {
    let phase = |more: &str| format!("[[process.phase]]\nmemory = \"slice\"\n{more}\n");
    let lines = "lines_per_operation = 100.0";
    let operations = four(lines, &phase("operations = 10_000"));
    // A million lines in passes of 131,072 lines, to the nearest pass: 8.
    let run = run_wide(&operations, Tie::Bind);
    assert_eq!(run.operations, [4.0 * 8.0 * 131_072.0 / 100.0]);
    // A quarter of memory each, twelve times: three times all of it.
    assert_eq!(
        run_wide(&four("", &phase("times = 3\nwhole = true")), Tie::Bind).bytes,
        12.0 * f64::from(32 << 20)
    );
}

/// Balancing that moves every page to whoever touches it, and nothing else: thrashes on memory
/// that tasks of several nodes share.
pub(in crate::engine) struct Grabs;

impl Balancing for Grabs {
    fn name(&self) -> &'static str {
        "grabs"
    }
    fn pages(&self) -> numaherd_model::PageHandling {
        numaherd_model::PageHandling {
            one_fault_for_2m: false,
            moves_huge_whole: true,
            keeps_beside: false,
        }
    }
    fn scan(&mut self, _: TaskId, _: &dyn numaherd_model::View) -> Option<numaherd_model::Bytes> {
        Some(numaherd_model::Bytes(16 << 20))
    }
    fn on_fault(
        &mut self,
        touch: &numaherd_model::Touch,
        _: &dyn numaherd_model::View,
    ) -> Option<(numaherd_model::NodeId, Cause)> {
        Some((touch.node, Cause::Twice))
    }
}

#[test]
fn faults_bring_memory_home_and_cost_time() {
    let grabs = Options { balancing: Some(Box::new(Grabs)), ..options(Tie::Free) };
    let run = Sim::new(&small(), &slices(4, 32, 400), grabs).unwrap().finish();
    let off = Sim::new(&small(), &slices(4, 32, 400), options(Tie::Free)).unwrap().finish();
    // Half of the slices are not on node 0, where all was first touched: 8 MiB × 2 = 4096 pages.
    // A task that load balancing moves when others have ended takes at most its 2048 along.
    let moved = run.pages_moved_by_kernel;
    assert!((4096..=4096 + 2048 * run.task_moves).contains(&moved), "{run:?}");
    assert!(run.local_share > 0.95 && off.local_share < 0.6);
    assert!(run.kernel_seconds > 0.0 && run.seconds < off.seconds);
}

/// Balancing that scans at every tick and keeps whose passes ended, and of whom nothing could be armed.
struct Scans {
    ended: Rc<RefCell<[Vec<u32>; 2]>>,
}

impl Balancing for Scans {
    fn name(&self) -> &'static str {
        "scans"
    }
    fn pages(&self) -> numaherd_model::PageHandling {
        Grabs.pages()
    }
    fn scan(&mut self, _: TaskId, _: &dyn numaherd_model::View) -> Option<numaherd_model::Bytes> {
        Some(numaherd_model::Bytes(16 << 20))
    }
    fn pass_ended(&mut self, process: ProcessId, _: &dyn numaherd_model::View) {
        self.ended.borrow_mut()[0].push(process.tgid);
    }
    fn nothing_to_scan(&mut self, process: ProcessId, _: &dyn numaherd_model::View) {
        self.ended.borrow_mut()[1].push(process.tgid);
    }
    fn on_fault(
        &mut self,
        _: &numaherd_model::Touch,
        _: &dyn numaherd_model::View,
    ) -> Option<(numaherd_model::NodeId, Cause)> {
        None
    }
}

/// Otherwise a scanner that goes from process to process would wait for the end of that pass for ever.
#[test]
fn a_scan_of_a_process_without_hinting_faults_is_told_and_ends_no_pass() {
    let process = |more: &str| {
        format!(
            "[[process]]\nthreads = 1\nmemory_mib = 16\n{more}[[process.phase]]\n\
             memory = \"slice\"\ntimes = 20\n"
        )
    };
    let text = format!("title = \"t\"\n{}{}", process("hinting_faults = false\n"), process(""));
    let workload = Workload::parse("t", "t", &text).unwrap();
    let ended = Rc::new(RefCell::new([vec![], vec![]]));
    let scans: Box<dyn Balancing> = Box::new(Scans { ended: Rc::clone(&ended) });
    let options = Options { balancing: Some(scans), ..options(Tie::Free) };
    let mut sim = Sim::new(&small(), &workload, options).unwrap();
    let [without, with] = [0, 1].map(|p| sim.processes[p].id.tgid);
    sim.finish();
    let [passes, nothing] = &*ended.borrow();
    assert!(!passes.is_empty() && passes.iter().all(|tgid| *tgid == with), "{passes:?}");
    assert!(!nothing.is_empty() && nothing.iter().all(|tgid| *tgid == without), "{nothing:?}");
}

/// Balancing that has the running task change places with whoever runs on another CPU, or go
/// there if nobody does, at every tick; and, if it grabs, moves pages as [`Grabs`] does.
struct Swaps {
    grabs: bool,
}

impl Balancing for Swaps {
    fn name(&self) -> &'static str {
        "swaps"
    }
    fn pages(&self) -> numaherd_model::PageHandling {
        Grabs.pages()
    }
    fn scan(&mut self, _: TaskId, _: &dyn numaherd_model::View) -> Option<numaherd_model::Bytes> {
        self.grabs.then_some(numaherd_model::Bytes(16 << 20))
    }
    fn on_fault(
        &mut self,
        touch: &numaherd_model::Touch,
        view: &dyn numaherd_model::View,
    ) -> Option<(numaherd_model::NodeId, Cause)> {
        Grabs.on_fault(touch, view)
    }
    fn place(
        &mut self,
        task: TaskId,
        view: &dyn numaherd_model::View,
    ) -> Option<(numaherd_model::TaskMove, Cause)> {
        let there = numaherd_model::CpuId((view.cpu_of(task)?.0 + 2) % 4);
        let what = match view.running(there) {
            Some(other) => numaherd_model::TaskMove::Swap(other),
            None => numaherd_model::TaskMove::To(there),
        };
        Some((what, Cause::Uneven))
    }
}

#[test]
fn tasks_that_change_places_in_the_middle_of_a_block_go_on_with_it() {
    let swaps = Swaps { grabs: false };
    let swaps = Options { balancing: Some(Box::new(swaps)), ..options(Tie::Free) };
    let workload = slices(4, 32, 400);
    let run = Sim::new(&small(), &workload, swaps).unwrap().finish();
    // Each of 4 CPUs has a task change places every 20 ms; a block takes 2 ms and more. Whoever
    // began a block anew after a move would go over more bytes than there are.
    assert!(run.task_moves as f64 > 4.0 * run.seconds / 0.020, "{run:?}");
    assert!((run.bytes / workload.bytes(4) - 1.0).abs() < 1e-9, "{run:?}");
    // All memory is on node 0; each thread is near it half of the time, as two of four always are.
    assert!((0.35..0.65).contains(&(run.local_share)), "{run:?}");
}

#[test]
fn a_task_that_may_run_on_one_cpu_only_does_not_change_places() {
    let swaps = Swaps { grabs: false };
    let swaps = Options { balancing: Some(Box::new(swaps)), ..options(Tie::Free) };
    let mut sim = Sim::new(&small(), &slices(4, 32, 400), swaps).unwrap();
    let at = sim.tasks[0].cpu;
    sim.rest[0].allowed = [CpuId(at as u32)].into_iter().collect();
    let mut until = 0;
    // Neither when it asks nor when the one across does, while all four CPUs are busy.
    while sim.advance(Nanos(until)) && sim.left == 4 {
        assert_eq!(sim.tasks[0].cpu, at, "after {until} ns");
        until += 10_000_000;
    }
    assert!(until > 1_000_000_000);
    // The other two did.
    let run = sim.finish();
    assert!(run.task_moves > 50, "{run:?}");
}

#[test]
fn every_nanosecond_of_a_life_is_spent_somewhere() {
    let text = "title = \"t\"\n[[process]]\nthreads = 6\nmemory_mib = 48\n[[process.phase]]\n\
        memory = \"slice\"\ntimes = 20\nsleep_ms = 2\nbarrier = true\n[[process.phase]]\n\
        memory = \"slice\"\ntimes = 10\nlock = true\n";
    let workload = Workload::parse("t", "t", text).unwrap();
    let mut sim = Sim::new(&small(), &workload, options(Tie::Bind)).unwrap();
    let begun: u64 = sim.tasks.iter().map(|task| task.turn_end).sum();
    sim.finish();
    let lives = sim.rest.iter().map(|task| task.ended).sum::<u64>() - begun;
    let account = sim.account();
    assert_eq!(account.total_ns(), lives);
    let of = |place| account.ns(place) as f64 / lives as f64;
    assert!(of(Place::Barrier) > 0.0 && of(Place::Queue) > 0.0, "{account:?}");
    assert!(of(Place::Lock) > 0.1 && of(Place::Full) > 0.0, "{account:?}");
    // Six threads, each 20 × 2 ms; the last sleep of a phase is spent at its barrier.
    assert!((account.ns(Place::Sleeping) as f64 / (6.0 * 19.0 * 2e6) - 1.0).abs() < 0.01);
    let (_, _, lock) = sim.locks().find(|(_, which, _)| *which == "lock").unwrap();
    assert_eq!((lock.taken, lock.wait_ns), (60, account.ns(Place::Lock)));
    assert!(lock.held_ns > 0 && lock.longest_wait_ns < lock.wait_ns);
}

#[test]
fn lives_of_tasks_that_are_interrupted_are_counted_once() {
    for (huge_pages, grabs, exact) in
        [(true, false, false), (true, false, true), (true, true, false), (false, true, false)]
    {
        let balancing: Option<Box<dyn Balancing>> = Some(Box::new(Swaps { grabs }));
        let options = Options { huge_pages, balancing, exact, ..options(Tie::Free) };
        let mut sim = Sim::new(&small(), &slices(6, 48, 100), options).unwrap();
        let begun: u64 = sim.tasks.iter().map(|task| task.turn_end).sum();
        let run = sim.finish();
        assert!(run.task_moves > 50 && (run.faults > 0) == grabs, "{run:?}");
        // What the last scans cost is owed at the end.
        let ended: u64 = sim.rest.iter().map(|task| task.ended).sum();
        let owed: u64 = sim.tasks.iter().map(|task| task.debt_ns).sum();
        let (found, lives) = (sim.account().total_ns(), ended - begun + owed);
        // Small pages round a block's faults and copies down, to less than 1 ns each for 8 pages.
        let blocks = if huge_pages { 0 } else { run.pages_moved_by_kernel / BLOCK_PAGES };
        assert!((lives..=lives + 2 * 64 * blocks).contains(&found), "{found} of {lives}: {run:?}");
        assert!(sim.moving.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever happens, memory is neither made nor lost, every byte is gone over, and the same
    /// seed gives the same bytes.
    #[test]
    fn memory_and_work_are_conserved_and_runs_repeat(
        threads in 1u32..9, mib in 16u64..100, times in 1u32..20, seed in 0u64..5, kernel in 0..4,
        huge in any::<bool>()
    ) {
        let workload = slices(threads, mib, times);
        let run = || {
            let balancing: Option<Box<dyn Balancing>> = match kernel {
                0 => None,
                1 => Some(Box::new(Grabs)),
                _ => Some(Box::new(Swaps { grabs: kernel == 3 })),
            };
            let options = Options { seed, balancing, huge_pages: huge, ..options(Tie::Free) };
            let mut sim = Sim::new(&small(), &workload, options).unwrap();
            let total = |sim: &Sim| {
                let blocks: usize = sim.processes.iter().map(|process| process.blocks.len()).sum();
                blocks as u64 * BLOCK_BYTES + sim.free.iter().sum::<u64>()
            };
            let whole = total(&sim);
            let mut until = 0;
            while sim.advance(Nanos(until)) {
                prop_assert_eq!(total(&sim), whole);
                prop_assert_eq!(sim.load.iter().sum::<u32>() as usize, sim.left);
                until += 10_000_000;
            }
            let run = sim.result();
            prop_assert!((run.bytes / workload.bytes(4) - 1.0).abs() < 1e-9);
            prop_assert_eq!(total(&sim), whole);
            // Every move between nodes is told, with who moved it.
            let tasks = |event: &TraceEvent| match event {
                TraceEvent::Sent { other, .. } => 1 + u64::from(other.is_some()),
                _ => 0,
            };
            prop_assert_eq!(sim.trace().iter().map(tasks).sum::<u64>(), run.task_moves);
            let pages = |event: &&TraceEvent| matches!(event, TraceEvent::Moved { why: Some(_), .. });
            let blocks = sim.trace().iter().filter(pages).count() as u64;
            prop_assert_eq!(blocks * BLOCK_PAGES, run.pages_moved_by_kernel);
            Ok(format!("{run:?}{:?}", sim.trace()))
        };
        prop_assert_eq!(run()?, run()?);
    }
}
