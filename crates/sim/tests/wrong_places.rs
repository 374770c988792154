//! What is wrong is told at its own line: in whichever of several tables it is, and however the file is written.

use numaherd_sim::{Machine, Workload};

/// What is said of a wrong file, without its name.
fn said(text: &str, is_machine: bool) -> String {
    let error = if is_machine {
        Machine::parse("f", "f.toml", text).map(|_| ())
    } else {
        Workload::parse("f", "f.toml", text).map(|_| ())
    };
    let said = error.expect_err(text).to_string();
    assert!(!said.contains('\n'), "{said}");
    said.strip_prefix("f.toml:").expect("the file's name").into()
}

/// The line that is told, and the field.
fn place(text: &str, is_machine: bool) -> (usize, String) {
    let said = said(text, is_machine);
    let (line, rest) = said.split_once(": expected ").expect("a line");
    let field = rest.split([':', ' ']).next().unwrap_or_default();
    (line.parse().expect("a number"), field.into())
}

const MACHINE: &str = "\
title = \"three nodes\"
[cpu]
threads_per_core = 2
[sim]
stream_mb_s = 1000
[memory]
bandwidth_mb_s = [
  3000,
  3000,
  3000,
]
[links]
bandwidth_mb_s = 10000
between = [
  [0, 1],
  [1, 2],
]
[[node]]
id = 0
cpus = 2
memory_mib = 64
[[node]]
id = 1
cpus = 2
memory_mib = 64
[[node]]
id = 2
cpus = 2
memory_mib = 64
[distance]
slit = [
  [10, 20, 20],
  [20, 10, 20],
  [20, 20, 10],
]
latency_ns = [
  [100, 200, 200],
  [200, 100, 200],
  [200, 200, 100],
]
";

/// A file with one of its lines, from 1, written otherwise.
fn with_line(text: &str, number: usize, line: &str) -> String {
    let lines = text.lines().zip(1..).map(|(old, at)| if at == number { line } else { old });
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn what_is_wrong_in_a_later_table_or_row_of_a_machine_is_told_there() {
    Machine::parse("f", "f.toml", MACHINE).unwrap();
    let wrong = [
        (9, "  0,", "memory.bandwidth_mb_s"),
        (10, "  \"fast\",", "memory.bandwidth_mb_s"),
        (10, "  1e300,", "memory.bandwidth_mb_s"),
        (16, "  [1, 3],", "links.between"),
        (16, "  [1, 0],", "links.between"),
        (16, "  [1, 0, 2],", "links.between"),
        (23, "id = 0", "node.id"),
        (27, "id = 5000", "node.id"),
        (24, "cpus = 5000", "node.cpus"),
        (28, "cpus = \"2\"", "node.cpus"),
        (29, "memory_mib = 9999999999", "node.memory_mib"),
        (29, "memory_mb = 64", "node"),
        (33, "  [20, 11, 20],", "distance.slit"),
        (34, "  [20, 9, 10],", "distance.slit"),
        (34, "  [20, 10],", "distance.slit"),
        (38, "  [200, 100, 99],", "distance.latency_ns"),
        (39, "  [1e10, 200, 100],", "distance.latency_ns"),
        (39, "  [200, \"far\", 100],", "distance.latency_ns"),
        (39, "  [200, 9000, 100],", "distance.latency_ns"),
        (39, "  [200, 200],", "distance.latency_ns"),
    ];
    for (line, text, field) in wrong {
        let told = place(&with_line(MACHINE, line, text), true);
        assert_eq!(told, (line, field.into()), "{text}");
    }
}

const WORKLOAD: &str = "\
title = \"two kinds\"
[[process]]
threads = 4
memory_mib = 64
[[process.phase]]
memory = \"all\"
times = 5
[[process.phase]]
memory = \"slice\"
times = 5
[[process]]
threads = 4
memory_mib = 64
groups = [
  3,
  1,
]
[[process.phase]]
memory = \"all\"
times = 5
[[process.phase]]
memory = \"slice\"
range = [0, 1]
times = 5
";

#[test]
fn what_is_wrong_in_a_later_process_or_phase_is_told_there() {
    Workload::parse("f", "f.toml", WORKLOAD).unwrap();
    let wrong = [
        (10, "times = 0", "process.phase.times"),
        (12, "threads = 0", "process.threads"),
        (12, "", "process.threads"),
        (12, "threads = 1000000", "process.threads"),
        (13, "memory_mib = 1", "process.memory_mib"),
        (16, "  0,", "process.groups"),
        (16, "  -1,", "process.groups"),
        (20, "times = 0", "process.phase.times"),
        (22, "memory = \"shared-part\"", "process.phase.memory"),
        (22, "memory = \"most\"", "process.phase.memory"),
        (23, "range = [1, 0]", "process.phase.range"),
        (24, "operations = 5", "process.phase.operations"),
        (24, "times = 5\nwork = nan", "process.phase.work"),
        (24, "time = 5", "process.phase"),
    ];
    for (line, text, field) in wrong {
        let told = place(&with_line(WORKLOAD, line, text), false);
        // Which of two is missing is told at the table's head.
        let head = if text.is_empty() { 11 } else { line + text.matches('\n').count() };
        assert_eq!(told, (head, field.into()), "{text}");
    }
}

#[test]
fn what_is_wrong_in_a_later_file_or_its_phase_is_told_there() {
    let files = "[[file]]\nname = \"a\"\nmib = 4\n[[file]]\nname = \"b\"\nmib = 4\n";
    let phase = "[[process.phase]]\nmemory = \"file\"\nfile = \"a\"\ntimes = 5\n";
    // Files may come last: 25 lines before them, with two phases of the second process that go over them.
    let second = phase.replace("\"a\"", "\"b\"");
    let text = format!("{WORKLOAD}{phase}{second}{files}");
    Workload::parse("f", "f.toml", &text).unwrap();
    for (line, wrong, field) in [
        (26, "memory = \"all\"", "process.phase.file"),
        (27, "file = \"c\"", "process.phase.file"),
        (30, "memory = \"slice\"", "process.phase.file"),
        (31, "file = \"c\"", "process.phase.file"),
        (31, "part = \"all\"", "process.phase.memory"),
        (34, "name = \"b\"", "file.name"),
        (37, "name = \"a\"", "file.name"),
        (38, "mib = 0", "file.mib"),
        (38, "mb = 4", "file"),
    ] {
        let told = place(&with_line(&text, line, wrong), false);
        // A name that two files have is told at the second, and a phase without its file at its memory.
        let at = match (line, wrong) {
            (26, _) => 27,
            (30, _) => 31,
            (31, "part = \"all\"") => 30,
            (34, _) => 37,
            _ => line,
        };
        assert_eq!(told, (at, field.into()), "{wrong}");
    }
    // One that nobody goes over.
    let idle = text.replace("file = \"b\"", "file = \"a\"");
    assert_eq!(place(&idle, false), (37, "file.name".into()));
}

#[test]
fn however_a_file_is_written_the_line_is_right() {
    let end = "threads = 1\nmemory_mib = 2\n";
    let wrong = [
        (format!("title='t'\n[[process]]\n{end}[[ process . phase ]]\nmemory='all'\ntimes=0\n"), 7),
        (
            format!(
                "title='t'\n[[process]]\n{end}[[process.'phase']]\nmemory='all'\n\"times\"=0\n"
            ),
            7,
        ),
        (format!("title='t'\n[[process]]\n{end}phase=[\n{{memory='all',\ntimes = 0}}]\n"), 7),
        (
            format!(
                "title='t'\n[[process]]\n{end}phase=[{{memory='all',times=1}},\n{{memory='all',times=0}}]\n"
            ),
            6,
        ),
        (
            "title='t'\nprocess=[\n{threads=1,memory_mib=2,phase=[{memory='all',\ntimes=0}]}]\n"
                .into(),
            4,
        ),
        // What looks like a table, and is text.
        (
            format!(
                "title='''\n[[process]]\ntimes=1\n'''\n[[process]]\n{end}[[process.phase]]\nmemory='all'\ntimes=0"
            ),
            10,
        ),
    ];
    for (text, line) in wrong {
        assert_eq!(place(&text, false), (line, "process.phase.times".into()), "{text}");
    }
    let nodes = MACHINE.find("[[node]]").unwrap()..MACHINE.find("[distance]").unwrap();
    let inline = "node = [{id=0,cpus=2,memory_mib=64},\n# [[node]]\n{id=1,cpus=2,memory_mib=64},\n";
    let last = "{id=2,\ncpus=2,\n'memory_mib'=9999999999}]\n";
    let mut text = MACHINE.to_string();
    text.replace_range(nodes, "");
    let text = format!("{inline}{last}{text}");
    assert_eq!(place(&text, true), (6, "node.memory_mib".into()), "{text}");
    let dotted = MACHINE.replace("[sim]\nstream_mb_s = 1000\n", "").replace(
        "[cpu]\n",
        "sim.stream_mb_s = 1000\nsim.kernel.move_ns = 1\nsim.kernel.rmap_ns = 2\n[cpu]\n",
    );
    assert_eq!(place(&dotted, true), (4, "sim.kernel.rmap_ns".into()), "{dotted}");
    assert_eq!(place(&MACHINE.replace('\n', "\r\n").replace("id = 2", "id = 1"), true).0, 27);
}

/// Where the figures of a line are, of one that is a list or a part of one.
fn figures(line: &str) -> Vec<std::ops::Range<usize>> {
    let list = line.split_once(" = ").map_or(line, |(_, value)| value);
    if !list.trim_start().starts_with(['[', '0', '1', '2', '3']) || list.contains("[[n") {
        return Vec::new();
    }
    let from = line.len() - list.len();
    let end = line[from..].find('#').map_or(line.len(), |at| from + at);
    let starts = (from..end).filter(|&at| {
        let is_digit = |at: usize| line.as_bytes()[at].is_ascii_digit();
        is_digit(at) && !(at > 0 && (is_digit(at - 1) || b"._".contains(&line.as_bytes()[at - 1])))
    });
    let of = |start: usize| {
        let rest = &line[start..end];
        let len = rest.find(|c: char| !(c.is_ascii_digit() || "._".contains(c)));
        start..start + len.unwrap_or(rest.len())
    };
    starts.map(of).collect()
}

/// Each field of each file that comes with numaherd, made wrong one at a time.
#[test]
fn every_field_of_every_built_in_file_is_told_at_its_line() {
    let machines = Machine::names().map(|name| (name, Machine::built_in_text(name), true));
    let workloads = Workload::names().map(|name| (name, Workload::built_in_text(name), false));
    let mut told_figures = 0;
    for (name, text, is_machine) in machines.chain(workloads) {
        let text = text.expect(name);
        let mut table = "";
        for (line, number) in text.lines().zip(1..) {
            if line.starts_with('[') {
                table = line.split(']').next().unwrap_or_default().trim_start_matches('[');
            }
            let all = figures(line);
            let ends = all.first().into_iter().chain(all.last().filter(|_| all.len() > 1));
            for figure in ends.cloned() {
                let mut wrong = line.to_string();
                wrong.replace_range(figure, "-1");
                let told = place(&with_line(text, number, &wrong), is_machine);
                assert_eq!(told.0, number, "{name}:{number} ({wrong}): {told:?}");
                told_figures += 1;
            }
            let Some((key, value)) = line.split_once(" = ").filter(|(key, _)| !key.contains('#'))
            else {
                continue;
            };
            // What only the emulated machine looks at.
            if table == "cache" || key == "ways" {
                continue;
            }
            let is_text = value.starts_with('"');
            let is_list = value.starts_with('[');
            let mut wrong = vec![format!("{key} = {}", if is_text { "7" } else { "\"x\"" })];
            wrong.push(format!("{key}_ = 1"));
            wrong.push(format!("{key} = {{ a = 1 }}"));
            if !is_text && !is_list && !["true", "false"].contains(&value) {
                wrong.extend(["-1", "1e300", "nan"].map(|figure| format!("{key} = {figure}")));
            }
            for line in wrong {
                // A list of several lines cannot be replaced by its first, nor one of provenance be unknown.
                let goes_on = is_list && value.trim_end().ends_with(['[', ',']);
                if goes_on || table == "provenance" && line.contains("_ = ") {
                    continue;
                }
                let told = place(&with_line(text, number, &line), is_machine);
                let missing = line.contains("_ = 1");
                assert!(told.0 == number, "{name}:{number} ({line}): {told:?}, missing {missing}");
            }
        }
    }
    assert!(told_figures > 100, "{told_figures} figures in lists");
}
