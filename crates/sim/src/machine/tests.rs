//! Machine files: figures come out as written, and wrong ones are told with their place.

use super::*;

/// Two nodes of two CPUs whose threads write a line in 64 ns locally and in 128 ns remotely.
pub const SMALL: &str = r#"
title = "two nodes of two CPUs"
[cpu]
[sim]
stream_mb_s = 1000
[memory]
bandwidth_mb_s = 3000
[links]
bandwidth_mb_s = 10000
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
[provenance]
"sim.stream_mb_s" = "chosen: a line in 64 ns"
"#;

pub fn small() -> Machine {
    Machine::parse("small", "small.toml", SMALL).unwrap()
}

#[test]
fn a_line_takes_as_long_as_the_file_says() {
    let machine = small();
    // 64 bytes at 1000 MB/s = 64 ns; twice the latency, twice the time.
    assert_eq!(machine.line_ns(0, 0, 1), 64.0);
    assert_eq!(machine.line_ns(0, 1, 1), 128.0);
}

#[test]
fn a_wrong_file_says_line_field_and_what_was_expected() {
    let says = |from: &str, to: &str| {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL);
        Machine::parse("x", "x.toml", &text).unwrap_err().to_string()
    };
    assert_eq!(
        says("stream_mb_s = 1000", "stream_mb_s = 0"),
        "x.toml:5: expected sim.stream_mb_s: a number above 0, found 0"
    );
    assert!(says("cpus = 2", "cpus = \"two\"").starts_with("x.toml:12: "));
    assert!(says("stream_mb_s", "stream").ends_with("found `stream`"));
    assert!(says("[[10, 21], ", "[[10], ").contains("x.toml:19: expected distance.slit: 2 rows"));
    assert!(says("[[100, 200]", "[[300, 200]").contains("distance.latency_ns"));
    assert!(says("[[100, 200]", "[[100, 1e16]").contains("distance.latency_ns: above 0, a second"));
    let between = says("bandwidth_mb_s = 10000", "bandwidth_mb_s = 10000\nbetween = [[0, 7]]");
    assert!(between.contains("links.between") && between.contains("[0, 7]"), "{between}");
}

#[test]
fn a_square_goes_round_its_corners() {
    let node = "[[node]]\nid = 2\ncpus = 1\nmemory_mib = 64\n[[node]]\nid = 3\ncpus = 1\nmemory_mib = 64\n[distance]";
    let text = SMALL
        .replace("[distance]", node)
        .replace("10000", "10000\nbetween = [[0, 1], [1, 3], [3, 2], [2, 0]]")
        .replace(
            "[[10, 21], [21, 10]]",
            "[[10,20,20,30],[20,10,30,20],[20,30,10,20],[30,20,20,10]]",
        )
        .replace("[[100, 200], [200, 100]]", "[[1,2,2,3],[2,1,3,2],[2,3,1,2],[3,2,2,1]]");
    let routes = Machine::parse("x", "x", &text).unwrap().routes().unwrap();
    let ends = |links: &[usize]| {
        links
            .iter()
            .map(|&link| (routes.directed[link].0, routes.directed[link].1))
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(&routes.via[0][3]), [(0, 1), (1, 3)]);
    assert_eq!(ends(&routes.via[2][2]), []);
}

#[test]
fn of_ways_of_as_many_links_the_nearest_is_taken_and_then_the_one_named_first() {
    let links = [(0, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0), (2, 3, 1.0)];
    let by = |far: [usize; 2]| {
        let mut latency_ns = vec![vec![20.0; 4]; 4];
        (latency_ns[far[0]][far[1]], latency_ns[far[1]][far[0]]) = (30.0, 30.0);
        let routes = Routes::new(&links, &latency_ns).unwrap();
        routes.via[0][3].iter().map(|&link| routes.directed[link].1).collect::<Vec<_>>()
    };
    assert_eq!([by([1, 3]), by([2, 3]), by([0, 3])], [[2, 3], [1, 3], [1, 3]]);
    assert!(Routes::new(&links[..2], &vec![vec![20.0; 4]; 4]).is_none());
}

#[test]
fn the_order_of_nodes_changes_nothing_and_whose_own_memory_is_slow_waits_for_it() {
    let line = |latencies: &str, from| {
        let text = SMALL.replace("[[100, 200], [200, 100]]", latencies);
        Machine::parse("x", "x", &text).unwrap().line_ns(from, from, 1)
    };
    // The nearest memory is what a line of 64 ns is said of.
    assert_eq!(
        [line("[[100, 200], [200, 150]]", 0), line("[[100, 200], [200, 150]]", 1)],
        [64.0, 96.0]
    );
    assert_eq!(
        [line("[[150, 200], [200, 100]]", 0), line("[[150, 200], [200, 100]]", 1)],
        [96.0, 64.0]
    );
}

#[test]
fn each_thread_of_a_core_that_begins_adds_to_what_the_core_does() {
    let mut machine = small();
    (machine.cpu.threads_per_core, machine.cpu.smt_speedup_percent) = (4, 160.0);
    let rate = |busy: u32| f64::from(busy) * 64.0 / machine.line_ns(0, 0, busy);
    let of_one = [1, 2, 3, 4].map(|busy| (rate(busy) / rate(1) * 1000.0).round() / 1000.0);
    assert_eq!(of_one, [1.0, 1.2, 1.4, 1.6]);
    assert_eq!(machine.line_ns(0, 0, 4), 64.0);
}

#[test]
fn every_machine_that_comes_with_numaherd_is_sound_and_says_where_its_figures_come_from() {
    let kinds = ["published", "calibrated", "measured", "chosen", "guessed"];
    for name in Machine::names() {
        let machine = Machine::built_in(name).unwrap().unwrap();
        for (figure, from) in &machine.provenance {
            let known = kinds.iter().any(|kind| from.starts_with(kind));
            assert!(known, "{name}: {figure}: {from}");
        }
    }
    assert!(Machine::built_in("3x7").is_none());
}

#[test]
fn a_file_for_the_emulated_machine_serves_too() {
    let machine = Machine::built_in("2x4").unwrap().unwrap();
    // Ten instructions at 100 million a second, and a miss of 100 or 300 ns.
    assert!((machine.line_ns(0, 0, 1) - 200.0).abs() < 1e-9);
    assert!((machine.line_ns(0, 1, 1) - 400.0).abs() < 1e-9);
}

#[test]
fn a_machine_from_a_topology_keeps_its_nodes() {
    let machine = Machine::derived("small", &small().topology(), None);
    assert_eq!((machine.cpus(), &machine.slit), (4, &small().slit));
    assert!(machine.routes().is_some());
}

#[test]
fn rates_are_one_for_all_or_one_for_each() {
    let text = SMALL.replace("bandwidth_mb_s = 3000", "bandwidth_mb_s = [3000, 2000]");
    assert_eq!(Machine::parse("x", "x", &text).unwrap().memory_mb_s, [3000.0, 2000.0]);
    let text = SMALL.replace("bandwidth_mb_s = 3000", "bandwidth_mb_s = [3000]");
    let error = Machine::parse("x", "x", &text).unwrap_err().to_string();
    assert!(error.starts_with("x:7: expected memory.bandwidth_mb_s: one figure or 2"), "{error}");
}

#[test]
fn links_whose_bandwidth_is_left_out_carry_all_that_comes() {
    let text = SMALL.replace("bandwidth_mb_s = 10000", "between = [[0, 1]]");
    let machine = Machine::parse("m", "m", &text).unwrap();
    assert_eq!(machine.links, [(0, 1, f64::INFINITY)]);
}
