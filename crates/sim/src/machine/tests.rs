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
    assert_eq!(machine.line_ns(0, 0, true), 64.0);
    assert_eq!(machine.line_ns(0, 1, true), 128.0);
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
    assert!((machine.line_ns(0, 0, true) - 200.0).abs() < 1e-9);
    assert!((machine.line_ns(0, 1, true) - 400.0).abs() < 1e-9);
}

#[test]
fn a_machine_from_a_topology_keeps_its_nodes() {
    let machine = Machine::derived("small", &small().topology());
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
