//! The tasks of a demand, and where each may go.

use std::collections::BTreeMap;

use numaherd_model::{CpuSet, Node, NodeSet, Snapshot};

use super::{Amounts, DemandTask};

/// What decides where a task may go: its owner's CPUs, the node that it is fixed on, and the nodes that its memory may
/// be on, with its own if that is none of them.
type Key<'a> = (&'a CpuSet, Option<usize>, Option<(&'a NodeSet, usize)>);

/// The tasks, and their distinct masks.
pub fn of(snapshot: &Snapshot) -> (Vec<DemandTask>, Vec<Vec<CpuSet>>) {
    let nodes = &snapshot.topology.nodes;
    let mut node_of: Vec<Option<usize>> = Vec::new();
    for (n, cpu) in
        nodes.iter().enumerate().flat_map(|(n, node)| node.cpus.iter().map(move |c| (n, c)))
    {
        let cpu = cpu.0 as usize;
        node_of.resize(node_of.len().max(cpu + 1), None);
        node_of[cpu] = Some(n);
    }
    let mut mask_of: BTreeMap<Key<'_>, (usize, bool)> = BTreeMap::new();
    let mut masks = Vec::new();
    let mut tasks = Vec::with_capacity(snapshot.tasks.len());
    for task in &snapshot.tasks {
        let home =
            task.home.and_then(|home| nodes.binary_search_by_key(&home, |node| node.id).ok());
        let runs_on = || node_of.get(task.last_cpu.0 as usize).copied().flatten();
        let now = home.or_else(runs_on).unwrap_or(0);
        let only = task.fixed.then_some(now);
        let mems = snapshot.mems_allowed_of(task.process).map(|mems| (mems, now));
        let (mask, has_choice) =
            *mask_of.entry((&task.cpus_owner, only, mems)).or_insert_with(|| {
                let mut cpus = mask(snapshot, &snapshot.open_to(task), only);
                let has_choice = cpus.iter().filter(|cpus| !cpus.is_empty()).count() > 1;
                if let Some((mems, now)) = mems {
                    keep_beside(mems, now, nodes, &mut cpus);
                }
                masks.push(cpus);
                (masks.len() - 1, has_choice)
            });
        tasks.push(DemandTask {
            id: task.id,
            claims_cpu: task.claims_cpu(),
            evidence: task.fault_pages(),
            mask,
            has_choice,
            now,
            placed: task.home.is_some(),
            tied: false,
            traffic: 0,
            bundles: Amounts::new(),
        });
    }
    (tasks, masks)
}

/// Of the CPUs that a task may be given, those of each node; a fixed task's only on the node where it is.
fn mask(snapshot: &Snapshot, cpus: &CpuSet, only: Option<usize>) -> Vec<CpuSet> {
    let of = |(n, node): (usize, &Node)| match only {
        Some(only) if only != n => CpuSet::new(),
        _ => node.cpus.intersection(cpus),
    };
    snapshot.topology.nodes.iter().enumerate().map(of).collect()
}

/// Leaves out nodes that the memory of a task may not be on, where it has CPUs on others: all of its memory would be
/// remote there for good. The node where it is stays in: there may be no room for it elsewhere.
fn keep_beside(mems: &NodeSet, now: usize, nodes: &[Node], cpus: &mut [CpuSet]) {
    let beside: Vec<bool> = nodes.iter().map(|node| mems.contains(node.id)).collect();
    if cpus.iter().zip(&beside).any(|(cpus, beside)| *beside && !cpus.is_empty()) {
        let away = cpus.iter_mut().enumerate().filter(|(n, _)| !beside[*n] && *n != now);
        away.for_each(|(_, cpus)| *cpus = CpuSet::new());
    }
}
