//! Small pages at their mutex: worked examples.

use numaherd_model::{
    Balancing, Bytes, Cause, CpuId, NodeId, PageHandling, TaskId, TaskMove, Touch, View,
};

use super::*;
use crate::layout::Tie;
use crate::{Machine, Options, Workload};

/// Brings every block to whoever touches it.
struct Grabs;

impl Balancing for Grabs {
    fn name(&self) -> &'static str {
        "grabs"
    }
    fn pages(&self) -> PageHandling {
        PageHandling { one_fault_for_2m: true, moves_huge_whole: true, keeps_beside: false }
    }
    fn scan(&mut self, _: TaskId, _: &dyn View) -> Option<Bytes> {
        // All of it by each CPU in every tick would leave no time for anything else.
        Some(Bytes(32 << 20))
    }
    fn on_fault(&mut self, touch: &Touch, _: &dyn View) -> Option<(NodeId, Cause)> {
        Some((touch.node, Cause::Twice))
    }
}

/// Besides, has tasks change places all the time.
struct Swaps;

impl Balancing for Swaps {
    fn name(&self) -> &'static str {
        "swaps"
    }
    fn pages(&self) -> PageHandling {
        Grabs.pages()
    }
    fn scan(&mut self, task: TaskId, view: &dyn View) -> Option<Bytes> {
        Grabs.scan(task, view)
    }
    fn on_fault(&mut self, touch: &Touch, view: &dyn View) -> Option<(NodeId, Cause)> {
        Grabs.on_fault(touch, view)
    }
    fn place(&mut self, task: TaskId, view: &dyn View) -> Option<(TaskMove, Cause)> {
        let there = CpuId((view.cpu_of(task)?.0 + 1) % 32);
        view.running(there).map(|other| (TaskMove::Swap(other), Cause::Uneven))
    }
}

/// As many threads as CPUs, each tied to a node, its slice of 16 MiB on the other one.
fn run(threads: u32, huge_pages: bool) -> Sim {
    run_under(threads, huge_pages, Box::new(Grabs))
}

fn run_under(threads: u32, huge_pages: bool, balancing: Box<dyn Balancing>) -> Sim {
    let cpus = threads.max(2);
    let machine = format!(
        "title = \"t\"\n[cpu]\n[sim]\nstream_mb_s = 10000\n[[node]]\nid = 0\ncpus = {half}\n\
         memory_mib = 4096\n[[node]]\nid = 1\ncpus = {half}\nmemory_mib = 4096\n\
         [distance]\nslit = [[10, 20], [20, 10]]\n",
        half = cpus / 2
    );
    let machine = Machine::parse("t", "t", &machine).unwrap();
    let workload = format!(
        "title = \"t\"\n[[process]]\nthreads = {threads}\nmemory_mib = {}\n[[process.phase]]\n\
         memory = \"slice\"\ntimes = 60\n",
        threads * 16
    );
    let workload = Workload::parse("t", "t", &workload).unwrap();
    let balancing = Some(balancing);
    let options = Options { tie: Tie::Inverse, huge_pages, balancing, ..Options::default() };
    let mut sim = Sim::new(&machine, &workload, options).unwrap();
    assert!(!sim.finish().unfinished);
    sim
}

#[test]
fn both_places_make_wait_alike_and_the_mutex_is_taken_twice_a_page() {
    let sim = run(32, false);
    let used = &sim.processes[0].rmap.used;
    let moved = sim.run.pages_moved_by_kernel;
    // Every slice comes home, once.
    assert_eq!(moved, 32 * 8 * 512);
    assert_eq!(used.taken, 2 * moved);
    assert_eq!(used.held_ns, moved * sim.machine.kernel.rmap_ns);
    let (lock, walk) = (sim.account.times(Place::PageLock), sim.account.times(Place::RmapWalk));
    assert_eq!(lock + walk, used.waited);
    assert!(lock > moved / 2 && walk > moved / 2, "{lock} {walk} of {moved}");
    assert_eq!(sim.account.ns(Place::PageLock) + sim.account.ns(Place::RmapWalk), used.wait_ns);
    assert!((sim.account.share_of_blocks(Place::RmapWalk) - 0.5).abs() < 0.1);
}

#[test]
fn a_saturated_mutex_passes_one_page_in_the_time_it_is_held_for_one() {
    let sim = run(32, false);
    let used = &sim.processes[0].rmap.used;
    // A page takes 2 + 4 µs and some 0.8 for its copy, of which the mutex is held for 1.5. While
    // all 32 move, it waits 32 × 1.5 - 6.8 = 41.2 µs; less while some do their work.
    let wait_ns = used.wait_ns as f64 / sim.run.pages_moved_by_kernel as f64;
    assert!((25_000.0..41_300.0).contains(&wait_ns), "{wait_ns}");
}

#[test]
fn one_mover_waits_for_nobody_and_huge_pages_need_no_mutex() {
    let sim = run(1, false);
    assert_eq!(sim.processes[0].rmap.used.waited, 0);
    assert!(sim.processes[0].rmap.used.taken > 0);
    let sim = run(32, true);
    assert_eq!(sim.processes[0].rmap.used.taken, 0);
    assert!(sim.run.pages_moved_by_kernel > 0 && sim.run.rmap_wait_seconds == 0.0);
}

#[test]
fn a_move_that_is_interrupted_goes_on_elsewhere_and_leaves_the_mutex_to_others() {
    let sim = run_under(32, false, Box::new(Swaps));
    let (used, moved) = (&sim.processes[0].rmap.used, sim.run.pages_moved_by_kernel);
    // Every page still takes it twice. Who is sent away while holding it spends the rest without.
    assert_eq!(used.taken, 2 * moved);
    let full = moved * sim.machine.kernel.rmap_ns;
    assert!((full * 9 / 10..full).contains(&used.held_ns), "{} of {full}", used.held_ns);
    let (lock, walk) = (sim.account.ns(Place::PageLock), sim.account.ns(Place::RmapWalk));
    assert_eq!(lock + walk, used.wait_ns);
    let mutex = &sim.processes[0].rmap;
    assert!(mutex.holder.is_none() && mutex.waiting.is_empty() && sim.moving.is_empty());
}
