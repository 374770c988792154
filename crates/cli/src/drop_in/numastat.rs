//! `numastat`: the kernel's counters per node, memory per node, and memory of processes, in
//! numastat's layout.
//!
//! Without any word it prints counts of pages; with any, megabytes. Rows and columns of zeros are
//! left out with -z.

mod grid;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use grid::Grid;
use numaherd_linux::memory::numa_maps;
use numaherd_linux::sys::pages;
use numaherd_model::NodeId;

/// As it is printed.
pub const USAGE: &str =
    "Usage: numastat [-c] [-m] [-n] [-p <PID>|<pattern>] [-s[<node>]] [-v] [-V] [-z] [ <PID>|<pattern>... ]
-c to minimize column widths
-m to show meminfo-like system-wide memory usage
-n to show the numastat statistics info
-p <PID>|<pattern> to show process info
-s[<node>] to sort data by total column or <node>
-v to make some reports more verbose
-V to show the numastat code version
-z to skip rows and columns of zeros";

const COUNTERS: &[&str] =
    &["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];

/// The order of rows; what the kernel has besides is appended in its own order.
const MEMORY: &[&str] = &[
    "MemTotal",
    "MemFree",
    "MemUsed",
    "HighTotal",
    "HighFree",
    "LowTotal",
    "LowFree",
    "Active",
    "Inactive",
    "Active(anon)",
    "Inactive(anon)",
    "Active(file)",
    "Inactive(file)",
    "Unevictable",
    "Mlocked",
    "Dirty",
    "Writeback",
    "FilePages",
    "Mapped",
    "AnonPages",
    "Shmem",
    "KernelStack",
    "PageTables",
    "NFS_Unstable",
    "Bounce",
    "WritebackTmp",
    "Slab",
    "SReclaimable",
    "SUnreclaim",
    "AnonHugePages",
    "ShmemHugePages",
    "ShmemPmdMapped",
    "HugePages_Total",
    "HugePages_Free",
    "HugePages_Surp",
    "KReclaimable",
];

const MIB: f64 = 1048576.0;

/// What is asked for.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    narrow: bool,
    memory: bool,
    counters: bool,
    /// None: by the total.
    sort: Option<Option<usize>>,
    verbose: bool,
    skip_zeros: bool,
    processes: Vec<String>,
}

/// Runs it.
pub fn run(words: &[String]) -> ExitCode {
    let wanted = match parse(words) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => {
            putln!("numastat version: {} (numaherd)", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            say!("numastat: {problem}\n{USAGE}");
            return ExitCode::from(1);
        }
    };
    match print(&wanted, words.is_empty()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say!("numastat: {}", crate::one_line(&error));
            ExitCode::from(1)
        }
    }
}

/// None: the version is asked for. Options and processes may be mixed.
fn parse(words: &[String]) -> Result<Option<Wanted>, String> {
    let mut wanted = Wanted::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            wanted.processes.extend(words.by_ref().cloned());
            break;
        }
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            wanted.processes.push(word.clone());
            continue;
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            match letter {
                'c' => wanted.narrow = true,
                'm' => wanted.memory = true,
                'n' => wanted.counters = true,
                'v' => wanted.verbose = true,
                'z' => wanted.skip_zeros = true,
                'V' => return Ok(None),
                's' => {
                    wanted.sort = Some(letters.as_str().parse().ok());
                    break;
                }
                'p' => {
                    let attached =
                        Some(letters.as_str().to_string()).filter(|text| !text.is_empty());
                    let process = attached.or_else(|| words.next().cloned());
                    wanted.processes.push(process.ok_or("-p needs a process")?);
                    break;
                }
                _ => return Err(format!("invalid option '{word}'")),
            }
        }
    }
    Ok(Some(wanted))
}

fn print(wanted: &Wanted, plain: bool) -> Result<()> {
    let topology = numaherd_linux::topology::read(Path::new("/"))?;
    let nodes: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
    if plain {
        put!("{}", plain_counters(&nodes, &counters(&nodes)?).text(width(), false));
        return Ok(());
    }
    let show = |mut grid: Grid| {
        if wanted.narrow {
            grid.narrow();
        }
        if let Some(node) = wanted.sort {
            grid.sort(node.filter(|node| *node < nodes.len()).unwrap_or(nodes.len()));
        }
        put!("{}", grid.text(width(), wanted.skip_zeros));
    };
    let decimals = if wanted.narrow { 0 } else { 2 };
    let processes = find_processes(&wanted.processes)?;
    if !processes.is_empty() {
        show_processes(wanted, &nodes, &processes, decimals, show);
    }
    if wanted.memory {
        putln!("\nPer-node system memory usage (in MBs):");
        show(memory(&nodes, decimals)?);
    }
    if wanted.counters || processes.is_empty() && !wanted.memory {
        putln!("\nPer-node numastat info (in MBs):");
        show(counted_mib(&nodes, &counters(&nodes)?, decimals));
    }
    Ok(())
}

/// A terminal has 80 columns unless the environment says otherwise; a pipe has no end.
fn width() -> usize {
    use std::io::IsTerminal;
    let asked = std::env::var("NUMASTAT_WIDTH").ok();
    let width = match asked.map(|text| text.parse::<usize>()) {
        Some(Ok(width)) if (1..=10_000_000).contains(&width) => width,
        Some(_) => 80,
        None if std::io::stdout().is_terminal() => 80,
        None => 10_000_000,
    };
    width.max(32)
}

/// Each node's counters.
fn counters(nodes: &[NodeId]) -> Result<Vec<BTreeMap<String, u64>>> {
    let read = |node: &NodeId| {
        let path = format!("/sys/devices/system/node/node{node}/numastat");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot open {path}"))?;
        Ok(text.lines().filter_map(counter).collect())
    };
    nodes.iter().map(read).collect()
}

fn counter(line: &str) -> Option<(String, u64)> {
    let (name, value) = line.split_once(' ')?;
    Some((name.to_string(), value.trim().parse().ok()?))
}

fn plain_counters(nodes: &[NodeId], counters: &[BTreeMap<String, u64>]) -> Grid {
    let head = nodes.iter().map(|node| format!("node{node}")).collect();
    let mut grid = Grid::new(head, 0, false);
    for name in COUNTERS {
        let of = |node: &BTreeMap<String, u64>| node.get(*name).map(|count| *count as f64);
        grid.row(name, counters.iter().map(of).collect());
    }
    grid
}

fn headers(nodes: &[NodeId]) -> Vec<String> {
    let numbered = nodes.iter().map(|node| format!("Node {node}"));
    numbered.chain(["Total".to_string()]).collect()
}

fn with_total(mut row: Vec<Option<f64>>) -> Vec<Option<f64>> {
    let known: Vec<f64> = row.iter().flatten().copied().collect();
    row.push((!known.is_empty()).then(|| known.iter().sum()));
    row
}

fn counted_mib(nodes: &[NodeId], counters: &[BTreeMap<String, u64>], decimals: usize) -> Grid {
    let mut grid = Grid::new(headers(nodes), decimals, true);
    for name in COUNTERS {
        let mib = |count: &u64| *count as f64 * pages::size().0 as f64 / MIB;
        let row = counters.iter().map(|node| node.get(*name).map(mib)).collect();
        grid.row(&capitals(name), with_total(row));
    }
    grid
}

/// `numa_hit` as `Numa_Hit`.
fn capitals(name: &str) -> String {
    let part = |part: &str| part[..1].to_uppercase() + &part[1..];
    name.split('_').map(part).collect::<Vec<_>>().join("_")
}

fn memory(nodes: &[NodeId], decimals: usize) -> Result<Grid> {
    let huge = huge_page_bytes();
    let mut names: Vec<String> = MEMORY.iter().map(|name| (*name).to_string()).collect();
    let mut values: Vec<BTreeMap<String, f64>> = Vec::new();
    for node in nodes {
        let path = format!("/sys/devices/system/node/node{node}/meminfo");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot open {path}"))?;
        let read: Vec<(String, f64)> =
            text.lines().filter_map(|line| meminfo(line, huge)).collect();
        for (name, _) in &read {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        values.push(read.into_iter().collect());
    }
    let mut grid = Grid::new(headers(nodes), decimals, true);
    for name in &names {
        grid.row(name, with_total(values.iter().map(|node| node.get(name).copied()).collect()));
    }
    Ok(grid)
}

/// `Node 0 MemTotal: 2048 kB`, or `Node 0 HugePages_Total: 3`, in megabytes.
fn meminfo(line: &str, huge_bytes: f64) -> Option<(String, f64)> {
    let mut words = line.split_ascii_whitespace().skip(2);
    let name = words.next()?.trim_end_matches(':');
    let value: f64 = words.next()?.parse().ok()?;
    let bytes = match words.next() {
        Some(_) => value * 1024.0,
        None if name.starts_with("HugePages") => value * huge_bytes,
        None => value * pages::size().0 as f64,
    };
    Some((name.to_string(), bytes / MIB))
}

fn huge_page_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}

/// The processes meant, ascending, each once.
fn find_processes(wanted: &[String]) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for text in wanted {
        if let Ok(pid) = text.parse::<u32>() {
            found.push(pid);
            continue;
        }
        let before = found.len();
        for entry in std::fs::read_dir("/proc").context("Couldn't open /proc")?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            let Some(pid) = pid.filter(|pid| *pid != std::process::id()) else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if format!("{} {line}", name_of(pid)).contains(text.as_str()) {
                found.push(pid);
            }
        }
        if found.len() == before {
            putln!("Found no processes containing pattern: \"{text}\"");
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn name_of(pid: u32) -> String {
    // There the kernel has line ends in it as `\n`, or anybody could make up a row.
    let text = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let name = text.lines().find_map(|line| line.strip_prefix("Name:\t"));
    name.unwrap_or_default().to_string()
}

/// A process's memory by kind (huge, heap, stack, private) and node, in megabytes.
fn process(pid: u32, nodes: &[NodeId]) -> Result<[Vec<f64>; 4]> {
    let Some(mappings) = numa_maps::read(Path::new("/"), pid)? else {
        bail!("cannot read /proc/{pid}/numa_maps: there is no such process, or no NUMA");
    };
    let mut kinds: [Vec<f64>; 4] = std::array::from_fn(|_| vec![0.0; nodes.len()]);
    for mapping in mappings {
        let kind = match (mapping.huge, mapping.heap, mapping.stack) {
            (true, ..) => 0,
            (_, true, _) => 1,
            (_, _, true) => 2,
            _ => 3,
        };
        for (node, bytes) in mapping.nodes {
            if let Some(at) = nodes.iter().position(|known| *known == node) {
                kinds[kind][at] += bytes.0 as f64 / MIB;
            }
        }
    }
    Ok(kinds)
}

fn show_processes(
    wanted: &Wanted,
    nodes: &[NodeId],
    processes: &[u32],
    decimals: usize,
    show: impl Fn(Grid),
) {
    let row = |values: &[f64]| with_total(values.iter().copied().map(Some).collect());
    let sum = |rows: &[Vec<f64>]| -> Vec<f64> {
        (0..nodes.len()).map(|at| rows.iter().map(|row| row[at]).sum()).collect()
    };
    let read = |pid: &u32| {
        process(*pid, nodes).map_err(|error| say!("numastat: {}", crate::one_line(&error))).ok()
    };
    if wanted.verbose || processes.len() == 1 {
        for pid in processes {
            putln!("\nPer-node process memory usage (in MBs) for PID {pid} ({})", name_of(*pid));
            let Some(kinds) = read(pid) else { continue };
            let mut grid = Grid::new(headers(nodes), decimals, true);
            for (name, values) in ["Huge", "Heap", "Stack", "Private"].iter().zip(&kinds) {
                grid.row(name, row(values));
            }
            grid.total(row(&sum(&kinds)));
            grid.widen_names();
            show(grid);
        }
        return;
    }
    putln!("\nPer-node process memory usage (in MBs)");
    let mut grid = Grid::new(headers(nodes), decimals, true);
    grid.corner("PID");
    let mut totals = Vec::new();
    for pid in processes {
        // as in the original, one that cannot be read has a row of zeroes
        let total = read(pid).map_or_else(|| vec![0.0; nodes.len()], |kinds| sum(&kinds));
        grid.row(&format!("{pid} ({})", name_of(*pid)), row(&total));
        totals.push(total);
    }
    grid.total(row(&sum(&totals)));
    grid.widen_names();
    show(grid);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(line: &str) -> Result<Option<Wanted>, String> {
        parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn options_and_processes_may_be_mixed() {
        let read = wanted("12 -cz -p34 -s1 -p qemu").unwrap().unwrap();
        assert!(read.narrow && read.skip_zeros && !read.memory);
        assert_eq!(read.processes, ["12", "34", "qemu"]);
        assert_eq!(read.sort, Some(Some(1)));
        assert_eq!(wanted("-s").unwrap().unwrap().sort, Some(None));
        assert_eq!(wanted("-V").unwrap(), None);
        assert!(wanted("-x").is_err() && wanted("-p").is_err());
    }

    #[test]
    fn rows_are_read_as_the_kernel_writes_them() {
        assert_eq!(meminfo("Node 0 MemTotal:       2048 kB", 0.0), Some(("MemTotal".into(), 2.0)));
        let huge = meminfo("Node 1 HugePages_Free:     3", 2.0 * MIB);
        assert_eq!(huge, Some(("HugePages_Free".into(), 6.0)));
        assert_eq!(counter("interleave_hit 7"), Some(("interleave_hit".into(), 7)));
        assert_eq!(capitals("interleave_hit"), "Interleave_Hit");
    }
}
