//! What rt-app's files come to: each event by itself, beside our own files, and together.

use super::*;
use crate::machine::tests::{SMALL, small};
use crate::{Machine, Options, Run, Tie, Workload};

/// A file of tasks, with what else stands beside them.
fn file(more: &str, tasks: &str) -> Workload {
    let text = format!("{{ {more} \"tasks\": {{ {tasks} }} }}");
    Workload::parse_rt_app("w", "w.json", &text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn sim(workload: &Workload, tie: Tie) -> Sim {
    let options = Options { tie, trace: true, ..Options::default() };
    let mut sim = Sim::new(&small(), workload, options).unwrap();
    sim.finish();
    sim
}

fn run(more: &str, tasks: &str) -> Run {
    sim(&file(more, tasks), Tie::Free).result()
}

fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.01, "{found} instead of {expected}");
}

/// A resource of 64 MiB.
const HEAP: &str = "\"resources\": { \"heap\": { \"type\": \"memory\", \"memory_mib\": 64, \"start\": \"own-thread\" } },";

#[test]
fn what_our_own_file_says_takes_as_long() {
    for (own, event, tie) in [
        ("memory = \"slice\"\ntimes = 20", "\"memory\": \"slice\", \"times\": 20", Tie::Bind),
        ("memory = \"slice\"\ntimes = 20", "\"memory\": \"slice\", \"times\": 20", Tie::Free),
        ("memory = \"slice\"\ntimes = 20", "\"memory\": \"slice\", \"times\": 20", Tie::Inverse),
        (
            "memory = \"next-slice\"\ntimes = 20\nwrites = false",
            "\"memory\": \"next-slice\", \"times\": 20, \"writes\": false",
            Tie::Bind,
        ),
        (
            "memory = \"all\"\ntimes = 5\nrange = [0.25, 0.75]\nscattered = true\ncompute_ns = 7",
            "\"memory\": \"all\", \"times\": 5, \"range\": [0.25, 0.75], \"scattered\": true, \"compute_ns\": 7",
            Tie::Interleave,
        ),
    ] {
        let text = format!(
            "title = 't'\n[[process]]\nthreads = 4\nmemory_mib = 64\nstart = 'own-thread'\n[[process.phase]]\n{own}\n"
        );
        let ours = Workload::parse("w", "w", &text).unwrap();
        let touch = format!("\"touch\": {{ \"ref\": \"heap\", {event} }}");
        let theirs = file(HEAP, &format!("\"t\": {{ \"instance\": 4, \"loop\": 1, {touch} }}"));
        assert!((theirs.bytes(4) / ours.bytes(4) - 1.0).abs() < 1e-9, "{own}");
        let [ours, theirs] = [&ours, &theirs].map(|workload| sim(workload, tie).result());
        close(theirs.seconds, ours.seconds);
        close(theirs.bytes, ours.bytes);
        assert!((theirs.local_share - ours.local_share).abs() < 0.01, "{own} {tie:?}");
    }
}

#[test]
fn computing_takes_as_long_as_it_says_and_siblings_slow_it() {
    let one = run("", "\"a\": { \"loop\": 3, \"run\": 100000 }");
    close(one.seconds, 0.3);
    assert_eq!((one.bytes, one.operations, one.local_share), (0.0, vec![3.0], 1.0));
    // Two threads on a core of two that do 125 % together, on one node of the two: 1.6 times as long.
    let text = SMALL.replace("[cpu]", "[cpu]\nthreads_per_core = 2\nsmt_speedup_percent = 125");
    let machine = Machine::parse("s", "s", &text).unwrap();
    let on = |tasks: &str| {
        let mut sim = Sim::new(&machine, &file("", tasks), Options::default()).unwrap();
        sim.finish().seconds
    };
    let both = |event: &str| {
        on(&format!("\"a\": {{ \"instance\": 2, \"cpus\": [0, 1], \"loop\": 1, {event} }}"))
    };
    close(both("\"run\": 100000"), 0.16);
    // On the clock it takes what it says, and shares the CPU where it has to.
    close(both("\"runtime\": 100000"), 0.1);
    // The second one's begins when it first runs: a turn of 24 ms later.
    close(on("\"a\": { \"instance\": 2, \"cpus\": [0], \"loop\": 1, \"runtime\": 200000 }"), 0.224);
    close(on("\"a\": { \"instance\": 2, \"cpus\": [0], \"loop\": 1, \"run\": 200000 }"), 0.4);
}

/// CPU time of each thread ÷ that of the run.
fn utilisation(sim: &Sim) -> Vec<f64> {
    let seconds = sim.result().seconds;
    sim.tasks.iter().map(|task| task.cpu_ns as f64 / 1e9 / seconds).collect()
}

#[test]
fn a_timer_makes_a_task_periodic() {
    let periodic = "\"a\": { \"instance\": 2, \"run\": 3000, \"timer\": { \"ref\": \"unique\", \"period\": 10000 } }";
    let found = sim(&file("\"global\": { \"duration\": 2 },", periodic), Tie::Free);
    close(found.result().seconds, 2.0);
    utilisation(&found).into_iter().for_each(|busy| close(busy, 0.3));
    // With a sleep the period is what is run longer.
    let sleeping = "\"a\": { \"run\": 3000, \"sleep\": 7000, \"run2\": 10000 }";
    let found = sim(&file("\"global\": { \"duration\": 2 },", sleeping), Tie::Free);
    close(utilisation(&found)[0], 13.0 / 20.0);
    let accounted = found.account.total_ns() as f64 / 1e9;
    close(accounted, 2.0);
}

/// rt-app's own picture: 10 ms of every 20, but for the third time, which takes 30.
#[test]
fn a_missed_time_is_made_up_for_only_where_the_timer_is_absolute() {
    let ends = |mode: &str| {
        let timer = format!(
            "\"timer\": {{ \"ref\": \"unique\", \"period\": 20000, \"mode\": \"{mode}\" }}"
        );
        let phase = |name: &str, loops: u32, run: u32| {
            format!("\"{name}\": {{ \"loop\": {loops}, \"run\": {run}, {timer} }}")
        };
        let phases = [phase("one", 2, 10_000), phase("late", 1, 30_000), phase("two", 3, 10_000)];
        run("", &format!("\"a\": {{ \"loop\": 1, \"phases\": {{ {} }} }}", phases.join(",")))
            .seconds
    };
    // 40 + 30, from where three more take 20 each; or to the sixth 20 from the beginning.
    close(ends("relative"), 0.13);
    close(ends("absolute"), 0.12);
}

#[test]
fn a_timer_that_is_shared_goes_off_for_who_asks_next() {
    // Of one timer every period is somebody's: two threads have every second one.
    let of = |name: &str| {
        let timer = format!("\"timer\": {{ \"ref\": \"{name}\", \"period\": 10000 }}");
        let task = format!("\"a\": {{ \"instance\": 2, \"loop\": 20, \"run\": 1000, {timer} }}");
        run("", &task).seconds
    };
    close(of("unique"), 0.2);
    close(of("tick"), 0.4);
}

/// Who runs, by time.
fn turns(sim: &Sim) -> Vec<u32> {
    let runs = sim.trace().iter().filter_map(|event| match event {
        crate::engine::TraceEvent::Runs { task, .. } => Some(*task),
        _ => None,
    });
    runs.collect()
}

#[test]
fn two_tasks_take_turns_at_a_lock() {
    let each = "\"loop\": 5, \"lock\": \"m\", \"run\": 10000, \"unlock\": \"m\"";
    let tasks = format!("\"a\": {{ {each} }}, \"b\": {{ {each} }}");
    let found = sim(&file("", &tasks), Tie::Free);
    close(found.result().seconds, 0.1);
    let turns = turns(&found);
    // The first has it when the second asks; from then on it goes from hand to hand.
    assert!(turns[2..].windows(2).all(|two| two[0] != two[1]), "{turns:?}");
    let locks: Vec<_> = found.locks().map(|(_, name, used)| (name, used.taken)).collect();
    assert_eq!(locks, [("anon_vma mutex", 0), ("m", 10)]);
    // Two locks are two.
    let apart = tasks.replacen("\"m\"", "\"n\"", 2);
    close(run("", &apart).seconds, 0.05);
}

#[test]
fn a_barrier_waits_for_all_that_the_file_names_there() {
    let tasks = "\"quick\": { \"instance\": 2, \"loop\": 4, \"run\": 1000, \"barrier\": \"all\" },
        \"slow\": { \"loop\": 4, \"run\": 20000, \"barrier\": \"all\" }";
    close(run("", tasks).seconds, 0.08);
}

#[test]
fn conditions_suspend_and_resume() {
    // The worker goes on when it is told to: 30 ms later, four times.
    let suspend = "\"worker\": { \"loop\": 4, \"suspend\": \"\", \"run\": 5000 },
        \"boss\": { \"loop\": 4, \"run\": 30000, \"resume\": \"worker\" }";
    close(run("", suspend).seconds, 0.125);
    let wait = "\"worker\": { \"loop\": 4, \"lock\": \"m\", \"wait\": { \"ref\": \"c\", \"mutex\": \"m\" }, \"run\": 5000,
        \"unlock\": \"m\" }, \"boss\": { \"loop\": 4, \"run\": 30000, \"lock\": \"m\", \"signal\": \"c\", \"unlock\": \"m\" }";
    close(run("", wait).seconds, 0.125);
    // A signal wakes one of the two, a broadcast both.
    let crowd = |event: &str| {
        let wait = "\"w\": { \"instance\": 2, \"loop\": 1, \"suspend\": \"c\" }";
        let told = file("", &format!("{wait}, \"b\": {{ \"loop\": 1, \"run\": 1000, {event} }}"));
        sim(&told, Tie::Free).stuck()
    };
    assert_eq!(crowd("\"broad\": \"c\""), None);
    assert_eq!(crowd("\"signal\": \"c\"").as_deref(), Some("1 at the condition c"));
    // Ping-pong: each lets the other go and waits.
    let sync = "\"a\": { \"loop\": 3, \"lock\": \"m\", \"sync\": { \"ref\": \"c\", \"mutex\": \"m\" }, \"unlock\": \"m\", \"run\": 10000 },
        \"b\": { \"delay\": 1000, \"loop\": 3, \"lock\": \"m\", \"signal\": \"c\", \"unlock\": \"m\", \"sleep\": 20000 }";
    close(run("", sync).seconds, 0.061);
}

#[test]
fn who_waits_for_ever_is_told_and_a_duration_ends_it() {
    let twice = "\"a\": { \"loop\": 1, \"lock\": \"m\", \"lock2\": \"m\" }";
    let found = sim(&file("", twice), Tie::Free);
    assert_eq!(found.stuck().as_deref(), Some("1 at the lock m"));
    assert!(found.result().unfinished);
    let barriers =
        "\"a\": { \"instance\": 2, \"loop\": 1, \"barrier\": \"b\", \"barrier2\": \"b\" }";
    let found = sim(&file("", barriers), Tie::Free);
    assert_eq!(found.stuck().as_deref(), Some("2 of 4 at the barrier b"));
    let found = sim(&file("\"global\": { \"duration\": 1 },", twice), Tie::Free);
    assert_eq!((found.stuck(), found.result().seconds), (None, 1.0));
    // Who sleeps is not stuck.
    assert_eq!(
        run("", "\"a\": { \"loop\": 1, \"sleep\": 300000, \"barrier\": \"b\" }").operations,
        [1.0]
    );
}

#[test]
fn a_turn_that_takes_no_time_takes_a_little() {
    let idle = "\"a\": { \"loop\": 1000, \"yield\": \"\", \"lock\": \"m\", \"unlock\": \"m\", \"sleep\": 0, \"run\": 0 }";
    let seconds = run("", idle).seconds;
    assert!((1e-3..3e-3).contains(&seconds), "{seconds}");
    let for_ever = run("\"global\": { \"duration\": 1 },", "\"a\": { \"yield\": \"\" }");
    assert_eq!(for_ever.seconds, 1.0);
}

#[test]
fn yielding_lets_others_run() {
    let tasks = |event: &str| {
        format!("\"a\": {{ \"instance\": 2, \"cpus\": [0], \"loop\": 20, \"run\": 1000 {event} }}")
    };
    let switches = |event: &str| turns(&sim(&file("", &tasks(event)), Tie::Free)).len();
    let (with, without) = (switches(", \"yield\": \"\""), switches(""));
    assert!(with > 2 * without, "{with} {without}");
}

#[test]
fn mem_writes_a_buffer_of_its_thread_s_own() {
    // A line of 64 bytes takes 64 ns: 10 MiB into a buffer of 4 take 10.5 ms, and lie where the thread is.
    let tasks = "\"a\": { \"instance\": 2, \"loop\": 10, \"mem\": 10485760 }";
    let found = sim(&file("", tasks), Tie::Free);
    close(found.result().bytes, 2.0 * 10.0 * 10_485_760.0);
    close(found.result().seconds, 0.104_857_6);
    assert_eq!(found.result().local_share, 1.0);
    assert_eq!(found.processes[0].id.tgid, 1);
    let small =
        run("\"global\": { \"mem_buffer_size\": 1000 },", "\"a\": { \"loop\": 1, \"mem\": 2500 }");
    close(small.bytes, 2500.0);
}

#[test]
fn cpus_are_those_that_task_and_phase_name() {
    let phases = "\"one\": { \"run\": 20000 }, \"two\": { \"cpus\": [3], \"run\": 20000 }, \"three\": { \"run\": 20000 }";
    let tasks = format!("\"a\": {{ \"loop\": 1, \"cpus\": [1], \"phases\": {{ {phases} }} }}");
    for tie in [Tie::Free, Tie::Bind, Tie::Inverse] {
        let found = sim(&file("", &tasks), tie);
        let on = found.trace().iter().filter_map(|event| match event {
            crate::engine::TraceEvent::Runs { cpu, .. } => Some(*cpu),
            _ => None,
        });
        let mut on: Vec<u32> = on.collect();
        on.dedup();
        assert_eq!(on, [1, 3, 1], "{tie:?}");
    }
    let beyond = file("", "\"a\": { \"loop\": 1, \"cpus\": [0, 4], \"run\": 1 }");
    let error = Sim::new(&small(), &beyond, Options::default()).err().unwrap().to_string();
    assert_eq!(error, "tasks.a.cpus has CPU 4, and the machine has 4, from 0 on");
}

#[test]
fn bound_threads_lie_with_what_they_go_over() {
    // Two teams of two, each with memory of its own, and one that both read.
    let memory = |name: &str| {
        format!(
            "\"{name}\": {{ \"type\": \"memory\", \"memory_mib\": 16, \"start\": \"one-node\" }}"
        )
    };
    let more =
        format!("\"resources\": {{ {}, {}, {} }},", memory("l"), memory("r"), memory("both"));
    let team = |name: &str| {
        format!(
            "\"{name}s\": {{ \"instance\": 2, \"loop\": 5, \"touch\": {{ \"ref\": \"{name}\", \"memory\": \"slice\" }},
             \"touch2\": {{ \"ref\": \"both\", \"memory\": \"all\", \"range\": [0, 0.25] }} }}"
        )
    };
    let file = file(&more, &format!("{}, {}", team("l"), team("r")));
    let found = |tie| {
        let sim = Sim::new(&small(), &file, Options { tie, ..Options::default() }).unwrap();
        let blocks = &sim.processes[0].blocks;
        let homes =
            |from: usize| blocks[from..from + 8].iter().map(|block| block.home).collect::<Vec<_>>();
        [homes(0), homes(8), homes(16)]
    };
    assert_eq!(found(Tie::Bind), [[0; 8], [1; 8], [0, 1, 0, 1, 0, 1, 0, 1]]);
    assert_eq!(found(Tie::Inverse)[..2], [[1; 8], [0; 8]]);
    assert_eq!(found(Tie::Free), [[0; 8]; 3]);
    assert_eq!(found(Tie::Interleave)[1], [0, 1, 0, 1, 0, 1, 0, 1]);
}

/// Who goes over all of a memory takes no slice from those who share it out.
#[test]
fn who_only_looks_has_no_slice() {
    let touch = |part: &str| format!("\"touch\": {{ \"ref\": \"heap\", \"memory\": \"{part}\" }}");
    let tasks = format!(
        "\"looks\": {{ \"loop\": 1, {} }}, \"shares\": {{ \"instance\": 2, \"loop\": 1, {} }}",
        touch("all"),
        touch("slice")
    );
    let workload = file(HEAP, &tasks);
    assert_eq!(workload.bytes(4), f64::from(2 * (64 << 20)));
    let options = Options { tie: Tie::Bind, ..Options::default() };
    let sim = Sim::new(&small(), &workload, options).unwrap();
    // Of four CPUs, the three threads have the first, the second and the third.
    let homes: Vec<u16> = sim.processes[0].blocks.iter().map(|block| block.home).collect();
    assert_eq!(homes, [vec![0; 16], vec![1; 16]].concat());
}

#[test]
fn the_same_seed_gives_the_same_and_another_one_another() {
    let tasks = "\"a\": { \"instance\": 3, \"loop\": 50, \"touch\": { \"ref\": \"heap\", \"memory\": \"slice\" }, \"lock\": \"m\",
        \"run\": 300, \"unlock\": \"m\" }, \"b\": { \"instance\": 2, \"loop\": 50, \"mem\": 100000, \"sleep\": 100, \"yield\": \"\" }";
    let workload = file(HEAP, tasks);
    let of = |seed| {
        let options = Options { seed, trace: true, ..Options::default() };
        let mut sim = Sim::new(&small(), &workload, options).unwrap();
        (sim.finish(), sim.trace().to_vec())
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1).0.seconds, of(2).0.seconds);
}

#[test]
fn threads_that_vanish_leave_locks_and_others_to_go_on() {
    use crate::engine::Mishap;
    let tasks = "\"a\": { \"instance\": 3, \"loop\": 20, \"lock\": \"m\", \"run\": 5000, \"unlock\": \"m\", \"sleep\": 100 }";
    let mishaps = (0..2).map(|t| (20_000_000 + t as u64, Mishap::Vanishes(t))).collect();
    let options = Options { mishaps, ..Options::default() };
    let mut sim = Sim::new(&small(), &file("", tasks), options).unwrap();
    let run = sim.finish();
    assert!(!run.unfinished && sim.stuck().is_none(), "{run:?}");
    assert!((0.1..0.2).contains(&run.seconds), "{}", run.seconds);
}

#[test]
fn a_crowd_that_wakes_together_is_no_deep_recursion() {
    let tasks = "\"a\": { \"instance\": 20000, \"loop\": 2, \"barrier\": \"all\", \"sleep\": 10 }";
    assert_eq!(run("", tasks).operations, [40_000.0]);
}

#[test]
fn what_takes_too_many_steps_or_too_long_is_told_before_it_begins() {
    let says = |more: &str, tasks: &str| match Sim::new(
        &small(),
        &file(more, tasks),
        Options::default(),
    ) {
        Ok(_) => "it runs".into(),
        Err(error) => error.to_string(),
    };
    let long =
        says("\"global\": { \"duration\": 100000 },", "\"a\": { \"instance\": 10, \"run\": 1 }");
    assert!(long.starts_with("its threads go over") && long.contains("global.duration"), "{long}");
    let sleeps = says("", "\"a\": { \"loop\": 1000000, \"sleep\": 1000000 }");
    assert!(sleeps.contains("1000000 simulated seconds at least"), "{sleeps}");
    // A duration ends it before.
    let ended = "\"a\": { \"loop\": 1000000, \"sleep\": 1000000 }";
    assert_eq!(says("\"global\": { \"duration\": 100 },", ended), "it runs");
    let large = HEAP.replace("64", "600000");
    let large = says(
        &large,
        "\"a\": { \"loop\": 1, \"touch\": { \"ref\": \"heap\", \"memory\": \"all\" } }",
    );
    assert!(large.contains("does not fit the machine: process 0 needs 600000 MiB"), "{large}");
}

/// Steps are told about as many as there are.
#[test]
fn steps_are_those_that_a_run_takes() {
    use crate::workload::Pace;
    for (more, tasks) in [
        ("", "\"a\": { \"instance\": 3, \"loop\": 40, \"run\": 5000, \"sleep\": 100 }"),
        (
            "\"global\": { \"duration\": 3 },",
            "\"a\": { \"run\": 5000, \"timer\": { \"ref\": \"unique\", \"period\": 9000 } }",
        ),
        (
            HEAP,
            "\"a\": { \"instance\": 4, \"loop\": 60, \"touch\": { \"ref\": \"heap\", \"memory\": \"slice\" } }",
        ),
    ] {
        let file = file(more, tasks);
        let told = file.process[0].programs.as_ref().unwrap().steps(&Pace::of(&small()));
        let run = run(more, tasks);
        let ratio = told / (run.events as f64 - run.seconds / 0.02);
        assert!((0.6..=1.6).contains(&ratio), "{ratio} {tasks}");
    }
}
