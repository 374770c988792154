//! Generated command lines, valid and not, given to numactl and to ours.
//!
//! A third of them run in the whole machine, a third in a cpuset of half the nodes, a third in
//! one of one node. Options are those of numactl 2.0.16 that concern a process, and those about
//! shared memory where they are wrong.

use std::fmt::Write as _;
use std::process::Command;

use fastrand::Rng;
use numaherd_linux::sys::{mapping::Mapping, mempolicy};

/// Prints what a child sees of its policy and CPUs.
pub fn probe() {
    let told = mempolicy::get().unwrap();
    println!("policy {} {}", told.raw, told.nodes);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    for line in status.lines().filter(|line| line.contains("_allowed_list")) {
        println!("{line}");
    }
    // the kernel's words for memory without a policy of its own
    let mut memory = Mapping::private(64 << 12).unwrap();
    memory.touch(0..64 << 12, numaherd_linux::sys::mapping::Touch::Write);
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
    let start = format!("{:x} ", memory.start());
    let line = maps.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
    println!("{}", line.split(" anon=").next().unwrap_or_default());
}

/// What one tool did.
#[derive(PartialEq)]
struct Did {
    code: Option<i32>,
    out: String,
}

/// Compares both on `count` lines; returns how many differ.
pub fn run(count: u32, seed: u64, numactl: &str, ours: &str) -> u32 {
    super::enter_group();
    let mut rng = Rng::with_seed(seed);
    let nodes = mempolicy::allowed().unwrap().len() as u32;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let halves = [
        (format!("0-{}", nodes - 1), format!("0-{}", cpus - 1)),
        (format!("{}-{}", nodes / 2, nodes - 1), format!("{}-{}", cpus / 2, cpus - 1)),
        ((nodes - 1).to_string(), format!("1,{}", cpus - 1)),
    ];
    let (mut different, mut succeeded) = (0, 0);
    for index in 0..count {
        let (mems, cpu_list) = &halves[(index * 3 / count) as usize];
        super::set_group("cpus", cpu_list);
        super::set_group("mems", mems);
        let words = line(&mut rng, nodes, cpus);
        let (theirs, our) = (tried(numactl, &words), tried(ours, &words));
        succeeded += u32::from(theirs.code == Some(0));
        if theirs != our {
            different += 1;
            println!("DIFFERENT in {mems} {cpu_list}: numactl {}", words.join(" "));
            println!(
                "  theirs {:?} {:?}\n  ours   {:?} {:?}",
                theirs.code, theirs.out, our.code, our.out
            );
        }
    }
    println!("{count} command lines, {succeeded} of them valid; {different} differ");
    different
}

fn tried(tool: &str, words: &[String]) -> Did {
    let output = Command::new(tool).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut out = String::new();
    // free memory moves between two looks; numactl ends its messages' lines on the other output
    for line in text.lines().filter(|line| !line.contains(" free: ") && !line.is_empty()) {
        let _ = writeln!(out, "{line}");
    }
    Did { code: output.status.code(), out }
}

fn line(rng: &mut Rng, nodes: u32, cpus: u32) -> Vec<String> {
    let mut words = Vec::new();
    let options = [0, 1, 1, 1, 2, 2, 2, 3, 4][rng.usize(..9)];
    for _ in 0..options {
        option(rng, nodes, cpus, &mut words);
    }
    if rng.u32(..8) == 0 {
        words.push("--".into());
    }
    match rng.u32(..20) {
        0 => {}
        1 => words.push("/no/such/command".into()),
        _ => {
            words.push(std::env::current_exe().unwrap().display().to_string());
            words.push("probe".into());
        }
    }
    words
}

fn option(rng: &mut Rng, nodes: u32, cpus: u32, words: &mut Vec<String>) {
    let valued = [
        ("i", "interleave", nodes),
        ("m", "membind", nodes),
        ("p", "preferred", nodes),
        ("P", "preferred-many", nodes),
        ("N", "cpunodebind", nodes),
        ("c", "cpubind", nodes),
        ("C", "physcpubind", cpus),
        ("m", "memb", nodes),
        ("i", "int", nodes),
    ];
    let flags = ["-l", "--localalloc", "-a", "--all", "-b", "--balancing", "-t", "--strict"];
    let odd = [
        "-s",
        "--show",
        "-H",
        "--hardware",
        "--nothing",
        "-x",
        "--pref=0",
        "--dump",
        "-D",
        "-T",
        "--verify",
        "-u",
        "--length=4096",
        "-o0",
        "-M600",
        "-Mx",
        "-I3",
        "--shmid=x",
        "-M",
        "--localalloc=1",
        "--cpu=0",
    ];
    match rng.u32(..20) {
        0..=12 => {
            let (short, long, count) = valued[rng.usize(..valued.len())];
            let list = list(rng, count);
            match rng.u32(..4) {
                0 => words.push(format!("-{short}{list}")),
                1 => words.extend([format!("-{short}"), list]),
                2 => words.push(format!("--{long}={list}")),
                _ => words.extend([format!("--{long}"), list]),
            }
        }
        13..=17 => words.push(flags[rng.usize(..flags.len())].into()),
        _ => words.push(odd[rng.usize(..odd.len())].into()),
    }
}

/// A list, mostly a valid one.
fn list(rng: &mut Rng, count: u32) -> String {
    let number = |rng: &mut Rng| {
        let beyond = u32::from(rng.u32(..12) == 0);
        rng.u32(..count + beyond)
    };
    let mut list = String::new();
    list += ["", "", "", "", "", "!", "+", "!+"][rng.usize(..8)];
    match rng.u32(..12) {
        0 | 1 => list += "all",
        2 => list += "same",
        3 => {
            list += [
                "",
                "x",
                "0,",
                "0-",
                "-1",
                "1 ",
                "0x1",
                "01",
                "netdev:lo",
                "file:/nowhere",
                "0--1",
                "+",
            ][rng.usize(..12)]
        }
        _ => {
            for part in 0..1 + rng.u32(..3) {
                let comma = if part == 0 { "" } else { "," };
                let first = number(rng);
                let _ = match rng.u32(..3) {
                    0 => write!(list, "{comma}{first}-{}", number(rng)),
                    _ => write!(list, "{comma}{first}"),
                };
            }
        }
    }
    list
}
