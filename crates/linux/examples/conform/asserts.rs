//! What numactl's tests `move_pages`, `tshared` and `randmap` look at, with answers that count.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use numaherd_linux::sys::mapping::{Mapping, Touch};
use numaherd_linux::sys::mempolicy;
use numaherd_linux::sys::pages::{self, PageStatus, Target};
use numaherd_mempolicy::nodes::next_around;
use numaherd_mempolicy::ranges::Ranges;
use numaherd_mempolicy::{Mode, Policy, Request, Room};
use numaherd_model::{NodeId, NodeSet};

const PAGE: u64 = 4096;
const PAGES: u64 = 256;

/// Runs the three; returns how many fail.
pub fn run(seed: u64) -> u32 {
    let topology = numaherd_linux::topology::read(Path::new("/")).unwrap();
    let nodes: NodeSet = topology.memory_nodes().map(|node| node.id).collect();
    let checks = [
        ("move_pages", moved(&nodes)),
        ("tshared", interleaved_by_several(&nodes)),
        ("randmap", bound_at_random(&nodes, &mut Rng::with_seed(seed))),
    ];
    let mut failed = 0;
    for (name, problem) in checks {
        failed += u32::from(problem.is_err());
        println!("{name}: {}", problem.err().unwrap_or("as it should be".into()));
    }
    println!("3 asserts of our own, {failed} failed");
    failed
}

fn nodes_of(mapping: &Mapping) -> Vec<PageStatus> {
    let addresses: Vec<u64> = (0..PAGES).map(|page| mapping.start() + page * PAGE).collect();
    let mut status = Vec::new();
    pages::query(std::process::id(), &addresses, &mut status).unwrap();
    status.into_iter().map(PageStatus::from_raw).collect()
}

/// Pages are on the nodes they were moved to.
fn moved(nodes: &NodeSet) -> Result<(), String> {
    let mut mapping = Mapping::private((PAGES * PAGE) as usize).unwrap();
    mapping.without_huge_pages();
    mapping.touch(0..mapping.len(), Touch::Write);
    let all: Vec<NodeId> = nodes.iter().collect();
    let addresses: Vec<u64> = (0..PAGES).map(|page| mapping.start() + page * PAGE).collect();
    for shift in 0..all.len() {
        let to: Vec<NodeId> =
            (0..PAGES as usize).map(|page| all[(page + shift) % all.len()]).collect();
        let mut status = Vec::new();
        pages::migrate(std::process::id(), &addresses, Target::Each(&to), false, &mut status)
            .map_err(|error| error.to_string())?;
        for (page, (real, wanted)) in nodes_of(&mapping).iter().zip(&to).enumerate() {
            if *real != PageStatus::On(*wanted) {
                return Err(format!("page {page} is {real:?}, was moved to {wanted}"));
            }
        }
    }
    Ok(())
}

/// Shared memory that several threads fault in is interleaved without a gap.
fn interleaved_by_several(nodes: &NodeSet) -> Result<(), String> {
    let mapping = Mapping::shared((PAGES * PAGE) as usize).unwrap();
    let request = Request::plain(Mode::Interleave, nodes.clone());
    mempolicy::bind(mapping.start(), PAGES * PAGE, &request, 0).map_err(|e| e.to_string())?;
    let mapping = std::sync::Mutex::new(mapping);
    std::thread::scope(|scope| {
        for worker in 0..10_usize {
            let mapping = &mapping;
            scope.spawn(move || {
                for page in (worker..PAGES as usize).step_by(10) {
                    let at = page * PAGE as usize;
                    mapping.lock().unwrap().touch(at..at + 1, Touch::Write);
                }
            });
        }
    });
    let mut before = None;
    for (page, status) in nodes_of(&mapping.into_inner().unwrap()).into_iter().enumerate() {
        let PageStatus::On(node) = status else { return Err(format!("page {page}: {status:?}")) };
        if before.is_some() && next_around(nodes, before) != Some(node) {
            return Err(format!("page {page} is on {node}, the one before on {before:?}"));
        }
        before = Some(node);
    }
    Ok(())
}

/// After many mbinds of parts, each page has the policy that was put on it last.
fn bound_at_random(nodes: &NodeSet, rng: &mut Rng) -> Result<(), String> {
    let mapping = Mapping::private((PAGES * PAGE) as usize).unwrap();
    let room = Room { allowed: nodes.clone(), memory: nodes.clone() };
    let mut expected = Ranges::default();
    for step in 0..500 {
        let (a, b) = (rng.u64(..PAGES), rng.u64(..PAGES));
        let (first, last) = (a.min(b), a.max(b) + 1);
        let mode = [Mode::Default, Mode::Bind, Mode::Interleave, Mode::Preferred, Mode::Local]
            [rng.usize(..5)];
        let wanted: NodeSet = match mode {
            Mode::Default | Mode::Local => NodeSet::new(),
            _ => nodes.iter().take(1 + rng.usize(..nodes.len())).collect(),
        };
        let request = Request::plain(mode, wanted);
        let start = mapping.start() + first * PAGE;
        mempolicy::bind(start, (last - first) * PAGE, &request, 0).map_err(|e| e.to_string())?;
        expected.set(first..last, Policy::new(&request, &room).unwrap().map(Arc::new));
        for page in 0..PAGES {
            let told = mempolicy::get_at(mapping.start() + page * PAGE).unwrap();
            let empty = NodeSet::new();
            let (raw, nodes) = expected
                .get(page)
                .map_or((0, &empty), |policy| (policy.mode().raw(), policy.told_nodes()));
            if (told.raw, &told.nodes) != (raw, nodes) {
                return Err(format!("step {step}: page {page} has {told:?}, not {raw} {nodes}"));
            }
        }
    }
    Ok(())
}
