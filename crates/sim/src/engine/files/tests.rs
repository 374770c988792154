//! Where files come to lie, what that costs, and who leaves them alone.

use numaherd_model::Nanos;
use proptest::prelude::*;

use super::*;
use crate::engine::mishaps::Mishap;
use crate::engine::tests::Grabs;
use crate::machine::tests::{SMALL, small};
use crate::{Machine, Options, Run, Tie};

/// Of both nodes of the small machine.
const WHOLE: u64 = 128 << 20;

fn parse(text: &str) -> Workload {
    Workload::parse("t", "t", &format!("title = \"t\"\n{text}")).unwrap()
}

/// A process of four threads on four CPUs of two nodes, each with 8 MiB of a file.
fn slices(start: &str, phase: &str) -> Workload {
    parse(&format!(
        "[[file]]\nname = \"f\"\nmib = 32\nstart = \"{start}\"\n[[process]]\nthreads = 4\nmemory_mib = 8\n\
         [[process.phase]]\nmemory = \"file\"\nfile = \"f\"\npart = \"slice\"\n{phase}\n"
    ))
}

fn options(tie: Tie) -> Options {
    Options { tie, ..Options::default() }
}

fn wide() -> Machine {
    let text = SMALL.replace("= 3000", "= 300000").replace("= 10000", "= 300000");
    Machine::parse("x", "x", &text).unwrap()
}

fn finished(machine: &Machine, workload: &Workload, options: Options) -> (Sim, Run) {
    let mut sim = Sim::new(machine, workload, options).unwrap();
    let whole = sim.memory();
    let run = sim.finish();
    assert_eq!(sim.memory(), whole);
    assert_eq!(whole, WHOLE);
    (sim, run)
}

/// By block.
fn homes(sim: &Sim, file: usize) -> Vec<Option<u16>> {
    sim.files.all[file].homes.clone()
}

fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.01, "{found} instead of {expected}");
}

#[test]
fn what_was_there_stays_and_what_is_written_lies_where_its_writer_s_policy_says() {
    let of = |start, tie| {
        let (sim, run) =
            finished(&wide(), &slices(start, "times = 3\nwrites = true"), options(tie));
        close(run.bytes, 3.0 * f64::from(32 << 20));
        let homes: Vec<u16> = homes(&sim, 0).into_iter().map(Option::unwrap).collect();
        (homes, run.local_share)
    };
    let all = [Tie::Free, Tie::Bind, Tie::Inverse, Tie::Interleave];
    let turns: Vec<u16> = (0..16).map(|block| block % 2).collect();
    for tie in all {
        let (one_node, local) = of("one-node", tie);
        let (interleaved, half) = of("interleave", tie);
        assert_eq!((one_node, interleaved), (vec![0; 16], turns.clone()), "{tie:?}");
        // Two of four threads are near what is on node 0, and each near half of what lies by turns. Who is free and
        // far is sent to node 0 once the others have ended.
        let is_tied = matches!(tie, Tie::Bind | Tie::Inverse);
        assert!(!is_tied || (local, half) == (0.5, 0.5), "{tie:?}: {local} {half}");
    }
    // Threads 0 and 1 are on node 0.
    let (near, far) = ([[0; 8], [1; 8]].concat(), [[1; 8], [0; 8]].concat());
    assert_eq!(of("first-touch", Tie::Bind), (near, 1.0));
    assert_eq!(of("first-touch", Tie::Inverse), (far, 0.0));
    let (homes, local) = of("first-touch", Tie::Free);
    // Each slice of four blocks is where its thread was, wherever that is.
    assert!(homes.chunks(4).all(|slice| slice.iter().all(|home| *home == slice[0])), "{homes:?}");
    assert_eq!((homes.iter().sum::<u16>(), local), (8, 1.0));
    // Each counts its own blocks, from its number on: threads 1 and 3 begin on node 1.
    let (homes, local) = of("first-touch", Tie::Interleave);
    let odd = [1, 0, 1, 0];
    assert_eq!(homes, [[0, 1, 0, 1], odd, [0, 1, 0, 1], odd].concat());
    assert_eq!(local, 0.5);
}

/// A process on each node reads what is on the first.
#[test]
fn who_is_on_another_node_than_what_it_reads_is_slower_by_what_latency_says() {
    let mut workload = parse(
        "[[file]]\nname = \"headers\"\nmib = 16\nstart = \"one-node\"\n[[process]]\ncopies = 2\nthreads = 1\n\
         memory_mib = 2\nbind = \"process\"\n[[process.phase]]\nmemory = \"file\"\nfile = \"headers\"\ntimes = 20\n\
         writes = false\n",
    );
    let (_, run) = finished(&wide(), &workload, options(Tie::Bind));
    // A line takes 64 ns, all of which goes with the latency: 100 ns, and 200 to the other node.
    let alone = 20.0 * 16.0 * 16384.0 * 64e-9;
    close(run.thread_seconds[0], alone);
    close(run.thread_seconds[1], 2.0 * alone);
    assert_eq!(run.local_share, 0.5);
    // Here and there it is a miss each, and no walk of page tables though pages are small.
    workload.process[0].phase[0].scattered = true;
    let small_pages = Options { huge_pages: false, ..options(Tie::Bind) };
    let (_, run) = finished(&wide(), &workload, small_pages);
    close(run.thread_seconds[0], alone / 64.0 * 100.0);
    close(run.thread_seconds[1], alone / 64.0 * 200.0);
}

#[test]
fn passes_over_files_are_counted_as_those_over_memory_are() {
    let mib = |change: &dyn Fn(&mut Workload)| {
        let mut workload = slices("interleave", "range = [0.5, 1.0]\ntimes = 3");
        workload.process[0].lines_per_operation = Some(64.0);
        change(&mut workload);
        let (sim, run) = finished(&wide(), &workload, options(Tie::Bind));
        close(run.bytes, workload.bytes(4));
        close(sim.operations()[0], run.bytes / 4096.0);
        run.bytes / f64::from(1 << 20)
    };
    // Four threads, each half of its 8 MiB.
    close(mib(&|_| ()), 4.0 * 3.0 * 4.0);
    // Each as often as makes three times the whole file.
    close(mib(&|workload| workload.process[0].phase[0].whole = true), 4.0 * 3.0 * 32.0);
    // 1024 operations of 4 KiB are a pass.
    let operations = |workload: &mut Workload| {
        let phase = &mut workload.process[0].phase[0];
        (phase.times, phase.operations) = (0, Some(10_240));
    };
    close(mib(&operations), 4.0 * 10.0 * 4.0);
}

#[test]
fn no_fault_and_no_move_touches_a_file_and_own_memory_has_them() {
    let of = |workload: &Workload, huge_pages, faults| {
        let balancing = Some(Box::new(Grabs) as Box<dyn numaherd_model::Balancing>);
        let options = Options { balancing, watch_faults: true, huge_pages, ..options(Tie::Free) };
        let mut sim = Sim::new(&wide(), workload, options).unwrap();
        let before = homes(&sim, 0);
        let run = sim.finish();
        assert_eq!((run.faults > 0, run.pages_moved_by_kernel > 0), faults, "{run:?}");
        assert_eq!(homes(&sim, 0), before);
        let own = crate::kernel::address(4);
        assert!(sim.heard().iter().all(|fault| fault.address.unwrap() < own));
        run.kernel_seconds
    };
    let file = slices("one-node", "times = 400");
    let mut own = file.clone();
    let mut phase = own.process[0].phase[0].clone();
    (phase.memory, phase.found, phase.times) = (crate::workload::Part::Slice, None, 400);
    own.process[0].phase.push(phase);
    for huge_pages in [true, false] {
        // Its own memory is scanned, though it goes over the file alone: nothing there is touched.
        let scans = of(&file, huge_pages, (false, false));
        assert!(of(&own, huge_pages, (true, true)) > scans);
    }
}

/// Accesses are sampled in user space, where no file is read.
#[test]
fn reading_a_file_is_not_sampled() {
    let heard = |workload: &Workload| {
        let mut workload = workload.clone();
        workload.process[0].hinting_faults = false;
        let options = Options { sample_accesses: true, ..options(Tie::Free) };
        let mut sim = Sim::new(&wide(), &workload, options).unwrap();
        sim.finish();
        sim.heard().len()
    };
    let file = slices("one-node", "times = 400");
    let mut own = file.clone();
    let phase = &mut own.process[0].phase[0];
    (phase.memory, phase.found) = (crate::workload::Part::Slice, None);
    assert_eq!(heard(&file), 0);
    assert!(heard(&own) > 10);
}

/// Sixteen writers, two at a time, and a reader that comes after all.
fn build(objects: &str) -> Workload {
    parse(&format!(
        "[[file]]\nname = \"objects\"\nmib = 1\n{objects}\n[[process]]\nname = \"cc\"\ncopies = 16\nat_once = 2\n\
         threads = 1\nmemory_mib = 4\nstart = \"own-thread\"\n[[process.phase]]\nmemory = \"all\"\ntimes = 5\n\
         [[process.phase]]\nmemory = \"file\"\nfile = \"objects\"\npart = \"slice\"\ntimes = 1\n[[process]]\n\
         after = \"cc\"\nthreads = 1\nmemory_mib = 2\n[[process.phase]]\nmemory = \"file\"\nfile = \"objects\"\n\
         times = 2\nwrites = false\n"
    ))
}

#[test]
fn what_is_written_outlives_its_writer_and_takes_room() {
    let (sim, run) = finished(&small(), &build(""), options(Tie::Free));
    assert!(sim.processes.iter().all(|process| process.blocks.is_empty()));
    // Each wrote a part of its own, 64 KiB of 1 MiB; two at a time, one on each node.
    assert_eq!(homes(&sim, 0).len(), 16);
    assert_eq!(sim.files.on(), [8 << 16, 8 << 16]);
    assert_eq!(sim.free, [(64 << 20) - (8 << 16); 2]);
    // 16 × 5 × 4 MiB, 1 MiB written and 2 read: all but half of the last is local.
    close(run.bytes, f64::from(323 << 20));
    close(1.0 - run.local_share, 1.0 / 323.0);
    close(run.bytes, build("").bytes(4));
}

#[test]
fn the_first_touch_of_a_block_is_cleared_and_others_are_not() {
    let run = |start: &str, times: u32| {
        let workload = slices(start, &format!("times = {times}"));
        finished(&wide(), &workload, options(Tie::Bind))
    };
    let clearing = |start: &str, times: u32| {
        let (sim, _) = run(start, times);
        (sim.account().ns(Place::Clearing), sim.account().times(Place::Clearing))
    };
    // 32 MiB, for each page of 4 KiB a fault of a microsecond, for each line 64 ns.
    let expected = 8192 * 1000 + 32 * 16384 * 64;
    assert_eq!(clearing("first-touch", 1), (expected, 8192));
    assert_eq!(clearing("first-touch", 9), (expected, 8192));
    assert_eq!(clearing("one-node", 9), (0, 0));
    // Each of four threads has a quarter of it to do, in its own time; the first begins within a tenth of a millisecond.
    let [once, often] = [1, 9].map(|times| run("first-touch", times).1.thread_seconds[0]);
    let first = once - (often - once) / 8.0;
    assert!((first / (expected as f64 / 4e9) - 1.0).abs() < 0.02, "{first}");
}

#[test]
fn what_another_process_read_is_in_the_cache_that_both_share() {
    let read = |copies: u32, cache: &str| {
        let machine = Machine::parse("x", "x", &(SMALL.to_string() + cache)).unwrap();
        let workload = parse(&format!(
            "[[file]]\nname = \"f\"\nmib = 2\nstart = \"one-node\"\n[[process]]\ncopies = {copies}\nat_once = 1\n\
             threads = 1\nmemory_mib = 2\n[[process.phase]]\nmemory = \"file\"\nfile = \"f\"\ntimes = 1\n\
             writes = false\n"
        ));
        let (sim, _) = finished(&machine, &workload, options(Tie::Free));
        sim.account().ns(Place::Computing) as f64 / 32768.0
    };
    let cache = "\n[llc]\nbytes = 2_097_152\nlatency_ns = 30\n";
    // A line from memory takes 64 ns, one from the cache 19.2. Each process is over before the next comes.
    for (copies, cache, each) in [(1, cache, 64.0), (4, "", 256.0), (4, cache, 64.0 + 3.0 * 19.2)] {
        let found = read(copies, cache);
        assert!((found / each - 1.0).abs() < 0.02, "{copies}: {found} instead of {each}");
    }
}

#[test]
fn a_full_node_sends_files_to_the_next_and_where_none_has_room_their_writers_end() {
    let run = |fills: &[usize]| {
        let mishaps = fills.iter().map(|node| (1_000, Mishap::NodeFills(*node))).collect();
        let options = Options { mishaps, ..options(Tie::Bind) };
        // Who comes to the end of the file goes over its own memory, too.
        let phases = "times = 2\n[[process.phase]]\nmemory = \"all\"\ntimes = 1";
        let (sim, run) = finished(&wide(), &slices("first-touch", phases), options);
        assert!(!run.unfinished);
        (sim.files.on().to_vec(), run.bytes, sim.out_of_room())
    };
    let all = f64::from((2 * 32 + 4 * 8) << 20);
    assert_eq!(run(&[]), (vec![16 << 20, 16 << 20], all, None));
    assert_eq!(run(&[0]), (vec![0, 32 << 20], all, None));
    let told = Some("4 tasks ended at the file f".to_string());
    assert_eq!(run(&[0, 1]), (vec![0, 0], 0.0, told));
}

/// What the first two leave when they end is enough for two more as small, and not for one that is larger.
#[test]
fn who_never_began_for_want_of_room_is_told() {
    let mishaps = [0, 1].map(|node| (1_000, Mishap::NodeFills(node))).to_vec();
    let mut workload = build("start = \"one-node\"");
    let told = |workload: &Workload| {
        let options = Options { mishaps: mishaps.clone(), ..options(Tie::Free) };
        finished(&small(), workload, options).0.out_of_room()
    };
    assert_eq!(told(&workload), None);
    workload.process[1].memory_mib = 16;
    assert_eq!(told(&workload).as_deref(), Some("1 process never began"));
    workload.process[1].name = Some("ld".into());
    assert_eq!(told(&workload).as_deref(), Some("1 process of ld never began"));
}

#[test]
fn files_that_the_machine_has_no_room_for_are_refused() {
    for start in ["one-node", "interleave", "first-touch"] {
        let mut workload = slices(start, "times = 1");
        workload.file[0].mib = 129;
        let refused = Sim::new(&small(), &workload, options(Tie::Free)).err().unwrap().to_string();
        let expected = "files do not fit the machine: they have 129 MiB, and all nodes 128";
        assert!(refused.contains(expected), "{refused}");
        workload.file[0].mib = 112;
        assert!(Sim::new(&small(), &workload, options(Tie::Free)).is_ok());
    }
}

/// Of as many MiB as the nodes, but in parts that are rounded up to pages.
#[test]
fn files_that_have_no_room_for_how_they_are_divided_are_told_so() {
    let mut workload = slices("first-touch", "times = 1");
    workload.file[0].mib = 128;
    workload.process[0].copies = 1000;
    let refused = Sim::new(&small(), &workload, options(Tie::Free)).err().unwrap().to_string();
    assert!(refused.contains("they have 128 MiB, which are "), "{refused}");
    assert!(refused.contains(" in blocks of whole pages, each on one node, and all nodes 128"));
}

/// With parts a file has at least a block for each, which is no shorter than a page.
#[test]
fn parts_are_whole_blocks() {
    let mib = 1 << 20;
    assert_eq!((blocks(mib, 1), blocks(32 * mib, 1), blocks(33 * mib, 1)), (1, 16, 17));
    assert_eq!((blocks(500 * mib, 2000), blocks(5 * mib, 2)), (2000, 4));
    assert_eq!(blocks(mib, 1_000_000), 256);
}

/// The kernel build's own files: without them it is another run.
#[test]
fn a_kernel_build_reads_and_writes_files() {
    let machine = Machine::built_in("autonuma-slides").unwrap().unwrap();
    let build = Workload::built_in("kbuild").unwrap().unwrap();
    let mut without = build.clone();
    without.file.clear();
    for process in &mut without.process {
        process.phase.retain(|phase| phase.of_file().is_none());
    }
    let run = |workload: &Workload| {
        let options = Options { huge_pages: false, ..options(Tie::Free) };
        let mut sim = Sim::new(&machine, workload, options).unwrap();
        let run = sim.finish();
        close(run.bytes, workload.bytes(machine.cpus()));
        assert_eq!(sim.out_of_room(), None);
        (run, sim)
    };
    let ((with, sim), (without, _)) = (run(&build), run(&without));
    assert!(with.bytes > without.bytes && with.seconds > without.seconds);
    // Sources lie where they were unpacked, and what is made of them on both nodes.
    for (file, spec) in build.file.iter().enumerate() {
        let homes = homes(&sim, file);
        let first = homes.iter().filter(|home| **home == Some(0)).count();
        match spec.start {
            FileStart::OneNode => assert_eq!(first, homes.len(), "{}", spec.name),
            _ if homes.len() > 100 => {
                let share = first as f64 / homes.len() as f64;
                assert!((0.3..0.7).contains(&share), "{}: {share}", spec.name);
            }
            _ => assert!(homes.iter().all(Option::is_some), "{}", spec.name),
        }
    }
    // Of what is read and written in files a half is remote.
    assert!(with.local_share < without.local_share);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// However long parts are and whatever goes wrong, memory is neither made nor lost, nobody goes over more than
    /// there is, and the same seed gives the same bytes.
    #[test]
    fn memory_is_conserved_with_files_too(
        mib in 1u64..60, copies in 1u32..40, fills in 0usize..3, at_ns in 0u64..60_000_000, seed in 0u64..5,
        start in 0usize..3, huge_pages in any::<bool>()
    ) {
        let start = ["one-node", "interleave", "first-touch"][start];
        let mut workload = build(&format!("start = \"{start}\""));
        (workload.file[0].mib, workload.process[0].copies) = (mib, copies);
        workload.find_files();
        let run = || {
            let mishaps = (0..fills).map(|node| (at_ns, Mishap::NodeFills(node))).collect();
            let options = Options { mishaps, seed, huge_pages, trace: true, ..options(Tie::Free) };
            let mut sim = Sim::new(&small(), &workload, options).unwrap();
            let mut until = 0;
            while sim.advance(Nanos(until)) {
                prop_assert_eq!(sim.memory(), WHOLE);
                until += 10_000_000;
            }
            let run = sim.result();
            prop_assert_eq!(sim.memory(), WHOLE);
            let share = run.bytes / workload.bytes(4);
            prop_assert!(share < 1.0 + 1e-9 && (fills > 0 || share > 1.0 - 1e-9), "{}", share);
            // Who does less than its work says so, and nobody else does.
            prop_assert_eq!(sim.out_of_room().is_none(), share > 1.0 - 1e-9, "{}", share);
            Ok(format!("{run:?}{:?}{:?}", sim.trace(), homes(&sim, 0)))
        };
        prop_assert_eq!(run()?, run()?);
    }
}
