//! Memory policies against the kernel, and ours against numactl: a short version of
//! `make conformance`, with the example `conform` of the crate `linux`. The page fault test with
//! the kernel's own count, and where memtoy's pages really go.

use crate::Bench;
use crate::transcript::{program, run};

/// The example, beside the program.
fn conform() -> String {
    let example = std::path::Path::new(program()).with_file_name("examples").join("conform");
    assert!(example.exists(), "{} is not built: make lab-test", example.display());
    example.to_str().unwrap().to_string()
}

/// Random policies in random cpusets place pages as the crate predicts; generated command lines
/// do what numactl's do; what numactl's own tests look at holds.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn policies_do_what_is_predicted_and_what_numactl_does() {
    let bench = Bench::new();
    let script = format!(
        "ln -s {} numactl; c={}; $c asserts 2 && $c policies 300 2 && $c lines 60 2 /usr/bin/numactl $PWD/numactl",
        program(),
        conform()
    );
    let mut command = bench.command(&["lab", "run", "--no-distance"], &["sh", "-c", &script]);
    let told = run(&mut command).ends_with(0);
    for last in ["3 asserts of our own, 0 failed", "300 cases", "60 command lines"] {
        assert!(told.stdout.contains(last), "{told}");
    }
    assert!(!told.stdout.contains("DIFFERENT"), "{told}");
    bench.left_nothing();
}

/// Pages lie where memtoy bound them and move where it is told; pft's faults are the kernel's; memory
/// moves between nodes however many threads move it; a policy and its weights reach the child.
#[test]
#[ignore = "needs QEMU and minutes: make lab-test"]
fn pages_are_where_they_were_bound() {
    let bench = Bench::new();
    let script = format!(
        "n={}
        printf 'anon a 16p\\nbind a interleave:0-1\\ntouch a\\nwhere a\\nmigrate 0 1\\nwhere a\\nmigrate a 0 4p 0\\nwhere a\\n' | $n memtoy --strict > toy
        $n bench pft -m 32m -t 3 -p -S -o json > pft
        $n bench migration -m 8m -t 2 --runs 1 --callgraph --html moving.html -o json > moving
        $n bench migration -m 9g -t 2 2> full; $n bench migration --from 1 --to 1 2> nowhere
        $n run --weights 0=3,1=1 -w 0-1 sh -c 'cat /sys/kernel/mm/mempolicy/weighted_interleave/node0; exec numactl --show' > shown
        $n run --weights 0=7 -w 0-1 > /dev/null 2>&1; cat /sys/kernel/mm/mempolicy/weighted_interleave/node0 > kept",
        program()
    );
    let mut command = bench.command(&["lab", "run", "--no-distance"], &["sh", "-c", &script]);
    run(&mut command).ends_with(0);
    let toy = bench.shared("toy");
    // 16 pages in turn over two nodes; then those of node 0 move too
    assert_eq!(toy.matches("       8 pages on node").count(), 2, "{toy}");
    assert!(toy.contains("      16 pages on node 1"), "{toy}");
    // and four of that segment come back
    assert!(toy.contains("migrated a to node 0: 4 pages moved, 0 stayed"), "{toy}");
    assert!(toy.contains("      12 pages on node 1"), "{toy}");
    let pft: serde_json::Value = serde_json::from_str(&bench.shared("pft")).unwrap();
    // 32 MiB in three pieces of whole pages
    assert_eq!(pft["pages"], 8190);
    assert!((8190..8272).contains(&pft["minor_faults"].as_u64().unwrap()), "{pft}");
    let moving: serde_json::Value = serde_json::from_str(&bench.shared("moving")).unwrap();
    let rows: Vec<_> = moving["rows"].as_array().unwrap().iter().collect();
    let kinds: Vec<_> = rows.iter().map(|row| (row["pages"].as_str(), &row["threads"])).collect();
    let kind = |pages: &'static str, threads: &'static str| (Some(pages), threads.parse().unwrap());
    let all: [(_, serde_json::Value); 4] =
        [kind("base", "1"), kind("base", "2"), kind("huge", "1"), kind("huge", "2")];
    assert!(kinds.iter().zip(&all).all(|(a, b)| a.0 == b.0 && *a.1 == b.1), "{kinds:?}");
    for (row, graph) in rows.iter().zip(moving["callgraphs"].as_array().unwrap()) {
        for way in ["move_pages", "migrate_pages", "copying"] {
            assert!(row[way]["median"].as_f64().unwrap() > 0.0, "{row}");
        }
        // By name, and with what the call does.
        assert!(graph.to_string().contains("\"migrate_pages\""), "{graph}");
    }
    assert!(bench.shared("moving.html").contains("huge pages, GB/s"));
    let full = bench.shared("full");
    assert!(full.contains("18432 MiB are needed") && full.lines().count() == 1, "{full}");
    assert!(bench.shared("nowhere").contains("two nodes are needed"));
    let shown = bench.shared("shown");
    assert!(shown.starts_with("3\npolicy: [6]\n") || shown.starts_with("3\npolicy: "), "{shown}");
    assert_eq!(bench.shared("kept"), "3\n", "weights stay when there is no command to run");
    bench.left_nothing();
}
