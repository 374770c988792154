//! A wrong machine or workload file is told with its path, line, field and what was expected, and
//! nothing is simulated. One row for each mistake that people make.

mod told;

use numaherd_sim::{Machine, Workload};
use told::{Row, amiss};

const MACHINE: &str = "\
title = \"two nodes\"
[cpu]
threads_per_core = 2
smt_speedup_percent = 125
[sim]
stream_mb_s = 1000
work_ns = 5
[sim.kernel]
fault_ns = 900
[memory]
bandwidth_mb_s = [3000, 3000]
[links]
bandwidth_mb_s = 10000
between = [[0, 1]]
[[node]]
id = 0
cpus = 2
memory_mib = 64
[[node]]
id = 1
cpus = 2
memory_mib = 64
[distance]
slit = [[10, 21], [21, 10]]
latency_ns = [[100, 200], [200, 100]]
[llc]
bytes = 4_000_000
latency_ns = 20
cpus = 2
";

/// What is replaced by what; the line and the field that are told; what was expected.
const MACHINES: &[Row] = &[
    ("title = \"two nodes\"\n", "", 1, "title", "missing"),
    ("title = \"two nodes\"", "title = 7", 1, "title", "a string, found integer `7`"),
    ("threads_per_core = 2", "threads_per_core = 0", 3, "cpu.threads_per_core", "a divisor"),
    (
        "threads_per_core = 2",
        "threads_per_core = 3",
        3,
        "cpu.threads_per_core",
        "every node's cpus",
    ),
    (
        "per_core = 2",
        "per_core = -1",
        3,
        "cpu.threads_per_core",
        "1 to 4294967295, found integer `-1`",
    ),
    ("threads_per_core = 2", "threads = 2", 3, "cpu", "`threads_per_core`"),
    ("percent = 125", "percent = 90", 4, "cpu.smt_speedup_percent", "100 to 200"),
    ("percent = 125", "percent = \"fast\"", 4, "cpu.smt_speedup_percent", "a number, found string"),
    ("stream_mb_s = 1000", "stream_mb_s = -1", 6, "sim.stream_mb_s", "above 0, found -1"),
    ("stream_mb_s = 1000", "stream_mb_s = nan", 6, "sim.stream_mb_s", "above 0"),
    ("stream_mb_s = 1000\n", "", 5, "sim.stream_mb_s", "missing"),
    ("work_ns = 5", "work_ns = 64", 7, "sim.work_ns", "0 to the 64.0 ns of a whole line"),
    ("fault_ns = 900", "fault_ns = -9", 9, "sim.kernel.fault_ns", "0 or more, found integer `-9`"),
    ("fault_ns = 900", "fault_ns = 9000000000", 9, "sim.kernel.fault_ns", "at most 1e9"),
    ("fault_ns = 900", "walk_ns = -3.0", 9, "sim.kernel.walk_ns", "0 to 1e9"),
    ("fault_ns = 900", "faults_ns = 900", 9, "sim.kernel", "`fault_ns`"),
    ("[3000, 3000]", "[3000]", 11, "memory.bandwidth_mb_s", "one figure or 2, found 1"),
    ("[3000, 3000]", "[3000, 0]", 11, "memory.bandwidth_mb_s", "above 0"),
    ("[3000, 3000]", "\"much\"", 11, "memory.bandwidth_mb_s", "a number or a list of numbers"),
    ("4_000_000", "0", 27, "llc.bytes", "above 0, found 0"),
    ("4_000_000", "4_000_000\nsets = 64", 28, "llc", "`sets`"),
    ("latency_ns = 20", "latency_ns = -1", 28, "llc.latency_ns", "above 0, found -1"),
    ("latency_ns = 20\n", "", 26, "llc", "missing"),
    ("latency_ns = 20", "latency_ns = 1e300", 28, "llc.latency_ns", "the 100.0 ns of the nearest"),
    ("4_000_000", "1e300", 27, "llc.bytes", "at most the 128 MiB that all nodes have"),
    ("stream_mb_s = 1000", "stream_mb_s = 1e300", 6, "sim.stream_mb_s", "at most 1e9, found 1e300"),
    ("[3000, 3000]", "[3000, 1e300]", 11, "memory.bandwidth_mb_s", "at most 1e9, found 1e300"),
    ("mb_s = 10000", "mb_s = 1e300", 13, "links.bandwidth_mb_s", "at most 1e9, found 1e300"),
    (
        "[[100, 200]",
        "[[100, 1e9]",
        25,
        "distance.latency_ns",
        "25.4 times the way back, which is 200",
    ),
    (
        "200], [200, 100]]",
        "200], [1e-9, 1e-9]]",
        25,
        "distance.latency_ns",
        "0.1 or more, found 1e-9",
    ),
    ("id = 1", "id = 4000000000", 20, "node.id", "0 to 1023, found 4000000000"),
    (
        "[distance]",
        "[coherence]\ntransfer_ns = [[9, 1e300], [9, 9]]\n[distance]",
        24,
        "coherence.transfer_ns",
        "at most 1e9, found 1e300",
    ),
    (
        "[sim]\nstream_mb_s = 1000\nwork_ns = 5\n[sim.kernel]\nfault_ns = 900\n[memory]",
        "instructions_per_second = 1e-300\n[memory]",
        5,
        "cpu.instructions_per_second",
        "10000 or more",
    ),
    ("20\ncpus = 2", "20\ncpus = 3", 29, "llc.cpus", "a divisor of every node's cpus"),
    ("between = [[0, 1]]", "between = [[0, 7]]", 14, "links.between", "found [0, 7]"),
    ("between = [[0, 1]]", "between = []", 14, "links.between", "connect all nodes"),
    ("between = [[0, 1]]", "between = [[0, 1], [1, 0]]", 14, "links.between", "each pair once"),
    ("between = [[0, 1]]", "between = [[0]]", 14, "links.between", "2"),
    ("id = 1", "id = -1", 20, "node.id", "0 to 1023, found integer `-1`"),
    ("id = 1", "id = 0", 20, "node.id", "ascending"),
    ("id = 1", "id = 0x", 20, "node.id", ""),
    ("cpus = 2", "cpus = \"two\"", 17, "node.cpus", "a whole number, 0 or more, found string"),
    ("cpus = 2", "cpus = 2000000", 17, "node.cpus", "1 to 4096 in all"),
    (
        "memory_mib = 64\n[[node]]\nid = 1\ncpus = 2",
        "memory_mib = 0\n[[node]]\nid = 1\ncpus = 0",
        17,
        "node.cpus",
        "a node with both CPUs and memory",
    ),
    ("cpus = 2\n", "", 15, "node.cpus", "missing"),
    ("memory_mib = 64", "memory_mib = 1.5", 18, "node.memory_mib", "found floating point `1.5`"),
    ("memory_mib = 64", "memory_mib = 9999999999", 18, "node.memory_mib", "at most 2^30"),
    ("[[10, 21], [21, 10]]", "[[10, 21]]", 24, "distance.slit", "2 rows of 2"),
    ("[[10, 21], [21, 10]]", "[[10, 21], [21, 20]]", 24, "distance.slit", "10 on the diagonal"),
    ("[[10, 21], [21, 10]]", "[[10, 9], [9, 10]]", 24, "distance.slit", "11 to 254"),
    ("[[100, 200]", "[[300, 200]", 25, "distance.latency_ns", "nothing nearer"),
    (
        "[200, 100]]",
        "[200, 2e9]]",
        25,
        "distance.latency_ns",
        "at the most, nothing nearer than a node's own memory, found 2e9",
    ),
    ("[[100, 200]", "[[0, 200]", 25, "distance.latency_ns", "above 0"),
    (
        "[distance]",
        "[coherence]\ntransfer_ns = [[9]]\n[distance]",
        24,
        "coherence.transfer_ns",
        "2 rows of 2",
    ),
    (
        "[distance]",
        "[coherence]\ntransfer_ns = [[9, 0], [9, 9]]\n[distance]",
        24,
        "coherence.transfer_ns",
        "above 0",
    ),
    ("[distance]", "[coherence]\ntransfer = 9\n[distance]", 24, "coherence", "`transfer_ns`"),
    ("latency_ns = [[100, 200], [200, 100]]", "latency = 5", 25, "distance", "`latency_ns`"),
    (
        "[links]\nbandwidth_mb_s = 10000",
        "[links] # both\nbandwidth_mb_s = -2",
        13,
        "links.bandwidth_mb_s",
        "found -2",
    ),
    (
        "[distance]",
        "[prefetch]\nload_overlap = -5\n[distance]",
        24,
        "prefetch.load_overlap",
        "1 to 64",
    ),
    ("[distance]", "[prefetch]\nstores_overlap = 3\n[distance]", 24, "prefetch", "`load_overlap`"),
    ("[distance]", "[distance", 23, "", "unclosed table"),
];

const WORKLOAD: &str = "\
title = \"mine\"
[[process]]
copies = 2
at_once = 1
threads = 4
memory_mib = 64
start = \"first-touch\"
bind = \"thread\"
lines_per_operation = 10.0
[[process.phase]]
memory = \"all\"
times = 5
sleep_ms = 1.0
[[process.phase]] # the second
memory = \"slice\"
seconds = 2.0
";

/// What is wrong with kinds that come after each other, in the second one's table.
#[test]
fn kinds_that_cannot_come_after_each_other_are_told() {
    let phase = "[[process.phase]]\nmemory = \"all\"\ntimes = 1\n";
    let kind = |more: &str| format!("[[process]]\n{more}\nthreads = 1\nmemory_mib = 2\n{phase}");
    for (second, field, expected) in [
        ("name = \"cc\"", "process.name", "a name that no other has"),
        ("after = \"ld\"\nname = \"ld\"", "process.after", "further up"),
        ("at_once = 2\nafter = \"cc\"", "process.at_once", "none: it comes in the places of cc"),
        ("each = 9\nafter = \"cc\"", "process.each", "1 to 8, as there are copies of cc"),
        (
            "copies = 4\nafter = \"cc\"\neach = 3",
            "process.copies",
            "at most 3, one for each 3 of cc",
        ),
    ] {
        let text = format!("title = \"t\"\n{}{}", kind("name = \"cc\"\ncopies = 8"), kind(second));
        let said = Workload::parse("w", "w.toml", &text).unwrap_err().to_string();
        // Nine lines before it, and its head: of two fields that are wrong together the first is told.
        let told = said.contains(&format!(" {field}: ")) && said.contains(expected);
        assert!(said.starts_with("w.toml:11: ") && told, "{said}");
    }
}

const WORKLOADS: &[Row] = &[
    ("title = \"mine\"\n", "", 1, "title", "missing"),
    ("copies = 2", "copies = 0", 3, "process.copies", "1 to 10000"),
    ("copies = 2", "copy = 2", 3, "process", "`copies`"),
    ("copies = 2", "copies = \"two\"", 3, "process.copies", "a whole number, 0 or more"),
    ("at_once = 1", "at_once = 0", 4, "process.at_once", "above 0"),
    ("at_once = 1", "after = \"it\"", 4, "process.after", "further up, found \"it\""),
    ("at_once = 1", "each = 2", 4, "process.each", "after"),
    ("threads = 4\n", "", 2, "process.threads", "or process.threads_per_cpu, one of them"),
    ("threads = 4", "", 2, "process.threads", "one of them"),
    ("threads = 4", "threads = 0", 5, "process.threads", "1 to 1000000"),
    ("threads = 4", "threads = -2", 5, "process.threads", "1 to 1000000, found integer `-2`"),
    ("threads = 4", "threads = 900000", 5, "process.threads", "at most 1000000 in all"),
    ("threads = 4", "threads_per_cpu = -0.5", 5, "process.threads_per_cpu", "above 0"),
    ("threads = 4", "threads_per_cpu = nan", 5, "process.threads_per_cpu", "at most 100"),
    ("memory_mib = 64", "memory_mib = 1", 6, "process.memory_mib", "2 to 16777216"),
    ("memory_mib = 64\n", "", 2, "process.memory_mib", "missing"),
    ("\"first-touch\"", "\"anywhere\"", 7, "process.start", "`one-node`"),
    ("bind = \"thread\"", "bind = 1", 8, "process.bind", ""),
    ("operation = 10.0", "operation = 0.0", 9, "process.lines_per_operation", "above 0"),
    ("memory = \"all\"", "memory = \"most\"", 11, "process.phase.memory", "`file`, found"),
    ("memory = \"all\"\n", "", 10, "process.phase.memory", "missing"),
    ("times = 5", "times = 0", 12, "process.phase.times", "above 0"),
    ("times = 5", "times = 5\nseconds = 1.0", 12, "process.phase.times", "no times"),
    ("times = 5", "times = -5", 12, "process.phase.times", "found integer `-5`"),
    ("sleep_ms = 1.0", "sleep_ms = -1.0", 13, "process.phase.sleep_ms", "0 to 1e8"),
    ("sleep_ms = 1.0", "sleep_ms = 1e300", 13, "process.phase.sleep_ms", "0 to 1e8, found 1e300"),
    ("sleep_ms = 1.0", "work = 1e4", 13, "process.phase.work", "0 to 1e3"),
    (
        "bind = \"thread\"",
        "groups = [4000000000]",
        8,
        "process.groups",
        "at most 1000000, found 4000000000",
    ),
    ("bind = \"thread\"", "rounds = 4294967295", 8, "process.rounds", "ten minutes to simulate"),
    ("times = 5", "times = 4294967295", 12, "process.phase.times", "at the most, which takes ten"),
    ("at_once = 1", "at_once = 4000000000", 4, "process.at_once", "at most 10000"),
    ("operation = 10.0", "operation = 1e13", 9, "process.lines_per_operation", "at most 1e12"),
    (
        "copies = 2\nat_once = 1\nthreads = 4\nmemory_mib = 64",
        "copies = 100\nthreads = 4\nmemory_mib = 16777216",
        5,
        "process.memory_mib",
        "with all copies at most 268435456 in all at a time, found 16777216",
    ),
    ("sleep_ms = 1.0", "compute_ns = inf", 13, "process.phase.compute_ns", "0 to 1e9"),
    ("bind = \"thread\"", "groups = []", 8, "process.groups", "sizes above 0"),
    ("bind = \"thread\"", "groups = [3, 0]", 8, "process.groups", "sizes above 0"),
    ("bind = \"thread\"", "shared = 1.0", 8, "process.shared", "not including, 1"),
    ("bind = \"thread\"", "rounds = 0", 8, "process.rounds", "above 0"),
    ("bind = \"thread\"", "hinting_faults = 0", 8, "process.hinting_faults", "true or false"),
    ("\"all\"", "\"shared-part\"", 11, "process.phase.memory", "shared above 0"),
    ("times = 5", "operations = 0", 12, "process.phase.operations", "above 0"),
    (
        "lines_per_operation = 10.0\n[[process.phase]]\nmemory = \"all\"\ntimes = 5",
        "[[process.phase]]\nmemory = \"all\"\noperations = 5",
        11,
        "process.phase.operations",
        "lines_per_operation",
    ),
    ("times = 5", "times = 5\noperations = 5", 12, "process.phase.times", "no times"),
    ("sleep_ms = 1.0", "range = [0.5, 0.5]", 13, "process.phase.range", "ascending"),
    ("sleep_ms = 1.0", "range = [0.5]", 13, "process.phase.range", "length 2"),
    ("sleep_ms = 1.0", "work = -1.0", 13, "process.phase.work", "0 to 1e3"),
    ("sleep_ms = 1.0", "loops = 0.0", 13, "process.phase.loops", "at most 1"),
    ("sleep_ms = 1.0", "loops = 0.5", 13, "process.phase.loops", "1 together"),
    (
        "sleep_ms = 1.0",
        "writes = \"no\"",
        13,
        "process.phase.writes",
        "true or false, found string",
    ),
    ("seconds = 2.0", "seconds = 0.0", 16, "process.phase.seconds", "above 0"),
    (
        "sleep_ms = 1.0",
        "writes = no # not",
        13,
        "process.phase.writes",
        "true or false, a number or a list, found no",
    ),
    ("sleep_ms = 1.0", "writes =", 13, "process.phase.writes", "found nothing"),
    ("memory = \"slice\"", "memory = slice", 15, "process.phase.memory", "text in quotes"),
    ("seconds = 2.0", "seconds = 2.0\nnice = 5", 17, "process.phase", "`sleep_ms`"),
    (
        "\"all\"",
        "\"file\"",
        11,
        "process.phase.memory",
        "file with the phase's file, the name of a",
    ),
    ("times = 5", "file = \"f\"\ntimes = 5", 12, "process.phase.file", "with memory = \"file\""),
    ("times = 5", "part = \"all\"\ntimes = 5", 12, "process.phase.part", "with memory = \"file\""),
    ("times = 5", "part = \"half\"\ntimes = 5", 12, "process.phase.part", "`slice`, found"),
    (
        "\"all\"",
        "\"file\"\nfile = \"f\"",
        12,
        "process.phase.file",
        "the name of a [[file]], found \"f\"",
    ),
];

const FILES: &str = "\
title = \"mine\"
[[file]]
name = \"sources\"
mib = 64
start = \"one-node\"
[[file]] # what is made of them
name = \"objects\"
mib = 16
[[process]]
threads = 4
memory_mib = 64
[[process.phase]]
memory = \"file\"
file = \"sources\"
part = \"slice\"
range = [0.2, 0.4]
times = 5
[[process.phase]]
memory = \"file\"
file = \"objects\"
times = 5
";

const WRONG_FILES: &[Row] = &[
    ("name = \"objects\"\n", "", 6, "file.name", "missing"),
    ("name = \"objects\"", "name = 7", 7, "file.name", "a string"),
    ("name = \"objects\"", "name = \"\"", 7, "file.name", "a name, found \"\""),
    ("name = \"objects\"", "name = \"sources\"", 7, "file.name", "a name that no other file has"),
    ("mib = 16\n", "", 6, "file.mib", "missing"),
    ("mib = 16", "mib = 0", 8, "file.mib", "1 to 16777216, found 0"),
    ("mib = 16", "mib = 16777217", 8, "file.mib", "1 to 16777216, found 16777217"),
    ("mib = 16", "mib = -1", 8, "file.mib", "0 or more, found integer `-1`"),
    ("mib = 16", "mib = 16\nsize = 5", 9, "file", "`start`"),
    ("\"one-node\"", "\"own-thread\"", 5, "file.start", "`interleave`, found"),
    ("\"one-node\"", "5", 5, "file.start", ""),
    ("file = \"sources\"", "file = \"source\"", 14, "process.phase.file", "found \"source\""),
    ("file = \"sources\"\n", "", 13, "process.phase.memory", "the phase's file"),
    (
        "file = \"sources\"",
        "file = \"objects\"",
        3,
        "file.name",
        "a phase goes over, found \"sources\"",
    ),
    ("file = \"objects\"", "file = [\"objects\"]", 20, "process.phase.file", "a string"),
    ("0.4]", "1.4]", 16, "process.phase.range", "0 to 1"),
    ("[0.2, 0.4]", "[0.4, 0.4]", 16, "process.phase.range", "ascending"),
    ("part = \"slice\"", "part = \"next-slice\"", 15, "process.phase.part", "`slice`, found"),
    ("times = 5", "times = 1_000_000_000", 17, "process.phase.times", "ten minutes to simulate"),
];

#[test]
fn a_wrong_machine_is_told_with_file_line_field_and_what_was_expected() {
    Machine::parse("m", "m.toml", MACHINE).unwrap();
    let wrong = amiss(MACHINE, "m.toml", MACHINES, |text| {
        Machine::parse("m", "m.toml", text).expect_err(text).to_string()
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_wrong_workload_is_told_with_file_line_field_and_what_was_expected() {
    Workload::parse("w", "w.toml", WORKLOAD).unwrap();
    Workload::parse("w", "w.toml", FILES).unwrap();
    let said = |text: &str| Workload::parse("w", "w.toml", text).expect_err(text).to_string();
    let mut wrong = amiss(WORKLOAD, "w.toml", WORKLOADS, said);
    wrong.extend(amiss(FILES, "w.toml", WRONG_FILES, said));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Without `[sim]` a thread's speed follows from other figures, one of which is to blame.
#[test]
fn a_speed_that_follows_from_other_figures_is_told_at_those() {
    let of_lab = |speed: &str, latency_ns: &str| {
        let own = "[sim]\nstream_mb_s = 1000\nwork_ns = 5\n[sim.kernel]\nfault_ns = 900\n";
        let speed = format!("instructions_per_second = {speed}\n");
        let text = MACHINE.replace(own, &speed).replace("[[100, 200], [200, 100]]", latency_ns);
        Machine::parse("m", "m.toml", &text).expect_err(latency_ns).to_string()
    };
    let far = of_lab("1e9", "[\n[3e8, 3e8],\n[3e8, 2e8]]");
    let so = "so that a thread writes 0.001 MB/s or more to the nearest memory, found 2e8";
    assert_eq!(far, format!("m.toml:23: expected distance.latency_ns: {so}"));
    let near = of_lab("1e9", "[[1e-300, 1], [1, 1e-300]]");
    assert_eq!(near, "m.toml:21: expected distance.latency_ns: 0.1 or more, found 1e-300");
}

/// Text cut off anywhere is either sound or told with a line; it never panics.
#[test]
fn a_file_that_was_cut_off_is_told_too() {
    for end in (0..MACHINE.len()).filter(|&end| MACHINE.is_char_boundary(end)) {
        if let Err(error) = Machine::parse("m", "m.toml", &MACHINE[..end]) {
            assert!(error.to_string().starts_with("m.toml:"), "{error}");
        }
    }
    for sound in [WORKLOAD, FILES] {
        for end in (0..sound.len()).filter(|&end| sound.is_char_boundary(end)) {
            if let Err(error) = Workload::parse("w", "w.toml", &sound[..end]) {
                assert!(error.to_string().starts_with("w.toml:"), "{error}");
            }
        }
    }
}
