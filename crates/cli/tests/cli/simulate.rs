//! `simulate`: the contract of its output, the same bytes for the same seed, and what wrong files
//! are told.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{numaherd, repository, run, written};

const QUICK: [&str; 6] = ["--loops", "2", "--size", "64M", "--seed", "7"];

fn simulate(workload: &str, machine: &str, placement: &str, more: &[&str]) -> Vec<String> {
    let words = ["simulate", workload, "--machine", machine, "--placement", placement];
    words.iter().chain(&QUICK).chain(more).map(ToString::to_string).collect()
}

fn output(words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run(&mut numaherd(&words)).ends_with(0).stdout
}

/// JSON has compare's names, so that whatever reads one reads the other.
#[test]
fn json_is_that_of_compare() {
    let told = output(&simulate("numa02", "2x4", "off,bind,inverse", &["-o", "json"]));
    let json: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&json["workload"], &json["machine"]), (&"numa02".into(), &"sim:2x4".into()));
    let inverse = &json["placements"][2];
    assert_eq!(inverse["name"], "inverse");
    assert_eq!(inverse["local_share_source"], "simulator");
    // 2x4: a line in 200 ns locally and in 400 ns remotely, and nobody waits for memory.
    let ratio = inverse["ratio_to_bind"].as_f64().unwrap();
    assert!((1.9..2.1).contains(&ratio), "{ratio}");
}

/// The same seed gives the same bytes; another seed another run.
#[test]
fn the_same_seed_gives_the_same_bytes() {
    let words = simulate("numa01", "numacore", "off,interleave", &["-o", "csv"]);
    assert_eq!(output(&words), output(&words));
    let other = words.iter().map(|w| if w == "7" { "8".to_string() } else { w.clone() });
    assert_ne!(output(&words), output(&other.collect::<Vec<_>>()));
}

/// The same bytes however many runs go on beside it, in every format: table, JSON with call graph,
/// trace and page.
#[test]
fn runs_in_parallel_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let one = |number: usize| {
        let path = |kind: &str| dir.path().join(format!("{number}.{kind}")).display().to_string();
        let (trace, page) = (path("json"), path("html"));
        let more =
            ["-o", "json", "--callgraph", "--thp", "off", "--trace", &trace, "--html", &page];
        let told = output(&simulate("numa01", "numacore", "herd", &more));
        [told, std::fs::read_to_string(trace).unwrap(), std::fs::read_to_string(page).unwrap()]
    };
    let all: Vec<[String; 3]> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..6)
            .map(|number| {
                scope.spawn({
                    let one = &one;
                    move || one(number)
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert!(all.iter().all(|told| *told == all[0]), "runs differ");
}

/// The machine and the workload of docs/simulator.md, as they stand there, on one's own.
#[test]
fn the_documentation_s_own_files_run() {
    let page = std::fs::read_to_string(repository("docs/simulator.md")).unwrap();
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).map(|b| b.split("```").next().unwrap()).collect();
    let with =
        |words: &[&str]| *blocks.iter().find(|b| words.iter().all(|w| b.contains(w))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| written(&dir, name, text);
    let machine = write("my.toml", with(&["[distance]"]));
    let workload = write("my-workload.toml", with(&["[[process.phase]]"]));
    let inverse = output(&simulate("numa02", &machine, "bind,inverse", &[]));
    assert!(inverse.contains("sim:my"), "{inverse}");
    let words = ["simulate", &workload, "--machine", &machine, "--placement", "off,mainline,herd"];
    let words: Vec<String> =
        words.iter().chain(&["--loops", "2"]).map(ToString::to_string).collect();
    assert!(output(&words).contains("my-workload on sim:my"));
}

/// The rt-app file of docs/simulator.md is the one that comes with numaherd; every placement and every way to look at
/// a run takes it.
#[test]
fn the_documentation_s_rt_app_file_runs() {
    let page = std::fs::read_to_string(repository("docs/simulator.md")).unwrap();
    let block = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let path = repository("workloads/rt-app/teams.json");
    assert_eq!(block, std::fs::read_to_string(&path).unwrap());
    let path = path.display().to_string();
    let placements = "off,bind,inverse,interleave,autonuma,numacore-v18,balancenuma,mainline,herd";
    for thp in ["on", "off"] {
        let words = ["simulate", &path, "--machine", "numacore", "--placement", placements];
        let more = ["--thp", thp, "--callgraph", "-o", "json"];
        let words: Vec<String> = words.iter().chain(&more).map(ToString::to_string).collect();
        let told = output(&words);
        assert_eq!(told, output(&words));
        let json: serde_json::Value = serde_json::from_str(&told).unwrap();
        let all = json["placements"].as_array().unwrap();
        assert_eq!(all.len(), placements.split(',').count());
        for placement in all {
            assert_eq!(placement["throughput"]["unit"], "operations/s", "{placement}");
        }
        let seconds = |i: usize| all[i]["seconds"]["median"].as_f64().unwrap();
        let local = |i: usize| all[i]["local_share"].as_f64().unwrap();
        // Bound, they are done sooner than with their memory elsewhere, and so they are with herd than without.
        assert!(1.1 * seconds(1) < seconds(2) && 1.1 * seconds(8) < seconds(0), "{json}");
        assert!(local(1) > 0.9 && local(2) < 0.1, "{json}");
    }
    let compare = ["compare", &path, "--on", "sim:numacore", "--runs", "1"];
    let table = output(&compare.map(String::from));
    assert!(table.contains("teams on sim:numacore"), "{table}");
    let dir = tempfile::tempdir().unwrap();
    // Of what it was told, what is not given its file says; an earlier one that was told something else is refused.
    let again = [&compare[..], &["--placements", "off,bind", "-o", "json"]].concat();
    let earlier = output(&again.iter().map(ToString::to_string).collect::<Vec<_>>());
    let json: serde_json::Value = serde_json::from_str(&earlier).unwrap();
    let parameters = serde_json::json!({"threads": 9, "loops": null, "seconds": null, "thp": null});
    assert_eq!(json["parameters"], parameters);
    let earlier = written(&dir, "earlier.json", &earlier);
    let again = [&again[..], &["--against", &earlier]].concat();
    assert!(run(&mut numaherd(&again)).ends_with(0).json()["against"].is_object());
    let less = [&again[..], &["--loops", "2"]].concat();
    run(&mut numaherd(&less)).refuses(1, &["--threads 9 --loops 2", "do not compare"]);
    let [trace, nodes] = ["t.json", "n.html"].map(|name| dir.path().join(name));
    let shown = [&trace, &nodes].map(|path| path.display().to_string());
    let one = ["simulate", &path, "--machine", "2x4", "--placement", "herd"];
    let one = [&one[..], &["--trace", &shown[0], "--html", &shown[1]]].concat();
    run(&mut numaherd(&one)).ends_with(0);
    assert!(trace.exists() && nodes.exists());
}

/// What is passed over, what is wrong, and what never ends is told in a line.
#[test]
fn an_rt_app_file_that_cannot_run_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let words = |path: &str, more: &[&str]| {
        let words = ["simulate", path, "--machine", "2x4", "--placement", "off"];
        words.iter().chain(more).map(ToString::to_string).collect::<Vec<_>>()
    };
    let ends = |text: &str, more: &[&str]| {
        let path = written(&dir, "f.json", text);
        let words = words(&path, more);
        run(&mut numaherd(&words.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let task =
        |events: &str| format!("{{\n\"tasks\": {{ \"a\": {{ \"loop\": 2, {events} }} }}\n}}");
    let nice = ends(&task("\"priority\": -5, \"run\": 100"), &[]).ends_with(0);
    assert!(nice.stderr.contains("f.json: priority passed over"), "{}", nice.stderr);
    ends(&task("\"run\": true"), &[]).refuses(1, &["f.json:2: expected tasks.a.run", "found true"]);
    ends(&task("\"fork\": \"b\""), &[]).refuses(1, &["f.json:2", "fork is not simulated"]);
    ends(&task("\"suspend\": \"\""), &[])
        .refuses(1, &["wait for each other for ever, 1 at the condition a"]);
    ends(&task("\"cpus\": [8], \"run\": 1"), &[]).refuses(1, &["tasks.a.cpus has CPU 8"]);
    ends(&task("\"run\": 1"), &["--size", "64M"]).refuses(1, &["--size", "this one has 0"]);
    let placed = ["compare", "f.json", "--on", "lab"];
    run(&mut numaherd(&placed)).refuses(2, &["sim:"]);
}

/// The call graph shows where tasks block, and its JSON stands beside the comparison.
#[test]
fn a_call_graph_shows_where_tasks_block() {
    let words = |format| {
        [
            "simulate",
            "numa02",
            "--machine",
            "numacore",
            "--placement",
            "numacore-v18",
            "--thp",
            "off",
            "--loops",
            "80",
            "--callgraph",
            "-o",
            format,
        ]
        .map(String::from)
    };
    let json: serde_json::Value = serde_json::from_str(&output(&words("json"))).unwrap();
    assert_eq!(json["workload"], "numa02");
    let graph = &json["callgraphs"][0];
    let of = |name: &str| {
        let points = graph["blocked"].as_array().unwrap();
        points.iter().find(|point| point["name"] == name).unwrap()["share"].as_f64().unwrap()
    };
    // Published: 50.6 % and 49.4 %. Five seeds of this short run come to 45.8 to 46.9 %.
    let (walk, lock) = (of("rmap_walk"), of("page_lock_anon_vma"));
    assert!((walk + lock - 1.0).abs() < 1e-9 && (0.4..0.6).contains(&walk), "{walk} {lock}");
    assert!(graph["locks"][0]["waited_share"].as_f64().unwrap() > 0.03, "{graph}");
    let table = output(&words("table"));
    assert_eq!(graph["run"], 1);
    assert!(table.contains("numacore-v18, run 1: where"), "{table}");
    assert!(table.contains("where tasks blocked") && table.contains("anon_vma mutex, process 1"));
    let words = words("csv");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run(&mut numaherd(&words)).refuses(2, &["--callgraph", "-o json"]);
}

/// A machine can be a text, and a file of either kind of machine.
#[test]
fn a_machine_can_be_anything_that_has_nodes() {
    output(&simulate("numa02", "node:4 core:2", "bind", &[]));
    let path = repository("machines/documents/numacore.toml");
    output(&simulate("numa02", path.to_str().unwrap(), "bind", &[]));
    let folder = repository("fixtures/snc2");
    output(&simulate("numa02", folder.to_str().unwrap(), "bind", &[]));
}

/// As many nodes as Linux can have, each linked with each; and no more.
#[test]
fn a_machine_can_have_a_thousand_nodes() {
    let words = |machine, placements| {
        let words = ["simulate", "numa02", "--machine", machine, "--placement", placements];
        words
            .iter()
            .chain(&["--size", "3G", "--loops", "1", "-o", "json"])
            .map(ToString::to_string)
            .collect()
    };
    let told: Vec<String> = words("node:1024 core:1", "bind,herd");
    let json: serde_json::Value = serde_json::from_str(&output(&told)).unwrap();
    // Each node's memory is known for its own, by whatever number.
    assert_eq!(json["placements"][0]["local_share"], 1.0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.json").display().to_string();
    let node = |id: u32, cpus: String| serde_json::json!({"id": id, "cpus": cpus, "memory": 1 << 30, "free": 0});
    let many: Vec<_> = (0..1025).map(|id| node(id, id.to_string())).collect();
    // Of more nodes than Linux has, the file's line is told, before anything is made of them.
    let too_many = ["m.json:1: expected nodes: 1 to 1024", "found 1025"];
    let too_wide = ["m cannot be simulated", "65537 CPUs"];
    for (nodes, told) in [(many, too_many), (vec![node(0, "0-65536".into())], too_wide)] {
        let json = serde_json::json!({"nodes": nodes, "distances": []});
        std::fs::write(&path, json.to_string()).unwrap();
        let words: Vec<String> = words(&path, "off");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run(&mut numaherd(&words)).refuses(1, &told);
    }
}

/// One name is one placement in all that is printed: given twice, by whatever names, its runs would be told
/// as those of one. What has two names in a comparison is told under both.
#[test]
fn a_placement_is_given_once() {
    let simulate = |placements: &str, told: &[&str]| {
        let words = ["simulate", "numa02", "--machine", "2x4", "--placement", placements];
        run(&mut numaherd(&words)).refuses(2, told);
    };
    simulate(
        "off,default",
        &["off is given twice", "default and upstream mean the same", "--runs"],
    );
    simulate("bind,off,bind", &["bind is given twice: give it once"]);
    simulate("kernel,mainline", &["mainline is given twice (kernel means the same)"]);
    for on in ["sim:2x4", "lab", "host"] {
        let words = ["compare", "numa02", "--on", on, "--placements", "upstream,bind,default"];
        run(&mut numaherd(&words)).refuses(2, &["off is given twice", "default and upstream"]);
    }
    let words = ["compare", "numa02", "--on", "sim:2x4", "--placements", "autonuma,autonuma"];
    run(&mut numaherd(&words)).refuses(2, &["autonuma is given twice: give it once"]);
}

/// A mechanism of a kernel's balancing can be left out like a part of herd, of whichever placement has it; a name
/// that none has is told with those there are.
#[test]
fn a_mechanism_is_left_out_of_what_has_it() {
    // What each placement took and moved, the same scheduler beside all.
    let csv = |without: &[&str]| -> Vec<String> {
        let words = ["simulate", "numa01", "--machine", "numacore", "--size", "512M", "--loops"];
        let more = without.iter().flat_map(|name| ["--without", name]);
        let words = words.into_iter().chain(["100", "-o", "csv", "--placement"]);
        let words = words.chain(["mainline,balancenuma,herd"]).chain(more);
        let told = run(&mut numaherd(&words.collect::<Vec<_>>())).ends_with(0).stdout;
        told.lines().skip(1).map(String::from).collect()
    };
    let whole = csv(&[]);
    let differs = |without: &[&str]| -> Vec<bool> {
        whole.iter().zip(csv(without)).map(|(whole, without)| *whole != without).collect()
    };
    // The kernel beside herd is another thing than the kernel.
    assert_eq!(differs(&["mappings"]), [true, false, false]);
    assert_eq!(differs(&["mappings", "pages"]), [true, false, true]);
    let refuses = |placements: &str, without: &str, told: &[&str]| {
        let words = ["simulate", "numa02", "--machine", "2x4", "--placement", placements];
        run(numaherd(&words).args(["--without", without])).refuses(2, told);
    };
    refuses("mainline,off", "luck", &["--without luck", "has groups, swaps", "off has none"]);
    refuses("numacore-v17", "flips", &["--without flips", "numacore-v17 has none"]);
    refuses("numacore-v18", "pages", &["has directed, flips, compression, one-fault, convergence"]);
    let help = run(&mut numaherd(&["simulate", "--help"])).ends_with(0).stdout;
    assert!(help.contains("compression") && help.contains("bandwidth"), "{help}");
}

/// The page fault test is simulated as `reproduce` does for its published tables, with pages where a placement
/// has them.
#[test]
fn page_faults_are_those_of_the_published_tables() {
    let json = |words: &[&str]| -> serde_json::Value {
        let told = run(&mut numaherd(&[words, &["-o", "json"]].concat())).ends_with(0);
        serde_json::from_str(&told.stdout).unwrap()
    };
    let table = json(&["reproduce", "pft-anon-vma-policy", "--runs", "1"]);
    let cells = table["tables"][0]["cells"].as_array().unwrap();
    let ours = |row: &str, column: &str| {
        let cell = cells.iter().find(|cell| cell["row"] == row && cell["column"] == column);
        cell.unwrap()["simulated"].as_f64().unwrap()
    };
    let pft = ["simulate", "pft", "--machine", "proliant-585", "-m", "1g"];
    for (more, rework) in [(&[][..], ""), (&["--rework"], ", rework")] {
        let told = json(&[&pft[..], &["-t", "4", "--policy"], more].concat());
        let row = &told["placements"][0];
        let is = |field: &str, column: String| {
            let off = row[field].as_f64().unwrap() / ours("4", &column) - 1.0;
            assert!(off.abs() < 1e-9, "{field}: {off}");
        };
        is("faults_per_cpu_second", format!("per CPU s{rework}"));
        is("faults_per_wall_second", format!("per s{rework}"));
        assert_eq!((&told["pages"], &told["workers"]), (&262_144.into(), &4.into()));
    }
    // First touch is on one's own node. Elsewhere clearing takes longer; interleaved pages besides are on lists, and in
    // memories, at which threads meet.
    let words = ["-t", "4", "--placement", "off,bind,inverse,interleave"];
    let told = json(&[&pft[..], &words].concat());
    let wall = |i: usize| told["placements"][i]["wall_seconds"].as_f64().unwrap();
    assert!(wall(0) == wall(1) && wall(3) > wall(1) && wall(2) > wall(1), "{told}");
    let text = run(&mut numaherd(&[&pft[..], &words].concat())).ends_with(0);
    assert!(text.stdout.contains("flt/cpu/s") && text.stderr.is_empty(), "{text}");
    // Of another machine it is guessed what a fault takes alone, unless that is told.
    let other = ["simulate", "pft", "--machine", "2x4"];
    run(&mut numaherd(&other)).ends_with(0).tells(&["guessed", "proliant-585", "--alone"]);
    let told = json(&[&other[..], &["--alone", "20000"]].concat());
    let each = told["placements"][0]["cpu_seconds"].as_f64().unwrap() / 16384.0;
    assert!((each / 20e-6 - 1.0).abs() < 0.01, "{each}");
    let refuses = |code, more: &[&str], told: &[&str]| {
        run(&mut numaherd(&[&other[..], more].concat())).refuses(code, told);
    };
    refuses(2, &["--placement", "mainline"], &["'mainline'", "off, bind, inverse, interleave"]);
    // What help offers is taken.
    let help = run(&mut numaherd(&["simulate", "pft", "--help"])).ends_with(0).stdout;
    assert!(help.contains("- interleave:") && !help.contains("herd:"), "{help}");
    refuses(2, &["--placement", "off,default"], &["off is given twice"]);
    refuses(1, &["-t", "9"], &["9 threads", "2x4 has 8"]);
    let one = ["simulate", "pft", "--machine", "node:1 core:2", "--placement", "inverse"];
    run(&mut numaherd(&one)).refuses(1, &["two nodes"]);
    let late = ["simulate", "--machine", "2x4", "pft", "--placement", "off"];
    run(&mut numaherd(&late)).refuses(2, &["pft has options of its own"]);
}

/// A trace says who ran where.
#[test]
fn a_trace_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    output(&simulate("numa02", "2x4", "off", &["--trace", path.to_str().unwrap()]));
    let page = std::fs::read_to_string(path).unwrap();
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let events = page["traceEvents"].as_array().unwrap();
    let ran = events.iter().filter(|event| event["ph"] == "X");
    let cpus: std::collections::BTreeSet<u64> =
        ran.filter_map(|event| event["tid"].as_u64()).collect();
    assert_eq!(cpus, (0..8).collect());
}

/// A page shows nodes over time, and herd's moves with their reasons.
#[test]
fn a_page_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.html");
    let words = ["simulate", "numa01", "--machine", "2x4", "--placement", "herd", "--size", "64M"];
    let more = ["--loops", "40", "--html", path.to_str().unwrap()];
    let words = words.iter().chain(&more);
    output(&words.map(ToString::to_string).collect::<Vec<_>>());
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains("<svg") && page.contains("node 1") && page.contains("process&nbsp;2"));
    assert!(page.contains("Where tasks spent their time") && page.contains("user code"));
    assert!(page.contains("place task") && page.contains("of what it uses"), "{page}");
    let two = ["simulate", "numa02", "--machine", "2x4", "--placement", "off,bind", "--html", "x"];
    run(&mut numaherd(&two)).refuses(2, &["--html", "one run"]);
}

/// The page counts memory of files, as one more that has memory.
#[test]
fn a_page_shows_files() {
    let dir = tempfile::tempdir().unwrap();
    let [workload, page] = ["build.toml", "page.html"].map(|name| dir.path().join(name));
    let text = "title = \"t\"\n[[file]]\nname = \"f\"\nmib = 100\nstart = \"one-node\"\n[[process]]\ncopies = 10\n\
        threads = 1\nmemory_mib = 2\n[[process.phase]]\nmemory = \"file\"\nfile = \"f\"\ntimes = 5\n";
    std::fs::write(&workload, text).unwrap();
    let page = page.to_str().unwrap();
    output(&simulate(workload.to_str().unwrap(), "2x4", "bind", &["--html", page]));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("4&nbsp;others") && page.contains("&nbsp;files "), "{page}");
    // On node 0 there are five processes of 64 MiB, as all tests here have them.
    assert!(page.contains(">420 MiB<"), "{page}");
}

/// What follows from published cells is what stands in the files.
#[test]
fn calibrated_figures_stand_in_the_files() {
    let told = output(&["calibrate".to_string()]);
    for figure in ["sim.stream_mb_s", "links.bandwidth_mb_s", "memory.bandwidth_mb_s", "jbb_like"] {
        assert!(told.contains(figure), "{told}");
    }
    // Programs get every digit.
    let of = |format: &str| output(&["calibrate", "-o", format].map(String::from));
    let (json, csv) = (of("json"), of("csv"));
    for line in csv.lines().skip(1) {
        let follows = line.rsplit(',').nth(1).unwrap();
        assert!(
            follows.len() > 12 && json.contains(&format!("\"follows\": {follows},")),
            "{json} {csv}"
        );
    }
}

/// A wrong file is told with its line, its field and what was expected; nothing runs.
#[test]
fn wrong_files_are_told_with_line_and_field() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| written(&dir, name, text);
    let refuses = |workload: &str, machine: &str, told: &[&str]| {
        let words = simulate(workload, machine, "bind", &[]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run(&mut numaherd(&words)).refuses(1, told);
    };
    let slow = include_str!("../../../../machines/documents/autonuma-slides.toml");
    let good = slow;
    let machine = write("m.toml", &good.replace("stream_mb_s = 837.9", "stream_mb_s = -1"));
    refuses("numa02", &machine, &["m.toml:11", "sim.stream_mb_s", "above 0"]);
    let machine = write("n.toml", &good.replace("[links]", "[linkz]"));
    refuses("numa02", &machine, &["n.toml:16", "linkz"]);
    let good = include_str!("../../../../workloads/numa02.toml");
    let workload = write("w.toml", &good.replace("times = 800", "times = 0"));
    refuses(&workload, "2x4", &["w.toml:12", "times"]);
    refuses("forks", "2x4", &["forks is not simulated"]);
    let one = [
        &["simulate", "numa02", "--machine", "2x4", "--placement", "off"][..],
        &["--html", "x", "--trace", "x"],
    ];
    run(&mut numaherd(&one.concat())).refuses(2, &["--trace and --html"]);
    refuses("numa02", "3x7", &["'3x7'", "autonuma-slides", ".toml"]);
    let one = ["simulate", "numa02", "--machine", "node:1 core:4", "--placement", "inverse"];
    run(&mut numaherd(&one)).refuses(1, &["needs two nodes"]);
    refuses("numa02", "pack:2 [numa(memory=0)] pu:4", &["no node has both CPUs and memory"]);
    let apart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/unreachable");
    refuses("numa02", apart, &["node 0 does not reach node 1"]);
    let machine = write("s.toml", &slow.replace("stream_mb_s = 837.9", "stream_mb_s = 1e-12"));
    refuses("numa02", &machine, &["s.toml:11", "sim.stream_mb_s: 0.001 or more"]);
    let endless = ["simulate", "numa02", "--machine", "x5-8", "--placement", "off"];
    let endless = [&endless[..], &["--loops", "1000000000"]].concat();
    run(&mut numaherd(&endless)).refuses(1, &["simulated seconds at least", "--loops"]);
    let workload = write("t.toml", &good.replace("times = 800", "range = [0.0, 0.5, 1.0]"));
    refuses(&workload, "2x4", &["t.toml:12", "process.phase.range: a list of length 2, found 3"]);
    refuses("/nonexistent.toml", "2x4", &["/nonexistent.toml", "No such file"]);
    let workload =
        write("u.toml", &good.replace("times = 800", "times = 800\n\"\\u001b[31m\" = 1"));
    refuses(&workload, "2x4", &["u.toml:13: expected process.phase:", "found `\\u001b[31m`"]);
    let latin = dir.path().join("l.toml");
    std::fs::write(&latin, b"title = 'x'\n# \xe4\n").unwrap();
    let latin = latin.display().to_string();
    for (workload, machine) in [("numa02", &*latin), (&*latin, "2x4")] {
        refuses(workload, machine, &["l.toml:2: expected text in UTF-8, found the byte 0xe4"]);
    }
    // The file is there before the process, and nobody has written it yet.
    let small = write("r.toml", &slow.replace("memory_mib = 8192", "memory_mib = 32"));
    let full = |mib: u32| {
        write(
            "w.toml",
            &format!(
                "title = 't'\n[[file]]\nname = 'out'\nmib = {mib}\n[[process]]\nthreads = 2\nmemory_mib = 32\n\
                 [[process.phase]]\nmemory = 'file'\nfile = 'out'\npart = 'slice'\ntimes = 1\n"
            ),
        )
    };
    let fits = full(32);
    let room = ["simulate", &fits, "--machine", &small, "--placement", "off"];
    run(&mut numaherd(&room)).ends_with(0);
    full(40);
    run(&mut numaherd(&room)).refuses(
        1,
        &["runs out of memory", "ended at the file out: make its files smaller", "--size"],
    );
    let too_much = ["simulate", "numa01", "--machine", "2x4", "--placement", "bind"];
    run(&mut numaherd(&too_much)).refuses(1, &["does not fit", "--size"]);
    let too_little = [&too_much[..], &["--size", "1M"]].concat();
    run(&mut numaherd(&too_little)).refuses(1, &["--size 1048576", "give 2M or more"]);
    let compared = ["compare", "numa02", "--on", "sim:2x4", "--placements", "off", "--size", "64K"];
    run(&mut numaherd(&compared)).refuses(1, &["--size 65536", "give 2M or more"]);
    let too_many = [&too_much[..], &["--size", "2M", "--threads", "3000"]].concat();
    run(&mut numaherd(&too_many))
        .refuses(1, &["needs 3000 MiB, a block of 2 for each", "--threads"]);
}

/// Mainline and herd bring memory to its users; what they move is told apart.
#[test]
fn balancing_brings_memory_home() {
    let words = ["simulate", "numa02", "--machine", "numacore", "--placement", "off,mainline,herd"];
    let words: Vec<String> = words.iter().chain(&["-o", "json"]).map(ToString::to_string).collect();
    let json: serde_json::Value = serde_json::from_str(&output(&words)).unwrap();
    let share = |i: usize| json["placements"][i]["local_share"].as_f64().unwrap();
    assert!(share(0) < 0.5 && share(1) > 0.9 && share(2) > 0.9, "{json}");
    let moved = |i: usize| json["placements"][i]["pages_migrated_by_kernel"].as_u64().unwrap();
    assert!(moved(0) == 0 && moved(1) > 0);
}

/// A comparison can run on a simulated machine, with the parameters that it has in the lab.
#[test]
fn compare_runs_on_a_simulated_machine() {
    let words = ["compare", "numa02", "--on", "sim:2x4", "--quick", "--runs", "2", "-o", "json"];
    let told = output(&words.map(String::from));
    let json: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&json["machine"], &json["runs"]), (&"sim:2x4".into(), &2.into()));
    // An earlier one in a file of any name.
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join(OsStr::from_bytes(b"earlier\xff.json"));
    std::fs::write(&odd, &told).unwrap();
    let beside = run(numaherd(&words).arg("--against").arg(&odd)).ends_with(0).json();
    assert!(beside["against"].is_object(), "{beside}");
    // What the workload was told is there, and an earlier one with another size or other loops is refused.
    let parameters = serde_json::json!({
        "threads": 8, "size_bytes": 64 << 20, "loops": 160, "seconds": null, "thp": null, "start": "first-touch",
    });
    assert_eq!(json["parameters"], parameters, "{json}");
    let size = run(numaherd(&words).args(["--size", "32M", "--against"]).arg(&odd));
    size.refuses(1, &["with --threads 8 --size 67108864", "with --threads 8 --size 33554432"]);
    let whole = ["compare", "numa02", "--on", "sim:2x4", "--runs", "1", "--against"];
    run(numaherd(&whole).arg(&odd)).refuses(1, &["--loops 160", "--loops 960"]);
    let names: Vec<&str> = json["placements"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|placement| placement["name"].as_str())
        .collect();
    assert_eq!(names, ["off", "kernel", "bind", "inverse", "herd"]);
    // Throughput in the course of it, in the unit of the whole: bind's is the same from beginning to end.
    let bind = &json["placements"][2];
    let course = &bind["throughput_over_time"];
    assert_eq!(
        (&course["interval_seconds"], &bind["throughput"]["unit"]),
        (&0.25.into(), &"B/s".into())
    );
    let rates: Vec<f64> =
        course["values"].as_array().unwrap().iter().filter_map(|rate| rate.as_f64()).collect();
    let mean = bind["throughput"]["median"].as_f64().unwrap();
    let [whole @ .., _] = &rates[..] else { panic!("{bind}") };
    assert!(
        whole.len() > 10 && whole.iter().all(|rate| (rate / mean - 1.0).abs() < 0.05),
        "{bind}"
    );
    let refuses = |words: &[&str], told: &[&str]| {
        run(&mut numaherd(words)).refuses(1, told);
    };
    refuses(&["compare", "forks", "--on", "sim:2x4"], &["forks is not simulated", "a program"]);
    let help = run(&mut numaherd(&["compare", "--help"])).ends_with(0).stdout;
    let (_, of_simulated) = help.rsplit_once("Simulated (--on sim:MACHINE)").unwrap();
    for option in [
        &["--seconds", "2"][..],
        &["--no-distance"],
        &["--dilation", "3"],
        &["--kernel", "6.12"],
        &["--append", "quiet"],
        &["--force"],
        &["--until", "0.1"],
        &["--trace", "x"],
        &["--logs", "x"],
        &["--results", "x"],
    ] {
        assert!(of_simulated.contains(option[0]), "{help}");
        let words = [&["compare", "numa02", "--on", "sim:2x4"], option].concat();
        run(&mut numaherd(&words)).refuses(2, &[option[0], "leave it out"]);
    }
    refuses(&["compare", "numa02", "--on", "sim:3x7"], &["'3x7'"]);
    // Nothing is elsewhere on one node; asked for alone, that is an error.
    let one = ["compare", "numa02", "--on", "sim:node:1 core:4", "--quick", "--runs", "1"];
    let told = run(&mut numaherd(&one)).ends_with(0).tells(&["one node", "inverse", "left out"]);
    assert!(!told.stdout.contains("inverse"), "{told}");
    refuses(&[&one[..], &["--placements", "inverse"]].concat(), &["inverse", "two nodes"]);
}

/// A user's own workload is compared on a simulated machine as `simulate` runs it there, with compare's options;
/// elsewhere nothing can run it, which is told before anything boots.
#[test]
fn compare_takes_a_workload_of_one_s_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my.toml").display().to_string();
    let process =
        "copies = 2\nthreads = 4\nmemory_mib = 64\nbind = \"process\"\nstart = \"one-node\"";
    let phase = "memory = \"all\"\ntimes = 30";
    let text = format!("title = \"two\"\n[[process]]\n{process}\n[[process.phase]]\n{phase}\n");
    std::fs::write(&path, text).unwrap();
    let compare = |more: &[&str]| {
        let words = ["compare", &path, "--on", "sim:2x4", "--runs", "2", "--seed", "5"];
        let told = run(&mut numaherd(&[&words[..], more, &["-o", "json"]].concat())).ends_with(0);
        serde_json::from_str::<serde_json::Value>(&told.stdout).unwrap()
    };
    let json = compare(&["--placements", "off,bind,herd"]);
    let of = |name: &str| (json[name].as_str().map(str::to_string), json[name].as_u64());
    assert_eq!(of("workload"), (Some("my".into()), None), "{json}");
    assert_eq!((of("runs"), of("seed")), ((None, Some(2)), (None, Some(5))));
    // Run by run as simulate has it, seed after seed.
    let words = ["simulate", &path, "--machine", "2x4", "--placement", "off,bind,herd"];
    let told =
        run(numaherd(&words).args(["--runs", "2", "--seed", "5", "-o", "json"])).ends_with(0);
    let simulated: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(json["placements"], simulated["placements"]);
    assert_eq!(json["placements"].as_array().unwrap().len(), 3);
    // Parameters are those of any workload.
    let seconds = |more: &[&str]| {
        let json = compare(&[&["--placements", "bind"], more].concat());
        json["placements"][0]["seconds"]["median"].as_f64().unwrap()
    };
    let ratio = seconds(&["--loops", "60"]) / seconds(&[]);
    assert!((1.9..2.1).contains(&ratio), "{ratio}");
    let off = compare(&["--placements", "off", "--start", "placed", "--size", "32M"]);
    assert!(off["placements"][0]["local_share"].as_f64().unwrap() > 0.9, "{off}");
    let refuses = |code, words: &[&str], told: &[&str]| {
        run(&mut numaherd(&[&["compare"], words].concat())).refuses(code, told);
    };
    refuses(
        2,
        &[&path, "--on", "sim:2x4", "--quick"],
        &["--quick is for the workloads", "--loops"],
    );
    refuses(2, &[&path, "--on", "sim:2x4", "--processes", "2"], &["--processes is for jbb-like"]);
    for on in ["lab", "host"] {
        refuses(2, &[&path, "--on", on], &["my.toml is only simulated", "--on sim:MACHINE"]);
    }
    refuses(1, &["/nonexistent.toml", "--on", "sim:2x4"], &["/nonexistent.toml", "No such file"]);
    refuses(2, &["my", "--on", "sim:2x4"], &["'my'", "numa01"]);
}

/// Every workload of the lab but forks; what bind has apart inverse has together, and none of them takes
/// longer to simulate than a blink.
#[test]
fn compare_simulates_every_workload_of_the_lab() {
    for name in ["overcommit", "jbb-like", "stream", "phases", "uneven", "shared", "hugetlb"] {
        let words = ["compare", name, "--on", "sim:4x2", "--quick", "--runs", "1", "-o", "json"];
        let json: serde_json::Value =
            serde_json::from_str(&output(&words.map(String::from))).unwrap();
        assert_eq!(json["workload"], name);
        let share = |i: usize| json["placements"][i]["local_share"].as_f64().unwrap();
        assert!(share(2) > share(3) + 0.3, "{name}: bind {}, inverse {}", share(2), share(3));
        let moved = |i: usize, by: &str| {
            json["placements"][i][format!("pages_migrated_by_{by}")].as_u64().unwrap() > 0
        };
        assert_eq!([moved(1, "kernel"), moved(1, "us")], [name != "hugetlb", false], "{name}");
        // Samples tell of the memory of phases before the kernel's first scan does.
        let by_kernel = !["hugetlb", "phases"].contains(&name);
        assert_eq!([moved(4, "kernel"), moved(4, "us")], [by_kernel, true], "{name}");
    }
    // Where everything begins in its place, nothing is faster than leaving it there.
    let words = ["compare", "uneven", "--on", "sim:2x4", "--start", "placed", "--placements"];
    let words: Vec<&str> = words.into_iter().chain(["off", "-o", "json"]).collect();
    let json: serde_json::Value =
        serde_json::from_str(&run(&mut numaherd(&words)).ends_with(0).stdout).unwrap();
    assert!(json["placements"][0]["local_share"].as_f64().unwrap() > 0.8, "{json}");
}

/// A published table stands beside ours, with the contract's names; calibrated cells are marked.
#[test]
fn a_published_table_stands_beside_ours() {
    let words =
        ["reproduce", "numacore-autonuma-bench", "--runs", "1", "-o", "json"].map(String::from);
    let json: serde_json::Value = serde_json::from_str(&output(&words)).unwrap();
    let cells = json["tables"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 9);
    let vanilla = cells.iter().find(|cell| cell["calibrated"] == true).unwrap();
    assert_eq!((&vanilla["row"], &vanilla["published"]), (&"numa02".into(), &56.32.into()));
    assert!(vanilla["error"].as_f64().unwrap().abs() < 0.01, "{vanilla}");
    let list = output(&["reproduce".to_string()]);
    assert!(list.contains("autonuma-slides") && list.contains("pft-"), "{list}");
    run(&mut numaherd(&["reproduce", "nope"])).refuses(2, &["'nope'", "autonuma-slides"]);
}

/// `compare --on sim:M` takes what `simulate` takes; a kernel that runs has not all of it, and says so
/// before anything boots.
#[test]
fn compare_takes_every_placement_that_is_simulated() {
    let of = |placements: &str| {
        let words =
            ["compare", "numa02", "--on", "sim:2x4", "--quick", "--runs", "1", "-o", "json"];
        let told = run(numaherd(&words).args(["--placements", placements])).ends_with(0).stdout;
        let json: serde_json::Value = serde_json::from_str(&told).unwrap();
        let told = json["placements"].as_array().unwrap().iter();
        told.map(|p| (p["name"].clone(), p["seconds"]["median"].clone())).collect::<Vec<_>>()
    };
    let all = "upstream,kernel,mainline,autonuma,autonuma-march,autonuma-thp,balancenuma,\
               numacore-v17,numacore-v18,herd-tasks";
    let all = of(all);
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str().unwrap()).collect();
    assert_eq!(names[..4], ["off", "kernel", "mainline", "autonuma"]);
    assert_eq!((names.len(), &all[1].1), (10, &all[2].1), "the kernel's balancing is mainline's");
    let refuses = |code, words: &[&str], says: &[&str]| {
        run(&mut numaherd(&[&["compare", "numa02", "--placements"], words].concat()))
            .refuses(code, says);
    };
    refuses(2, &["mainline"], &["mainline", "--on sim:MACHINE", "numad"]);
    refuses(2, &["numad", "--on", "sim:2x4"], &["numad is not simulated", "autonuma-thp"]);
    refuses(2, &["fastest", "--on", "sim:2x4"], &["'fastest'", "balancenuma"]);
}
