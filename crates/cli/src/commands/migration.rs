//! `bench migration`: how fast memory moves between two nodes with more and more threads, beside what the kernel's
//! `migrate_pages` and copying bring, and where the threads that move it spend their time in the kernel.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use numaherd_linux::memory::zoneinfo;
use numaherd_linux::symbols::Symbols;
use numaherd_linux::sys::{affinity, pages};
use numaherd_model::{Bytes, CpuId, CpuSet, NodeId, Topology, counted};
use numaherd_report::moving::Row;
use numaherd_report::{Moving, Spread};

use super::pft;
use crate::args::{Format, MigrationArgs, PagesArg};
use crate::output::{self, Pages};
use mover::{Mover, Size};

mod gate;
mod graph;
mod mover;

/// Of a node's free memory, the part left alone, in per cent, so that nothing is reclaimed meanwhile.
const LEFT_PERCENT: u64 = 5;

/// Runs it.
pub fn run(args: &MigrationArgs) -> Result<ExitCode> {
    if args.callgraph && args.output == Format::Csv {
        misuse!("--callgraph is a tree: give -o table or -o json");
    }
    if (args.memory as u64) < pages::size().0 {
        misuse!("-m {}: a thread moves a page at least", args.memory);
    }
    let topology = numaherd_linux::topology::read(Path::new("/"))?;
    let allowed = affinity::get(0)?;
    let (from, to) = ends(&topology, args)?;
    let most = args.threads.unwrap_or(allowed.len());
    let sizes = sizes(args.pages)?;
    enough_memory(from, to, most as u64 * args.memory as u64)?;
    let pages = Pages::at(args.html.as_deref(), args.svg.as_deref())?;
    let names = args.callgraph.then(names).transpose()?;
    let mover = Mover { bytes: args.memory, from, to, cpus: cpus(&topology, &allowed, to) };
    mover.leave_balancing_out()?;
    let mut moving = Moving {
        machine: pft::machine(allowed.len()),
        from: from.0,
        to: to.0,
        bytes_per_thread: args.memory as u64,
        runs: args.runs,
        rows: Vec::new(),
        callgraphs: Vec::new(),
    };
    for size in sizes {
        for threads in counts(most) {
            let what = format!("{} pages, {}", size.name(), counted(threads, "thread"));
            say!("migration: {what}");
            let runs = |measure: &dyn Fn() -> Result<f64>| -> Result<Spread> {
                let all: Result<Vec<f64>> = (0..args.runs).map(|_| measure()).collect();
                Spread::of(&all?).context("no run")
            };
            moving.rows.push(Row {
                pages: size.name(),
                page_bytes: size.bytes(),
                threads,
                move_pages: runs(&|| Ok(mover.by_threads(size, threads, None)?.bytes_per_second))?,
                migrate_pages: runs(&|| mover.whole(size, threads))?,
                copying: runs(&|| mover.copied(threads))?,
            });
            if let Some(names) = &names {
                let moved = mover.by_threads(size, threads, Some(graph::EVERY))?;
                let title = format!("move_pages, {what}");
                moving.callgraphs.push(graph::graph(title, &moved.stacks, names));
                if moved.lost > 0 {
                    let lost = counted(moved.lost, "sample");
                    say!("migration: lost for want of room: {lost}");
                }
            }
        }
    }
    output::print(&match args.output {
        Format::Json => output::json(&moving)?,
        Format::Csv => moving.csv()?,
        Format::Table => moving.text(),
    })?;
    pages.write(|| moving.page(), || moving.svg())?;
    Ok(ExitCode::SUCCESS)
}

/// The node that is left and the one that is gone to: those asked for, or the first, and the nearest to it.
fn ends(topology: &Topology, args: &MigrationArgs) -> Result<(NodeId, NodeId)> {
    let nodes: Vec<NodeId> = topology.memory_nodes().map(|node| node.id).collect();
    let [first, _, ..] = nodes.as_slice() else {
        bail!(
            "this machine has one node with memory, so there is nowhere to move any; an emulated one has two: \
             numaherd lab run -- numaherd bench migration -m 8m"
        );
    };
    let known = |option: &str, node: u32| -> Result<NodeId> {
        let id = NodeId(node);
        if !nodes.contains(&id) {
            let nodes: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
            bail!("{option} {node}: the nodes with memory are {}", nodes.join(", "));
        }
        Ok(id)
    };
    let from = args.from.map_or(Ok(*first), |node| known("--from", node))?;
    let others = nodes.iter().copied().filter(|node| *node != from);
    let nearest = others.min_by_key(|node| (topology.distance(from, *node), *node));
    let to = args.to.map_or(Ok(nearest.unwrap_or(from)), |node| known("--to", node))?;
    if from == to {
        bail!("--from and --to are both node {from}: two nodes are needed");
    }
    Ok((from, to))
}

/// The destination's CPUs first: pages go to where the threads are that use them.
fn cpus(topology: &Topology, allowed: &CpuSet, to: NodeId) -> Vec<CpuId> {
    let there = topology.node(to).map(|node| node.cpus.intersection(allowed)).unwrap_or_default();
    there.iter().chain(allowed.difference(&there).iter()).collect()
}

/// 1, 2, 4 and so on, and the last.
fn counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

/// Sizes of pages: huge ones only where the kernel gives them.
fn sizes(asked: PagesArg) -> Result<Vec<Size>> {
    let folder = Path::new("/sys/kernel/mm/transparent_hugepage");
    let enabled = std::fs::read_to_string(folder.join("enabled")).unwrap_or_default();
    let size = std::fs::read_to_string(folder.join("hpage_pmd_size")).unwrap_or_default();
    let size =
        size.trim().parse().ok().filter(|_| !enabled.is_empty() && !enabled.contains("[never]"));
    let base = Size::Base(pages::size().0);
    match (asked, size.map(Size::Huge)) {
        (PagesArg::Base, _) => Ok(vec![base]),
        (PagesArg::Huge, Some(huge)) => Ok(vec![huge]),
        (PagesArg::Both, Some(huge)) => Ok(vec![base, huge]),
        (PagesArg::Huge, None) => bail!(
            "--pages huge: this kernel gives no transparent huge pages ({}/enabled)",
            folder.display()
        ),
        (PagesArg::Both, None) => {
            say!(
                "migration: no huge pages, which this kernel does not give ({}/enabled)",
                folder.display()
            );
            Ok(vec![base])
        }
    }
}

/// Both nodes have to hold what is moved, and what is copied lies on both.
fn enough_memory(from: NodeId, to: NodeId, needed: u64) -> Result<()> {
    let states = zoneinfo::read(Path::new("/"))?;
    for node in [from, to] {
        let free = states.iter().find(|state| state.id == node).map_or(0, |state| {
            state.free.0.saturating_sub(state.high_watermark.0) * pages::size().0
        });
        let usable = Bytes(free / 100 * (100 - LEFT_PERCENT));
        if usable.0 < needed {
            bail!(
                "node {node} has {} MiB free for this, and {} MiB are needed: give less memory (-m) or fewer \
                 threads (-t)",
                usable.0 >> 20,
                needed.div_ceil(1 << 20)
            );
        }
    }
    Ok(())
}

/// The kernel's functions, if it shows where they are, and that it shows stacks.
fn names() -> Result<Symbols> {
    graph::can_look().context(
        "--callgraph: the kernel's stacks cannot be sampled (run as root or with CAP_PERFMON)",
    )?;
    let symbols = Symbols::read(Path::new("/"))?;
    if symbols.is_empty() {
        bail!(
            "--callgraph: the kernel hides where its functions are (run as root or with CAP_SYSLOG)"
        );
    }
    Ok(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_the_last() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
    }
}
