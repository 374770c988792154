//! A wrong file of rt-app's kind is told with its path, line, field, what was expected and what is there, and nothing is
//! simulated. One row for each mistake that people make, and a great many that nobody does.

mod told;

use numaherd_sim::{Parameters, Workload};
use told::{Row, amiss};

const FILE: &str = r#"{
    /* a comment
       of two lines */
    "global": {
        "duration": 10, // seconds
        "calibration": "CPU0",
        "default_policy": "SCHED_OTHER",
        "mem_buffer_size": 4194304,
        "logdir": "./",
        "gnuplot": false
    },
    "resources": {
        "heap": {
            "type": "memory",
            "memory_mib": 64,
            "start": "own-thread"
        },
        "m0": { "type": "mutex" }
    },
    "tasks": {
        "worker": {
            "instance": 4,
            "loop": 3,
            "delay": 100,
            "priority": -5,
            "cpus": [0, 1],
            "phases": {
                "load": {
                    "loop": 2,
                    "run0": 1000,
                    "runtime": 500,
                    "sleep": 10,
                    "touch": {
                        "ref": "heap",
                        "memory": "slice",
                        "times": 3,
                        "range": [0.0, 0.5],
                        "writes": false,
                        "scattered": true,
                        "compute_ns": 2.5
                    },
                    "timer": { "ref": "unique", "period": 9000, "mode": "absolute" }
                },
                "talk": {
                    "lock": "m0",
                    "mem": 4096,
                    "wait": { "ref": "c", "mutex": "m0" },
                    "unlock": "m0",
                    "barrier": "b",
                    "yield": ""
                }
            }
        },
        "other": {
            "run": 10,
            "suspend",
            "signal": "c"
        },
    }
}
"#;

/// What is replaced by what; the line and the field that are told; what was expected, and what is there.
const WRONG: &[Row] = &[
    // The file itself.
    (
        "\"tasks\": {",
        "\"task\": {",
        20,
        "in the file",
        "one of global, resources, tasks, found \"task\"",
    ),
    ("\"duration\": 10,", "\"duration\": 10", 6, "sound JSON", "a comma or }, found '\"'"),
    (
        "\"duration\": 10,",
        "\"duration\" 10,",
        5,
        "sound JSON",
        "a colon after \"duration\", found '1'",
    ),
    ("of two lines */", "of two lines", 2, "sound JSON", "*/ at a comment's end"),
    ("\"loop\": 2,", "\"loop\": two,", 29, "sound JSON", "found two"),
    ("\"./\"", "\"./", 9, "sound JSON", "a quote at the text's end"),
    (
        "\"signal\": \"c\"\n        },\n    }\n}",
        "\"signal\": \"c\"\n        },\n    }",
        60,
        "sound JSON",
        "a comma or }, found the end",
    ),
    // What is global.
    (
        "\"duration\": 10",
        "\"duration\": 0",
        5,
        "global.duration",
        "seconds, 1 to 100000, or -1, found 0",
    ),
    ("\"duration\": 10", "\"duration\": 1.5", 5, "global.duration", "found 1.5"),
    ("\"duration\": 10", "\"duration\": \"long\"", 5, "global.duration", "found \"long\""),
    ("\"duration\": 10", "\"duration\": 100001", 5, "global.duration", "found 100001"),
    ("\"duration\": 10", "\"durations\": 10", 5, "global", "one of duration, mem_buffer_size"),
    (
        "\"duration\": 10",
        "\"duration\": 10, \"duration\": 9",
        5,
        "global.duration",
        "once, found it on line 5, too",
    ),
    (
        "\"SCHED_OTHER\"",
        "\"SCHED_FIFO\"",
        7,
        "global.default_policy",
        "the only policy that is simulated, found \"SCHED_FIFO\"",
    ),
    ("\"CPU0\"", "{}", 6, "global.calibration", "text or a number, found {}"),
    ("4194304", "0", 8, "global.mem_buffer_size", "a whole number, 64 to 2147483647, found 0"),
    ("\"logdir\": \"./\"", "\"logdir\": 7", 9, "global.logdir", "text in quotes, found 7"),
    ("\"gnuplot\": false", "\"gnuplot\": 0", 10, "global.gnuplot", "true or false, found 0"),
    // Resources.
    (
        "\"type\": \"memory\"",
        "\"type\": \"heap\"",
        14,
        "resources.heap.type",
        "memory or one of mutex, wait",
    ),
    (
        "\"type\": \"memory\",",
        "\"type\": \"mutex\",",
        34,
        "tasks.worker.phases.load.touch.ref",
        "one of resources, of the type memory, found \"heap\"",
    ),
    (
        "\"memory_mib\": 64",
        "\"memory_mib\": 1",
        15,
        "resources.heap.memory_mib",
        "2 to 16777216, found 1",
    ),
    (
        "\"memory_mib\": 64",
        "\"mib\": 64",
        15,
        "resources.heap",
        "one of type, memory_mib, start, found \"mib\"",
    ),
    ("\"memory_mib\": 64,", "", 13, "resources.heap.memory_mib", "missing"),
    (
        "\"own-thread\"",
        "\"placed\"",
        16,
        "resources.heap.start",
        "first-touch, one-node or own-thread, found \"placed\"",
    ),
    ("{ \"type\": \"mutex\" }", "7", 18, "resources.m0", "an object, found 7"),
    (
        "{ \"type\": \"mutex\" }",
        "{ \"type\": \"mutex\" },\n\"rest\": {\n\"type\": \"memory\", \"memory_mib\": 2 }",
        19,
        "resources.rest",
        "memory that a touch goes over",
    ),
    ("\"m0\": {", "\"heap\": {", 18, "resources.heap", "once, found it on line 13, too"),
    // Tasks.
    (
        "\"instance\": 4",
        "\"instance\": -1",
        22,
        "tasks.worker.instance",
        "0 to 2147483647, found -1",
    ),
    (
        "\"instance\": 4",
        "\"instance\": 1000001",
        22,
        "tasks.worker.instance",
        "at most 1000000 threads",
    ),
    (
        "\"instance\": 4",
        "\"instances\": 4",
        22,
        "tasks.worker",
        "one of instance, delay, phases, loop",
    ),
    ("\"loop\": 3", "\"loop\": 0", 23, "tasks.worker.loop", "1 to 2147483647, or -1, found 0"),
    (
        "\"loop\": 3",
        "\"loop\": 3, \"loop\": 4",
        23,
        "tasks.worker.loop",
        "once, found it on line 23, too",
    ),
    ("\"delay\": 100", "\"delay\": -100", 24, "tasks.worker.delay", "found -100"),
    ("\"priority\": -5", "\"priority\": \"low\"", 25, "tasks.worker.priority", "found \"low\""),
    (
        "\"priority\": -5",
        "\"policy\": \"SCHED_DEADLINE\"",
        25,
        "tasks.worker.policy",
        "the only policy",
    ),
    (
        "\"priority\": -5",
        "\"nodes_membind\": [0]",
        25,
        "tasks.worker.nodes_membind",
        "none: say where memory lies",
    ),
    ("\"priority\": -5", "\"run\": 5", 25, "tasks.worker.run", "none beside phases"),
    ("\"cpus\": [0, 1]", "\"cpus\": []", 26, "tasks.worker.cpus", "CPUs' numbers, found []"),
    ("\"cpus\": [0, 1]", "\"cpus\": 1", 26, "tasks.worker.cpus", "a list, found 1"),
    ("\"cpus\": [0, 1]", "\"cpus\": [0,\n-1]", 27, "tasks.worker.cpus", "0 to 65535, found -1"),
    ("\"other\"", "\"worker\"", 54, "tasks.worker", "once, found it on line 21, too"),
    // Phases.
    ("\"loop\": 2", "\"loop\": -2", 29, "tasks.worker.phases.load.loop", "or -1, found -2"),
    ("\"loop\": 2", "\"instance\": 2", 29, "tasks.worker.phases.load", "one of loop, cpus"),
    ("\"talk\"", "\"load\"", 44, "tasks.worker.phases.load", "once, found it on line 28, too"),
    // Events.
    ("\"run0\": 1000", "\"ruin\": 1000", 30, "tasks.worker.phases.load", "run, sleep, mem"),
    (
        "\"run0\": 1000",
        "\"run0\": \"1000\"",
        30,
        "tasks.worker.phases.load.run0",
        "a whole number, 0 to 2147483647, found \"1000\"",
    ),
    ("\"run0\": 1000", "\"run0\": 1e3", 30, "tasks.worker.phases.load.run0", "found 1e3"),
    ("\"run0\": 1000", "\"run0\"", 30, "tasks.worker.phases.load.run0", "found nothing"),
    (
        "\"run0\": 1000",
        "\"run0\": 3000000000",
        30,
        "tasks.worker.phases.load.run0",
        "found 3000000000",
    ),
    ("\"runtime\": 500", "\"runtime\": null", 31, "tasks.worker.phases.load.runtime", "found null"),
    ("\"sleep\": 10", "\"sleep\": -10", 32, "tasks.worker.phases.load.sleep", "found -10"),
    (
        "\"sleep\": 10",
        "\"iorun\": 10",
        32,
        "tasks.worker.phases.load.iorun",
        "iorun is not simulated, but runtime, run, sleep",
    ),
    (
        "\"sleep\": 10",
        "\"fork\": \"other\"",
        32,
        "tasks.worker.phases.load.fork",
        "fork is not simulated",
    ),
    (
        "\"ref\": \"heap\"",
        "\"ref\": \"stack\"",
        34,
        "tasks.worker.phases.load.touch.ref",
        "found \"stack\"",
    ),
    ("\"ref\": \"heap\",", "", 33, "tasks.worker.phases.load.touch.ref", "missing"),
    (
        "\"memory\": \"slice\"",
        "\"memory\": \"half\"",
        35,
        "tasks.worker.phases.load.touch.memory",
        "all, slice or next-slice, found \"half\"",
    ),
    ("\"memory\": \"slice\",", "", 33, "tasks.worker.phases.load.touch.memory", "missing"),
    (
        "\"times\": 3",
        "\"times\": 0",
        36,
        "tasks.worker.phases.load.touch.times",
        "1 to 2147483647, found 0",
    ),
    (
        "[0.0, 0.5]",
        "[0.5, 0.5]",
        37,
        "tasks.worker.phases.load.touch.range",
        "ascending, 0 to 1, found [0.5, 0.5]",
    ),
    (
        "[0.0, 0.5]",
        "[0.0, 1.5]",
        37,
        "tasks.worker.phases.load.touch.range",
        "a number, 0 to 1, found 1.5",
    ),
    ("[0.0, 0.5]", "[0.5]", 37, "tasks.worker.phases.load.touch.range", "two parts of it"),
    (
        "\"writes\": false",
        "\"writes\": \"no\"",
        38,
        "tasks.worker.phases.load.touch.writes",
        "true or false, found \"no\"",
    ),
    (
        "\"writes\": false",
        "\"write\": false",
        38,
        "tasks.worker.phases.load.touch",
        "one of ref, memory, times",
    ),
    (
        "\"compute_ns\": 2.5",
        "\"compute_ns\": -1",
        40,
        "tasks.worker.phases.load.touch.compute_ns",
        "found -1",
    ),
    ("\"period\": 9000, ", "", 42, "tasks.worker.phases.load.timer.period", "missing"),
    (
        "\"absolute\"",
        "\"sometimes\"",
        42,
        "tasks.worker.phases.load.timer.mode",
        "relative or absolute, found \"sometimes\"",
    ),
    (
        "\"ref\": \"unique\"",
        "\"reference\": \"unique\"",
        42,
        "tasks.worker.phases.load.timer",
        "one of ref, period, mode",
    ),
    (
        "{ \"ref\": \"unique\", \"period\": 9000, \"mode\": \"absolute\" }",
        "9000",
        42,
        "tasks.worker.phases.load.timer",
        "an object, found 9000",
    ),
    (
        "\"lock\": \"m0\"",
        "\"lock\": 0",
        45,
        "tasks.worker.phases.talk.lock",
        "text in quotes, found 0",
    ),
    ("\"mem\": 4096", "\"mem\": \"all\"", 46, "tasks.worker.phases.talk.mem", "found \"all\""),
    (
        "\"ref\": \"c\", \"mutex\": \"m0\"",
        "\"ref\": \"c\"",
        47,
        "tasks.worker.phases.talk.wait.mutex",
        "missing",
    ),
    (
        "\"barrier\": \"b\"",
        "\"barrier\": [\"b\"]",
        49,
        "tasks.worker.phases.talk.barrier",
        "text in quotes, found [\"b\"]",
    ),
    (
        "\"yield\": \"\"",
        "\"yield\": 1",
        50,
        "tasks.worker.phases.talk.yield",
        "which may be empty, found 1",
    ),
    (
        "\"run\": 10,\n            \"suspend\",\n            \"signal\": \"c\"",
        "\"loop\": 1",
        54,
        "tasks.other",
        "an event: runtime, run",
    ),
    // What unlocks what its thread does not hold.
    ("\"lock\": \"m0\",", "", 48, "tasks.worker.phases.talk.unlock", "holds then, found \"m0\""),
    // What goes on for ever.
    (
        "\"duration\": 10",
        "\"duration\": -1",
        54,
        "tasks.other.loop",
        "without global.duration, which ends what goes on for ever; found -1",
    ),
];

fn said(text: &str) -> String {
    let error = Workload::parse_rt_app("f", "f.json", text).expect_err(text).to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn the_file_that_all_are_made_of_is_sound() {
    let workload = Workload::parse_rt_app("f", "f.json", FILE).unwrap();
    assert_eq!((workload.process[0].threads, workload.process[0].memory_mib), (Some(5), 64 + 16));
    let programs = workload.process[0].programs.as_ref().unwrap();
    assert_eq!(programs.passed_over, ["priority"]);
    let names: Vec<&str> = programs.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["worker", "other"]);
}

#[test]
fn a_wrong_file_is_told_with_line_and_field() {
    for (from, ..) in WRONG {
        assert_eq!(FILE.matches(from).count(), 1, "{from}");
    }
    let wrong = amiss(FILE, "f.json", WRONG, said);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_wrong_as_a_whole_is_told_too() {
    for (text, expected) in [
        ("", "f.json:1: expected sound JSON: a value, found the end of the file"),
        ("[]", "f.json:1: expected the file: an object, found []"),
        ("{}", "f.json:1: expected tasks, which is missing"),
        (
            "{\n\"tasks\": {} }",
            "f.json:2: expected tasks: a task, of one instance at least, found {}",
        ),
        ("{\"tasks\": {\"a\": 1}}", "f.json:1: expected tasks.a: an object, found 1"),
        (
            "{\"tasks\": {\"a\": {\"phases\": {}}}}",
            "f.json:1: expected tasks.a.phases: a phase, found {}",
        ),
        (
            "{\"tasks\": {\"a\": {\"loop\": 1,\n\"phases\": {\"p\": {\"loop\": -1, \"run\": 1}}}}}",
            "f.json:1: expected tasks.a.phases.p.loop: how often, without global.duration",
        ),
        // In its second turn the phase holds nothing any more.
        (
            "{\"tasks\": {\"a\": {\"loop\": 1,\"phases\": {\"p\": {\"lock\": \"m\"},\n\"q\": {\"loop\": 2, \"unlock0\": \"m\"}}}}}",
            "f.json:2: expected tasks.a.phases.q.unlock0: a lock that its thread holds then, found \"m\"",
        ),
        (
            "{\"tasks\": {\"a\": {\"loop\": 1, \"lock\": \"m\",\n\"run\": 1}, \"b\": {\"loop\": 1, \"unlock\": \"m\"}}}",
            "f.json:2: expected tasks.b.unlock",
        ),
        ("{\"tasks\": {\"a\\u001b\": 1}}", "f.json:1: expected tasks.a\\u001b: an object, found 1"),
    ] {
        let told = said(text);
        assert!(told.starts_with(expected), "{told}");
    }
}

/// Whatever is cut out, doubled or put in: it is read, or told in one line, and what is read can be resized.
#[test]
fn no_text_makes_the_reader_panic() {
    let pieces = [
        "",
        "}",
        "{",
        "\"",
        ",",
        ":",
        "-1",
        "[",
        "]",
        "/*",
        "\\",
        "9999999999999999999",
        "null",
        "é",
        "\n",
        "\"run\": 1,",
    ];
    let bounds: Vec<usize> = (0..=FILE.len()).filter(|&at| FILE.is_char_boundary(at)).collect();
    let mut sound = 0;
    for (number, &at) in bounds.iter().enumerate() {
        let piece = pieces[number % pieces.len()];
        let end = bounds[(number + number % 7).min(bounds.len() - 1)];
        for text in [
            FILE[..at].to_string(),
            format!("{}{piece}{}", &FILE[..at], &FILE[at..]),
            format!("{}{piece}{}", &FILE[..at], &FILE[end..]),
        ] {
            match Workload::parse_rt_app("f", "f.json", &text) {
                Ok(workload) => {
                    sound += 1;
                    assert!(workload.bytes(4) >= 0.0);
                    let to = Parameters { loops: Some(2), ..Parameters::default() };
                    workload.resized(to).unwrap();
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.starts_with("f.json:") && !error.contains('\n'), "{error}");
                }
            }
        }
    }
    assert!(sound > 100, "{sound}");
}

#[test]
fn what_a_command_line_changes_is_done_or_refused_in_one_line() {
    let parse = |text: &str| Workload::parse_rt_app("f", "f.json", text).unwrap();
    let says = |text: &str, to| parse(text).resized(to).unwrap_err().to_string();
    let threads = Parameters { threads: Some(7), ..Parameters::default() };
    let size = Parameters { size_bytes: Some(8 << 20), ..Parameters::default() };
    let loops = Parameters { loops: Some(5), ..Parameters::default() };
    let one = r#"{"tasks": {"a": {"loop": 1, "touch": {"ref": "h", "memory": "all"}}},
        "resources": {"h": {"type": "memory", "memory_mib": 2}}}"#;
    assert_eq!(parse(one).resized(threads).unwrap().process[0].threads, Some(7));
    assert_eq!(parse(one).resized(size).unwrap().process[0].memory_mib, 8);
    let all = Parameters { threads: Some(2), size_bytes: Some(4 << 20), ..loops };
    assert_eq!(parse(one).resized(all).unwrap().bytes(4), f64::from(2 * 5 * (4 << 20)));
    assert!(says(FILE, threads).contains("change their instance"));
    let none = r#"{"tasks": {"a": {"loop": 1, "run": 1, "mem": 5}}}"#;
    assert!(says(none, size).contains("this one has 0"));
    let for_ever = FILE.replace("\"loop\": 2", "\"loop\": -1");
    assert!(says(&for_ever, loops).contains("load of worker goes on for ever"));
}
